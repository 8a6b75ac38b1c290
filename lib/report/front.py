"""This module collects what is shown of a paper on its summary page and on the index of
pages.

The summary has the paper's rows of README's table, its comparisons in one figure, and
the answer of each of its pages. The index has a small card for each paper. The module
does not import torch; the card is made without pandas, which is slow to import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lib.claims import judging, lists, notebook, planned
from lib.claims.words import Verdict, format_verdict_word_counts
from lib.core import paths
from lib.core.names import Refused
from lib.core.papers import find_paper_name_of_notebook, list_papers_by_name
from lib.core.types import Json, ProfileName
from lib.report import verdicts

if TYPE_CHECKING:  # The index and the listing of runs avoid the slow import of pandas.
    import pandas as pd


# {field of the index's HTML template: value} of the card that shows one paper.
PaperCard: TypeAlias = Json
# {field of the same template: value} of one bar on a card. A bar shows the effect that
# was measured in one comparison.
BarPositions: TypeAlias = Json


def read_readme_results_table_of_paper(paper: str) -> str:
    """Return README's findings on a paper as a Markdown table.

    The paper's summary page shows it. The table has the rows from the one that begins
    with the paper's title to the next title. A row has a comparison, our measured
    effect, the printed effect and the outcome that follows from these two, such as
    "agrees". Raises Refused where README has no such row.

    paper: name of the paper's folder, such as "bermo"."""
    text = (paths.ROOT / "README.md").read_text()
    title = re.escape(f"| **{lists.PAPERS[paper]}**")
    head = re.search(r"^\| comparison, .*\n\|---.*\n", text, re.M)
    rows = re.search(rf"^{title}.*\n(\| (?!\*\*).*\n)*", text, re.M)
    if not (head and rows):
        raise Refused(f"README.md has no row {title!r}: python -m lib verify --write")
    return head[0] + rows[0]


def find_index_heading_of_page(notebook_id: str) -> str:
    """Return the heading under which the index of pages lists a notebook's page.

    It is the title of the paper that the notebook reproduces, or "The workbook" for a
    notebook that belongs to no single paper."""
    return lists.PAPERS.get(
        find_paper_name_of_notebook(notebook_id), verdicts.HEADINGS[0]
    )


def list_notebook_ids_in_index(profile: ProfileName) -> list[str]:
    """Return the ids of the notebooks that have a page at a profile, in index order.

    The index lists pages paper by paper. Only committed notebooks count. A notebook
    whose file was deleted is listed too, so that its loss is noticed, unless the user
    removed a whole paper.

    profile: size of the experiments, such as "mini"."""
    names = [
        name
        for name in notebook.read_committed_notebook_digests()
        if planned.notebook_lists_runs_at_profile(profile, name)
        and (
            notebook.find_notebook_path(name).exists()
            or not lists.list_papers_whose_folder_is_missing()
        )
    ]
    return sorted(
        names,
        key=lambda name: verdicts.HEADINGS.index(find_index_heading_of_page(name)),
    )


def remove_paper_name_from_title(title: str, notebook_id: str) -> str:
    """Return the title of a page without the name of its paper, for the index of pages.

    The index has this name as the heading above the page. So "GhostBERT Table 3: cost"
    becomes "Table 3: cost" below "GhostBERT"."""
    text = title.removeprefix(find_index_heading_of_page(notebook_id)).lstrip(",: ")
    return text[:1].upper() + text[1:]


def read_readme_findings() -> list[tuple[str, str]]:
    """Return the two lines of README that tell what was found and which method to use.

    Each is (head, text): the bold words at its beginning and the rest, without
    backticks. The index of pages shows them, so that they are written in README
    alone."""
    text = (paths.ROOT / "README.md").read_text().replace("`", "")
    return re.findall(r"^\*\*(In short\.|What to use\?)\*\* (.*)$", text, re.M)


def summarise_paper_for_index(paper: str) -> PaperCard | None:
    """Return the fields of the card that shows one paper on the index of pages.

    The keys are title, href (its summary page), idea (what the paper proposes, in a
    sentence), words (outcomes of comparisons that test its central claims, such as
    "3 agree, 1 too noisy to say") and bars (a dict for each of the first comparisons
    with an interval and an expected effect other than 0, at most four: the positions
    and labels by which it is drawn, see `scale_effect_to_bar_percent`). It is None
    where the paper has no summary page.

    paper: name of the paper's folder, such as "bermo"."""
    page = f"{list_papers_by_name()[paper].prefix}_01_summary"
    path = notebook.find_notebook_path(page)
    if not path.exists():
        return None
    title_cell = notebook.read_cell_sources_by_tag(path)["title"]
    idea = title_cell.partition("**Idea.**")[2].strip()
    central = judging.list_central_claim_ids(paper)
    # A comparison that several claims share counts once, and one on a single task not at
    # all if its mean over tasks does.
    rows = [
        row
        for row in judging.read_verdicts_csv()
        if row["claim"] in central
        and row["profile"] == judging.SCALE
        and not (row["same_as"] or row["beside"])
    ]
    return {
        "title": lists.PAPERS[paper],
        "href": f"{page}.html",
        "idea": idea.partition(". ")[0] + ".",
        "words": format_verdict_word_counts(row["word"] for row in rows),
        "bars": [
            scale_effect_to_bar_percent(row)
            for row in rows
            if row["low"] and compute_expected_effect_size(row)
        ][:BARS],
    }


BARS = 4  # Largest number of comparisons on a paper's card.


def compute_expected_effect_size(verdict_row: Mapping[str, str]) -> float:
    """Return the expected effect of a comparison, less the value of no effect.

    The index of pages draws measured effects relative to it. The expected effect is the
    one that the paper prints or, where it prints none, the smallest effect of interest
    that was named with the first seeds. The result is 0 where both are missing. The
    value of no effect is 0 for a difference and 1 for a ratio.

    verdict_row: a row of `verdicts.csv`, which is a measured comparison."""
    value = (
        verdict_row["printed"] or verdict_row["interest"] or verdict_row["no_effect"]
    )
    return float(value) - float(verdict_row["no_effect"])


def scale_effect_to_bar_percent(verdict_row: Mapping[str, str]) -> BarPositions:
    """Return the positions and labels by which the index of pages draws one comparison.

    A position is in % of the width of a horizontal line. No effect is at 50. At 75 is
    the printed effect or, where none is printed, the smallest effect of interest. A
    value beyond an end is drawn at the end. The keys are low, mean and width (left end,
    mean and width of the 95 % interval), label, ours (measured effect as text), aim
    (the effect at 75 as text), is_printed (whether it is printed) and word (an outcome
    such as "agrees").

    verdict_row: a row of `verdicts.csv` with an interval and an expected effect that is
    not 0."""

    no_effect = float(verdict_row["no_effect"])
    expected = compute_expected_effect_size(verdict_row)
    positions = []
    for column in ("low", "estimate", "high"):
        share = (float(verdict_row[column]) - no_effect) / expected
        positions.append(round(50 + 25 * min(2, max(-2, share)), 1))
    low, mean, high = positions
    label = lists.find_comparison_description(
        verdict_row["claim"], verdict_row["cell"]
    )["short"]
    sign = "" if no_effect else "+"
    goal = format(
        float(verdict_row["printed"] or verdict_row["interest"]), f"{sign}.3g"
    )
    task = f", {verdict_row['task']}" * ("task=each" in verdict_row["cell"])
    return {
        "label": label + task,
        "ours": verdict_row["counts"] or verdict_row["shown"],
        "aim": f"{goal.lstrip('+')} % more"
        if verdict_row["counts"]
        else goal.replace("-", "−"),
        "is_printed": bool(verdict_row["printed"]),
        "word": verdict_row["word"],
        "low": min(low, high),
        "width": round(abs(high - low), 1),
        "mean": mean,
    }


def tabulate_pages_of_paper(paper: str) -> pd.DataFrame:
    """Return a DataFrame of the pages of a paper, for the overview on its summary page.

    The index is the notebook id. The columns are page (title), asks (its question) and
    answer. The answer is one comparison that the page shows, as text with its 95 %
    interval and its outcome, such as "agrees". It is the first that tests a central
    claim and has an interval, or else the first with an interval on a claim that only
    this page tests; "–" if there is none. The summary page itself is left out.

    paper: name of the paper's folder, such as "bermo"."""
    import pandas as pd

    lines = []
    central = judging.list_central_claim_ids()
    claims = lists.read_claims()
    for path in notebook.find_notebooks([f"{paper}/"]):
        name = notebook.make_notebook_id(path)
        if find_paper_name_of_notebook(name) != paper or name.endswith("_01_summary"):
            continue
        ids = judging.list_notebook_claim_ids(name)
        rows = [
            r
            for r in judging.read_verdicts_csv()
            if r["claim"] in ids
            and r["low"]
            and r["family"]
            and (r["claim"] in central or claims[r["claim"]]["artefact"] == name)
        ]
        rows.sort(key=lambda r: r["claim"] not in central)
        answer = (
            f"{rows[0]['sentence']}: {rows[0]['shown']}: {rows[0]['word']}"
            if rows
            else "–"
        )
        lines.append(
            {
                "page": notebook.read_notebook_title(path),
                "asks": read_notebook_question(path),
                "answer": answer,
                "name": name,
            }
        )
    return pd.DataFrame(lines).set_index("name")


def read_notebook_question(notebook_path: Path) -> str:
    """Return the question that a notebook asks in its title cell.

    It is the text after "**Question.**" up to a question mark. Without a question mark
    it is the rest of the paragraph. The summary page of a paper lists these
    questions."""
    about = (
        notebook.read_cell_sources_by_tag(notebook_path)["title"]
        .partition("**Question.**")[2]
        .strip()
    )
    question = re.match(r".*?\?(?= |\n|$)", about, re.S)
    return " ".join((question[0] if question else about.split("\n\n")[0]).split())


def format_pages_as_markdown_table(pages_table: pd.DataFrame) -> str:
    """Return the pages of a paper as a Markdown table with title, question, answer.

    A title is a link to the page's notebook, beside that of the summary page. On pages
    in HTML or Markdown the link leads to a page of the same form.

    pages_table: the frame of `tabulate_pages_of_paper`, with the columns page, asks,
    answer."""
    lines = ["| page | asks | first answer |", "|---|---|---|"]
    for name, line in pages_table.iterrows():
        file_name = notebook.find_notebook_path(str(name)).name
        cells = f"[{line['page']}]({file_name})", line["asks"], line["answer"]
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def summarise_claims_of_paper(
    paper: str, verdict_by_claim_id: Mapping[str, Verdict]
) -> list[str]:
    """Return sentences with the main results of a paper, for its summary page.

    At most two give measured comparisons of its central claims. The last one counts the
    outcomes, such as "agrees", of all comparisons of central claims.

    paper: name of the paper's folder, such as "bermo".
    verdict_by_claim_id: {claim id: Verdict, a claim with its measured comparisons}."""
    central = [verdict_by_claim_id[id] for id in judging.list_central_claim_ids(paper)]
    return [
        *verdicts.list_main_result_sentences(central, claim_test_profile=judging.SCALE)[
            :2
        ],
        f"{verdicts.format_verdict_counts(central)}.",
    ]
