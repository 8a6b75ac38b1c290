"""This module reads the plan of a profile that makes only planned rows, such as base.

`data/published/plan_<profile>.csv` has one line for each comparison or level, in the
order in which runs are made. A line names a page, labels of the rows of its grid, tasks
and seeds. A page at such a profile has the rows of its lines, and a page without a line
has none. The queue (`lib.claims.evidence`) makes the same rows. The module is free of
torch."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

from lib.claims import cells, lists
from lib.core.papers import find_paper_of_page
from lib.core.rows import Row
from lib.core.types import Json
from lib.papers import grids

# Stand-in for a task that a rule of the plan picks later; its lines wait.
SECOND = "second"


@dataclass(frozen=True)
class Line:
    """A Line of a plan says which rows of a page are made, and what is judged on
    them."""

    order: int
    # Name of the group that is made together, seed by seed, before the next one.
    step: str
    claim: str
    page: str
    models: tuple[str, ...]  # Labels of rows, as cells have them.
    where: str  # Values that the rows have, such as "m=3/1".
    cells: str  # Cells that are judged by themselves, each on each task.
    # Empty for rows without a task, or while the second task is not picked.
    tasks: tuple[str, ...]
    waits: bool  # Whether the second task is not picked yet.
    seeds: tuple[int, ...]
    core_hours: float
    arguments: Json  # Arguments of the page's function `grid` beside tasks and seeds.

    def select_rows(self, grid_rows: Iterable[Row]) -> list[Row]:
        """Return the rows of a grid that this line names."""
        place = cells.parse_place(self.where)
        return [
            row
            for row in grid_rows
            if not self.waits
            and row.get("seed", 0) in self.seeds
            and (not self.tasks or row.get("task") in self.tasks)
            and any(cells.fits_row(row, model, place) for model in self.models)
        ]


@cache
def read_plan(profile: str) -> list[Line]:
    """Return the planned Lines of a profile, in order; none without a plan.

    The file also has lines that were not planned, as they exceed the core-hours. Their
    word is another than "planned"."""
    rows = lists.read_published_csv(f"plan_{profile[:]}")
    return [parse_plan_line(row) for row in rows if row["word"] == "planned"]


def parse_plan_line(row: Mapping[str, str]) -> Line:
    """Return the Line of a row of a plan's file."""
    tasks = [task for task in row["task"].split("; ") if task]
    waits = SECOND in tasks and not grids.SECOND
    first, number = int(row["first_seed"]), int(row["seeds"])
    return Line(
        int(row["order"]),
        row["step"],
        row["claim"],
        row["page"],
        tuple(row["models"].split("; ")),
        row["where"],
        row["cells"],
        tuple(grids.SECOND if task == SECOND else task for task in tasks)
        if not waits
        else (),
        waits,
        tuple(range(first, first + number)),
        float(row["core_hours"]),
        json.loads(row["arguments"] or "{}"),
    )


def list_planned_pages(profile: str) -> tuple[str, ...]:
    """Return the pages that have rows at a profile with a plan; none without a plan."""
    return tuple(dict.fromkeys(line.page for line in read_plan(profile[:])))


def read_planned_hours(profile: str) -> dict[str, float]:
    """Return {step: core-hours} of a profile's plan, in its order; {} without a
    plan."""
    by_step = {}
    for line in read_plan(profile[:]):
        by_step[line.step] = by_step.get(line.step, 0.0) + line.core_hours
    return by_step


def has_planned_rows(profile: str, notebook_id: str) -> bool:
    """Return whether a page has rows at a profile; every page has without a plan."""
    return notebook_id in (list_planned_pages(profile) or (notebook_id,))


def make_page_rows(
    grid: Callable[..., list[Row]],
    profile: str,
    values: Mapping[str, Any],
    page: str,
    changed_parameters: Collection[str],
) -> list[Row]:
    """Return the rows of a notebook's function `grid` at a profile.

    A reader who changes an argument of the grid, or brings data, gets what `grid`
    returns. Otherwise a profile with a plan has the rows of the plan's lines for the
    page. A profile without a plan lacks those of `list_omitted_labels`.

    values: values of the notebook's parameters; `grid` gets those that it takes.
    changed_parameters: names of the parameters whose values are not the committed
    ones."""
    axes = {name: p.default for name, p in list(signature(grid).parameters.items())[1:]}
    given = {name: values[name] for name in axes if name in values}
    page_lines = [line for line in read_plan(profile[:]) if line.page == page]
    if given.keys() & changed_parameters or grids.read_reader_part(profile, "data"):
        return grid(profile, **given)
    if not page_lines:
        away = list_omitted_labels(profile, page)
        return [
            row
            for row in grid(profile, **given)
            if not any(row.get(label) in values for label, values in away.items())
        ]
    by_label = {}
    for line in page_lines:
        more = {"tasks": line.tasks, "seeds": line.seeds} | line.arguments
        made = grid(
            profile, **{name: value for name, value in more.items() if name in axes}
        )
        by_label |= {identify_row(row): row for row in line.select_rows(made)}
    return list(by_label.values())


def list_omitted_labels(profile: str, notebook_id: str) -> dict[str, list[Any]]:
    """Return {label: values} of the rows that a page lacks at a profile.

    The settings of its paper name them, so that toy stays a quick first look."""
    paper = find_paper_of_page(notebook_id)
    tables = vars(grids.read_settings(paper)) if paper else {}
    return tables.get("LEFT_OUT", {}).get(profile[:], {}).get(notebook_id, {})


def identify_row(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return the labels and the Spec of a row, which identify it in its grid.

    The label `recipe` is left out."""
    return tuple(
        (name, value) for name, value in sorted(row.items()) if name != "recipe"
    )
