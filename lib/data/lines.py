"""This module reads text files by line, tables of several kinds, and data sets of the
hub; its errors name the place and the fix.

A table has the header line first where it has one. A place is the file with the number
of the line or row, for errors. Only the hub needs the package `datasets`."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from lib.core.disk import write
from lib.core.names import Refused
from lib.core.types import Json

T = TypeVar("T")
# These are places and cells; a cell may be any JSON.
Table = list[tuple[str, list[Any]]]
MEND = "correct the file, or download it again"
SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".parquet")


def malformed(
    place: Path | str,
    fault: object,
    expected: str,
    fix: str = "download the file again",
) -> Refused:
    """Return the Refused on the content of a file.

    place: the path, with the line where it is known. fault: what is wrong. expected:
    what is allowed. fix: what to do."""
    return Refused(f"{place}: {fault}; expected {expected}; fix: {fix}")


def short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def each_line(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file one by one; the file may be larger than the
    memory. Raises ValueError where a byte is not UTF-8."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        fix = "convert the file (iconv -f latin1 -t utf-8), or download it again"
        raise malformed(path, error, "UTF-8 text", fix) from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file with any kind of line end, without blank lines
    at its end."""
    lines = list(each_line(path))
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def cell_text(value: Any, place: str) -> str:
    """Return the value of a cell as text: "" for a missing value, a blank for each tab
    and line break.

    "NA" stays text. place: the place of the cell, for errors. Raises Refused for lists,
    objects and bytes."""
    if isinstance(value, (list, dict, bytes)):
        fault, fix = f"a cell {value!r:.60}", "mend or drop the row"
        raise malformed(place, fault, "text or a number", fix)
    if value is None or value != value:
        return ""
    return re.sub("[\t\r\n]", " ", str(value)).strip()


def number(text: str, otherwise: T = None) -> float | T:
    """Return the number that a text spells, or `otherwise` where it spells none."""
    try:
        return float(text)
    except (ValueError, TypeError):
        return otherwise


def table(path: Path, kind: str | None = None) -> Table:
    """Return the table in a file. Raises Refused with the file, and with the line where
    it is known.

    kind: an ending that is taken in place of the file's own. A .csv file has commas,
    semicolons, tabs or bars between its cells, and quotes around some. A .json file is
    a list of objects, a .jsonl file has one object on each line, and .parquet is read
    as well. Any other file has tabs between its cells, and its quotes are text."""
    kind = kind or path.suffix
    if kind in (".json", ".jsonl", ".parquet"):
        rows = _records(path)
    elif kind == ".csv":
        rows = _csv(path)
    else:
        lines = enumerate(read_lines(path), 1)
        rows = [(f"{path}:{n}", line.split("\t")) for n, line in lines]
    if not rows:
        raise malformed(path, "no rows", "a header line, then one row a line")
    return rows


def _csv(path: Path) -> Table:
    lines, rows = read_lines(path), []

    def width(mark: str) -> int:
        return len(next(csv.reader(lines[:1], delimiter=mark), []))

    between = max(",;\t|", key=width)
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=between, strict=True)
    try:
        for cells in reader:
            if "".join(cells).strip():
                rows.append((f"{path}:{reader.line_num}", cells))
    except csv.Error as error:
        place = f"{path}:{reader.line_num}"
        raise malformed(place, error, "quoted cells", MEND) from None
    return rows


def parsed(path: Path) -> Any:
    """Return the value in a JSON file, or the list of the rows of a .jsonl or .parquet
    file. Raises ValueError with the file."""
    kind, lines = path.suffix, [] if path.suffix == ".parquet" else read_lines(path)
    text = "[" + ",\n".join(lines) + "]" if kind == ".jsonl" else "\n".join(lines)
    try:
        if kind == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path).to_pylist()
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        form = "a Parquet file" if kind == ".parquet" else "JSON"
        raise malformed(path, str(error).splitlines()[0], form, MEND) from None


def _records(path: Path) -> Table:
    """Return the table of the objects in a file. The keys of the first object are its
    header."""
    rows = parsed(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise malformed(
            path, f"{rows!r:.60}", "a list of objects, one for each row", MEND
        )
    names = list(rows[0]) if rows else []
    table = [(str(path), names)]
    for n, row in enumerate(rows, 1):
        table.append((f"{path}, row {n}", [row.get(name) for name in names]))
    return table


def hub(name: str) -> dict[str, list[Json]]:
    """Return {split: rows} of a data set of the hub. name: "owner/name" or
    "owner/name/part". Codes of classes are replaced by their names, and rows without a
    class are left out. Raises ConnectionError in one line where the hub gives nothing.
    """
    import datasets

    parts, by_split = name.split("/"), {}
    try:
        # A part of a data set is the only argument behind its name.
        # pyrefly: ignore[bad-argument-type]
        dataset = datasets.load_dataset("/".join(parts[:2]), *parts[2:3])
    # The client's errors differ between versions and failures.
    except Exception as error:
        fix = "check the network, or put its rows into a file by hand"
        reason = f"{name} cannot be had from the hub ({type(error).__name__})"
        raise ConnectionError(f"{reason}; fix: {fix}") from error
    for split, rows in dataset.items():
        classes = {
            c: kind.names for c, kind in rows.features.items() if hasattr(kind, "names")
        }
        by_split[split] = [
            row | {column: names[row[column]] for column, names in classes.items()}
            for row in rows.to_list()
            if all(row[column] is not None and row[column] >= 0 for column in classes)
        ]
    return by_split


def write_rows(path: Path, rows: Iterable[Json]) -> None:
    """Write rows as a file of JSON lines."""
    write(path, "".join(f"{json.dumps(row)}\n" for row in rows))
