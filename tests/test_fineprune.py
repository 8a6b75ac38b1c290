"""The step end to end through the real store, at the smallest size: four methods, mix,
distillation, divergence, resume.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import (
    finetuned,
    losses_of,
    same_run,
    scored,
    small_backbone,
    stop_at,
    store_with,
)

from lib import data
from lib.core import paths
from lib.core.execute import execute
from lib.core.names import derive_seed
from lib.core.options import Numerics, Span, Targets, Train
from lib.core.spec import Spec, to_plain_json
from lib.model import backbone, masks, mix
from lib.model.parts import get_encoder, get_layers, get_recorded_model_changes
from lib.papers.bermo import schedules
from lib.papers.bermo.options import Mix, Prune
from lib.stats import metrics
from lib.train import heads, loop, losses
from lib.train.batches import encode_split, make_batch, shuffle_row_numbers_into_batches

pytestmark = pytest.mark.usefixtures("few_rows")
NUMERICS = Numerics("float32", 1)
TRAIN = Train(
    epochs=2, batch=16, lr=1e-3, max_length=32, clip=1.0, warmup=0.1, dropout=0.1
)
DATA = data.make_data_descriptor("toy", "CoLA", 64, max_unseen_rows=8)
SQUAD = data.make_data_descriptor("toy", "SQuAD2", 48)
SPAN = Span(stride=12, max_query=10, max_answer=8)
STEPS = 8
BACKBONE = small_backbone(TRAIN, layers=2)
MAGNITUDE = Prune("magnitude", 1.0, 0.1, 2, 1, 1)
MOVEMENT = replace(MAGNITUDE, method="movement", lr=1e-2)
SOFT = Prune("soft", 0.0, 0.1, 2, 1, 1, lr=1.0, final_lambda=200.0)
L0 = Prune("l0", 1.0, 1.0, 2, 1, 1, lr=1.2, init=2.197, final_lambda=0.5)
MIX = Mix("channels", "xavier_uniform", 1e-2, 0.1)


def spec(prune=None, inputs=None, seed=1, **more):
    args = {
        "data": DATA,
        "train": TRAIN,
        "targets": Targets("hard"),
        "numerics": NUMERICS,
        "prune": prune,
        "margin": 0.02,
    }
    return Spec("fineprune", args | more, inputs or {"start": BACKBONE}).with_seed(seed)


TEACHER = spec()
CHAIN = {
    "backbone": BACKBONE,
    "dense": TEACHER,
    "mix": spec(mix=MIX),
    "magnitude": spec(MAGNITUDE),
    "movement": spec(MOVEMENT),
    "soft": spec(SOFT),
    "l0": spec(L0),
    "steered": spec(replace(L0, target=0.3), mix=MIX),
    "frozen": spec(MOVEMENT, frozen="embeddings", mix=MIX),
    "probe": spec(frozen="encoder", mix=MIX),
    "cased": spec(MOVEMENT, lower_case=False),
    "best": spec(MOVEMENT, train=replace(TRAIN, select="best", eval_every=3)),
    "distilled": spec(
        MOVEMENT,
        {"start": BACKBONE, "teacher": TEACHER},
        alpha=0.9,
        targets=Targets("both", sum_classes=True, temperature=2.0),
    ),
    "spans": spec(
        replace(MOVEMENT, overlong="jump"),
        data=SQUAD,
        train=replace(TRAIN, epochs=1, max_length=40),
        span=SPAN,
        mix=MIX,
    ),
}
MASKED = [name for name, s in CHAIN.items() if "prune" in s.args]


@pytest.mark.parametrize("name", sorted(set(CHAIN) - {"backbone", "spans"}))
def test_predictions_are_those_of_the_saved_model(name, runs):
    run, dev = runs[name], data.load(DATA)["dev"]
    found = run.read_arrays("predictions")
    assert np.array_equal(found["labels"], dev.y) and np.array_equal(
        found["index"], dev.index
    )
    assert run.metrics["matthews"] == metrics.compute_metric(
        "matthews", found["logits"], dev.y
    )
    assert (
        run.read_arrays("predictions_unseen").keys() == {"bits"}
        and "unseen.matthews" in run.metrics
    )
    model, tokenizer = backbone.load(run.model_folder)
    again = loop.predict_logits(model, encode_split(tokenizer, dev, 32), NUMERICS)
    assert np.array_equal(again, found["logits"])


def test_spans_are_saved_and_found_again(runs):
    dev, run = data.load(SQUAD)["dev"], runs["spans"]
    model, tokenizer = backbone.load(run.model_folder)
    rows, marks = heads.encode_rows_and_make_scorer(
        tokenizer, dev, data.find_task_of_descriptor(SQUAD), 40, to_plain_json(SPAN)
    )
    found, arrays = marks(loop.predict_logits(model, rows, NUMERICS))
    assert np.array_equal(arrays["spans"], run.read_arrays("predictions")["spans"])
    assert found["span_f1"] == run.metrics["span_f1"]
    assert [op["op"] for op in get_recorded_model_changes(model)] == ["mix", "keep"]


@pytest.mark.parametrize("name", MASKED)
def test_counts_are_those_of_the_saved_weights(name, runs):
    run = runs[name]
    found, model = run.metrics, backbone.load(run.model_folder)[0]
    kept = np.zeros(2)
    for number, _, linear in masks.list_linear_layers(model):
        kept[number] += int((linear.weight != 0).sum())
    shares = 2 * kept / found["masked_weights"]
    told = run.read_arrays("shares")["layers"]
    if found["kept_neurons"] == 192 and found["kept_heads"] == 24:
        assert kept.sum() == found["kept_weights"]
        assert told == pytest.approx(shares, abs=1e-12)
    else:  # a neuron without incoming weights goes, and with it outgoing ones that masks had kept
        assert kept.sum() < found["kept_weights"] and (told >= shares).all()
    assert told.mean() == pytest.approx(found["kept_share"], abs=1e-12)
    assert found["masked_weights"] == 2 * (4 * 48**2 + 2 * 48 * 96)
    assert found["encoder_parameters"] == found["masked_weights"] + 2 * (
        4 * 48 + 96 + 48 + 4 * 48
    )
    assert found["kept_share"] == found["kept_weights"] / found["masked_weights"]
    biases = found["encoder_parameters"] - found["masked_weights"]
    assert (
        found["remaining"]
        == (found["kept_weights"] + biases) / found["encoder_parameters"]
    )
    assert found["bytes_sparse"] <= found["bytes_dense"]
    on_disk = (run.model_folder / "model.safetensors").stat().st_size
    assert 0 < on_disk - found["bytes_dense"] < 20000


def test_the_methods_keep_what_they_should(runs):
    sizes = [48 * 48] * 4 + [48 * 96] * 2
    tenth = 2 * sum(int(0.1 * size) for size in sizes)
    for name in ("magnitude", "movement", "frozen", "best", "distilled"):
        assert runs[name].metrics["kept_weights"] == tenth, name
    for name in ("soft", "l0", "steered"):
        assert 0.005 < runs[name].metrics["kept_share"] < 0.99, name
    steered = runs["steered"].metrics
    assert steered["penalty_weight"] != L0.final_lambda


def test_the_dense_run_is_plain_fine_tuning(runs, store):
    """The same bits as the step `finetune`, so that both kinds of run can stand in one
    table."""
    other = execute(finetuned(DATA, TRAIN, {"start": BACKBONE}).with_seed(1), store)
    found, wanted = (
        run.read_arrays("predictions")["logits"] for run in (other, runs["dense"])
    )
    assert np.array_equal(found, wanted)
    assert other.metrics.items() - runs["dense"].metrics.items() <= {
        ("examples_per_second", other.metrics["examples_per_second"])
    }


@pytest.mark.parametrize("name", sorted(set(CHAIN) - {"backbone", "spans"}))
def test_the_course_has_a_line_for_each_bin(name, runs):
    found = runs[name].read_arrays("course")
    assert found["gradient_norm"].shape == (STEPS, 2)
    assert (found["gradient_norm"] > 0).all() == (name != "probe")


def test_the_course_tells_how_many_weights_are_kept_at_the_first_step_of_each_bin(runs):
    left = {
        name: runs[name].read_arrays("course")["kept_share"]
        for name in ("dense", *MASKED)
    }
    assert all(
        shares.shape == (STEPS,) for name, shares in left.items() if name != "spans"
    )
    assert set(left["dense"]) == {1.0}
    ramp = schedules.plan_threshold_ramp(MAGNITUDE, STEPS)
    for name in ("magnitude", "movement"):
        assert left[name] == pytest.approx(
            [ramp(step) for step in range(STEPS)], abs=1e-3
        )
    assert left["soft"][0] == left["l0"][0] == 1.0
    assert all(runs[name].metrics["kept_share"] <= left[name][0] for name in MASKED)


def test_pages_read_arrays_of_the_course_that_a_run_saves(runs):
    """A page once read what only older records had."""
    texts = [
        path.read_text().replace('\\"', '"')
        for path in paths.NOTEBOOKS.rglob("*.ipynb")
    ]
    read = {key for text in texts for key in re.findall(r'course\["(\w+)"\]', text)}
    assert read and read <= set(runs["soft"].read_arrays("course"))


def test_gradient_norms_are_those_of_the_layers_unclipped(runs, store):
    """The first step of a run without dropout, computed again by hand."""
    run = execute(spec(train=replace(TRAIN, dropout=0.0, clip=1e-3)), store)
    start, task = runs["backbone"].model_folder, data.find_task_of_descriptor(DATA)
    model, tokenizer = heads.load_task_model_and_tokenizer(
        start, task, 0.0, derive_seed(1, "head")
    )
    rows = encode_split(tokenizer, data.load(DATA)["train"], 32)
    chosen = shuffle_row_numbers_into_batches(rows.compute_row_lengths(), 16, 1, 0)[0]
    logits = model(**make_batch(rows, chosen)).logits
    losses.compute_prediction_losses(logits, rows.labels[chosen], Targets("hard"))[
        "loss"
    ].backward()
    grads = [
        torch.cat([p.grad.flatten() for p in layer.parameters()])
        for layer in get_layers(model)
    ]
    expected = [each.norm().item() for each in grads]
    assert run.read_arrays("course")["gradient_norm"][0] == pytest.approx(
        expected, rel=1e-4
    )


def test_the_mix_learns_and_is_told(runs):
    for name in ("mix", "steered", "frozen", "probe", "spans"):
        found = runs[name].read_arrays("mix")
        assert found["before"].shape == found["after"].shape == (3,)
        assert found["after"].sum() == pytest.approx(1)
        assert (
            not np.array_equal(found["before"], found["after"]) and found["gamma"] != 1
        )
        model = backbone.load(runs[name].model_folder)[0]
        assert np.array_equal(
            mix.find_layer_mix(model).compute_hidden_state_weights().detach().numpy(),
            found["after"],
        )
        assert runs[name].metrics["mix_bytes_per_token"] == 3 * 48 * 4
    assert not (runs["dense"].folder / "mix.safetensors").exists()


def test_a_pruned_start_can_be_pruned_further_or_trained_as_it_is(runs, store):
    start = {"start": CHAIN["soft"]}
    further, kept = (
        execute(spec(p, start), store, keep_weights=True) for p in (MAGNITUDE, None)
    )
    assert further.metrics["kept_share"] == pytest.approx(0.1, abs=1e-3)
    before, after = (
        masks.list_linear_layers(backbone.load(run.model_folder)[0])
        for run in (runs["soft"], kept)
    )
    for (*_, one), (*_, two) in zip(before, after, strict=True):
        assert not torch.equal(one.weight, two.weight)


def test_frozen_embeddings_stay(runs):
    start = backbone.load(runs["backbone"].model_folder)[0]
    for name, moves in (("movement", True), ("frozen", False)):
        models = start, backbone.load(runs[name].model_folder)[0]
        tables = (get_encoder(model).embeddings.parameters() for model in models)
        pairs = list(zip(*tables, strict=True))
        assert len(pairs) == 5 and all(torch.equal(a, b) != moves for a, b in pairs)


def test_a_probe_leaves_the_encoder_alone(runs, store):
    start, model = (
        get_encoder(backbone.load(runs[name].model_folder)[0])
        for name in ("backbone", "probe")
    )
    before, after = dict(start.named_parameters()), dict(model.named_parameters())
    same = {name for name in before if torch.equal(before[name], after[name])}
    moved = after.keys() - same
    assert moved == {
        "pooler.dense.weight",
        "pooler.dense.bias",
        "mix.alpha",
        "mix.gamma",
    }
    assert set(runs["probe"].read_arrays("course")["gradient_norm"].flatten()) == {0.0}


def test_distillation_weighs_its_two_parts(runs):
    for line in losses_of(runs["distilled"]):
        assert line["loss"] == pytest.approx(
            0.1 * line["hard"] + 0.9 * line["soft"], rel=1e-6
        )
    soft = losses_of(runs["soft"])[-1]
    assert soft["penalty"] > 0
    assert soft["loss"] == pytest.approx(soft["hard"] + soft["penalty"], rel=1e-6)


def test_the_best_model_is_judged_under_the_final_masks(runs):
    scored = {
        line["step"]: line["score"]
        for line in runs["best"].read_json_lines("events.jsonl")
        if "score" in line
    }
    assert sorted(scored) == [3, 6, 8] and runs["best"].metrics["matthews"] == max(
        scored.values()
    )
    assert runs["best"].metrics["kept_share"] < 0.11


def test_a_warm_up_that_does_not_fit_is_refused(runs, store):
    told = "that is 200 of the 8 steps"
    with pytest.raises(ValueError, match=told):
        execute(spec(replace(MOVEMENT, warmup_steps=100)), store)


def test_probing_tasks_are_told_on_both_their_splits(runs, store):
    probing = data.make_data_descriptor("toy", "Tense", 64)
    run = execute(spec(mix=MIX, data=probing), store, keep_weights=True)
    splits = data.load(probing)
    for name, prefix, key in (
        ("predictions", "dev", ""),
        ("predictions_test", "test", "test."),
    ):
        found = run.read_arrays(name)
        right = found["logits"].argmax(1) == splits[prefix].y
        assert np.array_equal(found["index"], splits[prefix].index)
        assert run.metrics[f"{key}accuracy"] == right.mean()


def test_unknown_tokens_are_counted(store, runs, monkeypatch):
    """Every sentence of the task begins with a capital: one unknown word in each."""
    splits = {
        name: replace(split, a=[text.capitalize() for text in split.a])
        for name, split in data.load(DATA).items()
    }
    monkeypatch.setattr(data, "load", lambda descriptor, seed=None: splits)
    found = execute(spec(lower_case=False, seed=2), store).metrics
    tokens = sum(len(text.split()) + 2 for text in splits["train"].a)
    assert found["unknown_share"] == pytest.approx(len(splits["train"]) / tokens)


def test_a_loss_that_is_not_finite_is_a_result(store):
    wild = {"train": replace(TRAIN, lr=1e9, clip=0.0, warmup=0.0), "mix": MIX}
    run = execute(spec(MOVEMENT, **wild), store, keep_weights=True)
    found, course = run.metrics, run.read_arrays("course")
    assert run.status["state"] == "finished" and run.model_folder.exists()
    assert found["diverged"] is True
    assert (
        "matthews" not in found
        and not (run.folder / "predictions.safetensors").exists()
    )
    norms = course["gradient_norm"]
    assert np.isfinite(norms[0]).all() and np.isnan(norms[-1]).all()
    with pytest.raises(FloatingPointError, match="lower Train.lr"):
        execute(spec(MOVEMENT, margin=None, **wild), store)


def test_a_score_near_the_majority_class_is_divergence(runs, store):
    dense = runs["dense"].metrics
    assert dense["majority"] == 0.0 and dense["diverged"] is bool(
        dense["matthews"] <= 0.02
    )
    assert execute(spec(margin=1.0), store).metrics["diverged"] is True
    assert "diverged" not in execute(spec(margin=None), store).metrics


def test_what_needs_no_reading():
    splits = data.load(data.make_data_descriptor("toy", "RTE", 64))
    frequent = np.bincount(splits["train"].y).argmax()
    assert heads.score_majority_baseline(
        data.find_task_by_name("toy", "RTE"), splits
    ) == np.mean(splits["dev"].y == frequent)
    scores = scored(64)
    assert (
        heads.score_majority_baseline(
            data.find_task_of_descriptor(scores), data.load(scores)
        )
        == 0.0
    )
    spans = data.load(SQUAD)
    absent = [not answers for answers in spans["dev"].answers]
    assert heads.score_majority_baseline(
        data.find_task_by_name("toy", "SQuAD2"), spans
    ) == np.mean(absent)


@pytest.mark.parametrize("name", ["steered", "soft"])
def test_a_killed_run_resumes_to_the_same_bits(name, runs, tmp_path, monkeypatch):
    other = store_with(tmp_path, runs["backbone"])
    calls = stop_at(monkeypatch, losses, "compute_prediction_losses", 6, RuntimeError)
    with pytest.raises(RuntimeError):
        execute(CHAIN[name], other, keep_weights=True, checkpoint_interval_seconds=0.0)
    assert other.find_run_with_state(CHAIN[name])["state"] == "failed"
    run = execute(
        CHAIN[name], other, keep_weights=True, checkpoint_interval_seconds=0.0
    )
    assert len(calls) == 6 + 3 and any(
        line.get("resumed") for line in run.read_json_lines("events.jsonl")
    )
    same_run(run, runs[name])


def test_scores_and_mix_have_rates_of_their_own_and_no_decay(runs, store, monkeypatch):
    seen = []

    class Spy(torch.optim.AdamW):
        def __init__(self, groups, **options):
            super().__init__(groups, **options)
            seen.extend(
                (len(g["params"]), g["lr"], g["weight_decay"])
                for g in self.param_groups
            )

    monkeypatch.setattr(torch.optim, "AdamW", Spy)
    execute(
        spec(MOVEMENT, mix=MIX, train=replace(TRAIN, weight_decay=0.1), seed=2), store
    )
    assert seen[0][1:] == (1e-3, 0.1) and sorted(seen[1:]) == [
        (2, 1e-2, 0.0),
        (12, 1e-2, 0.0),
    ]


def test_cased_text_is_unknown_to_an_uncased_vocabulary(runs):
    """The generated text is in lower case, so the weights are those of the plain run;
    the saved tokenizer is another."""
    cased, movement = runs["cased"], runs["movement"]
    (model, kept), (plainly, lowered) = (
        backbone.load(run.model_folder) for run in (cased, movement)
    )
    assert kept.tokenize("The dog slept") == ["[UNK]", "dog", "slept"]
    assert lowered.tokenize("The dog slept")[0] == "the"
    pairs = zip(model.parameters(), plainly.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert (
        cased.metrics["unknown_share"] == 0.0
        and "unknown_share" not in movement.metrics
    )
