"""This module reads a user's own data: a file, a folder with training and development
files, or a data set of the hub. A line names them:

    reviews.tsv                              has a header, one or two columns of text, one `label`
    reviews.csv: title, body, stars          names its columns: texts first, then the label
    reviews/                                 has train.<ending> and dev.<ending>
    hub:nyu-mll/glue/rte: sentence1, sentence2, label
    questions.json                           has questions about passages in SQuAD's layout

Where the line names no columns, the label is the first column with a name in LABELS.
All other columns but an index are text. Labels with fractions or with many different
numbers are scores; all others are classes. Scores are learned from 0, the lowest, to 5,
the highest, as in STS-B, and shown on the scale of the file (`Task.scale`). Where there
is no development file, a fifth of the different texts is drawn as development rows. A
file `test` in a folder is read only for the model that is chosen in the end. The name
of a task is its line, with the full path and all columns."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib.core import disk, paths
from lib.core.names import Absent, Refused, known
from lib.data import Split, Task, read, squad
from lib.data.lines import (
    SUFFIXES,
    Table,
    cell_text,
    hub,
    malformed,
    number,
    short,
    table,
    write_rows,
)

HUB = "hub:"
# A file with one of these names holds the split.
SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "test": "test"}
LABELS = ("label", "labels", "class", "target", "score", "stars", "rating", "gold")
# Columns with these names are no text. pandas writes an index under one of the last
# three.
IGNORED = ("id", "idx", "index", "guid", "", "unnamed: 0", "__index_level_0__")
# More than MOST_CLASSES different labels are no classes. More than MOST_GRADES numbers
# are scores.
MOST_CLASSES, MOST_GRADES = 100, 20
# LEAST different rows are needed. DEV is the share of drawn development rows, MOST_DEV
# their limit.
LEAST, DEV, MOST_DEV = 40, 0.2, 1000
# The draw of development rows has this seed.
SEED = 0


def title(name: str) -> str:
    """Return the title of a task in tables: the name of its file or folder."""
    place = Path(name.partition(": ")[0])
    return place.name + "/" * place.is_dir()


def files(name: str) -> list[Path]:
    """Return the paths of the files from which a task is read."""
    return list(_files(_place(name.partition(": ")[0])).values())


def task(line: str) -> Task:
    """Return the Task that a user's line means; the name of a task is such a line.

    A path may be relative to the working folder or to the project. Raises
    FileNotFoundError where the files are missing, and ValueError with file and row
    where columns or rows are not clear."""
    return _read(line)[0]


def load(name: str) -> dict[str, Split]:
    """Return {split name: Split} of a task, with the splits "train" and "dev", and
    "test" where its folder has such a file. Raises Refused with file and row where a
    row is malformed."""
    return dict(_read(name)[1])


def _files(place: str) -> dict[str, Path]:
    """Return {split name: Path} of one file or of the files in a folder. Raises
    FileNotFoundError where there is no training file."""
    path, split_paths = Path(place), {}
    if path.suffix in SUFFIXES and path.is_file():
        split_paths["train"] = path
    for name, split in SPLITS.items():
        for file in (path / (name + end) for end in SUFFIXES):
            if file.is_file():
                split_paths[split] = file
    if "train" not in split_paths:
        kinds = f"a {', '.join(SUFFIXES)} file, a folder with train and dev files of these kinds"
        raise Absent(f"no data {place!r}: name one of {kinds}, {HUB}NAME")
    return split_paths


def _fetched(place: str) -> Path:
    """Return the folder with the labelled rows of "hub:NAME", which are fetched once.
    Raises ValueError where the data set has no training rows."""
    name = place.removeprefix(HUB)
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*){0,2}", name):
        raise Refused(
            f"no data set {place!r}: name one as {HUB}OWNER/NAME or {HUB}OWNER/NAME/PART"
        )
    if not (folder := paths.DATA / "hub" / name).exists():
        by_split = {split: rows for split, rows in hub(name).items() if rows}
        if "train" not in by_split:
            raise Refused(
                f"{name} has no split train, but {', '.join(by_split)}: name another"
            )
        with disk.atomic_path(folder) as made:
            for split, rows in by_split.items():
                write_rows(made / f"{split}.jsonl", rows)
    return folder


def _chosen(place: str, rows: Table, column_names: list[str]) -> list[str]:
    """Return the names of the text columns, then of the label column.

    place: the path of the data, for errors. rows: the training table. column_names: the
    columns that the user named, if any; else they are recognised by their names. Raises
    Refused where they are not one or two texts and a label."""
    header = [cell_text(name, place) for name in rows[0][1]]
    for name in column_names:
        known(f"column of {place}", name, header)
    label = next((name for name in header if name.lower() in LABELS), "")
    others = [name for name in header if name.lower() not in IGNORED and name != label]
    chosen = column_names or [*others, label]
    is_clear = all(name and header.count(name) == 1 for name in chosen)
    if not is_clear or len(chosen) not in (2, 3):
        columns = f"columns {', '.join(map(short, header))}"
        expected = (
            f"one or two of text and one of labels, such as {LABELS[0]!r}, each once"
        )
        fix = f"name them: {Path(place).name}: TEXT, LABEL"
        raise malformed(place, columns, expected, fix)
    return chosen


def _place(place: str) -> str:
    """Return the full path of a line's file or folder; that of the hub is fetched
    first."""
    return str(_fetched(place) if place.startswith(HUB) else paths.resolve_path(place))


def _read(line: str) -> tuple[Task, dict[str, Split]]:
    """Return what `_parsed` does. Files that have changed are read again in the same
    process."""
    place, _, columns = line.partition(": ")
    place = _place(place)
    return _parsed(place, columns, *map(disk.digest, _files(place).values()))


@lru_cache(8)
def _parsed(place: str, columns: str, *_: object) -> tuple[Task, dict[str, Split]]:
    """Return (Task, {split name: Split}) of a user's files. Raises Refused where a row
    is malformed or where there are too few."""
    split_paths = _files(place)
    if not columns and all(map(_has_passages, split_paths.values())):
        task = Task(place, True, (), ("span_f1", "exact"), True)
        splits = {
            split: squad.split("SQuAD2", [path]) for split, path in split_paths.items()
        }
    else:
        tables = {split: table(path) for split, path in split_paths.items()}
        column_names = columns.split(", ") if columns else []
        *texts, label = chosen = _chosen(place, tables["train"], column_names)
        layout = {"texts": [[name] for name in texts], "label": [label]}
        lined = {split: read.rows(rows, layout) for split, rows in tables.items()}
        labels, scale, code = _coded(place, label, sum(lined.values(), []))
        splits = {
            split: read.split_of(rows, labels, code) for split, rows in lined.items()
        }
        metrics = ("accuracy", "matthews") if labels else ("spearman", "pearson")
        name = f"{place}: {', '.join(chosen)}"
        task = Task(name, len(texts) == 2, labels, metrics, scale=scale)
    if (count := len({*_texts(splits["train"])})) < LEAST:
        fault = f"{count} different rows"
        raise malformed(place, fault, f"at least {LEAST}", "add some")
    if "dev" not in splits:
        splits |= _drawn(splits["train"])
    return task, splits


def _has_passages(path: Path) -> bool:
    """Return whether a file has SQuAD's layout."""
    return path.suffix == ".json" and '"paragraphs"' in path.read_text()


def _texts(rows: Split) -> list[tuple[str, str]]:
    return list(zip(rows.a, rows.b or rows.a, strict=True))


def _coded(
    place: str, column: str, rows: list[read.Row]
) -> tuple[tuple[str, ...], tuple[float, float], Callable[[read.Row], float]]:
    """Return (class names, or () for scores; the scores that 0 and 5 stand for; f(row)
    -> class code or score).

    place, column: the path and the label column, for errors. rows: those of all splits.
    Raises ValueError with the row where a label among scores is no finite number, or
    where a class is called "nan". Raises it too where there are fewer than two
    different labels, or too many."""
    labels = {row.label for row in rows}
    numbers = {label: n for label in labels if (n := number(label)) is not None}
    is_graded = len(numbers) > MOST_GRADES or any(n % 1 for n in numbers.values())
    is_score = is_graded and 2 * len(numbers) > len(labels)
    for row in rows:
        value = numbers.get(row.label, None if is_score else 0.0)
        if value is None or not abs(value) < 1e30:
            kind = (
                "a finite number, as others are" if is_score else "the name of a class"
            )
            fault = f"label {short(row.label)}"
            raise malformed(row.place, fault, kind, "mend or drop the row")
    different = set(numbers.values()) if is_score else labels
    most = len(rows) if is_score else min(MOST_CLASSES, len(rows) // 2)
    if not 2 <= len(different) <= most:
        fault = f"{len(different)} different labels, such as {short(min(labels))}"
        fix = f"name the columns, the label last: {Path(place).name}: TEXT, LABEL"
        kinds = f"2 to {MOST_CLASSES} classes, or numbers"
        raise malformed(f"{place}, column {column}", fault, kinds, fix)
    if is_score:
        low, high = min(numbers.values()), max(numbers.values())
        scale, span = (low, high), high - low
        return (), scale, lambda row: 5 * (numbers[row.label] - low) / span
    names = tuple(sorted(labels, key=lambda text: (numbers.get(text, 0), text)))
    return names, Task.scale, lambda row: names.index(row.label)


def _drawn(rows: Split) -> dict[str, Split]:
    """Divide rows into {"train", "dev"}. Rows with the same texts go to the same side,
    and so do all questions about one passage."""
    texts = rows.b if rows.answers and rows.b else _texts(rows)
    different = list(dict.fromkeys(texts))
    order = np.random.default_rng(SEED).permutation(len(different))
    count = max(1, min(MOST_DEV, round(DEV * len(different))))
    held = {different[i] for i in order[:count]}
    dev = np.array([text in held for text in texts])
    return {
        "train": rows.take(np.flatnonzero(~dev)),
        "dev": rows.take(np.flatnonzero(dev)),
    }
