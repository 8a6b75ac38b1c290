"""This module gives the rows of a page the seeds that its comparisons have in the plan.

So the table, the picture and the word of a comparison rest on the same seeds. It is
free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Any

from lib.claims import cells, lists
from lib.core.rows import Row

SCALES = ("mini", "base")  # Profiles that have a plan and records.


@dataclass(frozen=True)
class Planned:
    """A Planned is a cell of a claim with its planned seeds."""

    claim: str
    cell: cells.Cell
    seeds: tuple[int, ...]
    may_fail: tuple[str, ...]  # Models whose collapsed runs count as well.

    def interest_on(self, task: str) -> float:
        """Return the smallest effect of interest on a task; nan where none is named."""
        effects = lists.read_effects_of_interest(self.claim)
        text = self.cell.text
        return effects.get((text, task), effects.get((text, ""), nan))


@cache
def list_planned_cells(page: str, scale: str) -> tuple[Planned, ...]:
    """Return the cells of all claims that name a page and have planned seeds at a
    profile."""
    plans = []
    for claim, line in lists.read_claims().items():
        if page in line["artefact"].split("; ") and line["cells"]:
            for cell in cells.parse_cells(line["cells"]):
                if seeds := lists.list_planned_cell_seeds(claim, cell.text, scale):
                    plans.append(
                        Planned(claim, cell, seeds, list_models_that_may_fail(line))
                    )
    return tuple(plans)


def list_models_that_may_fail(claim: Mapping[str, str]) -> tuple[str, ...]:
    """Return the models of a row of claims.csv that the claim expects to fail."""
    return tuple(filter(None, claim["may_fail"].split("; ")))


def add_planned_seeds(page: str, scale: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a grid at the planned seeds of all cells that compare them.

    A row that no cell compares keeps its seed."""
    plans = list_planned_cells(page, scale) if scale in SCALES else ()
    seeded_rows, known = [], {}
    for row in rows:
        seed = row.get("seed")
        if seed is None or row.spec.seed is None:
            seeded_rows.append(row)
            continue
        labels = {name: value for name, value in row.labels.items() if name != "seed"}
        key = row.spec.id, *map(repr, labels.items())
        if key not in known:
            planned = (plan.seeds for plan in plans if plan.cell.compares_row(row))
            known[key] = sorted({seed for seeds in planned for seed in seeds})
            for planned_seed in known[key]:
                seeded_rows.append(row.with_seed(planned_seed))
        if not known[key]:
            seeded_rows.append(row)
    return seeded_rows


def find_planned_pair(
    page: str,
    scale: str,
    method_rows: Sequence[Mapping[str, Any]],
    baseline_rows: Sequence[Mapping[str, Any]],
) -> tuple[Planned, bool] | None:
    """Return (planned cell, whether turned) for the cell that compares two models.

    Turned means that the cell has the baseline first. `method_rows` and `baseline_rows`
    are the rows of one model each. It is None where no cell of the page compares
    them."""
    for plan in (
        list_planned_cells(page, scale)
        if scale in SCALES and method_rows and baseline_rows
        else ()
    ):
        forms = [(weight, form.models) for weight, form in plan.cell.terms]
        if plan.cell.measure or [w for w, _ in forms] != [1.0, -1.0]:
            continue
        (_, (first, *more)), (_, (second, *others)) = forms
        if not (more or others):
            for turned, (a, b) in enumerate(((first, second), (second, first))):
                ours = all(cells.fits_row(row, *a) for row in method_rows)
                if ours and all(cells.fits_row(row, *b) for row in baseline_rows):
                    return plan, bool(turned)
    return None
