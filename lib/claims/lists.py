"""This module reads what was written down before the runs: claims, cells, plans and
trials. It is free of torch."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from lib.claims.cells import parse_seeds
from lib.core import disk
from lib.core.papers import find_notebook_path, find_papers
from lib.core.paths import PUBLISHED

PAPERS = {name: paper.title for name, paper in find_papers().items()}


@cache
def read_published_csv(table: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file under `data/published`, such as "bermo/claims".

    A plan or a list of trials that does not exist has no rows. Rows of a paper that is
    not installed are left out."""
    path = PUBLISHED / f"{table}.csv"
    if table.startswith(("plan_", "trials_")) and not path.exists():
        return []
    rows = disk.read_csv(path)
    return [row for row in rows if is_installed(row)] if list_absent_papers() else rows


@cache
def list_absent_papers() -> list[str]:
    """Return the papers that `central.csv` names and whose folder is not installed."""
    rows = disk.read_csv(PUBLISHED / "central.csv")
    papers = dict.fromkeys(row["paper"] for row in rows)
    return [paper for paper in papers if paper not in PAPERS]


def is_installed(row: Mapping[str, str]) -> bool:
    """Return whether each paper, page and claim that a row names is installed.

    A row of `cells.csv` names under `needs` the other papers that its models are of."""
    pages = filter(None, (row.get("page") or row.get("artefact") or "").split("; "))
    papers = {row.get("paper"), *(row.get("needs") or "").split("; ")}
    if papers & {*list_absent_papers()} or not all(
        find_notebook_path(p).exists() for p in pages
    ):
        return False
    claim = row.get("claim", "") if "id" not in row else ""
    return (
        not claim
        or not re.fullmatch(r"[A-Z]+[0-9]+", claim)
        or claim in list_claim_ids()
    )


@cache
def list_claim_ids() -> set[str]:
    """Return the ids of all claims of the installed papers, and of our own
    questions."""
    return {
        row["id"]
        for paper in (*PAPERS, "own")
        for row in read_published_csv(f"{paper}/claims")
    }


@cache
def read_claims() -> dict[str, dict[str, Any]]:
    """Return {id: row of claims.csv and its `paper`}, paper by paper, our own questions
    last.

    A claim of `plan.csv` has its seeds from there, and the row of the plan as
    `planned`. Seeds that were added later (`added.csv`) follow them. Cells with models
    of a paper that is not installed are left out."""
    by_id, plan = {}, {row["claim"]: row for row in read_published_csv("plan")}
    for paper in (*PAPERS, "own"):
        for row in read_published_csv(f"{paper}/claims"):
            by_id[row["id"]] = {"paper": paper, "planned": None} | row
            if planned := plan.get(row["id"]):
                first = int(planned["first_seed"])
                seeds = f"{first} to {first + int(planned['seeds']) - 1}"
                by_id[row["id"]] |= {"planned": planned, "seeds": seeds}
    for row in read_published_csv("added"):
        by_id[row["claim"]]["seeds"] += f", {row['seeds']}"
    for id in by_id if list_absent_papers() else ():
        cells = by_id[id]["cells"].split("; ")
        cells = [cell for cell in cells if (id, cell) in read_cell_lines()]
        by_id[id]["cells"] = "; ".join(cells)
    return by_id


def list_planned_seeds(claim_id: str, scale: str = "mini") -> tuple[int, ...]:
    """Return the planned seeds of a claim at a profile.

    The tuple is empty for a claim without planned seeds: it takes those of its
    pages."""
    if scale == "mini":
        return parse_seeds(read_claims()[claim_id]["seeds"])
    rows = [
        row for row in read_published_csv(f"plan_{scale}") if row["claim"] == claim_id
    ]
    planned = set()
    for row in (row for row in rows if row["word"] == "planned"):
        first = int(row["first_seed"])
        planned |= {*range(first, first + int(row["seeds"]))}
    return tuple(sorted(planned))


def list_planned_cell_seeds(
    claim_id: str, cell_text: str, scale: str
) -> tuple[int, ...]:
    """Return the planned seeds of a cell at a profile.

    A cell that repeats a comparison of a central claim has the seeds of that claim."""
    return list_planned_seeds(
        find_cell_line(claim_id, cell_text)["same_as"] or claim_id, scale
    )


@cache
def read_cell_lines() -> dict[tuple[str, str], dict[str, str]]:
    """Return {(claim, cell): row of `cells.csv`}.

    A row has the cell as a sentence and as an axis label, its smallest effect of
    interest, and the central claim that has the same comparison."""
    every = (
        row
        for paper in (*PAPERS, "own")
        for row in read_published_csv(f"{paper}/cells")
    )
    return {(row["claim"], row["cell"]): row for row in every}


def find_cell_line(claim_id: str, cell_text: str) -> dict[str, str]:
    """Return the row of `cells.csv` of a cell. Raises KeyError where there is none."""
    return read_cell_lines()[claim_id, cell_text]


def read_effects_of_interest(claim_id: str) -> dict[tuple[str, str], float]:
    """Return {(cell, task): the smallest effect of interest that the plan names}.

    The task "" stands for all tasks."""
    effects = {}
    for (id, cell), row in read_cell_lines().items():
        for part in filter(None, row["interest"].split("; ") if id == claim_id else ()):
            task, _, value = part.rpartition("=")
            effects[cell, task] = float(value)
    return effects
