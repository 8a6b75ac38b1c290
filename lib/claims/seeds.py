"""This module gives the rows of a notebook's grid the seeds that were planned for the
comparisons that use them.

So the table, the figure and the tested comparison rest on the same runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import NamedTuple

from lib.claims import cells, lists
from lib.core.rows import ResultRow, Row

# Profiles (sizes of the experiments) that have planned seeds and committed results.
SCALES = ("mini", "base")


@dataclass(frozen=True)
class PlannedComparison:
    """A PlannedComparison is a comparison that a claim makes, with the seeds planned
    for it.

    claim_id: such as "G1".
    comparison: the comparison of models.
    models_expected_to_collapse: labels of models that the claim expects to fail. Their
    runs are compared even if they score no better than chance, as their failure is what
    is claimed."""

    claim_id: str
    comparison: cells.Comparison
    seeds: tuple[int, ...]
    models_expected_to_collapse: tuple[str, ...]

    def find_smallest_effect_of_interest(self, task: str) -> float:
        """Return the smallest effect of interest of this comparison on a task.

        It was named with the first seeds, in the unit of the comparison. It is nan where
        none was fixed."""
        effects = lists.read_smallest_effects_of_interest(self.claim_id)
        text = self.comparison.text
        return effects.get((text, task), effects.get((text, ""), nan))


@cache
def list_planned_comparisons(
    notebook_id: str, profile: str
) -> tuple[PlannedComparison, ...]:
    """Return the comparisons that a notebook shows, with their planned seeds.

    A claim is a statement of a paper, which comparisons of runs test. A
    PlannedComparison has one comparison and the seeds that were planned for it before
    the runs, so one sees what a page still lacks. Comparisons without planned seeds at
    the profile are left out.

    profile: the size of the experiments, such as "mini"."""
    plans = []
    for claim, line in lists.read_claims().items():
        if notebook_id in line["artefact"].split("; ") and line["cells"]:
            for comparison in cells.parse_comparisons(line["cells"]):
                if seeds := lists.list_planned_comparison_seeds(
                    claim, comparison.text, profile
                ):
                    plans.append(
                        PlannedComparison(
                            claim,
                            comparison,
                            seeds,
                            list_models_expected_to_collapse(line),
                        )
                    )
    return tuple(plans)


def list_models_expected_to_collapse(claim: lists.ClaimsCsvRow) -> tuple[str, ...]:
    """Return the labels of the models that a claim expects to fail.

    Runs of these models that collapsed (scored no better than chance) are compared,
    while those of other models are left out.

    claim: a statement of a paper, as a row of `claims.csv`; the column `may_fail` has
    the labels."""
    return tuple(filter(None, claim["may_fail"].split("; ")))


def repeat_rows_at_planned_seeds(
    notebook_id: str, profile: str, grid_rows: Sequence[Row]
) -> list[Row]:
    """Return a notebook's list of runs, with each run at all seeds planned for it.

    Each Row is repeated at these seeds. So tables and figures show the runs on which
    claims are tested. Seeds are planned for the comparisons of claims; a row that no
    comparison uses keeps its own seed.

    profile: the size of the experiments; only "mini" and "base" have planned seeds.
    grid_rows: Rows, each with the labels and the description (Spec) of a run."""
    plans = list_planned_comparisons(notebook_id, profile) if profile in SCALES else ()
    seeded_rows, known = [], {}
    for row in grid_rows:
        seed = row.get("seed")
        if seed is None or row.spec.seed is None:
            seeded_rows.append(row)
            continue
        labels = {name: value for name, value in row.labels.items() if name != "seed"}
        key = row.spec.id, *map(repr, labels.items())
        if key not in known:
            planned = {
                seed
                for plan in plans
                if plan.comparison.compares_run_of_row(row)
                for seed in plan.seeds
            }
            known[key] = sorted(planned)
            seeded_rows += [row.with_seed(seed) for seed in known[key]]
        if not known[key]:
            seeded_rows.append(row)
    return seeded_rows


def all_rows_match_model(rows: Sequence[ResultRow], model: cells.ModelSelector) -> bool:
    """Return whether all rows of a table are runs of one compared model.

    `find_planned_comparison_of_models` recognises the models of a comparison by it.

    model: (label of the model, conditions on the runs' other labels)."""
    return all(cells.row_matches_model(row, *model) for row in rows)


class PlannedComparisonAndOrder(NamedTuple):
    comparison: PlannedComparison
    has_baseline_first: bool


def find_planned_comparison_of_models(
    notebook_id: str,
    profile: str,
    method_rows: Sequence[ResultRow],
    baseline_rows: Sequence[ResultRow],
) -> PlannedComparisonAndOrder | None:
    """Find the planned comparison of two models whose difference a table shows.

    Return (comparison, has_baseline_first), or None where no claim of the notebook
    compares the two. `comparison` has the planned seeds, the range of effects for which
    the claim holds, and the smallest effect of interest, by which the table tests the
    difference. `has_baseline_first` says that the comparison has the baseline first.

    profile: the size of the experiments, such as "mini".
    method_rows, baseline_rows: the rows of the table with the runs of each model."""
    if not (profile in SCALES and method_rows and baseline_rows):
        return None
    orders = {False: (method_rows, baseline_rows), True: (baseline_rows, method_rows)}
    for plan in list_planned_comparisons(notebook_id, profile):
        form = [(weight, len(models)) for weight, models in plan.comparison.terms]
        if plan.comparison.measure or form != [(1.0, 1), (-1.0, 1)]:
            continue
        for has_baseline_first, sides in orders.items():
            if all(map(all_rows_match_model, sides, plan.comparison.models)):
                return PlannedComparisonAndOrder(plan, has_baseline_first)
    return None
