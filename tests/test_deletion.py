"""A paper can be taken away: its three folders go, and the rest works."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from lib.core import paths
from lib.core.papers import list_papers_by_name

FOLDERS = ("lib/papers", "notebooks", "data/published")
LEFT = ".git", ".venv", ".hypothesis", "models", "runs", "scratch", "toy", "glue"
# The checkout itself, the first root, is imported once and forgotten. Then each copy is
# imported in a process that has the packages that lib needs.
IMPORT_ALL = """
import importlib
import os
import sys
from pathlib import Path

def import_all(root):
    os.chdir(root)
    sys.path.insert(0, root)
    for path in sorted(Path("lib").rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            importlib.import_module(name)
    assert Path(importlib.import_module("lib").__file__).is_relative_to(root)

import_all(sys.argv[1])
sys.path.remove(sys.argv[1])
for name in [name for name in sys.modules if name.partition(".")[0] == "lib"]:
    del sys.modules[name]
for root in sys.argv[2:]:
    if child := os.fork():
        assert not os.waitpid(child, 0)[1], root
        continue
    import_all(root)
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.fixture(scope="module", params=list(list_papers_by_name()))
def tree(request, tmp_path_factory):
    """A copy of this checkout without a paper's folders."""
    return copied(tmp_path_factory, request.param), request.param


def copied(tmp_path_factory, paper, *more):
    """The root of a copy of this checkout without a paper's folders, and without files
    of further names."""
    root = tmp_path_factory.mktemp(paper) / "tree"
    shutil.copytree(paths.ROOT, root, ignore=shutil.ignore_patterns(*LEFT, *more))
    for folder in FOLDERS:
        shutil.rmtree(root / folder / paper)
    return root


def run(root, *words, moved=("RUNS_ROOT", "FIGURES_ROOT")):
    """What a command in the copy prints; it must succeed. What it makes lies beside the
    copy."""
    made = {name: str(root.parent / name) for name in moved}
    env = {k: v for k, v in os.environ.items() if k not in paths.ROOTS}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=env | made | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.papers()
def test_all_other_modules_can_be_imported(tmp_path_factory):
    copies = [
        copied(tmp_path_factory, paper, "records", "figures")
        for paper in list_papers_by_name()
    ]
    assert len(copies) == 4
    run(copies[0], "-c", IMPORT_ALL, str(paths.ROOT), *map(str, copies))


def test_its_notebooks_are_not_planned_and_all_others_are(tree):
    root, paper = tree
    shown = run(root, "-m", "lib", "plan", "--profile", "mini")
    for name, other in list_papers_by_name().items():
        assert (f"{other.prefix}_01_summary:" in shown) == (name != paper)


@pytest.mark.slow
def test_records_verify_and_pages_of_all_papers_are_made(tree):
    root, paper = tree
    assert re.search(r"\bagree\b", run(root, "-m", "lib", "verify"))
    pages = ("01_what", "90_claims", "91_frontier", "93_findings", "94_inconsist")
    run(root, "-m", "lib", "report", *pages, "--profile", "mini")
    titles = [
        other.title for name, other in list_papers_by_name().items() if name != paper
    ]
    page = (root.parent / "FIGURES_ROOT/mini/90_claims.page.md").read_text()
    assert all(title in page for title in titles)
    other = next(name for name in list_papers_by_name() if name != paper)
    run(root, "-m", "lib", "run", f"{other}/00_method", "--profile", "toy")


@pytest.mark.slow
def test_the_rest_of_the_suite_passes(tree):
    """Tests of the paper, and those of what all papers have, are left out by
    themselves (conftest). The copy is a checkout, as some tests ask git."""
    root, _ = tree
    person = ["-c", "user.name=anyone", "-c", "user.email=anyone@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*person, "commit", "-qm", "copy"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    words = "-q -n 2 --dist loadfile -m".split()
    run(root, "-m", "pytest", *words, "not slow", moved=())
