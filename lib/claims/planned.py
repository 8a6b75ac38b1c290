"""This module reads the plan of a large profile, such as base, at which only planned
runs are made.

`data/published/plan_<profile>.csv` has lines, each for comparisons of a claim or for
scores, in the order in which runs are made. A line names a notebook, labels of the rows
of its grid, tasks and seeds. At such a profile a notebook has the rows of its lines,
and a notebook without a line has none. The queue of runs (`lib.claims.evidence`) is
made from the same rows."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, TypeAlias

from lib.claims import cells, lists
from lib.core.papers import find_paper_name_of_notebook
from lib.core.rows import Row
from lib.core.types import CsvRow, Json
from lib.papers import grids

LabelName: TypeAlias = str  # Name of a label of a grid's rows, such as "norm".


@dataclass(frozen=True)
class RunPlanLine:
    """A RunPlanLine says which runs of a notebook to make and which comparisons to
    test.

    It is a line of the plan that was written before the runs of a large profile (size
    of the experiments), such as "base".

    line_number: the number of the line.
    step: the name of a group of lines. Its runs are made, seed by seed, before those of
    the next group.
    claim_id: the id of the claim that is tested; "levels" for scores without a claim.
    notebook_id: the id of the notebook that lists the runs.
    models: labels of the models, as comparisons write them.
    row_conditions_text: conditions on the labels of the rows, such as "m=3/1" (m is 3
    or 1).
    comparisons_text: the comparisons of models, each tested on each of `tasks`.
    tasks: the tasks of the runs; empty for runs without a task.
    core_hours: the planned cost.
    grid_arguments: further arguments of the notebook's function `grid`, which lists
    runs."""

    line_number: int
    step: str
    claim_id: str
    notebook_id: str
    models: tuple[str, ...]
    row_conditions_text: str
    comparisons_text: str
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    core_hours: float
    grid_arguments: Json

    def select_rows(self, grid_rows: Iterable[Row]) -> list[Row]:
        """Return the rows of a notebook's list of runs that this line of the plan runs.

        These rows have one of the models, tasks and seeds of the line, and fulfil its
        conditions on labels.

        grid_rows: Rows, each with the labels and the description (Spec) of a run."""
        place = cells.parse_row_conditions(self.row_conditions_text)
        return [
            row
            for row in grid_rows
            if row.get("seed", 0) in self.seeds
            and (not self.tasks or row.get("task") in self.tasks)
            and any(cells.row_matches_model(row, model, place) for model in self.models)
        ]


@cache
def read_run_plan(profile: str) -> list[RunPlanLine]:
    """Return the lines of the plan that was written before the runs of a profile.

    A RunPlanLine says which runs to make and which comparisons to test. The lines stand
    in the order of their numbers. Lines that were dropped to keep to the budget of
    core-hours are left out. A profile without a plan has [].

    profile: the size of the experiments, such as "base"."""
    rows = lists.read_csv_in_published_folder(f"plan_{profile[:]}")
    return [parse_plan_line(row) for row in rows if row["word"] == "planned"]


def parse_plan_line(csv_row: CsvRow) -> RunPlanLine:
    """Return the RunPlanLine of one row of a plan's CSV file.

    A RunPlanLine says which runs of a notebook to make and which comparisons to test.

    csv_row: {column: text}."""
    return RunPlanLine(
        int(csv_row["order"]),
        csv_row["step"],
        csv_row["claim"],
        csv_row["page"],
        tuple(csv_row["models"].split("; ")),
        csv_row["where"],
        csv_row["cells"],
        tuple(task for task in csv_row["task"].split("; ") if task),
        tuple(lists.list_seeds_of_plan_row(csv_row)),
        float(csv_row["core_hours"]),
        json.loads(csv_row["arguments"] or "{}"),
    )


def list_planned_tasks(
    profile: str, claim_id: str, comparison_texts: Collection[str]
) -> tuple[str, ...]:
    """Return the tasks on which a profile's plan tests some comparisons of a claim.

    The plan may have runs of one of the compared models on further tasks, for scores
    alone. The result is () for a profile without a plan, and where the plan names none
    of the comparisons under this claim.

    profile: the size of the experiments, such as "base".
    claim_id: such as "G2".
    comparison_texts: comparisons as `claims.csv` writes them, such as "Ghost > Prune @
    m=3"."""
    return tuple(
        dict.fromkeys(
            task
            for line in read_run_plan(profile)
            if line.claim_id == claim_id
            and {*line.comparisons_text.split("; ")} & {*comparison_texts}
            for task in line.tasks
        )
    )


def list_planned_notebook_ids(profile: str) -> tuple[str, ...]:
    """Return the ids of the notebooks that have runs in the plan of a profile.

    At such a profile, other notebooks have no runs. It is () for a profile without a
    plan.

    profile: the size of the experiments, such as "base"."""
    return tuple(dict.fromkeys(line.notebook_id for line in read_run_plan(profile)))


def read_planned_core_hours_by_step(profile: str) -> dict[str, float]:
    """Return {step: core-hours} of the plan of a profile, in the order of its steps.

    A step is a group of planned runs, made before the next group begins. A user sees
    the cost before starting runs. It is {} without a plan, and on a user's own data.

    profile: the size of the experiments, such as "base"; a ProfileWithUserData, a
    subclass of str, adds a user's own data."""
    by_step = {}
    if grids.get_user_data_attribute(profile, "data"):
        return by_step
    for line in read_run_plan(profile):
        by_step[line.step] = by_step.get(line.step, 0.0) + line.core_hours
    return by_step


def notebook_lists_runs_at_profile(profile: str, notebook_id: str) -> bool:
    """Return whether a notebook has runs at a profile.

    Where a plan lists the runs of the profile, the notebooks in the plan have runs. On
    a user's own data, the notebooks that belong to no single paper have runs too. At a
    profile without a plan every notebook has runs.

    profile: the size of the experiments, such as "base"; a ProfileWithUserData, a
    subclass of str, adds a user's own data."""
    has_own_rows = grids.get_user_data_attribute(profile, "data")
    if has_own_rows and not find_paper_name_of_notebook(notebook_id):
        return True
    return notebook_id in (list_planned_notebook_ids(profile) or (notebook_id,))


def list_rows_to_run(
    grid_function: Callable[..., list[Row]],
    profile: str,
    parameter_values: Mapping[str, Any],
    notebook_id: str,
    changed_parameters: Collection[str],
) -> list[Row]:
    """Return the runs that a notebook makes at a profile, as Rows.

    A Row has the labels and the description (Spec) of a run. If a plan, written before
    the runs of the profile, has lines for the notebook, the result has the runs of
    these lines. Otherwise it has all rows of `grid_function`, without those that the
    paper's settings leave out at this profile. If a user changes an argument of
    `grid_function`, or brings data, the result always has all rows of `grid_function`.

    grid_function: the notebook's function from a profile and further arguments to Rows.
    profile: the size of the experiments, such as "mini".
    parameter_values: {parameter of the notebook: value}; `grid_function` gets those
    that it takes.
    changed_parameters: the parameters that do not have their committed values."""
    axes = list(signature(grid_function).parameters)[1:]
    given = {name: parameter_values[name] for name in axes if name in parameter_values}
    page_lines = [
        line for line in read_run_plan(profile) if line.notebook_id == notebook_id
    ]
    if given.keys() & changed_parameters or grids.get_user_data_attribute(
        profile, "data"
    ):
        return grid_function(profile, **given)
    if not page_lines:
        away = read_label_values_left_out_at_profile(profile, notebook_id)
        return [
            row
            for row in grid_function(profile, **given)
            if not any(row.get(label) in values for label, values in away.items())
        ]
    by_label = {}
    for line in page_lines:
        more = {"tasks": line.tasks, "seeds": line.seeds} | line.grid_arguments
        made = grid_function(
            profile, **{name: value for name, value in more.items() if name in axes}
        )
        by_label |= {make_row_identity_key(row): row for row in line.select_rows(made)}
    return list(by_label.values())


def read_label_values_left_out_at_profile(
    profile: str, notebook_id: str
) -> dict[LabelName, tuple[Any, ...]]:
    """Return {label: values} of the runs that a notebook leaves out at a profile.

    An example is {"norm": ("channels", "tokens")}: a run whose label `norm` has one of
    these values is not made, so that the profile toy stays a quick first look. The
    settings file of the notebook's paper lists them.

    profile: the size of the experiments, such as "toy"."""
    paper = find_paper_name_of_notebook(notebook_id)
    tables = vars(grids.read_settings(paper)) if paper else {}
    return tables.get("LEFT_OUT", {}).get(profile, {}).get(notebook_id, {})


def make_row_identity_key(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return a hashable key by which rows are dropped that stand twice in a list of
    runs.

    It has the row's labels and its Spec (the description of the run), as (name, value)
    sorted by name. The label `recipe` is a second name of a row's model, by which some
    claims speak of it. So rows that differ in it alone are the same run."""
    return tuple(
        (name, value) for name, value in sorted(row.items()) if name != "recipe"
    )
