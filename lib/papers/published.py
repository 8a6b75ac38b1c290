"""This module reads the papers' printed numbers, which are committed under
`data/published/`.

A paper's `corrections.csv` lists printed cells that need a correction or a remark.
Tables are read as printed: pages show the corrections beside them. A paper's
`misses.csv` lists printed values that do not follow from the paper's own other numbers,
such as a FLOPs count that the printed sizes do not give."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from lib.core import disk
from lib.core.names import check_known_name
from lib.core.paths import PUBLISHED
from lib.core.types import ProfileName, Sentence

if TYPE_CHECKING:
    import pandas as pd

    from lib.stats.compare import ScoreTable

# {"row, 3/12, column": printed score of a method minus that of this row, in the table's
# unit}. The key names the row, the width (heads of 12 that stay) and the column.
PointsByRowWidthAndColumn: TypeAlias = dict[str, float]
PaperFolderName: TypeAlias = str  # Such as "ghostbert".
PrintedColumn: TypeAlias = str
PlaceInPaper: TypeAlias = str  # Such as "table03".
RemarkColumn: TypeAlias = str  # Such as "table", "row", "printed" or "reason".


class PrintedNumber(float):
    """A PrintedNumber is a float that is shown with the digits of its print.

    So 0.040 does not become 0.04 in tables of printed numbers.

    text: the number as printed, such as "0.040"."""

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def format_in_points(self) -> str:
        """Return a share as text in points, with all its digits: 0.0211 is "2.11"."""
        return f"{Decimal(self.text).scaleb(2):f}"

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


def _find_table_file(paper: PaperFolderName, table_name: str) -> Path:
    """Return the CSV file of a paper's printed table.

    Raises Refused for an unknown paper or table."""
    check_known_name(
        "published paper",
        paper,
        sorted(p.name for p in PUBLISHED.iterdir() if p.is_dir()),
    )
    tables = sorted(p.stem for p in (PUBLISHED / paper).glob("*.csv"))
    check_known_name(f"published table of {paper}", table_name, tables)
    return PUBLISHED / paper / f"{table_name}.csv"


def read_table(
    paper: PaperFolderName, table_name: str, **csv_options: Any
) -> pd.DataFrame:
    """Return a paper's printed table as a DataFrame, with rows and columns as printed.

    Measured numbers are compared with it. Numbers are floats, or integers in a column
    that has only whole numbers and no gaps. A dash ("not reported") and an empty cell
    are NaN. A width such as "3/12" stays text. Raises Refused for an unknown paper or
    table.

        >>> read_table("ghostbert", "table3").loc[0, "GhostBERT Avg. acc"]
        np.float64(80.3)

    paper, table_name: folder and file name, without suffix, of the table's CSV file.
    csv_options: arguments of `pandas.read_csv`."""
    import pandas as pd

    file = _find_table_file(paper, table_name)
    # This call only checks the file: its error names a damaged file, unlike pandas'.
    disk.read_csv(file)
    return pd.read_csv(file, na_values="-", **csv_options)


def read_printed_rows(
    paper: PaperFolderName, table_name: str
) -> list[dict[PrintedColumn, Any]]:
    """Return the rows of a paper's printed table as dicts {column: value}.

    Numbers are PrintedNumbers: they compute as floats, and show the digits of the
    print, such as 0.040. Empty cells and dashes are NaN, other cells text. Raises
    Refused for an unknown paper or table.

    paper, table_name: folder and file name, without suffix, of the table's CSV file."""

    def parse_comparison(text: str) -> float | str:
        try:
            return nan if text in ("", "-") else PrintedNumber(text)
        except ValueError:
            return text

    return [
        {name: parse_comparison(text) for name, text in row.items()}
        for row in disk.read_csv(_find_table_file(paper, table_name))
    ]


def read_table_with_printed_digits(
    paper: PaperFolderName, table_name: str
) -> pd.DataFrame:
    """Return a paper's printed table as a DataFrame whose numbers keep their digits.

    It has the dtype object; numbers compute as floats and show the digits of the print,
    such as 0.040. So a report shows a table as it was printed. Raises Refused for an
    unknown paper or table.

    paper, table_name: folder and file name, without suffix, of the table's CSV file."""
    import pandas as pd

    return pd.DataFrame(read_printed_rows(paper, table_name), dtype=object)


def make_printed_score_table(
    paper: PaperFolderName,
    table_name: str,
    label_columns: str | Sequence[str],
    kept_head_counts: Container[int] | None = None,
    rename_row: Callable[[Any], str] = str,
    new_name_by_column: Mapping[PrintedColumn, str]
    | Iterable[tuple[PrintedColumn, str]] = (),
) -> ScoreTable:
    """Return a printed table in the form in which it is joined with measured scores.

    The form is {row: {("published", column): value}}. Raises Refused for an unknown
    paper or table.

    paper, table_name: folder and file name, without suffix, of the table's CSV file.
    label_columns: the column that names the rows, or several whose texts are joined.
    kept_head_counts: if given, only models that keep one of these numbers of heads,
    such as 3, are returned, and a row is (width, name). The width is the text of the
    column "m", such as "3/12" for 3 of 12 heads. Models of a table without this column
    count as "1/12".
    rename_row: f(printed name of a row) -> its name in our tables.
    new_name_by_column: {printed column: its name in our tables}. Columns that begin
    with "Avg" always become "average"."""
    new_name_by_column = dict(new_name_by_column)
    by_row = {}
    for row in read_printed_rows(paper, table_name):
        key = rename_row(
            row.pop(label_columns)
            if isinstance(label_columns, str)
            else " · ".join(map(row.pop, label_columns))
        )
        if kept_head_counts is not None:
            width = row.pop("m", "1/12")
            if int(width.split("/")[0]) not in kept_head_counts:
                continue
            key = width, key
        by_row[key] = {
            (
                "published",
                "average" if c.startswith("Avg") else new_name_by_column.get(c, c),
            ): value
            for c, value in row.items()
        }
    return by_row


def compute_printed_gains_of_method_over_other_rows(
    paper: PaperFolderName,
    table_name: str,
    row_name_columns: str | Sequence[str],
    method_row_name: str,
    kept_head_counts: Container[int],
    rename_row_in_result: Callable[[Any], str] = str,
) -> PointsByRowWidthAndColumn:
    """Return how much higher one printed row scores than each other row of its table.

    The result is {"row, 3/12, column": difference in the table's unit}, to show it
    beside measured differences. Rows are compared at the same width (kept heads of 12).

    paper, table_name: folder and file name, without suffix, of the table's CSV file.
    row_name_columns: the column that names the rows, or several whose texts are joined.
    method_row_name: name of the row from which the others are subtracted.
    kept_head_counts: the widths that count.
    rename_row_in_result: f(printed name of a row) -> its name in the result."""
    every = make_printed_score_table(
        paper, table_name, row_name_columns, kept_head_counts, rename_row_in_result
    )
    points = {}
    for width, row in every:
        base = every.get((width, method_row_name), {})
        for place, value in every[width, row].items() if row != method_row_name else ():
            if isinstance(value, PrintedNumber) and isinstance(
                base.get(place), PrintedNumber
            ):
                points[f"{row}, {width}, {place[1]}"] = round(base[place] - value, 2)
    return points


def _select_remarks_on_places(
    paper: PaperFolderName,
    list_file_name: Literal["corrections", "misses"],
    places_in_paper: Sequence[PlaceInPaper],
) -> list[dict[RemarkColumn, str]]:
    """Return the remarks on some tables and figures of a paper, as dicts of text.

    Each remark is a line of a CSV file beside the paper's transcribed tables; its keys
    are the file's columns, such as table, row, column, printed and reason. Raises
    Refused for a place without a remark.

    list_file_name: "corrections" says how a printed number has to be read, "misses" why
    a printed value does not follow from the paper's other numbers.
    places_in_paper: such as "table03"; empty means the whole paper."""
    rows = disk.read_csv(_find_table_file(paper, list_file_name))
    all_places = {place for row in rows for place in row["table"].split("; ")}
    for place in places_in_paper:
        check_known_name(
            f"place of published {list_file_name} of {paper}", place, sorted(all_places)
        )
    return [
        row
        for row in rows
        if not {*(places_in_paper or all_places)}.isdisjoint(row["table"].split("; "))
    ]


def read_inconsistent_printed_values(
    paper: PaperFolderName, *places_in_paper: PlaceInPaper
) -> list[dict[RemarkColumn, str]]:
    """Return the printed values of a paper that do not follow from its other numbers.

    Each is a dict of text with the keys table, row, column, printed, computed and
    reason, from the paper's `misses.csv`. An example is a FLOPs count that does not
    follow from the printed sizes. Pages show the reason beside the table. Raises
    Refused for a place without such a value.

    places_in_paper: such as "table03"; none means all."""
    return _select_remarks_on_places(paper, "misses", places_in_paper)


def read_deviation_sentences_by_profile(
    paper: PaperFolderName, toml_table_name: str = "pages"
) -> dict[ProfileName, list[Sentence]]:
    """Return what our experiments do differently from a paper, for its report pages.

    The result is {profile: sentences}, where a profile is a size of experiment, "toy",
    "mini", "base" or "paper". The sentences are in the paper's `deviations.toml`.

    paper: folder of the paper, such as "ghostbert".
    toml_table_name: name of a table in that file. For "pages" the sentences that hold
    for all papers are added."""
    folders = [PUBLISHED / paper] + [PUBLISHED] * (toml_table_name == "pages")
    tables = [
        disk.read_toml(folder / "deviations.toml")[toml_table_name]
        for folder in folders
    ]
    return {
        profile: [
            line
            for by_profile in tables
            for line in by_profile.get(profile, ()) + by_profile.get("all", ())
        ]
        for profile in ("toy", "mini", "base", "paper")
    }


def list_transcription_corrections(
    paper: PaperFolderName, *places_in_paper: PlaceInPaper
) -> list[Sentence]:
    """Return sentences on cells of a paper's tables that need a correction or a remark.

    They are for the report page that shows the table, and come from the paper's
    `corrections.csv`. Each names the cell, what is printed, how it is read, and why.
    Raises Refused for a place without a correction.

    paper: folder of the paper, such as "ghostbert".
    places_in_paper: such as "table03", "eq. 1" or "text 3.1"; none means all."""
    sentences = []
    for row in _select_remarks_on_places(paper, "corrections", places_in_paper):
        cell = ", ".join(filter(None, (row["row"], row["column"])))
        printed = [f"printed {row['printed']}"] * bool(row["printed"])
        if row["read_as"] not in ("", row["printed"], "as printed"):
            printed.append(f"read as {row['read_as']}")
        sentences.append(
            f"{cell}: {'; '.join(filter(None, [', '.join(printed), row['reason']]))}."
        )
    return sentences
