"""The index of a profile: it fits two screens, no link is dead, and its search
finds."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from lib.claims import judging, lists, notebook, words
from lib.core import paths
from lib.report import artefact, builder, front, plot, site, tables, verdicts

LINK = re.compile(r'href="([^"#]*)(?:#([^"]*))?"')
NAMED = re.compile(r'\bid="([^"]+)"')
BROWSER = pytest.mark.skipif(
    not shutil.which("chromium"), reason="chromium is not installed"
)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The folder of a profile without a page; its index is written."""
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    site.write_page_index_of_profile("toy")
    return tmp_path / "toy"


def make_pages(folder):
    """Write what the index takes for pages that are made, with contents to link to."""
    for name in front.list_notebook_ids_in_index("toy"):
        body = {"profile": "toy", "differs": [], "answer": ["+1.0 points"]}
        body |= {"counted": "none of its own", "files": []}
        (folder / f"{name}.json").write_text(json.dumps(body))
        (folder / f"{name}.html").write_text("<!-- 0 -->")
    site.write_page_index_of_profile("toy")


def seen(page, script, tmp_path):
    """The document that a browser of 1,280 x 800 makes of a page, after a script."""
    copy = page.with_name("copy.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script>"))
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    words += ["--window-size=1280,800", f"--user-data-dir={tmp_path}/browser"]
    told = subprocess.run(
        [*words, copy.as_uri()], capture_output=True, text=True, timeout=120
    )
    copy.unlink()
    assert "</html>" in told.stdout, told.stderr
    return told.stdout


def dead(folder):
    """The links of all pages of a folder that lead nowhere, as (page, link)."""
    texts = {path.name: path.read_text() for path in folder.glob("*.html")}
    names = {page: set(NAMED.findall(text)) for page, text in texts.items()}
    found = []
    for page, text in texts.items():
        for place, name in LINK.findall(html.unescape(text)):
            there = place or page
            if there not in texts or (name and name not in names[there]):
                found.append((page, f"{place}#{name}"))
    return found


def test_no_link_of_a_site_is_dead_though_no_page_is_made(folder):
    assert len(list(folder.glob("*.html"))) == 1 + len(
        front.list_notebook_ids_in_index("toy")
    )
    assert dead(folder) == []
    (folder / "90_claims.html").unlink()
    (folder / "other.html").write_text('<a href="90_claims.html#x"> <a href="#y">')
    assert dead(folder) == [
        ("other.html", "90_claims.html#x"),
        ("other.html", "#y"),
    ]
    assert len(folder.joinpath("index.html").read_text().split("not made</span>")) > 40


def test_a_page_that_is_made_is_not_written_over(folder):
    page = folder / "90_claims.html"
    assert (
        "not made yet" in page.read_text()
        and builder.read_page_html_and_digest(page)[1] == "promised"
    )
    page.write_text("whole <!-- 0 -->")
    site.write_page_index_of_profile("toy")
    assert page.read_text() == "whole <!-- 0 -->"


def test_a_card_counts_what_the_verdicts_of_its_paper_say(folder):
    index = folder.joinpath("index.html").read_text()
    cards = re.findall(r'<section class="card">.*?</section>', index, re.S)
    assert len(cards) == len(lists.PAPERS)
    lines = judging.read_verdicts_csv()
    counts = {paper: Counter() for paper in lists.PAPERS}
    for line in lines:
        claim = lists.read_claims()[line["claim"]]
        is_once = line["profile"] == "mini" and not (line["same_as"] or line["beside"])
        if is_once and claim["role"] == "central" and claim["paper"] in counts:
            counts[claim["paper"]][line["word"]] += 1
    for paper, card in zip(lists.PAPERS, cards, strict=True):
        for word, count in counts[paper].items():
            assert f"{count} {words.inflect_verdict_word(word, count)}" in card, (
                paper,
                word,
            )
        assert lists.PAPERS[paper] in card and 'class="bars"' in card


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "null, printed, ours, drawn",
    [
        (0, 2, (1, 2, 4), (62.5, 75, 100)),
        (0, -2, (-4, -2, -1), (62.5, 75, 100)),
        (1, 3, (-9, 1, 2), (0, 50, 62.5)),
    ],
)
def test_a_bar_runs_from_no_effect_to_the_printed_one(null, printed, ours, drawn):
    row = {"claim": "G1", "cell": "Ghost > Prune @ m=9", "task": ""}
    row |= {"counts": "", "shown": "x", "interest": "", "word": "agrees"}
    row |= dict(zip(("low", "estimate", "high"), map(str, ours), strict=True))
    bar = front.scale_effect_to_bar_percent(
        row | {"no_effect": str(null), "printed": str(printed)}
    )
    assert (bar["low"], bar["mean"], bar["low"] + bar["width"]) == drawn


def test_pages_lead_to_the_next_and_the_one_before():
    names = front.list_notebook_ids_in_index("mini")
    turns = {name: builder.find_previous_and_next_pages(name, "mini") for name in names}
    ends = [[page and page[0] for page in turns[name]] for name in names]
    assert [before or "" for before, _ in ends] == ["", *names[:-1]]
    assert [behind or "" for _, behind in ends] == [*names[1:], ""]
    assert turns[names[1]][0][1] == notebook.read_notebook_title(
        notebook.find_notebook_path(names[0])
    )
    assert builder.find_previous_and_next_pages("a_page_of_my_own", "mini") == []


@BROWSER
def test_the_index_with_all_pages_fits_two_screens(folder, tmp_path):
    make_pages(folder)
    script = "document.title = document.documentElement.scrollHeight"
    told = seen(folder / "index.html", script, tmp_path)
    assert 900 < int(re.search(r"<title>(\d+)</title>", told)[1]) <= 1600
    assert not re.search(r"""(src|href)=["'](https?:)?//""", told)


@pytest.mark.papers("ghostbert")
@BROWSER
def test_the_search_leaves_the_pages_whose_names_have_all_words(folder, tmp_path):
    make_pages(folder)
    script = (
        """find.value = "Table GhostBERT 5"; find.dispatchEvent(new Event("input"))"""
    )
    told = seen(folder / "index.html", script, tmp_path)
    lines = re.findall(r'<li data-words="(\w+)[^"]*"([^>]*)>', told)
    shown = [name for name, more in lines if "hidden" not in more]
    assert shown == ["ghostbert_t05_convolution"] and len(lines) > 40
    assert "1 of " in re.search(r"<output[^>]*>([^<]*)", told)[1]


def test_a_long_text_among_numbers_wraps():
    """The table of settings has a sentence where no single number was used."""
    sentence = "3e-5 in the first stage, 1e-5 in the second, as no one rate is printed"
    cells = pd.DataFrame(
        {"printed": ["1e-5", "32", "3"], "used": ["32", "3", sentence]},
        index=["rate", "batch", "epochs"],
    )
    html = tables.table_to_html(cells, "t")
    styled = {
        int(column)
        for rule in re.findall(r"([^{}]*){[^{}]*white-space: normal", html)
        for column in re.findall(r"\.col(\d+)", rule)
    }
    assert styled == {1}


def printed(tmp_path, columns, inches):
    """What of a page leaves an A4 page in print, and what is shown: a table with as
    many columns, a picture of this size, and what a reader of paper cannot use."""
    cells = pd.DataFrame([["a long cell", *["81.2 ± 0.4 (3)"] * columns]])
    cells.columns = ["model", *(f"recorded, mini, task {n}" for n in range(columns))]
    picture, _ = plot.make_panels(["a title"], *inches, max_column_count=1)
    frame = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
    parts = [
        frame.top("mini", "A page").replace("@media print", "@media all"),
        "<style>main { width: 186mm; }</style>",
        artefact.PARTS.table("A caption", tables.table_to_html(cells, "t")),
        artefact.render_figure_html(picture),
        "<pre>" + "-" * 120 + '</pre><details class="code">code</details>',
        "</main></body></html>",
    ]
    page = tmp_path / "page.html"
    page.write_text("".join(map(str, parts)))
    script = """
        const sides = {auto: [703, 1031], wide: [1031, 703]}, cut = []
        for (const part of document.querySelectorAll("figure *, pre, nav, details")) {
          const {width, height} = part.getBoundingClientRect()
          const [most, high] = sides[getComputedStyle(part.closest("figure") ?? part).page]
          if (width > most || (part.matches("svg") && height > high)) cut.push(part.tagName)
          if (part.matches("nav, details") && height) cut.push(part.tagName)
        }
        document.title = `${cut} ${getComputedStyle(document.querySelector("figure")).page}`"""
    return re.search(r"<title>(.*)</title>", seen(page, script, tmp_path))[1].strip()


@BROWSER
@pytest.mark.parametrize(
    ("columns", "inches", "side"),
    [(6, (9.6, 4), "auto"), (8, (7, 16), "auto"), (17, (13, 3), "wide")],
)
def test_nothing_of_a_printed_page_is_cut(tmp_path, columns, inches, side):
    """A page of A4 has 186 mm of 210 between its margins; a wide table turns it."""
    assert printed(tmp_path, columns, inches) == side
    style = (verdicts.TEMPLATE / "page.css").read_text()
    assert "@page { size: A4; margin: 12mm; }" in style
    assert "@page wide { size: A4 landscape; }" in style


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize("name", ["nas_01_summary", "nas_t05_random_architectures"])
def test_a_page_is_made_again_when_a_word_that_it_shows_changes(name, monkeypatch):
    page = builder.PageBuilder(notebook.find_notebook_path(name), Path())
    store = builder.Store()
    before = builder.digest_page_inputs(page, store)
    assert builder.digest_page_inputs(page, store) == before
    other = [
        row | {"word": "agrees too"} if row["claim"] == "N1" else row
        for row in judging.read_verdicts_csv()
    ]
    monkeypatch.setattr(judging, "read_verdicts_csv", lambda: other)
    assert builder.digest_page_inputs(page, store) != before
