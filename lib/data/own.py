"""A reader's own rows: a file, a folder with training and development files, or a data set of the
hub.

    reviews.tsv                              a header line; one or two columns of text, one label
    reviews.csv: title, body, stars          the columns by name: texts first, then the label
    reviews/                                 train.<tsv|csv|parquet> and dev.<the same>
    hub:nyu-mll/glue/rte: sentence1, sentence2, label

The label is a class or, where it has fractions or many numbers, a score, which is brought to 0 to 5
as STS-B's scores are. Where there is no development file, a fifth of the different texts is drawn.
The name of a task is the line above with its full path and its columns.
"""

import csv
import io
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from lib import paths
from lib.data import Split, Task
from lib.data.lines import decoded, hub, malformed, short
from lib.spec import known

HUB = "hub:"
SUFFIXES = (".tsv", ".csv", ".parquet")
SPLITS = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val")}
LABELS = ("label", "labels", "class", "target", "score", "stars", "rating", "gold")
IGNORED = ("id", "idx", "index", "guid", "")
MOST_CLASSES, MOST_GRADES = 100, 20  # more names are no classes; more numbers are scores
LEAST, DEV, MOST_DEV = 40, 0.2, 1000  # rows at all; share and number of drawn development rows
SEED = 0  # of the drawn development rows
TASKS = ()  # none by name: each is read from its file


def task_of(line):
    """The name of the task that a reader's line means.

    A path may be relative to the working folder or to the project. Raises FileNotFoundError where
    nothing is there, ValueError where the columns are not clear.
    """
    place, _, columns = line.partition(": ")
    if not place.startswith(HUB):
        place = str(paths.meant(place))
    wanted = [name.strip() for name in columns.split(",")] if columns else []
    return f"{place}: {', '.join(_columns(place, list(_frames(place)['train']), wanted))}"


def title(name):
    """What tables call a task: the name of its file, folder or data set."""
    place = name.partition(": ")[0]
    if place.startswith(HUB):
        return place.removeprefix(HUB)
    return Path(place).name + "/" * Path(place).is_dir()


def files(name):
    """The files that a task is read from; none of the hub."""
    place = name.partition(": ")[0]
    return [] if place.startswith(HUB) else list(_files(place).values())


def task(name):
    """The Task of a name that `task_of` gave."""
    return _read(name)[0]


def load(name):
    """{"train", "dev"} as Splits. Raises ValueError with file and row where a row is malformed."""
    return dict(_read(name)[1])


# ---- files ----
def _files(place):
    """{split: Path}: one file, or those of a folder."""
    path = Path(place)
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise malformed(
                path, f"a {path.suffix or 'nameless'} file", ", ".join(SUFFIXES), "save it as one"
            )
        return {"train": path}
    found = {
        split: file
        for split, names in SPLITS.items()
        for file in [path / (name + suffix) for name in names for suffix in SUFFIXES]
        if file.is_file()
    }
    if "train" not in found:
        raise FileNotFoundError(
            f"no data {place!r}: name a {', '.join(SUFFIXES)} file, a folder with train and dev "
            f"files of these kinds, or a data set of the hub as {HUB}NAME"
        )
    return found


def _frames(place):
    """{split: DataFrame} of a file, a folder or a data set of the hub."""
    if place.startswith(HUB):
        return _from_hub(place.removeprefix(HUB))
    return {split: _frame(path) for split, path in _files(place).items()}


def _frame(path):
    import pandas as pd

    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    tabs = path.suffix == ".tsv"
    how = {"sep": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
    errors = pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning
    try:
        text = io.StringIO(decoded(path))
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            return pd.read_csv(text, dtype=str, keep_default_na=False, index_col=False, **how)
    except errors as error:
        long = isinstance(error, pd.errors.ParserWarning)
        found = "a first row with more fields than the header" if long else str(error).strip()
        rows = f"a header line, then rows with {'tabs' if tabs else 'commas'} between fields"
        raise malformed(path, found, rows, "mend that line") from None


@cache
def _from_hub(name):
    """{split: DataFrame} of a data set, `owner/name` or `owner/name/configuration`."""
    parts, fix = name.split("/"), "save its rows as Parquet and name the file"
    there = hub(name, fix, "/".join(parts[:2]), *parts[2:3])
    found = {
        split: next((there[name] for name in names if name in there), None)
        for split, names in SPLITS.items()
    }
    if found["train"] is None:
        raise ValueError(f"the hub's {name} has no split train, but {', '.join(there)}")
    return {split: _named(rows) for split, rows in found.items() if rows is not None}


def _named(rows):
    """A split of the hub as a DataFrame, with the names of its classes for their codes."""
    frame = rows.to_pandas()
    for column, feature in rows.features.items():
        if names := getattr(feature, "names", None):
            frame = frame[frame[column] >= 0]
            frame[column] = [names[code] for code in frame[column]]
    return frame


# ---- columns and labels ----
def _columns(place, there, wanted):
    """The columns of the texts, then of the label: those that are wanted, or found by their names.

    Raises ValueError where they are not one or two texts and a label.
    """
    for name in wanted:
        known(f"column of {place}", name, there)
    if not wanted:
        label = next((name for name in there if name.lower() in LABELS), there[-1])
        others = [name for name in there if name != label and name.lower() not in IGNORED]
        wanted = [*others, label]
    if len(wanted) not in (2, 3):
        raise malformed(
            place,
            f"columns {', '.join(map(short, there))}",
            "one or two of text and one of labels under a header line",
            f"name them, texts first: {Path(place).name}: TEXT, LABEL",
        )
    return wanted


@cache
def _read(name):
    """(Task, {split: Split}) of a name that `task_of` gave."""
    place, _, columns = name.partition(": ")
    *texts, label = columns.split(", ")
    rows = {}
    for split, frame in _frames(place).items():
        for column in (*texts, label):
            known(f"column of {split} in {place}", column, list(frame))
        cells = [list(map(_cell, frame[column])) for column in (*texts, label)]
        for number, row in enumerate(zip(*cells, strict=True), 1):
            if not all(row):
                empty = (*texts, label)[row.index("")]
                where = f"{place}, {split} row {number}"
                raise malformed(where, f"nothing in column {empty}", "text", "fill or drop it")
        rows[split] = cells
    labels, coded = _labels(place, label, {split: cells[-1] for split, cells in rows.items()})
    if len(rows["train"][0]) < LEAST:
        found = f"{len(rows['train'][0])} rows"
        raise malformed(place, found, f"at least {LEAST} of them", "add some")
    metrics = ("accuracy", "matthews") if labels else ("spearman", "pearson")
    found = {}
    for split, cells in rows.items():
        y, b = coded(cells[-1]), cells[1] if len(texts) == 2 else None
        found[split] = Split(cells[0], b, y, np.arange(len(y)))
    if "dev" not in found:
        found = _drawn(found["train"])
    return Task(name, len(texts) == 2, labels, metrics), found


def _cell(value):
    """A cell as text; nothing for what is not there."""
    return "" if value is None or value != value else " ".join(str(value).split())


def _labels(place, column, cells):
    """(class names, or () for scores; f(cells) -> codes or scores [N])."""
    there = {text for each in cells.values() for text in each}
    try:
        numbers = {text: float(text) for text in there}
    except ValueError:
        numbers = {}
    if numbers and (len(there) > MOST_GRADES or any(n % 1 for n in numbers.values())):
        low, high = min(numbers.values()), max(numbers.values())
        return (), lambda found: np.float32([5 * (numbers[x] - low) / (high - low) for x in found])
    if not 2 <= len(there) <= MOST_CLASSES:
        raise malformed(
            f"{place}, column {column}",
            f"{len(there)} different labels, such as {', '.join(map(short, sorted(there)[:2]))}",
            f"2 to {MOST_CLASSES} classes, or numbers",
            f"name the columns, the label last: {Path(place).name}: TEXT, LABEL",
        )
    names = tuple(sorted(there, key=lambda text: (numbers.get(text, 0), text)))
    codes = {text: code for code, text in enumerate(names)}
    return names, lambda found: np.array([codes[text] for text in found], np.int64)


def _drawn(rows):
    """{"train", "dev"} of one Split. All rows of the same texts go to the same side."""
    texts = list(zip(rows.a, rows.b or rows.a, strict=True))
    different = list(dict.fromkeys(texts))
    count = min(MOST_DEV, round(DEV * len(different)))
    order = np.random.default_rng(SEED).permutation(len(different))
    held = {different[i] for i in order[:count]}
    dev = np.array([text in held for text in texts])
    return {"train": rows.take(np.flatnonzero(~dev)), "dev": rows.take(np.flatnonzero(dev))}
