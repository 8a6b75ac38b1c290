"""This module makes the front page of a paper, and its card on the index.

The front page has the paper's row of README, its comparisons in one picture, and the
answer of each of its pages. The module is free of torch. The card is made without
pandas, which is slow to import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lib.claims import judging, lists, notebook, planned
from lib.claims.words import Verdict, count_words
from lib.core import paths
from lib.core.papers import find_papers, paper_of_page
from lib.core.types import Json
from lib.report import verdicts

if TYPE_CHECKING:  # The index and the grids do not load pandas.
    import pandas as pd


def read_paper_row(paper: str) -> str:
    """Return the paper's row of README's table, in Markdown."""
    lines = (paths.ROOT / "README.md").read_text().splitlines()
    head = [line for line in lines if line.startswith("| | works here?")] + [
        "|---|---|---|---|"
    ]
    return "\n".join(
        head
        + [line for line in lines if line.startswith(f"| **{title_of_paper(paper)}**")]
    )


def title_of_paper(paper: str) -> str:
    return lists.PAPERS[paper]


def heading_of_page(page: str) -> str:
    """Return the heading of the index for a page: its paper, or "The workbook"."""
    return lists.PAPERS.get(paper_of_page(page), verdicts.HEADINGS[0])


def order_pages(profile: str) -> list[str]:
    """Return the ids of the standard pages of a profile, as the index lists them."""
    names = [
        name
        for name in notebook.read_committed_forms()
        if planned.has_page(profile, name)
    ]
    return sorted(
        names, key=lambda name: verdicts.HEADINGS.index(heading_of_page(name))
    )


def shorten_title(title: str, page: str) -> str:
    """Return the title of a page without the name of its paper, which heads the
    list."""
    text = title.removeprefix(heading_of_page(page)).lstrip(",: ")
    return text[:1].upper() + text[1:]


def read_findings() -> list[tuple[str, str]]:
    """Return [(head, text), ...] of README's line with the findings and its advice."""
    lines = (paths.ROOT / "README.md").read_text()
    pairs = re.findall(r"^\*\*(In one line\.|What to use\?)\*\* (.*)$", lines, re.M)
    return [(head, text.replace("`", "")) for head, text in pairs]


def make_card(paper: str) -> Json | None:
    """Return the fields of a paper's card on the index; None without a front page.

    They are its idea, its first comparisons, and the counts of their words."""
    page = f"{find_papers()[paper].prefix}_01_summary"
    if not notebook.path_of_notebook(page).exists():
        return None
    idea = notebook.read_tagged_cells(notebook.path_of_notebook(page))[
        "title"
    ].partition("**Idea.**")[2]
    rows = [row for row in judging.read_verdicts() if is_counted(row, paper)]
    return {
        "title": title_of_paper(paper),
        "href": f"{page}.html",
        "idea": idea.strip().partition(". ")[0] + ".",
        "words": count_words(row["word"] for row in rows),
        "bars": [draw_bar(row) for row in rows if row["low"] and aim_of_row(row)][
            :BARS
        ],
    }


BARS = 4  # Number of a paper's comparisons on the index.


def is_counted(row: Mapping[str, str], paper: str) -> bool:
    """Return whether a row of `verdicts.csv` is a counted central comparison of a
    paper."""
    claim = lists.read_claims()[row["claim"]]
    is_central = claim["paper"] == paper and claim["role"] == "central"
    is_twice = row["same_as"] or row["beside"]
    return is_central and row["profile"] == judging.SCALE and not is_twice


def aim_of_row(row: Mapping[str, str]) -> float:
    """Return the printed effect of a comparison, less the value of no effect.

    Without a printed one it is the smallest effect of interest; without both it is
    0."""
    value = row["printed"] or row["interest"] or row["no_effect"]
    return float(value) - float(row["no_effect"])


def draw_bar(row: Mapping[str, str]) -> Json:
    """Return a comparison as the index draws it, in % of the width of its line.

    No effect is at 50 %, and the printed effect or the one of interest at 75 %. A value
    beyond an end is drawn at the end."""

    def place(name: str) -> float:
        share = (float(row[name]) - float(row["no_effect"])) / aim_of_row(row)
        return round(50 + 25 * min(2, max(-2, share)), 1)

    ends = sorted([place("low"), place("high")])
    label = lists.cell_line(row["claim"], row["cell"])["short"]
    sign = "" if float(row["no_effect"]) else "+"
    goal = format(float(row["printed"] or row["interest"]), f"{sign}.3g")
    task = f", {row['task']}" * ("task=each" in row["cell"])
    return {
        "label": label + task,
        "ours": row["counts"] or row["shown"],
        "aim": f"{goal.lstrip('+')} % more"
        if row["counts"]
        else goal.replace("-", "−"),
        "is_printed": bool(row["printed"]),
        "word": row["word"],
        "low": ends[0],
        "width": round(ends[1] - ends[0], 1),
        "mean": place("estimate"),
    }


def pages_of_paper(paper: str) -> pd.DataFrame:
    """Return a frame of a paper's pages: title, question and first answer, by page id.

    The answer is the first measured comparison of the page in `verdicts.csv`."""
    import pandas as pd

    lines = []
    for path in notebook.find_notebooks([f"{paper}/"]):
        name = notebook.id_of_notebook(path)
        if paper_of_page(name) != paper or name.endswith("_01_summary"):
            continue
        ids = judging.list_page_claims(name)
        rows = [
            r
            for r in judging.read_verdicts()
            if r["claim"] in ids
            and r["low"]
            and r["family"]
            and answers_page(r["claim"], name)
        ]
        rows.sort(key=lambda r: lists.read_claims()[r["claim"]]["role"] != "central")
        answer = (
            f"{rows[0]['sentence']}: {rows[0]['shown']}: {rows[0]['word']}"
            if rows
            else "–"
        )
        lines.append(
            {
                "page": notebook.read_title(path),
                "asks": read_question(path),
                "answer": answer,
                "name": name,
            }
        )
    return pd.DataFrame(lines).set_index("name")


def answers_page(claim: str, page: str) -> bool:
    """Return whether a claim can answer a page.

    It can if it is central, or names no other page."""
    line = lists.read_claims()[claim]
    return line["role"] == "central" or line["artefact"] == page


def read_question(path: Path) -> str:
    """Return the question of a notebook: its first sentence behind "Question."."""
    about = (
        notebook.read_tagged_cells(path)["title"].partition("**Question.**")[2].strip()
    )
    question = re.match(r".*?\?(?= |\n|$)", about, re.S)
    return " ".join((question[0] if question else about.split("\n\n")[0]).split())


def link_table(frame: pd.DataFrame) -> str:
    """Return a frame of `pages_of_paper` as a Markdown table with links to light
    pages."""
    lines = ["| page | asks | first answer |", "|---|---|---|"]
    for name, line in frame.iterrows():
        cells = [f"[{line['page']}]({name}.page.md)", line["asks"], line["answer"]]
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        )
    return "\n".join(lines)


def answer_of_paper(paper: str, by_id: Mapping[str, Verdict]) -> list[str]:
    """Return the first two measured comparisons of a paper, and its counts of words."""
    central = [by_id[id] for id in judging.list_central_claims(paper)]
    return [*verdicts.write_answer(central)[:2], f"{verdicts.write_counts(central)}."]
