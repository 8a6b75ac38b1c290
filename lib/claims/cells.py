"""This module reads the cells of a claim. It is free of torch.

A cell says what is compared with what, and in which region the result must lie. The
column `cells` of `claims.csv` writes it with the labels of the rows of the page's grid:

    Ghost > Prune @ m=3                        The score of Ghost is higher; < means lower.
    F = 12 ~ F = 4 +- 0.5 @ m=1                The scores differ by at most 0.5.
    DWConv >= Conv1D_S - 0.5                   The score is at most 0.5 lower; A <= B + 0.5: higher.
    Ghost [m=6] >= Plain [m=12] - 0.5          Each model has its own place in brackets.
    A over B > C over D                        The first difference is larger than the second.
    k = 3 | k = 5 | k = 9 < value 0            The slope per doubling of these numbers is negative.
    per decade :: 10 % NAS | 30 % NAS > value 0     The points have other weights (WEIGHTS).
    first above the others :: k = 3 | k = 1 | k = 5 > value 0     The first minus the others' mean.
    kept weights :: BERT > BERMo @ task=each   Another measure is compared, on each task.
    diverged :: BERMo = value 0                The measure is 0 in every run.

All of them but the last are contrasts: weighted sums of scores or measures, and a
region in which the 95 % interval must lie. The label * stands for any model, the value
* for any value."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np

from lib.claims.measures import MEASURES
from lib.core.names import Refused, check_name
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.stats import compare, paired
from lib.stats.measures import SCORE, Measure

CELL = re.compile(
    r"(?:(?P<what>[^:]+?) :: )?(?P<left>.+?) (?P<sign>>=|<=|[<>~]|=(?= value )) (?P<right>.+?)"
    r"(?: (?P<turn>\+-|[+-]) (?P<margin>[\d.]+))?(?: @ (?P<where>\w+=.+))?"
)
# Which margin may follow which comparison: ~ needs +-, >= may have -, <= may have +.
TURNS = {"~": ("+-",), ">=": ("-", None), "<=": ("+", None)}
# A difference in points, whatever numbers the labels of the points have.
FIRST = "first above the others"
# Kind of line -> function from the points' numbers x to the points' weights.
WEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "per doubling": lambda x: paired.compute_slope_weights(np.log2(x)),
    "per decade": lambda x: paired.compute_slope_weights(np.log10(x)),
    "per step": paired.compute_slope_weights,
    "straighter over the logarithm": lambda x: paired.compute_straightness_weights(
        np.log10(x), x
    ),
    FIRST: lambda x: np.r_[1, np.full(len(x) - 1, -1 / (len(x) - 1))],
}

Place = tuple[tuple[str, str], ...]  # ((column, accepted values with "/" between), ...)
Model = tuple[str, Place]  # (label, place)


@dataclass(frozen=True)
class CellForm:
    """A CellForm is one model, or the difference of two models, each with its place."""

    models: tuple[Model, ...]

    def group_rows(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> list[list[Mapping[str, Any]]]:
        """Return [the rows that fit a model] for each model of this CellForm."""
        return [[row for row in rows if fits_row(row, *model)] for model in self.models]


@dataclass(frozen=True)
class Cell:
    """A Cell is one comparison of a claim: a weighted sum of CellForms, and the region
    (low, high) in which the paper says that it lies."""

    text: str
    measure: str  # Key of MEASURES, or "" for the score.
    about: str  # What the measure is of, such as a layer; "" for most.
    terms: tuple[tuple[float, CellForm], ...]  # (weight, CellForm), ...
    bounds: tuple[float, float]  # At (0, 0) the measure must be 0 in every run.
    slope: str  # Key of WEIGHTS, or "" for a cell that fits no line through points.

    @property
    def measured_quantity(self) -> Measure:
        """Return the Measure that the Cell compares; without one, the score."""
        return MEASURES.get(self.measure, SCORE)

    @property
    def is_per_task(self) -> bool:
        """Return whether the Cell is judged on each task by itself."""
        return "task=each" in self.text

    @property
    def models(self) -> list[Model]:
        """Return the (label, place) of all models of the Cell, each once."""
        return list(
            dict.fromkeys(model for _, form in self.terms for model in form.models)
        )

    def compares_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether the Cell compares the run of a row.

        A cell without a measure compares scores alone, so a row whose step scores no
        examples never fits."""
        can_count = self.measure or is_scored_on_examples(row["spec"])
        return bool(can_count) and any(fits_row(row, *model) for model in self.models)


def read_model_label(row: Mapping[str, Any]) -> str | None:
    """Return the label of a row of a grid: its model or, without one, its network."""
    return row.get("model") if isinstance(row.get("model"), str) else row.get("network")


def fits_row(row: Mapping[str, Any], label: str, place: Place) -> bool:
    """Return whether a row has a label, as model, network or recipe, and the values of
    a place."""
    return label in ("*", read_model_label(row), row.get("recipe")) and all(
        any(matches_value(row.get(key), value) for value in values.split("/"))
        for key, values in place
    )


def matches_value(value: Any, pattern: str) -> bool:
    """Return whether a text of a place stands for a value of a row.

    "*" stands for any value. A DataFrame may have turned 3 into 3.0."""
    if value is None or value != value:
        return False
    return pattern in ("*", str(value)) or (
        isinstance(value, float) and pattern == f"{value:g}"
    )


def parse_place(text: str | None) -> Place:
    """Return the Place of a text such as "m=3, task=CoLA"; "task=each" is any task."""
    items = [item.partition("=") for item in (text or "").split(", ") if item]
    return tuple(
        (key, "*" if (key, value) == ("task", "each") else value)
        for key, _, value in items
    )


def parse_cell_form(text: str, default_place: Place) -> CellForm:
    """Return the CellForm of "A [m=3]" or "A over B [m=3]". Only the last model needs a
    place."""
    models = [
        # pyrefly: ignore[missing-attribute]  # A text matches unless it is empty.
        re.fullmatch(r"(.+?)(?: \[(\w+=[^\]]+)\])?", part).groups()
        for part in text.split(" over ")
    ]
    return CellForm(
        tuple(
            (label, (*parse_place(place or models[-1][1]), *default_place))
            for label, place in models
        )
    )


def parse_comparison_side(
    text: str, place: Place, slope_kind: str
) -> list[tuple[float, CellForm]]:
    """Return [(weight, CellForm), ...] of one side of a comparison sign.

    `slope_kind` is a key of WEIGHTS. It gives the weights of several points "A | B |
    C"."""
    parts = text.split(" | ")
    forms = [parse_cell_form(part, place) for part in parts]
    if len(parts) == 1:
        return [(1.0, forms[0])]
    x = [float((re.findall(r"[\d.]+", part) or ["nan"])[-1]) for part in parts]
    return list(zip(map(float, WEIGHTS[slope_kind](np.array(x))), forms, strict=True))


@cache
def parse_cells(text: str) -> list[Cell]:
    """Return the Cells of a text of the column `cells`, with "; " between them.

    Raises Refused that quotes a cell which cannot be read."""
    return [parse_cell(part) for part in text.split("; ") if part]


def parse_cell(text: str) -> Cell:
    """Return the Cell of one text. Raises Refused where it cannot be read."""
    hit = CELL.fullmatch(text)
    if not hit or hit["turn"] not in TURNS.get(hit["sign"], (None,)):
        how = "'A > B', 'A ~ B +- 0.5', 'A >= B - 0.5' or 'A <= B + 0.5', then '@ column=value'"
        raise Refused(f"cell {text!r}: expected {how}")
    what, right, where = hit["what"] or "", hit["right"], parse_place(hit["where"])
    measure, about, slope = "", "", "per doubling"
    if what in WEIGHTS:
        slope = what
    else:
        measure, _, about = what.partition(" (")
    sides = [(1, hit["left"])]
    centre, margin = 0.0, float(hit["margin"] or 0)
    if right.startswith("value "):
        centre = float(right.removeprefix("value "))
    else:
        sides.append((-1, right))
    weights: dict[CellForm, float] = defaultdict(float)
    for sign, operand in sides:
        for weight, one in parse_comparison_side(operand, where, slope):
            weights[one] += sign * weight
    high = centre + margin if hit["sign"] in ("<", "<=", "~", "=") else inf
    low = centre - margin if hit["sign"] in (">", ">=", "~", "=") else -inf
    terms = tuple((weight, one) for one, weight in weights.items())
    level = sum(weight for weight, one in terms if len(one.models) == 1)
    if measure:
        check_name("measure", measure, MEASURES)
    elif not abs(level) < 1e-9:
        # Also where the level is nan, as a label of a line has no number.
        raise Refused(
            f"cell {text!r}: scores are compared in pairs, so weights sum to 0"
        )
    return Cell(
        text, measure, about.rstrip(")"), terms, (low, high), slope * (" | " in text)
    )


def is_scored_on_examples(spec: Spec) -> bool:
    """Return whether the step of a Spec scores examples, so that models can be paired
    on them."""
    return spec.step in compare.SCORED


def select_compared_rows(cells: Sequence[Cell], rows: Iterable[Row]) -> list[Row]:
    """Return the rows that some Cells compare, each (label, Spec) once."""
    selected = {
        (read_model_label(row), row["spec"]): row
        for row in rows
        if any(cell.compares_row(row) for cell in cells)
    }
    return list(selected.values())


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the planned seeds of "10 to 14", "10" or "10 to 12, 20 to 25"; "" has
    none."""
    planned = []
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition(" to ")
        planned += range(int(first), int(last or first) + 1)
    return tuple(planned)
