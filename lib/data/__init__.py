"""One interface to every task: `describe` names its rows, `load` reads them. Free of torch.

A **source** is where rows come from. `toy` generates them here, `own` reads what a reader names
(`lib.data.own`), `lib.data.read` the tasks of `tasks.toml`; official files lie below DATA_ROOT
(FOLDERS). A
**descriptor** is a small dict that goes into a Spec:

    {"source", "task", "digest", "rows", "held_out", "unseen": {"rows", "beside", "digest"}}

Digests are of the parsed rows, so that a folder and the hub give the same ones. Images lie apart,
in `lib.data.digits`.
"""

import hashlib
import importlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from lib.data import unseen as left
from lib.runs import paths
from lib.runs.spec import known


@dataclass(frozen=True)
class Task:
    """What a task is, whatever its source."""

    name: str  # as the benchmark spells it: "CoLA"
    pair: bool  # two texts a row
    labels: tuple  # class names in the order of the official codes; () for a regression
    metrics: tuple  # names in lib.measure.metrics; the first is the one in the papers' tables
    span: bool = False  # the answer is a span of the second text (SQuAD)

    @property
    def outputs(self):
        """Return the width of the model's last layer: classes, one score, or start and end of a
        span."""
        return 2 if self.span else len(self.labels) or 1


@dataclass(frozen=True)
class Split:
    """N rows: texts, targets, and the number of each row in its file, by which predictions are
    matched."""

    a: list
    b: list | None  # the second texts of pairs
    # int64 codes [N], or float32 scores [N], or for spans int64 [N, 2]: the first character of the
    # first answer in `b` and the one after its last, -1 and -1 where there is no answer
    y: np.ndarray
    index: np.ndarray
    answers: list | None = None  # for spans: all accepted texts of each row

    def __len__(self):
        return len(self.a)

    def take(self, rows):
        """Return the Split of these rows."""

        def pick(values):
            return values and [values[i] for i in rows]

        return Split(pick(self.a), pick(self.b), self.y[rows], self.index[rows], pick(self.answers))


# Sources, and the folder below DATA_ROOT that each reads.
FOLDERS = {"toy": None, "own": None, "glue": "glue", "squad": "squad", "senteval": "probing"}
FOLDERS |= {"treebank": "ud_english_ewt"}
CODE = sorted(Path(__file__).parent.glob("*.*"))  # rows depend on it
WEIGHTS = "model.safetensors"
PATTERNS = ("*.json", "*.txt", WEIGHTS)  # the files of a checkpoint
TABLED = ("glue", "squad", "senteval")  # the sources in the table of tasks, which `read` reads


@cache
def source(name):
    """Return the module of a source.

    It has `TASKS` and `load(task, root) -> {split name: Split}`, and where it has official unseen
    rows `UNSEEN` and `unseen(task, root)`. `toy` and `own` take no root. `own` reads its tasks and
    says what `files` they lie in.
    """
    known("data source", name, FOLDERS)
    return importlib.import_module(f"lib.data.{'read' if name in TABLED else name}")


def tasks(name):
    """Return {name: Task} of a source; none of `own`."""
    return source(name).SOURCES[name] if name in TABLED else source(name).TASKS


def folder(name):
    """Return the arguments that say where a source reads."""
    return (paths.data_root() / FOLDERS[name],) if FOLDERS[name] else ()


def task(name, task_name):
    """Return the Task of a source by its name, without a look at its data. Raises ValueError naming
    the nearest one."""
    if name == "own":
        return source(name).task(task_name)
    known(f"task of source {name!r}", task_name, tasks(name))
    return tasks(name)[task_name]


def described(descriptor):
    """Return the Task of a descriptor."""
    return task(descriptor["source"], descriptor["task"])


# ---- what is not at hand ----
_absent, _look = None, True


@contextmanager
def planning(look=True):
    """Specs can be made without data, texts or checkpoints, for a plan alone. Yields the set of
    what is absent. look: where False, what is at hand is not looked at, so that every machine
    makes the same Specs."""
    global _absent, _look
    before, _absent, _look = (_absent, _look), set(), look
    try:
        yield _absent
    finally:
        _absent, _look = before


def official_digests():
    """Return {name: digest of official rows, texts or weights}, so that committed records are found
    without the data."""
    place = paths.DIGESTS
    return _noted(place, place.stat().st_mtime_ns) if place.exists() else {}


@cache
def _noted(path, _):
    return json.loads(path.read_text())


def at_hand_or_official(key, compute):
    """Return `compute()`, a digest. Where its data are not at hand it is the official one of the
    key, or "absent" while planning; else raises FileNotFoundError."""
    told = official_digests().get(key)
    try:
        if not _look:
            raise FileNotFoundError(f"{key} is not looked at")
        return compute()
    except FileNotFoundError:
        if _absent is not None:
            _absent.add(key)
        elif told is None:
            raise
        return told or "absent"


# ---- checkpoints ----
def holding(name, file):
    """Return the folder on this machine of a checkpoint that has such a file; None where there is
    none."""
    roots = paths.models_root(), paths.data_root() / "models"
    return next((root / name for root in roots if (root / name / file).exists()), None)


def locate(name):
    """Return the folder of a checkpoint on this machine. Raises FileNotFoundError naming the ways
    to get it."""
    if folder := holding(name, WEIGHTS):
        return folder
    why = f"no checkpoint {name!r} under {paths.shown(paths.models_root())}"
    fix = f"run `python -m lib fetch {name}`, or put its folder there, with {WEIGHTS}"
    raise FileNotFoundError(f"{why}: {fix}")


@cache
def weights(name):
    """Return sha256 of the weights at hand of a checkpoint; of a reader's folder, of all its
    files."""
    folder = locate(name)
    if not Path(name).is_absolute():
        return paths.digest(folder / WEIGHTS)
    every = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    return paths.sha("".join(path.name + paths.digest(path) for path in every).encode())


def checkpoint_digest(name):
    """Return the digest of a checkpoint's weights at hand, else the official one
    (`data/digests.json`)."""
    return at_hand_or_official(f"models/{name}", lambda: weights(name))


# ---- descriptors ----
@cache
def splits(name, task_name):
    """Return {split name: Split} of a task. Raises FileNotFoundError where its files are absent,
    ValueError with file and line where a row is malformed."""
    return source(name).load(task(name, task_name).name, *folder(name))


def one_split(name, task_name, wanted):
    """Return a split of a task. Raises FileNotFoundError where it is not at hand."""
    there = splits(name, task_name)
    if wanted not in there:
        lacking = f"{name}/{task_name} has no split {wanted!r}, only {', '.join(there)}"
        raise FileNotFoundError(f"{lacking}: add its file under {paths.shown(paths.data_root())}")
    return there[wanted]


def digest(splits, labels=()):
    """Return the first 16 hex digits of the sha256 of the rows of train and the development sets,
    in order.

    Test rows are left out, since some sources label them. labels: the names of the classes, where
    the rows alone decide on them.
    """
    body = hashlib.sha256(json.dumps(labels).encode() if labels else b"")
    for key, split in splits.items():
        if not key.startswith("test"):
            answers = [] if split.answers is None else [split.answers]
            body.update(json.dumps([key, split.a, split.b, split.y.tolist(), *answers]).encode())
    return body.hexdigest()[:16]


def of_rows(name, task_name):
    """Return the digest of a task's rows; a reader's rows decide on the classes."""
    labels = task(name, task_name).labels if name == "own" else ()
    return digest(splits(name, task_name), labels)


@cache
def at_hand(name, task_name):
    """Return (digest, names of the splits) of a task's rows at hand.

    They are remembered on disk until a file of the source or the code of this package changes:
    reading every task takes seconds, and each command asks for most of them.
    """
    if folder(name) and not _look:
        raise FileNotFoundError(f"{name}/{task_name} is not looked at")
    read_from = source(name).files(task_name) if name == "own" else []
    for root in folder(name):
        read_from += sorted(path for path in root.rglob("*") if path.is_file())

    def read():
        return [of_rows(name, task_name), *splits(name, task_name)]

    found, *names = paths.remembered(["rows", name, task_name], [*CODE, *read_from], read)
    return found, names


def digest_of(name, task_name):
    """Return the digest of a task's rows at hand."""
    return at_hand(name, task_name)[0]


def describe(name, task_name, rows=None, held_out=0, unseen=0, beside=0, in_order=False):
    """Return the descriptor of a task for a Spec. Without the data its digests are the official
    ones; a run then stops in `load`.

    rows: training rows, all by default.
    held_out: further training rows, for importance and selection.
    unseen: at most so many labelled rows that are only judged on.
    beside: how many rows, in the order of drawing, any run of the task may train or select on. The
      unseen rows stand behind these. By default `rows` and `held_out` together; 0 for official
      unseen rows. Raises ValueError where it is less than these together, or they are all rows.
    in_order: train on the first rows of the file and hold out its last ones, in place of drawn
      rows.
    """
    key, told = f"{name}/{task_name}", official_digests()
    task(name, task_name)
    found = at_hand_or_official(key, lambda: digest_of(name, task_name))
    body = {"source": name, "task": task_name, "digest": found, "rows": rows}
    body |= {"held_out": held_out or None, "in_order": in_order or None}
    if unseen:
        if beside or task_name not in getattr(source(name), "UNSEEN", ()):
            least = rows and rows + held_out
            beside = beside or least
            if not least or beside < least or in_order:
                given = f"unseen rows of {key} beside {beside}, of which {rows} are trained on"
                fix = "name `rows`, not in order, and `beside` no fewer than `rows` and `held_out`"
                raise ValueError(f"{given} and {held_out} held out: {fix}")
        noted = told.get(f"{key}/{beside}/{unseen}") if found == told.get(key) else None
        if not noted:
            split = unseen_rows(name, task_name, beside, unseen)
            noted = {"rows": len(split), "beside": beside, "digest": digest({"unseen": split})}
        body["unseen"] = noted
    return {k: v for k, v in body.items() if v is not None}


def load(descriptor):
    """Return {split name: Split} of a descriptor: "train", "held_out" and "unseen" as asked for,
    and the official others.

    Rows are drawn in a fixed order from the training set, or taken from its two ends (`in_order`).
    Raises ValueError where the data have changed since they were described, or hold too few rows.
    """
    name, task_name = descriptor["source"], descriptor["task"]
    key, there = f"{name}/{task_name}", dict(splits(name, task_name))
    check(key, of_rows(name, task_name), descriptor["digest"])
    train, held = one_split(name, task_name, "train"), descriptor.get("held_out", 0)
    rows = descriptor.get("rows", len(train) - held)
    if rows + held > len(train):
        asked = f"{rows} training and {held} held-out rows asked of {key}"
        raise ValueError(f"{asked}, which has {len(train)}: ask for fewer")
    in_order = descriptor.get("in_order")
    order = np.arange(len(train)) if in_order else permuted(train)
    first = len(train) - held if in_order else rows
    there["train"] = train.take(np.sort(order[:rows]))
    if held:
        there["held_out"] = train.take(np.sort(order[first : first + held]))
    if told := descriptor.get("unseen"):
        there["unseen"] = unseen_rows(name, task_name, told["beside"], told["rows"])
        check(f"{key}, its unseen rows,", digest({"unseen": there["unseen"]}), told["digest"])
    return there


def check(what, actual, wanted):
    """Raise ValueError where rows at hand have another digest than those that were described."""
    if actual != wanted:
        fix = "put the same data back, or ask for a new run"
        raise ValueError(f"{what} has digest {actual}; this run is of {wanted}: {fix}")


def permuted(split):
    """Return the order in which rows are drawn from a split."""
    return np.random.default_rng(0).permutation(len(split))


# ---- unseen rows ----
@cache
def unseen_rows(name, task_name, beside, count):
    """Return a Split of at most `count` unseen rows: official ones of the source (`beside` 0), or
    training rows behind the first `beside` in the order of drawing. Raises ValueError where there
    are none.
    """
    if not beside:
        split = source(name).unseen(task_name, *folder(name))
        return split.take(np.sort(permuted(split)[:count]))
    train = one_split(name, task_name, "train")
    order = permuted(train)
    chosen = left.apart(train, order[:beside], order[beside:], count)
    if not chosen:
        few = f"every other row of {name}/{task_name} shares text with the {beside} first drawn"
        raise ValueError(f"{few}: take fewer `rows`, or leave `unseen` out")
    return train.take(np.sort(chosen))


def judging(descriptor):
    """Return what predictions for the unseen rows of a descriptor are judged by
    (lib.data.unseen.judged). Of those in `data/unseen/` it needs no data."""
    told = descriptor["unseen"]
    path = paths.UNSEEN / f"{told['digest']}.safetensors"
    if path.exists():
        return load_file(path)
    there = load(descriptor)
    every = one_split(descriptor["source"], descriptor["task"], "train")
    return left.judged(there["unseen"], there["dev"], None if told["beside"] else every)


def packed(labels, scores):
    """Return what a run keeps of its predictions [N, C] for unseen rows of a task of these classes:
    one bit a row for two classes, the class for more; of a regression the scores."""
    if not labels:
        return {"scores": scores[:, 0]}
    said = scores.argmax(1)
    if len(labels) == 2:
        return {"bits": np.packbits(said == 1)}
    return {"classes": said.astype(np.min_scalar_type(len(labels) - 1))}


def unpacked(arrays, count):
    """Return the classes or scores [N] of `count` rows that `packed` kept."""
    [(kind, values)] = arrays.items()
    return np.unpackbits(values.astype(np.uint8), count=count) if kind == "bits" else values
