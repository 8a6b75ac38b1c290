"""Light pages (`figures/mini/*.page.md`): no two numbers of a page are of one thing and differ."""

import csv
import re
import subprocess
from collections import defaultdict

import pytest

from lib.page import verdicts
from lib.runs import paths

NEAR = 0.151  # three numbers that are rounded to one decimal
SCORE = re.compile(r"(-?[\d.]+)(?: ± [\d.]+)? \((\d+)\)")
CONTRAST = re.compile(
    r"(?P<a>.+?)(?: at (?P<at_a>\d+/12))? (?:[<>]=?|~) (?P<b>.+?)(?: [+-]+ [\d.]+)?"
    r"(?: at (?P<at>\d+/12))?(?: [+-]+ [\d.]+)?(?: on (?P<task>[\w-]+))?"
    r": (?P<size>[+-][\d.]+) points"
    r"(?:.*?\((?P<seeds>\d+)(?: of \d+)? seeds.*\))?"
)
MEASURED = ("this run", "recorded")  # how the titles of measured columns begin
PAGES = sorted((paths.ROOT / "figures" / "mini").glob("*.page.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)


def tables(text):
    """[(titles, rows)] of the Markdown tables of a page, as text."""
    found = []
    for part in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [re.split(r" ?(?<!\\)\| ?", line.strip())[1:-1] for line in part.splitlines()]
        found.append((lines[0], lines[2:]))
    return found


def scores(text):
    """{(labels of a row, column): {(mean, seeds)}} of all measured scores of a page."""
    found = defaultdict(set)
    for titles, rows in tables(text):
        for row in rows:
            labels = tuple(
                cell for title, cell in zip(titles, row, strict=True) if ", " not in title
            )
            for title, cell in zip(titles, row, strict=True):
                alone = "development rows alone" in title or not title.startswith(MEASURED)
                if (hit := SCORE.fullmatch(cell)) and not alone:
                    found[labels, title].add((float(hit[1]), int(hit[2])))
    return found


def contrasts(text):
    """[(what, {part: text})] of the differences in points that the verdicts of a page tell."""
    found = []
    for titles, rows in tables(text):
        for row in rows if "verdict" in titles else ():
            for line in row[titles.index("measured")].split("<br>"):
                if hit := CONTRAST.fullmatch(line):
                    found.append((line[: hit.start("size")].rstrip(": "), hit.groupdict()))
    return found


def clashes(text):
    """What differs on a page though it is said to be one thing: a list of sentences."""
    told, found, seen = [], scores(text), {}
    for (row, title), values in found.items():
        if len({mean for mean, n in values}) > len({n for _, n in values}):
            told.append(f"{row}, {title}: {sorted(values)}")
    for what, part in contrasts(text):
        key, size = (what, part["seeds"]), float(part["size"])
        if abs(seen.setdefault(key, size) - size) > 1e-9:
            told.append(f"{what}: {seen[key]} and {size}")
        at = part["at_a"] or part["at"], part["at"]
        sides = [
            {title: v for (row, title), v in found.items() if {label, *filter(None, [m])} <= {*row}}
            for label, m in zip((part["a"], part["b"]), at, strict=True)
        ]
        titles = [t for t in sides[0] if t in sides[1] and "loss" not in t and "published" not in t]
        ends = f", {part['task'] or 'average'}"
        chosen = [t for t in titles if t.endswith(ends)] or titles * (not part["task"])
        if len(chosen) == 1 and part["seeds"]:
            (a, n), *_ = sides[0][chosen[0]]
            (b, k), *_ = sides[1][chosen[0]]
            if n == k == int(part["seeds"]) and abs(a - b - size) > NEAR:
                told.append(f"{what}: {size} in the verdict, {a} less {b} in the table")
    return told


PAGE = """
| m | model | published, SST-2 | recorded, mini, SST-2 |
| --- | --- | --- | --- |
| 3/12 | Ghost | 94.6 | 82.2 ± 0.1 (2) |
| 3/12 | Prune | 92.5 | 82.8 (2) |

| claim | verdict | measured | note |
|---|---|---|---|
| **G1** A. | open | Ghost > Prune at 3/12 on SST-2: -0.5 points (2 of 5 seeds) | |
| **G2** B. | open | Ghost > Prune at 3/12 on SST-2: -0.5 points (2 of 5 seeds) | |
"""


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("| 82.8 (2)", "| 81.8 (2)", "-0.5 in the verdict, 82.2 less 81.8 in the table"),
        (
            "**G2** B. | open | Ghost > Prune at 3/12 on SST-2: -0.5",
            "**G2** B. | open | Ghost > Prune at 3/12 on SST-2: -0.9",
            "-0.5 and -0.9",
        ),
        ("| 3/12 | Prune |", "| 3/12 | Ghost | 94.6 | 82.4 (2) |\n| 3/12 | Prune |", "82.4"),
        ("| 82.8 (2)", "| 81.8 (3)", ""),
    ],
)
def test_a_pair_that_differs_is_found(old, new, told):
    assert clashes(PAGE) == [] and len(contrasts(PAGE)) == 2 and len(scores(PAGE)) == 2
    found = clashes(PAGE.replace(old, new))
    assert bool(found) == bool(told) and all(told in each for each in found[:1])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name.partition(".")[0])
def test_no_two_numbers_of_a_page_are_of_one_thing_and_differ(path):
    assert clashes(path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name.partition(".")[0])
def test_the_words_on_top_are_those_of_the_records(path):
    """Else: make the page again, with --profile mini."""
    text = (paths.records_root() / "verdicts.csv").read_text()
    words = {line[0]: line[4] for line in csv.reader(text.splitlines()) if line[1] == "verdict"}
    top = r"^- ([A-Z]\d+): .* (\S [a-z ]+)\.$"
    for claim, shown in re.findall(top, path.read_text(), re.M):
        assert verdicts.label(words.get(claim, "NOT_RUN")) == shown, claim


def dead(path, text, kept):
    """The relative links of a page that lead to none of the kept files (paths from the root)."""
    root, links = paths.ROOT.resolve(), LINK.findall(CODE.sub("``", text))
    places = {link: (path.parent / link).resolve() for link in links}
    return [link for link, at in places.items() if at.relative_to(root).as_posix() not in kept]


def test_every_link_of_a_page_leads_to_a_file_that_git_keeps():
    """In pages, README and the notebooks' index: what is only made leads a reader nowhere."""
    told = subprocess.run(
        ["git", "ls-files"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    kept, texts = set(told.stdout.splitlines()), [*PAGES, paths.ROOT / "README.md"]
    texts += [paths.NOTEBOOKS / "README.md"]
    found = {path.name: dead(path, path.read_text(), kept) for path in texts}
    assert not {name: links for name, links in found.items() if links}
    page = PAGES[0]
    links = (
        "[a](b.ipynb) ![c](https://d) `[e](f)` [g](../../README.md) [h](#i) [j](../mini/k.csv#l)"
    )
    assert dead(page, links, kept) == ["b.ipynb", "../mini/k.csv"]
