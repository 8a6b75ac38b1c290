"""This module makes parts of the tables of the pages on BERMo. It is free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib.papers import published
from lib.papers.bermo import recipes as bermo
from lib.stats import compare

if TYPE_CHECKING:
    import pandas as pd


def repair_table(table: str, rows: list[str]) -> pd.DataFrame:
    """Return a printed table of probing scores as text, with our names of the tasks.

    A cell that was corrected by arithmetic has the corrected value and the mark †.
    rows: the columns that name the rows of the table."""
    frame = published.printed("bermo", table)
    frame.index = frame[rows].fillna("").agg(" ".join, axis=1).str.strip()
    scores = frame[[*bermo.PROBES]].map(str)
    cells: Any = published.table("bermo", "corrections").itertuples()
    for cell in cells:
        if table.startswith(f"{cell.table}_") and cell.column in bermo.PROBES:
            scores.loc[cell.row, cell.column] = f"{float(cell.read_as):.2f} †"
    return scores.rename(columns=bermo.PROBES)


def printed(
    table: str,
    by: Sequence[str] = ("Model",),
    rename: Mapping[str, str] | tuple[()] = (),
) -> dict[str, dict[tuple[str, str], Any]]:
    """Return Table 2, 4 or 5 in the form of a page's table
    (`lib.papers.published.rows`).

    The names of models have no suffix _BASE."""
    rows = published.rows("bermo", table, list(by), columns=rename)
    return {name.replace("_BASE", ""): row for name, row in rows.items()}


def measured(
    frame: pd.DataFrame, source: str, by: Sequence[str] = ("model",)
) -> dict[Any, dict[tuple[str, str], str]]:
    """Return the scores of a collected frame in the form of Table 2, 4 or 5.

    by: the columns that name the rows."""
    columns = {
        task: [c for c in bermo.COLUMNS if c.task == task]
        for task in set(frame["task"])
    }
    return compare.table_by_task(frame, columns, source, by)


def gains(
    part: Mapping[str, Mapping[tuple[str, str], Any]], label: str = "{}"
) -> dict[str, float]:
    """Return {task: points} by which BERMo is printed above BERT, by first metrics.

    part: a table from `printed`. label: a pattern of the names of its rows, with {} for
    the model."""
    first = {
        column.task: ("published", column.title) for column in reversed(bermo.COLUMNS)
    }
    ours, theirs = (part[label.format(name)] for name in ("BERMo", "BERT"))
    return {
        t: float(ours[key] - theirs[key])
        for t, key in reversed(first.items())
        if key in ours
    }
