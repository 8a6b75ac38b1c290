"""Toy is a first look: few runs, whole axes where a reader wants them, pages in an
order."""

import pytest
from conftest import every_spec

from lib.claims import notebook, planned
from lib.core.papers import list_papers_by_name
from lib.core.store import Store
from lib.papers import frontier, grids
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.nas_pruning import recipes as nas
from lib.report.site import Report

AWAY = {
    page: away
    for paper in list_papers_by_name()
    for page, away in vars(grids.read_settings(paper))
    .get("LEFT_OUT", {})
    .get("toy", {})
    .items()
}


def rows(page, **values):
    return notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(page), {"profile": "toy"} | values
    )["grid"]


def labels(page, name, **values):
    return {row[name] for row in rows(page, **values) if name in row}


def test_toy_makes_at_most_200_runs():
    assert len(every_spec(notebook.find_notebooks(), "toy")) <= 200


@pytest.mark.parametrize("page", AWAY)
def test_what_a_page_leaves_out_is_made_for_a_reader_who_names_a_seed(page):
    for label, values in AWAY[page].items():
        left, every = labels(page, label), labels(page, label, seeds=[0])
        assert left == every - {*values} and left and {*values} <= every
    assert planned.read_label_values_left_out_at_profile("mini", page) == {}


def test_a_reader_who_names_a_row_has_it():
    assert labels("ghostbert_b04_more_ghosts", "model") == {"F = 1", "F = 12"}
    features = {"features": [2, 4]}
    assert labels("ghostbert_b04_more_ghosts", "model", **features) == {
        "F = 2",
        "F = 4",
    }


def test_kernels_shares_of_flops_and_methods_keep_their_axes():
    kernels = {f"k = {k}" for k in (1, 3, 5, 9, 17)}
    assert labels("ghostbert_f03_kernel_size", "model") == kernels
    assert {
        nas.format_pruned_model_label(ratio) for ratio in (0.1, 0.3, 0.5, 0.7)
    } <= labels("nas_t04_size_sweep", "model")
    assert labels("ghostbert_f01_accuracy_vs_cost", "m") == {1, 3, ghostbert.HEADS}
    assert labels("91_frontier", "model") == {*frontier.TABLE}


@pytest.mark.papers("bermo", "nas_pruning")
def test_pages_that_wait_for_no_run_come_first_then_those_of_methods(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("lib.core.paths.FIGURES", tmp_path)
    names = ["91_frontier", "nas_00_method", "90_claims", "00_start_here"]
    names += ["bermo_01_summary"]
    paths = [notebook.find_notebook_path(name) for name in names]
    made = {
        path: notebook.execute_grid_cell_and_list_rows_by_variable(
            path, {}, include_rows_of_recorded_runs=False
        )
        for path in paths
    }
    report = Report("toy", {}, made, {}, Store(tmp_path / "runs", tmp_path / "records"))
    recorded, methods = (
        [b.path.stem for b in part] for part in report.list_pages_ready_to_render()
    )
    assert recorded == ["01_summary", "90_claims"] and methods == [
        "00_method",
        "00_start_here",
    ]
    assert report.describe_pages_ready_to_render().startswith(
        "first 2 pages that wait for no run (bermo_01_"
    )
    assert "then 2 pages of the methods" in report.describe_pages_ready_to_render()
