"""NAS pruning: the report's settings, grids at every profile, and its tables and claims on made-up results."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import every_spec, holding, made_up

from lib import paths, published
from lib.data import digits as images
from lib.data import models
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
    assert {100 * r for r in nas.RATIOS} == {
        float(v) for v in told["target sizes of the search"].split("|")
    }
    assert (
        options.weight == float(told["FLOPS weight chosen for all tasks"])
        and options.schedule == told["schedule adopted"]
    )
    assert set(nas.AUGMENTED) == set(
        told["tasks fine-tuned on augmented data for the test results"].split("; ")
    )
    assert {options.ratio, float(told["computational cost of the main test models"]) / 100} == {0.3}
    epochs = int(told["BERT-base to TinyBERT distillation: epochs of each step"])
    for settings in (nas.TEACHER, nas.SEARCH, nas.INTERMEDIATE, nas.PREDICTION):
        assert settings["paper"].epochs == epochs == 10 and settings["paper"].batch == 32
    assert nas.TEACHING["paper"] == (10, 3) and nas.STAGES["paper"] == ((10, 10), (20, 3))
    assert (options.regions, options.update, options.tolerance) == (("heads", "ffn"), "jump", 0.01)
    for name, target in (
        ("table08b_mnist_3layer", "3 layers"),
        ("table10b_mnist_11layer", "11 layers"),
    ):
        table = nas_claims.published.table("nas", name)
        assert tuple(table["Target Input Size Ratio"]) == nas.TARGETS and isinstance(
            nas.NETWORKS[target], Perceptron
        )
    assert [n.epochs for n in nas.NETWORKS.values()] == [15, 20] and [
        len(n.widths) for n in nas.NETWORKS.values()
    ] == [3, 11]


def test_printed_sparsities_of_magnitude_pruning_are_rounds():
    table = (
        nas_claims.published.table("nas", "table10a_vs_imp_dev")
        .set_index("Row")
        .loc["Ratio % (IMP [37])"]
        .dropna()
    )
    assert {
        task.split("-m")[0].split(" ")[0]: kept / 100 for task, kept in table.items()
    } == nas.WINNING
    assert all(
        set(nas.WINNING[task] for task in nas.TEST[at]) | {0.3} <= set(nas.ROUNDS[at])
        for at in nas.ROUNDS
    )
    for rounds in nas.ROUNDS.values():
        assert list(rounds) == sorted(rounds, reverse=True)


def test_grids_of_toy():
    specs = every_spec(NOTEBOOKS, "toy")
    steps = pd.Series([spec.step for spec in specs]).value_counts()
    assert steps["nas_search"] <= 30 and steps["retrain"] <= 75, (
        "the toy report would take too long"
    )
    assert (
        grids.teacher("toy", "CoLA") == nas.whole("toy", "CoLA")
        and grids.teacher("toy", "CoLA").at(0) in specs
    )
    base = nas.searched("toy", "CoLA").at(0)
    pages = [
        path.stem
        for path in LISTED
        if any(
            row["spec"] == base
            for row in nas.architectures(
                [r for r in notebook.grids(path, {"profile": "toy"})["grid"] if "task" in r]
            )
        )
    ]
    assert {name.split("_")[1] for name in pages} == {
        "t04",
        "t05",
        "t06",
        "t07",
        "t08",
        "t09",
        "t10",
        "t11",
        "s72",
        "s73",
        "s75",
        "s76",
        "s78",
    }


def test_grids_of_mini_need_no_data(without_data):
    """Recorded runs are looked up by the digests of the official files."""
    there = {spec.name for spec in every_spec(NOTEBOOKS, "mini")}
    without_data()
    specs = every_spec(NOTEBOOKS, "mini")
    assert {spec.name for spec in specs} == there
    assert {spec.args["data"]["task"] for spec in specs if "data" in spec.args} == {
        *nas.RANDOM["mini"],
        *nas.TEST["mini"],
    }


def test_grids_of_the_paper(anywhere):
    specs = every_spec(NOTEBOOKS, "paper")
    assert {s.args["name"] for s in specs if s.step == "checkpoint"} == set(
        nas.CHECKPOINTS.values()
    )
    for spec in specs:
        if spec.step == "nas_search":
            assert spec.args["train"].get("select", "last") == "last"
            assert spec.args["gates"]["landing"] == (
                "steps" if "memory" in spec.args["gates"] else "end"
            )
            cross = spec.args["objective"]["kind"] == "cross_entropy"
            assert ("teacher" in spec.inputs) != cross
        if spec.step == "retrain":
            first = "architecture" in spec.args
            assert first == ("search" in spec.inputs) and (
                spec.args["objective"]["kind"] == "intermediate" or not first
            )
        if "train" in spec.args and spec.step != "pretrain":
            assert spec.args["train"]["pad_to"] == spec.args["train"]["max_length"] == 128
    whole = {nas.whole("paper", task, "BERT-base").id for task in nas.TEST["paper"]}
    augmented = {
        s.args["data"]["task"]
        for s in specs
        if s.step == "retrain" and "augmented" in s.inputs and s.inputs["teacher"].id not in whole
    }
    assert augmented == set(nas.AUGMENTED)
    longest = max((s for s in specs if s.step == "imp"), key=lambda s: -s.args["kept"])
    assert longest.args["kept"] == 0.1 and longest.inputs["start"].args["kept"] == 0.2


def test_a_random_network_has_the_same_retraining_as_a_searched_one(anywhere):
    for at in ("toy", "mini", "paper"):
        one, two = nas.pruned(at, "CoLA", ratio=0.1), nas.random(at, "CoLA", ratio=0.1)
        assert (
            one.args == two.args and one.inputs["teacher"] == two.inputs["teacher"] and one != two
        )
        one, two = one.inputs["start"], two.inputs["start"]
        assert (
            one.args == two.args
            and one.inputs["start"] == two.inputs["start"] == one.inputs["teacher"]
        )
        assert one.inputs["search"].args["gates"] == two.inputs["search"].args["gates"]


def test_tinybert_learns_as_its_authors_say(anywhere):
    """6.1.1 and TinyBERT's code: both stages on augmented rows, the second by soft cross-entropy; Table 3 and every TinyBERT
    that is whole at paper, start or teacher."""
    for task in ("CoLA", "STS-B", "SST-2"):
        for model in ("TinyBERT-4L", "TinyBERT-6L"):
            last = nas.whole("paper", task, model)
            assert last == nas.distilled("paper", task, model) and last.args["objective"] == {
                "kind": "soft_cross_entropy"
            }
            first, more = last.inputs["start"], nas.variants("paper", task)["augmented"]
            assert last.inputs["augmented"] == first.inputs["augmented"] == more
            size = {"TinyBERT-4L": "4L_312D", "TinyBERT-6L": "6L_768D"}[model]
            assert first.inputs["start"].args["name"] == f"2nd_General_TinyBERT_{size}"
    assert (
        models.HUB["2nd_General_TinyBERT_4L_312D"] == "nreimers/TinyBERT_L-4_H-312_v2"
    )  # the second version's port
    assert nas.distilled("mini", "SST-2").args["objective"] == {"kind": "soft_cross_entropy"}
    assert nas.pruned("paper", "CoLA").args["objective"] == {
        "kind": "prediction"
    }  # after a search: equation 3


def test_what_paper_does_differently_is_told():
    told = " ".join(nas.DEVIATIONS["paper"])
    for said in (
        "GloVe",
        "procedure A's two searches are one run",
        "none of biases and LayerNorms",
        "final trim alone is ours",
        "round of magnitude pruning",
        "TinyBERT's own loss",
    ):
        assert said in told
    for scale in ("toy", "mini"):
        assert any(
            "rounds of magnitude pruning instead of 9" in line for line in nas.DEVIATIONS[scale]
        )


def test_weights_decay_as_in_tinybert_s_code(anywhere):
    for spec in every_spec(NOTEBOOKS, "paper"):
        train = spec.args.get("train", {})
        assert not train.get("weight_decay") or train["spare_norms"]


def test_magnitude_pruning_has_settings_of_its_own(anywhere):
    """The public code's at paper; elsewhere those of any whole model. Every round and the dense model have the same rows."""
    rounds, spec = [], nas.magnitude("paper", "SST-2", 0.4)
    while "origin" in spec.inputs:
        rounds, spec = [*rounds, spec], spec.inputs["start"]
    assert spec.step == "finetune" and [r.args["kept"] for r in rounds] == [
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
    ]
    for each in (spec, *rounds):
        assert (
            each.args["train"]
            == {
                "epochs": 3,
                "batch": 32,
                "lr": 2e-5,
                "max_length": 128,
                "pad_to": 128,
                "clip": 1.0,
                "dropout": 0.1,
            }
            and each.args["data"] == spec.args["data"]
        )
    for at in ("toy", "mini"):
        first = nas.magnitude(at, nas.TEST[at][0], nas.ROUNDS[at][0])
        own = nas.whole(at, nas.TEST[at][0], "BERT-base")
        assert first.inputs["start"] == own and all(
            first.args[name] == own.args[name] for name in ("data", "train")
        )


def test_what_the_claims_compare_ends_at_equal_flops():
    """N2, N4, N6 and sections 7.6 and 7.9: every search ends on its target by a trim; those that show an early stop jump as
    reported until then."""
    for rows in (nas.CONTROL, nas.WEIGHTS, nas.DATA, nas.SPACES):
        assert {
            nas.gates().landing if "landing" not in options else options["landing"]
            for options in rows.values()
        } <= {"end", "steps"}
    early = {
        name: options
        for rows in (nas.WEIGHTS, nas.DATA)
        for name, options in rows.items()
        if "retrain" not in name.lower()
    }
    assert all(
        options["landing"] == "end" for name, options in early.items() if name != "Task's rows"
    )
    assert (
        len(early) == 9
        and nas.WEIGHTS["1"]
        == nas.DATA["Search as reported"]
        == nas.CONTROL["Top 10 %, as reported"]
    )
    spaces = {name: nas.gates(**options).regions for name, options in nas.SPACES.items()}
    assert spaces["QKV and FFN"] == ("qkv", "ffn") and spaces["QKV, FFN and embedding"] == (
        "qkv",
        "ffn",
        "embedding",
    )


def test_procedures_differ_in_start_teacher_and_objective(anywhere):
    a, b = nas.procedure_a("paper", "CoLA"), nas.pruned("paper", "CoLA")
    assert a.inputs["teacher"] == nas.whole("paper", "CoLA", "BERT-base") and b.inputs[
        "teacher"
    ] == nas.whole("paper", "CoLA")
    a, b = a.inputs["start"], b.inputs["start"]
    assert a.inputs["start"] == nas.general("paper") and b.inputs["start"] == b.inputs["teacher"]
    assert (
        a.inputs["search"].args["train"]["epochs"] == 2 * b.inputs["search"].args["train"]["epochs"]
    )
    assert a.inputs["search"].args["objective"]["kind"] == "two_stage"


def test_searched_weights_are_the_only_difference_of_7_8():
    whole, kept = nas.pruned("toy", "CoLA"), nas.pruned("toy", "CoLA", kept=True)
    found = whole.inputs["start"].inputs["search"]
    assert kept.inputs["start"].inputs["search"] == kept.inputs["start"].inputs["start"] == found
    assert whole.inputs["start"].inputs["start"] == nas.whole("toy", "CoLA")


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: nas.general("toy", "TinyBERT-5L"),
            "unknown model: 'TinyBERT-5L'; did you mean 'TinyBERT-6L'",
        ),
        (
            lambda: nas.general("mini", "BERT-Mini"),
            "'BERT-Mini' has no stand-in at profile 'mini': take 'toy' or 'paper'",
        ),
        (lambda: nas.tasks("toy", ["colla"]), "did you mean 'CoLA'"),
        (lambda: nas.tasks("tyo"), "did you mean 'toy'"),
        (lambda: nas.magnitude("toy", "CoLA", 0.35), "unknown kept share"),
    ],
)
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
        assert gated.flops(shape.hidden, 26, widths) / gated.masked(shape) == pytest.approx(
            ratio, rel=0.01
        )


def test_the_sweep_is_timed_on_weights_that_are_there(anywhere):
    """Inputs keep their weights: those of the first stage are inputs of the second already."""
    for at in ("toy", "mini", "paper"):
        (row,) = nas.clocked(at, nas.TASKS[at], nas.SEEDS[at])
        sweep = [nas.pruned(at, nas.TASKS[at][0], ratio=ratio) for ratio in nas.RATIOS]
        inputs = [row["spec"].inputs[f"model:{nas.label(ratio)}"] for ratio in nas.RATIOS]
        assert (
            inputs == [spec.inputs["start"] for spec in sweep]
            and row["seed"] == row["spec"].seed == nas.SEEDS[at][0]
        )
        assert row["spec"].inputs["model:Whole"] == nas.whole(at, nas.TASKS[at][0])


def test_tables_of_times():
    times = {
        f"{name}.{what}": value
        for name, speed in (("Whole", 1.0), ("10 % NAS", 8.0))
        for what, value in {
            "cpu_ms": 80 / speed,
            "cpu_ms_p5": 70 / speed,
            "cpu_ms_p95": 90 / speed,
            "cpu_speedup": speed,
            "parameters": 2e6,
        }.items()
    }
    found = pd.DataFrame(
        [{"task": "SST-2", "model": "10 % NAS", "seed": s, "ratio": 0.1 + s} for s in (0, 1)]
    )
    table = nas_claims.swept(pd.Series(times | {"task": "SST-2", "seed": 0}), found, "here")
    assert table.loc[("here", "10 % NAS")].tolist() == [
        "10.0",
        "10.0 (8.8 to 11.2)",
        "8.00",
        "10.00",
        "80 %",
        "2.00",
    ]
    assert table.loc[("here", "Whole"), "share of that"] == "100 %"
    missing = nas_claims.swept(
        pd.Series(times | {"task": "SST-2", "seed": 0}), found.drop(columns="ratio"), "here"
    )
    assert list(missing.index) == [("here", "Whole")]


def test_a_search_of_augmented_rows_differs_by_them_alone(anywhere):
    one, two = nas.searched("mini", "SST-2"), nas.searched("mini", "SST-2", enlarged=True)
    assert (
        one.args == two.args
        and {k: v for k, v in two.inputs.items() if k != "augmented"} == one.inputs
    )
    assert two.inputs["augmented"].args["data"] == two.args["data"]
    cells = nas.cells("mini", ["SST-2"], [0], nas.changed(nas.DATA))
    (cell,) = [row for row in cells if row["model"] == "Search as reported, augmented rows"]
    retrained = cell["spec"].inputs["start"]
    assert retrained.inputs["search"].inputs == two.inputs and "augmented" not in {
        *retrained.inputs,
        *cell["spec"].inputs,
    }


def test_printed_changes_and_sizes():
    words = {
        csv: nas_claims.check_changes("Table", csv)
        for csv in (
            "table06_test_tinybert4l",
            "table07_test_tinybert6l",
            "table08a_test_bertbase",
            "table09_vs_bertmini",
        )
    }
    assert [v.verdict for v in words.values()] == ["PARTIAL", "CONFIRMED", "CONFIRMED", "CONFIRMED"]
    assert (
        words["table06_test_tinybert4l"].note
        == "differs: speed-up, low 3.074442 computed, 3.0 printed"
    )
    assert (
        nas_claims.check_sizes().verdict == "CONFIRMED"
        and nas_claims.check_sizes().measured.startswith("4 of 4")
    )
    assert any(
        "3.07" in line for line in published.corrections("nas", "table06")
    ) and published.corrections("nas", "table10a")


def test_printed_ratios_and_deviations():
    """7.1: ratios of kept inputs, six of them cut off instead of rounded; Table 12: what three runs on 872 rows can have."""
    three, eleven = (
        nas_claims.check_ratios(name)
        for name in ("table08b_mnist_3layer", "table10b_mnist_11layer")
    )
    assert (three.measured, eleven.measured) == tuple(
        f"{n} of 8 equal to the printed digits" for n in (7, 3)
    )
    assert (
        three.note == "differs: 0.01 0.012755 computed, 0.012 printed"
        and eleven.note.count("computed") == 5
    )
    assert nas_claims.check_weights().measured == "10 of 10 equal to the printed digits"


def test_a_submission_has_every_model_of_its_page(anywhere, monkeypatch, tmp_path):
    monkeypatch.setattr(
        grids,
        "file_rows",
        lambda at, file: {"source": "glue", "task": "CoLA", "split": "test", "digest": "0"},
    )
    for rival, models_of in (
        ("", {"TinyBERT-4L", "30 % TinyBERT-4L"}),
        ("BERT-Mini", {"BERT-Mini", "30 % TinyBERT-4L"}),
    ):
        scored = nas.compared("paper", "TinyBERT-4L", ("CoLA",), [1, 2], rival)
        found = {row["model"]: row["spec"] for row in nas.submitted("paper", scored)}
        assert set(found) == models_of
        for model, spec in found.items():
            (own,) = [row["spec"] for row in scored if (row["model"], row["seed"]) == (model, 1)]
            assert spec.inputs["model"] == own and spec.seed == 1
    rows = [
        {
            "file": "CoLA",
            "task": "CoLA",
            "model": model,
            "seed": 1,
            "run": holding({"logits": np.eye(2)[[n, 0]]}),
        }
        for n, model in enumerate(("TinyBERT-4L", "30 % TinyBERT-4L"))
    ]
    paths_of = [path for path, _ in grids.archives(rows, tmp_path, "page", "toy")]
    assert [path.parent.name for path in paths_of] == [
        "page.tinybert-4l.seed1",
        "page.30-tinybert-4l.seed1",
    ]


def test_claims_on_made_up_frames():
    sizes = {f"{r} % NAS": 0.6 + 0.1 * np.log10(r / 10) for r in (10, 30, 50, 70)}
    good = made_up(
        sizes
        | {"Whole": 0.7, "10 % Random": 0.4, "30 % Random": 0.4, "40 % IMP": 0.4, "30 % IMP": 0.3},
        seeds=3,
        rows=400,
    )
    for claim in (nas_claims.claim_random, nas_claims.claim_log, nas_claims.claim_magnitude):
        assert (
            claim(good, "mini").verdict == "CONFIRMED" and claim(good, "toy").verdict == "NOT_RUN"
        )
        assert claim(good[:0], "mini").verdict == "NOT_RUN"
    worse = made_up(
        {f"{r} % NAS": 0.7 - 0.1 * np.log10(r / 10) for r in (10, 30, 50, 70)}
        | {"Whole": 0.7, "10 % Random": 0.8, "30 % Random": 0.8, "40 % IMP": 0.8, "30 % IMP": 0.8},
        seeds=3,
        rows=400,
    )
    for claim in (nas_claims.claim_random, nas_claims.claim_log, nas_claims.claim_magnitude):
        assert claim(worse, "mini").verdict == "CONTRADICTED"
    assert "+10.030 points per decade" in nas_claims.claim_log(good, "mini").measured
    assert (
        nas_claims.claim_magnitude(good, "mini").note
        == "published size outside the interval: the printed sparsity"
    )


def test_claims_on_searches():
    """N2 has two rivals, two stages is none; N4 is judged in both of its ways, and misses are told beside; N6 is on Q, K, V."""
    better = made_up(
        {
            "Prediction distillation": 0.8,
            "Cross-entropy": 0.6,
            "Intermediate distillation": 0.5,
            "Two stages": 0.9,
        }
    )
    assert nas_claims.claim_objective(better, "mini").verdict == "CONFIRMED"
    control = {
        "Top 10 %, as reported": 0.8,
        "All, as reported": 0.5,
        "Top 10 %, no schedule": 0.8,
        "All, no schedule": 0.6,
    }
    found = pd.DataFrame(
        [
            {
                "model": name,
                "before_trim": 0.97 if "All, as" in name else 0.301,
                "target": 0.3,
                "ratio": 0.3,
            }
            for name in control
            for _ in range(3)
        ]
    )
    judged = nas_claims.claim_control(made_up(control), found, "mini")
    assert judged.verdict == "CONFIRMED" and judged.note.endswith(
        "Top 10 %, as reported: 0 of 3, All, as reported: 3 of 3"
    )
    assert (
        "points in searches as reported [" in judged.measured
        and "points in searches without a schedule [" in judged.measured
    )
    assert (
        nas_claims.claim_control(
            made_up(control | {"All, no schedule": 0.9}), found, "mini"
        ).verdict
        == "PARTIAL"
    )
    space = made_up({"QKV and FFN": 0.8, "QKV, FFN and embedding": 0.6, "Heads and FFN": 0.5})
    assert nas_claims.claim_space(space, "mini").verdict == "CONFIRMED"


def along(curve, rows=20000):
    """A frame of the four sizes whose scores are a function of the ratio."""
    return made_up(
        {f"{r} % NAS": curve(r / 100) for r in (10, 30, 50, 70)} | {"Whole": 0.95},
        seeds=3,
        rows=rows,
    )


@pytest.mark.parametrize(
    "curve, verdict",
    [
        (lambda r: 0.9 + 0.3 * np.log10(r), "CONFIRMED"),  # a line on the log axis
        (lambda r: 0.5 + 0.4 * r, "CONTRADICTED"),  # rising, but a line on the plain axis
        (lambda r: 0.6 - 0.3 * np.log10(r), "CONTRADICTED"),  # a line on the log axis, but falling
        (lambda r: 0.9 - 0.4 * r, "CONTRADICTED"),  # a falling line on the plain axis
        (lambda r: 0.8, "INCONCLUSIVE"),
    ],
)
def test_linear_in_the_logarithm_of_flops(curve, verdict):
    assert nas_claims.claim_log(along(curve), "mini").verdict == verdict


def test_two_sizes_are_no_line():
    frame = along(lambda r: 0.9 + 0.3 * np.log10(r))
    assert (
        nas_claims.claim_log(
            frame[frame["model"].isin(["10 % NAS", "30 % NAS", "Whole"])], "mini"
        ).verdict
        == "NOT_RUN"
    )


def test_remarks_are_sentences():
    for table in ("table06", "table07", "table08a", "table08b", "table09", "table10a", "table10b"):
        for line in published.corrections("nas", table):
            assert (
                not set(line.replace(",", " ").split()) & {"nan", "undefined"}
                and "read as as" not in line
            )
    (line,) = published.corrections("nas", "table08a")
    assert line == (
        "numbering: printed Tables 8 and 10 twice, read as Tables 8a and 10a for GLUE, 8b and 10b for MNIST; the "
        "caption of the first Table 8 says 6-layer and means 12 layers."
    )


def test_variance_ratio_has_the_interval_of_f():
    scores = np.random.default_rng(0).normal(size=(2000, 2, 5)) * np.array([1.0, 2.0])[:, None]
    found = [nas_claims.variance_ratio(a, b) for a, b in scores]
    assert 0.93 < np.mean([e.low <= 0.25 <= e.high for e in found]) < 0.97
    assert (
        nas_claims.variance_ratio([1.0, 2.0], [3.0]) is None
        and nas_claims.variance_ratio([1.0, 2.0], [3.0, 3.0]) is None
    )
    e = nas_claims.variance_ratio([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    assert (
        (e.mean, e.n_seeds) == (0.25, 3)
        and e.low == pytest.approx(0.25 / 39)
        and e.high == pytest.approx(0.25 * 39)
    )


def test_claim_on_schedules():
    """Scores in frames are accuracies; five with a hundredth of the others' variance prove the claim, equal ones nothing."""

    def scored(near, far):
        return pd.DataFrame(
            [
                {
                    "task": "SST-2",
                    "seed": s,
                    "model": m,
                    "run": None,
                    "state": "finished",
                    "accuracy": 0.8 + v * x,
                }
                for m, v in (("Additive", near), ("Multiplicative", far))
                for s, x in enumerate((-2, -1, 0, 1, 2))
            ]
        )

    assert nas_claims.claim_schedule(scored(0.001, 0.02), "mini").verdict == "CONFIRMED"
    assert nas_claims.claim_schedule(scored(0.01, 0.01), "mini").verdict == "INCONCLUSIVE"
    assert nas_claims.claim_schedule(scored(0.02, 0.001), "mini").verdict == "CONTRADICTED"
    assert nas_claims.claim_schedule(scored(0.01, 0.01)[:0], "mini").verdict == "NOT_RUN"


def test_a_line_on_a_log_axis_is_told_from_one_on_a_plain_axis():
    ratios = np.array(nas.RATIOS)
    log, plain = (
        nas_claims.fit(ratios, 70 + 8 * np.log10(ratios)),
        nas_claims.fit(ratios, 60 + 8 * ratios),
    )
    assert (
        log["slope, log"] == pytest.approx(8)
        and log["R², log"] == pytest.approx(1)
        and log["R², linear"] < 0.95
    )
    assert (
        plain["slope, linear"] == pytest.approx(8)
        and plain["residual, linear"] < 1e-9 < plain["residual, log"]
    )


def test_claim_on_noise():
    def found(noise):
        return pd.DataFrame(
            [
                {
                    "network": network,
                    "target": 0.1,
                    "seed": s,
                    "state": "finished",
                    "pixels": 150 - noise - s,
                    "noise": noise + s,
                }
                for network in nas.NETWORKS
                for s in range(3)
            ]
        )

    assert nas_claims.claim_noise(found(3), "mini").verdict == "CONFIRMED"
    assert [
        cell.published for cell in nas_claims.claim_noise(found(3), "mini").cells
    ] == pytest.approx([3 / 157, 32 / 157])
    near = found(3).assign(noise=[0, 1, 9] * 2)  # a mean of 2 % whose interval reaches below 0
    assert (
        nas_claims.claim_noise(near, "mini").verdict == "CONFIRMED"
        and nas_claims.claim_noise(near, "mini").interval[0] < 0
    )
    assert nas_claims.claim_noise(found(75), "mini").verdict == "CONTRADICTED"
    assert (
        nas_claims.claim_noise(found(3).drop(columns=["noise", "pixels"]), "mini").verdict
        == "NOT_RUN"
    )


def test_tables_of_searches():
    found = pd.DataFrame(
        [
            {
                "model": "a",
                "task": "CoLA",
                "seed": s,
                "ratio": 0.301,
                "before_trim": 0.302 + s / 10,
                "trimmed": 2,
                "target": 0.3,
                "miss": 0.001,
            }
            for s in (0, 1)
        ]
    )
    assert nas_claims.landed(found, "x")["a"] == {
        ("x", "before trim, %"): "35.2 ± 7.1 (2)",
        ("x", "FLOPs, %"): "30.1 ± 0.0 (2)",
        ("x", "gates trimmed"): "2.0 ± 0.0 (2)",
    }
    assert nas_claims.missed(found, "x")["a"] == {
        ("x", "off by over 1 %"): "1 of 2",
        ("x", "largest miss, %"): "+34.0",
    }
    assert (
        nas_claims.missed(found.drop(columns="before_trim"), "x") == {}
    )  # draws end nowhere before
    assert (
        nas_claims.turned("table05_nas_vs_random", str)["10% NAS"]["published", "CoLA mcc"] == 36.2
    )


def test_every_gate_of_the_search_can_be_reached():
    """The lowest target leaves more than one gate for each layer and kind, in all that are searched."""
    for shape, _, _ in gated.REPORTED.values():
        number = {
            (layer, kind): n
            for layer in range(shape.layers)
            for kind, n in (("heads", shape.heads), ("ffn", shape.ffn))
        }
        whole = [{"heads": shape.heads, "ffn": shape.ffn}] * shape.layers
        cost = search.encoder(shape.hidden, shape.hidden // shape.heads, whole)
        if shape.heads == 12:
            assert search.Control(nas.gates(0.1), number, cost).full == gated.masked(shape)
        with pytest.raises(ValueError, match="the least that can stay"):
            search.Control(replace(nas.gates(), ratio=0.001), number, cost)
