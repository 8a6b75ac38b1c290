"""Write `notebooks/README.md`: each notebook by paper, with its kind, its question, its
recorded seeds, and the first line of its page.

python tests/index.py
"""

import re
from functools import cache
from itertools import groupby

from lib.claims import notebook
from lib.core import paths
from lib.core.store import read_runs_csv
from lib.report import front
from lib.report.verdicts import HEADINGS

HEAD = """# Notebooks

One for each table or figure. A title leads to the notebook, and *page* to its page of
the recorded runs. `python -m lib run NAME` makes a page at toy. Seeds are those with a
recorded run at mini. The papers' drawings of architectures have no page of their own.

## Start here

"""
PLAIN = "| notebook | what it asks | first line of its page |\n|---|---|---|\n"
TABLE = "| notebook | kind | what it asks | seeds | first line of its page |\n"
TABLE += "|---|---|---|---|---|\n"
FIRST = re.compile("00_start_here|92_|.*_00_method")  # what a newcomer opens
KINDS = {"00_method": "method", "01_summary": "summary"}
# A page whose code has this text compares printed settings with those in use.
SETTINGS = "settings.join_printed_and_our_settings("


def index():
    """The text of the file."""
    names = front.list_notebook_ids_in_index("mini")
    first = [name for name in names if FIRST.match(name)]
    text = HEAD + PLAIN + "".join(row(*cells(name, whole=True)) for name in first)
    for heading, part in groupby(names, front.find_index_heading_of_page):
        rows = {name: kind(name) for name in part}
        text += f"\n## {heading}\n\n"
        if heading == HEADINGS[0]:
            rest = [name for name in rows if name not in first]
            text += PLAIN + "".join(row(*cells(name)) for name in rest)
            continue
        text += TABLE
        text += "".join(line(name) for name in rows if rows[name] != "settings")
        text += "\n<details><summary>Printed settings beside ours</summary>\n\n"
        text += TABLE
        text += "".join(line(name) for name in rows if rows[name] == "settings")
        text += "\n</details>\n"
    return text


@cache
def recorded():
    """The lines of `runs.csv`, read once."""
    return read_runs_csv()


def row(*cells):
    return f"| {' | '.join(cells)} |\n"


def line(name):
    title, asked, answer = cells(name)
    return row(title, kind(name), asked, str(seeds_of(name) or "–"), answer)


def kind(name):
    """method, summary, settings, experiment (it has runs), or counted (without any)."""
    stem = name.partition("_")[2]
    source = notebook.find_notebook_path(name).read_text()
    runs = {row["page"] for row in recorded()}
    other = "experiment" if name in runs else "counted"
    return KINDS.get(stem, "settings" if SETTINGS in source else other)


def seeds_of(name):
    """How many seeds have a recorded run of mini on a page."""
    return len(
        {
            row["seed"]
            for row in recorded()
            if (row["page"], row["profile"]) == (name, "mini")
            and (paths.records_root() / row["run"]).exists()
        }
    )


def cells(name, whole=False):
    """[title with links, question, first line of the light page, "–" without one]."""
    path = notebook.find_notebook_path(name)
    place = path.relative_to(paths.NOTEBOOKS).as_posix()
    page = paths.FIGURES / "mini" / f"{name}.page.md"
    title = notebook.read_notebook_title(path)
    title = title if whole else front.remove_paper_name_from_title(title, name)
    links = f"[{title}]({place}) [*page*](../figures/mini/{page.name}) `{name}`"
    opening = page.read_text().partition("**Question.**")[0]
    said = re.search(r"^(?:- (.+)|\*\*(.+)\*\*)$", opening, re.M)
    return [
        links,
        front.read_notebook_question(path),
        said[1] or said[2] if said else "–",
    ]


if __name__ == "__main__":
    (paths.NOTEBOOKS / "README.md").write_text(index())
