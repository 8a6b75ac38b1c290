"""Write `notebooks/README.md`: each notebook with its question and its page of recorded
runs.

python tests/index.py
"""

import re

from lib.claims import notebook
from lib.core import paths
from lib.report.front import asked

HEAD = """# Notebooks

One for each table or figure. The last column leads to the page of the recorded runs.
`python -m lib run NAME` makes a page at toy.

| notebook | what it asks | recorded |
|---|---|---|
"""
FIRST = "0123456789"  # names of the workbook's own pages begin with these


def index():
    """The text of the table."""
    names = sorted(map(notebook.name_of, notebook.find()), key=order)
    return HEAD + "".join(map(line, sorted(names, key=lambda n: n[0] not in FIRST)))


def order(name):
    """Papers one after another; tables by their number, behind figures and sections."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def line(name):
    """A row: title and name, the question, the page of mini where there is one."""
    path = notebook.path_of(name)
    place = path.relative_to(paths.NOTEBOOKS).as_posix()
    page = f"[page](../figures/mini/{name}.page.md)"
    return f"| [{notebook.title(path)}]({place}) `{name}` | {asked(path)} | {page} |\n"


if __name__ == "__main__":
    (paths.NOTEBOOKS / "README.md").write_text(index())
