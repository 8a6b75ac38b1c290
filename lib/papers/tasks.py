"""The page of all tasks: what each gives away without reading, and what an encoder learns of it. Free of torch."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lib import data
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
# Of a generated task: so few that an encoder without pre-training does not catch up
FEW = {
    "CoLA": 600,
    "SST-2": 500,
    "STS-B": 600,
    "SQuAD1": 500,
    "SQuAD2": 500,
    "Length": 250,
    "Depth": 200,
    "Tense": 250,
    "TopConstituents": 150,
    "SubjNumber": 150,
    "ObjNumber": 150,
    "OddManOut": 150,
    "CoordinationInversion": 150,
}
LATE = "WordContent"  # the twin on which pre-training costs: shown with four times the rows as well
MARGIN = 5.0  # points between the two encoders, below which the page says that a task does not tell them apart
WINDOW = {
    "toy": (96, Span(stride=64, max_query=32, max_answer=12)),  # tokens, and how answers are cut
    "mini": (128, Span(stride=64, max_query=64, max_answer=30)),
    "paper": (384, Span(stride=128, max_query=64, max_answer=30)),
}


def names(profile_name, wanted=()):
    """{name: Task} that a profile can learn: with rows to train on, at hand or known by their digest, so that records are
    found."""
    there = {}
    for name in wanted or data.source("toy").TASKS:  # the twins are of all
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
        few = FEW.get(name, 400) if profile_name == "toy" else None if name in SMALL else ROWS
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
        if profile_name == "toy" and name == LATE:
            more = {"data": data.describe("toy", name, 4 * few)}
            specs["pre-trained, more rows"] = Spec("finetune", common | more, {"start": trained})
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
    lines = [f"Pre-training gains less than {MARGIN:g} points on: {', '.join(behind) or 'none'}."]
    late = found.get(LATE, {})
    if "pre-trained, more rows" in late:
        lines.append(
            f"{LATE}: in a random encoder [CLS] is nearly a mean of the words, all that is asked for here; "
            "pre-training has put the context in their place, and fine-tuning brings them back with more rows: "
            f"{late['pre-trained, more rows']:.1f} with four times as many."
        )
    return lines


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
    from lib import paths
    from lib.data import glue

    found = {
        split: glue.stand_in(path)
        for split, path in glue.files(name, paths.data_root() / "glue").items()
    }
    partial = [f"{split}: {kind}" for split, kind in found.items() if kind]
    return "official files" + (f" but {', '.join(partial)}" if partial else "")
