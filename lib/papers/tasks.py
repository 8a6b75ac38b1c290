"""The page of all tasks: what each gives away without reading, and what an encoder learns of it. Free of torch."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lib import data, paths
from lib.data import glue, senteval, squad
from lib.measure import compare
from lib.options import Span, Targets
from lib.papers.grids import TEACHER, source
from lib.papers.profiles import backbone, profile, toy_backbone, untrained
from lib.spec import Spec

ROWS = 1500  # training rows of a real task at most
SMALL = (
    "WNLI",
    "WordContent",
    "Depth",
    "SubjNumber",
    "CoordinationInversion",
)  # real ones with fewer: all are taken
# Tasks of the page at toy, where no others are wanted: one sentence, a pair, and a passage.
SHOWN = ("CoLA", "MNLI", "SQuAD2")
FEW = {"CoLA": 600, "SST-2": 500, "STS-B": 600, "SQuAD1": 500, "SQuAD2": 500, "Tense": 250}
FEWER = 400  # rows of the other generated tasks: an encoder without pre-training cannot catch up
MARGIN = 5.0  # points between the two encoders, below which the page says that a task does not tell them apart
WINDOW = {
    "toy": (96, Span(stride=64, max_query=32, max_answer=12)),  # tokens, and how answers are cut
    "mini": (128, Span(stride=64, max_query=64, max_answer=30)),
    "paper": (384, Span(stride=128, max_query=64, max_answer=30)),
}


def names(profile_name, wanted=()):
    """{name: Task} that a profile can learn: its rows to train on are at hand, or their digest is known, so
    that records are found. By default SHOWN at toy, elsewhere all."""
    there = {}
    everything = glue.TASKS | squad.TASKS | senteval.TASKS
    for name in wanted or (SHOWN if profile_name == "toy" else everything):
        own = source(profile_name, name)
        task = data.task(own, name)
        try:
            if {"train", "dev"} <= data.splits(own, name).keys():
                there[name] = task
        except FileNotFoundError:
            if name in data.official(own):
                there[name] = task
            elif wanted:
                raise
    return there


def grid(profile_name, wanted=(), seeds=(0,)):
    """One row for each task, model and seed: majority and bag of words, an encoder without and with pre-training."""
    rows = []
    scratch, trained = (
        (untrained(), toy_backbone())
        if profile_name == "toy"
        else (random_checkpoint(profile_name), backbone(profile_name))
    )
    for name, task in names(profile_name, wanted).items():
        few = FEW.get(name, FEWER) if profile_name == "toy" else None if name in SMALL else ROWS
        train = (
            replace(TEACHER["toy"], epochs=10) if profile_name == "toy" else TEACHER[profile_name]
        )
        common = {
            "data": data.describe(source(profile_name, name), name, few),
            "train": train,
            "targets": Targets("hard"),
            "numerics": profile(profile_name).numerics,
        }
        if task.span:
            longest, span = WINDOW[profile_name]
            common |= {
                "train": replace(train, max_length=longest, pad_to=longest if train.pad_to else 0),
                "span": span,
            }
        specs = {
            "words": Spec("bag_of_words", {"data": common["data"]}),
            "scratch": Spec("finetune", common, {"start": scratch}),
            "pre-trained": Spec("finetune", common, {"start": trained}),
        }
        rows += [
            {"task": name, "model": model, "seed": seed, "spec": spec.at(seed)}
            for model, spec in specs.items()
            for seed in (seeds if model != "words" else seeds[:1])
        ]
    return rows


def random_checkpoint(profile_name):
    """The profile's checkpoint with random weights: what its pre-training is worth."""
    return Spec("checkpoint", backbone(profile_name).args | {"random": True}, seed=0)


def metric(rows):
    """The metric that is shown of a task's rows."""
    told = rows["spec"].iloc[0].args["data"]
    return data.task(told["source"], told["task"]).metrics[0]


def scores(frame):
    """The table of a collected grid: one row a task, its four scores in points."""
    table = {}
    for name, rows in frame.groupby("task", sort=False):
        row = table[name] = {
            "metric": metric(rows),
            "training rows": rows["spec"].iloc[0].args["data"].get("rows", "all"),
        }
        for column in ("majority", "bag_of_words"):
            row[column.replace("_", " ")] = compare.spread(
                100 * rows.get(column, pd.Series(dtype=float)).dropna()
            )
        for model in ("scratch", "pre-trained"):
            found = rows[rows["model"] == model].get(metric(rows), pd.Series(dtype=float))
            row[model] = compare.spread(100 * found.dropna())
    return pd.DataFrame(table).T.rename_axis("task")


def remarks(frame):
    """What the scores say of tasks that do not tell the two encoders apart, as lines for the page."""
    found = {
        name: {
            model: 100 * rows.get(metric(part), pd.Series(dtype=float)).mean()
            for model, rows in part.groupby("model")
        }
        for name, part in frame.groupby("task", sort=False)
    }
    behind = [name for name, by in found.items() if by["pre-trained"] - by["scratch"] < MARGIN]
    return [f"Pre-training gains less than {MARGIN:g} points on: {', '.join(behind) or 'none'}."]


def census(source, wanted=()):
    """One line a task of a source: rows of each split, classes, metric, lengths in words (5th, 50th and 95th percentile)
    with a histogram; tasks that are not at hand say so."""
    lines = []
    for name, task in data.source(source).TASKS.items():
        if wanted and name not in wanted:
            continue
        line = {
            "task": name,
            "input": "question, passage" if task.span else "pair" if task.pair else "sentence",
            "classes": "span" if task.span else len(task.labels) or "score",
            "metric": task.metrics[0],
        }
        try:
            splits = data.splits(source, name)
        except FileNotFoundError:
            lines.append(line | {"source": "not at hand"})
            continue
        line |= {split: len(rows) for split, rows in splits.items()}
        lengths = np.concatenate([words(rows) for rows in splits.values()])
        line["words 5, 50, 95 %"] = ", ".join(
            f"{q:.0f}" for q in np.percentile(lengths, (5, 50, 95))
        )
        line["lengths"] = bars(lengths)
        lines.append(line | {"source": stand_ins(source, name)})
    return pd.DataFrame(lines).convert_dtypes()  # counts stay whole numbers beside empty cells


def words(split):
    """Words of each row, both sides together."""
    return np.array([len(a.split()) for a in split.a]) + (
        0 if split.b is None else np.array([len(b.split()) for b in split.b])
    )


def bars(lengths, bins=12):
    """A histogram as text, from 0 to the 99th percentile."""
    counts, _ = np.histogram(lengths, bins, (0, np.percentile(lengths, 99) + 1))
    return "".join("▁▂▃▄▅▆▇█"[int(7 * c / counts.max())] for c in counts)


def stand_ins(source, name):
    """Where the rows come from: official files, or stand-ins for them."""
    if source != "glue":
        return {"toy": "generated here"}.get(source, "local files")
    found = {
        split: glue.stand_in(path)
        for split, path in glue.files(name, paths.data_root() / "glue").items()
    }
    partial = [f"{split}: {kind}" for split, kind in found.items() if kind]
    return "official files" + (f" but {', '.join(partial)}" if partial else "")
