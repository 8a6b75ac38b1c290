"""No arrow runs up: what each folder of lib may import of the others."""

import json
import os
import re
import subprocess
import sys

import pytest

from lib.runs import paths

BELOW = {
    "data": set(),
    "methods": set(),
    "model": set(),
    "measure": {"data"},
    "search": {"measure"},
    "runs": {"data"},
    "train": {"data", "measure", "model", "runs", "search"},
    "steps": {"data", "measure", "methods", "model", "runs", "search", "train"},
    "papers": {"data", "measure", "methods", "runs", "search"},
    "page": {"data", "measure", "papers", "runs", "search"},
    "export": {"data", "measure", "model", "page", "runs"},
}
# What decides a Spec, free of torch, and where files lie: every room may import it.
FLOOR = ("lib.runs.paths", "lib.runs.spec", "lib.steps.STEPS")
FLOOR += ("lib.model.formula", "lib.model.options", "lib.train.options")
ROOFS = tuple(f"{name}." for name in FLOOR)
PAPERS = ("ghostbert", "efficientbert", "bermo", "nas")
SHARED = ("trials", "frontier")  # trials and points of all papers


def imported(path):
    """Modules of lib that a file imports, as dotted names."""
    text = path.read_text()
    names = re.findall(r"^\s*from (lib[\w.]*) import ([\w, ]+|\()", text, re.M)
    found = {f"{module}.{each.split()[0]}" for module, told in names for each in told.split(",")}
    return found | {module for module, _ in names}


@pytest.mark.parametrize("folder", BELOW)
def test_a_room_imports_those_below_it_alone(folder):
    for path in sorted((paths.ROOT / "lib" / folder).rglob("*.py")):
        names = {name for name in imported(path) if not (name + ".").startswith(ROOFS)}
        others = {name.split(".")[1] for name in names if name.count(".") > 1} & BELOW.keys()
        assert others - {folder} <= BELOW[folder], path


def test_the_rooms_are_all_there_is():
    """At the top stand the package and its command line alone."""
    top = (paths.ROOT / "lib").glob("*.py")
    assert {path.name for path in top} == {"__init__.py", "__main__.py"}
    rooms = {path.parent.name for path in (paths.ROOT / "lib").glob("*/__init__.py")}
    assert rooms <= BELOW.keys()


def test_the_models_import_nothing_of_lib_but_themselves():
    """So an export carries their files, which transformers opens without the rest."""
    for path in sorted((paths.ROOT / "lib" / "model").glob("*.py")):
        assert not re.findall(r"^\s*(?:from|import) lib\b", path.read_text(), re.M), path


def test_a_paper_imports_no_other():
    for path in sorted((paths.ROOT / "lib" / "papers").glob("*.py")):
        own = [paper for paper in PAPERS if path.stem.startswith(paper)]
        for name in imported(path):
            last = name.removeprefix("lib.papers.")
            of = [paper for paper in PAPERS if name != last and last.startswith(paper)]
            assert of == own or not of or path.stem in SHARED, (path, name)


CROSSED = """
import cProfile, json, sys
from lib.data import grammar, read, treebank  # an import is no crossing
from lib.page import artefact, plot, report
from lib.papers import ghostbert
from lib.runs import paths, sweep

cells = [cell for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"]
calls, names = cProfile.Profile(), {}
sweep.make = lambda specs: {}
for cell in cells:
    source = "".join(cell["source"]).replace('profile: str = "toy"', 'profile: str = "mini"')
    if "verdicts" in cell["metadata"]["tags"]:
        break
    if names:
        calls.enable()
    exec(source, names)
    calls.disable()
files = (getattr(call.code, "co_filename", "") for call in calls.getstats())
seen = {name.partition(str(paths.ROOT / "lib"))[2] for name in files}
print(json.dumps(sorted(name for name in seen if name.endswith(".py"))))
"""


def test_a_row_crosses_few_files_to_its_page(tmp_path):
    """From the grid of a page at mini to its last figure, all runs looked up."""
    own = {"RUNS_ROOT": str(tmp_path / "runs"), "FIGURES_ROOT": str(tmp_path / "figures")}
    path = paths.NOTEBOOKS / "ghostbert_t03_pruned_vs_ghost.ipynb"
    made = subprocess.run(
        [sys.executable, "-c", CROSSED, str(path)],
        capture_output=True,
        text=True,
        cwd=paths.ROOT,
        env=os.environ | own | {"MPLBACKEND": "Agg"},
    )
    assert made.returncode == 0, made.stderr
    crossed = {*json.loads(made.stdout.splitlines()[-1])}
    crossed -= {"/data/read.py"}  # where data are not at hand, they are looked for
    # Two tell whether its profile has a plan, three which seeds its comparisons have and whether
    # the compared models learned, and two what distillation mended.
    assert 10 < len(crossed) <= 24, sorted(crossed)
