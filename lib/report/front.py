"""This module makes the front page of a paper: its row of README, its comparisons in
one picture, and what each of its pages answers. It is free of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lib.claims import judging, lists, notebook
from lib.claims.words import Verdict
from lib.core import paths
from lib.core.papers import paper_of_page
from lib.report import verdicts

if TYPE_CHECKING:  # Grids are free of pandas.
    import pandas as pd


def row(paper: str) -> str:
    """Return the paper's row of README's table, in Markdown."""
    lines = (paths.ROOT / "README.md").read_text().splitlines()
    head = [line for line in lines if line.startswith("| | works here?")] + [
        "|---|---|---|---|"
    ]
    return "\n".join(
        head + [line for line in lines if line.startswith(f"| **{title(paper)}**")]
    )


def title(paper: str) -> str:
    return lists.PAPERS[paper]


def pages(paper: str) -> pd.DataFrame:
    """Return what each page of a paper asks and answers, a row each, by its name.

    The answer is the first comparison that was measured on the page, as `verdicts.csv`
    has it."""
    import pandas as pd

    lines = []
    for path in notebook.find([f"{paper}/"]):
        name = notebook.name_of(path)
        if paper_of_page(name) != paper or name.endswith("_01_summary"):
            continue
        ids = judging.of_page(name)
        rows = [
            r
            for r in judging.recorded()
            if r["claim"] in ids
            and r["low"]
            and r["family"]
            and leads(r["claim"], name)
        ]
        rows.sort(key=lambda r: lists.claims()[r["claim"]]["role"] != "central")
        answer = (
            f"{rows[0]['sentence']}: {rows[0]['shown']}: {rows[0]['word']}"
            if rows
            else "–"
        )
        lines.append(
            {
                "page": notebook.title(path),
                "asks": asked(path),
                "answer": answer,
                "name": name,
            }
        )
    return pd.DataFrame(lines).set_index("name")


def leads(claim: str, page: str) -> bool:
    """Return whether a claim answers a page: a central one, or one that stands there
    alone."""
    line = lists.claims()[claim]
    return line["role"] == "central" or line["artefact"] == page


def asked(path: Path) -> str:
    """Return the question of a notebook: its first sentence behind "Question."."""
    about = notebook.cells(path)["title"].partition("**Question.**")[2].strip()
    question = re.match(r".*?\?(?= |\n|$)", about, re.S)
    return " ".join((question[0] if question else about.split("\n\n")[0]).split())


def links(frame: pd.DataFrame) -> str:
    """Return a frame of `pages` as a table in Markdown, with links to the light
    pages."""
    lines = ["| page | asks | first answer |", "|---|---|---|"]
    for name, line in frame.iterrows():
        cells = [f"[{line['page']}]({name}.page.md)", line["asks"], line["answer"]]
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        )
    return "\n".join(lines)


def answer(paper: str, by_id: Mapping[str, Verdict]) -> list[str]:
    """Return the first measured comparisons of a paper as sentences, and how many have
    which word."""
    central = [by_id[id] for id in judging.central(paper)]
    return [*verdicts.answers(central)[:2], f"{verdicts.tally(central)}."]
