"""Files of rows: text by line, tables of every kind, the hub; and errors that name place and fix.

A table is a list of (place, cells), its header line first where it has one. A place is the file
with the line or the row, for errors. The package `datasets` is needed for the hub alone.
"""

import csv
import io
import json
import re

MEND = "correct the file, or download it again"
SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".parquet")
_BREAK = re.compile("[\t\r\n]")
HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair: JSON may hold one, UTF-8 cannot


def malformed(place, found, expected, fix="download the file again"):
    """A ValueError for a file's content. place: its path, with a line where one is known."""
    return ValueError(f"{place}: {found}; expected {expected}; fix: {fix}")


def short(text):
    return repr(text if len(text) <= 60 else text[:57] + "...")


# ---- text ----
def decoded(path):
    """The text of a UTF-8 file, with or without a byte-order mark. Raises ValueError with file and
    line where a byte is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        ends = re.findall("\r\n?|\n", error.object[: error.start].decode("latin1"))
        raise malformed(
            f"{path}:{len(ends) + 1}",
            f"byte 0x{error.object[error.start]:02x} is not UTF-8",
            "UTF-8 text",
            "convert the file (iconv -f latin1 -t utf-8), or download it again",
        ) from None


def read_lines(path):
    """Lines of a UTF-8 file, whatever its line ends, without blank ones at the end."""
    # not splitlines(): it also cuts at form feeds and Unicode separators, which are text here
    lines = decoded(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def each_line(path):
    """Lines of a UTF-8 file one after another: the file may exceed the memory."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeDecodeError:
        decoded(path)  # says where
        raise


def cell_text(value, place):
    """A cell as text: "" for what is missing, a blank for each tab and line break.

    "NA" is text. Raises ValueError for lists and objects, and for text that is no Unicode.
    """
    if value is None or value != value:
        return ""
    if isinstance(value, list | dict | bytes) or HALF.search(text := str(value)):
        raise malformed(place, f"a cell {value!r:.60}", "text or a number", "mend or drop the row")
    return _BREAK.sub(" ", text).strip()


# ---- tables ----
def table(path, kind=None):
    """The table of a file, by `kind` or its ending. Raises ValueError with file and line.

    .csv: commas, semicolons, tabs or bars between cells, quotes around some. .json: a list of
    objects. .jsonl: an object a line. .parquet. Others: tabs between cells; quotes are text.
    """
    kinds = {".csv": _csv, ".json": _records, ".jsonl": _records, ".parquet": _parquet}
    if not (found := kinds.get(kind or path.suffix, _tabs)(path)):
        raise malformed(path, "no rows", "a header line, then one row a line")
    return found


def _tabs(path):
    return [(f"{path}:{n}", line.split("\t")) for n, line in enumerate(read_lines(path), 1)]


def _csv(path):
    text = decoded(path)
    head = text.split("\n", 1)[:1]
    between = max(",;\t|", key=lambda mark: len(next(csv.reader(head, delimiter=mark), [])))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)
    try:
        return [(f"{path}:{reader.line_num}", cells) for cells in reader if "".join(cells).strip()]
    except csv.Error as error:
        quoted = f"cells between {between!r}, in quotes where they hold one"
        raise malformed(f"{path}:{reader.line_num}", error, quoted, "mend that line") from None


def parsed(path):
    """[(place, value)] of a file of JSON, or of each line of a .jsonl file."""
    lines, many, found = read_lines(path), path.suffix == ".jsonl", []
    for before, part in enumerate(lines if many else ["\n".join(lines)]):
        try:
            found.append((f"{path}:{before + 1}" if many else str(path), json.loads(part)))
        except json.JSONDecodeError as error:
            place = f"{path}:{before + error.lineno}"
            raise malformed(place, f"{error.msg} at column {error.colno}", "JSON", MEND) from None
        except (ValueError, RecursionError) as error:  # thousands of digits, endless lists
            raise malformed(path, error, "JSON of rows", MEND) from None
    return found


def _records(path):
    """The table of objects that all have the keys of the first."""
    found = parsed(path)
    if path.suffix == ".json" and isinstance(found[0][1], list):
        found = [(f"{path}, row {number}", row) for number, row in enumerate(found[0][1], 1)]
    for place, row in found:
        if not isinstance(row, dict):
            raise malformed(place, f"{row!r:.60}", "an object with the columns of a row", MEND)
    names = list(found[0][1]) if found else []
    return [(str(path), names), *((place, [row.get(n) for n in names]) for place, row in found)]


def _parquet(path):
    from pyarrow import ArrowException, parquet

    try:
        found = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise malformed(path, reason, "a Parquet file", "write it again") from None
    columns = (column.to_pylist() for column in found.columns)
    return _numbered(path, found.column_names, zip(*columns, strict=True))


def _numbered(place, names, rows):
    return [(str(place), names), *((f"{place}, row {n}", row) for n, row in enumerate(rows, 1))]


# ---- the hub ----
def hub(name, loader=None):
    """{split: table} of a data set of the hub, "owner/name" or "owner/name/part".

    Names of classes stand for their codes, and None for a code below 0. loader: in place of
    `datasets.load_dataset`. Raises ConnectionError in one line where the hub gives nothing.
    """
    parts = name.split("/")
    try:
        if loader is None:
            from datasets import load_dataset as loader
        found = loader("/".join(parts[:2]), *parts[2:3])
    except Exception as error:  # the client raises many kinds, by version and by failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(
            f"{name} cannot be had from the hub ({reason}); fix: check the network, or put its "
            "rows into a file by hand"
        ) from error
    return {split: _split(f"{name}, {split}", rows) for split, rows in found.items()}


def _split(place, rows):
    columns = []
    for name, feature in rows.features.items():
        names = getattr(feature, "names", None)
        column = list(rows[name])
        columns.append([names[c] if c >= 0 else None for c in column] if names else column)
    return _numbered(place, list(rows.features), zip(*columns, strict=True))
