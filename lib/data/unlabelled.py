"""Rows to predict: one split of a task, such as GLUE's test rows, whose labels are not public. Free of torch.

`lib.data.describe` names the rows that a model learns from; here a descriptor names one split to predict, by the digest
of its texts, whether they have labels or not.
"""

from dataclasses import replace

import numpy as np

from lib import data, paths

LEARNED = {
    "AX": "MNLI"
}  # the task whose models predict the rows of another: diagnostic rows have none to learn from


def describe(source, task, split):
    """Descriptor for a Spec: {"source", "task", "split", "digest"}. Raises FileNotFoundError where it is not at hand."""
    return {
        "source": source,
        "task": task,
        "split": split,
        "digest": digest(_split(source, task, split)),
    }


def load(descriptor):
    """The Split that a descriptor names. Raises ValueError where its texts have changed since they were described."""
    name = f"{descriptor['source']}/{descriptor['task']}/{descriptor['split']}"
    split = _split(descriptor["source"], descriptor["task"], descriptor["split"])
    if (found := digest(split)) != descriptor["digest"]:
        raise ValueError(
            f"{name} has digest {found}; this run is of {descriptor['digest']}: put the same file back, or ask "
            "for a new run"
        )
    return split


def digest(split):
    return data.digest({"rows": replace(split, y=split.y[:0], answers=None)})


def labelled(split):
    """Whether every row has a label: -1 stands for none, and nan for no score. Spans always have their answers."""
    return split.answers is not None or bool(
        (split.y >= 0).all() if split.y.dtype.kind == "i" else np.isfinite(split.y).all()
    )


def _split(source, task, split):
    there = data.splits(source, task)
    if split not in there:
        raise FileNotFoundError(
            f"{source}/{task} has no split {split!r}, only {', '.join(there)}: add its file under "
            f"{paths.shown(paths.data_root())}, or leave it out"
        )
    return there[split]
