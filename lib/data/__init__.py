"""One interface to every task: `describe` names it with its digest, `load` reads it. Free of torch.

A **source** is where rows come from: `toy` is generated here from a seed, the others read files in their official
layout below DATA_ROOT, or the hub (see FOLDERS and the source's module). A descriptor is a small dict that goes into a
Spec: `{"source", "task", "digest", "rows", "held_out"}`. The digest is of the parsed rows, so that a folder and the hub
give the same one. Images lie apart, in `lib.data.digits`.
"""

import hashlib
import importlib
import json
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lib import paths


@dataclass(frozen=True)
class Task:
    """What a task is, whatever its source."""
    name: str         # as the benchmark spells it: "CoLA"
    pair: bool        # two sentences a row
    labels: tuple     # class names in the order of the official codes; () for a regression
    metrics: tuple    # names in lib.measure.metrics; the first is the one that the papers' tables show
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
FOLDERS = {"toy": None, "glue": "glue", "squad": "squad", "senteval": "probing", "treebank": "ud_english_ewt"}


def source(name):
    """The module of a source: `TASKS`, `load(task, root) -> {split name: Split}`, and `labels(task, root)` where the
    data decide on the classes. `toy` loads without a root."""
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


def described(descriptor):
    """The Task of a descriptor, with the classes of the data at hand where these decide (WordContent's words)."""
    found = task(descriptor["source"], descriptor["task"])
    labels = getattr(source(descriptor["source"]), "labels", None)
    return replace(found, labels=labels(found.name, *folder(descriptor["source"]))) if labels else found


@cache
def splits(name, task_name):
    """Every split of a task. Raises FileNotFoundError where its files are absent, ValueError with file and line
    where a row is malformed."""
    return source(name).load(task(name, task_name).name, *folder(name))


def describe(name, task_name, rows=None, held_out=0):
    """Descriptor of a task for a Spec: `rows` training rows (all by default), and `held_out` further ones for
    importance and selection.

    Where the data are not at hand, the digest is the one of the official files (`data/digests.json`), so that
    committed records are found; a run then stops in `load`.
    """
    task(name, task_name)
    try:
        found = digest_of(name, task_name)
    except FileNotFoundError:
        found = json.loads(paths.DIGESTS.read_text()).get(f"{name}/{task_name}") if paths.DIGESTS.exists() else None
        if found is None:
            raise
    body = {"source": name, "task": task_name, "digest": found, "rows": rows, "held_out": held_out or None}
    return {k: v for k, v in body.items() if v is not None}


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
    digests = json.loads(paths.DIGESTS.read_text()) if paths.DIGESTS.exists() else {}
    return [key.partition("/")[2] for key in digests if key.startswith(f"{name}/")]


def load(descriptor):
    """The splits that a descriptor names: "train", "held_out" where asked for, and the official ones beside them.

    Rows are drawn from a fixed permutation of the training set. Raises ValueError where the data have changed since
    they were described, or hold too few rows.
    """
    name, task_name = descriptor["source"], descriptor["task"]
    there = dict(splits(name, task_name))
    found = digest_of(name, task_name)
    if found != descriptor["digest"]:
        raise ValueError(f"{name}/{task_name} has digest {found}; this run is of {descriptor['digest']}: put the same "
                         "data back, or ask for a new run")
    if "train" not in there:
        raise FileNotFoundError(f"{name}/{task_name} has no training file under {paths.shown(paths.data_root())}: add it, "
                                "or choose another task")
    train, held = there["train"], descriptor.get("held_out", 0)
    rows = descriptor.get("rows", len(train) - held)
    if rows + held > len(train):
        raise ValueError(f"{rows} training and {held} held-out rows asked of {name}/{task_name}, which has {len(train)}")
    chosen = np.random.default_rng(0).permutation(len(train))
    there["train"] = train.take(np.sort(chosen[:rows]))
    if held:
        there["held_out"] = train.take(np.sort(chosen[rows:rows + held]))
    return there
