"""The cells of a claim: what is compared with what, and where the result is to lie. Free of torch.

The `cells` of a row of `claims.csv` are told by the labels of the grid of its page:

    Ghost > Prune @ m=3                        the score lies above; < below
    F = 12 ~ F = 4 +- 0.5 @ m=1                within 0.5 of each other
    DWConv >= Conv1D_S - 0.5                   not below by 0.5; A <= B + 0.5: not above by it
    Ghost [m=6] >= Plain [m=12] - 0.5          each in rows of its own
    A over B > C over D                        one difference above another
    k = 3 | k = 5 | k = 9 < value 0            a slope, per doubling of the last numbers
    per decade :: 10 % NAS | 30 % NAS > value 0     other weights of the points (WEIGHTS)
    kept weights :: BERT > BERMo @ task=each   another measure of the runs, on each task
    diverged :: BERMo = value 0                in no run

All of them but the last are contrasts: sums of scores or measures with weights, and a region in
which the 95 % interval is to lie. The label * is any model, the value * any that is there.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

import numpy as np

from lib.measure import compare, stats
from lib.measure.measures import MEASURES
from lib.runs import paths
from lib.runs.spec import known

CELL = re.compile(
    r"(?:(?P<what>[^:]+?) :: )?(?P<left>.+?) (?P<sign>>=|<=|[<>~]|=(?= value )) (?P<right>.+?)"
    r"(?: (?P<turn>\+-|[+-]) (?P<margin>[\d.]+))?(?: @ (?P<where>\w+=.+))?"
)
SAID = paths.toml(Path(__file__).with_suffix(".toml"))["SAID"]  # what stands for parts of a cell
TURNS = {"~": ("+-",), ">=": ("-", None), "<=": ("+", None)}  # how each sign takes its margin
WEIGHTS = {  # f(x) -> weights of the points of a line
    "per doubling": lambda x: stats.slope_weights(np.log2(x)),
    "per decade": lambda x: stats.slope_weights(np.log10(x)),
    "per step": stats.slope_weights,
    "straighter over the logarithm": lambda x: stats.straighter_weights(np.log10(x), x),
}


@dataclass(frozen=True)
class Form:
    """A model, or one above another: ((label, ((column, values with "/" between), ...)), ...)."""

    models: tuple

    def parts(self, rows):
        """Return the rows that have each of its models."""
        return [[row for row in rows if fits(row, *model)] for model in self.models]


@dataclass(frozen=True)
class Cell:
    """A contrast of Forms and the region (low, high) in which it is to lie."""

    text: str
    measure: str  # one of MEASURES; "" for the score
    about: str  # what the measure takes in brackets
    terms: tuple  # of (weight, Form)
    bounds: tuple[float, float]  # both 0: it is to be 0 in each run
    slope: str  # one of WEIGHTS; "" for none

    @property
    def each(self):
        """Whether it is judged on each task by itself."""
        return "task=each" in self.text

    @property
    def words(self):
        """Return the text for the eye: "k = 3 > k = 1 at 3/12"."""
        told = self.text
        for pattern, words in SAID.items():
            told = re.sub(pattern, words, told)
        return told

    @property
    def models(self):
        """The (label, where) of all its Forms, each once."""
        return list(dict.fromkeys(model for _, form in self.terms for model in form.models))


def labelled(row):
    """Return the label of a row of a grid: its model, else its network."""
    return row.get("model") if isinstance(row.get("model"), str) else row.get("network")


def fits(row, label, where):
    """Whether a row has a label, or is of a recipe of that name, and these values."""
    return label in ("*", labelled(row), row.get("recipe")) and all(
        any(same(row.get(key), value) for value in values.split("/")) for key, values in where
    )


def same(value, text):
    """Whether a value is the one of a text; a frame may have turned 3 into 3.0."""
    if value is None or value != value:
        return False
    return text in ("*", str(value)) or (isinstance(value, float) and text == f"{value:g}")


def places(text):
    """Return ((column, values), ...) of "m=3, task=CoLA"."""
    told = (tuple(each.split("=", 1)) for each in (text or "").split(", ") if each)
    return tuple((key, "*" if (key, value) == ("task", "each") else value) for key, value in told)


def form(text, where):
    """Return the Form of "A [m=3]" or "A over B [m=3]", where A may have a place of its own."""
    told = [
        re.fullmatch(r"(.+?)(?: \[(\w+=[^\]]+)\])?", part).groups() for part in text.split(" over ")
    ]
    return Form(tuple((label, (*places(own or told[-1][1]), *where)) for label, own in told))


def side(text, where, slope):
    """Return ((weight, Form), ...) of one side of a cell."""
    parts = text.split(" | ")
    forms = [form(part, where) for part in parts]
    if len(parts) == 1:
        return [(1.0, forms[0])]
    x = [float((re.findall(r"[\d.]+", part) or ["nan"])[-1]) for part in parts]
    return list(zip(map(float, WEIGHTS[slope](np.array(x))), forms, strict=True))


@cache
def parsed(text):
    """Return the Cells of a claim. Raises ValueError, naming the cell, where one is none."""
    return [cell(part) for part in text.split("; ") if part]


def cell(text):
    """Return the Cell of one text; see `parsed`."""
    hit = CELL.fullmatch(text)
    if not hit or hit["turn"] not in TURNS.get(hit["sign"], (None,)):
        how = "'A > B', 'A ~ B +- 0.5', 'A >= B - 0.5' or 'A <= B + 0.5', then '@ column=value'"
        raise ValueError(f"cell {text!r}: expected {how}")
    what, where, terms = hit["what"] or "", places(hit["where"]), Counter()
    measure, _, about = ("" if what in WEIGHTS else what).partition(" (")
    slope = what if what in WEIGHTS else "per doubling"
    for told, factor in ((hit["left"], 1), (hit["right"], -1)):
        if factor > 0 or not told.startswith("value "):
            for weight, one in side(told, where, slope):
                terms[one] += factor * weight
    value = hit["right"].startswith("value ")
    at, margin = float(hit["right"][6:]) if value else 0.0, float(hit["margin"] or 0)
    high = at + margin if hit["sign"] in ("<", "<=", "~", "=") else inf
    low = at - margin if hit["sign"] in (">", ">=", "~", "=") else -inf
    terms = tuple((weight, one) for one, weight in terms.items())
    level = sum(weight for weight, one in terms if len(one.models) == 1)
    if measure:
        known("measure", measure, MEASURES)
    elif not abs(level) < 1e-9:  # nan where labels of a line have no number
        raise ValueError(f"cell {text!r}: scores are compared in pairs, so weights sum to 0")
    return Cell(text, measure, about.rstrip(")"), terms, (low, high), slope * (" | " in text))


def scored(spec):
    """Whether a run of a Spec is scored on examples that another model can be paired on."""
    return spec.step in compare.SCORED


def named(cells, rows):
    """Return the rows of grids that some Cells name, each label and Spec once."""
    found = {
        (labelled(row), row["spec"]): row
        for row in rows
        for cell in cells
        if cell.measure or scored(row["spec"])
        if any(fits(row, *model) for model in cell.models)
    }
    return list(found.values())
