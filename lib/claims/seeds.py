"""This module gives the rows of a notebook's grid the seeds that were planned for the
comparisons that use them.

So the table, the figure and the tested comparison rest on the same runs. It does not
import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import NamedTuple

from lib.claims import cells, lists
from lib.core.rows import ResultRow, Row

SCALES = ("mini", "base")  # Profiles (scales of runs) with planned seeds and records.


@dataclass(frozen=True)
class PlannedCell:
    """A PlannedCell is one comparison of a claim with the seeds that were planned for
    it."""

    claim: str
    cell: cells.Cell
    seeds: tuple[int, ...]
    models_expected_to_collapse: tuple[
        str, ...
    ]  # Models whose collapsed runs are compared too.

    def find_smallest_effect_of_interest(self, task: str) -> float:
        """Return the smallest effect of interest of this comparison on a task; nan
        where none was fixed."""
        effects = lists.read_smallest_effects_of_interest(self.claim)
        text = self.cell.text
        return effects.get((text, task), effects.get((text, ""), nan))


@cache
def list_planned_cells(notebook_id: str, profile: str) -> tuple[PlannedCell, ...]:
    """Return the comparisons that a notebook shows and that have planned seeds at a
    profile.

    notebook_id: the notebook's id; claims name the notebooks that show them. profile:
    the scale of the runs, such as "mini"."""
    plans = []
    for claim, line in lists.read_claims().items():
        if notebook_id in line["artefact"].split("; ") and line["cells"]:
            for cell in cells.parse_cells(line["cells"]):
                if seeds := lists.list_planned_cell_seeds(claim, cell.text, profile):
                    plans.append(
                        PlannedCell(
                            claim, cell, seeds, list_models_expected_to_collapse(line)
                        )
                    )
    return tuple(plans)


def list_models_expected_to_collapse(claim: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels of the models that a claim expects to fail, from its row of
    `claims.csv`.

    Their collapsed runs are compared, where those of other models are left out."""
    return tuple(filter(None, claim["may_fail"].split("; ")))


def add_planned_seeds(
    notebook_id: str, profile: str, grid_rows: Sequence[Row]
) -> list[Row]:
    """Return the rows of a notebook's grid, repeated at each seed that is planned for a
    comparison that uses them.

    A row that no comparison uses keeps its own seed."""
    plans = list_planned_cells(notebook_id, profile) if profile in SCALES else ()
    seeded_rows, known = [], {}
    for row in grid_rows:
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


class PlannedMatch(NamedTuple):
    comparison: PlannedCell
    is_reversed: bool  # Whether the comparison has the baseline first.


def find_planned_comparison_of_models(
    notebook_id: str,
    profile: str,
    method_rows: Sequence[ResultRow],
    baseline_rows: Sequence[ResultRow],
) -> PlannedMatch | None:
    """Return the planned comparison of two models, or None where no comparison of the
    notebook has them.

    A table uses it to mark a difference by the planned test.

    method_rows, baseline_rows: the table's rows of one model each."""
    for plan in (
        list_planned_cells(notebook_id, profile)
        if profile in SCALES and method_rows and baseline_rows
        else ()
    ):
        forms = [(weight, form.models) for weight, form in plan.cell.terms]
        if plan.cell.measure or [w for w, _ in forms] != [1.0, -1.0]:
            continue
        (_, (first, *more)), (_, (second, *others)) = forms
        if not (more or others):
            for turned, (a, b) in enumerate(((first, second), (second, first))):
                ours = all(cells.row_matches_model(row, *a) for row in method_rows)
                if ours and all(
                    cells.row_matches_model(row, *b) for row in baseline_rows
                ):
                    return PlannedMatch(plan, bool(turned))
    return None
