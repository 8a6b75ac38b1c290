"""This module makes parts of the tables of the pages on BERMo. It is free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib.papers import published
from lib.papers.bermo import recipes as bermo
from lib.stats import compare

if TYPE_CHECKING:
    import pandas as pd


def repair_table(table: str, corrected_rows: list[str]) -> pd.DataFrame:
    """Return a printed table of probing scores as text, with our names of the tasks.

    A cell that was corrected by arithmetic has the corrected value and the mark †.
    corrected_rows: the columns that name the rows of the table."""
    frame = published.read_printed_frame("bermo", table)
    frame.index = frame[corrected_rows].fillna("").agg(" ".join, axis=1).str.strip()
    scores = frame[[*bermo.PROBES]].map(str)
    cells: Any = published.read_table("bermo", "corrections").itertuples()
    for cell in cells:
        if table.startswith(f"{cell.table}_") and cell.column in bermo.PROBES:
            scores.loc[cell.row, cell.column] = f"{float(cell.read_as):.2f} †"
    return scores.rename(columns=bermo.PROBES)


def read_printed_table(
    table: str,
    row_columns: Sequence[str] = ("Model",),
    new_names: Mapping[str, str] | tuple[()] = (),
) -> dict[str, dict[tuple[str, str], Any]]:
    """Return Table 2, 4 or 5 in the form of a page's table
    (`lib.papers.published.make_table_rows`).

    The names of models have no suffix _BASE."""
    rows = published.make_table_rows(
        "bermo", table, list(row_columns), column_names=new_names
    )
    return {name.replace("_BASE", ""): row for name, row in rows.items()}


def make_measured_table(
    frame: pd.DataFrame, source: str, row_columns: Sequence[str] = ("model",)
) -> dict[Any, dict[tuple[str, str], str]]:
    """Return the scores of a collected frame in the form of Table 2, 4 or 5.

    row_columns: the columns that name the rows."""
    columns = {
        task: [c for c in bermo.COLUMNS if c.task == task]
        for task in set(frame["task"])
    }
    return compare.make_table_by_task(frame, columns, source, row_columns)


def compute_printed_gains(
    printed_table: Mapping[str, Mapping[tuple[str, str], Any]], row_pattern: str = "{}"
) -> dict[str, float]:
    """Return {task: points} by which BERMo is printed above BERT, by first metrics.

    printed_table: a table from `read_printed_table`. row_pattern: a pattern of the
    names of its rows, with {} for the model."""
    first = {
        column.task: ("published", column.title) for column in reversed(bermo.COLUMNS)
    }
    ours, theirs = (
        printed_table[row_pattern.format(name)] for name in ("BERMo", "BERT")
    )
    return {
        t: float(ours[key] - theirs[key])
        for t, key in reversed(first.items())
        if key in ours
    }
