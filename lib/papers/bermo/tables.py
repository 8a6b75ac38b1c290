"""This module makes tables, of printed and of our own scores, that several pages on
BERMo share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib.core.types import Points, ProfileName, TaskName
from lib.papers import grids, published
from lib.papers.bermo import recipes as bermo
from lib.stats import compare
from lib.stats.compare import ScoreTable

if TYPE_CHECKING:
    import pandas as pd


def read_printed_probing_accuracies_with_corrections(
    table_name: str, row_label_columns: list[str]
) -> pd.DataFrame:
    """Return a printed table of probing accuracies in %, with misprints mended.

    All cells are text. A cell is mended where the printed averages show a misprint. It
    then has the corrected value and the mark †, such as "99.20 †". Rows have the texts
    of the label columns, joined by spaces, as index. Columns are probing tasks by their
    names in this project.

    table_name: the name of the table's file, such as "table01_probing_mean".
    row_label_columns: the columns that name a row, such as ["Model"]."""
    frame = published.read_table_with_printed_digits("bermo", table_name)
    frame.index = frame[row_label_columns].fillna("").agg(" ".join, axis=1).str.strip()
    scores = frame[[*bermo.PROBES]].map(str)
    cells: Any = published.read_table("bermo", "corrections").itertuples()
    for cell in cells:
        if table_name.startswith(f"{cell.table}_") and cell.column in bermo.PROBES:
            scores.loc[cell.row, cell.column] = f"{float(cell.read_as):.2f} †"
    return scores.rename(columns=bermo.PROBES)


def read_printed_bermo_scores(
    table_name: str,
    row_label_columns: Sequence[str] = ("Model",),
    new_name_by_column: Mapping[str, str] | tuple[()] = (),
) -> ScoreTable:
    """Return the printed scores of Table 2, 4 or 5 of the BERMo paper.

    They are {row: {("published", column): printed value}}, to be shown beside our
    scores. A row is named by the texts of its label columns, joined by " · ". Model
    names lose "_BASE".

    table_name: the name of the table's file, such as "table02_unpruned".
    row_label_columns: the label columns.
    new_name_by_column: {printed column: its name in the result}."""
    rows = published.make_printed_score_table(
        "bermo",
        table_name,
        list(row_label_columns),
        new_name_by_column=new_name_by_column,
    )
    return {name.replace("_BASE", ""): row for name, row in rows.items()}


def make_table_of_run_scores(
    runs_frame: pd.DataFrame,
    column_group_heading: str,
    profile: ProfileName,
    row_label_columns: Sequence[str] = ("model",),
) -> ScoreTable:
    """Return our own scores with the columns of BERMo's Tables 2, 4 and 5.

    A task that these tables lack, such as a user's own, has its first metric.

    The result is {row: {(heading, column): text}}, where the text is mean and standard
    deviation over seeds in points (of 100), with the number of seeds: "81.2 ± 0.4 (3)".
    It is shown beside the printed table (`read_printed_bermo_scores`).

    runs_frame: a DataFrame with a row for each run, and the columns task, model, seed
    and run (the Run, a stored result with its scores).
    column_group_heading: heading above our columns, such as "this run, toy".
    profile: the size of the experiments, such as "toy".
    row_label_columns: the columns of `runs_frame` whose values name a row."""
    by_task = grids.select_metrics_by_task(profile)
    columns = {
        task: [c for c in bermo.COLUMNS if c.task == task] or by_task[task][:1]
        for task in set(map(str, runs_frame["task"]))
    }
    return compare.make_score_table_by_task(
        runs_frame, columns, column_group_heading, row_label_columns
    )


def compute_printed_gains_of_bermo_over_bert(
    printed_table: ScoreTable, row_name_template_of_model: str = "{}"
) -> dict[TaskName, Points]:
    """Return {task: points} by which BERMo's printed score is above BERT's.

    The score is that of the first printed metric of the task. A task that the table
    lacks is left out. The printed gains are shown beside ours.

    printed_table: {row: {("published", column): value}}, as `read_printed_bermo_scores`
    returns it.
    row_name_template_of_model: the name of a row with {} in place of the model, such as
    "Movement · {}"."""
    first = {
        column.task: ("published", column.title) for column in reversed(bermo.COLUMNS)
    }
    ours = printed_table[row_name_template_of_model.format("BERMo")]
    theirs = printed_table[row_name_template_of_model.format("BERT")]
    return {
        t: float(ours[key] - theirs[key])
        for t, key in reversed(first.items())
        if key in ours
    }
