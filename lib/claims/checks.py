"""This module computes formulas over printed cells. Claims about printed numbers, and
contradictions between them, are written as formulas.

    evaluate_formula("ghostbert", "cell('table3', 'GhostBERT Avg. acc', '1/12') > 75")

A formula is an expression of Python. It reads cells of one paper, settings and labels
that the profile `paper` has, and counts and operations of this code. A key names a row
by its first columns: by a whole text, by how the text begins, or by "*" for any.
Numbers are exact fractions, and a cell without a number is its text. The value of a
formula comes with the cells that it read. The module is free of torch."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

from lib import data
from lib.claims import lists
from lib.core import options
from lib.core.names import Refused
from lib.core.papers import collect_modules
from lib.core.rows import Row
from lib.core.spec import find_ancestors
from lib.stats import cost

# Specs omit default values. The default of a missing setting is looked up in the class
# of options of its section; ghosts have the section `surgery`.
OPTIONS: dict[str, Any] = {"surgery": options.Ghost}
for _module in (options, *collect_modules("options").values()):
    OPTIONS |= {name.lower(): value for name, value in vars(_module).items()}


def compute_printed_effects(claim_id: str) -> dict[tuple[str, str], float]:
    """Return {(cell, task): value} that the paper prints for the cells of a claim.

    A row of `effects.csv` has one formula for several tasks, with "{task}" in it. A
    mean over tasks is named by these tasks in order, with "/" between them. So the
    printed mean is over the same tasks as the measured mean beside it."""
    paper, values = lists.read_claims()[claim_id]["paper"], {}
    for row in (
        row for row in lists.read_published_csv("effects") if row["claim"] == claim_id
    ):
        for task in row["tasks"].split("; "):
            printed, _ = evaluate_formula(paper, row["formula"].replace("{task}", task))
            values[row["cell"], task] = float(printed)
    return values


def parse_number(text: str) -> Fraction | str | None:
    """Return the exact number in a cell's text, None for an empty cell, else the
    text."""
    try:
        return Fraction(text.replace(",", ""))
    except ValueError:
        return None if text in ("", "-") else text


def round_half_away(value: float | Fraction, digits: int) -> Fraction:
    """Return a value rounded to this number of decimals; a half rounds away from
    zero."""
    scale, value = Fraction(10) ** digits, Fraction(value)
    return int(abs(value) * scale + Fraction(1, 2)) / scale * (1 if value >= 0 else -1)


class Cells:
    """A Cells object reads printed cells of one paper, and records in `given` which."""

    def __init__(self, paper: str) -> None:
        self.paper = paper
        self.given: dict[tuple[str, str, int], str] = {}

    def rows(self, table: str, keys: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
        rows = list(enumerate(lists.read_published_csv(f"{self.paper}/{table}")))
        for key, column in zip(keys, rows[0][1], strict=False):
            exact = [row for row in rows if row[1][column] == key]
            rows = exact or [
                row for row in rows if key == "*" or row[1][column].startswith(key)
            ]
        if not rows:
            raise Refused(f"{self.paper}/{table}.csv has no row {', '.join(keys)}")
        return rows

    def col(self, table: str, column: str, *keys: str) -> list[Fraction | str | None]:
        """Return the values of a column in all rows that the keys name."""
        rows = self.rows(table, keys)
        self.given |= {(table, column, i): line[column] for i, line in rows}
        return [parse_number(line[column]) for _, line in rows]

    def cell(self, table: str, column: str, *keys: str) -> Fraction | str | None:
        """Return the value of a column in the one row that the keys name."""
        (value,) = self.col(table, column, *keys)
        return value

    def row(self, table: str, span: str, *keys: str) -> list[Fraction | str]:
        """Return the values of one row in the columns from A to B of a span "A:B",
        without the empty cells."""
        names = list(lists.read_published_csv(f"{self.paper}/{table}")[0])
        first, last = map(names.index, span.split(":"))
        values = [self.cell(table, name, *keys) for name in names[first : last + 1]]
        return [value for value in values if value is not None]

    def settings(self, claim: str) -> bool:
        """Return whether the profile `paper` runs with all printed settings of a claim.

        A line of `settings.csv` names a printed cell, for some a second row to multiply
        it with, and the place of the setting in the Specs (see `setting`). Its column
        `relation` says whether the printed value "is" the only one in the Specs, or is
        "among" several."""
        lines = lists.read_published_csv(f"{self.paper}/settings")
        return all(
            [
                self.uses_printed_setting(line)
                for line in lines
                if line["claim"] == claim
            ]
        )

    def uses_printed_setting(self, line: Mapping[str, str]) -> bool:
        """Return whether the profile `paper` runs with the printed setting of a
        line."""
        rows = filter(None, (line["row"], line["times"]))
        cells = [self.cell(line["table"], line["column"], row) for row in rows]
        # pyrefly: ignore[no-matching-overload]  These cells are numbers.
        printed = {math.prod(cells) if line["times"] else cells[0]}
        labels = dict(label.split("=") for label in line["labels"].split("; ") if label)
        values = OURS["setting"](line["page"], line["step"], line["place"], **labels)
        return values == printed if line["relation"] == "is" else values >= printed

    def off(
        self, table: str, span: str, average: str, labels: int = 1
    ) -> list[list[str]]:
        """Return the keys of the rows whose printed average is not the mean of a span.

        The span "A:B" names columns. Rows with an empty cell in it are left out.
        `labels` is the number of columns that identify a row."""
        keys = [
            list(line.values())[:labels]
            for line in lists.read_published_csv(f"{self.paper}/{table}")
        ]
        parts = [
            (key, self.cell(table, average, *key), self.row(table, span, *key))
            for key in keys
        ]
        full = max(len(part) for *_, part in parts)
        rows = [row for row in parts if row[1] is not None and len(row[2]) == full]
        # pyrefly: ignore[bad-argument-type, bad-specialization]  Cells are numbers.
        means = [round_half_away(statistics.mean(part), 1) for *_, part in rows]
        pairs = zip(rows, means, strict=True)
        return [key for (key, printed, _), mean in pairs if mean != printed]


def setting(
    page: str, step: str, path: str, **labels: Any
) -> set[Fraction | str | None]:
    """Return the values of a setting at the profile `paper`: exact numbers, or text.

    The setting is read from the Specs of a step that the grid of a page makes, and from
    all Specs that these rest on. Raises Refused where no Spec has it.

    path: the place of the setting in the arguments of the step, such as "train.epochs".

    labels: only rows with these labels count."""
    rows = [
        row for row in make_rows_at_paper_profile(page) if labels.items() <= row.items()
    ]
    specs, settings = {row.spec for row in rows}, set()
    part, *names = path.split(".")
    default = getattr(OPTIONS.get(part), names[-1], None) if names else None
    for args in (
        spec.args for spec in specs | find_ancestors(specs) if spec.step == step
    ):
        values = args[part] if part == "surgery" else [args.get(part)]
        for name in names:
            ghosts = [
                v
                for v in values
                if isinstance(v, dict) and v.get("op", "ghost") == "ghost"
            ]
            values = [ghost.get(name, default) for ghost in ghosts]
        settings |= {parse_number(str(value)) for value in values if value is not None}
    if not settings:
        raise Refused(
            f"no Spec of step {step} on {page} with {labels} has {path} at paper"
        )
    return settings


def axis(page: str, column: str) -> set[Fraction | str | None]:
    """Return the labels in a column of a page's grid at the profile `paper`."""
    labels = {row.get(column) for row in make_rows_at_paper_profile(page)} - {None}
    return {parse_number(str(value)) for value in labels}


def operation(name: str, *operands: float | Fraction) -> float:
    """Return the value of one of this code's operations, by its printed name, at some
    operands."""
    from lib.model.formula import NUMPY

    return float(NUMPY[name.lower().replace(" ", "_")](*map(float, operands)))


def ours(function_path: str, *args: Any, **keywords: Any) -> Any:
    """Return the result of a counting function of this code.

    Such a call is ours("papers.efficientbert.search.net:ffn_parameters", 768, 3072): a
    module of lib, and a function in it. The name of a shape (lib.stats.cost.SHAPES) is
    replaced by the shape."""
    module, name = function_path.split(":")
    values = [cost.SHAPES.get(arg, arg) for arg in args]
    return getattr(import_module(f"lib.{module}"), name)(*values, **keywords)


def given(expression: str, constants: str | None = "", **values: Any) -> Any:
    """Return the value of a printed expression: given("c * x^2", "c = 2", x=3) is
    18."""
    values |= vars(math) | {"max": max}
    for constant in filter(None, (constants or "").split("; ")):
        name, value = constant.split(" = ")
        values[name] = eval(value, values)
    return eval(expression.replace("^", "**"), values)


@cache
def make_rows_at_paper_profile(notebook_id: str) -> list[Row]:
    """Return the rows of a page's grid at the profile `paper`, without looking for
    data."""
    from lib.claims import notebook

    (path,) = notebook.find_notebooks([notebook_id])
    with data.allow_absent_data(use_local_data=False):
        return notebook.make_grids(path, {"profile": "paper"}, with_recorded=False).get(
            "grid", []
        )


def count_cost(what: str, shape: str = "bert-base", **options: Any) -> Fraction:
    """Return a cost of an encoder by a function of `lib.stats.cost`.

    what: "flops", "parameters", "ghost_flops" or "ghost_parameters". options: arguments
    of that function, such as heads, convention and ghost."""
    return Fraction(getattr(cost, what)(cost.SHAPES[shape], **options))


FUNCTIONS: dict[str, Callable[..., Any]] = dict(
    mean=statistics.mean,
    sd=statistics.stdev,
    r=round_half_away,
    sum=sum,
    zip=zip,
    len=len,
)
FUNCTIONS |= dict(
    abs=abs, int=int, float=float, max=max, min=min, set=set, sorted=sorted
)
# The builtin `all` would stop at the first false cell, and not read the others.
FUNCTIONS |= dict(
    given=given,
    isnum=lambda cell: isinstance(cell, Fraction),
    all=lambda values: all([*values]),
)
OURS: dict[str, Callable[..., Any]] = dict(
    setting=setting, axis=axis, operation=operation, ours=ours, counted=count_cost
)


for _paper in collect_modules("checks").values():
    OURS |= _paper.FUNCTIONS


def evaluate_formula(
    paper: str, formula: str
) -> tuple[Any, dict[tuple[str, str, int], str]]:
    """Return (the value of a formula, {(table, column, row): text} of the cells that it
    read)."""
    cells = Cells(paper)
    names = "cell", "col", "row", "off", "settings"
    readers = {name: getattr(cells, name) for name in names}
    return eval(formula, {"__builtins__": {}} | FUNCTIONS | OURS | readers), cells.given


def calls_this_code(formula: str) -> bool:
    """Return whether a formula asks this code for a setting or a count.

    Other formulas compare printed numbers alone."""
    return any(f"{name}(" in formula for name in (*OURS, "settings"))


def agrees_with_printed_text(value: Any, printed: str) -> bool:
    """Return whether the value of a formula agrees with a printed text.

    It does where it is True, equals the printed number, or equals it when rounded to
    the same decimals. A set agrees if its only value does."""
    expected = parse_number(printed)
    if isinstance(value, set):
        return len(value) == 1 and agrees_with_printed_text(next(iter(value)), printed)
    if isinstance(value, bool) or value == expected:
        return bool(value == expected or value is True)
    decimals = len(printed.partition(".")[2])
    return (
        isinstance(value, int | float | Fraction)
        and round_half_away(value, decimals) == expected
    )


def list_inconsistencies() -> list[dict[str, Any]]:
    """Return the rows of `inconsistencies.csv` with the computed value as `found`.

    The value contradicts the print. It is None for a row without a formula."""
    return [
        row
        | {
            "found": evaluate_formula(row["paper"], row["how"])[0]
            if row["how"]
            else None
        }
        for row in lists.read_published_csv("inconsistencies")
    ]
