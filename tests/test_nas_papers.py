"""NAS pruning: the report's settings, grids at every profile, and its tables and claims on made-up results."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import every_spec, made_up

from lib import paths, published
from lib.data import digits as images
from lib.measure import gated
from lib.options import Perceptron
from lib.page import notebook
from lib.papers import grids, nas, nas_claims
from lib.search import gates as search

NOTEBOOKS = notebook.find(["nas_*"])
LISTED = [path for path in NOTEBOOKS if path.stem != "nas_s72_flops_share"]


def test_the_settings_are_those_of_the_report(anywhere):
    told = dict(nas_claims.published.table("nas", "claims").set_index("claim")["value"])
    options = nas.gates()
    assert options.share == float(told["share of alphas updated per training step"]) / 100
    assert {100 * r for r in nas.RATIOS} == {float(v) for v in told["target sizes of the search"].split("|")}
    assert options.weight == float(told["FLOPS weight chosen for all tasks"]) and options.schedule == told["schedule adopted"]
    assert set(nas.AUGMENTED) == set(told["tasks fine-tuned on augmented data for the test results"].split("; "))
    assert {options.ratio, float(told["computational cost of the main test models"]) / 100} == {0.3}
    epochs = int(told["BERT-base to TinyBERT distillation: epochs of each step"])
    for settings in (nas.TEACHER, nas.SEARCH, nas.INTERMEDIATE, nas.PREDICTION):
        assert settings["paper"].epochs == epochs == 10 and settings["paper"].batch == 32
    assert nas.TEACHING["paper"] == (10, 3) and nas.STAGES["paper"] == ((10, 10), (20, 3))
    assert (options.regions, options.update, options.tolerance) == (("heads", "ffn"), "jump", 0.01)
    for name, target in (("table08b_mnist_3layer", "3 layers"), ("table10b_mnist_11layer", "11 layers")):
        table = nas_claims.published.table("nas", name)
        assert tuple(table["Target Input Size Ratio"]) == nas.TARGETS and isinstance(nas.NETWORKS[target], Perceptron)
    assert [n.epochs for n in nas.NETWORKS.values()] == [15, 20] and [len(n.widths) for n in nas.NETWORKS.values()] == [3, 11]


def test_printed_sparsities_of_magnitude_pruning_are_rounds():
    table = nas_claims.published.table("nas", "table10a_vs_imp_dev").set_index("Row").loc["Ratio % (IMP [37])"].dropna()
    assert {task.split("-m")[0].split(" ")[0]: kept / 100 for task, kept in table.items()} == nas.WINNING
    assert all(set(nas.WINNING[task] for task in nas.TEST[at]) | {0.3} <= set(nas.ROUNDS[at]) for at in nas.ROUNDS)
    for rounds in nas.ROUNDS.values():
        assert list(rounds) == sorted(rounds, reverse=True)


def test_grids_of_toy():
    specs = every_spec(NOTEBOOKS, "toy")
    steps = pd.Series([spec.step for spec in specs]).value_counts()
    assert steps["nas_search"] <= 30 and steps["retrain"] <= 75, "the toy report would take too long"
    assert grids.teacher("toy", "CoLA") == nas.whole("toy", "CoLA") and grids.teacher("toy", "CoLA").at(0) in specs
    base = nas.searched("toy", "CoLA").at(0)
    pages = [path.stem for path in LISTED if any(row["spec"] == base for row in nas.architectures(
        [r for r in notebook.grids(path, {"profile": "toy"})["grid"] if "task" in r]))]
    assert {name.split("_")[1] for name in pages} == {"t04", "t05", "t06", "t07", "t08", "t09", "t10", "t11", "t12", "s72", "s73",
                                                      "s75", "s76", "s78"}


def test_grids_of_mini_need_no_data(without_data):
    """Recorded runs are looked up by the digests of the official files."""
    there = {spec.name for spec in every_spec(NOTEBOOKS, "mini")}
    without_data()
    specs = every_spec(NOTEBOOKS, "mini")
    assert {spec.name for spec in specs} == there
    assert {spec.args["data"]["task"] for spec in specs if "data" in spec.args} == {"SST-2"}


def test_grids_of_the_paper(anywhere):
    specs = every_spec(NOTEBOOKS, "paper")
    assert {s.args["name"] for s in specs if s.step == "checkpoint"} == set(nas.CHECKPOINTS.values())
    for spec in specs:
        if spec.step == "nas_search":
            assert spec.args["train"].get("select", "last") == "last"
            assert spec.args["gates"].get("landing", False) == ("memory" in spec.args["gates"])
            cross = spec.args["objective"]["kind"] == "cross_entropy"
            assert ("teacher" in spec.inputs) != cross
        if spec.step == "retrain":
            first = "architecture" in spec.args
            assert first == ("search" in spec.inputs) and (spec.args["objective"]["kind"] == "intermediate" or not first)
        if "train" in spec.args and spec.step != "pretrain":
            assert spec.args["train"]["pad_to"] == spec.args["train"]["max_length"] == 128
    augmented = {s.args["data"]["task"] for s in specs if s.step == "retrain" and "augmented" in s.inputs}
    assert augmented == set(nas.AUGMENTED)
    longest = max((s for s in specs if s.step == "imp"), key=lambda s: -s.args["kept"])
    assert longest.args["kept"] == 0.1 and longest.inputs["start"].args["kept"] == 0.2


def test_a_random_network_has_the_same_retraining_as_a_searched_one(anywhere):
    for at in ("toy", "mini", "paper"):
        one, two = nas.pruned(at, "CoLA", ratio=0.1), nas.random(at, "CoLA", ratio=0.1)
        assert one.args == two.args and one.inputs["teacher"] == two.inputs["teacher"] and one != two
        one, two = one.inputs["start"], two.inputs["start"]
        assert one.args == two.args and one.inputs["start"] == two.inputs["start"] == one.inputs["teacher"]
        assert one.inputs["search"].args["gates"] == two.inputs["search"].args["gates"]


def test_procedures_differ_in_start_teacher_and_objective(anywhere):
    a, b = nas.procedure_a("paper", "CoLA"), nas.pruned("paper", "CoLA")
    assert a.inputs["teacher"] == nas.whole("paper", "CoLA", "BERT-base") and b.inputs["teacher"] == nas.whole("paper", "CoLA")
    a, b = a.inputs["start"], b.inputs["start"]
    assert a.inputs["start"] == nas.general("paper") and b.inputs["start"] == b.inputs["teacher"]
    assert a.inputs["search"].args["train"]["epochs"] == 2 * b.inputs["search"].args["train"]["epochs"]
    assert a.inputs["search"].args["objective"]["kind"] == "two_stage"


def test_searched_weights_are_the_only_difference_of_7_8():
    whole, kept = nas.pruned("toy", "CoLA"), nas.pruned("toy", "CoLA", kept=True)
    found = whole.inputs["start"].inputs["search"]
    assert kept.inputs["start"].inputs["search"] == kept.inputs["start"].inputs["start"] == found
    assert whole.inputs["start"].inputs["start"] == nas.whole("toy", "CoLA")


@pytest.mark.parametrize("wrong, message", [
    (lambda: nas.general("toy", "TinyBERT-5L"), "unknown model: 'TinyBERT-5L'; did you mean 'TinyBERT-6L'"),
    (lambda: nas.general("mini", "BERT-Mini"), "'BERT-Mini' has no stand-in at profile 'mini': take 'toy' or 'paper'"),
    (lambda: nas.tasks("toy", ["colla"]), "did you mean 'CoLA'"),
    (lambda: nas.tasks("tyo"), "did you mean 'toy'"),
    (lambda: nas.magnitude("toy", "CoLA", 0.35), "unknown kept share"),
])
def test_mistakes_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_digests_of_digits():
    assert images.describe(paths.data_root() / "mnist", ("bundled",)) == nas.IMAGES["toy"]
    root = paths.data_root() / "mnist"
    if not any(root.glob("*images*")):
        pytest.skip("MNIST's files are not below DATA_ROOT")
    assert images.describe(root, ("files",)) == nas.IMAGES["mini"]


def test_networks_that_are_timed_have_their_share_of_the_flops():
    told = nas.latency().args["models"]
    assert set(told) == {nas.label(ratio, "Random") for ratio in (*nas.RATIOS, 1.0)}
    shape = gated.REPORTED["TinyBERT-4L"][0]
    for ratio in nas.RATIOS:
        (op,) = told[nas.label(ratio, "Random")]["surgery"]
        widths = gated.counts({"heads": op["heads"], "neurons": op["neurons"]})
        assert gated.flops(shape.hidden, 26, widths) / gated.masked(shape) == pytest.approx(ratio, rel=0.01)


def test_the_sweep_is_timed_on_weights_that_are_there(anywhere):
    """Inputs keep their weights: those of the first stage are inputs of the second already."""
    for at in ("toy", "mini", "paper"):
        (row,) = nas.clocked(at, nas.TASKS[at], nas.SEEDS[at])
        sweep = [nas.pruned(at, nas.TASKS[at][0], ratio=ratio) for ratio in nas.RATIOS]
        inputs = [row["spec"].inputs[f"model:{nas.label(ratio)}"] for ratio in nas.RATIOS]
        assert inputs == [spec.inputs["start"] for spec in sweep] and row["seed"] == row["spec"].seed == nas.SEEDS[at][0]
        assert row["spec"].inputs["model:Whole"] == nas.whole(at, nas.TASKS[at][0])


def test_tables_of_times():
    times = {f"{name}.{what}": value for name, speed in (("Whole", 1.0), ("10 % NAS", 8.0)) for what, value in {
        "cpu_ms": 80 / speed, "cpu_ms_p5": 70 / speed, "cpu_ms_p95": 90 / speed, "cpu_speedup": speed, "parameters": 2e6}.items()}
    found = pd.DataFrame([{"task": "SST-2", "model": "10 % NAS", "seed": s, "ratio": 0.1 + s} for s in (0, 1)])
    table = nas_claims.swept(pd.Series(times | {"task": "SST-2", "seed": 0}), found, "here")
    assert table.loc[("here", "10 % NAS")].tolist() == ["10.0", "10.0 (8.8 to 11.2)", "8.00", "10.00", "80 %", "2.00"]
    assert table.loc[("here", "Whole"), "share of that"] == "100 %"
    missing = nas_claims.swept(pd.Series(times | {"task": "SST-2", "seed": 0}), found.drop(columns="ratio"), "here")
    assert list(missing.index) == [("here", "Whole")]


def test_a_search_of_augmented_rows_differs_by_them_alone(anywhere):
    one, two = nas.searched("mini", "SST-2"), nas.searched("mini", "SST-2", enlarged=True)
    assert one.args == two.args and {k: v for k, v in two.inputs.items() if k != "augmented"} == one.inputs
    assert two.inputs["augmented"].args["data"] == two.args["data"]
    (cell,) = [row for row in nas.cells("mini", ["SST-2"], [0], nas.changed(nas.DATA)) if row["model"].startswith("Search on")]
    retrained = cell["spec"].inputs["start"]
    assert retrained.inputs["search"] == two and "augmented" not in {*retrained.inputs, *cell["spec"].inputs}


def test_printed_changes_and_sizes():
    words = {csv: nas_claims.check_changes("Table", csv) for csv in (
        "table06_test_tinybert4l", "table07_test_tinybert6l", "table08a_test_bertbase", "table09_vs_bertmini")}
    assert [v.verdict for v in words.values()] == ["PARTIAL", "CONFIRMED", "CONFIRMED", "CONFIRMED"]
    assert words["table06_test_tinybert4l"].note == "differs: speed-up, low 3.074442 computed, 3.0 printed"
    assert nas_claims.check_sizes().verdict == "CONFIRMED" and nas_claims.check_sizes().measured.startswith("4 of 4")
    assert any("3.07" in line for line in published.corrections("nas", "table06")) and published.corrections("nas", "table10a")


def test_claims_on_made_up_frames():
    sizes = {f"{r} % NAS": 0.6 + 0.1 * np.log10(r / 10) for r in (10, 30, 50, 70)}
    good = made_up(sizes | {"Whole": 0.7, "10 % Random": 0.4, "30 % Random": 0.4, "40 % IMP": 0.4, "30 % IMP": 0.3},
                   seeds=3, rows=400)
    for claim in (nas_claims.claim_random, nas_claims.claim_log, nas_claims.claim_magnitude):
        assert claim(good, "mini").verdict == "CONFIRMED" and claim(good, "toy").verdict == "NOT_RUN"
        assert claim(good[:0], "mini").verdict == "NOT_RUN"
    worse = made_up({f"{r} % NAS": 0.7 - 0.1 * np.log10(r / 10) for r in (10, 30, 50, 70)}
                    | {"Whole": 0.7, "10 % Random": 0.8, "30 % Random": 0.8, "40 % IMP": 0.8, "30 % IMP": 0.8},
                    seeds=3, rows=400)
    for claim in (nas_claims.claim_random, nas_claims.claim_log, nas_claims.claim_magnitude):
        assert claim(worse, "mini").verdict == "CONTRADICTED"
    assert "+10.030 points per decade" in nas_claims.claim_log(good, "mini").measured
    assert nas_claims.claim_magnitude(good, "mini").note == "published size outside the interval: the printed sparsity"


def test_variance_ratio_has_the_interval_of_f():
    scores = np.random.default_rng(0).normal(size=(2000, 2, 5)) * np.array([1.0, 2.0])[:, None]
    found = [nas_claims.variance_ratio(a, b) for a, b in scores]
    assert 0.93 < np.mean([e.low <= 0.25 <= e.high for e in found]) < 0.97
    assert nas_claims.variance_ratio([1.0, 2.0], [3.0]) is None and nas_claims.variance_ratio([1.0, 2.0], [3.0, 3.0]) is None
    e = nas_claims.variance_ratio([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    assert (e.mean, e.n_seeds) == (0.25, 3) and e.low == pytest.approx(0.25 / 39) and e.high == pytest.approx(0.25 * 39)


def test_claim_on_schedules():
    """Scores in frames are accuracies; five with a hundredth of the others' variance prove the claim, equal ones nothing."""
    def scored(near, far):
        return pd.DataFrame([{"task": "SST-2", "seed": s, "model": m, "run": None, "state": "finished", "accuracy": 0.8 + v * x}
                             for m, v in (("Additive", near), ("Multiplicative", far))
                             for s, x in enumerate((-2, -1, 0, 1, 2))])
    assert nas_claims.claim_schedule(scored(0.001, 0.02), "mini").verdict == "CONFIRMED"
    assert nas_claims.claim_schedule(scored(0.01, 0.01), "mini").verdict == "INCONCLUSIVE"
    assert nas_claims.claim_schedule(scored(0.02, 0.001), "mini").verdict == "CONTRADICTED"
    assert nas_claims.claim_schedule(scored(0.01, 0.01)[:0], "mini").verdict == "NOT_RUN"


def test_a_line_on_a_log_axis_is_told_from_one_on_a_plain_axis():
    ratios = np.array(nas.RATIOS)
    log, plain = nas_claims.fit(ratios, 70 + 8 * np.log10(ratios)), nas_claims.fit(ratios, 60 + 8 * ratios)
    assert log["slope, log"] == pytest.approx(8) and log["R², log"] == pytest.approx(1) and log["R², linear"] < 0.95
    assert plain["slope, linear"] == pytest.approx(8) and plain["residual, linear"] < 1e-9 < plain["residual, log"]


def test_claim_on_noise():
    def found(noise):
        return pd.DataFrame([{"network": network, "target": 0.1, "seed": s, "state": "finished", "pixels": 150 - noise - s,
                              "noise": noise + s} for network in nas.NETWORKS for s in range(3)])
    assert nas_claims.claim_noise(found(3), "mini").verdict == "CONFIRMED"
    assert nas_claims.claim_noise(found(75), "mini").verdict == "CONTRADICTED"
    assert nas_claims.claim_noise(found(3).drop(columns=["noise", "pixels"]), "mini").verdict == "NOT_RUN"


def test_tables_of_searches():
    found = pd.DataFrame([{"model": "a", "task": "CoLA", "seed": s, "ratio": 0.301, "before_trim": 0.31 + s / 100, "trimmed": 2,
                           "miss": m} for s, m in enumerate((0.003, -0.2))])
    assert nas_claims.landed(found, "x")["a"] == {("x", "before trim, %"): "31.5 ± 0.7 (2)", ("x", "FLOPs, %"): "30.1 ± 0.0 (2)",
                                                  ("x", "gates trimmed"): "2.0 ± 0.0 (2)"}
    assert nas_claims.missed(found, "x")["a"] == {("x", "off by over 1 %"): "1 of 2", ("x", "largest miss, %"): "-20.0"}
    assert nas_claims.missed(found.drop(columns="miss"), "x") == {}
    assert nas_claims.turned("table05_nas_vs_random", str)["10% NAS"]["published", "CoLA mcc"] == 36.2


def test_every_gate_of_the_search_can_be_reached():
    """The lowest target leaves more than one gate for each layer and kind, in all that are searched."""
    for shape, _, _ in gated.REPORTED.values():
        number = {(layer, kind): n for layer in range(shape.layers) for kind, n in (("heads", shape.heads), ("ffn", shape.ffn))}
        whole = [{"heads": shape.heads, "ffn": shape.ffn}] * shape.layers
        cost = search.encoder(shape.hidden, shape.hidden // shape.heads, whole)
        if shape.heads == 12:
            assert search.Control(nas.gates(0.1), number, cost).full == gated.masked(shape)
        with pytest.raises(ValueError, match="the least that can stay"):
            search.Control(replace(nas.gates(), ratio=0.001), number, cost)
