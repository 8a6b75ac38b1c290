"""This module reads the tables that were written before the runs: the papers' claims,
their comparisons (cells), the planned seeds and the trials."""

import re
from functools import cache
from typing import Any, TypeAlias

from lib.claims.cells import parse_seeds
from lib.core import disk
from lib.core.papers import find_notebook_path, list_papers_by_name
from lib.core.paths import PUBLISHED
from lib.core.types import CsvRow

ClaimId: TypeAlias = str  # Such as "G1".
# Row of `claims.csv` with two further keys: `paper`, and `planned`, the claim's row of
# `plan.csv` or None.
ClaimsCsvRow: TypeAlias = dict[str, Any]
ClaimAndComparison: TypeAlias = tuple[str, str]  # (claim id, text of a comparison)
# {(text of a comparison, task): effect, in the unit of the comparison, such as points}
EffectByComparisonAndTask: TypeAlias = dict[tuple[str, str], float]
PAPERS = {name: paper.title for name, paper in list_papers_by_name().items()}


@cache
def read_csv_in_published_folder(table_name: str) -> list[CsvRow]:
    """Return the rows of a CSV file below `data/published` as dicts of text.

    The folder has the papers' printed tables and claims, the plans of runs ("plan_...")
    and the results of trial runs ("trials_..."). Plans and results of trial runs may be
    missing and then have no rows. Rows of a paper whose code was deleted are left out.

    table_name: the path without its suffix, such as "bermo/claims"."""
    path = PUBLISHED / f"{table_name}.csv"
    if table_name.startswith(("plan_", "trials_")) and not path.exists():
        return []
    rows = disk.read_csv(path)
    return (
        [row for row in rows if has_code_of_all_its_papers(row)]
        if list_papers_whose_folder_is_missing()
        else rows
    )


@cache
def list_papers_whose_folder_is_missing() -> list[str]:
    """Return the papers in `central.csv` whose folder in lib/papers is missing.

    `central.csv` lists the main claims of all papers. A user may delete a paper's code;
    rows of this paper in shared tables are then ignored."""
    rows = disk.read_csv(PUBLISHED / "central.csv")
    papers = dict.fromkeys(row["paper"] for row in rows)
    return [paper for paper in papers if paper not in PAPERS]


def has_code_of_all_its_papers(csv_row: CsvRow) -> bool:
    """Return whether all papers, notebooks and claims that a row names exist.

    A user may delete a paper with its notebooks; rows that need it are then ignored.

    csv_row: {column: text}. The column `needs` names other papers whose models are
    compared."""
    pages = filter(
        None, (csv_row.get("page") or csv_row.get("artefact") or "").split("; ")
    )
    papers = {csv_row.get("paper"), *(csv_row.get("needs") or "").split("; ")}
    if papers & {*list_papers_whose_folder_is_missing()} or not all(
        find_notebook_path(p).exists() for p in pages
    ):
        return False
    claim = "" if "id" in csv_row else csv_row.get("claim", "")
    return not re.fullmatch(r"[A-Z]+[0-9]+", claim) or claim in list_claim_ids()


@cache
def list_claim_ids() -> set[ClaimId]:
    """Return the ids, such as "G1", of all claims in the files `claims.csv`.

    These are the claims of the papers whose code is installed, and the repository's own
    questions."""
    return {
        row["id"]
        for paper in (*PAPERS, "own")
        for row in read_csv_in_published_folder(f"{paper}/claims")
    }


@cache
def read_claims() -> dict[ClaimId, ClaimsCsvRow]:
    """Return {claim id: its row of `claims.csv`}, paper by paper, own questions last.

    A claim is a statement of a paper that is tested; own questions are claims of this
    repository. A row is a dict with two further keys: `paper`, and `planned`, the
    claim's row of `plan.csv` (seeds planned before the runs) or None. The `seeds` of a
    planned claim are those of the plan, then those added later (`added.csv`).
    Comparisons with a model of a paper whose code was deleted are left out."""
    by_id: dict[ClaimId, ClaimsCsvRow] = {}
    plan = {row["claim"]: row for row in read_csv_in_published_folder("plan")}
    for paper in (*PAPERS, "own"):
        for row in read_csv_in_published_folder(f"{paper}/claims"):
            by_id[row["id"]] = {"paper": paper, "planned": None} | row
            if planned := plan.get(row["id"]):
                seeds = list_seeds_of_plan_row(planned)
                text = f"{seeds[0]} to {seeds[-1]}"
                by_id[row["id"]] |= {"planned": planned, "seeds": text}
    for row in read_csv_in_published_folder("added"):
        by_id[row["claim"]]["seeds"] += f", {row['seeds']}"
    for id in by_id if list_papers_whose_folder_is_missing() else ():
        cells = [
            comparison
            for comparison in by_id[id]["cells"].split("; ")
            if (id, comparison) in read_comparison_descriptions()
        ]
        by_id[id]["cells"] = "; ".join(cells)
    return by_id


def list_planned_seeds(claim_id: str, profile: str = "mini") -> tuple[int, ...]:
    """Return the seeds at which a claim was planned to be tested, at one profile.

    It is () for a claim without planned seeds, whose seeds are set by its notebooks.

    claim_id: such as "G1".
    profile: the size of the experiments, such as "mini" or "base"."""
    if profile == "mini":
        return parse_seeds(read_claims()[claim_id]["seeds"])
    planned = set()
    for row in read_csv_in_published_folder(f"plan_{profile}"):
        if row["claim"] == claim_id and row["word"] == "planned":
            planned |= {*list_seeds_of_plan_row(row)}
    return tuple(sorted(planned))


def list_seeds_of_plan_row(csv_row: CsvRow) -> range:
    """Return the seeds of a row of a plan, from its first seed and number of seeds."""
    first = int(csv_row["first_seed"])
    return range(first, first + int(csv_row["seeds"]))


def list_planned_comparison_seeds(
    claim_id: str, comparison_text: str, profile: str
) -> tuple[int, ...]:
    """Return the seeds that were planned for one comparison of a claim, at one profile.

    Where the comparison is counted under another claim, which makes the same one, they
    are the seeds of that claim, so that both have the same runs.

    comparison_text: the comparison as `claims.csv` writes it, such as "Ghost > Prune @
    m=3".
    profile: the size of the experiments, such as "mini" or "base"."""
    return list_planned_seeds(
        find_comparison_description(claim_id, comparison_text)["same_as"] or claim_id,
        profile,
    )


@cache
def read_comparison_descriptions() -> dict[ClaimAndComparison, CsvRow]:
    """Return {(claim id, text of a comparison): its row of `cells.csv`}.

    The file describes each comparison that a claim makes. Its columns are `sentence`
    (the comparison in words), `short` (an axis label), `interest` (the smallest effect
    of interest, named with the first seeds), `same_as` (id of another claim that makes
    the same comparison and counts it, or ""), and in some files `needs` (other papers
    whose models are compared)."""
    every = (
        row
        for paper in (*PAPERS, "own")
        for row in read_csv_in_published_folder(f"{paper}/cells")
    )
    return {(row["claim"], row["cell"]): row for row in every}


def find_comparison_description(claim_id: str, comparison_text: str) -> CsvRow:
    """Return the row of `cells.csv` that describes one comparison of a claim.

    It has the comparison in words, an axis label, the smallest effect of interest, and
    the claim that makes the same comparison and counts it, if any. Raises KeyError
    where there is no such row.

    claim_id: such as "G1".
    comparison_text: the comparison, such as "Ghost > Prune @ m=3"."""
    return read_comparison_descriptions()[claim_id, comparison_text]


def read_smallest_effects_of_interest(claim_id: str) -> EffectByComparisonAndTask:
    """Return {(text of a comparison, task): smallest effect of interest} of a claim.

    The effects were named with the first seeds, in the unit of the comparison. A
    measured interval is tested against them where the paper prints no value. An effect
    of 0 says that the plan reads the comparison as a direction alone. A comparison that
    is counted under another claim has the effect of that claim. The task "" stands for
    all tasks."""
    effects, descriptions = {}, read_comparison_descriptions()
    for (id, comparison), row in descriptions.items():
        if id != claim_id:
            continue
        counted = descriptions.get((row["same_as"], comparison), row)
        for part in filter(None, (row["interest"] or counted["interest"]).split("; ")):
            task, _, value = part.rpartition("=")
            effects[comparison, task] = float(value)
    return effects
