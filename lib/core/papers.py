"""This module finds the reproduced papers: each has a folder in `lib/papers`.

No other module of `lib/core` names a paper. So a paper is added or removed with its
folder: its training steps, options and tables are found by the names of its files, such
as `steps.py`."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from lib.core import paths
from lib.core.names import Refused

FIELDS = ("TITLE", "PREFIX", "ORDER")
FOLDER = Path(__file__).resolve().parents[1] / "papers"


@dataclass(frozen=True)
class Paper:
    """A Paper is a reproduced paper, as the constants in the `__init__.py` of its
    folder in `lib/papers` describe it."""

    name: str  # Name of its folders in lib/papers, notebooks and data/published.
    title: str
    prefix: str  # Beginning of the ids of its notebooks, such as "ghostbert".
    order: int  # Position where pages list all papers.


@cache
def find_papers() -> dict[str, Paper]:
    """Return {name of its folder: Paper} of all reproduced papers, sorted by `order`.

    Raises Refused where the `__init__.py` of a folder lacks TITLE, PREFIX or ORDER."""
    papers = []
    for name in sorted(path.parent.name for path in FOLDER.glob("*/__init__.py")):
        fields = vars(import_module(f"lib.papers.{name}"))
        if lacking := [field for field in FIELDS if field not in fields]:
            form = 'such as TITLE, PREFIX, ORDER = "GhostBERT", "ghostbert", 1'
            why = f"lib/papers/{name}/__init__.py lacks {', '.join(lacking)}"
            raise Refused(f"{why}; fix: write a line {form}")
        papers.append(Paper(name, *(fields[field] for field in FIELDS)))
    return {paper.name: paper for paper in sorted(papers, key=lambda p: p.order)}


@cache
def import_module_of_each_paper(module_name: str) -> dict[str, ModuleType]:
    """Import the module of one name, such as "steps", from the folder of each paper,
    and return {paper: module} of the papers that have it."""
    return {
        name: import_module(f"lib.papers.{name}.{module_name}")
        for name in find_papers()
        if (FOLDER / name / f"{module_name}.py").exists()
    }


def find_paper_of_notebook(notebook_id: str) -> str:
    """Return the name of the paper that a notebook's page belongs to, or "" for a page
    about several papers.

    notebook_id: the id of a notebook, such as "ghostbert_t03"; its first word is the
    paper's prefix."""
    prefix = notebook_id.partition("_")[0]
    names = (name for name, paper in find_papers().items() if paper.prefix == prefix)
    return next(names, "")


def make_notebook_id(path: str | Path) -> str:
    """Return the id of a notebook by its path: the prefix of its paper, "_" and the
    stem of its file; the stem alone where it belongs to no single paper."""
    path = Path(path)
    paper = find_papers().get(path.parent.name)
    return f"{paper.prefix}_{path.stem}" if paper else path.stem


def find_notebook_path(notebook_id: str) -> Path:
    """Return the path of the notebook with an id: in the folder of its paper, or in
    `notebooks` itself. The file may be missing."""
    flat, paper = (
        paths.NOTEBOOKS / f"{notebook_id}.ipynb",
        find_paper_of_notebook(notebook_id),
    )
    if not paper or flat.exists():
        return flat
    return paths.NOTEBOOKS / paper / f"{notebook_id.partition('_')[2]}.ipynb"
