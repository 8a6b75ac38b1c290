"""This module makes parts of tables that pages of GhostBERT share. It is free of
torch."""

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from lib.core import paths
from lib.core.rows import Row
from lib.core.store import Run, read_run_index
from lib.papers import grids
from lib.report.artefact import Page
from lib.report.tables import Runs

FRONTIER = "91_frontier"
COLUMNS = {
    "damage at the start": ("100 * (teacher_score - start_score)", ".1f"),
    "distance after distillation": ("distance", ".3f"),
    "movement of a tap": ("taps_moved", ".4f"),
}


def show_distance_to_teacher(page: Page, runs: Runs) -> None:
    """Show how far students are off their teacher, at the start and after distillation.

    Older runs lack these numbers; a note says how many have them."""
    names = ["task", "m", "model", "seed"]
    students = [
        Row(row["spec"], **{name: row[name] for name in names})
        for row in runs.current.to_dict("records")
    ]
    distillations = {row.spec: row for row in grids.list_distillations_behind(students)}
    frame = page.collect(list(distillations.values()), if_missing="skip")
    measured = frame[frame["distance"].notna()] if "distance" in frame else frame[:0]
    note = (
        f"{len(measured)} of {len(distillations)} distillations on this page have these numbers: "
        "runs that"
    )
    page.note([f"{note} are older did not keep them."])
    table = {
        f"{model}, {m:g}/12, {task}": {
            title: format_mean(part, *how) for title, how in COLUMNS.items()
        }
        for (task, m, model), part in measured.groupby(
            ["task", "m", "model"], sort=False
        )
    }
    if table:
        page.table(
            table,
            "Development score of the teacher minus that of the student before any training, in "
            "points; distillation loss in the last tenth of its steps; mean change of a tap. Means "
            "over seeds (their number)",
            name="mending",
            index="model",
        )


def read_times(scale: str, widths: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return {m: (ms without ghosts, ms with them)} from the frontier's recorded
    latency.

    The times are of 8 sentences of 128 tokens, for those widths that have both."""
    times = {}
    for line in read_run_index():
        ours = (line["page"], line["profile"]) == (FRONTIER, scale)
        run = Run(paths.records_root() / line["run"], "record")
        if not (ours and "kind=clock" in line["labels"] and run.folder.exists()):
            continue
        for m in widths:
            names = (f"{name} {m}/12.cpu_ms" for name in ("Width", "GhostBERT"))
            plain, ghost = (run.metrics.get(name) for name in names)
            if ghost and plain:
                times[m] = plain, ghost
    return times


def show_times(page: Page, widths: Iterable[int]) -> None:
    """Show a table of forward times with ghosts and without (`read_times`)."""
    scale = page.scope[:]
    table = {
        f"{m}/12": {
            ("ms", "Prune"): f"{plain:.1f}",
            ("ms", "Ghost"): f"{ghost:.1f}",
            ("ms", "difference"): f"{100 * (ghost / plain - 1):+.0f} %",
        }
        for m, (plain, ghost) in read_times(scale, widths).items()
    }
    if table:
        page.table(
            table,
            f"Time of 8 sentences of 128 tokens in the networks of {scale}, on one thread of a CPU "
            f"(from {FRONTIER})",
            name="times",
            index="m",
        )


def format_mean(rows: pd.DataFrame, expression: str, number_format: str) -> str:
    """Return the mean of an expression over rows and their number, as text.

    expression: an expression of columns. number_format: a format of the mean. It is a
    dash without rows."""
    names = re.findall(r"[a-z_]{4,}", expression)
    if not {*names} <= {*rows}:
        return "–"
    values: Any = rows.dropna(subset=names).eval(expression)
    return f"{values.mean():{number_format}} ({len(values)})" if len(values) else "–"
