"""One interface to every task: `describe` names it with its digest, `load` reads it. Free of torch.

A **source** is where rows come from: `toy` is generated here from a seed, the others read files in their official
layout below DATA_ROOT, or the hub (see FOLDERS and the source's module). A descriptor is a small dict that goes into a
Spec: `{"source", "task", "digest", "rows", "held_out", "unseen": {"rows", "beside", "digest"}}`. The digests are of the parsed
rows, so that a folder and the hub give the same ones. Images lie apart, in `lib.data.digits`.
"""

import hashlib
import importlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from safetensors.numpy import load_file, save_file

from lib import paths
from lib.data import unseen as left


@dataclass(frozen=True)
class Task:
    """What a task is, whatever its source."""

    name: str  # as the benchmark spells it: "CoLA"
    pair: bool  # two sentences a row
    labels: tuple  # class names in the order of the official codes; () for a regression
    metrics: (
        tuple  # names in lib.measure.metrics; the first is the one that the papers' tables show
    )
    span: bool = False  # the answer is a span of the second text (SQuAD)

    @property
    def outputs(self):
        """Width of the model's last layer: classes, one score, or start and end of a span."""
        return 2 if self.span else len(self.labels) or 1


@dataclass(frozen=True)
class Split:
    """N rows: texts `a` (and `b`, for pairs), targets `y` and each row's number `index` in its file, by which
    predictions are matched.

    y: int64 codes [N]; float32 scores [N] for a regression; for spans int64 [N, 2], the first answer's first
    character in `b` and the one after its last, -1 and -1 where there is none, with all accepted texts in `answers`.
    """

    a: list
    b: list | None
    y: np.ndarray
    index: np.ndarray
    answers: list | None = None

    def __len__(self):
        return len(self.a)

    def take(self, rows):
        def pick(values):
            return values and [values[i] for i in rows]

        return Split(pick(self.a), pick(self.b), self.y[rows], self.index[rows], pick(self.answers))


# Sources, modules of their own here, and the folder below DATA_ROOT that each reads.
FOLDERS = {
    "toy": None,
    "glue": "glue",
    "squad": "squad",
    "senteval": "probing",
    "treebank": "ud_english_ewt",
}


def source(name):
    """The module of a source: `TASKS`, `load(task, root) -> {split name: Split}`, `labels(task, root)` where the data decide
    on the classes, and `unseen(task, root)` where there are official rows for it. `toy` loads without a root."""
    from lib.spec import known

    known("data source", name, FOLDERS)
    return importlib.import_module(f"lib.data.{name}")


def folder(name):
    """The arguments that say where a source reads."""
    return (paths.data_root() / FOLDERS[name],) if FOLDERS[name] else ()


def task(name, task_name):
    """The Task of a source by its name, without a look at its data. Raises ValueError naming the nearest task."""
    from lib.spec import known

    tasks = source(name).TASKS
    known(f"task of source {name!r}", task_name, tasks)
    return tasks[task_name]


_absent = None


@contextmanager
def planning():
    """Specs can be made where data, texts or checkpoints are not at hand, for a plan alone. Yields the set of their names."""
    global _absent
    _absent = set()
    try:
        yield _absent
    finally:
        _absent = None


def lacking(name, known=None):
    """The digest of something that is not at hand: `known`, the official one, or while a plan is made a word in its place."""
    if _absent is None:
        return known
    _absent.add(name)
    return known or "absent"


def described(descriptor):
    """The Task of a descriptor, with the classes of the data at hand where these decide (WordContent's words)."""
    found = task(descriptor["source"], descriptor["task"])
    labels = getattr(source(descriptor["source"]), "labels", None)
    return (
        replace(found, labels=labels(found.name, *folder(descriptor["source"])))
        if labels
        else found
    )


@cache
def splits(name, task_name):
    """Every split of a task. Raises FileNotFoundError where its files are absent, ValueError with file and line
    where a row is malformed."""
    return source(name).load(task(name, task_name).name, *folder(name))


def describe(name, task_name, rows=None, held_out=0, unseen=0, beside=0, in_order=False):
    """Descriptor of a task for a Spec: `rows` training rows (all by default), `held_out` further ones for importance and
    selection, and at most `unseen` labelled rows that are only judged on. `beside`: how many rows, in the order in which
    they are drawn, any run of the task may train or select on; by default those of this descriptor. in_order: the first
    rows of the file to train on and its last ones held out, in place of drawn ones.

    Where the data are not at hand, the digests are those of the official files (`data/digests.json`), so that committed
    records are found; a run then stops in `load`.
    """
    task(name, task_name)
    known = official_digests()
    try:
        found = digest_of(name, task_name)
    except FileNotFoundError:
        found = lacking(f"{name}/{task_name}", known.get(f"{name}/{task_name}"))
        if found is None:
            raise
    body = {
        "source": name,
        "task": task_name,
        "digest": found,
        "rows": rows,
        "held_out": held_out or None,
        "in_order": in_order or None,
    }
    if unseen:
        if in_order:
            raise ValueError(
                f"unseen rows of {name}/{task_name} are drawn, rows in_order are not: leave one of them out"
            )
        beside = reserved(name, task_name, rows, held_out, beside)
        told = (
            known.get(f"{name}/{task_name}/{beside}/{unseen}")
            if found == known.get(f"{name}/{task_name}")
            else None
        )
        body["unseen"] = told or summary(name, task_name, beside, unseen)
    return {k: v for k, v in body.items() if v is not None}


def official_digests():
    return json.loads(paths.DIGESTS.read_text()) if paths.DIGESTS.exists() else {}


def reserved(name, task_name, rows, held_out, beside=0):
    """How many rows of the training set the unseen ones stand beside; 0 for a task with official unseen rows, unless it is
    said that they are to be training rows. Raises ValueError where it is not clear, or fewer than are trained and selected on."""
    if task(name, task_name).span:
        raise ValueError(
            f"{task_name} has spans: unseen rows are for tasks with classes or scores; leave `unseen` out"
        )
    if not beside and task_name in getattr(source(name), "UNSEEN", ()):
        return 0
    if not rows or 0 < beside < rows + held_out:
        raise ValueError(
            f"unseen rows of {name}/{task_name} beside {beside or 'none'} of its training rows, of which "
            f"{rows or 'all'} are trained on and {held_out} held out: say how many `rows`, and let `beside` be no fewer "
            "than these together"
        )
    return beside or rows + held_out


@cache
def unseen_rows(name, task_name, beside, count):
    """(Split, cluster of each row [N]) of at most `count` unseen rows. Official ones of the source are each a cluster; the
    others are training rows behind the first `beside` in the order in which they are drawn. Raises ValueError where there
    are none."""
    if not beside:
        split = source(name).unseen(task_name, *folder(name))
        chosen = split.take(np.sort(permuted(split)[:count]))
        return chosen, np.arange(len(chosen))
    train = splits(name, task_name)["train"]
    order = permuted(train)
    chosen = left.apart(train, order[:beside], order[beside:], count)
    if not chosen:
        raise ValueError(
            f"no row of {name}/{task_name} is left that shares no text with {beside} of its {len(train)} training rows: "
            "take fewer `rows`, or leave `unseen` out"
        )
    chosen = train.take(np.sort(chosen))
    return chosen, left.clusters(chosen)


def summary(name, task_name, beside, count):
    """What a descriptor says of unseen rows."""
    split, _ = unseen_rows(name, task_name, beside, count)
    return {"rows": len(split), "beside": beside, "digest": digest({"unseen": split})}


def permuted(split):
    """The order in which rows are drawn from a split."""
    return np.random.default_rng(0).permutation(len(split))


def judging(descriptor):
    """{"labels" [N], "cluster" [N]} of the unseen rows of a descriptor: what predictions for them are judged by. Those of
    `data/unseen/` need no data."""
    told = descriptor["unseen"]
    path = paths.UNSEEN / f"{told['digest']}.safetensors"
    if path.exists():
        return load_file(path)
    split = load(descriptor)["unseen"]
    return {
        "labels": split.y,
        "cluster": unseen_rows(
            descriptor["source"], descriptor["task"], told["beside"], told["rows"]
        )[1],
    }


def publish(name, task_name, unseen, beside=0):
    """Note unseen rows, so that descriptors are found and runs judged without the data: their digest in
    `data/digests.json`, labels and clusters in `data/unseen/`. Returns what a descriptor says of them."""
    told, (split, cluster) = (
        summary(name, task_name, beside, unseen),
        unseen_rows(name, task_name, beside, unseen),
    )
    small = {"labels": split.y, "cluster": cluster}
    small = {
        key: v.astype(np.min_scalar_type(v.max())) if v.dtype.kind == "i" else v
        for key, v in small.items()
    }
    paths.UNSEEN.mkdir(parents=True, exist_ok=True)
    save_file(small, paths.UNSEEN / f"{told['digest']}.safetensors")
    digests = official_digests() | {f"{name}/{task_name}/{beside}/{unseen}": told}
    paths.DIGESTS.write_text(json.dumps(dict(sorted(digests.items())), indent=1) + "\n")
    return told


def digest(splits):
    """First 16 hex digits of the sha256 of the parsed rows of train and the development sets, in order. Test rows are
    left out: some sources label them."""
    body = hashlib.sha256()
    for key, split in splits.items():
        if not key.startswith("test"):
            answers = [] if split.answers is None else [split.answers]
            body.update(json.dumps([key, split.a, split.b, split.y.tolist(), *answers]).encode())
    return body.hexdigest()[:16]


@cache
def digest_of(name, task_name):
    """Digest of a task's rows at hand."""
    return digest(splits(name, task_name))


def official(name):
    """Tasks of a source whose official rows are known by their digest."""
    return [
        key.split("/")[1]
        for key in official_digests()
        if key.startswith(f"{name}/") and key.count("/") == 1
    ]


def load(descriptor):
    """The splits that a descriptor names: "train", "held_out" and "unseen" where asked for, and the official ones beside them.

    Rows are drawn from a fixed permutation of the training set, or taken from its two ends.
    Raises ValueError where the data have changed since they were described, or hold too few rows.
    """
    name, task_name = descriptor["source"], descriptor["task"]
    there = dict(splits(name, task_name))
    found = digest_of(name, task_name)
    if found != descriptor["digest"]:
        raise ValueError(_changed(f"{name}/{task_name}", found, descriptor["digest"]))
    if "train" not in there:
        raise FileNotFoundError(
            f"{name}/{task_name} has no training file under {paths.shown(paths.data_root())}: add it, "
            "or choose another task"
        )
    train, held = there["train"], descriptor.get("held_out", 0)
    rows = descriptor.get("rows", len(train) - held)
    if rows + held > len(train):
        raise ValueError(
            f"{rows} training and {held} held-out rows asked of {name}/{task_name}, which has {len(train)}"
        )
    order, first = (
        (np.arange(len(train)), len(train) - held)
        if descriptor.get("in_order")
        else (permuted(train), rows)
    )
    there["train"] = train.take(np.sort(order[:rows]))
    if held:
        there["held_out"] = train.take(np.sort(order[first : first + held]))
    if told := descriptor.get("unseen"):
        there["unseen"], _ = unseen_rows(name, task_name, told["beside"], told["rows"])
        if (found := digest({"unseen": there["unseen"]})) != told["digest"]:
            raise ValueError(
                _changed(f"{name}/{task_name}, its unseen rows,", found, told["digest"])
            )
    return there


def _changed(what, found, wanted):
    return f"{what} has digest {found}; this run is of {wanted}: put the same data back, or ask for a new run"
