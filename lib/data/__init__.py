"""This package reads the rows of every task (GLUE, SQuAD, SentEval, generated toy
tasks, a user's files): `make_data_descriptor` chooses and describes them for a Spec
(the description of a run), and `load` reads them.

A **source** is where rows come from. The source `toy` generates them, `own` reads the
files of a user (`lib.data.own`), and `lib.data.read` reads the tasks that `tasks.toml`
lists. Official files lie in folders below the one that the environment variable
DATA_ROOT names, `data` by default. **Unseen rows** are labelled test rows, on which
models are scored besides the development rows, but never trained or selected. A
**descriptor** is a small dict in a Spec that says which rows a run has:

    {"source", "task", "digest", "rows", "held_out", "unseen": {"rows", "beside",
    "digest"}}

"rows" and "held_out" are numbers of training rows: to train on, and to keep out of
training. "beside" is the number of training rows that cannot become unseen rows; with 0
the unseen rows are official test rows. With "drawn": {"rows", "digest"} each seed draws
its own training and held-out rows from a pool of "rows" rows with this digest, so all
seeds of a Spec have one descriptor.

Digests are computed from the parsed rows, so a local file and a download from the
Hugging Face hub have the same digest. Images of handwritten digits, on which the paper
"NAS pruning" tries its search, are read by `lib.papers.nas_pruning.digits` instead."""

import hashlib
import importlib
import json
import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import numpy as np
from safetensors.numpy import load_file

from lib.core import disk, paths
from lib.core.memo import cache_results_while_enabled, enable_result_cache
from lib.core.names import Absent, Refused, check_known_name, derive_seed
from lib.core.types import (
    Arrays,
    ClassName,
    ContextYield,
    Digest,
    Json,
    MetricName,
    SplitName,
    TaskName,
)
from lib.data import unseen as left
from lib.data.split import Split
from lib.data.unseen import LabelsScoredPositionsGroupsWordCounts

# The dict in a Spec (the description of a run) that says which rows of which task the
# run uses, such as {"source": "glue", "task": "CoLA", ...}.
DataDescriptor: TypeAlias = Json
DigestByDataName: TypeAlias = Json  # The names are such as "glue/CoLA".
AbsentDataNames: TypeAlias = set[str]
LowestAndHighestScore: TypeAlias = tuple[float, float]
TrainingRowCount: TypeAlias = int
MinWordsPerUnseenRow: TypeAlias = int
SeedOfDrawnRows: TypeAlias = int
HasTwoTexts: TypeAlias = bool
HasSpanAnswers: TypeAlias = bool
# The array of `pack_predictions`, under its kind: "bits", "classes" or "scores".
PackedPredictions: TypeAlias = Arrays


@dataclass(frozen=True)
class Task:
    """A Task describes what a model learns: classes, a score or a span of text.

    Readers of data, heads of models and metrics use it to agree on inputs, outputs and
    scores.

    name: the name as the benchmark spells it, such as "CoLA".
    pair: whether a row has two texts.
    labels: the class names in the order of the official class codes; () for a
    regression and for spans.
    metrics: names of metrics, such as "accuracy" or "matthews" (lib.stats.metrics).
    Tables show the first metric of this tuple where a paper prints none for the task.
    span: whether the answer is a span of the second text, as in SQuAD.
    scale: the lowest and the highest score in a user's file, for a regression. Scores
    of the file are mapped linearly to 0 to 5 for training."""

    name: str
    pair: HasTwoTexts
    labels: tuple[ClassName, ...]
    metrics: tuple[MetricName, ...]
    span: HasSpanAnswers = False
    scale: LowestAndHighestScore = (0.0, 5.0)

    @property
    def output_width(self) -> int:
        """Return the number of outputs of a model for this task: one for each class,
        one for a score, two for the start and the end of a span."""
        return 2 if self.span else len(self.labels) or 1


# {source of data sets: its folder below DATA_ROOT}. None means that there is no such
# folder: "toy" data are generated, and a user's "own" files can lie anywhere.
FOLDERS = {
    "toy": None,
    "own": None,
    "glue": "glue",
    "squad": "squad",
    "senteval": "probing",
    "treebank": "ud_english_ewt",
}
# All files of the package lib.data. A change of one of them may change how rows are
# parsed, so cached digests of rows are computed again after it.
CODE = sorted(Path(__file__).parent.glob("*.*"))
WEIGHTS = "model.safetensors"
# Patterns of the files that are copied from the folder of a pretrained checkpoint.
PATTERNS = ("*.json", "*.txt", WEIGHTS)
# Sources of data that the module `lib.data.read` reads, by the descriptions of files in
# `tasks.toml`. Each other source has a module of its own name, such as `lib.data.toy`.
TABLED = ("glue", "squad", "senteval")


@cache
def import_data_source_module(source_name: str) -> ModuleType:
    """Return the Python module that reads a source of data, such as "glue" or "toy".

    A source is a benchmark, generated toy data or a user's files. The function
    `load(task, folder)` of the module returns {split name: Split (rows)}; for "toy"
    (generated data) and "own" (a user's files) it has no argument `folder`. If the
    source has official test rows with labels, the module has UNSEEN, the names of the
    tasks with such rows, and the function `load_official_test_rows(task, folder)`.

    source_name: "glue", "squad", "senteval", "treebank", "toy" or "own". Raises Refused
    for another name."""
    check_known_name("data source", source_name, FOLDERS)
    return importlib.import_module(
        f"lib.data.{'read' if source_name in TABLED else source_name}"
    )


def list_tasks(source_name: str) -> dict[TaskName, Task]:
    """Return {task name: Task} of all tasks of a source of data, such as "glue".

    Names that a user types are checked against it. Raises Refused for an unknown
    source, and for "own" (a user's files), which has no fixed tasks."""
    if source_name == "own":
        fix = "name one by its file, such as 'reviews.csv: title, body, stars'"
        raise Refused(f"the source 'own' has no list of tasks: {fix}")
    module = import_data_source_module(source_name)
    return module.SOURCES[source_name] if source_name in TABLED else module.TASKS


def find_folder_of_official_files(source_name: str) -> tuple[Path] | tuple[()]:
    """Return the folder of a source's official files, as a tuple of one path.

    The tuple is empty for the sources "toy" (generated rows) and "own" (a user's
    files), which have no folder. So it can be unpacked as the last arguments of a
    reader that takes a folder or nothing.

    source_name: the source of data, such as "glue"."""
    subfolder = FOLDERS[source_name]
    return (paths.data_root() / subfolder,) if subfolder else ()


def find_task_by_name(source_name: str, task_name: str) -> Task:
    """Return the Task (class names, metrics) of a source of data by its name.

    Raises Refused, with the most similar name, for an unknown task or source.

    source_name: where the rows come from, such as "glue".
    task_name: a name such as "CoLA". For the source "own" (a user's files) it is a line
    such as "reviews.csv: title, body, stars", which names a file and its columns. That
    file is then read, because the labels are inferred from it."""
    if source_name == "own":
        return import_data_source_module(source_name).infer_task(task_name)
    tasks = list_tasks(source_name)
    check_known_name(f"task of source {source_name!r}", task_name, tasks)
    return tasks[task_name]


def find_task_of_descriptor(data_descriptor: DataDescriptor) -> Task:
    """Return the Task (class names, metrics) of the rows that a data descriptor names.

    A training reads it to build the head and to choose metrics. Raises Refused for an
    unknown source or task.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    are used. Its entries "source" and "task" are looked up."""
    return find_task_by_name(data_descriptor["source"], data_descriptor["task"])


_absent: AbsentDataNames | None = None
_look = True


@contextmanager
def plan_with_missing_data(
    use_local_data: bool = True,
) -> ContextYield[AbsentDataNames]:
    """Let runs be planned in a `with` block although data or checkpoints are missing.

    A Spec (the description of a run) contains digests of its data. Where data are
    missing, their digest is taken from this project's file `data/digests.json`. Where
    it has none, the text "absent" is used within the block, and FileNotFoundError is
    raised outside of it. "absent" never stands for unseen rows (labelled test rows) and
    pools (the rows from which each seed draws its training rows): where the file lacks
    their digest, they are read, within the block too.

    Yields a set, to which the names of the missing data, such as "glue/CoLA", are
    added.

    use_local_data: whether digests of local data are computed. If not, all data count
    as missing, so that every machine builds the same Specs."""
    global _absent, _look
    before, _absent, _look = (_absent, _look), set(), use_local_data
    try:
        with enable_result_cache(start_with_empty_cache=True):
            yield _absent
    finally:
        _absent, _look = before


def read_committed_data_digests() -> DigestByDataName:
    """Return {name: digest} of official data, from the file `data/digests.json`.

    A training run is identified by the digests of its data. With this file its saved
    results are found on a machine that lacks the data. Names are such as "glue/CoLA",
    "models/<checkpoint>" or "texts/<corpus>/<number of documents>". For a part of the
    rows of a task, such as its test rows, the value is a dict with "digest" and "rows"
    (their number) instead. The value of "subsets" is a list of names: of these data the
    runs committed to git have only a part of the official rows. Returns {} without the
    file."""
    if not os.path.lexists(paths.DIGESTS):
        return {}
    return disk.read_json(paths.DIGESTS, "take it from git")


def find_local_or_committed_digest(
    data_name: str,
    compute_local_digest: Callable[[], str],
    has_local_folder: bool = True,
) -> str:
    """Return the digest of local data; where they are missing, that of official data.

    The digests of official data are in this project's file `data/digests.json`. So a
    training run can be identified by its data on a machine that lacks them. Where the
    file has no digest either, "absent" is returned within
    `plan_with_missing_data` (while runs are only planned), and FileNotFoundError
    is raised elsewhere.

    data_name: the name of the data in `data/digests.json`, such as "glue/CoLA".
    compute_local_digest: function that computes the digest of the local data, and
    raises FileNotFoundError where they are missing.
    has_local_folder: whether the folder of the data exists. If not, and the file has a
    digest, `compute_local_digest` is not called."""
    official = read_committed_data_digests().get(data_name)
    try:
        if not _look or (official and not has_local_folder):
            raise FileNotFoundError(f"{data_name} is not looked at")
        return compute_local_digest()
    except FileNotFoundError:
        if _absent is not None:
            _absent.add(data_name)
        elif official is None:
            raise
        return official or "absent"


def find_checkpoint_folder_with_file(
    checkpoint_name: str, file_name: str
) -> Path | None:
    """Return the local folder of a pretrained checkpoint, if it has a certain file.

    Returns None where no such folder has the file; the checkpoint must then be
    downloaded. `data/models` is searched first, then the folder `models` in the folder
    that the environment variable DATA_ROOT names.

    checkpoint_name: a name such as "bert-base-uncased", or the full path of a user's
    folder.
    file_name: the file to look for, such as "model.safetensors"."""
    for root in (paths.models_root(), paths.data_root() / "models"):
        folder = root / checkpoint_name
        if (folder / file_name).exists():
            return folder
    return None


def require_checkpoint_folder(checkpoint_name: str) -> Path:
    """Return the local folder of a pretrained checkpoint, which has its weights.

    Raises Absent (a FileNotFoundError) where it is missing; the message gives the
    command that downloads it."""
    if folder := find_checkpoint_folder_with_file(checkpoint_name, WEIGHTS):
        return folder
    root = paths.format_project_path(paths.models_root())
    why = f"no checkpoint {checkpoint_name!r} under {root}"
    fix = f"run `python -m lib fetch {checkpoint_name}`, or put its folder there, with {WEIGHTS}"
    raise Absent(f"{why}: {fix}")


def digest_local_checkpoint(checkpoint_name: str) -> str:
    """Return the SHA-256 digest of a local pretrained checkpoint, as 64 hex digits.

    It identifies the model from which a training run starts. For a checkpoint of
    `data/digests.json`, on which recorded runs rest, it is the digest of the file of
    weights. For any other it is a digest of all files, tokenizer and configuration
    included. Raises Absent where the checkpoint is
    missing.

    checkpoint_name: a name such as "bert-base-uncased", or the full path of a user's
    folder."""
    folder = require_checkpoint_folder(checkpoint_name)
    if f"models/{checkpoint_name}" in read_committed_data_digests():
        return disk.digest_file(folder / WEIGHTS)
    files = sorted(list_checkpoint_files(folder))
    return disk.digest_bytes(
        "".join(path.name + disk.digest_file(path) for path in files).encode()
    )


def list_checkpoint_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint's folder that loading the model needs.

    They are the weights (model.safetensors), all JSON files, and text files such as the
    vocabulary. Hidden files and pickles are left out. Only the listed files are copied
    and digested."""
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    return [path for path in files if path.name[0] != "."]


@cache_results_while_enabled
def find_checkpoint_digest(checkpoint_name: str) -> str:
    """Return the digest that identifies a pretrained checkpoint in a run's description.

    It is computed from the local files (`digest_local_checkpoint`). Where they are
    missing, it is taken from this project's file `data/digests.json`, so that a machine
    without the checkpoint can still find the training runs that started from it. Where
    both are missing, it is "absent" within `plan_with_missing_data`, and
    FileNotFoundError is raised elsewhere."""
    return find_local_or_committed_digest(
        f"models/{checkpoint_name}",
        lambda: digest_local_checkpoint(checkpoint_name),
    )


def read_splits(source_name: str, task_name: str) -> dict[SplitName, Split]:
    """Return {split name, such as "train": Split} of all rows of a task.

    Official rows are read once in a process. A user's files (source "own") are read
    again when they change, because they may be edited while a notebook is open.

    Raises Absent where files are missing, and Refused with file and line where a row is
    malformed."""
    if source_name == "own":
        return import_data_source_module(source_name).load(task_name)
    return read_splits_cached(source_name, task_name)


@cache
def read_splits_cached(source_name: str, task_name: str) -> dict[SplitName, Split]:
    """Return all rows of a task as {split name: Split}, read once in this process.

    It is the cached part of `read_splits`. It must not be called for the source "own",
    a user's files, because these may be edited meanwhile. Raises Absent where files are
    missing."""
    return import_data_source_module(source_name).load(
        find_task_by_name(source_name, task_name).name,
        *find_folder_of_official_files(source_name),
    )


def read_split(source_name: str, task_name: str, split_name: str) -> Split:
    """Return one split of a task by name, such as its "train" or "dev" rows.

    Raises Absent where the task has no files. It is also raised where the task has no
    split of this name; the message then lists the splits."""
    task_splits = read_splits(source_name, task_name)
    if split_name not in task_splits:
        names = ", ".join(task_splits)
        lacking = f"{source_name}/{task_name} has no split {split_name!r}, only {names}"
        raise Absent(
            f"{lacking}: add its file under {paths.format_project_path(paths.data_root())}"
        )
    return task_splits[split_name]


def digest_splits(
    splits: dict[SplitName, Split],
    class_names_or_score_range: tuple[ClassName, ...]
    | LowestAndHighestScore
    | None = None,
) -> str:
    """Return the digest of the rows of several splits: 16 hex digits of a SHA-256.

    A training run stores it, so that changed data are noticed. It depends on texts,
    labels, answers, and the names and order of the splits. Splits whose names begin
    with "test" are left out, since only some copies of a data set have them.

    class_names_or_score_range: for a user's file, the class names, or the lowest and
    the highest score, which are inferred from its rows; they become part of the
    digest. None for all other data."""
    body = hashlib.sha256()
    if class_names_or_score_range:
        body.update(json.dumps(class_names_or_score_range).encode())
    for key, split in splits.items():
        if not key.startswith("test"):
            answers = [] if split.answers is None else [split.answers]
            body.update(
                json.dumps([key, split.a, split.b, split.y.tolist(), *answers]).encode()
            )
    return body.hexdigest()[:16]


def digest_task_rows(source_name: str, task_name: str) -> str:
    """Return the digest by which a training run identifies the rows of its task.

    It is 16 hex digits, computed from the parsed rows; test rows are left out. For a
    user's file (source "own") the class names, or the lowest and the highest score, are
    part of it too."""
    labels = ()
    if source_name == "own":
        user_task = find_task_by_name(source_name, task_name)
        labels = user_task.labels or user_task.scale
    return digest_splits(read_splits(source_name, task_name), labels)


def digest_task_rows_cached(
    source_name: str, task_name: str
) -> tuple[Digest, list[SplitName]]:
    """Return (digest, names of all splits) of the rows of a task on this machine.

    A training run is identified by this digest. The result is cached on disk until a
    data file or the code of this package changes, which saves seconds for each command.
    Raises Absent where the rows are missing."""
    note = ["rows", source_name, task_name]
    files = [
        path
        for folder in find_folder_of_official_files(source_name)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    if source_name == "own":
        files = import_data_source_module(source_name).list_task_files(task_name)
        note += map(disk.digest_file, files)

    def list_digest_and_split_names() -> list[str]:
        return [
            digest_task_rows(source_name, task_name),
            *read_splits(source_name, task_name),
        ]

    rows_digest, *names = disk.read_disk_cache_or_compute(
        note, [*CODE, *files], list_digest_and_split_names
    )
    return rows_digest, names


@cache_results_while_enabled
def make_data_descriptor(
    source_name: str,
    task_name: str,
    rows: TrainingRowCount | None = None,
    held_out: TrainingRowCount = 0,
    max_unseen_rows: int = 0,
    reserved_rows: TrainingRowCount = 0,
    in_file_order: bool = False,
    min_words: MinWordsPerUnseenRow = 0,
    draws_rows_by_seed: bool = False,
) -> DataDescriptor:
    """Return a data descriptor: a dict that says which rows of a task a run uses.

    It is part of a Spec (the description of a training run). It always has "source",
    "task" and "digest" (of all rows of all splits but "test"). Where the arguments ask
    for them it has "rows", "held_out", "in_order", "unseen": {"rows", "beside",
    "words", "digest"} and "drawn": {"rows": number of rows to draw from, "digest"}.
    `load` reads the rows and checks the digests, so every machine gets the same rows.
    Where the data are missing, digests from the file `data/digests.json` are taken, so
    that runs can be planned.

    rows: the number of training rows; None takes all that are not held out.
    held_out: the number of further training rows that are held out of training, such
    as to select models.
    max_unseen_rows: the largest number of unseen rows: labelled rows that serve to
    score models, not to train or select them. With 0 there are none.
    reserved_rows: unseen rows are taken from the training rows after the first
    `reserved_rows` rows of a fixed random order. With 0 they are official test rows
    where the task has such rows with labels; elsewhere 0 means `rows` + `held_out`.
    in_file_order: whether to train on the first rows of the file and to hold out its
    last ones, instead of random rows.
    min_words: the least number of words of an unseen row that is taken from training
    rows.
    draws_rows_by_seed: whether each seed draws its own training rows. Unseen rows are
    then chosen first. The seeds draw from all training rows, but where unseen rows are
    training rows too, only from those that share no text with them.

    Raises Refused where there are too few rows for `draws_rows_by_seed`, where no row
    is left to be an unseen row, and for arguments that contradict each other, such as
    `draws_rows_by_seed` and `in_file_order`. Too few rows without `draws_rows_by_seed`
    are noticed by `load`."""
    key, digests = f"{source_name}/{task_name}", read_committed_data_digests()
    find_task_by_name(source_name, task_name)
    rows_digest = find_local_or_committed_digest(
        key,
        lambda: digest_task_rows_cached(source_name, task_name)[0],
        all(folder.is_dir() for folder in find_folder_of_official_files(source_name)),
    )
    noted = digests if rows_digest == digests.get(key) else {}
    body: DataDescriptor = {
        "source": source_name,
        "task": task_name,
        "digest": rows_digest,
        "rows": rows,
        "held_out": held_out or None,
        "in_order": in_file_order or None,
    }
    if draws_rows_by_seed and in_file_order:
        raise Refused(f"rows of {key} are drawn or in order, not both: leave one out")
    if max_unseen_rows:
        if reserved_rows or task_name not in getattr(
            import_data_source_module(source_name), "UNSEEN", ()
        ):
            least = rows and rows + held_out
            first = reserved_rows or least
            if (
                not first
                or in_file_order
                or not (draws_rows_by_seed or least and first >= least)
            ):
                given = f"unseen rows of {key} beside {first}, of which {rows} are trained on"
                fix = (
                    "name `rows`, not in file order, and `reserved_rows` no fewer than "
                    "`rows` and `held_out`"
                )
                raise Refused(f"{given} and {held_out} held out: {fix}")
            reserved_rows = first
        entry: Json = {"beside": reserved_rows, "rows": max_unseen_rows}
        if min_words:
            entry["words"] = min_words
        body["unseen"] = noted.get("/".join(map(str, [key, *entry.values()])))
        if not body["unseen"]:
            split = read_unseen_test_rows(
                source_name, task_name, reserved_rows, max_unseen_rows, min_words
            )
            entry |= {"rows": len(split), "digest": digest_splits({"unseen": split})}
            body["unseen"] = entry
    if draws_rows_by_seed:
        drawn_entry: Json | None = noted.get(make_digest_key_of_training_pool(body))
        if not drawn_entry:
            split = read_training_pool(body)
            drawn_entry = {"rows": len(split), "digest": digest_splits({"pool": split})}
        body["drawn"] = drawn_entry
        check_enough_rows(
            key, drawn_entry["rows"], rows or 0, held_out, " rows to draw from"
        )
    return {k: v for k, v in body.items() if v is not None}


def check_enough_rows(
    data_name: str,
    available_row_count: int,
    train_row_count: int,
    held_out_row_count: int,
    available_rows_message_suffix: str = "",
) -> None:
    """Raise Refused where a data set has too few rows to train on and to hold out.

    A training run that asks for too many rows is refused when its rows are loaded. With
    rows that are drawn by a seed, it is refused already when it is planned.

    data_name: the name of the data set for the message.
    available_rows_message_suffix: words that follow the number of available rows in
    the message, such as " rows to draw from"."""
    if train_row_count + held_out_row_count > available_row_count:
        asked = f"{train_row_count} training and {held_out_row_count} held-out rows"
        raise Refused(
            f"{asked} asked of {data_name}, which has {available_row_count}"
            f"{available_rows_message_suffix}: ask for fewer"
        )


def load(
    data_descriptor: DataDescriptor, seed: SeedOfDrawnRows | None = None
) -> dict[SplitName, Split]:
    """Return the rows that a training run uses, as {split name: Split}.

    "train", "held_out" and "unseen" (labelled test rows) have the numbers of rows that
    the descriptor gives; other splits, such as "dev", have all their rows. Training
    rows are the first rows of a fixed random order, and held-out rows are the next
    ones; with "in_order" they are the first and the last rows of the file. Each split
    is in the order of the file.

    Raises Refused where the data have changed since they were described, where they
    have too few rows, and for "drawn" rows (each seed has its own) without a seed.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    the run uses, made by `make_data_descriptor`.
    seed: the seed of the run, which decides the random order of "drawn" rows. Runs of
    one seed with the same "rows" have the same training rows, also if they hold out
    more or fewer rows."""
    name, task_name = data_descriptor["source"], data_descriptor["task"]
    key, task_splits = f"{name}/{task_name}", dict(read_splits(name, task_name))
    check_digest(key, digest_task_rows(name, task_name), data_descriptor["digest"])
    train = read_split(name, task_name, "train")
    order = make_fixed_random_row_order(train)
    if drawn_entry := data_descriptor.get("drawn"):
        if seed is None:
            raise Refused(
                f"the rows of {key} are drawn by a seed: give `load` that of the run"
            )
        train = read_training_pool(data_descriptor)
        what = f"{key}, the rows to draw from,"
        check_digest(what, digest_splits({"pool": train}), drawn_entry["digest"])
        order = np.random.default_rng(derive_seed(seed, "rows")).permutation(len(train))
    held = data_descriptor.get("held_out", 0)
    rows = data_descriptor.get("rows", len(train) - held)
    check_enough_rows(key, len(train), rows, held)
    first = rows
    if data_descriptor.get("in_order"):
        order, first = np.arange(len(train)), len(train) - held
    task_splits["train"] = train.select_rows(np.sort(order[:rows]))
    if held:
        held_rows = np.sort(order[first : first + held])
        task_splits["held_out"] = train.select_rows(held_rows)
    if "unseen" in data_descriptor:
        task_splits["unseen"] = load_verified_unseen_test_rows(data_descriptor)
    return task_splits


def check_digest(data_name: str, actual_digest: str, expected_digest: str) -> None:
    """Raise Refused where local data differ from those for which a run was described.

    So a training run is never executed on other data than its description names.

    data_name: the name of the data for the message.
    actual_digest: the digest of the local data.
    expected_digest: the digest in the description of the run."""
    if actual_digest != expected_digest:
        fix = "put the same data back, or ask for a new run"
        raise Refused(
            f"{data_name} has digest {actual_digest}; this run is of {expected_digest}: {fix}"
        )


def make_fixed_random_row_order(split: Split) -> np.ndarray:
    """Return the fixed random order in which training and test rows are drawn from a
    split of N rows: a permutation of 0 to N - 1, [N], equal on every machine."""
    return np.random.default_rng(0).permutation(len(split))


@cache
def choose_test_rows_among_training_rows(
    train_split: Split,
    reserved_training_row_count: int,
    max_unseen_rows: int,
    min_words_per_unseen_row: int,
) -> list[int]:
    """Choose labelled test rows (unseen rows) among the training rows of a task.

    It serves tasks whose official test labels are secret. The rows of the split are put
    into a fixed random order, whose first `reserved_training_row_count` rows are
    reserved for training. The unseen rows are the first `max_unseen_rows` later rows
    (or all, if there are fewer) that share no text with a reserved row and have at
    least `min_words_per_unseen_row` words. A text of a later row shares text with one
    of a reserved row if four consecutive words are in both, or, where the later row's
    text has fewer words, if one of the two is, as a whole, part of the other. Returns
    positions in the split."""
    order = make_fixed_random_row_order(train_split)
    behind = order[reserved_training_row_count:]
    if min_words_per_unseen_row:
        behind = behind[
            left.count_words_per_row(train_split)[behind] >= min_words_per_unseen_row
        ]
    return left.select_row_positions_without_shared_text(
        train_split, order[:reserved_training_row_count], behind, max_unseen_rows
    )


def read_unseen_test_rows(
    source_name: str,
    task_name: str,
    reserved_training_row_count: int,
    max_unseen_rows: int,
    min_words_per_unseen_row: int = 0,
) -> Split:
    """Return the unseen rows of a task: labelled test rows that no model is trained on.

    Models are scored on them, and not selected by them. Raises Refused where there is
    no such row.

    source_name, task_name: the source of data and its task, such as "glue" and "CoLA".
    reserved_training_row_count: the number of training rows that are never unseen rows.
    With 0 the unseen rows are official test rows of the source. Otherwise they are rows
    of the training file that share no text with the first of them in a fixed random
    order, as many as this number says.
    max_unseen_rows: the largest number of unseen rows.
    min_words_per_unseen_row: the least number of words of an unseen row that is no
    official test row."""
    if not reserved_training_row_count:
        split = import_data_source_module(source_name).load_official_test_rows(
            task_name, *find_folder_of_official_files(source_name)
        )
        return split.select_rows(
            np.sort(make_fixed_random_row_order(split)[:max_unseen_rows])
        )
    train = read_split(source_name, task_name, "train")
    chosen = choose_test_rows_among_training_rows(
        train, reserved_training_row_count, max_unseen_rows, min_words_per_unseen_row
    )
    if not chosen:
        raise Refused(
            f"every other row of {source_name}/{task_name} shares text with the "
            f"{reserved_training_row_count} first drawn: take fewer `rows`, or leave "
            "`unseen` out"
        )
    return train.select_rows(np.sort(chosen))


def load_verified_unseen_test_rows(data_descriptor: DataDescriptor) -> Split:
    """Return the unseen rows (labelled test rows) that a data descriptor names.

    They serve to score models, not to train or select them. Raises Refused where their
    digest differs from that in the descriptor, because the data have changed.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    the run uses; it must have the entry "unseen"."""
    name, task_name = data_descriptor["source"], data_descriptor["task"]
    entry = data_descriptor["unseen"]
    split = read_unseen_test_rows(
        name, task_name, entry["beside"], entry["rows"], entry.get("words", 0)
    )
    what = f"{name}/{task_name}, its unseen rows,"
    check_digest(what, digest_splits({"unseen": split}), entry["digest"])
    return split


def make_digest_key_of_training_pool(data_descriptor: DataDescriptor) -> str:
    """Return the name, in `data/digests.json`, of a pool of training rows.

    Each seed draws its own training rows from this pool. The file has the digest of the
    pool under a name such as "glue/RTE/pool". Where unseen rows (labelled test rows)
    were taken from the training rows, their digest is added to the name, because the
    pool depends on them.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    the run uses."""
    unseen_entry = data_descriptor.get("unseen") or {}
    rest = [unseen_entry["digest"]] if unseen_entry.get("beside") else []
    return "/".join([data_descriptor["source"], data_descriptor["task"], "pool", *rest])


def read_training_pool(data_descriptor: DataDescriptor) -> Split:
    """Return the pool of training rows from which each seed draws its own.

    The pool is in the order of the file. Where unseen rows (labelled test rows) were
    taken from the training rows, the pool has all training rows that share no text with
    them. Otherwise it has all training rows.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    the run uses."""
    train = read_split(data_descriptor["source"], data_descriptor["task"], "train")
    entry = data_descriptor.get("unseen") or {}
    if not entry.get("beside"):
        return train
    return drop_training_rows_that_share_text_with_test_rows(
        train, entry["beside"], entry["rows"], entry.get("words", 0)
    )


@cache
def drop_training_rows_that_share_text_with_test_rows(
    train_split: Split,
    reserved_training_row_count: int,
    max_unseen_rows: int,
    min_words_per_unseen_row: int,
) -> Split:
    """Return the training rows that share no text with the unseen rows (test rows).

    The unseen rows, on which models are scored, are chosen from `train_split` first.
    Each seed draws its own training rows from the result. A training text shares text
    with an unseen one if four consecutive words are in both, or, where the training
    text has fewer words, if one of the two is, as a whole, part of the other.

    reserved_training_row_count: the number of rows, the first of a fixed random order,
    that cannot become unseen rows.
    max_unseen_rows: the largest number of unseen rows.
    min_words_per_unseen_row: the least number of words of an unseen row."""
    taken = choose_test_rows_among_training_rows(
        train_split,
        reserved_training_row_count,
        max_unseen_rows,
        min_words_per_unseen_row,
    )
    rest = np.setdiff1d(np.arange(len(train_split)), taken)
    return train_split.select_rows(
        np.array(
            left.select_row_positions_without_shared_text(
                train_split, taken, rest, len(train_split)
            ),
            int,
        )
    )


def read_unseen_row_scoring_arrays(
    data_descriptor: DataDescriptor,
) -> LabelsScoredPositionsGroupsWordCounts:
    """Return the arrays needed to score predictions for unseen rows (test rows).

    For N unseen rows and D development rows: "labels" [N] (of the unseen rows),
    "judged" [K] (positions of the unseen rows that are scored; the others are short or
    repeat a training text), "cluster" [D + K] (the number of each row's group) and
    "words" [D + N] (number of words of each row), with development rows first. Rows of
    a group share text, or, with official test rows, have an equal text. They are not
    independent, so confidence intervals leave out whole groups.

    They are read from this project's folder `data/unseen/` if it has them for these
    very rows, so that scores can be checked without the data set. Otherwise they are
    computed from the data set; Refused is raised where it has changed.

    data_descriptor: the dict in a Spec (the description of a run) that says which rows
    the run uses; it must have the entry "unseen"."""
    name, task_name = data_descriptor["source"], data_descriptor["task"]
    unseen_entry = data_descriptor["unseen"]
    path = paths.UNSEEN / f"{unseen_entry['digest']}.safetensors"
    # Groups and judged rows depend on training and development rows too.
    committed = read_committed_data_digests().get(f"{name}/{task_name}")
    if data_descriptor["digest"] == committed and path.exists():
        return load_file(path)
    check_digest(
        f"{name}/{task_name}",
        digest_task_rows(name, task_name),
        data_descriptor["digest"],
    )
    every = None if unseen_entry["beside"] else read_split(name, task_name, "train")
    return left.compute_unseen_row_scoring_arrays(
        load_verified_unseen_test_rows(data_descriptor),
        read_split(name, task_name, "dev"),
        every,
    )


def pack_predictions(
    class_names: tuple[ClassName, ...], logits_or_scores: np.ndarray
) -> PackedPredictions:
    """Pack the predictions for N test rows into one small array, to save them.

    Returns {kind: array}. Two classes give {"bits": uint8 [N / 8, rounded up]}, with
    one bit for each row. More classes give {"classes": [N]}, the codes in the smallest
    unsigned type. A regression gives {"scores": [N]}, unchanged. `unpack_predictions`
    reads the result.

    class_names: the names of the C classes; () for a regression.
    logits_or_scores: [N, C], or the scores of a regression [N, 1]."""
    if not class_names:
        return {"scores": logits_or_scores[:, 0]}
    said = logits_or_scores.argmax(1)
    if len(class_names) == 2:
        return {"bits": np.packbits(said == 1)}
    return {"classes": said.astype(np.min_scalar_type(len(class_names) - 1))}


def unpack_predictions(
    packed_predictions: PackedPredictions, row_count: int
) -> np.ndarray:
    """Return the predicted class codes or scores [N] that a run saved in packed form.

    It inverts `pack_predictions`, so that saved predictions can be scored again.

    packed_predictions: {"bits": one bit for each row}, {"classes": class codes} or
    {"scores": the scores}.
    row_count: N, the number of rows."""
    [(kind, values)] = packed_predictions.items()
    return (
        np.unpackbits(values.astype(np.uint8), count=row_count)
        if kind == "bits"
        else values
    )
