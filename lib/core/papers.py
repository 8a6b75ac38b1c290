"""This module finds the papers: each is a folder of `lib/papers`.

No other module of `lib/core` names a paper. So a paper is added or removed by its
folder alone: its steps, options, measures and points are found by the names of its
files."""

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
    """A Paper is a folder of `lib/papers`, with the constants of its `__init__.py`."""

    name: str  # Name of its folders in lib/papers, notebooks and data/published.
    title: str
    prefix: str  # Beginning of the ids of its pages and notebooks.
    order: int  # Position among the papers where pages list them.


@cache
def find_papers() -> dict[str, Paper]:
    """Return {name: Paper} of the folders of `lib/papers`, by their `order`.

    Raises Refused where an `__init__.py` lacks one of FIELDS."""
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
def collect_modules(module_name: str) -> dict[str, ModuleType]:
    """Return {paper: its module `module_name`}, such as `steps`, of the papers that
    have it."""
    return {
        name: import_module(f"lib.papers.{name}.{module_name}")
        for name in find_papers()
        if (FOLDER / name / f"{module_name}.py").exists()
    }


def find_paper_of_page(page_id: str) -> str:
    """Return the name of the paper that a page belongs to, or "" for a page of no
    single paper."""
    prefix = page_id.partition("_")[0]
    names = (name for name, paper in find_papers().items() if paper.prefix == prefix)
    return next(names, "")


def make_notebook_id(path: str | Path) -> str:
    """Return the id of a notebook: prefix of its paper, "_", and its file's stem."""
    path = Path(path)
    paper = find_papers().get(path.parent.name)
    return f"{paper.prefix}_{path.stem}" if paper else path.stem


def find_notebook_path(notebook_id: str) -> Path:
    """Return the path of the notebook with an id: in its paper's folder, or in
    `notebooks` itself."""
    flat, paper = (
        paths.NOTEBOOKS / f"{notebook_id}.ipynb",
        find_paper_of_page(notebook_id),
    )
    if not paper or flat.exists():
        return flat
    return paths.NOTEBOOKS / paper / f"{notebook_id.partition('_')[2]}.ipynb"
