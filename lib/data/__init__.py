"""This package reads the rows of every task through one interface: `describe_task_rows`
names them in a Spec, `load` reads them. It does not import torch.

A **source** is where rows come from. The source `toy` generates them, `own` reads the
files of a user (`lib.data.own`), and `lib.data.read` reads the tasks of the table
`tasks.toml`. Official files lie below DATA_ROOT, in the folders of FOLDERS. A
**descriptor** is a small dict in a Spec:

    {"source", "task", "digest", "rows", "held_out", "unseen": {"rows", "beside",
    "digest"}}

With "drawn": {"rows", "digest"} each seed draws its own training and held-out rows from
a pool of "rows" rows with this digest, so all seeds of a Spec have one descriptor.

Digests are computed from the parsed rows, so a local file and a download from the hub
have the same digest. Images are read by `lib.papers.nas_pruning.digits`."""

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from lib.core import disk, paths
from lib.core.names import Absent, Refused, check_name, derive_seed
from lib.core.types import Arrays, Json
from lib.data import unseen as left


@dataclass(frozen=True)
class Task:
    """A Task says what a row has and how predictions are scored.

    name: the name as the benchmark spells it, such as "CoLA".
    pair: whether a row has two texts.
    labels: the class names in the order of the official codes; () for a regression.
    metrics: names of metrics of lib.stats.metrics. Papers' tables show the first one.
    span: whether the answer is a span of the second text, as in SQuAD.
    scale: for a regression, the scores in a user's file that become 0 and 5."""

    name: str
    pair: bool
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    span: bool = False
    scale: tuple[float, float] = (0.0, 5.0)

    @property
    def output_width(self) -> int:
        """Return the width of the model's last layer: one output for each class, one
        for a score, two for the start and the end of a span."""
        return 2 if self.span else len(self.labels) or 1


@dataclass(frozen=True, eq=False)
class Split:
    """A Split has N rows of a task. It is compared by identity, so that functions of it
    can be cached.

    a: the first text of each row.
    b: the second text of each row; None where a row has one text.
    y: class codes, int64 [N], or scores, float32 [N]. For spans int64 [N, 2]: start and
    end (exclusive) of the first answer in `b`, in characters; -1 and -1 where there is
    no answer.
    index: the number of each row in its source, int64 [N], by which predictions of two
    runs are matched.
    answers: for spans, all accepted texts of each row."""

    a: list[str]
    b: list[str] | None
    y: np.ndarray
    index: np.ndarray
    answers: list[list[str]] | None = None

    def __len__(self) -> int:
        return len(self.a)

    def select_rows(self, rows: Sequence[int] | np.ndarray) -> "Split":
        """Return the Split of the rows at the positions `rows`, in their order."""

        def select_values(values: list[Any] | None) -> Any:
            return values and [values[i] for i in rows]

        return Split(
            select_values(self.a),
            select_values(self.b),
            self.y[rows],
            self.index[rows],
            select_values(self.answers),
        )


# {source: its folder below DATA_ROOT, or None}.
FOLDERS = {
    "toy": None,
    "own": None,
    "glue": "glue",
    "squad": "squad",
    "senteval": "probing",
    "treebank": "ud_english_ewt",
}
# Files of this package. When one changes, cached digests of rows are computed again.
CODE = sorted(Path(__file__).parent.glob("*.*"))
WEIGHTS = "model.safetensors"
# Patterns of the files of a checkpoint.
PATTERNS = ("*.json", "*.txt", WEIGHTS)
# Sources whose tasks are listed in `tasks.toml`, and read by `lib.data.read`.
TABLED = ("glue", "squad", "senteval")


@cache
def import_source(source_name: str) -> ModuleType:
    """Return the module that reads a source. Raises Refused for an unknown name.

    The module has `load(task, root) -> {split name: Split}` and a dict of its tasks. A
    source with official unseen rows has `UNSEEN` and `unseen(task, root)` too. `toy`
    and `own` take no root. `own` has no fixed tasks: it has `task(name)` and
    `files(name)`."""
    check_name("data source", source_name, FOLDERS)
    return importlib.import_module(
        f"lib.data.{'read' if source_name in TABLED else source_name}"
    )


def list_tasks(source_name: str) -> dict[str, Task]:
    """Return {name: Task} of a source other than `own`."""
    return (
        import_source(source_name).SOURCES[source_name]
        if source_name in TABLED
        else import_source(source_name).TASKS
    )


def find_source_folder(source_name: str) -> tuple[Path, ...]:
    """Return (folder of a source,), or () for a source without a folder."""
    subfolder = FOLDERS[source_name]
    return (paths.data_root() / subfolder,) if subfolder else ()


def has_source_folder(source_name: str) -> bool:
    """Return whether the folder of a source exists, or the source has none."""
    folders = find_source_folder(source_name)
    return not folders or folders[0].is_dir()


def task(source_name: str, task_name: str) -> Task:
    """Return the Task of a source by name. Raises Refused, with the most similar name,
    for an unknown one.

    source_name: the source. Only the source `own` opens files for this."""
    if source_name == "own":
        return import_source(source_name).task(task_name)
    check_name(f"task of source {source_name!r}", task_name, list_tasks(source_name))
    return list_tasks(source_name)[task_name]


def find_described_task(data_descriptor: Json) -> Task:
    """Return the Task that a descriptor names."""
    return task(data_descriptor["source"], data_descriptor["task"])


_absent: set[str] | None = None
_look = True


@contextmanager
def allow_absent_data(use_local_data: bool = True) -> Iterator[set[str]]:
    """Allow Specs of missing data, texts or checkpoints, for a plan. Yields the set of
    their keys, which fills up.

    use_local_data: whether local data are used. Without them every machine makes the
    same Specs."""
    global _absent, _look
    before, _absent, _look = (_absent, _look), set(), use_local_data
    try:
        yield _absent
    finally:
        _absent, _look = before


def read_official_digests() -> Json:
    """Return {key: digest} of official rows, texts and weights (`data/digests.json`).

    With them, records are found on a machine that lacks the data."""
    if not os.path.lexists(paths.DIGESTS):
        return {}
    return read_digests(*disk.read_file_stamp(paths.DIGESTS))


@cache
def read_digests(path: str, *_: int) -> Json:
    """Return the digests in a file, cached by its `read_file_stamp`, as grids call this
    often."""
    return disk.read_json(path, "take it from git")


def digest_local_or_official(
    data_name: str,
    digest_local: Callable[[], str],
    has_local_folder: Callable[[], bool] = lambda: True,
) -> str:
    """Return the digest of local data, or the official digest where they are missing.

    Where there is no official digest either, it returns "absent" inside of
    `allow_absent_data`, and else raises FileNotFoundError.

    data_name: the name of the data in `data/digests.json`, such as "glue/CoLA".
    digest_local: function that returns the digest of the local data.
    has_local_folder: function that returns whether the folder of the data exists;
    without it, data with an official digest are not looked for."""
    official = read_official_digests().get(data_name)
    try:
        if not _look or (official and not has_local_folder()):
            raise FileNotFoundError(f"{data_name} is not looked at")
        return digest_local()
    except FileNotFoundError:
        if _absent is not None:
            _absent.add(data_name)
        elif official is None:
            raise
        return official or "absent"


def find_checkpoint(checkpoint_name: str, file_name: str) -> Path | None:
    """Return the local folder of a checkpoint that has a file `file_name`, or None."""
    roots = paths.models_root(), paths.data_root() / "models"
    return next(
        (
            root / checkpoint_name
            for root in roots
            if (root / checkpoint_name / file_name).exists()
        ),
        None,
    )


def locate_checkpoint(checkpoint_name: str) -> Path:
    """Return the local folder of a checkpoint. Raises Absent, with ways to get it,
    where it is missing."""
    if folder := find_checkpoint(checkpoint_name, WEIGHTS):
        return folder
    why = f"no checkpoint {checkpoint_name!r} under {paths.show_path(paths.models_root())}"
    fix = f"run `python -m lib fetch {checkpoint_name}`, or put its folder there, with {WEIGHTS}"
    raise Absent(f"{why}: {fix}")


def digest_weights(checkpoint_name: str) -> str:
    """Return the SHA-256 digest of a local checkpoint. Raises Absent where it is
    missing.

    It is the digest of the weights; for a user's folder, named by its full path, it is
    one of all files."""
    folder = locate_checkpoint(checkpoint_name)
    if not Path(checkpoint_name).is_absolute():
        return disk.digest_file(folder / WEIGHTS)
    files = sorted(list_checkpoint_files(folder))
    return disk.digest_bytes(
        "".join(path.name + disk.digest_file(path) for path in files).encode()
    )


def list_checkpoint_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint (PATTERNS), without hidden ones."""
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    return [path for path in files if path.name[0] != "."]


def digest_checkpoint(checkpoint_name: str) -> str:
    """Return the digest of a local checkpoint, or the official digest where it is
    missing."""
    return digest_local_or_official(
        f"models/{checkpoint_name}",
        lambda: digest_weights(checkpoint_name),
        lambda: find_checkpoint(checkpoint_name, WEIGHTS) is not None,
    )


def read_splits(source_name: str, task_name: str) -> dict[str, Split]:
    """Return {split name: Split} of a task.

    Official rows are read once in a process. Files of the source `own` are read again
    when they change, because a user may edit them while a notebook's kernel runs.

    Raises Absent where files are missing, and Refused with file and line where a row is
    malformed."""
    if source_name == "own":
        return import_source(source_name).load(task_name)
    return read_splits_once(source_name, task_name)


@cache
def read_splits_once(source_name: str, task_name: str) -> dict[str, Split]:
    """Return `read_splits` of a source other than `own`, cached in this process."""
    return import_source(source_name).load(
        task(source_name, task_name).name, *find_source_folder(source_name)
    )


def read_split(source_name: str, task_name: str, split_name: str) -> Split:
    """Return one split of a task by name. Raises Absent where it is missing."""
    task_splits = read_splits(source_name, task_name)
    if split_name not in task_splits:
        names = ", ".join(task_splits)
        lacking = f"{source_name}/{task_name} has no split {split_name!r}, only {names}"
        raise Absent(
            f"{lacking}: add its file under {paths.show_path(paths.data_root())}"
        )
    return task_splits[split_name]


def digest_splits(
    splits: dict[str, Split], labels: tuple[str, ...] | tuple[float, float] = ()
) -> str:
    """Return the digest of the rows of several splits: 16 hex digits of a SHA-256.

    Test splits are left out, since only some copies of a data set have them.

    labels: class names or scale of the scores, which the rows of a user's file decide
    and which are then part of the digest."""
    body = hashlib.sha256(json.dumps(labels).encode() if labels else b"")
    for key, split in splits.items():
        if not key.startswith("test"):
            answers = [] if split.answers is None else [split.answers]
            body.update(
                json.dumps([key, split.a, split.b, split.y.tolist(), *answers]).encode()
            )
    return body.hexdigest()[:16]


def digest_task_rows(source_name: str, task_name: str) -> str:
    """Return the digest of a task's rows; for a user's file, class names or scale of
    the scores are part of it."""
    labels = ()
    if source_name == "own":
        user_task = task(source_name, task_name)
        labels = user_task.labels or user_task.scale
    return digest_splits(read_splits(source_name, task_name), labels)


def digest_local_rows(source_name: str, task_name: str) -> tuple[str, list[str]]:
    """Return (digest, names of the splits) of a task's local rows. Raises Absent where
    they are missing.

    The result is cached, as grids call this often: for official rows once in a process,
    for a user's files until they change."""
    user_files = (
        import_source(source_name).files(task_name) if source_name == "own" else ()
    )
    return digest_rows_once(
        source_name, task_name, *((str(f), disk.digest_file(f)) for f in user_files)
    )


@cache
def digest_rows_once(
    source_name: str, task_name: str, *files_with_digests: tuple[str, str]
) -> tuple[str, list[str]]:
    """Return `digest_local_rows`, cached in this process and on disk.

    The cache on disk is valid until a file of the source or of this package changes:
    reading every task takes seconds, and each command needs most of them.

    files_with_digests: (path, digest) of each file of a user."""
    files = [Path(path) for path, _ in files_with_digests]
    for root in find_source_folder(source_name):
        files += [path for path in sorted(root.rglob("*")) if path.is_file()]

    def digest_rows() -> list[str]:
        return [
            digest_task_rows(source_name, task_name),
            *read_splits(source_name, task_name),
        ]

    note = ["rows", source_name, task_name, *files_with_digests]
    rows_digest, *names = disk.cache_on_disk(note, [*CODE, *files], digest_rows)
    return rows_digest, names


def describe_task_rows(
    source_name: str,
    task_name: str,
    rows: int | None = None,
    held_out: int = 0,
    unseen: int = 0,
    beside: int = 0,
    in_order: bool = False,
    words: int = 0,
    drawn: bool = False,
) -> Json:
    """Return the descriptor of a task for a Spec.

    Where the data are missing, it has the official digests, and a run fails in `load`.

    rows: the number of training rows; None takes all.
    held_out: the number of further training rows, for importance and selection.
    unseen: the largest number of unseen rows: labelled rows on which models are scored,
    but never trained or selected.
    beside: the number of rows, first in the random order of drawing, on which any run
    of the task may train or select. Unseen rows are drawn after these. The default is
    `rows` + `held_out`, or 0 where the source has official unseen rows.
    in_order: whether to train on the first rows of the file and to hold out its last
    ones, instead of random rows.
    words: the least number of words of an unseen row that is taken from training rows.
    drawn: whether each seed draws its own training rows. Unseen rows are then fixed
    first, and the pool to draw from is all training rows that share no text with them.

    Raises Refused where there are too few rows, where `drawn` and `in_order` are both
    given, and for unseen rows from the training rows where `rows` is None, `in_order`
    is given, or `beside` is less than `rows` + `held_out`."""
    key, digests = f"{source_name}/{task_name}", read_official_digests()
    task(source_name, task_name)
    rows_digest = digest_local_or_official(
        key,
        lambda: digest_local_rows(source_name, task_name)[0],
        lambda: has_source_folder(source_name),
    )
    noted = digests if rows_digest == digests.get(key) else {}
    body: Json = {
        "source": source_name,
        "task": task_name,
        "digest": rows_digest,
        "rows": rows,
        "held_out": held_out or None,
        "in_order": in_order or None,
    }
    if drawn and in_order:
        raise Refused(f"rows of {key} are drawn or in order, not both: leave one out")
    if unseen:
        if beside or task_name not in getattr(import_source(source_name), "UNSEEN", ()):
            least = rows and rows + held_out
            first = beside or least
            if not first or in_order or not (drawn or least and first >= least):
                given = f"unseen rows of {key} beside {first}, of which {rows} are trained on"
                fix = "name `rows`, not in order, and `beside` no fewer than `rows` and `held_out`"
                raise Refused(f"{given} and {held_out} held out: {fix}")
            beside = first
        entry: Json = {"beside": beside, "rows": unseen}
        if words:
            entry["words"] = words
        body["unseen"] = noted.get("/".join(map(str, [key, *entry.values()])))
        if not body["unseen"]:
            split = read_unseen_rows(source_name, task_name, entry)
            entry |= {"rows": len(split), "digest": digest_splits({"unseen": split})}
            body["unseen"] = entry
    if drawn:
        drawn_entry: Json | None = noted.get(make_pool_key(body))
        if not drawn_entry:
            split = read_pool(body)
            drawn_entry = {"rows": len(split), "digest": digest_splits({"pool": split})}
        body["drawn"] = drawn_entry
        check_enough_rows(
            key, drawn_entry["rows"], rows or 0, held_out, " rows to draw from"
        )
    return {k: v for k, v in body.items() if v is not None}


def check_enough_rows(
    data_name: str, available: int, rows: int, held_out: int, noun: str = ""
) -> None:
    """Raise Refused where fewer rows are `available` than `rows` + `held_out`.

    noun: words for the message that name the available rows."""
    if rows + held_out > available:
        asked = f"{rows} training and {held_out} held-out rows asked of {data_name}"
        raise Refused(f"{asked}, which has {available}{noun}: ask for fewer")


def load(descriptor: Json, seed: int | None = None) -> dict[str, Split]:
    """Return {split name: Split} of a descriptor: "train", "held_out" and "unseen" as
    described, and the other splits of the source.

    Training and held-out rows are the first rows of a fixed random order, or with
    `in_order` the first and last rows of the file. Raises Refused where the data have
    changed since they were described or have too few rows, and for "drawn" rows without
    a seed.

    seed: the seed of the run, which decides the order of "drawn" rows. Runs of one seed
    have the same training rows, also if they hold out more or fewer rows."""
    name, task_name = descriptor["source"], descriptor["task"]
    key, task_splits = f"{name}/{task_name}", dict(read_splits(name, task_name))
    check_digest(key, digest_task_rows(name, task_name), descriptor["digest"])
    train, held = read_split(name, task_name, "train"), descriptor.get("held_out", 0)
    if drawn_entry := descriptor.get("drawn"):
        if seed is None:
            raise Refused(
                f"the rows of {key} are drawn by a seed: give `load` that of the run"
            )
        train, what = read_pool(descriptor), f"{key}, the rows to draw from,"
        check_digest(what, digest_splits({"pool": train}), drawn_entry["digest"])
    rows = descriptor.get("rows", len(train) - held)
    check_enough_rows(key, len(train), rows, held)
    order, first = permute_row_numbers(train), rows
    if drawn_entry:
        assert seed is not None
        order = np.random.default_rng(derive_seed(seed, "rows")).permutation(len(train))
    elif descriptor.get("in_order"):
        order, first = np.arange(len(train)), len(train) - held
    task_splits["train"] = train.select_rows(np.sort(order[:rows]))
    if held:
        task_splits["held_out"] = train.select_rows(
            np.sort(order[first : first + held])
        )
    if "unseen" in descriptor:
        task_splits["unseen"] = load_unseen(descriptor)
    return task_splits


def check_digest(data_name: str, actual_digest: str, expected_digest: str) -> None:
    """Raise Refused where the digest of local data differs from that of a Spec.

    data_name: the name of the data for the message.
    actual_digest, expected_digest: the digest of the local data, and that of the
    Spec."""
    if actual_digest != expected_digest:
        fix = "put the same data back, or ask for a new run"
        raise Refused(
            f"{data_name} has digest {actual_digest}; this run is of {expected_digest}: {fix}"
        )


def permute_row_numbers(split: Split) -> np.ndarray:
    """Return the fixed random order in which rows are drawn from a split: a permutation
    [N]."""
    return np.random.default_rng(0).permutation(len(split))


@cache
def find_unseen_rows(
    train: Split, first_rows: int, max_unseen: int, min_words: int
) -> list[int]:
    """Return the positions of at most `max_unseen` unseen rows in the training set.

    They come after the first `first_rows` rows of `permute_row_numbers`, share no text
    with these, and have at least `min_words` words."""
    order = permute_row_numbers(train)
    behind = order[first_rows:]
    if min_words:
        behind = behind[left.count_words(train)[behind] >= min_words]
    return left.select_rows_without_shared_text(
        train, order[:first_rows], behind, max_unseen
    )


def read_unseen_rows(source_name: str, task_name: str, unseen_entry: Json) -> Split:
    """Return a Split of unseen rows.

    Raises Refused where there are none.

    unseen_entry: {"beside", "rows", "words"} of a descriptor. With "beside" 0 they are
    the official unseen rows of the source, and else training rows
    (`find_unseen_rows`)."""
    beside, count = unseen_entry["beside"], unseen_entry["rows"]
    if not beside:
        split = import_source(source_name).unseen(
            task_name, *find_source_folder(source_name)
        )
        return split.select_rows(np.sort(permute_row_numbers(split)[:count]))
    train = read_split(source_name, task_name, "train")
    chosen = find_unseen_rows(train, beside, count, unseen_entry.get("words", 0))
    if not chosen:
        key = f"{source_name}/{task_name}"
        few = f"every other row of {key} shares text with the {beside} first drawn"
        raise Refused(f"{few}: take fewer `rows`, or leave `unseen` out")
    return train.select_rows(np.sort(chosen))


def load_unseen(descriptor: Json) -> Split:
    """Return the unseen rows of a descriptor. Raises Refused where their digest has
    changed."""
    name, task_name = descriptor["source"], descriptor["task"]
    split = read_unseen_rows(name, task_name, descriptor["unseen"])
    what = f"{name}/{task_name}, its unseen rows,"
    check_digest(what, digest_splits({"unseen": split}), descriptor["unseen"]["digest"])
    return split


def make_pool_key(descriptor: Json) -> str:
    """Return the key of a descriptor's pool in `data/digests.json`.

    The pool depends on unseen rows that come from the training rows, so the key has
    their digest."""
    unseen_entry = descriptor.get("unseen") or {}
    rest = [unseen_entry["digest"]] if unseen_entry.get("beside") else []
    return "/".join([descriptor["source"], descriptor["task"], "pool", *rest])


def read_pool(descriptor: Json) -> Split:
    """Return the training rows from which each seed draws its own, in the order of the
    file.

    Where unseen rows come from the training rows, the pool has all rows that share no
    text with them. With official unseen rows it has all rows, since unseen rows that
    share a text with a training row do not count in scores."""
    train = read_split(descriptor["source"], descriptor["task"], "train")
    entry = descriptor.get("unseen") or {}
    if not entry.get("beside"):
        return train
    return select_pool(train, entry["beside"], entry["rows"], entry.get("words", 0))


@cache
def select_pool(
    train: Split, first_rows: int, max_unseen: int, min_words: int
) -> Split:
    """Return the training rows that share no text with the unseen rows of
    `find_unseen_rows`, whose arguments it has."""
    taken = find_unseen_rows(train, first_rows, max_unseen, min_words)
    rest = np.setdiff1d(np.arange(len(train)), taken)
    return train.select_rows(
        np.array(
            left.select_rows_without_shared_text(train, taken, rest, len(train)), int
        )
    )


def read_judging_arrays(descriptor: Json) -> Arrays:
    """Return the arrays by which predictions for the unseen rows of a descriptor are
    scored (lib.data.unseen.make_judging_arrays).

    They are read from `data/unseen/` if it has a file of these rows, and then the data
    set is not needed."""
    name, task_name = descriptor["source"], descriptor["task"]
    unseen_entry = descriptor["unseen"]
    path = paths.UNSEEN / f"{unseen_entry['digest']}.safetensors"
    if path.exists():
        return load_file(path)
    check_digest(
        f"{name}/{task_name}", digest_task_rows(name, task_name), descriptor["digest"]
    )
    every = None if unseen_entry["beside"] else read_split(name, task_name, "train")
    return left.make_judging_arrays(
        load_unseen(descriptor), read_split(name, task_name, "dev"), every
    )


def pack_predictions(labels: tuple[str, ...], scores: np.ndarray) -> Arrays:
    """Return predictions for N unseen rows as one small array, which a run saves.

    Two classes take one bit for each row, more are class codes; scores of a regression
    are not changed.

    labels: the names of the C classes; () for a regression.
    scores: logits [N, C], or scores [N, 1]."""
    if not labels:
        return {"scores": scores[:, 0]}
    said = scores.argmax(1)
    if len(labels) == 2:
        return {"bits": np.packbits(said == 1)}
    return {"classes": said.astype(np.min_scalar_type(len(labels) - 1))}


def unpack_predictions(arrays: Arrays, row_count: int) -> np.ndarray:
    """Return the classes or scores [N] of an array of `pack_predictions`.

    row_count: N."""
    [(kind, values)] = arrays.items()
    return (
        np.unpackbits(values.astype(np.uint8), count=row_count)
        if kind == "bits"
        else values
    )
