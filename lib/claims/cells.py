"""This module parses the comparisons (cells) of a paper's claim. It does not import
torch.

A cell says which models are compared, and in which region the result must lie. The
column `cells` of `claims.csv` writes it with the labels that models and settings have
in the notebooks' grids of runs:

    Ghost > Prune @ m=3                        The score of Ghost is higher; < means lower.
    F = 12 ~ F = 4 +- 0.5 @ m=1                The scores differ by at most 0.5.
    DWConv >= Conv1D_S - 0.5                   The score is at most 0.5 lower; A <= B + 0.5: higher.
    Ghost [m=6] >= Plain [m=12] - 0.5          Each model has its own setting in brackets.
    A over B > C over D                        The first difference is larger than the second.
    k = 3 | k = 5 | k = 9 < value 0            The slope per doubling of these numbers is negative.
    per decade :: 10 % NAS | 30 % NAS > value 0     The line has another scale of x (WEIGHTS).
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
from typing import Any, TypeAlias

import numpy as np

from lib.claims.measures import MEASURES
from lib.core.names import Refused, check_known_name
from lib.core.rows import ResultRow, Row
from lib.core.spec import Spec
from lib.stats import compare, paired
from lib.stats.measures import SCORE, Measure

CELL = re.compile(
    r"(?:(?P<what>[^:]+?) :: )?(?P<left>.+?) (?P<sign>>=|<=|[<>~]|=(?= value )) (?P<right>.+?)"
    r"(?: (?P<turn>\+-|[+-]) (?P<margin>[\d.]+))?(?: @ (?P<where>\w+=.+))?"
)
# {comparison sign: signs that its margin may have}: ~ needs +-, >= may have -, <= may
# have +. None is for no margin.
TURNS = {"~": ("+-",), ">=": ("-", None), "<=": ("+", None)}
# Key of WEIGHTS whose result is a difference in points of the score, not a slope.
FIRST = "first above the others"
# {kind of fit: function from the numbers x in the models' labels [n] to weights [n] of
# the models' scores}.
WEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "per doubling": lambda x: paired.compute_slope_weights(np.log2(x)),
    "per decade": lambda x: paired.compute_slope_weights(np.log10(x)),
    "per step": paired.compute_slope_weights,
    "straighter over the logarithm": lambda x: paired.compute_linearity_weights(
        np.log10(x), x
    ),
    FIRST: lambda x: np.r_[1, np.full(len(x) - 1, -1 / (len(x) - 1))],
}

# Conditions on a row's labels: ((label, accepted values with "/" between), ...)
RowConditions: TypeAlias = tuple[tuple[str, str], ...]
# (label of the model, conditions on its other labels)
ModelSelector: TypeAlias = tuple[str, RowConditions]


@dataclass(frozen=True)
class CellTerm:
    """A CellTerm is one model, or the difference of two models, with conditions on its
    runs such as m=3."""

    models: tuple[ModelSelector, ...]

    def group_rows_by_model(self, rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
        """Return [those of `rows` that are of the first model of this term, those of
        the second, ...]; a term with two models is their difference.

        rows: rows of the grids of the claim's notebooks."""
        return [
            [row for row in rows if row_matches_model(row, *model)]
            for model in self.models
        ]


WeightedTerm: TypeAlias = tuple[float, CellTerm]


@dataclass(frozen=True)
class Cell:
    """A Cell is one comparison of a claim: a weighted sum of CellTerms, and the region
    (low, high) in which the paper says that it lies."""

    text: str
    measure: str  # Key of MEASURES; "" for the score.
    about: str  # Argument of the measure, such as a layer; "" for most.
    terms: tuple[WeightedTerm, ...]
    # Claimed region. At (0, 0) the measure must be 0 in every run.
    bounds: tuple[float, float]
    # Where a line is fitted to the scores of several models and its slope is compared:
    # how the models are weighted in the slope (a key of WEIGHTS). Else "".
    slope: str

    @property
    def measured_quantity(self) -> Measure:
        """Return the Measure that the Cell compares: its unit, its value of no effect
        and how it is computed. Without a named measure it is the score."""
        return MEASURES.get(self.measure, SCORE)

    @property
    def is_per_task(self) -> bool:
        """Return whether the Cell is tested on each task by itself, rather than on
        their mean."""
        return "task=each" in self.text

    @property
    def models(self) -> list[ModelSelector]:
        """Return the (label, conditions) of all models of the Cell, each once."""
        return list(
            dict.fromkeys(model for _, form in self.terms for model in form.models)
        )

    def compares_row(self, grid_row: Mapping[str, Any]) -> bool:
        """Return whether the Cell compares the run of a row of a grid.

        A cell without a named measure compares scores, so a row whose step scores no
        examples never fits."""
        can_count = self.measure or has_predictions_on_examples(grid_row["spec"])
        return bool(can_count) and any(
            row_matches_model(grid_row, *model) for model in self.models
        )


def read_model_label(grid_row: Mapping[str, Any]) -> str | None:
    """Return the model of a grid's row as comparisons name it: its label `model` or,
    without one, its label `network`."""
    return (
        grid_row.get("model")
        if isinstance(grid_row.get("model"), str)
        else grid_row.get("network")
    )


def row_matches_model(
    grid_row: Mapping[str, Any], model_label: str, conditions: RowConditions
) -> bool:
    """Return whether a row has a model label (as its model, network or recipe) and
    fulfils the conditions.

    conditions: ((label, accepted values with "/" between), ...)."""
    return model_label in (
        "*",
        read_model_label(grid_row),
        grid_row.get("recipe"),
    ) and all(
        any(
            is_accepted_label_value(grid_row.get(key), value)
            for value in values.split("/")
        )
        for key, values in conditions
    )


def is_accepted_label_value(label_value: Any, accepted_value: str) -> bool:
    """Return whether a row's value is the one that a condition accepts.

    "*" stands for any value but None and nan. A DataFrame may have turned 3 into 3.0,
    so both match "3"."""
    if label_value is None or label_value != label_value:
        return False
    return accepted_value in ("*", str(label_value)) or (
        isinstance(label_value, float) and accepted_value == f"{label_value:g}"
    )


def parse_row_conditions(conditions_text: str | None) -> RowConditions:
    """Return the conditions of a text such as "m=3, task=CoLA"; "task=each" accepts any
    task."""
    items = [
        item.partition("=") for item in (conditions_text or "").split(", ") if item
    ]
    return tuple(
        (key, "*" if (key, value) == ("task", "each") else value)
        for key, _, value in items
    )


def parse_cell_term(term_text: str, default_conditions: RowConditions) -> CellTerm:
    """Return the CellTerm of "A [m=3]" or of a difference "A over B [m=3]".

    The conditions in brackets after the last model hold for the models without their
    own.

    default_conditions: conditions on all models, which the text of the Cell has after
    "@", as in "A over B [m=3] > C over D @ task=SST-2"."""
    models = [
        # pyrefly: ignore[missing-attribute]  # Any text but "" matches.
        re.fullmatch(r"(.+?)(?: \[(\w+=[^\]]+)\])?", part).groups()
        for part in term_text.split(" over ")
    ]
    return CellTerm(
        tuple(
            (
                label,
                (
                    *parse_row_conditions(conditions or models[-1][1]),
                    *default_conditions,
                ),
            )
            for label, conditions in models
        )
    )


def parse_comparison_side(
    side_text: str, default_conditions: RowConditions, weighting_name: str
) -> list[WeightedTerm]:
    """Return [(weight, CellTerm), ...] of the text on one side of a comparison sign.

    weighting_name: a key of WEIGHTS, which gives the weights of several models "A | B |
    C"."""
    parts = side_text.split(" | ")
    forms = [parse_cell_term(part, default_conditions) for part in parts]
    if len(parts) == 1:
        return [(1.0, forms[0])]
    x = [float((re.findall(r"[\d.]+", part) or ["nan"])[-1]) for part in parts]
    return list(
        zip(map(float, WEIGHTS[weighting_name](np.array(x))), forms, strict=True)
    )


@cache
def parse_cells(cells_text: str) -> list[Cell]:
    """Return the Cells of a text of the column `cells` of `claims.csv`, with "; "
    between them.

    Raises Refused, which quotes the cell, for one that cannot be parsed."""
    return [parse_cell(part) for part in cells_text.split("; ") if part]


def parse_cell(cell_text: str) -> Cell:
    """Return the Cell of the text of one comparison, such as "Ghost > Prune @ m=3".
    Raises Refused where it cannot be parsed."""
    hit = CELL.fullmatch(cell_text)
    if not hit or hit["turn"] not in TURNS.get(hit["sign"], (None,)):
        how = "'A > B', 'A ~ B +- 0.5', 'A >= B - 0.5' or 'A <= B + 0.5', then '@ column=value'"
        raise Refused(f"cell {cell_text!r}: expected {how}")
    what, right, where = (
        hit["what"] or "",
        hit["right"],
        parse_row_conditions(hit["where"]),
    )
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
    weights: dict[CellTerm, float] = defaultdict(float)
    for sign, operand in sides:
        for weight, one in parse_comparison_side(operand, where, slope):
            weights[one] += sign * weight
    high = centre + margin if hit["sign"] in ("<", "<=", "~", "=") else inf
    low = centre - margin if hit["sign"] in (">", ">=", "~", "=") else -inf
    terms = tuple((weight, one) for one, weight in weights.items())
    level = sum(weight for weight, one in terms if len(one.models) == 1)
    if measure:
        check_known_name("measure", measure, MEASURES)
    elif not abs(level) < 1e-9:
        # Written with `not`, so that nan is refused too: it stands for a label without
        # a number.
        raise Refused(
            f"cell {cell_text!r}: scores are compared in pairs, so weights sum to 0"
        )
    return Cell(
        cell_text,
        measure,
        about.rstrip(")"),
        terms,
        (low, high),
        slope * (" | " in cell_text),
    )


def has_predictions_on_examples(spec: Spec) -> bool:
    """Return whether the step of a Spec (a run's description) evaluates its model on
    examples, so that two models can be paired example by example."""
    return spec.step in compare.SCORED


def select_compared_rows(cells: Sequence[Cell], grid_rows: Iterable[Row]) -> list[Row]:
    """Return the rows of grids that some Cells compare, each (model label, Spec)
    once."""
    selected = {
        (read_model_label(row), row["spec"]): row
        for row in grid_rows
        if any(cell.compares_row(row) for cell in cells)
    }
    return list(selected.values())


def parse_seeds(seeds_text: str) -> tuple[int, ...]:
    """Return the seeds of a text such as "10 to 14", "10" or "10 to 12, 20 to 25"; ()
    for ""."""
    planned = []
    for part in filter(None, seeds_text.split(", ")):
        first, _, last = part.partition(" to ")
        planned += range(int(first), int(last or first) + 1)
    return tuple(planned)
