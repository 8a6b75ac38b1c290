"""A grid has the planned seeds of the comparisons that name its rows; `gaps` uses these
alone."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import made_up

from lib import data
from lib.claims import lists, notebook, seeds
from lib.claims.cells import is_scored_on_examples, parse_comparisons, row_matches_model
from lib.claims.seeds import (
    PlannedComparison,
    find_planned_comparison_of_models,
    list_planned_comparisons,
    repeat_rows_at_planned_seeds,
)
from lib.core import paths
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.papers import grids
from lib.report import artefact
from lib.report.tables import Runs

SPEC = Spec("finetune", {"data": {"task": "SST-2"}})
PLANS = (
    PlannedComparison("G1", parse_comparisons("a > b @ m=3")[0], (10, 11, 12), ()),
    PlannedComparison("G2", parse_comparisons("a > c")[0], (20, 21), ("c",)),
    PlannedComparison(
        "G3", parse_comparisons("kept weights :: d > a @ m=9")[0], (30,), ()
    ),
)


@pytest.fixture
def plans(monkeypatch):
    """Cells of a made-up page, at mini."""
    monkeypatch.setattr(
        seeds,
        "list_planned_comparisons",
        lambda page, scale: PLANS if page == "page" else (),
    )


def rows(*models, seeds=(0, 1), step="finetune", **labels):
    return [
        Row(
            Spec(step, {"data": {"task": "SST-2", "of": model}}),
            model=model,
            task="SST-2",
            seed=seed,
            **labels,
        )
        for model in models
        for seed in seeds
    ]


def seeds_of(found):
    by = {}
    for row in found:
        assert row["spec"].seed == row["seed"]
        by.setdefault(row["model"], []).append(row["seed"])
    return by


def test_a_row_has_the_union_of_the_seeds_of_all_cells_that_name_it(plans):
    found = repeat_rows_at_planned_seeds("page", "mini", rows("a", "b", "c", "e", m=3))
    assert seeds_of(found) == {
        "a": [10, 11, 12, 20, 21],
        "b": [10, 11, 12],
        "c": [20, 21],
        "e": [0, 1],  # No cell names it.
    }
    at_nine = seeds_of(
        repeat_rows_at_planned_seeds("page", "mini", rows("a", "b", "d", m=9))
    )
    assert at_nine == {"a": [20, 21, 30], "b": [0, 1], "d": [30]}


def test_rows_differ_by_their_seed_and_spec_alone(plans):
    made = rows("a", m=3, more="kept")
    for row in repeat_rows_at_planned_seeds("page", "mini", made):
        assert row.with_seed(0) == made[0]
        assert row["spec"].id == made[0]["spec"].id


def test_a_page_without_such_cells_and_a_profile_without_a_plan_are_left(plans):
    made = rows("a", "b", m=3)
    assert repeat_rows_at_planned_seeds("another", "mini", made) == made
    for scale in ("toy", "paper"):
        assert repeat_rows_at_planned_seeds("page", scale, made) == made


def test_a_row_without_a_seed_is_left(plans):
    once = [Row(SPEC, model="a", m=3)]
    assert repeat_rows_at_planned_seeds("page", "mini", once) == once


@pytest.mark.papers("nas_pruning")
def test_a_cell_of_scores_names_no_search(plans):
    """A search stands under its network's name, and scores no model. A measure names it
    too."""
    assert seeds_of(
        repeat_rows_at_planned_seeds("page", "mini", rows("a", m=3, step="nas_search"))
    ) == {"a": [0, 1]}
    assert seeds_of(
        repeat_rows_at_planned_seeds("page", "mini", rows("d", m=9, step="nas_search"))
    ) == {"d": [30]}


NOTEBOOKS = [
    path
    for path in notebook.find_notebooks()
    if list_planned_comparisons(notebook.make_notebook_id(path), "mini")
]


@pytest.fixture(autouse=True)
def official():
    with data.plan_with_missing_data(use_local_data=False):
        yield


def lacking(path):
    """[(claim, cell, model, seeds)] that a cell plans and the grid of its page at mini
    lacks."""
    values = {"profile": "mini"}
    grid = [
        row
        for made in notebook.execute_grid_cell_and_list_rows_by_variable(path, values).values()
        for row in made
    ]  # fmt: skip
    found = []
    for plan in list_planned_comparisons(notebook.make_notebook_id(path), "mini"):
        for label, where in plan.comparison.models:
            own = [row for row in grid if row_matches_model(row, label, where)]
            own = [
                row
                for row in own
                if plan.comparison.measure or is_scored_on_examples(row["spec"])
            ]
            places = {}
            for row in own:
                if row.get("seed") is not None and row["spec"].seed is not None:
                    about = {
                        k: repr(v) for k, v in row.items() if k not in ("seed", "spec")
                    }
                    place = row["spec"].id, *sorted(about.items())
                    places.setdefault(place, set()).add(row["seed"])
            for there in places.values():
                if rest := {*plan.seeds} - there:
                    found.append(
                        (plan.claim_id, plan.comparison.text, label, sorted(rest))
                    )
    return found


@pytest.mark.papers()
def test_many_pages_have_planned_cells():
    assert len(NOTEBOOKS) >= 20
    names = map(notebook.make_notebook_id, NOTEBOOKS)
    planned = {
        plan.claim_id
        for name in names
        for plan in list_planned_comparisons(name, "mini")
    }
    assert planned >= {"G1", "E1", "B1", "N1"}


@pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda path: notebook.make_notebook_id(path)
)
def test_the_grid_of_a_page_has_the_planned_seeds_of_its_cells(path):
    assert lacking(path) == []


@pytest.mark.papers("ghostbert")
def test_a_seed_that_is_taken_from_a_grid_is_found(monkeypatch):
    """Else the test above could not fail."""
    (path,) = notebook.find_notebooks(["ghostbert_t03_pruned_vs_ghost"])
    last = lists.list_planned_seeds("G1")[-1]

    def less(page, scale, made):
        return [
            row
            for row in repeat_rows_at_planned_seeds(page, scale, made)
            if row.get("seed") != last
        ]

    monkeypatch.setattr(notebook, "repeat_rows_at_planned_seeds", less)
    assert {seed for *_, seeds in lacking(path) for seed in seeds} == {last}
    monkeypatch.setattr(
        notebook, "repeat_rows_at_planned_seeds", lambda page, scale, made: made
    )
    assert any(lacking(path) for path in NOTEBOOKS)


@pytest.mark.papers("ghostbert")
def test_seeds_that_a_reader_asks_for_are_the_seeds():
    (path,) = notebook.find_notebooks(["ghostbert_t03_pruned_vs_ghost"])
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": "mini", "seeds": [3]}
    )["grid"]
    assert {row["seed"] for row in grid} == {3}


def test_cells_of_a_page_have_the_seeds_of_the_claim_that_counts_them():
    for path in NOTEBOOKS:
        for plan in list_planned_comparisons(notebook.make_notebook_id(path), "mini"):
            same = lists.find_comparison_description(
                plan.claim_id, plan.comparison.text
            )["same_as"]
            assert plan.seeds == lists.list_planned_seeds(same or plan.claim_id), plan


def test_the_cell_of_two_models_is_found(plans):
    a, b, c = (rows(model, m=3) for model in "abc")
    assert find_planned_comparison_of_models("page", "mini", a, b) == (PLANS[0], False)
    assert find_planned_comparison_of_models("page", "mini", a, c) == (PLANS[1], False)
    assert (
        find_planned_comparison_of_models(
            "page", "mini", rows("a", m=9), rows("b", m=9)
        )
        is None
    )  # another width
    assert find_planned_comparison_of_models("page", "mini", b, a) == (
        PLANS[0],
        True,
    )  # the other direction
    assert find_planned_comparison_of_models("page", "mini", a, rows("e", m=3)) is None
    assert (
        find_planned_comparison_of_models(
            "page", "mini", rows("d", m=9), rows("a", m=9)
        )
        is None
    )  # a measure
    assert (
        find_planned_comparison_of_models("page", "mini", a, []) is None
        and find_planned_comparison_of_models("page", "toy", a, b) is None
    )
    assert find_planned_comparison_of_models("another", "mini", a, b) is None


def runs(**more):
    """Runs of a made-up page at mini: seeds 8 to 13, of which 10 to 12 are planned. a
    beats b by 10 points in these, and loses in all others."""
    frame = made_up({"a": 0.9, "b": 0.8}, seeds=14).query("seed >= 8")
    swap = ~frame["seed"].between(10, 12)
    frame.loc[swap, "model"] = frame.loc[swap, "model"].map({"a": "b", "b": "a"})
    frame = frame.assign(
        m=3.0, spec=[SPEC.with_seed(seed) for seed in frame["seed"]], **more
    )
    return Runs(frame, frame[:0], "mini", "page")


@pytest.fixture
def metrics(monkeypatch):
    from lib.stats.compare import MetricColumn

    of = {"SST-2": (MetricColumn("SST-2", "SST-2", "accuracy"),)}
    monkeypatch.setattr(grids, "select_metrics_by_task", lambda *_: of)


def test_gaps_have_exactly_the_planned_seeds_of_their_cell(plans, metrics):
    (e,) = runs().estimate_differences("a", "b").values()
    assert (e.n_seeds, e.mean, e.claimed_region) == (3, pytest.approx(10), (0, np.inf))
    (e,) = (
        replace(runs(), notebook_id="another").estimate_differences("a", "b").values()
    )
    assert (e.n_seeds, e.mean, e.claimed_region) == (6, pytest.approx(0), ())


def test_a_reader_compares_all_models_with_a_chosen_one(plans, metrics, monkeypatch):
    """A model of another width is a rival too. The numbers are those of the page."""
    import ipywidgets

    own = runs()
    narrow = made_up({"a": 0.7}, seeds=13).query("seed >= 10")
    narrow = narrow.assign(m=1.0, spec=[SPEC.with_seed(s) for s in narrow["seed"]])
    own = replace(own, current=pd.concat([own.current, narrow]))
    gaps = own.estimate_differences_from_baseline("b, 3/12")
    assert {place: e.mean for (_, place), e in gaps.items()} == {
        "a, 3/12, SST-2": pytest.approx(10),
        "a, 1/12, SST-2": pytest.approx(-10),
    }
    (same,) = runs().estimate_differences("a", "b").values()
    assert [*gaps.values()][0] == same and same.n_seeds == 3
    shown, knobs = [], {}
    monkeypatch.setattr(artefact, "display", lambda told, **_: shown.append(told))
    monkeypatch.setattr(ipywidgets, "interact", lambda _, **more: knobs.update(more))
    artefact.explore_score_differences_from_baseline(own)
    assert not shown and not knobs  # A page that a command makes has no control.
    monkeypatch.setattr(paths, "is_in_jupyter_lab", lambda: True)
    monkeypatch.delenv(notebook.BATCH, raising=False)
    artefact.explore_score_differences_from_baseline(own)
    names = ["b, 3/12", "a, 3/12", "a, 1/12"]
    assert shown and knobs == {"task": ["SST-2"], "baseline": names}


def test_gaps_leave_out_seeds_in_which_a_model_collapsed_unless_it_may_fail(
    monkeypatch, metrics
):
    frame = made_up({"a": 0.9, "b": 0.8}, seeds=13).query("seed >= 10")
    chance = made_up({"b": 0.5}, seeds=13).query("seed == 12")
    frame = pd.concat([frame[(frame["model"] == "a") | (frame["seed"] < 12)], chance])
    frame = frame.assign(m=3.0, spec=[SPEC.with_seed(seed) for seed in frame["seed"]])
    own = Runs(frame, frame[:0], "mini", "page")
    plan = SimpleNamespace(plans=(PLANS[0],))
    monkeypatch.setattr(seeds, "list_planned_comparisons", lambda *_: plan.plans)
    (e,) = own.estimate_differences("a", "b").values()
    assert (e.n_seeds, e.mean) == (2, pytest.approx(10))
    plan.plans = (replace(PLANS[0], models_expected_to_collapse=("b",)),)
    (e,) = own.estimate_differences("a", "b").values()
    assert (e.n_seeds, e.mean) == (3, pytest.approx(20))


@pytest.mark.papers()
def test_a_planned_cell_has_the_smallest_effect_of_interest_of_its_claim():
    """A cell that names none, or none on this task, has nan."""
    (plan,) = list_planned_comparisons("nas_s78_keep_weights", "mini")[:1]
    assert (
        plan.claim_id == "N5" and plan.find_smallest_effect_of_interest("SST-2") == 1.5
    )
    plans = list_planned_comparisons("ghostbert_t04_ablation", "mini")
    printed = next(plan for plan in plans if plan.claim_id == "G5")
    assert np.isnan(printed.find_smallest_effect_of_interest("SST-2"))
