"""This module makes tables that several pages on BERMo share. It does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib.papers import published
from lib.papers.bermo import recipes as bermo
from lib.stats import compare
from lib.stats.compare import ScoreTable

if TYPE_CHECKING:
    import pandas as pd

PointsByTask = dict[str, float]


def read_corrected_probing_table(
    table_name: str, label_columns: list[str]
) -> pd.DataFrame:
    """Return a printed table of probing scores as text, in which corrected cells have
    the corrected value and the mark †.

    A cell is corrected where the printed averages show a misprint.

    table_name: the name of its file.
    label_columns: the columns that name its rows."""
    frame = published.read_table_with_printed_digits("bermo", table_name)
    frame.index = frame[label_columns].fillna("").agg(" ".join, axis=1).str.strip()
    scores = frame[[*bermo.PROBES]].map(str)
    cells: Any = published.read_table("bermo", "corrections").itertuples()
    for cell in cells:
        if table_name.startswith(f"{cell.table}_") and cell.column in bermo.PROBES:
            scores.loc[cell.row, cell.column] = f"{float(cell.read_as):.2f} †"
    return scores.rename(columns=bermo.PROBES)


def read_printed_table(
    table_name: str,
    row_columns: Sequence[str] = ("Model",),
    new_column_names: Mapping[str, str] | tuple[()] = (),
) -> ScoreTable:
    """Return Table 2, 4 or 5 as {row: {("published", column): value}}, with model names
    without "_BASE".

    table_name: the name of its file.
    row_columns: the columns that name its rows.
    new_column_names: {printed column: its name on the page}."""
    rows = published.make_printed_score_table(
        "bermo", table_name, list(row_columns), column_names=new_column_names
    )
    return {name.replace("_BASE", ""): row for name, row in rows.items()}


def make_table_of_runs(
    runs_frame: pd.DataFrame, heading: str, row_columns: Sequence[str] = ("model",)
) -> ScoreTable:
    """Return our scores {row: {(source, column): mean with spread}}, with the columns
    of Tables 2, 4 and 5.

    runs_frame: a DataFrame with a row for each run.
    heading: the heading of the columns, which names the profile.
    row_columns: the columns of `runs_frame` that name the rows."""
    columns = {
        task: [c for c in bermo.COLUMNS if c.task == task]
        for task in set(runs_frame["task"])
    }
    return compare.make_score_table_by_task(runs_frame, columns, heading, row_columns)


def compute_printed_gains_of_bermo(
    printed_table: ScoreTable, row_pattern: str = "{}"
) -> PointsByTask:
    """Return {task: points} by which BERMo's printed score is above BERT's, in the
    task's first printed metric.

    printed_table: what `read_printed_table` returned.
    row_pattern: the name of a row, with {} for the model."""
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
