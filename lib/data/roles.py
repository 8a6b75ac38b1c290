"""This module finds out which columns of a user's table are texts and which one is the
label, and whether labels are classes or scores.

A column is a text if its name says so, or the user names it. Ids, languages and dates
are left out, and so are columns whose value follows from the label, such as the name of
a class beside its code. Where the role of another column is not clear, an error is
raised. Its message has the command-line option by which the user names the columns."""

import csv
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lib.core.names import Refused, check_known_name
from lib.core.types import ClassName, SplitName
from lib.data import LowestAndHighestScore
from lib.data.lines import (
    NUMBER,
    LocationAndCells,
    guess_csv_delimiter,
    make_file_content_error,
    make_path_relative_to_working_folder,
    parse_number,
    quote_for_message,
    read_lines,
)
from lib.data.read import ParsedRow

ColumnName: TypeAlias = str
ColumnNameOrPlaceholder: TypeAlias = str  # The placeholder is "LABEL".
# Columns, texts first and the label last, and perhaps the kind of label, as a user types
# them: "title, body, stars: scores".
ColumnChoice: TypeAlias = str
ClassesOrScores: TypeAlias = str  # Kind of label: "classes" or "scores".
ClassesScoresOrEmpty: TypeAlias = str
Remark: TypeAlias = str  # Sentence for the user.
UnusedColumnsAndReason: TypeAlias = str
LABELS = {
    *("label", "labels", "class", "target", "score", "stars", "rating", "gold"),
    *("gold_label", "sentiment", "category", "intent", "emotion", "similarity"),
}
# Words in the names of text columns. LETTERS: the names that `lib.dataset` gives the
# columns of the first and the second text of a pair.
TEXTS = {
    *("text", "sentence", "question", "premise", "hypothesis", "review"),
    *("title", "body", "tweet", "content", "utterance", "query", "passage", "document"),
    *("context", "answer", "comment", "message", "headline", "abstract", "summary"),
    *("description", "statement", "claim", "evidence", "response", "post", "phrase"),
    *("string", "caption", "quote", "transcript", "article", "story", "email"),
}
LETTERS = ("a", "b")
# Words in the names of columns that are neither texts nor the label.
OTHERS = {
    *("id", "idx", "index", "guid", "uid", "uuid", "key", "no", "number", "line"),
    *("lang", "language", "locale", "date", "time", "timestamp", "datetime", "year"),
    *("month", "day", "created", "updated", "url", "link", "source", "file", "author"),
    *("filename", "user", "username", "split", "fold", "genre", "type", "length"),
    *("len", "count", "confidence", "label", "class", "target", "score", "rating"),
}
MOST_WORDS_OF_METADATA = 4  # Words of a cell, on average.
# Names of columns that only number the rows. pandas writes the last three.
INDEX = ("#", "", "unnamed: 0", "__index_level_0__")
CLASSES, SCORES = "classes", "scores"
# MOST_CLASSES: largest number of classes of a task. MOST_GRADES: labels that are whole
# numbers with gaps between them, such as 1, 3 and 10, are classes if there are at most
# this many different ones, and else scores of a regression.
MOST_CLASSES, MOST_GRADES = 100, 20
# A class with a single row is reported to the user as a probable mistake where classes
# have at least this many rows on average.
MIN_MEAN_ROWS_PER_CLASS = 10
# Largest share of rows that may be left out because of an empty cell, or because the
# answer is not at its position in the passage; more than that raises an error.
MAX_SHARE_OF_DROPPED_ROWS = 0.05
# Patterns of several labels in one cell, and of a number with separators between its
# thousands, such as "1,500", which could also be a decimal.
SEVERAL = re.compile(r"\d+(?:(?:,\s+\d+)+|(?:,\s*\d+){2,})")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+")


@dataclass(frozen=True)
class LabelCoding:
    """A LabelCoding maps the label texts of a user's column to numbers for training.

    The numbers are class codes, or scores of a regression.

    kind: "classes" or "scores".
    labels: the class names in the order of their codes; () for scores.
    scale: the lowest and the highest score in the file, which become 0 and 5; for
    classes it has no meaning.
    encode_label: function from a label's text to its class code or its score from 0 to
    5.
    lines: sentences for the user, the first a short summary.
    is_kind_ambiguous: whether the labels are numbers that could also be read as the
    other kind, so that the user is shown how to choose it."""

    kind: ClassesOrScores
    labels: tuple[ClassName, ...]
    scale: LowestAndHighestScore
    encode_label: Callable[[str], float]
    lines: tuple[Remark, ...]
    is_kind_ambiguous: bool


def format_column_names(names: Iterable[str]) -> str:
    """Return the names of columns as a user types them: one with a comma in quotes."""
    return ", ".join(f'"{name}"' if "," in name else name for name in names)


def parse_columns_and_label_kind(
    column_choice: ColumnChoice,
) -> tuple[list[ColumnName], ClassesScoresOrEmpty]:
    """Return (column names, kind of label) of the text by which a user chooses columns.

    "title, body, stars: scores" gives (["title", "body", "stars"], "scores"): texts
    first, the label last. The kind is "classes", "scores", or "" where none is given. A
    name with a comma must be in double quotes."""
    match = re.fullmatch(rf"(.*):\s*({CLASSES}|{SCORES})\s*", column_choice, re.I)
    names, kind = match.groups() if match else (column_choice, "")
    cells = next(csv.reader([names], skipinitialspace=True), [])
    return [cell.strip() for cell in cells if cell.strip()], kind.lower()


def find_text_and_label_columns(
    error_location: str,
    header_and_rows: list[LocationAndCells],
    chosen_columns: Sequence[ColumnName],
) -> tuple[list[ColumnName], list[UnusedColumnsAndReason]]:
    """Find out which columns of a user's table are texts and which is the label.

    Returns (columns, unused): the names of the one or two text columns and, last, of
    the label column; and texts for the user that name the columns left out and give
    the reasons. Raises Refused where the columns are not clear; the message tells how
    to name them.

    error_location: the path of the data, for errors.
    header_and_rows: the table of training rows, a list of (file and line, cells), with
    the header first.
    chosen_columns: the columns that the user named, the label last; without any they
    are inferred from the header and from the values."""
    header = header_and_rows[0][1]
    columns = _group_cells_by_column(header, header_and_rows[1:])
    is_named = chosen_columns and {*chosen_columns} <= {*header}
    file, _, line_number = header_and_rows[0][0].rpartition(":")
    is_text_file = line_number.isdigit()  # JSON and Parquet always have names.
    if is_text_file and not is_named and _header_looks_like_data_row(header, columns):
        raise _make_missing_header_error(error_location, file, header, header_and_rows)
    if chosen_columns:
        for name in chosen_columns:
            column, _, kind = name.rpartition(":")
            if name not in header and column.strip() in header:
                fault = f"a label of the kind {quote_for_message(kind.strip())}"
                kinds = f"{CLASSES} or {SCORES}"
                raise make_file_content_error(error_location, fault, kinds, "name one")
            check_known_name(f"column of {error_location}", name, header)
        texts, labels, unclear = chosen_columns[:-1], chosen_columns[-1:], []
    else:
        labels = [name for name in header if is_label_column_name(name)]
        others = [name for name in header if name not in labels]
        texts = [name for name in others if is_text_column_name(name)]
        unclear = [name for name in others if name not in texts]
    decided = (
        _find_columns_determined_by_label(columns, labels[0])
        if len(labels) == 1
        else {}
    )
    revealing = [name for name in texts if decided.get(name, 0) > 1]
    if chosen_columns and revealing:
        text, label = map(quote_for_message, (revealing[0], labels[0]))
        fault = f"the text {text} is the label {label} in other words"
        raise make_file_content_error(
            error_location, fault, "a text that leaves it open", "leave it out"
        )
    texts = [name for name in texts if name not in revealing] or texts
    unclear = [
        name
        for name in unclear
        if name not in decided
        and (
            not is_metadata_column_name(name)
            or _has_text_name_and_long_cells(name, columns)
        )
    ]
    chosen = [*texts, *labels]
    is_clear = len(labels) == 1 and len(texts) in (1, 2) and not unclear
    if chosen_columns and not is_clear:
        raise make_file_content_error(
            error_location,
            f"{len(chosen_columns)} named column{'s' * (len(chosen_columns) > 1)}",
            "one or two texts and a label",
            "name them, the label last",
        )
    if not is_clear or any(header.count(name) > 1 for name in chosen):
        raise _make_unclear_columns_error(error_location, header, columns)
    unused: dict[str, list[str]] = {}
    for name in dict.fromkeys(header):
        if name not in chosen:
            why = _explain_unused_column(name, columns, labels[0], decided)
            unused.setdefault(why, []).append(name or "a column without a name")
    unused_texts = [f"{', '.join(names)} ({why})" for why, names in unused.items()]
    return chosen, unused_texts


def _has_text_name_and_long_cells(
    column_name: str, cells_by_column: Mapping[ColumnName, Sequence[str]]
) -> bool:
    """Return whether name and cells of a column are those of a text.

    So "user_review" with sentences is no metadata, though its name has "user"."""
    cells = cells_by_column.get(column_name, ())
    word_count = sum(len(cell.split()) for cell in cells)
    has_text_name = split_column_name_into_words(column_name) & TEXTS
    return bool(has_text_name) and word_count > MOST_WORDS_OF_METADATA * len(cells)


def _explain_unused_column(
    unused_column: str,
    cells_by_column: Mapping[ColumnName, Sequence[str]],
    label_column: str,
    value_count_by_label_determined_column: Mapping[ColumnName, int],
) -> str:
    """Return the reason why a column of a user's table is not read.

    The user is shown the reasons, to notice a column that was left out by mistake.

    cells_by_column: {column: cells} of the table.
    value_count_by_label_determined_column: {column: number of different values} of the
    columns whose value follows from the label; 1 means that the column is constant."""
    if value_count_by_label_determined_column.get(unused_column, 0) > 1:
        return "the label decides it"
    if (
        _find_columns_determined_by_label(cells_by_column, unused_column).get(
            label_column, 0
        )
        > 1
    ):
        return "it decides the label"
    if is_metadata_column_name(unused_column):
        return "no text, by its name"
    if unused_column in value_count_by_label_determined_column:
        return "always the same"
    return "not named by you"


def split_column_name_into_words(column_name: str) -> set[str]:
    """Return the words in the name of a column, in lower case.

    "reviewText2" gives "review" and "text". Words such as "review" or "id" tell whether
    a column has texts. A word with a final "s" is returned also without the "s"."""
    every = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column_name)]
    return {*every, *(word.removesuffix("s") for word in every)}


def is_label_column_name(column_name: str) -> bool:
    return re.sub(r"\W", "_", column_name.lower()) in LABELS


def is_text_column_name(column_name: str) -> bool:
    words = split_column_name_into_words(column_name)
    return column_name.lower() in LETTERS or bool(words & TEXTS and not words & OTHERS)


def is_metadata_column_name(column_name: str) -> bool:
    return column_name.lower() in INDEX or bool(
        split_column_name_into_words(column_name) & OTHERS
    )


def _header_looks_like_data_row(
    header: Sequence[ColumnName],
    cells_by_column: Mapping[ColumnName, Sequence[str]],
) -> bool:
    """Return whether the first line of a text file looks like data instead of column
    names: it has a number, a sentence or a cell that its column has again, and no usual
    name of a label column.

    cells_by_column: {column: cells} of the other lines."""
    looks = [
        NUMBER.fullmatch(name)
        or len(name.split()) > 4
        or name in cells_by_column.get(name, ())
        and not is_text_column_name(name)
        for name in header
    ]
    return any(looks) and not any(map(is_label_column_name, header))


def _find_columns_determined_by_label(
    cells_by_column: Mapping[ColumnName, Sequence[str]], label_column: str
) -> dict[ColumnName, int]:
    """Return {column: number of different values} of columns that the label determines.

    In such a column, rows of one label always have the same value. A column with
    several values would give the label away, and a column with one value is constant.
    Neither is a useful text. The result is empty where more than half of the labels are
    different, so that nothing can be concluded.

    cells_by_column: {column: cells} of the table."""
    labels = cells_by_column.get(label_column, ())
    different = set(labels)
    if not labels or 2 * len(different) > len(labels):
        return {}
    return {
        name: len(set(values))
        for name, values in cells_by_column.items()
        if name != label_column
        and len({*zip(labels, values, strict=True)}) == len(different)
    }


def _group_cells_by_column(
    header: Sequence[ColumnName], rows: list[LocationAndCells]
) -> dict[ColumnName, list[str]]:
    """Return {column: cells as text} of a table.

    Columns are compared by it to find out which are texts and label. Rows that have
    more or fewer cells than the header are left out.

    header: the names of the columns.
    rows: the rows below the header, a list of (file and line, cells)."""
    body = [
        ["" if cell is None else str(cell) for cell in cells]
        for _, cells in rows
        if len(cells) == len(header)
    ]
    return dict(zip(header, map(list, zip(*body, strict=True)), strict=False))


def _make_unclear_columns_error(
    location: str,
    header: Sequence[ColumnName],
    cells_by_column: Mapping[ColumnName, Sequence[str]],
) -> Refused:
    """Return the error about a user's table whose columns are not clear.

    It is for the case that texts and label cannot be distinguished by their names. The
    fix in its message is a command-line option to type that names the most probable
    columns.

    location: the path of the data.
    cells_by_column: {column: cells} of the table."""
    fault = f"columns {', '.join(map(quote_for_message, header))}"
    expected = "one or two texts and a label, known by their names, each once"
    if repeated := [name for name in header if header.count(name) > 1]:
        fix = f"rename one of the columns {repeated[0]!r}"
        return make_file_content_error(location, fault, expected, fix)
    if len(header) == 1:
        fault = f"one column, {quote_for_message(header[0])}"
        fix = "add a column with the label of each row"
        if separator := re.search("[,;|]", header[0]):
            fix = f"name the file .csv, if cells are parted by {separator[0]!r}"
        return make_file_content_error(location, fault, expected, fix)
    columns = {
        name: cells
        for name, cells in cells_by_column.items()
        if name and cells.count("") <= MAX_SHARE_OF_DROPPED_ROWS * len(cells)
    }
    labels = [n for n in header if is_label_column_name(n)]
    labels = labels or [
        n
        for n in columns
        if split_column_name_into_words(n) & LABELS and not is_text_column_name(n)
    ]
    labels = labels or [_propose_label_column(columns)]
    others = {n: cells for n, cells in columns.items() if n not in labels}
    texts = [n for n in others if is_text_column_name(n)]
    texts = texts or _find_columns_with_longest_texts(
        {n: cells for n, cells in others.items() if not is_metadata_column_name(n)}
    )
    choices = []
    for label in labels[:3]:
        names = format_column_names([*(texts[:2] or ["TEXT"]), label])
        typed = shlex.quote(
            f"{make_path_relative_to_working_folder(location)}: {names}"
        )
        choices.append(f"--data {typed}")
    fix = f"name them, the label last: {' or '.join(choices)}"
    return make_file_content_error(location, fault, expected, fix)


def _make_missing_header_error(
    location: str,
    first_file: str,
    first_row: Sequence[str],
    rows: list[LocationAndCells],
) -> Refused:
    """Return the error about a user's file that has no row of column names.

    The fix in its message is a shell command that adds a header with probable names.

    location: the path of the data: the file, or its folder.
    first_file: the path of the file.
    first_row: the cells of its first row, which looks like data.
    rows: the table, a list of (file and line, cells), the first row included."""
    numbers = [str(n) for n in range(1, len(first_row) + 1)]
    columns = _group_cells_by_column(numbers, rows)
    label = _propose_label_column(columns)
    others = {number: cells for number, cells in columns.items() if number != label}
    texts = [n for n, c in others.items() if sum(map(len, c)) > 12 * len(c)]
    texts = texts or _find_columns_with_longest_texts(others)[:1]
    roles = {number: f"text{n}" for n, number in enumerate(texts, 1)}
    roles |= {label: "label"}
    path = Path(first_file)
    is_csv = path.suffix.lower() == ".csv"
    separator = guess_csv_delimiter(read_lines(path)[0]) if is_csv else "\t"
    line = separator.replace("\t", "\\t").join(
        roles.get(number, f"id{number}") for number in numbers
    )
    file, made = (
        shlex.quote(make_path_relative_to_working_folder(first_file)),
        f"names{path.suffix}",
    )
    form = f"(printf '{line}\\n'; cat {file}) > {made}"
    if path != Path(location):
        form += f"; mv {made} {file}"
    fault = f"a first line {quote_for_message(', '.join(first_row))} that is a row"
    fix = f"put them before it, such as {form}"
    return make_file_content_error(location, fault, "the names of the columns", fix)


def _find_columns_with_longest_texts(
    cells_by_column: Mapping[ColumnName, Sequence[str]],
) -> list[ColumnName]:
    """Return the columns with at least half as many characters as the longest column.

    They are probably the texts, so an error message proposes them to the user.

    cells_by_column: {column: cells}."""
    sizes = {name: sum(map(len, cells)) for name, cells in cells_by_column.items()}
    most = max(sizes.values(), default=0)
    return [name for name, size in sizes.items() if 2 * size >= most]


def _propose_label_column(
    cells_by_column: Mapping[ColumnName, Sequence[str]],
) -> ColumnNameOrPlaceholder:
    """Return the column that is probably the label, or "LABEL" if there is none.

    An error message proposes it to the user. It is the column with the fewest different
    values, but at least two, whose name is not that of a text. A column whose name is
    that of an id or a date is taken only where there is no other.

    cells_by_column: {column: cells}."""
    counts = {
        n: (is_metadata_column_name(n), len(set(cells)))
        for n, cells in cells_by_column.items()
        if len(set(cells)) > 1
        and not (
            is_text_column_name(n) and not split_column_name_into_words(n) & LABELS
        )
    }
    return min(counts, key=counts.__getitem__, default="LABEL")


def infer_label_coding(
    error_location: str,
    label_column: str,
    label_kind: ClassesScoresOrEmpty,
    rows_by_split: Mapping[SplitName, Sequence[ParsedRow]],
) -> LabelCoding:
    """Find out whether labels are classes or scores, and how they become numbers.

    The LabelCoding that is returned maps each label text to a class code, or to a score
    from 0 to 5.

    Raises Refused, with the row, where a label among scores is no finite number or
    stands beside percents, where a class has two spellings or no training row, and
    where a class is called "nan". It is also raised for fewer than two different
    labels, and for too many classes.

    error_location: the path of the data, for errors.
    label_column: the name of the label column, for errors.
    label_kind: "classes", "scores", or "" to infer it.
    rows_by_split: {split name: rows}."""
    every = [row for part in rows_by_split.values() for row in part]
    values = {row.label: parse_number(row.label) for row in every}
    most_classes = min(MOST_CLASSES, len(every) // 2)
    percents = [label for label in values if label.endswith("%")]
    for row in every if percents and label_kind != CLASSES else ():
        if values[row.label] and row.label not in percents:
            fault = f"label {row.label} beside {percents[0]}"
            fix = "write all as percents, or none"
            raise make_file_content_error(row.location, fault, "one unit", fix)
    label_kind = label_kind or _infer_label_kind(every, values, most_classes)
    for row in every:
        value = values[row.label]
        if label_kind == SCORES:
            is_sound = value is not None and abs(value) < 1e30
            expected = "a finite number, as others are"
        else:
            is_sound, expected = row.label.lower() != "nan", "the name of a class"
        if not is_sound:
            fault = f"label {quote_for_message(row.label)}"
            raise make_file_content_error(
                row.location, fault, expected, "mend or drop the row"
            )
    if label_kind == SCORES:
        numbers = {label: value for label, value in values.items() if value is not None}
        low, high = min(numbers.values()), max(numbers.values())
        count, most = len({*numbers.values()}), len(every)
        coding = LabelCoding(
            SCORES,
            (),
            (low, high),
            lambda label: 5 * (numbers[label] - low) / (high - low),
            (f"scores from {low:g} to {high:g}",),
            count <= most_classes,
        )
    else:
        coding = _encode_labels_as_classes(every, rows_by_split["train"], values)
        count, most = len(coding.labels), most_classes
    if not 2 <= count <= most:
        fault = f"{count} different labels, such as {quote_for_message(min(values))}"
        choice = shlex.quote(
            f"{make_path_relative_to_working_folder(error_location)}: TEXT, LABEL"
        )
        fix = "add rows with another label" if count < 2 else "merge rare classes"
        fix += f", or name another label: --data {choice}"
        kinds = f"2 to {most} classes, at most half as many as rows, or {SCORES}"
        raise make_file_content_error(
            f"{error_location}, column {label_column}", fault, kinds, fix
        )
    return coding


def _infer_label_kind(
    rows: Sequence[ParsedRow],
    number_by_label: Mapping[str, float | None],
    max_class_count: int,
) -> ClassesOrScores:
    """Return "classes" or "scores", as the spelling of the labels suggests.

    Names are classes, and so are whole numbers of which few are different. Other
    numbers are scores of a regression. Raises Refused for several labels in one cell,
    such as "1, 4, 7", and for numbers such as "1,500", which may be thousands or
    decimals.

    rows: the rows of all splits.
    number_by_label: {label: the number that it spells, or None}.
    max_class_count: the largest number of classes if they are whole numbers without
    gaps, such as 1, 2, 3; with gaps it is MOST_GRADES."""
    parted = [n for n in number_by_label if re.search(r"\d[.,]\d", n)]
    marks = {mark for n in parted for mark in re.findall(r"(?<=\d)[.,](?=\d)", n)}
    thousands = [n for n in parted if THOUSANDS.fullmatch(n)]
    if thousands and (len(thousands) == len(parted) or len(marks) > 1):
        row = next(row for row in rows if row.label == thousands[0])
        fault = f"label {quote_for_message(row.label)}, with a mark before three digits"
        expected = f"{re.sub('[.,]', '', row.label)} for a whole number"
        fix = f"write it so; decimals are meant by the kind of label, `: {SCORES}`"
        raise make_file_content_error(row.location, fault, expected, fix)
    for row in rows:
        if SEVERAL.fullmatch(row.label):
            fault = f"several labels in one cell, {quote_for_message(row.label)}"
            raise make_file_content_error(row.location, fault, "one", "drop such rows")
    numbers = [value for value in number_by_label.values() if value is not None]
    if 2 * len(numbers) <= len(number_by_label):
        return CLASSES
    is_percent = any(label.endswith("%") for label in number_by_label)
    if is_percent or any(value % 1 for value in numbers):
        return SCORES
    count = len(set(numbers))
    is_gapless = max(numbers) - min(numbers) + 1 == count
    most = max_class_count if is_gapless else MOST_GRADES
    return CLASSES if count <= most else SCORES


def _encode_labels_as_classes(
    rows: Sequence[ParsedRow],
    train_rows: Sequence[ParsedRow],
    number_by_label: Mapping[str, float | None],
) -> LabelCoding:
    """Return the LabelCoding that takes a user's labels as names of classes.

    Classes are ordered by number, then by name, and coded from 0. Spellings of one
    number, such as "1" and "1.0", are one class. Raises Refused for names that differ
    only in case, blanks or invisible characters, and for a class without a training
    row, which no model could learn.

    rows: the rows of all splits.
    number_by_label: {label: the number that it spells, or None}."""
    spellings: dict[str | float, list[str]] = {}
    for label, value in number_by_label.items():
        visible = "".join(c for c in label if unicodedata.category(c) != "Cf")
        folded = " ".join(unicodedata.normalize("NFKC", visible).casefold().split())
        number = parse_number(visible) if value is None else value
        spellings.setdefault(folded if number is None else number, []).append(label)
    names = {}
    for same in spellings.values():
        same.sort(key=lambda label: (len(label), label))
        names |= dict.fromkeys(same, same[0])
    joint = [" and ".join(same) for same in spellings.values() if len(same) > 1]
    lines = [f"one class each: {'; '.join(joint)}"] * bool(joint)
    classes = {names[row.label] for row in train_rows}
    order = sorted(classes, key=lambda name: (number_by_label[name] or 0.0, name))
    for row in rows:
        name, fault = names[row.label], f"label {quote_for_message(row.label)}"
        if number_by_label[name] is None and name != row.label:
            fault, fix = f"{fault} beside {quote_for_message(name)}", "spell them alike"
            raise make_file_content_error(
                row.location, fault, "one spelling of a class", fix
            )
        if name not in classes:
            expected = f"a class that a training row has: {', '.join(order[:20])}"
            fix = "spell it as they do, or drop the row"
            raise make_file_content_error(row.location, fault, expected, fix)
    counts = Counter(names[row.label] for row in rows)
    rare = [row for row in rows if counts[names[row.label]] == 1]
    # A label that occurs once among many rows is mostly a typing error. It would become
    # a class of its own, so the user is told of it.
    if rare and len(rows) >= MIN_MEAN_ROWS_PER_CLASS * len(order):
        place, label = rare[0].location, quote_for_message(rare[0].label)
        lines.append(
            f"classes of a single row: {len(rare)}, such as {label} of {place}; "
            "mend them, if they are typing errors"
        )
    first = ", ".join(order[:10])
    first += f" and {len(order) - 10} more" * (len(order) > 10)
    codes = {label: order.index(name) for label, name in names.items()}
    about = f"{len(order)} classes: {first}", *lines
    is_kind_ambiguous = len(order) > 2 and all(
        number_by_label[name] is not None for name in order
    )
    return LabelCoding(
        CLASSES, tuple(order), (0.0, 5.0), codes.__getitem__, about, is_kind_ambiguous
    )
