"""Search, random architectures and retraining end to end, on tiny models of three
families."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import finetuned, losses_of, made, same_run, stop_at, untrained

from lib import data
from lib.core.options import Augment, Numerics, Train
from lib.core.spec import Output, Spec
from lib.core.store import RunWriter, Store
from lib.model import backbone, gates, scores
from lib.model.parts import count_parameters, get_encoder, get_recorded_model_changes
from lib.model.surgery import apply_surgery
from lib.model.taps import record_hidden_states
from lib.papers.nas_pruning import gated, gating, objectives
from lib.papers.nas_pruning import recipes as nas
from lib.papers.nas_pruning.control import GateController
from lib.papers.nas_pruning.options import Objective
from lib.stats.cost import compute_layer_widths_of_pruned_network, read_shape_of_config
from lib.train import loop, losses
from lib.train.batches import encode_split, make_batch, shuffle_row_numbers_into_batches

pytestmark = pytest.mark.usefixtures("few_rows")


def shape(model):
    told = model.config.to_dict()
    return read_shape_of_config(
        told | {"model_type": told["model_type"].removeprefix("operated-")}
    )


NUMERICS = Numerics("float32", 1)
DATA = data.make_data_descriptor("toy", "BigramShift", 48, max_unseen_rows=8)
TRAIN = Train(epochs=4, batch=16, lr=1e-3, max_length=24)
GATES = nas.make_gate_settings(0.3, share=0.2, memory=0.5)
PREDICTION = Objective("prediction")
BOTH = Objective("two_stage", attention=True, mask=True)


def encoder(family="bert", **sizes):
    return untrained(family, **{"ffn": 384} | sizes)


def teacher(family="bert", **sizes):
    start = {"start": encoder(family, **sizes)}
    return replace(finetuned(DATA, replace(TRAIN, epochs=1), start), seed=0)


def search(family="bert", objective=PREDICTION, start=None, guide=None, **changes):
    told = {"data": DATA, "train": TRAIN, "numerics": NUMERICS, "objective": objective}
    inputs = {"start": start or teacher(family), "teacher": guide or teacher(family)}
    return Spec("nas_search", told | {"gates": replace(GATES, **changes)}, inputs)


def retrain(inputs, objective, **more):
    train = replace(TRAIN, epochs=1)
    told = {"data": DATA, "train": train, "numerics": NUMERICS, "objective": objective}
    return Spec("retrain", told | more, inputs)


def cut(found, objective=PREDICTION, **more):
    """The Spec of the network that a search found, retrained."""
    inputs = {"start": teacher(), "search": found, "teacher": teacher()}
    return retrain(
        inputs, objective, architecture=Output("search", "architecture"), **more
    )


TIMED = {
    "reference": "Whole",
    "batch": 1,
    "length": 8,
    "runs": 50,
    "numerics": NUMERICS,
}


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_it_lands(family, ratio, store):
    run = made(store, search(family, ratio=ratio).with_seed(0))
    found = run.metrics
    whole = gated.count_masked_encoder_flops(shape(backbone.load(run.model_folder)[0]))
    assert abs(found["ratio"] / ratio - 1) <= 0.01 and found["whole_flops"] == whole
    assert (
        found["miss"] == pytest.approx(found["ratio"] / ratio - 1)
        and found["target"] == ratio
    )
    widths = compute_layer_widths_of_pruned_network(found["architecture"])
    assert found["flops"] == pytest.approx(gated.flops(48, 4, widths))
    assert found["flops"] == pytest.approx(found["ratio"] * whole)
    assert all(width["heads"] >= 1 and width["ffn"] >= 1 for width in widths)
    assert (found["trimmed"] == 0) == (found["before_trim"] == found["ratio"])
    assert found["trimmed"] <= 40


def test_what_a_search_leaves_behind(store):
    run = made(store, search().with_seed(0))
    arrays, found = run.read_arrays("search"), run.metrics
    assert arrays["curve"].shape == (12, 4) and found["steps"] == 12
    assert arrays["curve"][:, 0] == pytest.approx(np.linspace(1, 0.3, 12), rel=1e-6)
    assert arrays["curve"][-1, 1] == pytest.approx(found["before_trim"])
    assert arrays["curve"][:, 2:].sum(0).tolist() == [
        found["switched_off"],
        found["switched_on"],
    ]
    for name, kind in (("heads", "heads"), ("neurons", "ffn")):
        for layer in (0, 1):
            alphas = arrays[f"{layer}.{kind}"]
            assert (
                np.flatnonzero(alphas > 4.6).tolist()
                == found["architecture"][name][layer]
            )
            assert set(np.abs(alphas)) == {5.0}
    model, tokenizer = backbone.load(run.model_folder)
    assert get_recorded_model_changes(model) == [
        {"op": "gates", "regions": ["heads", "ffn"]}
    ]
    assert not hasattr(model, "average")
    again = loop.predict_logits(
        model, encode_split(tokenizer, data.load(DATA)["dev"], 24), NUMERICS
    )
    assert np.array_equal(again, run.read_arrays("predictions")["logits"])
    assert (
        run.read_arrays("predictions_unseen").keys() == {"bits"}
        and "unseen.accuracy" in found
    )
    weights = model.state_dict()
    before = backbone.load(made(store, teacher()).model_folder)[0]
    assert any(
        not torch.equal(value, weights[name])
        for name, value in before.named_parameters()
    )


@pytest.mark.parametrize(
    "spec",
    [search(memory=0.9), search(objective=BOTH)],
    ids=["prediction", "two stages"],
)
def test_a_killed_search_is_resumed_with_the_same_bits(
    spec, store, tmp_path, monkeypatch
):
    expected = made(store, spec.with_seed(0))
    other = Store(runs_folder=tmp_path, records_folder=tmp_path / "none")
    calls = stop_at(monkeypatch, GateController, "compute_gate_logits_after_step", 8)
    with pytest.raises(KeyboardInterrupt):
        made(other, spec.with_seed(0), checkpoint_interval_seconds=-1)
    run = made(other, spec.with_seed(0))
    assert (
        len(calls) == 8 + 5 and run.status["attempts"] == 2
    )  # seven steps before, five after
    same_run(run, expected)


@pytest.mark.parametrize(
    "objective",
    [Objective("cross_entropy"), Objective("intermediate"), BOTH],
    ids=lambda o: o.kind,
)
def test_other_objectives(objective, store):
    run = made(store, search(objective=objective).with_seed(0))
    assert abs(run.metrics["miss"]) <= 0.01
    parts = [set(line) for line in losses_of(run)[:: run.metrics["steps"] // 4]]
    told = {"cross_entropy": {"loss", "hard"}, "intermediate": {"loss", "layers"}}.get(
        objective.kind
    )
    assert parts == (
        [told] * 4 if told else [{"loss", "layers", "attention"}] * 2 + [{"loss"}] * 2
    )


@pytest.mark.parametrize(
    "changes",
    [{"memory": 0.0}, {"quota": "all", "share": 1.0, "schedule": "none"}],
    ids=["as reported", "no control"],
)
def test_a_search_as_reported_is_trimmed_at_its_end_alone(changes, store):
    """The curve ends off the target, where the movers left it; the trim then meets the
    target."""
    run = made(store, search(landing="end", **changes).with_seed(0))
    found = run.metrics
    assert abs(found["before_trim"] / 0.3 - 1) > 0.01 >= abs(found["miss"])
    assert run.read_arrays("search")["curve"][-1, 1] == pytest.approx(
        found["before_trim"]
    )
    assert found["trimmed"] > 0 and all(map(all, found["architecture"].values()))


@pytest.mark.parametrize(
    "regions",
    [("embedding", "qkv", "ffn"), ("heads", "ffn", "embedding"), ("qkv", "ffn")],
    ids="+".join,
)
def test_other_regions_are_searched_and_cut(regions, store):
    spec = search(regions=regions, ratio=0.5)
    run = made(store, spec.with_seed(0))
    assert abs(run.metrics["miss"]) <= 0.01
    last = made(store, cut(spec).with_seed(0))
    assert last.metrics["flops"] == pytest.approx(run.metrics["flops"])
    model, _ = backbone.load(last.model_folder)
    assert get_recorded_model_changes(model) == [
        {"op": "keep"} | run.metrics["architecture"]
    ]
    assert gating.count_inference_flops(model) == last.metrics["flops"]


def test_cut_and_retrained_in_two_stages(store):
    spec = search()
    first = cut(spec, replace(BOTH, kind="intermediate"))
    last = made(
        store, retrain({"start": first, "teacher": teacher()}, PREDICTION).with_seed(0)
    )
    run, stage = made(store, spec.with_seed(0)), made(store, first.with_seed(0))
    model, tokenizer = backbone.load(last.model_folder)
    assert get_recorded_model_changes(model) == [
        {"op": "keep"} | run.metrics["architecture"]
    ]
    assert last.metrics["flops"] == pytest.approx(run.metrics["flops"])
    whole = made(store, teacher()).metrics["parameters"]
    assert (
        last.metrics["parameters"]
        == count_parameters(model)["parameters"]
        < 0.75 * whole
    )
    again = loop.predict_logits(
        model, encode_split(tokenizer, data.load(DATA)["dev"], 24), NUMERICS
    )
    assert np.array_equal(again, last.read_arrays("predictions")["logits"])
    assert {"layers", "attention"} < stage.read_json_lines("events.jsonl")[0][
        "curve"
    ].keys()


def test_original_and_searched_weights(store):
    """Section 7.8: retraining starts from the model that was searched in, or from the
    search."""
    spec, still = search(), replace(TRAIN, epochs=1, lr=1e-9)
    for start in (teacher(), spec):
        again = cut(spec, train=still)
        run = made(
            store, replace(again, inputs=again.inputs | {"start": start}).with_seed(0)
        )
        model, _ = backbone.load(run.model_folder)
        whole, _ = backbone.load(made(store, start.with_seed(0)).model_folder)
        if gates.has_gates(whole):
            gates.remove_gates(whole)
        apply_surgery(
            whole,
            {"op": "keep"} | made(store, spec.with_seed(0)).metrics["architecture"],
        )
        for name, value in whole.state_dict().items():
            torch.testing.assert_close(
                model.state_dict()[name], value, atol=1e-6, rtol=0
            )


def test_random_architectures_of_the_same_cost(store):
    drawn = Spec("random_architecture", {"gates": GATES}, {"start": teacher()})
    runs = [made(store, drawn.with_seed(seed)) for seed in (0, 1, 2)]
    assert all(
        abs(run.metrics["ratio"] / run.metrics["target"] - 1) <= 0.01 for run in runs
    )
    assert len({json.dumps(run.metrics["architecture"]) for run in runs}) == 3
    found = made(store, cut(drawn).with_seed(0)).metrics
    assert found["flops"] == pytest.approx(runs[0].metrics["flops"])


def test_random_parts_in_the_numbers_of_a_search(store):
    """Each layer keeps as many heads and neurons as the search, and the cost is the
    same."""
    found = search().with_seed(0)
    alone = Spec("random_architecture", {"gates": GATES}, {"start": teacher()})
    sized = Spec(
        "random_architecture",
        {"gates": GATES},
        {"start": teacher(), "search": search()},
    )
    nets = [
        made(store, spec).metrics
        for spec in (found, sized.with_seed(0), alone.with_seed(0))
    ]
    counts = [
        compute_layer_widths_of_pruned_network(net["architecture"]) for net in nets
    ]
    assert counts[0] == counts[1] != counts[2]
    assert nets[0]["architecture"] != nets[1]["architecture"]
    assert nets[1]["flops"] == pytest.approx(nets[0]["flops"])
    assert made(store, cut(sized).with_seed(0)).metrics["flops"] == pytest.approx(
        nets[0]["flops"]
    )


def test_from_a_larger_teacher(store):
    """Procedure A: a general student, a deeper and wider teacher, two stages of search;
    its projection is not kept."""
    big = teacher(layers=4, hidden=96)
    run = made(store, search(objective=BOTH, start=encoder(), guide=big).with_seed(0))
    model, _ = backbone.load(run.model_folder)
    assert abs(run.metrics["miss"]) <= 0.01 and not hasattr(model, "projection")
    assert run.metrics["whole_flops"] == gated.count_masked_encoder_flops(shape(model))


def test_a_search_reads_augmented_rows(store):
    options = Augment(tries=2, p=0.5, candidates=5, neighbours="embeddings")
    told = {"data": DATA, "augment": options, "numerics": NUMERICS}
    more = Spec("augment", told, {"language_model": encoder()}, seed=0)
    spec = search()
    spec = replace(spec, inputs=spec.inputs | {"augmented": more}).with_seed(0)
    found, rows = made(store, spec).metrics, made(store, more).metrics["rows_out"]
    assert (
        rows > 48
        and found["steps"] == 4 * -(-rows // 16)
        and abs(found["miss"]) <= 0.01
    )


def test_cut_networks_are_timed_beside_the_whole_one(store):
    networks = {"model:Whole": teacher(), "model:30 %": cut(search()).with_seed(0)}
    run = made(store, Spec("latency", TIMED, networks).with_seed(0))
    found, times = run.metrics, run.read_arrays("times")["cpu"]
    assert times.shape == (2, 50) and found["Whole.cpu_speedup"] == 1.0
    for name, spec in networks.items():
        model = get_encoder(backbone.load(made(store, spec).model_folder)[0])
        assert found[f"{name[6:]}.parameters"] == count_parameters(model)["parameters"]
    assert found["30 %.parameters"] < found["Whole.parameters"]
    assert found["30 %.cpu_ms"] == pytest.approx(
        1e3 * np.median(times[0])
    )  # sorted by name


def test_the_progress_of_a_timing_ends_at_one(store, monkeypatch):
    shares = []
    monkeypatch.setattr(
        RunWriter, "report_progress", lambda self, fraction: shares.append(fraction)
    )
    made(store, Spec("latency", TIMED, {"model:Whole": teacher()}).with_seed(1))
    assert shares == sorted(shares) and 0 < shares[0] and shares[-1] == 1


def test_the_reference_is_one_of_the_timed_models(store):
    with pytest.raises(ValueError, match="'Cut' is not in list"):
        made(
            store,
            Spec(
                "latency", TIMED | {"reference": "Cut"}, {"model:Whole": teacher()}
            ).with_seed(0),
        )


def training(teacher, **more):
    """What an objective asks of a lib.train.learn.TaskTraining."""
    run = SimpleNamespace(seed=0)
    return SimpleNamespace(teacher=(teacher, None), run=run, numerics=NUMERICS, **more)


def parts_of(options, student, other, batch):
    """The loss of a batch, without a run."""
    with objectives.build_hidden_state_loss(training(other), student, options) as loss:
        return loss(batch, None)


@pytest.mark.parametrize("mask", [True, False])
def test_intermediate_loss_by_hand(mask, family, tiny, sentences):
    student = tiny(family, seed=1).double()
    other = tiny(family).double()
    batch = sentences(family)
    apply_surgery(
        student, {"op": "keep", "heads": [[3, 7], [0]], "neurons": [[1, 2], [3]]}
    )
    found = parts_of(
        Objective("intermediate", attention=True, mask=mask), student, other, batch
    )
    real = batch["attention_mask"].bool()
    with (
        torch.no_grad(),
        record_hidden_states(student) as mine,
        record_hidden_states(other) as theirs,
        scores.record_attention_scores(student) as s,
        scores.record_attention_scores(other) as t,
    ):
        student(**batch), other(**batch)
        layers = attention = 0.0
        for a, b in zip(
            [mine["embedding"], *mine["ffn"]],
            [theirs["embedding"], *theirs["ffn"]],
            strict=True,
        ):
            layers += (a - b)[real].square().mean() if mask else (a - b).square().mean()
        for a, b, kept in zip(s, t, [[3, 7], [0]], strict=True):
            square = (a - b[:, kept]).square()
            if mask:
                rows = [
                    square[i, :, :n, :n].flatten()
                    for i, n in enumerate(real.sum(1).tolist())
                ]
                attention += torch.cat(rows).mean()
            else:
                attention += (square * real[:, None, None, :]).mean()
    assert found["layers"].item() == pytest.approx(layers.item(), rel=1e-5)
    assert found["attention"].item() == pytest.approx(attention.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx(
        layers.item() + attention.item(), rel=1e-5
    )


def test_prediction_is_the_squared_error_of_logits(store):
    """The loss of a run that does not move, from its parts."""
    still = replace(TRAIN, epochs=1, lr=1e-12)
    inputs = {"start": teacher(), "teacher": teacher("bert", ffn=96)}
    run = made(store, retrain(inputs, PREDICTION, train=still).with_seed(3))
    networks = [
        backbone.load(made(store, spec).model_folder) for spec in inputs.values()
    ]
    rows, values = encode_split(networks[0][1], data.load(DATA)["train"], 24), []
    for chosen in shuffle_row_numbers_into_batches(
        rows.compute_row_lengths(), 16, 3, 0
    ):
        with torch.no_grad():
            a, b = (
                network(**make_batch(rows, chosen)).logits for network, _ in networks
            )
        values.append(losses.compute_mean_squared_error(a, b).item())
    assert [line["loss"] for line in losses_of(run)] == pytest.approx(values, rel=1e-5)


@pytest.mark.parametrize(
    "kind, classes",
    [("soft_cross_entropy", 2), ("soft_cross_entropy", 1), ("cross_entropy", 2)],
)
def test_losses_of_the_prediction_by_hand(kind, classes, tiny, sentences):
    """TinyBERT's own: cross-entropy against the teacher's probabilities, averaged over
    rows and classes (Table 3); scores and plain cross-entropy learn the labels."""
    student, batch = tiny("bert", seed=1, labels=classes), sentences()
    with torch.no_grad():
        a, b = (tiny("bert", seed=i, labels=classes)(**batch).logits for i in (1, 0))
    labels = torch.tensor([0.5, 2.0, 3.5] if classes == 1 else [0, 1, 1])
    rows, task = SimpleNamespace(labels=labels), SimpleNamespace(output_width=classes)
    told = training(None, teacher_logits=b, task=task, training_rows=rows)
    with objectives.build_training_loss(told, student, Objective(kind)) as loss:
        found = loss(batch, torch.arange(3))["loss"].item()
    logs = a.log_softmax(-1)
    if classes == 1:
        wanted = (a[:, 0] - labels).square().mean()
    elif kind == "cross_entropy":
        wanted = -logs[range(3), labels].mean()
    else:
        wanted = -(b.softmax(-1) * logs).mean()
    assert found == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize(
    "spec, message",
    [
        (
            search(regions=("ffn",), ratio=0.2),
            "Gates.ratio is 0.2, .* leaves 0.3.* at least that",
        )
    ],
)
def test_what_cannot_be_searched_fails_at_once(spec, message, store):
    with pytest.raises(ValueError, match=message):
        made(store, spec.with_seed(0))
