"""Names say what a thing is: no past participle, adverb or pronoun, in lib and in
notebooks."""

import ast
import json

import pytest

from lib.core import paths

BANNED = {*"told found there own each meant named kept wanted whole mine at of".split()}
# Arguments of Specs and of operations in JSON keep their names, or recorded runs would
# be lost.
EXEMPT = {("lib/papers/nas_pruning/training.py", "kept"), ("lib/model/cut.py", "whole")}
# The rows of a reader are the source "own" in Specs; their module has its name.
OWN = ("lib/__init__.py", "lib/papers/grids.py", "lib/export/card.py")
EXEMPT |= {(path, "own") for path in OWN}
DEFS = ast.FunctionDef | ast.ClassDef


def names(text):
    """Yield the names that a program gives, of arguments and of imports too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DEFS):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


FILES = sorted((paths.ROOT / "lib").rglob("*.py"))
FILES += [paths.ROOT / "notebooks" / "bench.py"] * (paths.ROOT / "notebooks").is_dir()


def test_names_of_the_package_are_nouns_and_verbs():
    wrong = [
        (place, name)
        for path in FILES
        for place in [path.relative_to(paths.ROOT).as_posix()]
        for name in names(path.read_text())
        if name in BANNED and (place, name) not in EXEMPT
    ]
    assert not wrong


@pytest.mark.parametrize(
    "path", sorted(paths.NOTEBOOKS.rglob("*.ipynb")), ids=lambda p: p.stem
)
def test_names_of_a_notebook_are_nouns_and_verbs(path):
    cells = [
        c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"
    ]
    wrong = [
        name for c in cells for name in names("".join(c["source"])) if name in BANNED
    ]
    assert not wrong


def test_what_is_banned_is_seen():
    text = "import a as own\ndef told(kept, *found, **of):\n    x.whole = [at for at in kept]\n"
    text += "class each:\n    named: int = 1\ntry:\n    pass\nexcept E as meant:\n    pass\n"
    found = BANNED - {"wanted", "mine", "there"}
    assert {*names(text)} - {"x"} == found
