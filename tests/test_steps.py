"""Every step end to end through the real store, on the toy world at the smallest
size."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import finetuned, losses_of, made, same_run, small_backbone

from lib import data
from lib.core import paths
from lib.core.execute import execute
from lib.core.names import derive_seed
from lib.core.options import Distil, Ghost, Importance, Numerics, Train
from lib.core.spec import Spec, to_plain_json
from lib.core.store import Store
from lib.data import grammar
from lib.model import backbone
from lib.model.surgery import apply_surgery
from lib.model.taps import record_hidden_states
from lib.stats import metrics
from lib.stats.cost import Shape, parameters
from lib.train import loop, losses
from lib.train.batches import encode_split, make_batch, shuffle_row_numbers_into_batches

NUMERICS = Numerics("float32", 1)
TRAIN = Train(
    epochs=2, batch=16, lr=1e-3, max_length=32, clip=1.0, warmup=0.1, dropout=0.1
)
ROWS, HELD_OUT, HEADS = 64, 24, 3
GHOST = Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True, mask=True)
SHAPE = Shape("bert", 2, 48, 12, 96, len(grammar.list_vocabulary()), 128, 2, 48)
DATA = data.make_data_descriptor("toy", "CoLA", ROWS, HELD_OUT)

BACKBONE = small_backbone(TRAIN, layers=2)
SURGERY = [{"op": "cut", "heads": HEADS}, {"op": "ghost"} | to_plain_json(GHOST)]


TEACHER = finetuned(DATA, TRAIN, {"start": BACKBONE}).with_seed(1)
TOLD = {"data": DATA, "numerics": NUMERICS}
RANKED = {"importance": Importance("held_out", 8, 32)}
RANKS = Spec("importance", TOLD | RANKED, {"teacher": TEACHER}).with_seed(1)
MATCHED = {
    "train": replace(TRAIN, lr=3e-3, dropout=0.0),
    "surgery": SURGERY,
    "distil": Distil(mask=True),
}
DISTILLED = Spec(
    "distil", TOLD | MATCHED, {"teacher": TEACHER, "importance": RANKS}
).with_seed(1)
WHOLE = {"train": TRAIN, "surgery": [], "distil": Distil()}
TAUGHT = {"start": DISTILLED, "teacher": TEACHER}
BEST = replace(TRAIN, select="best", eval_every=3)
CHAIN = {
    "backbone": BACKBONE,
    "teacher": TEACHER,
    "ranks": RANKS,
    "distilled": DISTILLED,
    "control": Spec("distil", TOLD | WHOLE, {"teacher": TEACHER}).with_seed(1),
    "student": finetuned(DATA, TRAIN, {"start": DISTILLED}).with_seed(1),
    "soft": finetuned(DATA, TRAIN, TAUGHT, "soft").with_seed(1),
    "both": finetuned(DATA, BEST, TAUGHT, "both").with_seed(1),
    "best": Spec(
        "distil", TOLD | WHOLE | {"train": BEST}, {"teacher": TEACHER}
    ).with_seed(1),
}


def test_every_run_is_finished_and_keeps_what_others_need(runs):
    for name, run in runs.items():
        assert run.status["state"] == "finished" and run.status["attempts"] == 1
        assert run.spec == CHAIN[name].to_json()
        assert run.model_folder.exists() == (name != "ranks")
        assert not (run.folder / "resume").exists()
        assert all(np.isfinite(v) for v in run.metrics.values())


def test_parameters_are_those_of_the_formulas(runs):
    whole, cut = parameters(SHAPE), parameters(SHAPE, HEADS, GHOST)
    found = {name: run.metrics.get("parameters") for name, run in runs.items()}
    assert found["teacher"] == found["control"] == whole
    assert {found[name] for name in ("distilled", "student", "soft", "both")} == {cut}
    assert runs["backbone"].metrics["vocabulary"] == SHAPE.vocab


@pytest.mark.parametrize("name", ["teacher", "student", "soft", "both"])
def test_predictions_are_saved_with_their_rows(name, runs):
    dev, found = data.load(DATA)["dev"], runs[name].read_arrays("predictions")
    assert found["logits"].shape == (2000, 2) and found["logits"].dtype == np.float32
    assert np.array_equal(found["labels"], dev.y) and np.array_equal(
        found["index"], dev.index
    )
    assert runs[name].metrics["matthews"] == metrics.compute_metric(
        "matthews", found["logits"], dev.y
    )
    model, tokenizer = backbone.load(runs[name].model_folder)
    again = loop.predict_logits(model, encode_split(tokenizer, dev, 32), NUMERICS)
    assert np.array_equal(again, found["logits"])


def test_surgery_is_kept_with_what_it_did(runs):
    cut, ghost = json.loads((runs["distilled"].folder / "surgery.json").read_text())
    scores = runs["ranks"].read_arrays("scores")
    assert runs["ranks"].metrics == {"examples": HELD_OUT, "outputs": 2}
    assert (scores["heads"] > 0).all() and (scores["neurons"] >= 0).all()
    assert [cut["surgery"], ghost["surgery"]] == SURGERY
    for name, number in (("heads", HEADS), ("neurons", 24)):
        ranks = np.argsort(-scores[name], axis=1, kind="stable")
        assert cut["report"][name] == ranks[:, :number].tolist()
    assert ghost["report"] == {"modules": 4, "parameters": 4 * 48 * 3}
    assert json.loads((runs["control"].folder / "surgery.json").read_text()) == []
    for name in ("distilled", "student", "both"):
        assert (
            json.loads((runs[name].model_folder / "config.json").read_text())["surgery"]
            == SURGERY
        )
    assert "surgery" not in json.loads(
        (runs["control"].model_folder / "config.json").read_text()
    )


def test_no_file_of_a_run_names_a_folder_of_this_machine(runs):
    for run in runs.values():
        for path in run.folder.rglob("*"):
            if path.suffix in (".json", ".jsonl", ".txt"):
                told = path.read_text()
                assert (
                    str(run.folder.parents[1]) not in told
                    and str(paths.ROOT) not in told
                ), path


def test_distillation_starts_from_the_cut_teacher_and_trains_the_kernels(runs):
    teacher, student = (
        backbone.load(runs[name].model_folder)[0].state_dict()
        for name in ("teacher", "distilled")
    )
    told = json.loads((runs["distilled"].folder / "surgery.json").read_text())
    kept = told[0]["report"]["heads"][0]
    key = "bert.encoder.layer.0.attention.self.query.weight"
    before, after = teacher[key].view(12, 4, 48)[kept].flatten(0, 1), student[key]
    assert 0 < (before - after).norm() < 0.5 * before.norm()
    kernels = [v for k, v in student.items() if "convolution" in k]
    assert (
        len(kernels) == 4 and len({tuple(k.flatten().tolist()) for k in kernels}) == 4
    )
    # distillation does not touch the head
    assert torch.equal(teacher["classifier.weight"], student["classifier.weight"])


@pytest.mark.parametrize("mask", [True, False])
def test_distillation_matches_the_states_that_its_options_name(mask, runs, store):
    """The loss of an epoch that does not move the weights, computed again from the
    parts."""
    train = replace(TRAIN, epochs=1, lr=1e-12, dropout=0.0)
    told = {"train": to_plain_json(train), "distil": to_plain_json(Distil(mask))}
    found = execute(replace(DISTILLED, args=DISTILLED.args | told), store)
    teacher, tokenizer = backbone.load(runs["teacher"].model_folder)
    student, _ = backbone.load(runs["teacher"].model_folder)
    scores = {
        k: torch.from_numpy(v) for k, v in runs["ranks"].read_arrays("scores").items()
    }
    apply_surgery(
        student,
        SURGERY[0],
        head_scores=scores["heads"],
        neuron_scores=scores["neurons"],
    )
    apply_surgery(student, SURGERY[1], seed=derive_seed(1, "ghost"))
    rows, values = encode_split(tokenizer, data.load(DATA)["train"], 32), []
    for chosen in shuffle_row_numbers_into_batches(
        rows.compute_row_lengths(), 16, 1, 0
    ):
        batch = make_batch(rows, chosen)
        with (
            torch.no_grad(),
            record_hidden_states(student) as mine,
            record_hidden_states(teacher) as theirs,
        ):
            student(**batch), teacher(**batch)
            states = (
                [s["embedding"], *s["attention"], *s["ffn"]] for s in (mine, theirs)
            )
            pairs = zip(*states, strict=True)
            real = batch["attention_mask"]
            values.append(
                sum(
                    losses.compute_mean_squared_error(a, b, real, mask).item()
                    for a, b in pairs
                )
            )
    assert [line["loss"] for line in losses_of(found)] == pytest.approx(
        values, rel=1e-5
    )


def test_targets_have_their_parts(runs):
    parts = {
        name: losses_of(runs[name])[0].keys() - {"loss"}
        for name in ("student", "soft", "both")
    }
    assert parts == {"student": {"hard"}, "soft": {"soft"}, "both": {"hard", "soft"}}
    assert (
        "best_step" in runs["both"].metrics and "best_step" not in runs["soft"].metrics
    )


def test_the_best_model_is_the_one_that_is_kept(runs):
    scored = {
        line["step"]: line["score"]
        for line in runs["both"].read_json_lines("events.jsonl")
        if "score" in line
    }
    found = runs["both"].metrics
    assert sorted(scored) == [3, 6, 8]
    assert found["matthews"] == max(scored.values()) == scored[found["best_step"]]


def test_a_distillation_selects_by_development_rows_that_it_does_not_judge(runs):
    events = runs["best"].read_json_lines("events.jsonl")
    scored = {line["step"]: line["score"] for line in events if "score" in line}
    found = runs["best"].metrics
    assert sorted(scored) == [3, 6, 8] and "matthews" not in found
    assert scored[found["best_step"]] == max(scored.values())


def test_the_same_specs_again_are_bit_equal(runs, tmp_path):
    other = Store(tmp_path, tmp_path / "none")
    for name, spec in CHAIN.items():
        same_run(made(other, spec), runs[name])


@pytest.mark.parametrize(
    "heads, message", [(13, "cut to 13 heads"), (0, "cut to 0 heads")]
)
def test_a_surgery_that_cannot_be_fails_with_its_reason(heads, message, runs, store):
    spec = replace(
        DISTILLED, args=DISTILLED.args | {"surgery": [{"op": "cut", "heads": heads}]}
    )
    with pytest.raises(ValueError, match=message):
        execute(spec, store)
    assert store.find_run_with_state(spec)[
        "state"
    ] == "failed" and message in store.explain_missing_run(spec)
