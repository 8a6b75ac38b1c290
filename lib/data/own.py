"""This module reads a user's data: a file, a folder with training and development
files, or a data set of the Hugging Face hub. One line of text, here called the
dataset line, names them:

    reviews.tsv                         has a header, one or two texts, and a label
    reviews.csv: title, body, stars     names its columns: texts first, then the label
    reviews.csv: body, stars: scores    says that labels are scores, and no classes
    reviews/                            has train.<ending>, dev.<ending>, test.<ending>
    saved/                              is what `Dataset.save_to_disk` wrote
    hub:nyu-mll/glue/rte: sentence1, sentence2, label
    questions.json                      has questions about passages in SQuAD's layout

What the line does not say is inferred from the names of the columns and the spelling of
the labels (lib.data.roles), and reported in `UserData.lines`. For training, scores are
mapped linearly to 0 (the lowest) to 5 (the highest), as in STS-B; they are shown on the
scale of the file (`Task.scale`). Where there is no development file, a fifth of the
different texts, at most 1,000, becomes development rows. Rows of a file `test` are
scored only for the final model. The name of the task is the line with the full path,
all columns and the kind of label; for SQuAD's layout it is the full path alone."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from lib.core import disk, paths
from lib.core.names import Absent, Refused
from lib.core.types import SplitName
from lib.data import Split, Task, lines, read, roles, squad
from lib.data.lines import (
    SUFFIXES,
    LocationAndCells,
    convert_cell_to_text,
    make_file_content_error,
    make_path_relative_to_working_folder,
)
from lib.data.roles import (
    MAX_SHARE_OF_DROPPED_ROWS,
    ClassesOrScores,
    ColumnChoice,
    ColumnName,
    Remark,
)

if TYPE_CHECKING:
    from datasets import Dataset

T = TypeVar("T")
Location: TypeAlias = str  # Path, or "hub:" and a name at the Hugging Face hub.
HUB = "hub:"
# {name of a user's file or split: "train", "dev" or "test", as this project calls it}.
SPLITS = {"train": "train", "training": "train", "test": "test"} | dict.fromkeys(
    ("dev", "val", "valid", "validation", "eval", "development"), "dev"
)
# Files by which a folder of `Dataset.save_to_disk` is recognised.
SAVED = ("dataset_dict.json", "dataset_info.json")
# LEAST: smallest number of different rows that a user's data set may have. Where the
# user has no development file, the share DEV of the rows, but at most MOST_DEV rows,
# becomes the development set.
LEAST, DEV, MOST_DEV = 40, 0.2, 1000
SEED = 0  # Seed by which development rows are drawn from the training rows.


@dataclass(frozen=True)
class UserData:
    """A UserData is the result of reading a user's data: task, rows and remarks.

    The remarks let the user check how files, columns and labels were understood.

    task: the class names or the range of the scores, and metrics.
    splits: {"train", "dev", perhaps "test": Split}.
    lines: remarks, sentences for the user; the first says which columns are texts and
    which is the label.
    cautions: warnings among these remarks, such as that some development rows are
    training rows too."""

    task: Task
    splits: dict[SplitName, Split]
    lines: tuple[Remark, ...]
    cautions: tuple[Remark, ...] = ()


def format_user_task_title(location_and_columns: str) -> str:
    """Return the title of a user's task in tables: the name of its file or folder.

    location_and_columns: the line that names a user's data, such as "/data/reviews.csv:
    body, stars: scores", which gives "reviews.csv". A folder's name gets a final
    "/"."""
    place = Path(_parse_location_and_columns(location_and_columns)[0])
    return place.name + "/" * place.is_dir()


def list_task_files(location_and_columns: str) -> list[Path]:
    """Return the paths of the files from which a user's task is read.

    Their digests tell whether the data have changed. A data set of the Hugging Face hub
    is downloaded first. Raises Absent where there is no training file.

    location_and_columns: the line that names a user's data, such as
    "/data/reviews.csv: body, stars: scores"."""
    place, _ = _find_path_and_columns(location_and_columns)
    if _is_saved_dataset(place):
        return sorted(path for path in place.rglob("*") if path.is_file())
    return list(_find_split_files(place)[0].values())


def infer_task(location_and_columns: str) -> Task:
    """Return the Task (class names, metrics) of the data that a user names in one line.

    The files are read for it, because classes or scores are inferred from the labels.
    Raises Absent where files are missing, and Refused with file and row where columns
    or rows are not clear.

    location_and_columns: the line that names data and columns, such as "reviews.csv:
    body, stars: scores". Its path may be relative to the working folder or to the
    project."""
    return read_user_data(location_and_columns).task


def load(location_and_columns: str) -> dict[SplitName, Split]:
    """Return the rows of a user's task: {"train", "dev" and perhaps "test": Split}.

    Without a development file, a fifth of the different training texts, at most 1,000,
    becomes "dev". Raises Refused with file and row where a row is malformed.

    location_and_columns: the line that names the user's data, such as
    "/data/reviews.csv: body, stars: scores"."""
    return dict(read_user_data(location_and_columns).splits)


def read_user_data(location_and_columns: str) -> UserData:
    """Read the data that a user names in one line: task, rows by split, and remarks.

    The remarks tell the user how columns and labels were understood. The result is
    cached in this process until a file changes. Raises Absent where files are missing,
    and Refused where columns or rows are not clear.

    location_and_columns: a path or a data set of the Hugging Face hub, and perhaps
    columns, such as "reviews.csv: body, stars: scores" or "hub:owner/name"."""
    place, columns = _find_path_and_columns(location_and_columns)
    files = list_task_files(location_and_columns)
    return _read_files_cached(place, columns, *map(disk.digest_file, files))


def read_dataset(
    dataset: Dataset | Mapping[str, Dataset],
    column_choice: ColumnChoice = "",
    location: str = "the data set",
) -> UserData:
    """Read a user's data that are already in memory: task, rows by split, and remarks.

    The remarks tell the user how columns and labels were understood. Where the feature
    type of the label column has class names, or is a float, it decides whether labels
    are classes or scores. A data set with the columns of SQuAD on the hub has questions
    about passages. Raises Refused for another kind of object, where columns or rows are
    not clear, without a split "train", and where none of its rows has a class.

    dataset: a `datasets.Dataset` with training rows, or a `DatasetDict` with a split
    "train".
    column_choice: the columns to read, the label last, such as "title, body, stars:
    scores"; "" infers texts and label from the names of the columns.
    location: the name of the data, for the task's name and for errors."""
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    for part in parts.values():
        if not hasattr(part, "features"):
            raise Refused(
                f"rows in a {type(part).__name__} are not read: name a file or folder, or "
                "pass a datasets.Dataset, which Dataset.from_list makes of a list of "
                "dictionaries and Dataset.from_pandas of a DataFrame"
            )
    by_split, remarks = _match_names_to_splits(location, parts)
    if "train" not in by_split:
        raise Refused(
            f"{location} has no split train, but {', '.join(parts)}: name it so"
        )
    features = by_split["train"].features
    if not column_choice and squad.ROW_KEYS <= features.keys():
        questions = {
            split: squad.parse_questions(Path(location) / split, part.to_list())
            for split, part in by_split.items()
        }
        return _convert_questions_to_user_data(location, questions, remarks)
    kinds = {}
    for name, feature in features.items():
        if hasattr(feature, "names"):
            kinds[name] = roles.CLASSES
        elif str(getattr(feature, "dtype", "")).startswith("float"):
            kinds[name] = roles.SCORES
    tables = {}
    chosen_names, _ = roles.parse_columns_and_label_kind(column_choice)
    label_columns = chosen_names[-1:] or [
        name for name in features if roles.is_label_column_name(name)
    ]
    for split, dataset_part in by_split.items():
        body = lines.list_rows_with_class_names(dataset_part, label_columns or None)
        if lost := len(dataset_part) - len(body):
            count = f"{lost} of {len(dataset_part)} {split} rows"
            remarks.append(f"left out {count} without a class")
        if table := lines.convert_json_objects_to_table(f"{location}, {split}", body):
            tables[split] = table
    if "train" not in tables:
        fault = f"none of {len(by_split['train'])} rows has a class"
        raise make_file_content_error(
            f"{location}, train", fault, "rows with a class", "label some"
        )
    return _convert_tables_to_user_data(location, tables, kinds, remarks, column_choice)


def _parse_location_and_columns(
    location_and_columns: str,
) -> tuple[Location, ColumnChoice]:
    """Divide the line that names a user's data into (location, columns).

    "reviews.csv: body, stars" gives ("reviews.csv", "body, stars"); the second part is
    "" where no columns are named. Paths may contain colons, so the longest beginning of
    the line that is an existing path is the location. A line that begins with "hub:"
    names a data set of the hub, even where a folder has that name."""
    if location_and_columns.startswith(HUB):
        hub_name, _, columns = location_and_columns.removeprefix(HUB).partition(":")
        return HUB + hub_name, columns.strip()
    marks = [match.start() for match in re.finditer(":", location_and_columns)]
    for end in [len(location_and_columns), *reversed(marks)]:
        place, columns = location_and_columns[:end], location_and_columns[end + 1 :]
        if place.strip() and os.path.exists(paths.resolve_user_path(place)):
            return place, columns.strip()
    place, _, columns = location_and_columns.partition(": ")
    return place, columns


def _find_path_and_columns(location_and_columns: str) -> tuple[Path, ColumnChoice]:
    """Return (full path, columns) of the file or folder that has a user's data.

    A relative path is looked for in the working folder, then in the project. Where
    neither has it, the path in the working folder is returned. A data set of the
    Hugging Face hub is downloaded at the first call and reused later. Raises Refused
    for a malformed name, and where the data set has no training rows.

    location_and_columns: the line that names a user's data, such as "reviews.csv: body,
    stars", "hub:OWNER/NAME" or "hub:OWNER/NAME/CONFIGURATION"."""
    location, columns = _parse_location_and_columns(location_and_columns)
    if not location.startswith(HUB):
        return paths.resolve_user_path(location), columns
    name = location.removeprefix(HUB)
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*){0,2}", name):
        raise Refused(
            f"no data set {location!r}: name one as {HUB}OWNER/NAME or {HUB}OWNER/NAME/PART"
        )
    folder = paths.DATA / "hub" / name
    if folder.exists() and not _is_saved_dataset(folder):
        folder /= "default"  # The folder has parts of this data set, fetched by name.
    if not folder.exists():
        dataset = lines.download_dataset(name)
        if "train" not in dataset:
            given = ", ".join(map(str, dataset))
            raise Refused(f"{name} has no split train, but {given}: name another")
        with disk.write_atomically(folder, accepts_existing_folder=True) as made:
            dataset.save_to_disk(made)
    return folder, columns


def _is_saved_dataset(location: Path) -> bool:
    return any((location / name).is_file() for name in SAVED)


def _match_names_to_splits(
    location: Path | str, files_or_rows_by_name: Mapping[str, T]
) -> tuple[dict[SplitName, T], list[Remark]]:
    """Find out by name which parts of a data set are training, dev and test rows.

    Returns ({"train", "dev" or "test": file or rows}, remarks for the user on names
    that fit no split). A name such as "valid.csv" or "validation" means "dev". Raises
    Refused where two names are of one split, such as "val" and "dev".

    location: the path of the data, for errors.
    files_or_rows_by_name: {name of a file or split: file or rows}."""
    by_split, names, rest = {}, {}, []
    for name, part in files_or_rows_by_name.items():
        split = SPLITS.get(Path(name).stem.lower())
        if split in names:
            fault = f"both {names[split]} and {name}"
            raise make_file_content_error(
                location, fault, f"one table of {split} rows", "move one away"
            )
        if split:
            by_split[split], names[split] = part, name
        else:
            rest.append(name)
    return by_split, [f"not read: {', '.join(rest)}"] * bool(rest)


def _find_split_files(path: Path) -> tuple[dict[SplitName, Path], list[Remark]]:
    """Return the files of a user's data by split, and a remark on files of no split.

    The result is ({"train", "dev" or "test": path}, remarks for the user). A single
    file has the training rows. In a folder the names of the files say which split they
    have. Raises Absent where there is no training file.

    path: the path of the file or folder."""
    location = str(path)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return {"train": path}, []
    tables = {
        file.name: file
        for file in sorted(path.glob("[!.]*"))
        if file.is_file() and file.suffix.lower() in SUFFIXES
    }
    split_paths, remarks = _match_names_to_splits(location, tables)
    if "train" in split_paths:
        order = ("train", "dev", "test")
        return {
            name: split_paths[name] for name in order if name in split_paths
        }, remarks
    if tables:
        given = f"no file train in {location!r}, but {', '.join(tables)}"
        first = next((name for name in tables if "train" in name.lower()), [*tables][0])
        file = shlex.quote(str(path / first))
        raise Absent(f"{given}; fix: name one so, or name a file: --data {file}")
    kinds = f"a {', '.join(SUFFIXES)} file, a folder with train and dev files of these kinds"
    why, sheet = "nothing lies there", ""
    if path.is_file():
        why, sheet = "another ending", "; a spreadsheet is saved as CSV first"
    elif path.is_dir():
        names = sorted(file.name for file in path.iterdir())
        why = f"a folder of {', '.join(names[:4])}" if names else "an empty folder"
    raise Absent(f"no data {location!r} ({why}): name one of {kinds}, {HUB}NAME{sheet}")


@lru_cache(8)
def _read_files_cached(
    path: Path, column_choice: ColumnChoice, *file_digests: str
) -> UserData:
    """Read a user's file or folder: task, rows by split, and remarks for the user.

    The result is cached for the same arguments. Raises Refused for a malformed row, and
    for too few rows.

    path: the full path of the file or folder.
    column_choice: the columns to read, such as "body, stars: scores", or "".
    file_digests: the digests of the files, a part of the cache's key, so that changed
    files are read again."""
    location = str(path)
    if _is_saved_dataset(path):
        from datasets import load_from_disk

        dataset: Any = load_from_disk(location)
        return read_dataset(dataset, column_choice, location)
    split_paths, remarks = _find_split_files(path)
    if not column_choice and all(map(_has_squad_layout, split_paths.values())):
        questions = {
            split: squad.read_questions(file) for split, file in split_paths.items()
        }
        return _convert_questions_to_user_data(location, questions, remarks)
    if len(split_paths) > 1 or remarks:
        names = [f"{split} {file.name}" for split, file in split_paths.items()]
        remarks.insert(0, f"files: {', '.join(names)}")
    tables = {}
    for split, file in split_paths.items():
        is_quoted = file.suffix.lower() == ".tsv" and lines.has_quoted_cells(file)
        blank: list[str] = []
        tables[split] = lines.read_table_file(
            file, ".csv" if is_quoted else None, blank
        )
        if blank:
            count = f"{len(blank)} blank line{'s' * (len(blank) > 1)}"
            remarks.append(f"left out {count}, such as {Path(blank[0]).name}")
        if is_quoted:
            remarks.append(f"{file.name} has its cells in quotes")
    return _convert_tables_to_user_data(location, tables, {}, remarks, column_choice)


def _convert_tables_to_user_data(
    location: str,
    table_by_split: Mapping[SplitName, list[LocationAndCells]],
    label_kind_by_column: Mapping[ColumnName, ClassesOrScores],
    remarks: list[Remark],
    column_choice: ColumnChoice,
) -> UserData:
    """Turn a user's tables into task, rows by split, and remarks for the user.

    The columns of texts and label are found by their names and values, or as the user
    named them. Raises Refused where columns, labels or rows are not clear.

    location: the path of the data, for the task's name and for errors.
    table_by_split: {split name: table, a list of (file and line, cells)}.
    label_kind_by_column: {column: "classes" or "scores"}, for columns whose type in a
    `datasets.Dataset` decides it; {} for files.
    remarks: sentences for the user on how the files were read.
    column_choice: the columns that the user named, such as "body, stars: scores", or
    ""."""
    chosen, kind = roles.parse_columns_and_label_kind(column_choice)
    columns, unused = roles.find_text_and_label_columns(
        location, table_by_split["train"], chosen
    )
    *texts, label = columns
    known_kind = kind or label_kind_by_column.get(label, "")
    layout = {"texts": [[name] for name in texts], "label": [label]}
    rows = {}
    for split, body in table_by_split.items():
        if split == "test" and not _has_labels(body, label):
            remarks.append("the test rows have no labels, so they are not read")
        else:
            body = _drop_rows_with_empty_cells(body, columns, remarks)
            rows[split] = read.parse_rows(body, layout)
    coding = roles.infer_label_coding(location, label, known_kind, rows)
    splits = {
        split: read.build_split(
            part, coding.labels, lambda row: coding.encode_label(row.label)
        )
        for split, part in rows.items()
    }
    metrics = ("accuracy", "matthews") if coding.labels else ("spearman", "pearson")
    names = roles.format_column_names(columns)
    about, *more = coding.lines
    first = f"texts: {', '.join(texts)}; label: {label}, {about}"
    if unused:
        more.append(f"left out: {', '.join(unused)}")
    if coding.is_kind_ambiguous:
        other = roles.SCORES if coding.labels else roles.CLASSES
        typed = f"{make_path_relative_to_working_folder(location)}: {names}: {other}"
        more.append(f"to have {other}: --data {shlex.quote(typed)}")
    name, pair = f"{location}: {names}: {coding.kind}", len(texts) == 2
    task = Task(name, pair, coding.labels, metrics, scale=coding.scale)
    return _check_rows_and_draw_development_rows(
        location, task, splits, [first, *more, *remarks]
    )


def _drop_rows_with_empty_cells(
    header_and_rows: list[LocationAndCells],
    required_columns: Sequence[ColumnName],
    remarks_to_extend: list[Remark],
) -> list[LocationAndCells]:
    """Drop the rows of a table that have an empty cell in one of the required columns.

    A model cannot learn from a row without text or label, but many such rows point to a
    wrong column: Refused is raised if they are more than 5 % of the rows.

    header_and_rows: the table, a list of (file and line, cells), with the header first.
    remarks_to_extend: sentences for the user, to which one on dropped rows is added."""
    (file, head), *body = header_and_rows
    full, empty, gaps = [], [], Counter()
    for place, cells in body:
        lacking = [
            name
            for name, cell in zip(head, cells, strict=False)
            if name in required_columns and not convert_cell_to_text(cell, place)
        ]
        gaps.update(lacking[:1])
        (empty if lacking else full).append((place, cells))
    if empty:
        where = f"such as {Path(empty[0][0]).name}"
        counts = ", ".join(f"{count} in {name}" for name, count in gaps.items())
        about = f"{len(empty)} of {len(body)} rows with an empty cell ({counts})"
        if len(empty) > MAX_SHARE_OF_DROPPED_ROWS * len(body):
            raise make_file_content_error(
                file.rpartition(":")[0] or file,
                f"{about}, {where}",
                f"{MAX_SHARE_OF_DROPPED_ROWS:.0%} at most",
                "fill them in, drop these rows, or name other columns",
            )
        remarks_to_extend.append(f"left out {about}, {where}")
    return [header_and_rows[0], *full]


def _has_labels(header_and_rows: list[LocationAndCells], label_column: str) -> bool:
    """Return whether the rows of a table have labels.

    Test files of public contests have no label column, or only -1 in it. Such files are
    not read, because models cannot be scored on them."""
    (_, head), *body = header_and_rows
    return any(
        convert_cell_to_text(cell, place) not in ("", "-1", "-1.0")
        for place, cells in body
        for name, cell in zip(head, cells, strict=False)
        if name == label_column
    )


def _has_squad_layout(path: Path) -> bool:
    """Return whether a file has questions about passages, in one of SQuAD's layouts:
    data[].paragraphs[] of the official files, or the hub's row for each question."""
    if path.suffix.lower() not in (".json", ".jsonl", ".parquet"):
        return False
    value = lines.read_json_or_parquet_file(path)
    articles = value.get("data") if isinstance(value, dict) else value
    first = articles[0] if isinstance(articles, list) and articles else None
    needed_keys = squad.ROW_KEYS if isinstance(value, list) else {"paragraphs"}
    return isinstance(first, dict) and needed_keys <= first.keys()


def _convert_questions_to_user_data(
    location: str,
    questions_by_split: Mapping[SplitName, Sequence[squad.Question]],
    remarks: list[Remark],
) -> UserData:
    """Turn a user's questions about passages into task, rows by split, and remarks.

    Questions with an answer that is not in the passage at the given position are left
    out. Raises Refused where they are more than 5 % of a split. A test file without any
    answer is not read where training questions have answers, as contests keep theirs.

    location: the path of the data, for the task's name.
    remarks: sentences for the user on how the files were read."""
    splits = {}
    can_be_answered = any(row.answers for row in questions_by_split["train"])
    for split, rows in questions_by_split.items():
        if split == "test" and can_be_answered and not any(r.answers for r in rows):
            remarks.append("the test questions have no answers, so they are not read")
            continue
        placed = [row for row in rows if row.has_correct_answer_starts]
        if lost := [row for row in rows if not row.has_correct_answer_starts]:
            count = f"{len(lost)} of {len(rows)} {split} questions"
            first = "; ".join(map(str, lost[:3]))
            if len(lost) > MAX_SHARE_OF_DROPPED_ROWS * len(rows):
                fault = f"the answers of {count} stand elsewhere, such as: {first}"
                fix = "count `answer_start` in characters of the passage, from 0"
                raise make_file_content_error(location, fault, squad.PLACED, fix)
            remarks.append(f"left out {count}: {first}")
        if not placed:
            raise make_file_content_error(location, f"no {split} questions", "some")
        splits[split] = squad.build_split(placed)
    task = Task(location, True, (), ("span_f1", "exact"), True)
    about = "questions about passages; label: a span of the passage, or no answer"
    return _check_rows_and_draw_development_rows(
        location, task, splits, [about, *remarks]
    )


def _check_rows_and_draw_development_rows(
    location: str, task: Task, splits: dict[SplitName, Split], remarks: list[Remark]
) -> UserData:
    """Check the rows of a user's task, and draw development rows where there are none.

    Returns the task, all rows by split, and the remarks, with warnings added about rows
    of other splits that are training rows too, and about test rows that are development
    rows. Raises Refused for fewer than 40 different rows, where all rows of a split
    stand in an earlier one, and for a split whose scores are all the same.

    location: the path of the data, for errors.
    remarks: sentences for the user on how the data were read."""
    train, cautions = splits["train"], []
    different = {*_list_text_pairs(train)}
    if repeated := len(train) - len(different):
        why = "kept, all on one side of any split"
        remarks.append(f"rows that repeat the texts of another: {repeated} ({why})")
    if len(different) < LEAST:
        fault = f"{len(different)} different rows"
        raise make_file_content_error(location, fault, f"at least {LEAST}", "add some")
    if task.labels:
        labelled = {*zip(_list_text_pairs(train), train.y.tolist(), strict=True)}
        if contradicting := len(labelled) - len(different):
            cautions.append(
                f"{contradicting} labels contradict that of another row with the same texts"
            )
    for split, earlier, name in (
        ("dev", "train", "training"),
        ("test", "train", "training"),
        ("test", "dev", "development"),
    ):
        rows = _list_text_pairs(splits[split]) if split in splits else []
        known = {*_list_text_pairs(splits[earlier])} if earlier in splits else {}
        if not (same := sum(texts in known for texts in rows)):
            continue
        if same == len(rows):
            fault = f"every {split} row is a {name} row"
            fix = f"take rows for {split} that no {name} row has"
            raise make_file_content_error(location, fault, "other rows", fix)
        cautions.append(f"{same} of {len(rows)} {split} rows are {name} rows too")
    if "dev" not in splits:
        splits |= _divide_into_train_and_dev(train)
        remarks.append(
            f"development rows are drawn: {len(splits['dev'])} of {len(train)}"
        )
        if not all(map(len, splits.values())):
            fault = f"{len(train)} rows that cannot be divided into training and development rows"
            fix = "add a file dev" + ", or questions about other passages" * task.span
            raise make_file_content_error(location, fault, "texts on both sides", fix)
    codes = np.unique(splits["dev"].y)
    if task.labels and len(codes) == 1:
        cautions.append(
            f"all {len(splits['dev'])} development rows are of the class "
            f"{task.labels[codes[0]]}: add rows of others, since no model can be above "
            "the most frequent class"
        )
    if not (task.labels or task.span):
        for split, rows in splits.items():
            if np.ptp(rows.y) == 0:
                fault = f"all {len(rows)} rows of {split} have one score"
                fix = "add other rows, since nothing correlates with these"
                raise make_file_content_error(
                    location, fault, "scores that differ", fix
                )
    return UserData(task, splits, (*remarks, *cautions), tuple(cautions))


def _list_text_pairs(rows: Split) -> list[tuple[str, str]]:
    return list(zip(rows.a, rows.b or rows.a, strict=True))


def _divide_into_train_and_dev(rows: Split) -> dict[SplitName, Split]:
    """Divide rows at random into {"train", "dev": Split}.

    It is for a user's data without development rows. A fifth of the different texts, at
    most 1,000, goes to "dev". Rows with the same texts stay together, and so do all
    questions about one passage, so that no development text was trained on. Rows of a
    class that would have no training row stay in "train". The choice is the same in
    every call."""
    texts = rows.b if rows.answers and rows.b else _list_text_pairs(rows)
    different = list(dict.fromkeys(texts))
    order = np.random.default_rng(SEED).permutation(len(different))
    count = max(1, min(MOST_DEV, round(DEV * len(different))))
    held = {different[i] for i in order[:count]}
    if rows.y.dtype == np.int64 and rows.y.ndim == 1:
        learned = {y for y, text in zip(rows.y, texts, strict=True) if text not in held}
        held -= {
            text for y, text in zip(rows.y, texts, strict=True) if y not in learned
        }
    dev = np.array([text in held for text in texts])
    return {
        "train": rows.select_rows(np.flatnonzero(~dev)),
        "dev": rows.select_rows(np.flatnonzero(dev)),
    }
