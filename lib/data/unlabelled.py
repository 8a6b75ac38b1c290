"""Rows to predict: one split of a task, such as GLUE's test rows, whose labels are not public.

`lib.data.describe` names the rows that a model learns from. Here a descriptor names one split to
predict, by the digest of its texts, whether they have labels or not. Free of torch.
"""

from dataclasses import replace

import numpy as np

from lib import data

# The task whose models predict the rows of another: diagnostic rows have none to learn from.
LEARNED = {"AX": "MNLI"}


def describe(source, task, split):
    """Descriptor for a Spec: {"source", "task", "split", "digest"}. Raises FileNotFoundError where
    the split is not at hand."""
    found = data.remembered(
        ["split", split], source, task, lambda: digest(data.one_split(source, task, split))
    )
    return {"source": source, "task": task, "split": split, "digest": found}


def load(descriptor):
    """The Split that a descriptor names. Raises ValueError where its texts have changed since they
    were described."""
    name = [descriptor[key] for key in ("source", "task", "split")]
    split = data.one_split(*name)
    data.check("/".join(name), digest(split), descriptor["digest"])
    return split


def digest(split):
    return data.digest({"rows": replace(split, y=split.y[:0], answers=None)})


def labelled(split):
    """Whether every row has a label: -1 stands for none, and nan for no score. Spans always have
    their answers."""
    if split.answers is not None:
        return True
    return bool((split.y >= 0).all() if split.y.dtype.kind == "i" else np.isfinite(split.y).all())
