"""Checks: formulas over printed cells, as claims and inconsistencies have them. Free of torch.

    value("ghostbert", "cell('table3', 'GhostBERT Avg. acc', '1/12') > 75")

A formula is an expression of Python. It reads cells of one paper, settings and axes of what the
profile `paper` makes, and counts and operations of this code. A key names a row by its first
columns: the whole text or how it begins, "*" for any. Numbers are exact fractions, and a cell
without a number is its text. Which cells a formula read is told with its value.
"""

import math
import statistics
from csv import DictReader
from fractions import Fraction
from functools import cache
from importlib import import_module

from lib import data
from lib.measure import cost
from lib.runs.paths import PUBLISHED
from lib.runs.spec import ancestry
from lib.train import options

PAPERS = {
    "ghostbert": "GhostBERT",
    "efficientbert": "EfficientBERT",
    "bermo": "BERMo",
    "nas": "NAS pruning",
}
# Options by their place in a Spec, which leaves out what is a default.
OPTIONS = {"train": options.Train, "surgery": options.Ghost, "warmup": options.Warmup}
OPTIONS |= {"importance": options.Importance, "prune": options.Prune, "gates": options.Gates}


@cache
def lines(name):
    """Return the rows of a file under `data/published` as dicts of text; name: "nas/claims"."""
    with (PUBLISHED / f"{name}.csv").open() as file:
        return list(DictReader(file))


@cache
def claims():
    """Return {id: row of claims.csv, with its `paper`} of every claim, paper by paper, ours last.

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
    """Return {(cell, task): value} that the paper prints of the cells of a claim.

    A row of `effects.csv` has a formula for each of its tasks, "{task}" in it. A mean over tasks is
    named by all of them, in order, with "/" between: so it stands beside the mean over these alone.
    """
    paper, found = claims()[claim]["paper"], {}
    for row in (row for row in lines("effects") if row["claim"] == claim):
        for task in row["tasks"].split("; "):
            printed, _ = value(paper, row["formula"].replace("{task}", task))
            found[row["cell"], task] = float(printed)
    return found


def number(text):
    """Return the exact number, None for a cell without one, else the text."""
    try:
        return Fraction(text.replace(",", ""))
    except ValueError:
        return None if text in ("", "-") else text


def rounded(value, digits):
    """Return the Fraction of so many digits, a half away from zero."""
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
        """Return the values of a column in all rows of these keys."""
        rows = self.rows(table, keys)
        self.given |= {(table, column, i): line[column] for i, line in rows}
        return [number(line[column]) for _, line in rows]

    def cell(self, table, column, *keys):
        """Return the value of a column in the one row of these keys."""
        (value,) = self.col(table, column, *keys)
        return value

    def row(self, table, span, *keys):
        """Return the values of one row in the columns of a span "A:B"; empty ones are left out."""
        names = list(lines(f"{self.paper}/{table}")[0])
        first, last = map(names.index, span.split(":"))
        values = [self.cell(table, name, *keys) for name in names[first : last + 1]]
        return [value for value in values if value is not None]

    def off(self, table, span, average, labels=1):
        """Return the rows that are whole and whose average is not the mean of the span."""
        keys = [list(line.values())[:labels] for line in lines(f"{self.paper}/{table}")]
        parts = [
            (key, self.cell(table, average, *key), self.row(table, span, *key)) for key in keys
        ]
        full = max(len(part) for *_, part in parts)
        whole = [each for each in parts if each[1] is not None and len(each[2]) == full]
        return [key for key, told, part in whole if rounded(statistics.mean(part), 1) != told]


def setting(page, step, path, **labels):
    """Return the set of values that a setting has at the profile paper: exact numbers, or text.

    It is looked for in the Specs of a step that the grid of a page makes, and in all that they rest
    on. path: of the setting in the arguments of the step, "train.epochs". labels: of the rows that
    count. Raises ValueError where no Spec has it.
    """
    rows = [row for row in made(page) if labels.items() <= row.items()]
    specs, found = {row["spec"] for row in rows}, set()
    part, *names = path.split(".")
    default = getattr(OPTIONS.get(part), names[-1], None) if names else None
    for args in (each.args for each in specs | ancestry(specs) if each.step == step):
        values = args[part] if part == "surgery" else [args.get(part)]
        for name in names:
            ghosts = [v for v in values if isinstance(v, dict) and v.get("op", "ghost") == "ghost"]
            values = [each.get(name, default) for each in ghosts]
        found |= {number(str(value)) for value in values if value is not None}
    if not found:
        raise ValueError(f"no Spec of step {step} on {page} with {labels} has {path} at paper")
    return found


def axis(page, column):
    """Return the set of labels of the rows of a page in a column at paper: exact numbers,
    or text."""
    told = {row.get(column) for row in made(page)} - {None}
    return {number(str(value)) for value in told}


def counted(what, shape="bert-base", **options):
    """Return a count of an encoder by `lib.measure.cost`: what is "flops", "parameters",
    "ghost_flops" or "ghost_parameters". options: heads, and those of ghosts, of which there are
    none without any.
    """
    from lib.papers import ghostbert

    ours = {name: options.pop(name) for name in ("heads", "convention") if name in options}
    ghost = ghostbert.ghost("paper", **options) if options else None
    return Fraction(getattr(cost, what)(cost.SHAPES[shape], ghost=ghost, **ours))


def net(name, convention="with projection"):
    """Parameters in millions of one of EfficientBERT's networks (`lib.search.net.parameters`)."""
    from lib.papers import efficientbert
    from lib.search.net import parameters

    return Fraction(parameters(efficientbert.NETS[name], convention), 10**6)


def operation(name, *operands):
    """Return what our operation of a printed name gives."""
    from lib.model.formula import NUMPY

    return float(NUMPY[name.lower().replace(" ", "_")](*map(float, operands)))


def ours(place, *args, **keywords):
    """Return what another count of this code gives: ours("search.net:ffn_parameters", 768, 3072).
    The name of a shape stands for it.
    """
    module, name = place.split(":")
    args = [cost.SHAPES.get(each, each) for each in args]
    return getattr(import_module(f"lib.{module}"), name)(*args, **keywords)


def given(text, constants="", **names):
    """Return what a printed expression gives: given("c * x^2", "c = 2", x=3) is 18."""
    names |= vars(math) | {"max": max}
    for each in filter(None, (constants or "").split("; ")):
        name, value = each.split(" = ")
        names[name] = eval(value, names)
    return eval(text.replace("^", "**"), names)


@cache
def made(page):
    """Return the rows of the grid of a page at the profile paper, made without its data."""
    from lib.page import notebook

    (path,) = notebook.find([page])
    with data.planning(look=False):
        return notebook.planned(path, {"profile": "paper"}).get("grid", [])


FUNCTIONS = dict(mean=statistics.mean, sd=statistics.stdev, r=rounded, sum=sum, zip=zip, len=len)
FUNCTIONS |= dict(abs=abs, int=int, float=float, max=max, min=min, set=set, sorted=sorted)
# "all" reads every cell
FUNCTIONS |= dict(given=given, isnum=lambda of: isinstance(of, Fraction), all=lambda of: all([*of]))
OURS = dict(setting=setting, axis=axis, counted=counted, net=net, operation=operation, ours=ours)


def value(paper, formula):
    """Return (what a formula gives, {(table, column, row): text} of the cells that it read)."""
    cells = Cells(paper)
    own = {name: getattr(cells, name) for name in ("cell", "col", "row", "off")}
    return eval(formula, {"__builtins__": {}} | FUNCTIONS | OURS | own), cells.given


def agrees(value, printed):
    """Whether the value of a formula is a printed text: true, the same, or so when rounded; of a
    set, its only value."""
    told = number(printed)
    if isinstance(value, set):
        return len(value) == 1 and agrees(*value, printed)
    if isinstance(value, bool) or value == told:
        return bool(value == told or value is True)
    decimals = len(printed.partition(".")[2])
    return isinstance(value, int | float | Fraction) and rounded(value, decimals) == told


def inconsistencies():
    """Return the rows of `inconsistencies.csv`, the value that contradicts the print computed
    again.

    `found` is that value, None where a row contradicts without a formula.
    """
    return [
        row | {"found": value(row["paper"], row["how"])[0] if row["how"] else None}
        for row in lines("inconsistencies")
    ]
