"""The page of all tasks: what each gives away without reading, and what an encoder learns of it.

Free of torch.
"""

from dataclasses import replace

import numpy as np

from lib import data, paths
from lib.data import read, unseen
from lib.measure import compare
from lib.papers import grids
from lib.papers.grids import LABELS, TEACHER, source
from lib.papers.profiles import backbone, profile, toy_backbone, untrained
from lib.spec import Spec, known

ROWS = 1500  # training rows of a real task at most
SMALL = ("WNLI", "WordContent", "Depth", "SubjNumber", "CoordinationInversion")  # all rows of these
# Tasks of the page at toy, where no others are wanted: one sentence, a pair, and a passage.
SHOWN = ("CoLA", "MNLI", "SQuAD2")
# Training rows of a generated task: an encoder without pre-training cannot catch up on so few.
FEW = {"CoLA": 600, "SST-2": 500, "STS-B": 600, "SQuAD1": 500, "SQuAD2": 500, "Tense": 250}
FEWER = 400  # of the other generated tasks
MARGIN = 5.0  # the page names tasks on which pre-training gains fewer points
WINDOW = {"toy": 96, "mini": 128, "paper": 384}  # tokens of a row of spans


def names(profile_name, wanted=()):
    """{name: Task} of the tasks that a profile can learn; by default SHOWN at toy, elsewhere all.

    Their training rows are at hand, or the digest of these is known, so that records are found.
    Raises FileNotFoundError for a wanted task of which neither is so.
    """
    there = {}
    for name in wanted or (SHOWN if profile_name == "toy" else read.TASKS):
        known("task", name, read.TASKS)
        own = source(profile_name, name)
        task = data.task(own, name)
        try:
            learned = {"train", "dev"} <= set(data.at_hand(own, name)[1])
        except FileNotFoundError:
            learned = f"{own}/{name}" in data.official_digests()
            if wanted and not learned:
                raise
        if learned:
            there[name] = task
    return there


def grid(profile_name, wanted=(), seeds=(0,)):
    """One row for each task, model and seed.

    Models: the majority class and a bag of words, an encoder without and with pre-training.
    """
    toy, rows = profile_name == "toy", []
    trained = toy_backbone() if toy else backbone(profile_name)
    # What the weights of a checkpoint are worth: the same one with random weights.
    scratch = untrained() if toy else Spec("checkpoint", trained.args | {"random": True}, seed=0)
    for name, task in names(profile_name, wanted).items():
        few = FEW.get(name, FEWER) if toy else None if name in SMALL else ROWS
        told = {"data": data.describe(source(profile_name, name), name, few)}
        train = replace(TEACHER["toy"], epochs=10) if toy else TEACHER[profile_name]
        longest = WINDOW[profile_name] if task.span else train.max_length
        train = replace(train, max_length=longest, pad_to=longest if train.pad_to else 0)
        learning = {"train": train, "targets": LABELS, "span": grids.span(profile_name, name)}
        learning |= told | {"numerics": profile(profile_name).numerics}
        specs = {
            "words": Spec("bag_of_words", told),
            "scratch": Spec("finetune", learning, {"start": scratch}),
            "pre-trained": Spec("finetune", learning, {"start": trained}),
        }
        rows += [
            {"task": name, "model": model, "seed": seed, "spec": spec.at(seed)}
            for model, spec in specs.items()
            for seed in (seeds if model != "words" else seeds[:1])
        ]
    return rows


def points(rows, column):
    """A metric of collected rows in points, of the runs that have it."""
    import pandas as pd

    return 100 * rows.get(column, pd.Series(dtype=float)).dropna()


def parted(frame):
    """[(task, its described rows, name of its metric, collected rows)] of a collected grid."""
    found = []
    for name, rows in frame.groupby("task", sort=False):
        told = rows["spec"].iloc[0].args["data"]
        found.append((name, told, data.task(told["source"], told["task"]).metrics[0], rows))
    return found


def scores(frame):
    """The table of a collected grid: one line for each task, its four scores in points."""
    import pandas as pd

    table = {}
    for name, told, metric, rows in parted(frame):
        table[name] = {
            "metric": metric,
            "training rows": told.get("rows", "all"),
            "majority": compare.spread(points(rows, "majority")),
            "bag of words": compare.spread(points(rows, "bag_of_words")),
        }
        for model in ("scratch", "pre-trained"):
            found = points(rows[rows["model"] == model], metric)
            table[name][model] = compare.spread(found)
    return pd.DataFrame(table).T.rename_axis("task")


def remarks(frame):
    """A line for the page: the tasks that do not tell the two encoders apart."""
    behind = []
    for name, _, metric, rows in parted(frame):
        mean = {model: points(part, metric).mean() for model, part in rows.groupby("model")}
        if mean["pre-trained"] - mean["scratch"] < MARGIN:
            behind.append(name)
    return [f"Pre-training gains less than {MARGIN:g} points on: {', '.join(behind) or 'none'}."]


def census(source, wanted=()):
    """The table of a source: one line for each task.

    It tells the rows of each split, classes, metric, and lengths in words (5th, 50th and 95th
    percentile, and a histogram). A task that is not at hand says so.
    """
    import pandas as pd

    lines = []
    for name, task in data.tasks(source).items():
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
        lengths = np.concatenate([unseen.words(rows) for rows in splits.values()])
        percentiles = np.percentile(lengths, (5, 50, 95))
        line["words 5, 50, 95 %"] = ", ".join(f"{q:.0f}" for q in percentiles)
        line["lengths"] = bars(lengths)
        lines.append(line | {"source": stand_ins(source, name)})
    return pd.DataFrame(lines).convert_dtypes()  # counts stay whole numbers beside empty cells


def bars(lengths, bins=12):
    """A histogram as text, from 0 to the 99th percentile."""
    counts, _ = np.histogram(lengths, bins, (0, np.percentile(lengths, 99) + 1))
    return "".join("▁▂▃▄▅▆▇█"[int(7 * c / counts.max())] for c in counts)


def stand_ins(source, name):
    """Where the rows come from: official files, or stand-ins for them."""
    if source != "glue":
        return {"toy": "generated here"}.get(source, "local files")
    found = {
        split: ", ".join(filter(None, map(read.stand_in, each)))
        for split, each in read.files(name, paths.data_root() / "glue").items()
    }
    partial = [f"{split}: {kind}" for split, kind in found.items() if kind]
    return "official files" + (f" but {', '.join(partial)}" if partial else "")
