"""This module reads the tables that were written before the runs: the papers' claims,
their comparisons (cells), the planned seeds and the trials. It does not import
torch."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

from lib.claims.cells import parse_seeds
from lib.core import disk
from lib.core.papers import find_notebook_path, find_papers
from lib.core.paths import PUBLISHED

ClaimAndCell: TypeAlias = tuple[str, str]  # (claim id, text of a comparison)
# {(text of a comparison, task): effect}
EffectByCellAndTask: TypeAlias = dict[tuple[str, str], float]
PAPERS = {name: paper.title for name, paper in find_papers().items()}


@cache
def read_csv_in_published_folder(table_name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file below `data/published` as dicts.

    table_name: the path without its suffix, such as "bermo/claims". A plan or a list of
    trials that does not exist has no rows. Rows of a paper that is not installed are
    left out."""
    path = PUBLISHED / f"{table_name}.csv"
    if table_name.startswith(("plan_", "trials_")) and not path.exists():
        return []
    rows = disk.read_csv(path)
    return (
        [row for row in rows if belongs_to_papers_with_code(row)]
        if list_papers_without_code()
        else rows
    )


@cache
def list_papers_without_code() -> list[str]:
    """Return the papers whose code is not installed: `central.csv` names them, but
    their folder in lib/papers is missing.

    A user may delete a paper; its rows in shared tables are then ignored."""
    rows = disk.read_csv(PUBLISHED / "central.csv")
    papers = dict.fromkeys(row["paper"] for row in rows)
    return [paper for paper in papers if paper not in PAPERS]


def belongs_to_papers_with_code(csv_row: Mapping[str, str]) -> bool:
    """Return whether each paper, notebook and claim that a row of a table names is
    installed.

    The column `needs` of `cells.csv` names other papers whose models the row
    compares."""
    pages = filter(
        None, (csv_row.get("page") or csv_row.get("artefact") or "").split("; ")
    )
    papers = {csv_row.get("paper"), *(csv_row.get("needs") or "").split("; ")}
    if papers & {*list_papers_without_code()} or not all(
        find_notebook_path(p).exists() for p in pages
    ):
        return False
    claim = csv_row.get("claim", "") if "id" not in csv_row else ""
    return (
        not claim
        or not re.fullmatch(r"[A-Z]+[0-9]+", claim)
        or claim in list_claim_ids()
    )


@cache
def list_claim_ids() -> set[str]:
    """Return the ids, such as "G1", of all claims of the installed papers and of the
    repository's own questions."""
    return {
        row["id"]
        for paper in (*PAPERS, "own")
        for row in read_csv_in_published_folder(f"{paper}/claims")
    }


@cache
def read_claims() -> dict[str, dict[str, Any]]:
    """Return {claim id: its row of `claims.csv`}, paper by paper; the repository's own
    questions come last.

    A row has two more keys: `paper`, and `planned`, the claim's row of `plan.csv` or
    None. A planned claim has its `seeds` from the plan, followed by seeds that were
    added later (`added.csv`). Comparisons with models of a paper that is not installed
    are left out."""
    by_id, plan = (
        {},
        {row["claim"]: row for row in read_csv_in_published_folder("plan")},
    )
    for paper in (*PAPERS, "own"):
        for row in read_csv_in_published_folder(f"{paper}/claims"):
            by_id[row["id"]] = {"paper": paper, "planned": None} | row
            if planned := plan.get(row["id"]):
                first = int(planned["first_seed"])
                seeds = f"{first} to {first + int(planned['seeds']) - 1}"
                by_id[row["id"]] |= {"planned": planned, "seeds": seeds}
    for row in read_csv_in_published_folder("added"):
        by_id[row["claim"]]["seeds"] += f", {row['seeds']}"
    for id in by_id if list_papers_without_code() else ():
        cells = by_id[id]["cells"].split("; ")
        cells = [cell for cell in cells if (id, cell) in read_cells_csv()]
        by_id[id]["cells"] = "; ".join(cells)
    return by_id


def list_planned_seeds(claim_id: str, profile: str = "mini") -> tuple[int, ...]:
    """Return the seeds at which a claim was planned to be tested, at a profile.

    profile: the scale of the runs, such as "mini" or "base". The tuple is empty for a
    claim without planned seeds; its notebooks then set the seeds."""
    if profile == "mini":
        return parse_seeds(read_claims()[claim_id]["seeds"])
    rows = [
        row
        for row in read_csv_in_published_folder(f"plan_{profile}")
        if row["claim"] == claim_id
    ]
    planned = set()
    for row in (row for row in rows if row["word"] == "planned"):
        first = int(row["first_seed"])
        planned |= {*range(first, first + int(row["seeds"]))}
    return tuple(sorted(planned))


def list_planned_cell_seeds(
    claim_id: str, cell_text: str, profile: str
) -> tuple[int, ...]:
    """Return the planned seeds of one comparison of a claim at a profile (scale of the
    runs).

    A comparison that a central claim has as well takes the seeds of that claim, so that
    both are estimated from the same runs.

    cell_text: the comparison as `claims.csv` writes it, such as "Ghost > Prune @
    m=3"."""
    return list_planned_seeds(
        find_cells_csv_row(claim_id, cell_text)["same_as"] or claim_id, profile
    )


@cache
def read_cells_csv() -> dict[ClaimAndCell, dict[str, str]]:
    """Return {(claim id, text of a comparison): its row of `cells.csv`}.

    A row has the comparison as a sentence and as an axis label, its smallest effect of
    interest, and the central claim that has the same comparison, if any."""
    every = (
        row
        for paper in (*PAPERS, "own")
        for row in read_csv_in_published_folder(f"{paper}/cells")
    )
    return {(row["claim"], row["cell"]): row for row in every}


def find_cells_csv_row(claim_id: str, cell_text: str) -> dict[str, str]:
    """Return the row of `cells.csv` for one comparison of a claim. Raises KeyError
    where there is none."""
    return read_cells_csv()[claim_id, cell_text]


def read_smallest_effects_of_interest(claim_id: str) -> EffectByCellAndTask:
    """Return {(text of a comparison, task): smallest effect of interest} of a claim.

    The effects were fixed before the runs. They stand in for a printed value where the
    paper prints none. The task "" stands for all tasks."""
    effects = {}
    for (id, cell), row in read_cells_csv().items():
        for part in filter(None, row["interest"].split("; ") if id == claim_id else ()):
            task, _, value = part.rpartition("=")
            effects[cell, task] = float(value)
    return effects
