"""This module makes tables that several pages on GhostBERT share."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import pandas as pd

from lib.core import paths
from lib.core.rows import Row
from lib.core.store import Run, read_runs_csv
from lib.core.types import ProfileName
from lib.papers import grids
from lib.report.artefact import Page
from lib.report.tables import Runs

WidthInTwelfths: TypeAlias = int
FRONTIER = "91_frontier"
COLUMNS = {
    "damage at the start": ("100 * (teacher_score - start_score)", ".1f"),
    "distance after distillation": ("distance", ".3f"),
    "movement of a tap": ("taps_moved", ".4f"),
}


class ForwardTimes(NamedTuple):
    ms_without_ghosts: float
    ms_with_ghosts: float


def show_distance_to_teacher(page: Page, runs: Runs) -> None:
    """Show on a report page how far pruned students are from their teacher.

    The table has the score lost by pruning before any training, the distillation loss
    at the end of distillation, and how much the kernels of the ghost modules (added
    convolutions) changed. Older runs did not store these numbers; a note says how many
    of the runs have them.

    page: the page that is being made.
    runs: results of the students."""
    names = ["task", "m", "model", "seed"]
    students = [
        Row(row["spec"], **{name: row[name] for name in names})
        for row in runs.current.to_dict("records")
    ]
    distillations = {
        row.spec: row for row in grids.list_distillations_of_students(students)
    }
    frame = page.collect_result_frame(list(distillations.values()), if_missing="skip")
    measured = frame[frame["distance"].notna()] if "distance" in frame else frame[:0]
    finished = int(frame["run"].notna().sum())
    note = (
        f"{len(measured)} of {len(distillations)} distillations have a record with these "
        f"numbers. {finished - len(measured)} records are older and lack them."
    )
    page.show_remarks([note])
    table = {
        f"{model}, {m:g}/12, {task}": {
            title: format_mean_of_metric_expression(part, *how)
            for title, how in COLUMNS.items()
        }
        for (task, m, model), part in measured.groupby(
            ["task", "m", "model"], sort=False
        )
    }
    if table:
        page.show_table(
            table,
            "Development score of the teacher minus that of the student before any training, in "
            "points; distillation loss in the last tenth of its steps; mean change of a tap. Means "
            "over seeds (their number)",
            file_suffix="mending",
            index_names="model",
        )


def read_forward_times(
    profile: ProfileName, widths_in_twelfths: Iterable[int]
) -> dict[WidthInTwelfths, ForwardTimes]:
    """Return {width in twelfths: ForwardTimes} of pruned encoders, as recorded earlier.

    A ForwardTimes has the milliseconds of CPU time of a forward pass on 8 sentences of
    128 tokens, without and with ghost modules (added convolutions). So it shows what
    ghosts cost in time, beside FLOPs. Widths for which one of the two times is missing
    are left out.

    profile: size of the experiment whose models were timed, such as "mini"."""
    times = {}
    for line in read_runs_csv():
        ours = (line["page"], line["profile"]) == (FRONTIER, profile)
        run = Run(paths.records_root() / line["run"], "record")
        if not (ours and "kind=clock" in line["labels"] and run.folder.exists()):
            continue
        for m in widths_in_twelfths:
            plain = run.metrics.get(f"Width {m}/12.cpu_ms")
            ghost = run.metrics.get(f"GhostBERT {m}/12.cpu_ms")
            if ghost and plain:
                times[m] = ForwardTimes(plain, ghost)
    return times


def show_forward_times(page: Page, widths_in_twelfths: Iterable[int]) -> None:
    """Show on a report page how long forward passes take with ghosts and without.

    Ghosts are added convolutions. The table has milliseconds for 8 sentences of 128
    tokens on one CPU thread, and the difference in per cent. Nothing is shown where no
    times were recorded.

    page: the page that is being made.
    widths_in_twelfths: how many of 12 heads the pruned models keep."""
    profile = page.profile[:]
    table = {
        f"{m}/12": {
            ("ms", "Prune"): f"{plain:.1f}",
            ("ms", "Ghost"): f"{ghost:.1f}",
            ("ms", "difference"): f"{100 * (ghost / plain - 1):+.0f} %",
        }
        for m, (plain, ghost) in read_forward_times(profile, widths_in_twelfths).items()
    }
    if table:
        page.show_table(
            table,
            f"Time of 8 sentences of 128 tokens in the networks of {profile}, on one thread "
            f"of a CPU (from {FRONTIER})",
            file_suffix="times",
            index_names="m",
        )


def format_mean_of_metric_expression(
    run_metrics: pd.DataFrame, metric_expression: str, number_format: str
) -> str:
    """Return the mean over runs of an expression of their metrics, as text for a table.

    The number of runs follows in parentheses, as in "1.3 (5)". The text is a dash
    where no run has all the metrics.

    run_metrics: a line for each run, with its metrics as columns.
    metric_expression: such as "100 * (teacher_score - start_score)".
    number_format: format of the mean, such as ".1f"."""
    try:
        values: Any = run_metrics.eval(metric_expression)
    except pd.errors.UndefinedVariableError:
        return "–"
    values = values.dropna()
    return f"{values.mean():{number_format}} ({len(values)})" if len(values) else "–"
