"""This module finds the papers: each is a folder of `lib/papers`.

No other module of the core names a paper. So a paper is added, or taken away, with its
folder alone: its steps, options, measures and points are collected here by the names of
its files."""

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
    """A Paper is a folder of `lib/papers`, as its `__init__.py` presents it."""

    name: str  # That of the folder, also below `notebooks` and `data/published`.
    title: str
    prefix: str  # The ids of its pages and notebooks begin with it.
    order: int  # Pages name the papers in this order.


@cache
def find_papers() -> dict[str, Paper]:
    """Return {name: Paper} of the papers that are here, in their order.

    Raises Refused for a folder that does not present its paper."""
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
def collect_modules(part: str) -> dict[str, ModuleType]:
    """Return {paper: its module of this name}, of the papers that have one."""
    return {
        name: import_module(f"lib.papers.{name}.{part}")
        for name in find_papers()
        if (FOLDER / name / f"{part}.py").exists()
    }


def paper_of_page(page: str) -> str:
    """Return the paper that a page belongs to, "" for a page of none."""
    prefix = page.partition("_")[0]
    names = (name for name, paper in find_papers().items() if paper.prefix == prefix)
    return next(names, "")


def id_of_notebook(path: str | Path) -> str:
    """Return the id of a notebook: its file's name, behind the prefix of its paper."""
    path = Path(path)
    paper = find_papers().get(path.parent.name)
    return f"{paper.prefix}_{path.stem}" if paper else path.stem


def path_of_notebook(name: str) -> Path:
    """Return the path of a notebook: in its paper's folder, or in that of all."""
    flat, paper = paths.NOTEBOOKS / f"{name}.ipynb", paper_of_page(name)
    if not paper or flat.exists():
        return flat
    return paths.NOTEBOOKS / paper / f"{name.partition('_')[2]}.ipynb"
