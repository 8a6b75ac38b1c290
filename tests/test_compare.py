"""Columns of tables: the metric, split and title that a paper prints, in scores,
averages and pairs; what "best" goes by."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import holding

from lib.core.options import Train
from lib.core.rows import format_kept_head_fraction
from lib.data.read import GLUE
from lib.papers import grids
from lib.papers.bermo import recipes as bermo
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.nas_pruning import recipes as nas
from lib.report.tables import Runs
from lib.stats import compare, metrics, paired
from lib.train.learn import TaskTraining

RNG = np.random.default_rng(0)


def scored(task, model, seed, splits):
    """A row as collected, of {split: (logits, labels)}, with the metrics that a run on
    the task has."""
    arrays, told = {}, {}
    for split, (logits, labels) in splits.items():
        arrays["predictions" if split == "dev" else f"predictions_{split}"] = {
            "logits": logits,
            "labels": labels,
            "index": np.arange(len(labels)),
        }
        found = metrics.compute_metrics(GLUE[task], logits, labels)
        before = "" if split == "dev" else f"{split}."
        told |= {before + name: value for name, value in found.items()}
    run = holding(name=f"{task}/{model}/{seed}")
    run.read_arrays, run.metrics = arrays.__getitem__, told
    return {
        "task": task,
        "model": model,
        "seed": seed,
        "run": run,
        "state": "finished",
        **told,
    }


def classes(right, count=400, kinds=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(kinds, count, p=[0.3, 0.7] if kinds == 2 else None)
    said = np.where(rng.random(count) < right, labels, (labels + 1) % kinds)
    return np.eye(kinds)[said], labels


def values(noise, count=300):
    rng = np.random.default_rng(1)
    labels = rng.uniform(0, 5, count).astype(np.float32)
    return np.exp(labels + noise * rng.normal(size=count))[:, None], labels


PRINTED = grids.select_metrics_by_task("paper", efficientbert.COLUMNS)


@pytest.fixture(scope="module")
def frame():
    rows = []
    for model, (right, noise) in {
        "EfficientBERT": (0.9, 0.5),
        "Base Model": (0.8, 1.0),
    }.items():
        for seed in (0, 1, 2):
            other = classes(right - 0.2, kinds=3, seed=9)
            halves = {"dev": classes(right, kinds=3), "dev_mm": other}
            rows.append(scored("MNLI", model, seed, halves))
            rows += [
                scored(task, model, seed, {"dev": classes(right)})
                for task in ("MRPC", "QQP")
            ]
            rows.append(scored("STS-B", model, seed, {"dev": values(noise)}))
    return pd.DataFrame(rows)


def test_a_table_shows_and_averages_the_printed_metrics(frame):
    cells = compare.make_score_table_by_task(frame, PRINTED, "here")["EfficientBERT"]
    row = (
        frame[frame["model"] == "EfficientBERT"]
        .set_index("task")
        .groupby("task")
        .first()
    )
    meant = {
        "MNLI-m": row["accuracy"]["MNLI"],
        "MNLI-mm": row["dev_mm.accuracy"]["MNLI"],
        "MRPC": row["f1"]["MRPC"],
        "QQP": row["f1"]["QQP"],
        "STS-B": row["spearman"]["STS-B"],
    }
    meant["average"] = np.mean(list(meant.values()))
    assert list(cells) == [("here", title) for title in meant]
    shown = [float(cell.split()[0]) for cell in cells.values()]
    assert shown == pytest.approx([100 * value for value in meant.values()], abs=0.05)
    # what was shown before is another number
    assert abs(row["accuracy"]["MRPC"] - row["f1"]["MRPC"]) > 0.02


def test_cells_of_a_table_differ_as_pairs_do(frame):
    """A seed that one model of a width alone has compares with nothing, and is left
    out."""
    lone = (
        frame["model"].eq("Base Model") & frame["seed"].eq(2) & frame["task"].eq("QQP")
    )
    lean = pd.concat([frame[~lone].assign(m=3), frame.assign(m=1)])
    for told, n in ((frame[~lone], 2), (frame, 3)):
        table = compare.make_score_table_by_task(told, PRINTED, "here")
        cells = [
            table[model]["here", "QQP"] for model in ("EfficientBERT", "Base Model")
        ]
        assert [cell[-3:] for cell in cells] == [f"({n})"] * 2
        assert table["EfficientBERT"]["here", "MRPC"].endswith("(3)")
        assert {cells["here", "average"][-3:] for cells in table.values()} == {f"({n})"}
        averages = compare.collect_averages_over_tasks([table])
        assert (
            averages["here", "EfficientBERT"]
            == table["EfficientBERT"]["here", "average"]
        )
        means = [float(cell.split()[0]) for cell in cells]
        pairs = compare.pair_runs_of_models(
            told[told["task"] == "QQP"], "EfficientBERT", "Base Model", PRINTED
        )
        assert means[0] - means[1] == pytest.approx(
            paired.estimate_paired_difference(pairs).mean, abs=0.1
        )
    found = compare.make_score_table_by_task(lean, PRINTED, "here")
    assert [found[f"{m}/12", "EfficientBERT"]["here", "QQP"][-3:] for m in (3, 1)] == [
        "(2)",
        "(3)",
    ]
    alone = compare.make_score_table_by_task(
        lean[lean["task"] == "QQP"], PRINTED, "here"
    )
    assert set(compare.collect_averages_over_tasks([alone]).values()) == {
        cells["here", "QQP"] for cells in alone.values()
    }
    apart = frame[
        frame["seed"].eq(0) == frame["model"].eq("Base Model")
    ]  # no seed in common
    found = compare.make_score_table_by_task(apart, PRINTED, "here")
    assert [found[m]["here", "QQP"][-3:] for m in ("EfficientBERT", "Base Model")] == [
        "(2)",
        "(1)",
    ]


def test_a_claim_is_judged_by_the_printed_average(frame):
    both = frame, "EfficientBERT", "Base Model"
    found = compare.estimate_difference(
        *both, grids.select_metrics_by_task("paper", efficientbert.COLUMNS)
    )
    means = (
        compare.average_scores_over_tasks(
            compare.tabulate_scores_by_run_and_metric(frame, PRINTED)
        )
        .groupby("model")["score"]
        .mean()
    )
    assert found.n_tasks == 5
    assert found.mean == pytest.approx(means["EfficientBERT"] - means["Base Model"])
    assert found.mean != pytest.approx(
        compare.estimate_difference(*both, grids.select_metrics_by_task("paper")).mean,
        abs=0.5,
    )


def test_both_correlations_are_columns_and_share_their_rows(frame):
    of = grids.select_metrics_by_task("paper", nas.COLUMNS)
    names = ["STS-B Pearson", "STS-B Spearman"]
    shown = compare.make_score_table_by_task(frame, of, "here")["Base Model"]
    assert {("here", name) for name in (*names, "MNLI-mm")} <= shown.keys()
    pairs = compare.pair_runs_of_models(
        frame[frame["task"] == "STS-B"], "EfficientBERT", "Base Model", of
    )
    told = [(p.task, p.metric) for p in pairs[:2]]
    assert told == list(zip(names, ("pearson", "spearman"), strict=True))
    pairs = pairs[1::2]
    twice = [replace(p, task=name) for p in pairs for name in ("a", "b")]
    one = paired.estimate_paired_difference(pairs)
    both = paired.estimate_paired_difference(twice)
    # no new rows, no narrower interval
    assert (one.mean, one.low, one.high) == pytest.approx(
        (both.mean, both.low, both.high)
    )


def test_a_split_that_is_not_there_is_no_column_and_no_pair(frame):
    lean = frame[frame["task"] == "MNLI"].drop(columns="dev_mm.accuracy")
    for place, run in lean["run"].items():
        only = {"accuracy": run.metrics["accuracy"]}
        lean.at[place, "run"] = type(run)(**vars(run) | {"metrics": only})
    points = compare.tabulate_scores_by_run_and_metric(lean, PRINTED)
    assert (
        set(points["column"]) == {"MNLI-m"}
        and len(compare.average_scores_over_tasks(points)) == 6
    )
    pairs = compare.pair_runs_of_models(lean, "EfficientBERT", "Base Model", PRINTED)
    assert {p.task for p in pairs} == {"MNLI-m"}


def test_what_the_papers_print():
    """Section 6.3 of the NAS report, the test columns of EfficientBERT, GhostBERT's
    Table 7, BERMo's Table 2."""

    def shown(columns, profile_name="paper"):
        return {
            c.title: c.score_key
            for own in grids.select_metrics_by_task(profile_name, columns).values()
            for c in own
        }

    for columns, printed in (
        ((), {"MNLI": "accuracy", "QQP": "accuracy", "MRPC": "accuracy"}),
        ((), {"STS-B": "spearman", "CoLA": "matthews"}),
        (
            efficientbert.COLUMNS,
            {"MNLI-mm": "dev_mm.accuracy", "QQP": "f1", "MRPC": "f1"},
        ),
        (efficientbert.COLUMNS, {"STS-B": "spearman"}),
        (efficientbert.DEV_COLUMNS, {"MRPC": "f1"}),
        (nas.COLUMNS, {"QQP F1": "f1", "MRPC F1": "f1", "CoLA": "matthews"}),
        (nas.COLUMNS, {"STS-B Pearson": "pearson"}),
        (nas.AGAINST_IMP, {"MRPC": "accuracy", "STS-B Pearson": "pearson"}),
        (bermo.COLUMNS, {"MNLI Acc-mm": "dev_mm.accuracy", "QQP F1": "f1"}),
    ):
        found = shown(columns)
        assert {title: found[title] for title in printed} == printed
    assert "MNLI-mm" not in shown(efficientbert.DEV_COLUMNS)
    # a task without a printed column keeps its own
    assert shown(efficientbert.COLUMNS, "toy")["CoLA"] == "matthews"


def test_sizes_of_the_report_are_drawn_by_column(frame):
    whole = frame[frame["task"] == "STS-B"].replace({"model": {"Base Model": "Whole"}})
    points = Runs(whole, whole[:0], "paper").tabulate_scores_by_run_and_metric(
        nas.COLUMNS
    )
    assert set(points["column"]) == {"STS-B Pearson", "STS-B Spearman"}


def test_the_best_goes_by_the_mean_of_the_metrics_asked_for():
    logits, labels = classes(0.8)
    said = metrics.compute_metrics(GLUE["MRPC"], logits, labels)
    training = SimpleNamespace(task=GLUE["MRPC"])

    def score(*names):
        training.train = Train(1, 2, 1e-3, 8, select="best", select_by=names)
        return TaskTraining.compute_model_selection_score(training, lambda: (said, {}))

    assert score() == said["accuracy"] and score("f1") == said["f1"]
    assert score("accuracy", "f1") == (said["accuracy"] + said["f1"]) / 2


@pytest.mark.parametrize(
    "task, names",
    [
        ("MRPC", ["accuracy", "f1"]),
        ("QQP", ["accuracy", "f1"]),
        ("STS-B", ["pearson", "spearman"]),
        ("MNLI", None),
        ("CoLA", None),
    ],
)
def test_efficientbert_selects_as_its_code_does(task, names, anywhere):
    spec = efficientbert.student_spec("paper", task, "EfficientBERT")
    for each in (spec, spec.inputs["teacher"]):
        assert each.args["train"].get("select_by") == names
    assert (
        "select_by"
        not in efficientbert.student_spec("toy", "CoLA", "EfficientBERT").args["train"]
    )
    by = ("pearson", "spearman") if task == "STS-B" else ()
    assert nas.make_train_settings(nas.PREDICTION, "paper", task).select_by == by


ONE = compare.MetricColumn("SST-2", "SST-2", "accuracy")


def answers(right, n=400, labels=None):
    """A run on two classes whose first rows, of this share of each class, are right."""
    labels = np.arange(n) % 2 if labels is None else labels
    said = np.where(np.arange(n) // 2 < round(right * n / 2), labels, 1 - labels)
    arrays = {"labels": labels, "index": np.arange(n), "logits": np.eye(2)[said]}
    return holding(arrays, f"{right} of {n}", accuracy=float((said == labels).mean()))


@pytest.mark.parametrize("n, right, lost", [(400, 0.55, True), (400, 0.555, False)])
@pytest.mark.parametrize("more", [1, 4])
def test_the_margin_of_collapse_knows_the_number_of_rows(n, right, lost, more):
    """It is two standard errors of chance: 5 points on 400 rows, 2.5 on 1,600."""
    found = compare.measure_score_and_chance_level(answers(right, n * more), ONE)
    assert found.score == pytest.approx(100 * right) and not found.is_constant
    assert found.chance_score == pytest.approx(50 + 5 / more**0.5)
    assert found.has_collapsed == (lost and more == 1)


def test_one_answer_to_all_rows_and_a_run_without_predictions_collapsed():
    labels = (np.arange(400) % 4 > 0).astype(int)
    run = answers(0.5)
    arrays = {
        "labels": labels,
        "index": np.arange(400),
        "logits": np.eye(2)[np.ones(400, int)],
    }
    run.read_arrays = lambda _: arrays
    found = compare.measure_score_and_chance_level(run, ONE)
    assert found.is_constant and found.has_collapsed and found.score == 75

    def gone(_):
        raise FileNotFoundError

    lost = answers(0.9)
    lost.read_arrays = gone
    assert compare.measure_score_and_chance_level(lost, ONE) == compare.ScoreAndChance(
        0.0, 0.0, True
    )
    frame = pd.DataFrame({"run": [run, lost, answers(0.9), None], "task": "SST-2"})
    assert [*compare.make_mask_of_collapsed_runs(frame, {"SST-2": (ONE,)})] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("metric, chance", [("matthews", 10.0), ("f1", 200 / 3)])
def test_the_chance_of_other_metrics(metric, chance):
    found = compare.measure_score_and_chance_level(
        answers(0.9), compare.MetricColumn("x", "x", metric)
    )
    assert found.chance_score == pytest.approx(chance) and not found.has_collapsed


@pytest.mark.parametrize(
    "spared, n", [((False, False), 1), ((True, False), 2), ((True, True), 3)]
)
def test_a_seed_with_a_collapsed_run_makes_no_pair_unless_it_is_spared(spared, n):
    """Seed 0 is sound, in seed 1 the first model collapsed, in seed 2 the second."""

    def rows(*right):
        return [
            {"task": "SST-2", "seed": seed, "run": answers(each)}
            for seed, each in enumerate(right)
        ]

    both = rows(0.9, 0.5, 0.9), rows(0.8, 0.8, 0.5)
    pairs = compare.pair_runs_by_task_and_seed(*both, {"SST-2": (ONE,)}, *spared)
    assert [pair.seed for pair in pairs] == [*range(n)]
    assert [
        pair.seed
        for pair in compare.pair_runs_by_task_and_seed(*both, {"SST-2": (ONE,)})
    ] == [0]

    def gone(_):
        raise FileNotFoundError

    both[0][0]["run"] = answers(0.9)
    both[0][0]["run"].read_arrays = gone  # its loss was not finite
    pairs = compare.pair_runs_by_task_and_seed(*both, {"SST-2": (ONE,)}, *spared)
    assert [pair.seed for pair in pairs] == [*range(1, n)]


def test_a_width_is_told_of_the_heads_of_the_row_s_own_model():
    rows = [{"m": 3}, {"m": 4, "of": 4}, {"m": 4.0, "of": float("nan")}]
    assert [format_kept_head_fraction(row) for row in rows] == ["3/12", "4/4", "4/12"]
