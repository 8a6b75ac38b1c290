"""Why a further finding has no answer at mini (`data/published/unanswered.csv`): each
reason holds.

A finding is answered where one of its cells, or the same comparison of another claim,
has three recorded seeds of each model on each task that it takes, and these models
learned."""

import re
from collections import defaultdict
from functools import cache

import pytest

from lib.claims import cells, checks, judging, lists
from lib.claims.estimates import group_rows_by_model
from lib.core import paths
from lib.core.store import Store
from lib.papers import grids

ROWS = {row["claim"]: row for row in lists.read_csv_in_published_folder("unanswered")}
NONE = "a model or a task of the comparison has no recorded run at mini"
FEW = "fewer than three seeds are recorded at mini"
DULL = "a model of the comparison learned nothing at mini"
BUILT = "it holds by construction here"
TIED = "too many of the ranked scores are equal at mini"
TASKS = {"SQuAD 1.1": "SQuAD1"} | {
    t: t for t in "CoLA MNLI MRPC QNLI QQP RTE STS-B".split()
}
LINES = {
    id: line for id, line in lists.read_claims().items() if line["role"] == "finding"
}


def made(line, scale):
    """The rows of the pages of a claim; at paper they are made without data."""
    pages = filter(None, line["artefact"].split("; "))
    if scale == "mini":
        return (
            judging.list_grid_rows_of_notebooks(
                tuple(line["artefact"].split("; ")), scale
            )
            if line["artefact"]
            else []
        )
    found = [
        row for page in pages for row in checks.list_full_size_runs_of_notebook(page)
    ]
    return found + grids.list_architecture_searches_of_models(found)


def seeds(one, rows):
    """(how many seeds of its thinnest model a cell has, how many an answer takes), or
    None where a model has no rows. A cell of each task has those of its best task."""
    rows = (
        rows
        if one.measure
        else [row for row in rows if cells.is_scored_on_examples(row["spec"])]
    )
    by_task = defaultdict(list)
    for _, part in group_rows_by_model(one, rows):
        if not part:
            return None
        ended = defaultdict(set)
        for row in part:
            ended[str(row.get("task"))] |= (
                {row["seed"]} if recorded(row["spec"]) else set()
            )
        for task, there in ended.items():
            by_task[task].append(len(there))
    fewest = [min(found) for found in by_task.values()]
    single = one.measure == "rank correlation" or one.bounds == (0, 0)
    return max(fewest) if one.is_tested_on_each_task or one.bounds == (0, 0) else min(
        fewest
    ), 1 if single else 3


@cache
def recorded(spec):
    return store().find_run_with_state(spec)["run"] is not None


@cache
def store():
    return Store(
        paths.DATA / "no runs"
    )  # What another command is making now is no record.


@cache
def measured(claim):
    """{cell: (its seeds, how many an answer takes)}, None for what mini does not
    make."""
    line = lists.read_claims()[claim]
    rows = judging.list_grid_rows_of_claim(line)
    return {
        one.text: seeds(one, rows) for one in cells.parse_comparisons(line["cells"])
    }


def twin(claim, text):
    """The seeds of the same comparison in another claim, which has the most on these
    tasks."""
    told = {
        r["cell"]: r["same_as"]
        for r in lists.read_csv_in_published_folder(f"{LINES[claim]['paper']}/cells")
        if r["claim"] == claim
    }
    if not (other := told.get(text)):
        return None
    return max(filter(None, measured(other).values()), default=None)


def test_rows_are_findings_in_their_order_and_repeat_what_they_say():
    assert list(ROWS) == [id for id in LINES if id in ROWS]
    for id, row in ROWS.items():
        assert (row["paper"], row["says"]) == (LINES[id]["paper"], LINES[id]["says"])
        assert row["reason"] and row["reason"][-1] != "." and "::" not in row["reason"]


@pytest.mark.papers()
@pytest.mark.parametrize("paper", lists.PAPERS)
def test_a_finding_without_an_answer_is_there_and_no_other(paper):
    for id, line in LINES.items():
        if line["paper"] != paper:
            continue
        if line["cannot"] and not line["cells"]:
            assert id in ROWS
            continue
        found = [each for each in measured(id).values() if each]
        enough = any(n >= needed for n, needed in found)
        reason = ROWS[id]["reason"] if id in ROWS else ""
        if reason in (DULL, BUILT):
            assert enough, id
        elif reason == TIED:
            (row,) = (r for r in judging.read_verdicts_csv() if r["claim"] == id)
            assert enough and "scores differ" in row["reason"]
        elif reason == NONE:
            assert max(found)[0] == 0, id
        elif reason == FEW:
            assert 0 < max(found)[0] < 3, id
        elif not reason:
            others = [each for text in measured(id) if (each := twin(id, text))]
            assert enough or any(n >= needed for n, needed in others), id
        else:
            assert line["cannot"], id
            assert not all(
                each and each[0] >= each[1] for each in measured(id).values()
            ), id


@pytest.mark.papers()
def test_what_needs_the_profile_paper_is_made_there_and_not_at_mini():
    told = [
        id
        for id, row in ROWS.items()
        if re.search("profile paper|mini lacks", row["reason"])
    ]
    assert len(told) > 30
    for id in told:
        line, reason = LINES[id], ROWS[id]["reason"]
        paper, mini = (made(line, scale) for scale in ("paper", "mini"))
        for one in cells.parse_comparisons(line["cells"]):
            assert all(part for _, part in group_rows_by_model(one, paper)), id
        if line["cells"] and "full pre-training" not in reason:
            parts = [
                part
                for one in cells.parse_comparisons(line["cells"])
                for _, part in group_rows_by_model(one, mini)
            ]
            assert not all(parts), id
        for name, task in TASKS.items():
            if re.search(rf"\b{re.escape(name)}\b", reason):
                assert re.search(rf"{name.split()[0]}|other tasks", line["says"]), id
                assert task in {row.get("task") for row in paper}, id
                assert task not in {row.get("task") for row in mini}, id


@pytest.mark.papers()
def test_what_no_page_has_is_in_no_cell():
    told = [id for id, row in ROWS.items() if "no page" in row["reason"]]
    assert len(told) > 10
    assert [id for id in told if LINES[id]["cells"]] == []
