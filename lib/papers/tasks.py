"""How many rows each task has, and how long they are. Free of torch."""

import numpy as np

from lib import data
from lib.data import read, unseen
from lib.runs import paths


def census(source, wanted=()):
    """The table of a source: one line for each task, or for those that are wanted.

    It tells the rows of each split, classes, metric, and words of a row (5th, 50th and 95th
    percentile). A task that is not at hand says so.
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
        line["words 5, 50, 95 %"] = ", ".join(
            f"{q:.0f}" for q in np.percentile(lengths, (5, 50, 95))
        )
        lines.append(line | {"source": stand_ins(source, name)})
    return pd.DataFrame(lines).convert_dtypes()  # counts stay whole numbers beside empty cells


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
