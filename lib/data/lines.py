"""This module reads text files by line, tables in several formats (.tsv, .csv, JSON,
Parquet), and data sets of the Hugging Face hub.

Its errors name the file, the line or row, and a fix. The first row of a table is its
header, if it has one. Only the hub needs the package `datasets`."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lib.core.names import Refused
from lib.core.types import Json

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

# A row of a table: file and line, for error messages, and cells, which may be any JSON
# values.
LocationAndCells: TypeAlias = tuple[str, list[Any]]
SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".parquet")
# Pattern of a number, which may have a decimal comma and a percent sign.
NUMBER = re.compile(r"([+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:e[+-]?\d+)?)\s*%?", re.A | re.I)
# Raise the csv module's limit of 131,072 characters in a cell, as texts may be longer.
csv.field_size_limit(2**31 - 1)
# Matches a quoted cell of a table of tab-separated cells. A quote inside such a cell is
# written twice. The cell has tabs or line breaks, not both: else two stray quotes would
# make one cell of all rows between them.
QUOTED = re.compile(
    r'(?:^|(?<=\t))"(?:(?:[^"\t]|"")*|(?:[^"\n]|"")*)"(?=\t|$)', re.MULTILINE
)


def make_file_content_error(
    error_location: Path | str,
    problem: object,
    expected_content: str,
    suggested_fix: str = "correct the file, or download it again",
) -> Refused:
    """Return a Refused (an exception for the user) about the content of a file.

    The caller raises it. Its message has one form everywhere: place, problem, what is
    expected, and a fix.

    error_location: the path, with the number of the line if known.
    problem: what is wrong.
    expected_content: what the file may have in that place.
    suggested_fix: what the user can do."""
    return Refused(
        f"{error_location}: {problem}; expected {expected_content}; fix: {suggested_fix}"
    )


def quote_for_message(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def make_path_relative_to_working_folder(full_path: str) -> str:
    """Return a path for an error message as short as a user would type it.

    A path below the working folder becomes relative to the working folder; any other
    path is returned unchanged."""
    return full_path.removeprefix(f"{Path.cwd()}{os.sep}")


def iterate_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, one at a time, as it may be larger than the
    memory.

    The file is UTF-8, or UTF-16 with a byte order mark, as spreadsheets write it.
    Raises Refused where it is neither."""
    with open(path, "rb") as file:
        is_wide = file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)
    encoding = "utf-16" if is_wide else "utf-8-sig"
    try:
        with open(path, encoding=encoding) as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeError as error:
        fix = (
            "save it as UTF-8 where it comes from (a spreadsheet has 'CSV UTF-8'), or "
        )
        file = shlex.quote(make_path_relative_to_working_folder(str(path)))
        fix += f"convert it: iconv -f CP1252 -t UTF-8 {file} > utf8{path.suffix} for "
        fix += "many files of Western Europe, with GB18030 instead for Chinese ones"
        raise make_file_content_error(path, error, "UTF-8 text", fix) from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file as a list, without blank lines at its end.

    It is for files that fit into the memory. The file is UTF-8, or UTF-16 with a byte
    order mark. Raises Refused where it is neither."""
    lines = list(iterate_lines(path))
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def convert_cell_to_text(cell_value: Any, error_location: str) -> str:
    """Return a cell of a table as text in one line; a missing value (None, NaN) is "".

    Tabs and line breaks become blanks. Blanks at both ends are removed. The text "NA"
    stays, as it may be a word of the data. Raises Refused for lists, objects and bytes,
    and for text with half a character.

    error_location: the file and line of the cell, for the error."""
    if isinstance(cell_value, (list, dict, bytes)):
        fault, fix = (
            f"a cell {cell_value!r:.60}",
            "make one text of it, or drop the row",
        )
        raise make_file_content_error(error_location, fault, "text or a number", fix)
    if cell_value is None or cell_value != cell_value:
        return ""
    refuse_half_characters(str(cell_value), error_location)
    return re.sub("[\t\r\n]", " ", str(cell_value)).strip()


def refuse_half_characters(text: str, error_location: str | Path) -> None:
    """Raise Refused for a text with half a character, which no tokenizer reads.

    JSON can have one half of a surrogate pair where a text was cut inside an emoji.

    error_location: the file and line of the text, for the error."""
    if half := re.search("[\ud800-\udfff]", text):
        before = text[max(0, half.start() - 20) : half.start()]
        fault = f"half a character, {half[0]!r}, behind {before!r}"
        raise make_file_content_error(
            error_location, fault, "whole characters", "mend or drop the row"
        )


def parse_number(text: str) -> float | None:
    """Return the number that a text spells, or None where it spells none.

    It may have a decimal comma, a percent sign ("3,5 %" is 3.5) or a typographic
    minus."""
    match = NUMBER.fullmatch(text.replace("−", "-"))
    return float(match[1].replace(",", ".")) if match else None


def read_table_file(
    path: Path,
    file_ending: str | None = None,
    blank_line_locations_to_extend: list[str] | None = None,
) -> list[LocationAndCells]:
    """Return the table in a file as a list of (file and line, cells), one for each row.

    A row's file and line are for error messages. The header, if the file has one, is
    the first row. The ending of the file decides its format. A .csv file has commas,
    semicolons, tabs or bars between its cells, and may have quotes around them. A .json
    file is a list of objects, a .jsonl file has one object on each line, and .parquet
    is read too. Any other file has tabs between its cells, and quotes are text.

    Raises Refused with the file, and the line if known, where the file is empty or does
    not have that format.

    file_ending: an ending, such as ".csv", that decides the format in place of the
    file's own; None takes the file's own.
    blank_line_locations_to_extend: a list to which file and number of each blank line
    are appended, so that the user can be told of them. With None they are not noted."""
    file_ending = file_ending or path.suffix.lower()
    if blank_line_locations_to_extend is None:
        blank_line_locations_to_extend = []
    if file_ending in (".json", ".jsonl", ".parquet"):
        rows = _read_objects_as_header_and_rows(path, blank_line_locations_to_extend)
    elif file_ending == ".csv":
        rows = _read_csv_table(path, blank_line_locations_to_extend)
    else:
        lines = [(f"{path}:{n}", line) for n, line in enumerate(iterate_lines(path), 1)]
        rows = [(place, line.split("\t")) for place, line in lines if line.strip()]
        blank_line_locations_to_extend += [
            place for place, line in lines if not line.strip()
        ]
    if not rows:
        raise make_file_content_error(
            path, "no rows", "a header line, then one row a line"
        )
    (place, header), *body = rows
    return [(place, [convert_cell_to_text(name, place) for name in header]), *body]


def has_quoted_cells(path: Path) -> bool:
    """Return whether a tab-separated file has quotes around cells, as pandas writes it.

    Such a file must be parsed as CSV; in any other file a quote is part of a text. The
    result is True only if every quote encloses a cell or is doubled inside of one, and
    at least one cell is quoted."""
    text = "\n".join(read_lines(path))
    rest, count = QUOTED.subn("", text)
    return count > 0 and '"' not in rest


def guess_csv_delimiter(line: str) -> str:
    """Return the character that stands between the cells of a CSV file, by its first
    line.

    Of comma, semicolon, tab and bar it is the one that divides the line into the most
    cells."""

    def count_columns(separator: str) -> int:
        return len(next(csv.reader([line], delimiter=separator)))

    return max(",;\t|", key=count_columns)


def _read_csv_table(
    path: Path, blank_line_locations_to_extend: list[str]
) -> list[LocationAndCells]:
    lines, rows = list(iterate_lines(path)), []

    # The first line may be "sep=;", by which a spreadsheet program names the separator.
    first = next(filter(str.strip, lines), "")
    names_separator = bool(re.fullmatch("sep=[,;|\t]", first))
    between = first[-1] if names_separator else guess_csv_delimiter(first)
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=between, strict=True)
    try:
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if "".join(cells).strip():
                rows.append((place, cells))
            else:
                blank_line_locations_to_extend.append(place)
    except csv.Error as error:
        fix = (
            "double each quote inside a quoted cell; or, where cells have tabs between "
        )
        fix += "them and quotes are text, name the file .tsv"
        raise make_file_content_error(
            f"{path}:{reader.line_num}", error, "quoted cells", fix
        ) from None
    return rows[names_separator:]


def read_json_or_parquet_file(
    path: Path, blank_line_locations_to_extend: list[str] | None = None
) -> Any:
    """Return the value in a JSON file, or the rows of a .jsonl or .parquet file.

    Rows are a list of JSON values. A .json file with one value on each line is read as
    a list too, because many programs write such files. Raises Refused, with the file,
    where the content is malformed.

    blank_line_locations_to_extend: a list to which file and number of each blank line
    of a .jsonl file are appended."""
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        try:
            return parquet.read_table(path).to_pylist()
        except ValueError as error:
            what = str(error).splitlines()[0]
            raise make_file_content_error(path, what, "a Parquet file") from None
    lines = list(iterate_lines(path))
    if path.suffix.lower() == ".jsonl":
        return _parse_json_lines(path, lines, blank_line_locations_to_extend)
    try:
        return json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data"):
            return _parse_json_lines(path, lines, blank_line_locations_to_extend)
        raise make_file_content_error(path, error, "JSON") from None


def _parse_json_lines(
    path: Path, lines: list[str], blank_line_locations_to_extend: list[str] | None
) -> list[Any]:
    values = []
    for n, line in enumerate(lines, 1):
        try:
            if line.strip():
                values.append(json.loads(line))
            elif blank_line_locations_to_extend is not None:
                blank_line_locations_to_extend.append(f"{path}:{n}")
        except (ValueError, RecursionError) as error:
            raise make_file_content_error(
                f"{path}:{n}", error, "JSON on each line"
            ) from None
    return values


def _read_objects_as_header_and_rows(
    path: Path, blank_line_locations_to_extend: list[str]
) -> list[LocationAndCells]:
    """Return the table in a JSON or Parquet file as a list of (file and row, cells).

    The first row is a header of all keys, then each object gives a row. The list of
    objects may be the value of the key "data". The file may also be stored by column
    ({column: values}), as pandas writes it. Raises Refused for any other layout.

    blank_line_locations_to_extend: a list to which file and number of each blank line
    of a .jsonl file are appended."""
    value = read_json_or_parquet_file(path, blank_line_locations_to_extend)
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    if isinstance(value, dict) and len(value) > 1:
        value = _convert_to_rows_if_columnar(value)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        form = "a list of objects, one for each row, which may be the value of `data`"
        form += ", or lists of equal length by column"
        fix = 'write it so, such as [{"text": "fine", "label": "good"}]'
        raise make_file_content_error(path, f"{value!r:.60}", form, fix)
    return convert_json_objects_to_table(str(path), value)


def _convert_to_rows_if_columnar(json_object: Json) -> list[Json] | Json:
    """Return a table that is stored by column as a list of rows {column: cell}.

    pandas writes tables by column, as {column: list of cells} or {column: {index:
    cell}}, and by row, as {index: {column: cell}}. The argument is returned unchanged
    where it is no dict of columns of equal length; the caller then reports its layout
    as an error."""
    values = list(json_object.values())
    if all(map(str.isdigit, json_object)) and all(
        isinstance(row, dict) for row in values
    ):
        return values
    cells = [list(c.values()) if isinstance(c, dict) else c for c in values]
    is_columnar = all(isinstance(column, list) for column in cells)
    if not is_columnar or len(set(map(len, cells))) != 1:
        return json_object
    return [
        dict(zip(json_object, row, strict=True)) for row in zip(*cells, strict=True)
    ]


def convert_json_objects_to_table(
    error_location: str, objects: list[Json]
) -> list[LocationAndCells]:
    """Return the table of some JSON objects as a list of (file and row, cells).

    The first row is a header of all their keys, then each object gives a row, with None
    for a key that it lacks. The list is empty without any keys.

    error_location: the file, for error messages."""
    names = list(dict.fromkeys(name for row in objects for name in row))
    header = [convert_cell_to_text(name, error_location) for name in names]
    body = [
        (f"{error_location}, row {n}", [row.get(name) for name in names])
        for n, row in enumerate(objects, 1)
    ]
    return [(error_location, header), *body] if names else []


def download_dataset(dataset_name: str) -> DatasetDict:
    """Download a data set from the Hugging Face hub, and return {split: rows}.

    Raises ConnectionError where it cannot be downloaded.

    dataset_name: "owner/name" or "owner/name/configuration", such as
    "nyu-mll/glue/cola"."""
    import datasets

    parts = dataset_name.split("/")
    try:
        # A name "owner/name/configuration" has the configuration as third part, which
        # is the second argument of `load_dataset`.
        # pyrefly: ignore[bad-argument-type]
        dataset: Any = datasets.load_dataset("/".join(parts[:2]), *parts[2:3])
        return datasets.DatasetDict(dataset)
    # Catch every error, as their classes differ between versions of `datasets`.
    except Exception as error:
        fix = "check the network, or put its rows into a file by hand"
        reason = f"{dataset_name} cannot be had from the hub ({type(error).__name__})"
        raise ConnectionError(f"{reason}; fix: {fix}") from error


def list_rows_with_class_names(
    dataset: Dataset, label_columns: Collection[str] | None = None
) -> list[Json]:
    """Return the rows of a `datasets.Dataset` as dicts {column: value}.

    Class names take the place of class codes, and None that of a missing class (None or
    -1). Rows whose label has no class, such as test rows with secret labels, are left
    out.

    label_columns: the columns of labels; None takes all columns that have classes."""
    classes = {
        c: kind.names for c, kind in dataset.features.items() if hasattr(kind, "names")
    }
    named_rows = [
        row
        | {
            column: None if row[column] in (None, -1) else names[row[column]]
            for column, names in classes.items()
        }
        for row in dataset.to_list()
    ]
    needed = classes if label_columns is None else classes.keys() & {*label_columns}
    return [row for row in named_rows if all(row[c] is not None for c in needed)]
