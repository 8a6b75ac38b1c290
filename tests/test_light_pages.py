"""Light pages (`figures/mini/*.page.md`): no two numbers of a page are of one thing and
differ."""

import re
import subprocess
from collections import defaultdict
from functools import cache
from itertools import chain

import pandas as pd
import pytest
from conftest import of_page

from lib.claims import cells, judging, lists
from lib.core import paths
from lib.report.tables import (
    WIDTH,
    estimate_column_pixels,
    split_columns_to_fit_page,
    table_to_markdown,
)

NEAR = 0.151  # three numbers that are rounded to one decimal
SCORE = re.compile(r"(-?[\d.]+)(?: ± [\d.]+)? \((\d+)\)")
MEASURED = ("this run", "recorded")  # how the titles of measured columns begin
LINES = judging.read_verdicts_csv()
PAGES = sorted((paths.ROOT / "figures").glob("*/*.page.md"))
PAGES = [path for path in PAGES if path.parent.name in ("base", "mini")]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)


def tables(text):
    """[(titles, rows)] of the Markdown tables of a page, as text."""
    found = []
    for part in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [
            re.split(r" ?(?<!\\)\| ?", line.strip())[1:-1] for line in part.splitlines()
        ]
        found.append((lines[0], lines[2:]))
    return found


def scores(text):
    """{(labels of a row, column): {(mean, seeds)}} of all measured scores of a page."""
    found = defaultdict(set)
    for titles, rows in tables(text):
        for row in rows:
            labels = tuple(
                cell
                for title, cell in zip(titles, row, strict=True)
                if ", " not in title
            )
            for title, cell in zip(titles, row, strict=True):
                alone = "development rows alone" in title or not title.startswith(
                    MEASURED
                )
                if (hit := SCORE.fullmatch(cell)) and not alone:
                    found[labels, title].add((float(hit[1]), int(hit[2])))
    return found


HEAD = ["statement", "ours [95 %]", "printed", "word"]
OURS = re.compile(r"([+−]?[\d.]+) \[(−?[\d.]+), (−?[\d.]+)\](?: \(.*\))?")


def contrasts(text):
    """[(sentence, ours)] of the comparisons of a page; a part has the sentence of its
    whole."""
    found, whole = [], ""
    for titles, rows in tables(text):
        for row in rows if titles == HEAD else ():
            if row[0].startswith("**"):
                continue
            part = re.fullmatch(r"on (\S+) alone", row[0])
            whole = whole if part else row[0]
            found.append((f"{whole} on {part[1]}" if part else whole, row[1]))
    return found


def cells_of(page, profile="mini"):
    """{sentence: (models and places, seeds, task)} of two models' scores on a page of a
    profile, on one task."""
    found = {}
    for line in LINES:
        plan = lists.read_claims()[line["claim"]]
        if line["profile"] != profile or page not in plan["artefact"].split("; "):
            continue
        one = cells.parse_comparison(line["cell"])
        if [w for w, _ in one.terms] == [1.0, -1.0] and not one.measure and line["low"]:
            about = one.models, int(line["seeds"]), line["task"]
            if len(one.models) == 2 and "/" not in line["task"]:
                found[line["sentence"]] = about
    return found


def clashes(text, page="", of=None):
    """What differs on a page though it is said to be one thing: a list of sentences.

    of: {sentence: (models and places, seeds, task)}, else those of the page.
    """
    told, found, seen = [], scores(text), {}
    for (row, title), values in found.items():
        if len({mean for mean, n in values}) > len({n for _, n in values}):
            told.append(f"{row}, {title}: {sorted(values)}")
    of = cells_of(page) if of is None else of
    for what, ours in contrasts(text):
        if seen.setdefault(what, ours) != ours:
            told.append(f"{what}: {seen[what]} and {ours}")
        if what not in of or not (hit := OURS.fullmatch(ours)):
            continue
        models, seeds, task = of[what]
        size, sides = float(hit[1].replace("−", "-")), []
        for label, where in models:
            wanted = {label, *(f"{value}/12" for key, value in where if key == "m")}
            sides.append({t: v for (row, t), v in found.items() if wanted <= {*row}})
        titles = [t for t in sides[0] if t in sides[1] and t.endswith(f", {task}")]
        if len(titles) == 1:
            (a, n), *_ = sides[0][titles[0]]
            (b, k), *_ = sides[1][titles[0]]
            if n == k == seeds and abs(a - b - size) > NEAR:
                told.append(f"{what}: {size} as compared, {a} less {b} in the table")
    return told


PAGE = """
| m | model | published, SST-2 | recorded, mini, SST-2 |
| --- | --- | --- | --- |
| 3/12 | Ghost | 94.6 | 82.2 ± 0.1 (2) |
| 3/12 | Prune | 92.5 | 82.8 (2) |

| statement | ours [95 %] | printed | word |
|---|---|---|---|
| **G1 A.** | | | |
| Ghosts minus pruning at 3/12 on SST-2 | −0.6 [−0.9, −0.1] | +2.1 | x |
| **G2 B.** | | | |
| Ghosts minus pruning at 3/12 | −0.7 [−0.9, 0.3] | +2.1 | x |
| on SST-2 alone | −0.6 [−0.9, −0.1] | +2.1 | x |
"""
MODELS = [("Ghost", (("m", "3"),)), ("Prune", (("m", "3"),))]
OF = {"Ghosts minus pruning at 3/12 on SST-2": (MODELS, 2, "SST-2")}


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("| 82.8 (2)", "| 81.8 (2)", "-0.6 as compared, 82.2 less 81.8 in the table"),
        ("alone | −0.6", "alone | −0.9", "−0.6 [−0.9, −0.1] and −0.9"),
        (
            "| 3/12 | Prune |",
            "| 3/12 | Ghost | 94.6 | 82.4 (2) |\n| 3/12 | Prune |",
            "82.4",
        ),
        ("| 82.8 (2)", "| 81.8 (3)", ""),
    ],
)
def test_a_pair_that_differs_is_found(old, new, told):
    assert (
        clashes(PAGE, of=OF) == []
        and len(contrasts(PAGE)) == 3
        and len(scores(PAGE)) == 2
    )
    assert old in PAGE
    found = clashes(PAGE.replace(old, new), of=OF)
    assert bool(found) == bool(told) and all(told in each for each in found[:1])


@pytest.mark.parametrize("path", map(of_page, PAGES))
def test_no_two_numbers_of_a_page_are_of_one_thing_and_differ(path):
    """What it says of the words is in `test_words`."""
    page, profile = path.name.partition(".")[0], path.parent.name
    assert clashes(path.read_text(), of=cells_of(page, profile)) == []


def dead(path, text, kept):
    """The relative links of a page that lead to none of the kept files (paths from the
    root)."""
    root, links = paths.ROOT.resolve(), LINK.findall(CODE.sub("``", text))
    places = {link: (path.parent / link).resolve() for link in links}
    return [
        link
        for link, at in places.items()
        if at.relative_to(root).as_posix() not in kept
    ]


@pytest.mark.papers()
def test_every_link_of_a_page_leads_to_a_file_that_git_keeps():
    """In pages, README and the notebooks' index: what is only made leads a reader
    nowhere."""
    kept, texts = list_kept(), [*PAGES, paths.ROOT / "README.md"]
    texts += [paths.NOTEBOOKS / "README.md"]
    found = {path.name: dead(path, path.read_text(), kept) for path in texts}
    assert not {name: links for name, links in found.items() if links}
    page = PAGES[0]
    links = "[a](b.ipynb) ![c](https://d) `[e](f)` [g](../../README.md) [h](#i) "
    links += "[j](../mini/k.csv#l)"
    assert dead(page, links, kept) == ["b.ipynb", "../mini/k.csv"]


def test_many_comparisons_can_be_held_to_their_tables():
    assert sum(len(cells_of(path.name.partition(".")[0])) for path in PAGES) > 40


@pytest.mark.parametrize("path", map(of_page, PAGES))
def test_a_committed_page_is_of_the_committed_records(path):
    """Else: make the page again from the records, with the profile of its folder."""
    (digest,) = re.findall(r"ade of .*, records `(\w+)`\.", path.read_text())
    assert digest == judging.digest_results_shown_by_notebook(
        path.name.partition(".")[0]
    )


COURSES = [path for path in PAGES if "00_" in path.name]
ANSWERS = [path for path in PAGES if path not in COURSES]
WITHOUT = re.compile(
    r"No (central )?comparison of this page is measured at mini: \w|Nothing is shown: "
)
COUNT = re.compile(
    r"\W*(Of )?\d+ (agree|show|go|are too|central|not measured)|Comparisons:"
)


def first_line(text):
    """The line below the title of a page, without its marks."""
    title, empty, line, *_ = text.split("\n")
    assert title.startswith("# ") and not empty
    return line.strip("*") if line.startswith("**") and line.endswith("**") else ""


def answers(line):
    """Whether a line says a number, and not how many verdicts there are, or why
    none."""
    has_number = re.search(r"(?<![\w@])[+−-]?\d", line)
    return bool(WITHOUT.match(line) or has_number) and not COUNT.match(line)


@pytest.mark.parametrize("path", map(of_page, ANSWERS))
def test_the_first_line_of_a_page_is_its_answer(path):
    line = first_line(path.read_text())
    assert answers(line) and line.endswith((".", "`", "them")), line


@pytest.mark.parametrize(
    "line, is_one",
    [
        ("Ghosts minus pruning: −0.4 [−0.7, −0.2] points: no such effect here.", True),
        ("No comparison of this page is measured at mini: not run yet.", True),
        ("Comparisons: 1 agrees, 9 not measured.", False),
        ("82 central comparisons: 43 measured (15 agree), 39 not measured.", False),
        ("-", False),
        ("The mix does not help.", False),
    ],
)
def test_a_count_of_words_and_an_empty_line_are_no_answer(line, is_one):
    assert answers(line) == is_one


@pytest.mark.parametrize("path", map(of_page, ANSWERS))
def test_the_picture_of_a_page_stands_above_its_tables(path):
    """On the first screen: below the answer, and with nothing but sentences before
    it."""
    text = path.read_text()
    before, picture, _ = text.partition("\n![")
    assert not picture or not re.search(r"^(\||#{2,6} |\*\*Question)", before, re.M)


def test_no_picture_is_told_in_the_words_of_a_cell():
    """An alternative text is the title and the axes: it says what is seen."""
    texts = re.findall(r"!\[(.*?)]\(", "".join(path.read_text() for path in ANSWERS))
    assert len(texts) > 30 and not [
        text for text in texts if "model of the row" in text
    ]
    assert not [t for t in texts if "printed, not measured" in t or t == "figure"]


@pytest.mark.papers("ghostbert")
def test_a_comparison_that_changes_makes_its_page_old(monkeypatch):
    page, rows = "ghostbert_t03_pruned_vs_ghost", judging.read_verdicts_csv()
    before = judging.digest_results_shown_by_notebook(page)
    place = next(i for i, row in enumerate(rows) if row["claim"] == "G1")
    for key, value in {
        "estimate": "9.9",
        "low": "9.8",
        "word": "agrees",
        "holm": "0.0001",
    }.items():
        changed = [
            row | {key: value} if i == place else row for i, row in enumerate(rows)
        ]
        monkeypatch.setattr(judging, "read_verdicts_csv", lambda found=changed: found)
        old = rows[place][key] == value or (
            key == "holm" and float(rows[place]["holm"]) < 0.05
        )
        assert (judging.digest_results_shown_by_notebook(page) == before) == old, key
    monkeypatch.setattr(judging, "read_verdicts_csv", lambda: rows)
    assert (
        judging.digest_results_shown_by_notebook(page)
        == before
        != judging.digest_results_shown_by_notebook("nas_t05_random_architectures")
    )


FILE = re.compile(r"[\w./-]*\w\.(?:csv|toml|json|md|ipynb|png|svg|html)\b")
CODED = re.compile(r"```.*?```|`([^`\n]*)`", re.S)
PICTURE = re.compile(r"!\[(.*?)\]\(([^)]*)\)")


@cache
def list_kept():
    """The files that git keeps, as paths from the root."""
    words = ["git", "ls-files"]
    kept = subprocess.run(
        words, cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    return frozenset(kept.stdout.splitlines())


def unkept(text, kept):
    """The files that a page names and git does not keep; code of several words is a
    reader's."""
    words = CODED.sub(lambda code: "" if " " in (code[1] or " ") else code[1], text)
    names = {name.lstrip("./") for name in FILE.findall(words)}
    ends = tuple(f"/{path}" for path in kept)
    return sorted(
        name for name in names if not any(end.endswith(f"/{name}") for end in ends)
    )


@pytest.mark.parametrize("path", map(of_page, PAGES))
def test_a_page_names_only_files_that_git_keeps(path):
    assert unkept(path.read_text(), list_kept()) == []


def test_a_file_that_git_does_not_keep_is_found():
    kept = ["data/records/verdicts.csv", "figures/mini/a.png"]
    text = "see verdicts.csv, b.csv, `data/records/verdicts.csv`, ![a](a.png) "
    assert unkept(text + "`run x --data my.csv`", kept) == ["b.csv"]


def test_no_page_leaves_a_picture_behind_that_it_does_not_show():
    pictures = (paths.FIGURES / name for name in ("base", "mini"))
    for place in chain(*(folder.glob("*.png") for folder in pictures)):
        page = place.with_name(f"{place.name.partition('.')[0]}.page.md")
        assert f"({place.name})" in page.read_text(), place.name


def test_each_picture_has_words_of_its_own():
    """What a reader who does not see it is told."""
    for path in PAGES:
        words = [alt for alt, _ in PICTURE.findall(path.read_text())]
        assert len(set(words)) == len(words), path.name
        assert all(len(re.findall(r"\w+", alt)) > 2 for alt in words), (
            path.name,
            words,
        )


@pytest.mark.parametrize("path", map(of_page, PAGES))
def test_tables_fit_the_page_of_a_code_host(path):
    """A table of two columns has nothing to part."""
    for titles, rows in tables(path.read_text()):
        if titles == HEAD or len(titles) < 4:
            continue
        frame = pd.DataFrame(rows, columns=titles).replace(r"\\(?=\W)", "", regex=True)
        frame = frame.replace(r"\[([^]]*)]\([^)]*\)", r"\1", regex=True)  # a link
        widths = [estimate_column_pixels(frame.iloc[:, i]) for i in range(len(titles))]
        assert sum(widths) <= WIDTH, titles


def test_a_wide_table_becomes_two_with_all_its_cells():
    titles = [f"score {n}" for n in range(13)]
    frame = pd.DataFrame([[f"{n}.5 ± 0.1" for n in range(13)]], ["a|b"], titles)
    found = tables(table_to_markdown(frame.rename_axis("model")))
    assert len(found) == 2 and [row[0] for _, (row,) in found] == [r"a\|b"] * 2
    assert [t for heads, _ in found for t in heads[1:]] == titles
    assert [c for _, (row,) in found for c in row[1:]] == list(frame.iloc[0])
    assert len(tables(table_to_markdown(frame.iloc[:, :3]))) == 1
    long = frame.set_axis(["a " * 90], axis=0)
    assert max(len(heads) for heads, _ in tables(table_to_markdown(long))) <= 8


@pytest.mark.parametrize(
    "room, widths, sizes",
    [
        (500, [100] * 5, [5]),
        (220, [100] * 4 + [200], [2, 2, 1]),
        (230, [171] * 5, [1] * 5),
    ],
)
def test_columns_are_parted_until_each_part_fits(room, widths, sizes):
    """Three parts of five columns, and four of them, have a largest part of two."""
    parts = split_columns_to_fit_page([WIDTH - room, *widths], 1)
    assert [column for part in parts for column in part] == [1, 2, 3, 4, 5]
    assert [len(part) for part in parts] == sizes
