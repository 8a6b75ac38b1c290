"""This module parses the comparisons of a paper's claim.

A comparison says which models are compared, and in which region the result must lie.
The column `cells` of `claims.csv` writes it with the labels that models and settings
have in the notebooks' grids of runs:

    Ghost > Prune @ m=3                        The score of Ghost is higher; < means
    lower. F = 12 ~ F = 4 +- 0.5 @ m=1                The scores differ by at most 0.5.
    DWConv >= Conv1D_S - 0.5                   The score is at most 0.5 lower; A <= B +
    0.5: higher. Ghost [m=6] >= Plain [m=12] - 0.5          Each model has its own
    setting in brackets. A over B > C over D                        The first difference
    is larger than the second. k = 3 | k = 5 | k = 9 < value 0            The slope per
    doubling of these numbers is negative. per decade :: 10 % NAS | 30 % NAS > value 0
    The line has another scale of x (WEIGHTS). first above the others :: k = 3 | k = 1 |
    k = 5 > value 0 The first minus the others' mean. kept weights :: BERT > BERMo @
    task=each Another measure is compared, on each task. diverged :: BERMo = value 0 The
    measure is 0 in every run.

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
from lib.core.rows import Row
from lib.stats import paired
from lib.stats.compare import is_scored_on_examples
from lib.stats.measures import SCORE, Measure

CELL = re.compile(
    r"(?:(?P<what>[^:]+?) :: )?(?P<left>.+?) (?P<sign>>=|<=|[<>~]|=(?= value )) (?P<right>.+?)"
    r"(?: (?P<turn>\+-|[+-]) (?P<margin>[\d.]+))?(?: @ (?P<where>\w+=.+))?"
)
# {sign of a comparison: signs that may stand before its margin}. "A ~ B +- 0.5" has the
# margin 0.5 and is not allowed without one. In "A >= B - 0.5" and "A <= B + 0.5" the
# margin may be left out, for which None stands.
TURNS = {"~": ("+-",), ">=": ("-", None), "<=": ("+", None)}
# Key of WEIGHTS (below) for the first model minus the mean of the others. The result is
# a difference in points, so its unit has no suffix such as "per doubling".
FIRST = "first above the others"
# A comparison may combine n models, such as "k = 3 | k = 5 | k = 7", by a weighted sum
# of their scores. {kind of sum: function from the numbers x in the models' labels [n]
# to the weights [n]}.
WEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "per doubling": lambda x: paired.compute_slope_weights(np.log2(x)),
    "per decade": lambda x: paired.compute_slope_weights(np.log10(x)),
    "per step": paired.compute_slope_weights,
    "straighter over the logarithm": lambda x: (
        paired.compute_contrast_of_two_linear_fits(np.log10(x), x)
    ),
    FIRST: lambda x: np.r_[1, np.full(len(x) - 1, -1 / (len(x) - 1))],
}

# Conditions on the labels of a run: ((label, accepted values with "/" between), ...),
# such as (("m", "3/6"), ("task", "CoLA")).
RowConditions: TypeAlias = tuple[tuple[str, str], ...]
# The runs of one model: (label of the model, conditions on the runs' other labels).
ModelSelector: TypeAlias = tuple[str, RowConditions]


# One operand of a comparison: one model, or two for the value of the first minus that of
# the second, written "Ghost over Prune [m=3]".
ComparisonTerm: TypeAlias = tuple[ModelSelector, ...]
WeightedTerm: TypeAlias = tuple[float, ComparisonTerm]


@dataclass(frozen=True)
class Comparison:
    """A Comparison says which models a claim of a paper compares, and on what.

    Its value is the sum of weight * term over `terms`, where a term is a model or the
    difference of two. The claim agrees where the 95 % interval of that value lies in
    `bounds`, (low, high), of which one may be infinite. Bounds of (0, 0) say that the
    measure is 0 in every run.

    text: the comparison as it is written, such as "Ghost > Prune @ m=3".
    measure: the quantity that is compared, a key of MEASURES; "" for the task score.
    measure_argument: the argument of that measure, such as the timed model; "" for most
    measures.
    contrast_weights_name: how the values of several models are weighted, a key of
    WEIGHTS, such as "per doubling" for the slope of a fitted line; "" where no models
    are combined in this way."""

    text: str
    measure: str
    measure_argument: str
    terms: tuple[WeightedTerm, ...]
    bounds: tuple[float, float]
    contrast_weights_name: str

    @property
    def measured_quantity(self) -> Measure:
        """Return the Measure that is compared; by default it is the task score.

        A Measure says how a quantity is computed from runs, in which unit it is, and
        which value means no effect."""
        return MEASURES.get(self.measure, SCORE)

    @property
    def is_tested_on_each_task(self) -> bool:
        """Return whether the comparison is tested on each task instead of their mean.

        The text of the comparison then has "task=each"."""
        return "task=each" in self.text

    @property
    def models(self) -> list[ModelSelector]:
        """Return all models that are compared, each once, as (model name, conditions).

        A condition is a column of a table of runs and its value. So (("m", "3"),)
        selects the runs of models with 3 of 12 heads and neurons."""
        return list(
            dict.fromkeys(model for _, models in self.terms for model in models)
        )

    @property
    def has_several_models(self) -> bool:
        """Return whether runs of models are compared with each other.

        Else those of a single model are compared with a number."""
        return len(self.models) > 1

    def compares_run_of_row(self, grid_row: Mapping[str, Any]) -> bool:
        """Return whether the comparison uses the run of a row of an experiment table.

        The labels of the row must fit one of the compared models. Where task scores are
        compared, the run must also score a model on examples, so that the runs of two
        models can be paired.

        grid_row: the labels of a run and, under "spec", its description."""
        can_count = self.measure or is_scored_on_examples(grid_row["spec"])
        return bool(can_count) and any(
            row_matches_model(grid_row, *model) for model in self.models
        )


def read_model_label(grid_row: Mapping[str, Any]) -> str | None:
    """Return the model's name in a row of an experiment table, as comparisons write it.

    It is the row's label `model`. Where that is not a text, the label `network` is
    returned, or None if the row has no such label."""
    label = grid_row.get("model")
    return label if isinstance(label, str) else grid_row.get("network")


def row_matches_model(
    grid_row: Mapping[str, Any], model_label: str, conditions: RowConditions
) -> bool:
    """Return whether a row of an experiment table is a run of a model under conditions.

    By this test a comparison of models selects its runs. The model label must equal the
    row's label `model` (or `network`, where there is no `model`) or its label `recipe`;
    "*" fits every row.

    conditions: ((label, accepted values with "/" between), ...), such as (("m",
    "3/6"),). The row must fulfil all of them."""
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


def is_accepted_label_value(label_value: Any, accepted_value_or_wildcard: str) -> bool:
    """Return whether a run's label has the value that a condition such as m=3 accepts.

    The condition "*" accepts any value but None and nan, which no condition accepts. A
    DataFrame may have turned 3 into 3.0, so both fit the accepted value "3"."""
    if label_value is None or label_value != label_value:
        return False
    return accepted_value_or_wildcard in ("*", str(label_value)) or (
        isinstance(label_value, float)
        and accepted_value_or_wildcard == f"{label_value:g}"
    )


def parse_row_conditions(conditions_text: str | None) -> RowConditions:
    """Parse conditions such as "m=3, task=CoLA" into ((label, accepted value), ...).

    Comparisons of models select their runs by these labels. A value may be a choice, as
    in "m=3/6". "task=each" becomes ("task", "*"), which accepts any task. None and ""
    give ()."""
    items = [
        item.partition("=") for item in (conditions_text or "").split(", ") if item
    ]
    return tuple(
        (key, "*" if (key, value) == ("task", "each") else value)
        for key, _, value in items
    )


def parse_model_or_difference_of_models(
    operand_text: str, conditions_for_all_models: RowConditions
) -> ComparisonTerm:
    """Parse one operand of a comparison: a model "A [m=3]", or a difference "A over B".

    The brackets have conditions on a model's runs. Those after the last model also hold
    for models without brackets, as in "A over B [m=3]".

    conditions_for_all_models: ((label, accepted values), ...), added to the conditions
    of every model. In the text of a comparison they follow "@", as in "A over B > C
    over D @ task=SST-2"."""
    models = [
        # pyrefly: ignore[missing-attribute]  # Any text but "" matches.
        re.fullmatch(r"(.+?)(?: \[(\w+=[^\]]+)\])?", part).groups()
        for part in operand_text.split(" over ")
    ]
    last_conditions = models[-1][1]
    return tuple(
        (
            label,
            parse_row_conditions(conditions or last_conditions)
            + conditions_for_all_models,
        )
        for label, conditions in models
    )


def parse_comparison_side(
    side_text: str, added_conditions: RowConditions, contrast_weights_name: str
) -> list[WeightedTerm]:
    """Parse one side of a comparison, such as "k = 3 | k = 5", into weighted terms.

    Return [(weight, ComparisonTerm), ...], where a ComparisonTerm is a model or the
    difference of two. A single term has the weight 1. For several terms, with " | "
    between, the weights are computed from the last number in each text (here 3 and 5).
    The weighted sum is then, for example, the slope of the score over the kernel size
    k.

    added_conditions: conditions on the runs of all models, ((label, accepted values),
    ...).
    contrast_weights_name: the kind of weights, a key of WEIGHTS such as "per
    doubling"."""
    parts = side_text.split(" | ")
    forms = [
        parse_model_or_difference_of_models(part, added_conditions) for part in parts
    ]
    if len(parts) == 1:
        return [(1.0, forms[0])]
    x = [float((re.findall(r"\d*\.?\d+", part) or ["nan"])[-1]) for part in parts]
    return list(
        zip(map(float, WEIGHTS[contrast_weights_name](np.array(x))), forms, strict=True)
    )


@cache
def parse_comparisons(comparisons_text: str) -> list[Comparison]:
    """Parse the comparisons of a claim, with "; " between them, into Comparisons.

    A Comparison has the compared models and the range of effects for which the
    claim holds. The text is the column `cells` of `claims.csv`, the table of the
    papers' claims. Raises Refused, which quotes the comparison, for one that cannot be
    parsed."""
    return [parse_comparison(part) for part in comparisons_text.split("; ") if part]


def parse_comparison(comparison_text: str) -> Comparison:
    """Parse one comparison of models, such as "Ghost > Prune @ m=3", into a Comparison.

    A Comparison has the models, the factors of their values in a sum (here 1 and -1),
    and the range in which the sum must lie for the claim to hold. Raises Refused where
    the text cannot be parsed, has no number where one is needed, names an unknown
    measure, or compares scores by factors that do not sum to 0."""
    hit = CELL.fullmatch(comparison_text)
    if not hit or hit["turn"] not in TURNS.get(hit["sign"], (None,)):
        how = "'A > B', 'A ~ B +- 0.5', 'A >= B - 0.5' or 'A <= B + 0.5', then '@ column=value'"
        raise Refused(f"cell {comparison_text!r}: expected {how}")
    what = hit["what"] or ""
    right = hit["right"]
    where = parse_row_conditions(hit["where"])
    measure, about, slope = "", "", "per doubling"
    if what in WEIGHTS:
        slope = what
    else:
        measure, _, about = what.partition(" (")
    sides, value = [(1, hit["left"])], "0"
    if right.startswith("value "):
        value = right.removeprefix("value ")
    else:
        sides.append((-1, right))
    try:
        centre, margin = float(value), float(hit["margin"] or 0)
    except ValueError:
        how = "after 'value', '+-', '-' or '+' comes a number such as 0.5"
        raise Refused(f"cell {comparison_text!r}: {how}") from None
    weights: dict[ComparisonTerm, float] = defaultdict(float)
    for sign, operand in sides:
        for weight, models in parse_comparison_side(operand, where, slope):
            weights[models] += sign * weight
    high = centre + margin if hit["sign"] in ("<", "<=", "~", "=") else inf
    low = centre - margin if hit["sign"] in (">", ">=", "~", "=") else -inf
    terms = tuple((weight, models) for models, weight in weights.items())
    level = sum(weight for weight, models in terms if len(models) == 1)
    if measure:
        check_known_name("measure", measure, MEASURES)
    elif not abs(level) < 1e-9:
        # `not ... < 1e-9` also refuses a sum of weights that is nan. It is nan where
        # weights are computed from numbers in labels and a label has no number.
        raise Refused(
            f"cell {comparison_text!r}: scores are compared in pairs, so weights sum to 0"
        )
    return Comparison(
        comparison_text,
        measure,
        about.rstrip(")"),
        terms,
        (low, high),
        slope * (" | " in comparison_text),
    )


def select_compared_rows(
    comparisons: Sequence[Comparison], grid_rows: Iterable[Row]
) -> list[Row]:
    """Return the rows of experiment tables whose runs are used by some comparisons.

    A run that no comparison uses need not be made to test a claim. Rows with the same
    model label and the same Spec (the description of a run) are returned once.

    grid_rows: the Rows (experiments) of notebooks' grids."""
    selected = {
        (read_model_label(row), row["spec"]): row
        for row in grid_rows
        if any(comparison.compares_run_of_row(row) for comparison in comparisons)
    }
    return list(selected.values())


def parse_seeds(seeds_text: str) -> tuple[int, ...]:
    """Parse the seeds in a text such as "10 to 12, 20" into (10, 11, 12, 20).

    The table of the papers' claims has its planned seeds in this form. "" gives ().
    Raises Refused for a text of another form, and for a range that ends before it
    begins."""
    planned = []
    for part in filter(None, seeds_text.split(", ")):
        first, _, last = part.partition(" to ")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise Refused(
                f"seeds {seeds_text!r}: {part!r} is no number and no range; fix: write "
                "them as in '10 to 12, 20'"
            )
        if int(last or first) < int(first):
            raise Refused(
                f"seeds {seeds_text!r}: {part!r} ends before it begins; fix: write the "
                "smaller seed first"
            )
        planned += range(int(first), int(last or first) + 1)
    return tuple(planned)
