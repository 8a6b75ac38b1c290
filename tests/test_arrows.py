"""No arrow runs up: what each folder of lib may import of the others."""

import re

import pytest

from lib import paths

BELOW = {
    "data": set(),
    "methods": set(),
    "model": set(),
    "measure": {"data", "model"},
    "search": {"measure", "model"},
    "train": {"data", "measure", "model", "search"},
    "steps": {"data", "measure", "model", "search", "train"},
    "papers": {"data", "measure", "methods", "search"},
    "page": {"data", "measure", "model", "search", "papers"},
}
LIGHT = {"lib.model.formula", "lib.model.options"}  # what is free of torch in lib.model
PAPERS = ("ghostbert", "efficientbert", "bermo", "nas")
SHARED = ("trials", "frontier")  # trials and points of all papers


def imported(path):
    """Modules of lib that a file imports, as dotted names."""
    text = path.read_text()
    names = re.findall(r"^\s*from (lib[\w.]*) import ([\w, ]+|\()", text, re.M)
    found = {f"{module}.{name.strip()}" for module, told in names for name in told.split(",")}
    return found | {module for module, _ in names}


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_imports_those_below_it_alone(folder):
    for path in sorted((paths.ROOT / "lib" / folder).rglob("*.py")):
        others = {name.split(".")[1] for name in imported(path) if "." in name} & BELOW.keys()
        assert others - {folder} <= BELOW[folder], path


def test_the_models_import_nothing_of_lib_but_themselves():
    """So an export carries their files, which transformers opens without the rest."""
    for path in sorted((paths.ROOT / "lib" / "model").glob("*.py")):
        assert not re.findall(r"^\s*(?:from|import) lib\b", path.read_text(), re.M), path


@pytest.mark.parametrize("folder", ["measure", "search", "papers", "page"])
def test_what_is_free_of_torch_imports_the_light_models_alone(folder):
    for path in sorted((paths.ROOT / "lib" / folder).rglob("*.py")):
        models = {name for name in imported(path) if name.startswith("lib.model.")}
        assert all(".".join(re.split(r"[. ]", name)[:3]) in LIGHT for name in models), path


def test_a_paper_imports_no_other():
    for path in sorted((paths.ROOT / "lib" / "papers").glob("*.py")):
        own = [paper for paper in PAPERS if path.stem.startswith(paper)]
        for name in imported(path):
            last = name.removeprefix("lib.papers.")
            of = [paper for paper in PAPERS if name != last and last.startswith(paper)]
            assert of == own or not of or path.stem in SHARED, (path, name)
