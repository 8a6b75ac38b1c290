"""This module reads the papers' printed numbers, which are committed under
`data/published/`.

A paper's `corrections.csv` lists the few cells that the transcription corrected, and
the printed averages that cannot be recomputed. The module does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from lib.core import disk
from lib.core.names import check_known_name
from lib.core.paths import PUBLISHED

if TYPE_CHECKING:
    import pandas as pd

    from lib.stats.compare import ScoreTable

# {"row, 3/12, column": difference of two printed scores}.
PointsByRow: TypeAlias = dict[str, float]


class PrintedNumber(float):
    """A PrintedNumber is a float that is shown with the digits of its print, such as
    1.239 or 0.040."""

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


def _find_table_file(paper: str, table_name: str) -> Path:
    check_known_name(
        "published paper",
        paper,
        sorted(p.name for p in PUBLISHED.iterdir() if p.is_dir()),
    )
    tables = sorted(p.stem for p in (PUBLISHED / paper).glob("*.csv"))
    check_known_name(f"published table of {paper}", table_name, tables)
    return PUBLISHED / paper / f"{table_name}.csv"


def _read_table_as_text(paper: str, table_name: str) -> list[dict[str, str]]:
    """Return the rows of a printed table as dicts of text.

    Raises Refused for an unknown paper or table."""
    return disk.read_csv(_find_table_file(paper, table_name))


def read_table(paper: str, table_name: str, **csv_options: Any) -> pd.DataFrame:
    """Return a printed table as a DataFrame, with rows and columns as printed.

    Numbers are floats. A dash ("not reported") and an empty cell are NaN. A width such
    as "3/12" stays text. Raises Refused for an unknown paper or table.

        >>> read_table("ghostbert", "table3").loc[0, "GhostBERT Avg. acc"]
        np.float64(80.3)

    csv_options: arguments of `pandas.read_csv`."""
    import pandas as pd

    _read_table_as_text(
        paper, table_name
    )  # Raises an error that names the file, if it is damaged.
    return pd.read_csv(
        _find_table_file(paper, table_name), na_values="-", **csv_options
    )


def read_rows(paper: str, table_name: str) -> list[dict[str, Any]]:
    """Return the rows of a printed table as dicts {column: value}.

    Numbers are `PrintedNumber`, which compute as floats and show their printed digits.
    """

    def parse_cell(text: str) -> float | str:
        try:
            return nan if text in ("", "-") else PrintedNumber(text)
        except ValueError:
            return text

    return [
        {name: parse_cell(text) for name, text in row.items()}
        for row in _read_table_as_text(paper, table_name)
    ]


def read_table_with_printed_digits(paper: str, table_name: str) -> pd.DataFrame:
    """Return a printed table as a DataFrame of objects, whose numbers show their
    printed digits (`PrintedNumber`)."""
    import pandas as pd

    return pd.DataFrame(read_rows(paper, table_name), dtype=object)


def make_printed_score_table(
    paper: str,
    table_name: str,
    label_columns: str | Sequence[str],
    kept_head_counts: Container[int] | None = None,
    rename_row: Callable[[Any], str] = str,
    column_names: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> ScoreTable:
    """Return a printed table as {row: {("published", column): value}}, ready to be
    joined with our scores in one table.

    label_columns: the column that names the rows, or several whose texts are joined.
    kept_head_counts: returns only rows with these numbers of kept heads, as {(m, row):
    ...}; a table without a column `m` counts as 1/12.
    rename_row: f(printed name of a row) -> its name on the page.
    column_names: {printed column: its name on the page}. An average is always
    "average"."""
    column_names, by_row = dict(column_names), {}
    for row in read_rows(paper, table_name):
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
                "average" if c.startswith("Avg") else column_names.get(c, c),
            ): value
            for c, value in row.items()
        }
    return by_row


def compute_printed_differences(
    paper: str,
    table_name: str,
    label_columns: str | Sequence[str],
    method_row: str,
    kept_head_counts: Container[int],
    rename_row: Callable[[Any], str] = str,
) -> PointsByRow:
    """Return the printed scores of one row minus those of each other row at the same
    width, by row.

    method_row: the row from which others are subtracted.
    label_columns, kept_head_counts, rename_row: as in `make_printed_score_table`."""
    every, points = (
        make_printed_score_table(
            paper, table_name, label_columns, kept_head_counts, rename_row
        ),
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


def _select_remarks_on_places(
    paper: str,
    list_file_name: Literal["corrections", "misses"],
    places_in_paper: Sequence[str],
) -> list[dict[str, str]]:
    """Return the remarks on some tables and figures of a paper, as rows of a CSV file.

    Raises Refused for a place without a remark.

    list_file_name: "corrections", how a printed number has to be read, or "misses", why
    a printed cost is not matched.
    places_in_paper: such as "table03"; empty means the whole paper."""
    rows = _read_table_as_text(paper, list_file_name)
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
    paper: str, *places_in_paper: str
) -> list[dict[str, str]]:
    """Return the printed values that no arithmetic gives, from the paper's
    `misses.csv`.

    Each is a dict with the keys table, row, column, printed, computed and reason.
    Raises Refused for a place without a row.

    places_in_paper: such as "table03"; none means all."""
    return _select_remarks_on_places(paper, "misses", places_in_paper)


def read_deviations_by_profile(
    paper: str, toml_table: str = "pages"
) -> dict[str, list[str]]:
    """Return {profile: sentences} on what our runs at a profile do differently from a
    paper.

    They are in the paper's `deviations.toml`.

    toml_table: the table in that file. "pages" includes the sentences that hold for all
    papers."""
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


def list_transcription_corrections(paper: str, *places_in_paper: str) -> list[str]:
    """Return sentences on the cells of some tables that the transcription corrected,
    from the paper's `corrections.csv`.

    Raises Refused for a place without a row.

    places_in_paper: such as "table03", "eq. 1" or "text 3.1"."""
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
