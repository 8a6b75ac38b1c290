"""Columns of tables: the metric, split and title that a paper prints, in scores, averages and
pairs; what "best" goes by.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import holding

from lib.data import glue
from lib.measure import compare, metrics, stats
from lib.options import Train
from lib.papers import bermo, claims, efficientbert, grids, nas, nas_claims
from lib.train.learn import Lesson

RNG = np.random.default_rng(0)


def scored(task, model, seed, splits):
    """A row as collected, of {split: (logits, labels)}, with the metrics that a run on the task
    has.
    """
    arrays, told = {}, {}
    for split, (logits, labels) in splits.items():
        arrays["predictions" if split == "dev" else f"predictions_{split}"] = {
            "logits": logits,
            "labels": labels,
            "index": np.arange(len(labels)),
        }
        found = metrics.scores(glue.TASKS[task], logits, labels)
        told |= (
            found if split == "dev" else {f"{split}.{name}": value for name, value in found.items()}
        )
    run = holding(name=f"{task}/{model}/{seed}")
    run.arrays, run.metrics = arrays.__getitem__, told
    return {"task": task, "model": model, "seed": seed, "run": run, "state": "finished", **told}


def classes(right, count=400, kinds=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(kinds, count, p=[0.3, 0.7] if kinds == 2 else None)
    said = np.where(rng.random(count) < right, labels, (labels + 1) % kinds)
    return np.eye(kinds)[said], labels


def values(noise, count=300):
    rng = np.random.default_rng(1)
    labels = rng.uniform(0, 5, count).astype(np.float32)
    return np.exp(labels + noise * rng.normal(size=count))[:, None], labels


@pytest.fixture(scope="module")
def frame():
    rows = []
    for model, (right, noise) in {"EfficientBERT": (0.8, 0.5), "Base Model": (0.7, 1.0)}.items():
        for seed in (0, 1, 2):
            halves = {
                "dev": classes(right, kinds=3),
                "dev_mm": classes(right - 0.2, kinds=3, seed=9),
            }
            rows.append(scored("MNLI", model, seed, halves))
            rows += [scored(task, model, seed, {"dev": classes(right)}) for task in ("MRPC", "QQP")]
            rows.append(scored("STS-B", model, seed, {"dev": values(noise)}))
    return pd.DataFrame(rows)


def test_a_table_shows_and_averages_the_printed_metrics(frame):
    cells = compare.by_task(frame, grids.metrics("paper", efficientbert.COLUMNS), "here")[
        "EfficientBERT"
    ]
    assert list(cells) == [
        ("here", name) for name in ("MNLI-m", "MNLI-mm", "MRPC", "QQP", "STS-B", "average")
    ]
    row = frame[frame["model"] == "EfficientBERT"].set_index("task").groupby("task").first()
    meant = {
        "MNLI-m": row["accuracy"]["MNLI"],
        "MNLI-mm": row["dev_mm.accuracy"]["MNLI"],
        "MRPC": row["f1"]["MRPC"],
        "QQP": row["f1"]["QQP"],
        "STS-B": row["spearman"]["STS-B"],
    }
    assert {title: float(cells["here", title].split()[0]) for title in meant} == pytest.approx(
        {title: 100 * value for title, value in meant.items()}, abs=0.05
    )
    assert float(cells["here", "average"].split()[0]) == pytest.approx(
        100 * np.mean(list(meant.values())), abs=0.05
    )
    assert (
        abs(row["accuracy"]["MRPC"] - row["f1"]["MRPC"]) > 0.02
    )  # what was shown before is another number


def test_a_claim_is_judged_by_the_printed_average(frame):
    found = claims.estimate(
        frame, "paper", "EfficientBERT", "Base Model", columns=efficientbert.COLUMNS
    )
    means = (
        compare.average(compare.points(frame, grids.metrics("paper", efficientbert.COLUMNS)))
        .groupby("model")["score"]
        .mean()
    )
    assert found.n_tasks == 5 and found.mean == pytest.approx(
        means["EfficientBERT"] - means["Base Model"]
    )
    assert found.mean != pytest.approx(
        claims.estimate(frame, "paper", "EfficientBERT", "Base Model").mean, abs=0.5
    )


def test_both_correlations_are_columns_and_share_the_draws_of_their_rows(frame):
    shown = compare.by_task(frame, grids.metrics("paper", nas.COLUMNS), "here")["Base Model"]
    assert {
        ("here", "STS-B Pearson"),
        ("here", "STS-B Spearman"),
        ("here", "MNLI-mm"),
    } <= shown.keys()
    own = frame[frame["task"] == "STS-B"]
    pairs = compare.pairs(own, "EfficientBERT", "Base Model", grids.metrics("paper", nas.COLUMNS))
    assert [(p.task, p.metric) for p in pairs[:2]] == [
        ("STS-B Pearson", "pearson"),
        ("STS-B Spearman", "spearman"),
    ]
    twice = [
        stats.Pair(name, p.seed, p.labels, p.a, p.b, "spearman")
        for p in pairs[1::2]
        for name in ("a", "b")
    ]
    one, both = stats.paired_difference(pairs[1::2]), stats.paired_difference(twice)
    assert (one.mean, one.low, one.high) == pytest.approx(
        (both.mean, both.low, both.high)
    )  # no new rows, no narrower interval


def test_a_split_that_is_not_there_is_no_column_and_no_pair(frame):
    lean = frame[frame["task"] == "MNLI"].drop(columns="dev_mm.accuracy")
    lean["run"] = [holding(name=run.name) for run in lean["run"]]
    for new, old in zip(lean["run"], frame[frame["task"] == "MNLI"]["run"], strict=True):
        new.arrays, new.metrics = old.arrays, {"accuracy": old.metrics["accuracy"]}
    of = grids.metrics("paper", efficientbert.COLUMNS)
    assert (
        set(compare.points(lean, of)["column"]) == {"MNLI-m"}
        and len(compare.average(compare.points(lean, of))) == 6
    )
    assert {p.task for p in compare.pairs(lean, "EfficientBERT", "Base Model", of)} == {"MNLI-m"}


def test_what_the_papers_print():
    """Section 6.3 of the NAS report, the test columns of EfficientBERT, GhostBERT's Table 7,
    BERMo's Table 2.
    """

    def shown(columns, profile_name="paper"):
        return {
            c.title: c.key for own in grids.metrics(profile_name, columns).values() for c in own
        }

    ghost, efficient, report = shown(()), shown(efficientbert.COLUMNS), shown(nas.COLUMNS)
    assert [ghost[t] for t in ("MNLI", "QQP", "MRPC", "STS-B", "CoLA")] == ["accuracy"] * 3 + [
        "spearman",
        "matthews",
    ]
    assert [efficient[t] for t in ("MNLI-mm", "QQP", "MRPC", "STS-B")] == [
        "dev_mm.accuracy",
        "f1",
        "f1",
        "spearman",
    ]
    assert (
        "MNLI-mm" not in shown(efficientbert.DEV_COLUMNS)
        and shown(efficientbert.DEV_COLUMNS)["MRPC"] == "f1"
    )
    assert [report[t] for t in ("QQP F1", "MRPC F1", "STS-B Pearson", "CoLA")] == [
        "f1",
        "f1",
        "pearson",
        "matthews",
    ]
    assert (
        shown(nas.AGAINST_IMP)["MRPC"] == "accuracy"
        and shown(nas.AGAINST_IMP)["STS-B Pearson"] == "pearson"
    )
    assert (
        shown(bermo.COLUMNS)["MNLI Acc-mm"] == "dev_mm.accuracy"
        and shown(bermo.COLUMNS)["QQP F1"] == "f1"
    )
    assert (
        shown(efficientbert.COLUMNS, "toy")["CoLA"] == "matthews"
    )  # a task without a printed column keeps its own


def test_sizes_of_the_report_are_drawn_by_column(frame):
    own = frame[frame["task"] == "STS-B"].replace({"model": {"Base Model": "Whole"}})
    assert set(nas_claims.sized(own, own[:0], "paper")["task"]) == {
        "STS-B Pearson",
        "STS-B Spearman",
    }


# ---- SELECTION


def test_the_best_goes_by_the_mean_of_the_metrics_asked_for():
    logits, labels = classes(0.8)
    said = metrics.scores(glue.TASKS["MRPC"], logits, labels)
    lesson = SimpleNamespace(task=glue.TASKS["MRPC"])

    def score(*names):
        lesson.train = Train(
            epochs=1, batch=2, lr=1e-3, max_length=8, select="best", select_by=names
        )
        return Lesson.score(lesson, lambda: (said, {}))

    assert score() == said["accuracy"] and score("f1") == said["f1"]
    assert score("accuracy", "f1") == (said["accuracy"] + said["f1"]) / 2
    with pytest.raises(ValueError, match='it takes "best"'):
        Train(epochs=1, batch=2, lr=1e-3, max_length=8, select_by=("f1",))


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
    spec = efficientbert.student("paper", task, "EfficientBERT")
    assert (
        spec.args["train"].get("select_by")
        == names
        == spec.inputs["teacher"].args["train"].get("select_by")
    )
    assert "select_by" not in efficientbert.student("toy", "CoLA", "EfficientBERT").args["train"]
    assert nas.paced(nas.PREDICTION, "paper", task).select_by == (
        ("pearson", "spearman") if task == "STS-B" else ()
    )
