"""The claims, the inconsistencies and the coverage under `data/published`, held to the tables.

A formula of these files reads printed cells. A key names the row by its first columns: the whole
text or how it begins, "*" for any.
"""

import re
from csv import DictReader
from fractions import Fraction
from functools import cache

import pytest

from lib.page import notebook
from lib.paths import PUBLISHED

PAPERS = ("ghostbert", "efficientbert", "bermo", "nas")
NO_TABLE = ("claims", "corrections", "checks", "misses")
RULES = "delta ordering trend within reached equal together none".split()
DEVIATIONS = set("data model schedule search control hardware unspecified implementation".split())
KINDS = {"order", "difference", "ratio", "count", "trend", "shape", "statement"}
ROLES = {"central", "finding", "arithmetic", "setting", "background"}


@cache
def read(name):
    with (PUBLISHED / f"{name}.csv").open() as file:
        return list(DictReader(file))


def number(text):
    """The exact number, None for a cell without one, else the text."""
    try:
        return Fraction(text.replace(",", ""))
    except ValueError:
        return None if text in ("", "-") else text


def mean(values):
    return sum(values := list(values)) / Fraction(len(values))


def spread(values):
    """Standard deviation, divisor n - 1."""
    centre = mean(values)
    return float(sum((v - centre) ** 2 for v in values) / (len(values) - 1)) ** 0.5


def rounded(value, digits):
    """The Fraction of so many digits, a half away from zero."""
    scale, value = Fraction(10) ** digits, Fraction(value)
    return int(abs(value) * scale + Fraction(1, 2)) / scale * (1 if value >= 0 else -1)


class Cells:
    """Printed cells of a paper by table, column and keys of the row; knows which ones it gave."""

    def __init__(self, paper):
        self.paper, self.given = paper, {}

    def rows(self, table, keys):
        at = list(enumerate(read(f"{self.paper}/{table}")))
        for key, column in zip(keys, at[0][1], strict=False):
            exact = [each for each in at if each[1][column] == key]
            begun = [each for each in at if key == "*" or each[1][column].startswith(key)]
            at = exact or begun
        assert at, (table, keys)
        return at

    def col(self, table, column, *keys):
        rows = self.rows(table, keys)
        self.given |= {(table, column, i): line[column] for i, line in rows}
        return [number(line[column]) for _, line in rows]

    def cell(self, table, column, *keys):
        (value,) = self.col(table, column, *keys)
        return value

    def row(self, table, span, *keys):
        names = list(read(f"{self.paper}/{table}")[0])
        first, last = map(names.index, span.split(":"))
        values = [self.cell(table, name, *keys) for name in names[first : last + 1]]
        return [value for value in values if value is not None]

    def off(self, table, span, average, labels=1):
        """The rows that are whole and whose average is not the mean of the span."""
        keys = [list(line.values())[:labels] for line in read(f"{self.paper}/{table}")]
        parts = [
            (key, self.cell(table, average, *key), self.row(table, span, *key)) for key in keys
        ]
        full = max(len(part) for *_, part in parts)
        whole = [each for each in parts if each[1] is not None and len(each[2]) == full]
        return [key for key, told, part in whole if rounded(mean(part), 1) != told]


def value(paper, formula):
    """(what a formula gives, the cells that it reads)."""
    cells = Cells(paper)
    known = dict(
        {name: getattr(cells, name) for name in ("cell", "col", "row", "off")},
        **dict(mean=mean, sd=spread, r=rounded, abs=abs, int=int, float=float, len=len, max=max),
        **dict(min=min, set=set, sorted=sorted, sum=sum, zip=zip),
        **dict(all=lambda of: all(list(of)), isnum=lambda of: isinstance(of, Fraction)),
    )
    return eval(formula, {"__builtins__": {}} | known), cells.given


def digits(text):
    return len(text.partition(".")[2])


@cache
def checked():
    """{(paper, id): (value, cells)} of the claims that follow from printed cells."""
    of = {(paper, c["id"]): c["check"] for paper in PAPERS for c in read(f"{paper}/claims")}
    return {(paper, id): value(paper, check) for (paper, id), check in of.items() if check}


def touched(paper, table, column, row=None):
    """The claims that one printed cell touches, or a column."""
    of = {id: cells for (of, id), (_, cells) in checked().items() if of == paper}
    return [
        id
        for id, cells in of.items()
        if any((t, c) == (table, column) and row in (None, i) for t, c, i in cells)
    ]


def test_central_claims_come_first_and_are_those_of_their_own_file():
    for paper in PAPERS:
        wanted = [line for line in read("central") if line["paper"] == paper]
        found = read(f"{paper}/claims")
        for line, claim in zip(wanted, found[: len(wanted)], strict=True):
            told = [claim[name] for name in ("id", "claim", "locator", "value", "role", "central")]
            asked = [line[name] for name in ("id", "claim", "locator", "published")]
            assert told == [*asked, "central", line["id"]]
        assert [c["role"] for c in found].count("central") == len(wanted)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_whole(paper):
    claims, pages = read(f"{paper}/claims"), {path.stem for path in notebook.find()}
    central = {line["id"] for line in read("central")}
    for name in ("id", "claim", "says"):
        assert len({c[name] for c in claims}) == len(claims), name
    for c in claims:
        assert all(c[name] for name in ("id", "locator", "value", "rule")), c
        assert c["kind"] in KINDS and c["role"] in ROLES and c["says"].endswith("."), c
        rule = c["rule"].split(":")[0]
        assert rule in RULES and (rule == "none") == (c["role"] == "background"), c
        assert bool(c["margin"]) == (rule != "none"), c
        assert set(filter(None, c["artefact"].split("; "))) <= pages, c
        alone = c["rule"].endswith(("no page has it", "to be made on the page of the frontier"))
        assert c["artefact"] or rule == "none" or alone, c
        assert set(filter(None, c["deviations"].split("; "))) <= DEVIATIONS, c
        assert bool(c["deviations"]) == (c["role"] in ("central", "finding")), c
        assert not c["central"] or c["central"] in central, c
        assert all(re.search(r"\S [>~] \S", pair) for pair in c["cells"].split("; ") if pair), c


def test_a_claim_follows_from_the_tables_or_an_inconsistency_names_it():
    named = {(i["paper"], id) for i in read("inconsistencies") for id in i["claims"].split("; ")}
    printed = {(paper, c["id"]): c["value"] for paper in PAPERS for c in read(f"{paper}/claims")}
    for key, (found, _) in checked().items():
        told = number(printed[key])
        equal = found if isinstance(found, bool) else rounded(found, digits(printed[key])) == told
        assert equal or found == told or key in named, (key, found)


@pytest.mark.parametrize("line", read("inconsistencies"), ids=lambda line: line["locator"])
def test_an_inconsistency_is_computed_again(line):
    assert all(line[name] for name in ("locator", "sort", "printed", "note", "what_we_do"))
    if line["cell"]:
        assert value(line["paper"], line["cell"])[0] == number(line["printed"])
    assert bool(line["how"]) == bool(line["recomputed"])
    if line["how"]:
        found, told = value(line["paper"], line["how"])[0], number(line["recomputed"])
        assert told in (found, rounded(found, digits(line["recomputed"])))
        assert told != number(line["printed"])
    ids = {c["id"] for c in read(f"{line['paper']}/claims")}
    assert set(filter(None, line["claims"].split("; "))) <= ids


def test_every_printed_column_feeds_a_claim_or_says_why_not():
    told = {(c["paper"], c["table"], c["column"]): c for c in read("coverage")}
    files = [(paper, path.stem) for paper in PAPERS for path in (PUBLISHED / paper).glob("*.csv")]
    columns = [
        (*file, name)
        for file in files
        if file[1] not in NO_TABLE
        for name in read("/".join(file))[0]
    ]
    assert len(told) == len(read("coverage")) and set(told) == set(columns)
    for key, line in told.items():
        assert line["claims"] == "; ".join(touched(*key)), key
        assert bool(line["claims"]) != bool(line["why_none"]), key


def test_a_changed_number_names_the_claims_that_it_touches():
    assert touched("ghostbert", "table9", "CoLA", 6) == ["G58", "G61", "G66"]
    assert set(touched("ghostbert", "table4", "Avg.", 2)) < set(
        touched("ghostbert", "table4", "Avg.")
    )
    assert touched("nas", "table01_elmo_gpt_bert", "BERT") == []
