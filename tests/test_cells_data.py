"""The cells of the claims in words (`data/published/<paper>/cells.csv`), held to
`claims.csv`, to `plan.csv` and to the runs that the cells compare."""

import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from lib.claims import cells, checks, judging, lists
from lib.claims.estimates import group_rows_by_model
from lib.papers import grids

PAPERS = (*lists.PAPERS, "own")
GRAMMAR = re.compile(r" :: |[|\[\]@=<>~*]|\bvalue\b|\bany ")
RANK = ("central", "own", "finding")


@cache
def told():
    """{(claim, cell): row of `cells.csv`}, in the order of the claims."""
    return {
        (r["claim"], r["cell"]): r
        for p in PAPERS
        for r in lists.read_csv_in_published_folder(f"{p}/cells")
    }


def split(text):
    """The numbers of `interest`: {task: number}, with the task "" where there is one
    for all."""
    pairs = (each.rpartition("=") for each in text.split("; ") if each)
    return {task: float(number) for task, _, number in pairs}


@pytest.mark.papers()
@pytest.mark.parametrize("paper", PAPERS)
def test_each_cell_has_one_row_in_the_order_of_the_claims(paper):
    wanted = [
        (line["id"], cell)
        for line in lists.read_csv_in_published_folder(f"{paper}/claims")
        for cell in line["cells"].split("; ")
        if cell
    ]
    assert [
        (r["claim"], r["cell"])
        for r in lists.read_csv_in_published_folder(f"{paper}/cells")
    ] == wanted


def test_a_sentence_is_short_and_plain():
    for row in told().values():
        sentence, short = row["sentence"], row["short"]
        assert len(sentence) <= 80 and sentence[0].isupper() and sentence[-1] != ".", (
            sentence
        )
        assert 0 < len(short) <= 34, short
        assert not GRAMMAR.search(sentence) and not GRAMMAR.search(short), sentence
        assert not re.search(r"\bless\b", sentence), sentence


def test_a_claim_says_no_two_cells_alike():
    for column in ("sentence", "short"):
        counts = Counter((row["claim"], row[column]) for row in told().values())
        assert [each for each, n in counts.items() if n > 1] == []


def test_a_sentence_has_one_short_form():
    shorts = defaultdict(set)
    for row in told().values():
        shorts[row["sentence"]].add(row["short"])
    assert {s: found for s, found in shorts.items() if len(found) > 1} == {}


def test_a_sentence_names_the_task_where_its_cell_does():
    """Where it does not, whoever shows a result adds the task."""
    for (_, text), row in told().items():
        tasks = {
            v
            for _, where in cells.parse_comparison(text).models
            for k, v in where
            if k == "task"
        } - {"*"}
        if len(tasks) == 1 and "/" not in (task := tasks.pop()):
            said = {"SQuAD1": "SQuAD 1.1", "SQuAD2": "SQuAD 2.0"}.get(task, task)
            assert f" on {said}" in row["sentence"], text


@pytest.mark.papers()
def test_an_interest_is_that_of_the_plan_and_lies_in_the_region():
    found = defaultdict(Counter)
    for (claim, text), row in told().items():
        low, high = cells.parse_comparison(text).bounds
        for number in split(row["interest"]).values():
            assert low <= number <= high, (claim, text)
            found[claim][number] += 1
    for row in lists.read_csv_in_published_folder("plan"):
        told_there = [x for x in row["interest"].split("; ") if x not in ("", "–")]
        if "is judged as a direction" in row["why"]:
            assert {*found.pop(row["claim"])} == {0.0}  # No size is tested,
            for line in judging.read_verdicts_csv():  # nor in a claim that repeats it.
                if line["same_as"] == row["claim"]:
                    assert {*found.pop(line["claim"], {0.0: 1})} == {0.0}
        if row["claim"] in lists.read_claims():
            wanted = Counter(map(float, told_there))
            assert found.pop(row["claim"], Counter()) == wanted, row["claim"]
    for (
        claim,
        numbers,
    ) in found.items():  # Questions of the plans of base and of fair comparisons.
        every = lists.read_csv_in_published_folder(
            "plan_base"
        ) + lists.read_csv_in_published_folder("plan_fair")
        rows = [row for row in every if row["claim"] == claim]
        planned = {float(x) for row in rows for x in row["interest"].split("; ") if x}
        assert rows and numbers.keys() <= planned, claim


def planned(line, scale):
    """The rows of the pages of a claim that its cells name; at paper they are made
    without data."""
    if scale == "mini":
        return judging.list_grid_rows_of_claim(line)
    found = [
        row
        for page in line["artefact"].split("; ")
        for row in checks.list_full_size_runs_of_notebook(page)
    ]
    return cells.select_compared_rows(
        cells.parse_comparisons(line["cells"]),
        found + grids.list_architecture_searches_of_models(found),
    )


def compared(one, rows):
    """What a cell compares: (measure, [(weight, {task: ids of Specs} of each model),
    ...]), or None where a model has no rows."""
    rows = (
        rows
        if one.measure
        else [row for row in rows if cells.is_scored_on_examples(row["spec"])]
    )
    parts = []
    for _, own in group_rows_by_model(one, rows):
        ids = defaultdict(set)
        for row in own:
            ids[str(row.get("task"))].add(row["spec"].id)
        parts.append(ids)
    if not all(parts):
        return None
    left = iter(parts)
    return (one.measure, one.measure_argument), [
        (w, [next(left) for _ in models]) for w, models in one.terms
    ]


def tasks_of(found):
    return {task for _, models in found[1] for ids in models for task in ids}


def on(found, tasks):
    """A comparison on some tasks alone. Scores of the same runs are added up, so that
    it does not matter how the sum is written."""
    measure, terms = found
    told = [
        (
            w,
            [
                frozenset((t, i) for t in tasks for i in ids.get(t, ()))
                for ids in models
            ],
        )
        for w, models in terms
    ]
    if measure[0]:
        return measure, Counter((round(w, 6), tuple(models)) for w, models in told)
    total = Counter()
    for w, models in told:
        for sign, ids in zip((1, -1), models, strict=False):
            total[ids] += sign * w
    return measure, {ids: round(w, 6) for ids, w in total.items() if abs(w) > 1e-9}


def twins():
    """{(claim, cell) of a finding: the claim that has the same comparison before it}.

    Central claims come first, then our questions, then findings. A comparison on some
    of the tasks of another one is the same, if the claimed region is. Runs are those of
    mini, and of paper where mini makes none."""
    found, region = {"mini": {}, "paper": {}}, {}
    every = {id: line for id, line in lists.read_claims().items() if line["cells"]}
    order = sorted(every, key=lambda id: RANK.index(every[id]["role"]))
    for scale, at in found.items():
        for id in order:
            rows = planned(every[id], scale)
            for one in cells.parse_comparisons(every[id]["cells"]):
                region[id, one.text] = one.bounds
                if there := compared(one, rows):
                    at[id, one.text] = there
    same = {}
    for claim, text in told():
        if every[claim]["role"] != "finding":
            continue
        at = found["mini" if (claim, text) in found["mini"] else "paper"]
        own = at[claim, text]
        tasks = tasks_of(own)
        for (other, other_text), there in at.items():
            if order.index(other) >= order.index(claim):
                break
            if region[other, other_text] != region[claim, text]:
                continue
            if tasks <= tasks_of(there) and on(there, tasks) == on(own, tasks):
                same[claim, text] = other
                break
    return same


@pytest.mark.papers()
def test_same_as_names_a_claim_with_the_same_comparison_of_the_same_runs():
    wanted = twins()
    assert {
        key: row["same_as"] for key, row in told().items() if row["same_as"]
    } == wanted
    assert {"G35", "N10", "B9"} <= {claim for claim, _ in wanted}
    assert ("B51", "diverged :: BERMo = value 0") not in wanted
