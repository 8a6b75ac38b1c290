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
    """A Paper describes one of the research papers that this project reproduces.

    Its values are constants in the `__init__.py` of the paper's folder.

    name: the name of the paper's folders in lib/papers, notebooks and data/published.
    prefix: the first word of the ids of its notebooks, such as "ghostbert".
    order: the position of the paper in lists of all papers."""

    name: str
    title: str
    prefix: str
    order: int


@cache
def list_papers_by_name() -> dict[str, Paper]:
    """Return {folder name: Paper} of all reproduced research papers, sorted by `order`.

    The papers are found by listing the folders in `lib/papers`, so that a paper is
    added or removed with its folder. Raises Refused where the `__init__.py` of a folder
    lacks TITLE, PREFIX or ORDER."""
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
    """Import the module of a given name from the folder of each reproduced paper.

    Return {folder name of the paper: module}, without the papers that lack such a
    module. So the code that all papers share can use what each paper adds without
    naming a paper.

    module_name: such as "steps" for the file `steps.py` of each folder."""
    return {
        name: import_module(f"lib.papers.{name}.{module_name}")
        for name in list_papers_by_name()
        if (FOLDER / name / f"{module_name}.py").exists()
    }


def find_paper_name_of_notebook(notebook_id: str) -> str:
    """Return the folder name of the research paper that a notebook reproduces.

    It is "" for a notebook about several papers. Lists of notebooks are grouped by this
    name.

    notebook_id: such as "ghostbert_t03_ghosts". Its first word is the prefix of the
    paper's notebooks."""
    prefix = notebook_id.partition("_")[0]
    names = (
        name for name, paper in list_papers_by_name().items() if paper.prefix == prefix
    )
    return next(names, "")


def make_notebook_id(notebook_path: str | Path) -> str:
    """Return the id of a notebook, by which commands and pages call it, from its path.

    The file `t03_ghosts.ipynb` in the folder of the paper GhostBERT has the id
    "ghostbert_t03_ghosts": the paper's prefix, "_" and the file name without its
    ending. A notebook outside of the papers' folders has the file name without its
    ending as id."""
    notebook_path = Path(notebook_path)
    paper = list_papers_by_name().get(notebook_path.parent.name)
    return f"{paper.prefix}_{notebook_path.stem}" if paper else notebook_path.stem


def find_notebook_path(notebook_id: str) -> Path:
    """Return the path of the notebook that has an id such as "ghostbert_t03_ghosts".

    The first word of the id is the prefix of a paper, whose folder the notebook lies
    in. A notebook about several papers lies in `notebooks` itself. The file may be
    missing."""
    flat = paths.NOTEBOOKS / f"{notebook_id}.ipynb"
    paper = find_paper_name_of_notebook(notebook_id)
    if not paper or flat.exists():
        return flat
    return paths.NOTEBOOKS / paper / f"{notebook_id.partition('_')[2]}.ipynb"
