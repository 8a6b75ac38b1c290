"""Checks: formulas over printed cells, as claims and inconsistencies have them. Free of torch.

    value("ghostbert", "cell('table3', 'GhostBERT Avg. acc', '1/12') > 75")

A formula reads cells of one paper. A key names a row by its first columns: the whole text or how it
begins, "*" for any. Numbers are exact fractions, and a cell without a number is its text. What a
formula read is told with its value.
"""

import ast
import statistics
from csv import DictReader
from fractions import Fraction
from functools import cache

from lib import data
from lib.paths import PUBLISHED
from lib.spec import ancestry, known

PAPERS = {
    "ghostbert": "GhostBERT",
    "efficientbert": "EfficientBERT",
    "bermo": "BERMo",
    "nas": "NAS pruning",
}
# What a formula may be made of: expressions, comprehensions, and no attribute but `split`.
PARTS = (
    (ast.Expression, ast.expr_context, ast.Constant, ast.Name, ast.Call)
    + (ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop)
    + (ast.Compare, ast.cmpop, ast.Subscript, ast.Slice, ast.Tuple, ast.List)
    + (ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.JoinedStr, ast.FormattedValue)
)


@cache
def lines(name):
    """The rows of a file under `data/published` as dicts of text; name: "nas/claims"."""
    with (PUBLISHED / f"{name}.csv").open() as file:
        return list(DictReader(file))


@cache
def claims():
    """{id: row of claims.csv, with its `paper`} of every claim, paper by paper, ours last.

    A claim of `plan.csv` has its seeds from there, and as `planned` its row.
    """
    found, plan = {}, {row["claim"]: row for row in lines("plan")}
    for paper in (*PAPERS, "own"):
        for row in lines(f"{paper}/claims"):
            found[row["id"]] = {"paper": paper, "planned": None} | row
            if planned := plan.get(row["id"]):
                first = int(planned["first_seed"])
                seeds = f"{first} to {first + int(planned['seeds']) - 1}"
                found[row["id"]] |= {"planned": planned, "seeds": seeds}
    return found


def effects(claim):
    """{(cell, task): value} that the paper prints of the cells of a claim.

    A row of `effects.csv` has a formula for each of its tasks, "{task}" in it. A mean over tasks is
    named by all of them, in order, with "/" between: so it stands beside the mean over these alone.
    """
    return {
        (row["cell"], task): float(
            value(claims()[claim]["paper"], row["formula"].replace("{task}", task))[0]
        )
        for row in lines("effects")
        if row["claim"] == claim
        for task in row["tasks"].split("; ")
    }


def number(text):
    """The exact number, None for a cell without one, else the text."""
    try:
        return Fraction(text.replace(",", ""))
    except ValueError:
        return None if text in ("", "-") else text


def mean(values):
    return sum(values := list(values)) / Fraction(len(values))


def rounded(value, digits):
    """The Fraction of so many digits, a half away from zero."""
    scale, value = Fraction(10) ** digits, Fraction(value)
    return int(abs(value) * scale + Fraction(1, 2)) / scale * (1 if value >= 0 else -1)


class Cells:
    """Printed cells of a paper by table, column and keys of the row; knows which ones it gave."""

    def __init__(self, paper):
        self.paper, self.given = paper, {}

    def rows(self, table, keys):
        at = list(enumerate(lines(f"{self.paper}/{table}")))
        for key, column in zip(keys, at[0][1], strict=False):
            exact = [each for each in at if each[1][column] == key]
            at = exact or [each for each in at if key == "*" or each[1][column].startswith(key)]
        if not at:
            raise ValueError(f"{self.paper}/{table}.csv has no row {', '.join(keys)}")
        return at

    def col(self, table, column, *keys):
        """The values of a column in all rows of these keys."""
        rows = self.rows(table, keys)
        self.given |= {(table, column, i): line[column] for i, line in rows}
        return [number(line[column]) for _, line in rows]

    def cell(self, table, column, *keys):
        """The value of a column in the one row of these keys."""
        (value,) = self.col(table, column, *keys)
        return value

    def row(self, table, span, *keys):
        """The values of one row in the columns of a span "A:B"; empty ones are left out."""
        names = list(lines(f"{self.paper}/{table}")[0])
        first, last = map(names.index, span.split(":"))
        values = [self.cell(table, name, *keys) for name in names[first : last + 1]]
        return [value for value in values if value is not None]

    def off(self, table, span, average, labels=1):
        """The rows that are whole and whose average is not the mean of the span."""
        keys = [list(line.values())[:labels] for line in lines(f"{self.paper}/{table}")]
        parts = [
            (key, self.cell(table, average, *key), self.row(table, span, *key)) for key in keys
        ]
        full = max(len(part) for *_, part in parts)
        whole = [each for each in parts if each[1] is not None and len(each[2]) == full]
        return [key for key, told, part in whole if rounded(mean(part), 1) != told]


def setting(page, step, path):
    """The set of values that a setting has at the profile paper: exact numbers, or text.

    It is looked for in the Specs of a step that the grid of a page makes, and in all that they rest
    on. path: of the setting in the arguments of the step, "train.epochs". Raises ValueError where
    no Spec has it.
    """
    from lib.page import notebook

    specs, found = notebook.wanted(made(page)), set()
    for spec in {*specs, *ancestry(specs)}:
        told = spec.args
        for name in path.split("."):
            told = told.get(name) if isinstance(told, dict) else None
        if spec.step == step and told is not None:
            found.add(number(str(told)))
    if not found:
        raise ValueError(f"no Spec of step {step} on {page} has {path} at paper")
    return found


@cache
def made(page):
    """The grids of a page at the profile paper, made without its data."""
    from lib.page import notebook

    (path,) = (path for path in notebook.find() if path.stem == page)
    with data.planning(look=False):
        return notebook.grids(path, {"profile": "paper"})


FUNCTIONS = (
    dict(mean=mean, sd=statistics.stdev, r=rounded, abs=abs, int=int, float=float, len=len, max=max)
    | dict(min=min, set=set, sorted=sorted, sum=sum, zip=zip, all=lambda of: all(list(of)))
    | {"isnum": lambda of: isinstance(of, Fraction), "setting": setting}
)


def value(paper, formula):
    """(what a formula gives, {(table, column, row): text} of the cells that it read).

    Raises ValueError, naming it, for a part that a formula may not have.
    """
    cells, tree = Cells(paper), ast.parse(formula, mode="eval")
    for node in ast.walk(tree):
        split = isinstance(node, ast.Attribute) and node.attr == "split"
        if not (split or isinstance(node, PARTS)):
            raise ValueError(f"{ast.unparse(node)!r} may not stand in the formula {formula!r}")
    there = FUNCTIONS | {name: getattr(cells, name) for name in ("cell", "col", "row", "off")}
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.ctx.__class__ is ast.Store
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in bound:
            known("name in a formula", node.id, there)
    return eval(compile(tree, "<check>", "eval"), {"__builtins__": {}} | there), cells.given


def digits(text):
    """How many decimals a printed number has."""
    return len(text.partition(".")[2])


def agrees(found, printed):
    """Whether the value of a formula is a printed text: true, the same, or so when rounded; of a
    set, its only value."""
    told = number(printed)
    if isinstance(found, set):
        return len(found) == 1 and agrees(*found, printed)
    if isinstance(found, bool) or found == told:
        return bool(found == told or found is True)
    return isinstance(found, int | float | Fraction) and rounded(found, digits(printed)) == told


def inconsistencies():
    """The rows of `inconsistencies.csv`, the value that contradicts the print computed again.

    `found` is that value, None where a row contradicts without a formula.
    """
    return [
        row | {"found": value(row["paper"], row["how"])[0] if row["how"] else None}
        for row in lines("inconsistencies")
    ]
