"""No arrow runs up: what each folder of lib may import of the others."""

import ast
import re

import pytest

from lib.core import paths
from lib.core.papers import list_papers_by_name

# Every room may import lib.core too, which imports nothing of lib but
# lib.model.options.
BELOW = {
    "core": set(),
    "model": set(),
    "cluster": set(),
    "data": set(),
    "methods": set(),
    "stats": {"data"},
    "train": {"data", "methods", "model", "stats"},
    "papers": {"data", "methods", "model", "stats", "train"},
    "claims": {"cluster", "data", "model", "papers", "stats"},
    "report": {"claims", "cluster", "data", "papers", "stats"},
    "export": {"claims", "cluster", "data", "model", "report"},
}
NAMES = {"lib.model.options"}
# What a paper shows is made with what shows it. No other module of lib imports these.
SHOWN = {"tables", "drawings"}


def imported(path):
    """Modules of lib that a file imports, as dotted names: of a package what is taken
    from it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.startswith("lib.")}
        elif isinstance(node, ast.ImportFrom):
            place = path.relative_to(paths.ROOT).with_suffix("").parts
            base = place[: -node.level] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            if module.partition(".")[0] == "lib":
                found |= {
                    name if is_module(name) else module
                    for name in (f"{module}.{each.name}" for each in node.names)
                }
    return found


def is_module(name):
    place = paths.ROOT / name.replace(".", "/")
    return place.with_suffix(".py").exists() or place.is_dir()


@pytest.mark.parametrize("folder", BELOW)
def test_a_room_imports_those_below_it_alone(folder):
    for path in sorted((paths.ROOT / "lib" / folder).rglob("*.py")):
        below, names = BELOW[folder], imported(path)
        names -= NAMES if folder == "core" else set()
        if folder == "papers" and path.stem in SHOWN:
            below = below | {"claims", "report"}
        rooms = {name.split(".")[1] for name in names if name.count(".")}
        assert rooms - {folder, "core"} <= below, path
        assert folder in ("core", "model") or not names & NAMES, (
            f"{path}: take lib.core.names"
        )


def test_only_notebooks_import_what_a_paper_shows():
    for path in sorted((paths.ROOT / "lib").rglob("*.py")):
        papers = (name for name in imported(path) if name.startswith("lib.papers."))
        shown = [name for name in papers if name.rpartition(".")[2] in SHOWN]
        assert not shown or path.stem in SHOWN, (path, shown)


def test_no_module_reaches_itself():
    """Not through imports inside functions either."""
    files = {p: p.relative_to(paths.ROOT) for p in (paths.ROOT / "lib").rglob("*.py")}
    names = {
        p: ".".join(f.with_suffix("").parts).removesuffix(".__init__")
        for p, f in files.items()
    }
    arrows = {
        name: imported(path) & {*names.values()} - {name}
        for path, name in names.items()
    }
    while ends := [name for name, below in arrows.items() if not below]:
        arrows = {
            n: below.difference(ends) for n, below in arrows.items() if n not in ends
        }
    assert not arrows, sorted(arrows)


def test_the_rooms_are_all_there_is():
    """At the top stand the package and its command line alone."""
    top = (paths.ROOT / "lib").glob("*.py")
    assert {path.name for path in top} == {"__init__.py", "__main__.py"}
    rooms = {path.parent.name for path in (paths.ROOT / "lib").glob("*/*.py")}
    assert rooms == BELOW.keys()


def test_the_models_import_nothing_of_lib_but_themselves():
    """So an export carries their files, which transformers opens without the rest."""
    for path in sorted((paths.ROOT / "lib" / "model").glob("*.py")):
        outside = r"^\s*(?:from \.\.|(?:from|import) lib\b)"
        assert not re.findall(outside, path.read_text(), re.M), path


@pytest.mark.parametrize("paper", list_papers_by_name())
def test_nothing_else_imports_a_paper(paper):
    """Not another paper either. The core collects the papers by listing them."""
    folder = paths.ROOT / "lib" / "papers" / paper
    for path in sorted((paths.ROOT / "lib").rglob("*.py")):
        names = {
            name
            for name in imported(path)
            if f"{name}.".startswith(f"lib.papers.{paper}.")
        }
        assert not names or folder in path.parents, (path, names)
