"""Papermill alone, as the README calls it: a notebook with knobs ends, and shows no
widget."""

import json
import os
import subprocess
import sys

import pytest

from lib.claims import notebook
from lib.core import paths

NAME = "nas_s72_flops_share"  # a page of arithmetic whose last cell has knobs
PATIENCE = 600  # seconds of the clock for each


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_notebook_with_knobs_ends_each_time(tmp_path, times):
    path, out = notebook.find_notebook_path(NAME), tmp_path / "out.ipynb"
    assert (
        "artefact.explore_with_widgets("
        in notebook.read_cell_sources_by_tag(path)["explore"]
    )
    env = os.environ | {"FIGURES_ROOT": str(tmp_path / "figures")}
    env.pop(notebook.BATCH, None)
    words = [
        sys.executable,
        "-m",
        "papermill",
        str(path),
        str(out),
        "-p",
        "profile",
        "toy",
    ]
    for _ in range(times):
        out.unlink(missing_ok=True)
        done = subprocess.run(
            words, capture_output=True, timeout=PATIENCE, env=env, cwd=paths.ROOT
        )
        assert done.returncode == 0, done.stderr[-2000:]
        body = json.loads(out.read_text())
        assert "application/vnd.jupyter.widget" not in out.read_text()
        assert "widgets" not in body["metadata"] and body["cells"][-1]["outputs"]
