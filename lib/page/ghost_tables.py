"""This module has what pages of GhostBERT share. It is free of torch."""

import re

from lib.page.artefact import Page
from lib.page.tables import Runs
from lib.papers import ghostbert

COLUMNS = {
    "damage at the start": ("100 * (teacher_score - start_score)", ".1f"),
    "distance after distillation": ("distance", ".3f"),
    "movement of a tap": ("taps_moved", ".4f"),
}


def mending(page: Page, runs: Runs) -> None:
    """Show how far students are off their teacher at the start and after distillation.

    Runs that are older than these numbers lack them; a note says how many there are.
    """
    rows = ghostbert.distillations(runs.own.to_dict("records"))
    told = ["task", "m", "model", "seed", "spec"]
    wanted = {row["spec"]: {name: row[name] for name in told} for row in rows}
    frame = page.collect(list(wanted.values()), on_missing="skip")
    there = frame[frame["distance"].notna()] if "distance" in frame else frame[:0]
    note = f"{len(there)} of {len(wanted)} distillations on this page have these numbers: runs that"
    page.note([f"{note} are older did not keep them."])
    table = {
        f"{model}, {m:g}/12, {task}": {title: mean(part, *how) for title, how in COLUMNS.items()}
        for (task, m, model), part in there.groupby(["task", "m", "model"], sort=False)
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


def mean(part, how: str, digits: str) -> str:
    """Return the mean of an expression over rows and their number, a dash where no row has it."""
    names = re.findall(r"[a-z_]{4,}", how)
    if not {*names} <= {*part}:
        return "–"
    values = part.dropna(subset=names).eval(how)
    return f"{values.mean():{digits}} ({len(values)})" if len(values) else "–"
