"""This module reads the papers' printed numbers, committed under `data/published/`.

A paper's `corrections.csv` lists the few cells that were corrected in transcription,
and the printed averages that do not recompute. The module is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lib.core import disk
from lib.core.names import check_name
from lib.core.paths import PUBLISHED

if TYPE_CHECKING:
    import pandas as pd


class PrintedNumber(float):
    """A PrintedNumber is a float that is shown with its printed digits: 1.239,
    0.040."""

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def points(self) -> str:
        """Return a share as text in points, with all its digits: 0.0211 is "2.11"."""
        return f"{Decimal(self.text).scaleb(2):f}"

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


def _find_table_file(paper: str, table_name: str) -> Path:
    check_name(
        "published paper",
        paper,
        sorted(p.name for p in PUBLISHED.iterdir() if p.is_dir()),
    )
    tables = sorted(p.stem for p in (PUBLISHED / paper).glob("*.csv"))
    check_name(f"published table of {paper}", table_name, tables)
    return PUBLISHED / paper / f"{table_name}.csv"


def _read_table_as_text(paper: str, table_name: str) -> list[dict[str, str]]:
    """Return the rows of a printed table as text.

    Raises Refused for a paper or a table that does not exist."""
    return disk.read_csv(_find_table_file(paper, table_name))


def read_table(paper: str, table_name: str, **csv_options: Any) -> pd.DataFrame:
    """Return a printed table, with its rows and its column names as printed.

    Numbers are numbers. A dash ("not reported") and an empty cell are NaN. A width such
    as "3/12" stays text. csv_options: arguments of `pandas.read_csv`. Raises Refused
    for a paper or a table that does not exist.

        >>> read_table("ghostbert", "table3").loc[0, "GhostBERT Avg. acc"]
        np.float64(80.3)"""
    import pandas as pd

    _read_table_as_text(
        paper, table_name
    )  # Raises an error that names the file, if it is damaged.
    return pd.read_csv(
        _find_table_file(paper, table_name), na_values="-", **csv_options
    )


def read_rows(paper: str, table_name: str) -> list[dict[str, Any]]:
    """Return the rows of a printed table as dicts, with numbers as a reader sees them.

    Numbers are `PrintedNumber`, which compute as floats do."""

    def parse_cell(text: str) -> float | str:
        try:
            return nan if text in ("", "-") else PrintedNumber(text)
        except ValueError:
            return text

    return [
        {name: parse_cell(text) for name, text in row.items()}
        for row in _read_table_as_text(paper, table_name)
    ]


def read_printed_frame(paper: str, table_name: str) -> pd.DataFrame:
    """Return the rows of `read_rows` as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(read_rows(paper, table_name), dtype=object)


def make_table_rows(
    paper: str,
    table_name: str,
    label_columns: str | Sequence[str],
    kept_heads: Container[int] | None = None,
    rename_row: Callable[[Any], str] = str,
    column_names: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> dict[Any, dict[tuple[str, str], Any]]:
    """Return a printed table in the form of a page's table: {row: {("published",
    column): value}}.

    label_columns: the column that names the rows, or a list of such columns.
    rename_row: f(name of a row) -> its name on the page. kept_heads: only rows with
    these numbers of kept heads are returned, named (m, row); a table without a column
    `m` is all at 1/12. column_names: {printed column: its name on the page}; an average
    is "average" everywhere."""
    column_names, by_row = dict(column_names), {}
    for row in read_rows(paper, table_name):
        key = rename_row(
            row.pop(label_columns)
            if isinstance(label_columns, str)
            else " · ".join(map(row.pop, label_columns))
        )
        if kept_heads is not None:
            width = row.pop("m", "1/12")
            if int(width.split("/")[0]) not in kept_heads:
                continue
            key = width, key
        by_row[key] = {
            (
                "published",
                "average" if c.startswith("Avg") else column_names.get(c, c),
            ): value
            for c, value in row.items()
        }
    return by_row


def compute_printed_gaps(
    paper: str,
    table_name: str,
    label_columns: str | Sequence[str],
    method_row: str,
    kept_heads: Container[int],
    rename_row: Callable[[Any], str] = str,
) -> dict[str, float]:
    """Return {"row, 3/12, column": points}: one printed row minus each other row.

    method_row: the name of the row that the others are subtracted from. The other
    arguments are those of `make_table_rows`."""
    every, points = (
        make_table_rows(paper, table_name, label_columns, kept_heads, rename_row),
        {},
    )
    for width, row in every:
        base = every.get((width, method_row), {})
        for place, value in every[width, row].items() if row != method_row else ():
            if isinstance(value, PrintedNumber) and isinstance(
                base.get(place), PrintedNumber
            ):
                points[f"{row}, {width}, {place[1]}"] = round(base[place] - value, 2)
    return points


def _select_rows_of_places(
    paper: str, table_name: str, places: Sequence[str]
) -> list[dict[str, str]]:
    """Return the rows of `corrections.csv` or `misses.csv` for these places, or all.

    A place is such as "table03". Raises Refused for a place without a row."""
    rows = _read_table_as_text(paper, table_name)
    known_places = {place for row in rows for place in row["table"].split("; ")}
    for place in places:
        check_name(
            f"place of published {table_name} of {paper}", place, sorted(known_places)
        )
    return [
        row
        for row in rows
        if not {*(places or known_places)}.isdisjoint(row["table"].split("; "))
    ]


def read_unexplained_values(paper: str, *places: str) -> list[dict[str, str]]:
    """Return the rows of `misses.csv`: printed values that no arithmetic gives.

    They are those of these places, or all. Each is a dict with the keys table, row,
    column, printed, computed and reason. Raises Refused for a place without a row."""
    return _select_rows_of_places(paper, "misses", places)


def read_deviations(paper: str, toml_table: str = "pages") -> dict[str, list[str]]:
    """Return {profile: sentences} on what a profile does differently from a paper.

    They are in `deviations.toml` of the paper, in the table `toml_table`. The part
    "pages" also has the sentences on all papers, from the file of the same name one
    folder above."""
    files = [(PUBLISHED / paper, toml_table)] + [(PUBLISHED, toml_table)] * (
        toml_table == "pages"
    )
    tables = [
        disk.read_toml(folder / "deviations.toml")[name] for folder, name in files
    ]
    return {
        profile: [
            line
            for by_profile in tables
            for line in by_profile.get(profile, ()) + by_profile.get("all", ())
        ]
        for profile in ("toy", "mini", "base", "paper")
    }


def list_corrections(paper: str, *places: str) -> list[str]:
    """Return sentences on the corrected cells of some places, from `corrections.csv`.

    A place is such as "table03", "eq. 1" or "text 3.1". Raises Refused for a place
    without a row."""
    sentences = []
    for row in _select_rows_of_places(paper, "corrections", places):
        cell = ", ".join(filter(None, (row["row"], row["column"])))
        printed = [f"printed {row['printed']}"] * bool(row["printed"])
        if row["read_as"] not in ("", row["printed"], "as printed"):
            printed.append(f"read as {row['read_as']}")
        sentences.append(
            f"{cell}: {'; '.join(filter(None, [', '.join(printed), row['reason']]))}."
        )
    return sentences
