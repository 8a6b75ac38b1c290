"""NAS pruning: the report's settings, grids at every profile, tables and claims on
made-up runs."""

import ast
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import every_spec, holding, made_up

from lib.claims import notebook
from lib.core import paths
from lib.data import models
from lib.papers import grids, published
from lib.papers.nas_pruning import control as search
from lib.papers.nas_pruning import digits as images
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning import recipes as nas
from lib.papers.nas_pruning import tables as nas_tables
from lib.report.tables import Runs
from lib.stats import measures
from lib.stats.cost import compute_layer_widths_of_pruned_network

NOTEBOOKS = notebook.find_notebooks(["nas_*"])


def grid(name, **values):
    """The rows of the grid of a page."""
    (path,) = notebook.find_notebooks([f"nas_{name}"])
    return notebook.execute_grid_cell_and_list_rows_by_variable(path, values)["grid"]


def cells(name):
    """The code of the cells of a page, each by itself."""
    (path,) = notebook.find_notebooks([f"nas_{name}"])
    found = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def defined(name, **more):
    """What the cells of a page import and define: functions, and constants in
    capitals."""
    names = dict(more)
    for node in ast.parse("\n".join(cells(name))).body:
        constant = (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper()
        )
        if constant or isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef):
            exec(compile(ast.Module([node], []), name, "exec"), names)
    return names


def ran(name, mark, **more):
    """The names after the cell of a page that has `mark` in it."""
    names = defined(name, **more)
    (cell,) = [cell for cell in cells(name) if mark in cell]
    exec(cell, names)
    return names


def test_printed_sparsities_of_magnitude_pruning_are_rounds():
    table = published.read_table("nas_pruning", "table10a_vs_imp_dev").set_index("Row")
    row = table.loc["Ratio % (IMP [37])"].dropna()
    shares = {
        task.split("-m")[0].split(" ")[0]: share / 100 for task, share in row.items()
    }
    assert shares == nas.WINNING
    for at, rounds in nas.ROUNDS.items():
        assert {0.3, *(nas.WINNING[task] for task in nas.TEST[at])} <= set(rounds)
        assert list(rounds) == sorted(rounds, reverse=True)


def test_digests_of_digits():
    root = paths.data_root() / "mnist"
    assert images.make_digits_descriptor(root, "bundled") == nas.IMAGES["toy"]
    if not any(root.glob("*images*")):
        pytest.skip("MNIST's files are not below DATA_ROOT")
    assert images.make_digits_descriptor(root, "files") == nas.IMAGES["mini"]


def test_grids_of_toy():
    specs = every_spec(NOTEBOOKS, "toy")
    steps = pd.Series([spec.step for spec in specs]).value_counts()
    assert steps["nas_search"] <= 30 and steps["retrain"] <= 75, (
        "the toy report takes too long"
    )
    shared = grids.teacher_spec("toy", "CoLA")  # by all papers
    assert (
        shared == nas.finetuned_unpruned_spec("toy", "CoLA")
        and shared.with_seed(0) in specs
    )


def test_grids_of_mini_need_no_data(without_data):
    """Recorded runs are looked up by the digests of the official files."""
    there = {spec.name for spec in every_spec(NOTEBOOKS, "mini")}
    without_data()
    specs = every_spec(NOTEBOOKS, "mini")
    assert {spec.name for spec in specs} == there
    tasks = {spec.args["data"]["task"] for spec in specs if "data" in spec.args}
    assert tasks == {*nas.RANDOM["mini"], *nas.TEST["mini"]}


def test_grids_of_the_paper(anywhere):
    specs = every_spec(NOTEBOOKS, "paper")
    names = {spec.args["name"] for spec in specs if spec.step == "checkpoint"}
    assert names == set(nas.CHECKPOINTS.values())
    by_bert = {
        nas.finetuned_unpruned_spec("paper", task, "BERT-base").id
        for task in nas.TEST["paper"]
    }
    augmented = set()
    for spec in specs:
        args = spec.args
        train = args.get("train")
        if train and spec.step != "pretrain":
            assert train["pad_to"] == train["max_length"] == 128
            assert (
                not train.get("weight_decay") or train["spare_norms"]
            )  # as TinyBERT's code
        if spec.step == "nas_search":
            assert train.get("select", "last") == "last"
            landing = "steps" if "memory" in args["gates"] else "end"
            assert args["gates"]["landing"] == landing
            labels = args["objective"]["kind"] == "cross_entropy"
            assert ("teacher" in spec.inputs) != labels
        if spec.step == "retrain":
            cut = "architecture" in args
            assert cut == ("search" in spec.inputs)
            assert not cut or args["objective"]["kind"] == "intermediate"
            if "augmented" in spec.inputs and spec.inputs["teacher"].id not in by_bert:
                augmented.add(args["data"]["task"])
    assert augmented == set(nas.AUGMENTED)


@pytest.mark.parametrize("at", ["toy", "mini", "paper"])
def test_a_random_network_has_the_same_retraining_as_a_searched_one(at, anywhere):
    one = nas.pruned_spec(at, "CoLA", ratio=0.1)
    two = nas.retrained_random_architecture_spec(at, "CoLA", ratio=0.1)
    assert one != two and one.args == two.args
    assert one.inputs["teacher"] == two.inputs["teacher"]
    one, two = one.inputs["start"], two.inputs["start"]
    assert one.args == two.args
    assert one.inputs["start"] == two.inputs["start"] == one.inputs["teacher"]
    assert one.inputs["search"].args["gates"] == two.inputs["search"].args["gates"]


@pytest.mark.parametrize("task, epochs", [("CoLA", 10), ("SST-2", 3)])
def test_longer_retraining_is_a_multiple_of_the_epochs_of_the_task(
    task, epochs, anywhere
):
    """At paper the larger tasks have 3 epochs, others 10."""
    usual, longer = (
        nas.retrained_random_architecture_spec(
            "paper", task, ratio=0.3, epoch_factor=factor
        )
        for factor in (1, nas.TIMES)
    )
    for one, four in ((usual, longer), (usual.inputs["start"], longer.inputs["start"])):
        assert one.args["train"]["epochs"] == epochs
        more = {"epochs": 4 * epochs}
        assert four.args["train"] == one.args["train"] | more


@pytest.mark.parametrize(
    "model, size", [("TinyBERT-4L", "4L_312D"), ("TinyBERT-6L", "6L_768D")]
)
def test_tinybert_learns_as_its_authors_say(model, size, anywhere):
    """Both stages see augmented rows, the second has soft cross-entropy (6.1.1)."""
    last = nas.finetuned_unpruned_spec("paper", "STS-B", model)
    assert last == nas.distilled_tinybert_spec("paper", "STS-B", model)
    assert last.args["objective"] == {"kind": "soft_cross_entropy"}
    first, more = (
        last.inputs["start"],
        grids.augmented_rows_spec(
            "paper", "STS-B", nas.make_training_rows_descriptor("paper", "STS-B")
        ),
    )
    assert last.inputs["augmented"] == first.inputs["augmented"] == more
    assert first.inputs["start"].args["name"] == f"2nd_General_TinyBERT_{size}"
    hub = models.HUB["2nd_General_TinyBERT_4L_312D"]
    assert hub == "nreimers/TinyBERT_L-4_H-312_v2"  # the port of the second version
    after_search = nas.pruned_spec("paper", "CoLA").args["objective"]
    assert after_search == {"kind": "prediction"}  # equation 3


def test_magnitude_pruning_has_settings_of_its_own(anywhere):
    """Those of the public code at paper. Every round has the dense model's rows."""
    rounds, spec = [], nas.magnitude_pruned_spec("paper", "SST-2", 0.4)
    while "origin" in spec.inputs:
        rounds, spec = [*rounds, spec], spec.inputs["start"]
    assert spec.step == "finetune"
    assert [each.args["kept"] for each in rounds] == [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    public = {"epochs": 3, "batch": 32, "lr": 2e-5, "clip": 1.0, "dropout": 0.1}
    for each in (spec, *rounds):
        assert each.args["train"] == public | {"max_length": 128, "pad_to": 128}
        assert each.args["data"] == spec.args["data"]
    for at in ("toy", "mini"):
        task = nas.TEST[at][0]
        first = nas.magnitude_pruned_spec(at, task, nas.ROUNDS[at][0])
        own = nas.finetuned_unpruned_spec(at, task, "BERT-base")
        assert first.inputs["start"] == own
        assert all(first.args[name] == own.args[name] for name in ("data", "train"))


def test_procedures_differ_in_start_teacher_and_objective(anywhere):
    specs = {
        row["model"]: row["spec"]
        for row in grid("s73_objectives", profile="paper", tasks=["CoLA"], seeds=[0])
    }
    a, b = (
        replace(specs[n], seed=None) for n in ("Procedure A", "Prediction distillation")
    )
    assert b == nas.pruned_spec("paper", "CoLA")
    assert a.inputs["teacher"] == nas.finetuned_unpruned_spec(
        "paper", "CoLA", "BERT-base"
    )
    assert b.inputs["teacher"] == nas.finetuned_unpruned_spec("paper", "CoLA")
    a, b = a.inputs["start"], b.inputs["start"]
    assert (
        a.inputs["start"] == nas.pretrained_model_spec("paper")
        and b.inputs["start"] == b.inputs["teacher"]
    )
    a, b = a.inputs["search"].args, b.inputs["search"].args
    assert a["train"]["epochs"] == 2 * b["train"]["epochs"]
    assert a["objective"]["kind"] == "two_stage"


def test_searched_weights_are_the_only_difference_of_7_8():
    whole, kept = (
        nas.pruned_spec("toy", "CoLA", keeps_searched_weights=kept).inputs["start"]
        for kept in (False, True)
    )
    assert whole.inputs["search"] == kept.inputs["search"] == kept.inputs["start"]
    assert whole.inputs["start"] == nas.finetuned_unpruned_spec("toy", "CoLA")


def test_augmented_searches_and_teachers_of_sst_2_have_the_printed_epochs(anywhere):
    """Sections 7.6 and 6.1.1; 5.5.1 says fewer epochs for the larger tasks, and no
    number."""
    printed = published.read_table("nas_pruning", "hyperparameters").set_index(
        "Setting"
    )["Value"]
    for task, epochs in {"CoLA": 10, "SST-2": 3}.items():
        plain, more = (
            nas.architecture_search_spec("paper", task, searches_on_augmented_rows=it)
            for it in (False, True)
        )
        assert plain.args["train"]["epochs"] == epochs
        assert (
            more.args["train"]["epochs"]
            == int(printed["search: epochs on augmented rows"])
            == 1
        )
    teacher = nas.finetuned_unpruned_spec("paper", "SST-2", "BERT-base")
    told = int(printed["teachers on CoLA, RTE and SST-2: epochs"])
    assert teacher.args["train"]["epochs"] == told == 10
    student = nas.distilled_tinybert_spec("paper", "SST-2")
    assert (
        student.inputs["teacher"]
        == student.inputs["start"].inputs["teacher"]
        == teacher
    )
    assert student.args["train"]["epochs"] == 3
    assert (
        nas.finetuned_unpruned_spec("paper", "SST-2", "BERT-base", 3).args["train"][
            "epochs"
        ]
        == 3
    )
    assert (
        nas.finetuned_unpruned_spec("paper", "MNLI", "BERT-base").args["train"][
            "epochs"
        ]
        == 3
    )


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: nas.pretrained_model_spec("toy", "TinyBERT-5L"),
            "'TinyBERT-5L'; did you mean 'TinyBERT-6L'",
        ),
        (
            lambda: nas.pretrained_model_spec("mini", "BERT-Mini"),
            "no stand-in at profile 'mini': take 'toy' or",
        ),
        (lambda: nas.tasks("toy", ["colla"]), "did you mean 'CoLA'"),
        (lambda: nas.tasks("tyo"), "did you mean 'toy'"),
        (lambda: nas.magnitude_pruned_spec("toy", "CoLA", 0.35), "unknown kept share"),
        (
            lambda: nas.magnitude_pruned_spec("base", "SST-2", 0.3),
            "profile base .*nas_pruning.ROUNDS.: take one of toy, mini, paper",
        ),
        (
            lambda: nas.make_train_settings(nas.SEARCH, "tyo", "CoLA"),
            "nas_pruning.SEARCH: 'tyo'; did you mean 'toy'",
        ),
    ],
)
def test_mistakes_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_networks_that_are_timed_have_their_share_of_the_flops():
    told = grid("t04_size_sweep")[-1]["spec"].args["models"]
    assert set(told) == {
        nas.format_pruned_model_label(ratio, "Random") for ratio in (*nas.RATIOS, 1.0)
    }
    shape = gated.REPORTED["TinyBERT-4L"][0]
    for ratio in nas.RATIOS:
        (op,) = told[nas.format_pruned_model_label(ratio, "Random")]["surgery"]
        widths = compute_layer_widths_of_pruned_network(
            {"heads": op["heads"], "neurons": op["neurons"]}
        )
        share = gated.flops(
            shape.hidden, 26, widths
        ) / gated.count_masked_encoder_flops(shape)
        assert share == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("at", ["toy", "mini", "paper"])
def test_the_sweep_is_timed_on_weights_that_are_there(at, anywhere):
    """Inputs keep their weights; those of the first stage are inputs of the second
    anyway."""
    (row,) = [row for row in grid("t04_size_sweep", profile=at) if row["kind"] == "cut"]
    task, inputs = nas.TASKS[at][0], dict(row["spec"].inputs)
    assert inputs.pop("model:Whole") == nas.finetuned_unpruned_spec(at, task)
    assert row["seed"] == row["spec"].seed == nas.HEADLINES[at][0]
    assert inputs == {
        f"model:{nas.format_pruned_model_label(ratio)}": nas.pruned_spec(
            at, task, ratio=ratio
        ).inputs["start"]
        for ratio in nas.RATIOS
    }


def test_tables_of_times():
    ms = {"cpu_ms": 80, "cpu_ms_p5": 70, "cpu_ms_p95": 90}
    times = {}
    for name, speed in (("Whole", 1.0), ("10 % NAS", 8.0)):
        told = {what: value / speed for what, value in ms.items()}
        told |= {"cpu_speedup": speed, "parameters": 2e6}
        times |= {f"{name}.{what}": value for what, value in told.items()}
    cell = {"task": "SST-2", "model": "10 % NAS", "run": None}
    found = pd.DataFrame(
        [cell | {"seed": seed, "ratio": 0.1 + seed} for seed in (0, 1)]
    )
    clock = pd.DataFrame(
        [times | {"kind": "cut", "task": "SST-2", "seed": 0, "run": holding({})}]
    )
    every, told = Runs(clock, clock[:0], "mini"), {}
    for frame in (found, found.drop(columns="ratio")):
        searches = Runs(frame, frame[:0], "mini")
        lines = ran("t04_size_sweep", "def timed", every=every, searches=searches)[
            "parts"
        ]
        told |= {name: line for (_, name), line in lines.items() if name not in told}
        if frame is not found:
            assert [name for _, name in lines] == ["Whole"]
    line = ["10.0", "10.0 (8.8 to 11.2)", "8.00", "10.00", "80 %", "2.00"]
    assert [*told["10 % NAS"].values()] == line and told["Whole"][
        "share of that"
    ] == "100 %"


def test_deviations_have_the_numbers_of_the_settings():
    encoder = grids.find_encoder_shape("toy")
    told = {at: " ".join(nas.DEVIATIONS[at]) for at in ("toy", "mini", "base")}
    assert f"An encoder of {encoder.layers} layers of {encoder.hidden}," in told["toy"]
    assert f"with {nas.ROWS['toy']} rows for searches" in told["toy"]
    for at, text in told.items():
        epochs = {train[at].epochs for train in (nas.INTERMEDIATE, nas.PREDICTION)}
        line = f"A search has {nas.SEARCH[at].epochs} epochs, each stage of retraining"
        assert f"{line} {epochs.pop()}." in text and not epochs
    for at in ("toy", "mini"):
        counts = f"{len(nas.ROUNDS[at])} rounds instead of {len(nas.ROUNDS['paper'])}."
        assert f"Magnitude pruning has {counts}" in told[at]


def test_printed_sizes_and_deviations():
    """Three runs can have all of Table 12."""
    sizes = {
        n: round(gated.count_masked_encoder_flops(*of[:2]) / 1e9, 3)
        for n, of in gated.REPORTED.items()
    }
    assert sizes == {name: shown for name, (_, _, shown) in gated.REPORTED.items()}
    assert (
        round(
            100
            * gated.compute_flops_share_by_part(gated.REPORTED["TinyBERT-4L"][0])[
                "feed-forward"
            ]
        )
        == 61
    )
    notes = []
    page = SimpleNamespace(
        show_remarks=lambda lines, **_: notes.append(lines),
        show_verdicts_and_write_json=lambda *_: None,
    )
    table = published.read_table_with_printed_digits(
        "nas_pruning", "table12_flops_weight"
    )
    weights = table.pivot(index="Task", columns="Statistic")
    ran(
        "t12_flops_weight",
        "page.show_verdicts_and_write_json",
        page=page,
        table=weights,
    )
    assert notes == [[]]


def test_remarks_are_sentences():
    for table in (
        "table06",
        "table07",
        "table08a",
        "table08b",
        "table09",
        "table10a",
        "table10b",
    ):
        for line in published.list_transcription_corrections("nas_pruning", table):
            assert not {"nan", "undefined"} & set(line.replace(",", " ").split())
            assert "read as as" not in line


def test_a_line_on_a_log_axis_is_told_from_one_on_a_plain_axis():
    ratios, lines = np.array(nas.RATIOS), []
    for scores in (70 + 8 * np.log10(ratios), 60 + 8 * ratios):
        sizes = {"ratio": ratios, "target": ratios, "score": scores}
        data = pd.DataFrame({"source": "x", "task": "y"} | sizes)
        page = SimpleNamespace(
            show_table=lambda table, *_, **__: lines.append(table["x", "y"])
        )
        ran("t04_size_sweep", "def fit", data=data, page=page)
    log, plain = lines
    assert (log["slope, log"], log["R², log"]) == ("8.00", "1.00")
    assert float(log["R², linear"]) < 0.95
    assert plain["slope, linear"] == "8.00"
    assert float(plain["residual, linear"]) == 0 < float(plain["residual, log"])


def test_tables_of_searches():
    told = {"model": "a", "task": "CoLA", "ratio": 0.301, "trimmed": 2, "target": 0.3}
    found = pd.DataFrame(
        [told | {"seed": s, "before_trim": 0.302 + s / 10} for s in (0, 1)]
    )
    assert nas_tables.tabulate_search_results(found, "x")["a"] == {
        ("x", "before trim, %"): "35.2 ± 7.1 (2)",
        ("x", "FLOPs, %"): "30.1 ± 0.0 (2)",
        ("x", "gates trimmed"): "2.0 ± 0.0 (2)",
    }
    table = nas_tables.read_printed_scores_by_model("table05_nas_vs_random", str)
    assert table["10% NAS"]["published", "CoLA mcc"] == 36.2
    sizes = nas_tables.read_printed_scores_by_model("table04_dev_size_sweep", str)
    assert list(sizes) == ["10%", "30%", "50%", "70%", "100%"]


def test_table_10_has_the_pruned_model_of_the_printed_sparsity_and_the_difference():
    shares = {"30 % NAS": 0.7, "40 % IMP": 0.6, "30 % IMP": 0.5}
    frame = made_up(shares, seeds=1, rows=200)
    runs = Runs(frame, frame[:0], "mini")
    page = defined("t10_magnitude_pruning")
    (source, *_) = runs.result_frames_with_source[0]
    (scores, gap) = page["stated"](*runs.result_frames_with_source[0])
    assert scores == {page["STATED"]: {(source, "SST-2"): "60.0 (1)"}}
    assert gap == {"difference": {(source, "SST-2"): "+10.0"}}


def test_scores_stand_beside_the_share_of_the_flops_that_a_search_ended_on():
    frame = made_up({"Whole": 0.9, "10 % NAS": 0.6, "30 % NAS": 0.7}, seeds=1)
    ended = {"ratio": 0.101, "target": 0.1}
    found = pd.DataFrame([{"task": "SST-2", "model": "10 % NAS", "seed": 0} | ended])
    runs = Runs(frame, frame[:0], "mini")
    for searches, sizes in (
        (found, [1.0, 0.101]),
        (found.drop(columns="ratio"), [1.0]),
    ):
        own = Runs(searches, searches[:0], "mini")
        data = ran("t04_size_sweep", "ended = ", runs=runs, searches=own)["data"]
        lines = data[data["source"] != "published"]
        assert lines["ratio"].tolist() == sizes and set(lines["task"]) == {"SST-2"}
        assert lines["score"].round(3).tolist() == [90.0, 60.0][: len(sizes)]


def test_the_course_of_a_search_counts_its_switches():
    curve = np.array([[1.0, 1.0, 0, 0], [0.6, 0.7, 3, 0], [0.3, 0.3, 2, 1]])
    rows = [
        {"model": "a", "task": "SST-2", "seed": 0, "run": run}
        for run in (holding({"curve": curve}), None)
    ]
    lines = nas_tables.make_flops_share_curves(pd.DataFrame(rows))
    assert lines["step"].tolist() == [0.0, 0.5, 1.0] and lines["actual"].tolist() == [
        1.0,
        0.7,
        0.3,
    ]
    assert lines["off"].tolist() == [0, 3, 5] and lines["on"].tolist() == [0, 0, 1]
    assert set(lines["task"]) == {"SST-2"}
    assert nas_tables.make_flops_share_curves(pd.DataFrame(rows[1:])).empty


def test_no_target_is_out_of_reach():
    """The lowest ratio leaves more than one gate of each layer and kind, in all
    searched models."""
    for shape, _, _ in gated.REPORTED.values():
        widths = {"heads": shape.heads, "ffn": shape.ffn}
        number = {
            (layer, kind): n
            for layer in range(shape.layers)
            for kind, n in widths.items()
        }
        size = shape.hidden // shape.heads
        cost = search.make_encoder_flops_function(
            shape.hidden, size, [widths] * shape.layers
        )
        if shape.heads == 12:
            assert search.GateController(
                nas.make_gate_settings(0.1), number, cost
            ).full == gated.count_masked_encoder_flops(shape)
        with pytest.raises(ValueError, match="ask for at least that"):
            search.GateController(
                replace(nas.make_gate_settings(), ratio=0.001), number, cost
            )


def test_the_settings_are_those_of_the_report(anywhere):
    told = dict(
        published.read_table("nas_pruning", "claims").set_index("claim")["value"]
    )
    options = nas.make_gate_settings()
    assert 100 * options.share == float(
        told["share of alphas updated per training step"]
    )
    assert options.weight == float(told["FLOPS weight chosen for all tasks"])
    assert options.schedule == told["schedule adopted"]
    sizes = {float(text) for text in told["target sizes of the search"].split("|")}
    assert {100 * ratio for ratio in nas.RATIOS} == sizes
    main = float(told["computational cost of the main test models"]) / 100
    assert options.ratio == main == 0.3
    augmented = told["tasks fine-tuned on augmented data for the test results"]
    assert set(nas.AUGMENTED) == set(augmented.split("; "))
    epochs = int(told["BERT-base to TinyBERT distillation: epochs of each step"])
    for settings in (nas.TEACHER, nas.SEARCH, nas.INTERMEDIATE, nas.PREDICTION):
        assert (
            settings["paper"].epochs == epochs == 10 and settings["paper"].batch == 32
        )
    assert nas.TEACHING["paper"] == (10, 3) and nas.STAGES["paper"] == (
        (10, 10),
        (20, 3),
    )
    assert (options.regions, options.update, options.tolerance) == (
        ("heads", "ffn"),
        "jump",
        0.01,
    )
    for table in ("table08b_mnist_3layer", "table10b_mnist_11layer"):
        targets = published.read_table("nas_pruning", table)["Target Input Size Ratio"]
        assert tuple(targets) == nas.TARGETS
    networks = [
        (len(network.widths), network.epochs) for network in nas.NETWORKS.values()
    ]
    assert networks == [(3, 15), (11, 20)]


def test_variance_ratio_has_the_interval_of_f(monkeypatch):
    monkeypatch.setattr(
        measures,
        "list_scores_at_seeds_without_collapse",
        lambda parts, _: [np.asarray(part, float) for part in parts],
    )
    scores = (
        np.random.default_rng(0).normal(size=(1000, 2, 5))
        * np.array([1.0, 2.0])[:, None]
    )
    found = [measures.estimate_score_variance_ratio(pair, {}) for pair in scores]
    assert 0.93 < np.mean([e.low <= 0.25 <= e.high for e in found]) < 0.97
    assert measures.estimate_score_variance_ratio([[1.0, 2.0], [3.0]], {}) is None
    assert measures.estimate_score_variance_ratio([[1.0, 2.0], [3.0, 3.0]], {}) is None
    e = measures.estimate_score_variance_ratio([[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]], {})
    assert (e.mean, e.n_seeds) == (0.25, 3)
    assert (e.low, e.high) == pytest.approx((0.25 / 39, 0.25 * 39))
