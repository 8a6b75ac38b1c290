"""This module evaluates the formulas that check claims on printed numbers, without any
run.

    evaluate_formula("ghostbert", "cell('table3', 'GhostBERT Avg. acc', '1/12') > 75")

A formula is an expression of Python in a CSV file. It can read cells of one paper's
tables, settings and labels of the runs at the profile `paper`, and counts and
operations of this code. A key names a row of a table by its first columns: by a whole
text, by how the text begins, or by "*" for any. Numbers are exact fractions, and a cell
without a number is its text. The value of a formula is returned with the cells that it
read. The module does not import torch."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from lib import data
from lib.claims import lists
from lib.core import options
from lib.core.names import Refused
from lib.core.papers import import_module_of_each_paper
from lib.core.rows import Row
from lib.core.spec import find_ancestors
from lib.stats import cost

# {section of a Spec's arguments: class of its options}. A Spec, the description of a
# run, omits default values, so a missing setting is looked up in this class. The
# section `surgery` has the settings of ghost modules.
OPTIONS: dict[str, Any] = {"surgery": options.Ghost}
for _module in (options, *import_module_of_each_paper("options").values()):
    OPTIONS |= {name.lower(): value for name, value in vars(_module).items()}

# Content of a printed cell: its number, its text, or None where it is empty.
PrintedValue: TypeAlias = Fraction | str | None
# {(table, column, row number): text} of printed cells.
TextByPrintedCell: TypeAlias = dict[tuple[str, str, int], str]


def compute_printed_effects(claim_id: str) -> lists.EffectByCellAndTask:
    """Return {(text of a comparison, task): effect} that the paper prints for the
    comparisons of a claim.

    The formulas stand in `effects.csv`, one for several tasks, with "{task}" in it. A
    mean over tasks is keyed by these tasks in order, with "/" between them. So a
    printed mean is over the same tasks as the measured mean beside it."""
    paper, values = lists.read_claims()[claim_id]["paper"], {}
    for row in (
        row
        for row in lists.read_csv_in_published_folder("effects")
        if row["claim"] == claim_id
    ):
        for task in row["tasks"].split("; "):
            printed, _ = evaluate_formula(paper, row["formula"].replace("{task}", task))
            values[row["cell"], task] = float(printed)
    return values


def parse_printed_number(cell_text: str) -> PrintedValue:
    """Return the exact number in the text of a printed table's cell, None for an empty
    cell, else the text."""
    try:
        return Fraction(cell_text.replace(",", ""))
    except ValueError:
        return None if cell_text in ("", "-") else cell_text


def round_half_away(value: float | Fraction, decimals: int) -> Fraction:
    """Return a value rounded to `decimals` decimals, where a half is rounded away from
    zero, as papers do."""
    scale, value = Fraction(10) ** decimals, Fraction(value)
    return int(abs(value) * scale + Fraction(1, 2)) / scale * (1 if value >= 0 else -1)


class PrintedCells:
    """This class reads printed cells of one paper's tables, and notes in `texts_read`
    which ones, so that a check can show what it rests on."""

    def __init__(self, paper: str) -> None:
        self.paper = paper
        self.texts_read: TextByPrintedCell = {}

    def find_numbered_rows(
        self, table_name: str, row_keys: Sequence[str]
    ) -> list[tuple[int, dict[str, str]]]:
        rows = list(
            enumerate(lists.read_csv_in_published_folder(f"{self.paper}/{table_name}"))
        )
        for key, column in zip(row_keys, rows[0][1], strict=False):
            exact = [row for row in rows if row[1][column] == key]
            rows = exact or [
                row for row in rows if key == "*" or row[1][column].startswith(key)
            ]
        if not rows:
            raise Refused(
                f"{self.paper}/{table_name}.csv has no row {', '.join(row_keys)}"
            )
        return rows

    def read_column(
        self, table_name: str, column_name: str, *row_keys: str
    ) -> list[PrintedValue]:
        """Return the values of a column of a printed table in all rows that the keys
        name. In formulas of claims this function is named `col`.

        row_keys: texts in the first columns of the row, or how they begin; "*" for
        any."""
        rows = self.find_numbered_rows(table_name, row_keys)
        self.texts_read |= {
            (table_name, column_name, i): line[column_name] for i, line in rows
        }
        return [parse_printed_number(line[column_name]) for _, line in rows]

    def read_cell(
        self, table_name: str, column_name: str, *row_keys: str
    ) -> PrintedValue:
        """Return the value of a column of a printed table in the one row that the keys
        name. In formulas of claims this function is named `cell`."""
        (value,) = self.read_column(table_name, column_name, *row_keys)
        return value

    def read_row_values(
        self, table_name: str, first_colon_last_column: str, *row_keys: str
    ) -> list[Fraction | str]:
        """Return the values of one row of a printed table in the columns from A to B of
        a span "A:B", without the empty cells. In formulas of claims this function is
        named `row`."""
        names = list(
            lists.read_csv_in_published_folder(f"{self.paper}/{table_name}")[0]
        )
        first, last = map(names.index, first_colon_last_column.split(":"))
        values = [
            self.read_cell(table_name, name, *row_keys)
            for name in names[first : last + 1]
        ]
        return [value for value in values if value is not None]

    def runs_use_printed_settings(self, claim_id: str) -> bool:
        """Return whether the profile `paper` trains with all printed settings of a
        claim. In formulas of claims this function is named `settings`.

        A line of `settings.csv` names a printed cell (for some lines a second one to
        multiply it with) and the place of the setting in the arguments of runs
        (`read_setting_values`). Its column `relation` says whether the printed value
        "is" the only one in these runs, or is "among" several."""
        lines = lists.read_csv_in_published_folder(f"{self.paper}/settings")
        return all(
            [
                self.runs_use_printed_setting(line)
                for line in lines
                if line["claim"] == claim_id
            ]
        )

    def runs_use_printed_setting(self, settings_csv_row: Mapping[str, str]) -> bool:
        """Return whether the profile `paper` trains with the printed setting of a row
        of `settings.csv`."""
        rows = filter(None, (settings_csv_row["row"], settings_csv_row["times"]))
        cells = [
            self.read_cell(settings_csv_row["table"], settings_csv_row["column"], row)
            for row in rows
        ]
        # pyrefly: ignore[no-matching-overload]  # These cells are numbers.
        printed = {math.prod(cells) if settings_csv_row["times"] else cells[0]}
        labels = dict(
            label.split("=")
            for label in settings_csv_row["labels"].split("; ")
            if label
        )
        values = OURS["setting"](
            settings_csv_row["page"],
            settings_csv_row["step"],
            settings_csv_row["place"],
            **labels,
        )
        return (
            values == printed
            if settings_csv_row["relation"] == "is"
            else values >= printed
        )

    def list_row_keys_with_wrong_average(
        self,
        table_name: str,
        first_colon_last_column: str,
        average_column: str,
        key_column_count: int = 1,
    ) -> list[list[str]]:
        """Return the keys of the rows of a printed table whose average differs from the
        mean of its columns, rounded to one decimal. In formulas of claims this function
        is named `off`.

        first_colon_last_column: the averaged columns, as "A:B". Rows with an empty cell
        in them are left out.
        key_column_count: the number of first columns that identify a row."""
        keys = [
            list(line.values())[:key_column_count]
            for line in lists.read_csv_in_published_folder(f"{self.paper}/{table_name}")
        ]
        parts = [
            (
                key,
                self.read_cell(table_name, average_column, *key),
                self.read_row_values(table_name, first_colon_last_column, *key),
            )
            for key in keys
        ]
        full = max(len(part) for *_, part in parts)
        rows = [row for row in parts if row[1] is not None and len(row[2]) == full]
        # pyrefly: ignore[bad-argument-type, bad-specialization]  # The cells are numbers.
        means = [round_half_away(statistics.mean(part), 1) for *_, part in rows]
        pairs = zip(rows, means, strict=True)
        return [key for (key, printed, _), mean in pairs if mean != printed]


def read_setting_values(
    notebook_id: str, step_name: str, dotted_setting_path: str, **row_labels: Any
) -> set[PrintedValue]:
    """Return the values that a setting has in the runs at the profile `paper`: exact
    numbers, or text. In formulas of claims this function is named `setting`.

    It is read from the Specs (descriptions of runs) of a step that the grid of a
    notebook lists, and from all Specs that these depend on. Raises Refused where no
    Spec has it.

    dotted_setting_path: where the setting stands in the step's arguments, such as
    "train.epochs".
    row_labels: only rows of the grid with these labels count."""
    rows = [
        row
        for row in list_rows_at_paper_profile(notebook_id)
        if row_labels.items() <= row.items()
    ]
    specs, settings = {row.spec for row in rows}, set()
    part, *names = dotted_setting_path.split(".")
    default = getattr(OPTIONS.get(part), names[-1], None) if names else None
    for args in (
        spec.args for spec in specs | find_ancestors(specs) if spec.step == step_name
    ):
        values = args[part] if part == "surgery" else [args.get(part)]
        for name in names:
            ghosts = [
                v
                for v in values
                if isinstance(v, dict) and v.get("op", "ghost") == "ghost"
            ]
            values = [ghost.get(name, default) for ghost in ghosts]
        settings |= {
            parse_printed_number(str(value)) for value in values if value is not None
        }
    if not settings:
        raise Refused(
            f"no Spec of step {step_name} on {notebook_id} with {row_labels} "
            f"has {dotted_setting_path} at paper"
        )
    return settings


def read_grid_label_values(notebook_id: str, label: str) -> set[PrintedValue]:
    """Return the values that a label, such as `seed`, has in a notebook's grid at the
    profile `paper`. In formulas of claims this function is named `axis`."""
    labels = {row.get(label) for row in list_rows_at_paper_profile(notebook_id)} - {
        None
    }
    return {parse_printed_number(str(value)) for value in labels}


def apply_named_operation(operation_name: str, *operands: float | Fraction) -> float:
    """Return the value at some operands of one of this code's FFN operations, such as
    GELU, by its printed name. In formulas of claims this function is named
    `operation`."""
    from lib.model.formula import NUMPY

    return float(NUMPY[operation_name.lower().replace(" ", "_")](*map(float, operands)))


def call_lib_counting_function(import_path: str, *args: Any, **keywords: Any) -> Any:
    """Return the result of a counting function of lib, so that a printed count can be
    compared with it. In formulas of claims this function is named `ours`.

    A call is ours("papers.efficientbert.search.net:ffn_parameters", 768, 3072): a
    module of lib, and a function in it. The name of a shape (lib.stats.cost.SHAPES) as
    an argument is replaced by the shape."""
    module, name = import_path.split(":")
    values = [cost.SHAPES.get(arg, arg) for arg in args]
    return getattr(import_module(f"lib.{module}"), name)(*values, **keywords)


def evaluate_expression(
    expression: str, constant_assignments: str | None = "", **variables: Any
) -> Any:
    """Return the value of a printed expression: given("c * x^2", "c = 2", x=3) is 18.
    In formulas of claims this function is named `given`.

    constant_assignments: assignments with "; " between them. values: the variables of
    the expression."""
    variables |= vars(math) | {"max": max}
    for constant in filter(None, (constant_assignments or "").split("; ")):
        name, value = constant.split(" = ")
        variables[name] = eval(value, variables)
    return eval(expression.replace("^", "**"), variables)


@cache
def list_rows_at_paper_profile(notebook_id: str) -> list[Row]:
    """Return the rows of a notebook's grid at the profile `paper`.

    Digests of data are those of the official files, so that no data set is needed."""
    from lib.claims import notebook

    (path,) = notebook.find_notebooks([notebook_id])
    with data.allow_absent_data(use_local_data=False):
        return notebook.execute_grid_code(
            path, {"profile": "paper"}, include_recorded_rows=False
        ).get("grid", [])


def count_encoder_flops_or_parameters(
    counter_name: str, shape: str = "bert-base", **counter_options: Any
) -> Fraction:
    """Return a cost of an encoder by a function of `lib.stats.cost`. In formulas of
    claims this function is named `counted`.

    counter_name: the function: "flops", "parameters", "ghost_flops" or
    "ghost_parameters".
    shape: the name of the encoder's shape.
    counter_options: further arguments of that function, such as heads, convention and
    ghost."""
    return Fraction(getattr(cost, counter_name)(cost.SHAPES[shape], **counter_options))


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
# The builtin `all` stops at the first false cell, so the later ones would not be noted
# as read.
FUNCTIONS |= dict(
    given=evaluate_expression,
    isnum=lambda cell: isinstance(cell, Fraction),
    all=lambda values: all([*values]),
)
OURS: dict[str, Callable[..., Any]] = dict(
    setting=read_setting_values,
    axis=read_grid_label_values,
    operation=apply_named_operation,
    ours=call_lib_counting_function,
    counted=count_encoder_flops_or_parameters,
)


for _paper in import_module_of_each_paper("checks").values():
    OURS |= _paper.FUNCTIONS


class FormulaResult(NamedTuple):
    value: Any
    texts_read: TextByPrintedCell


def evaluate_formula(paper: str, formula: str) -> FormulaResult:
    """Return the value of a formula, and the texts of the printed cells that it
    read."""
    cells = PrintedCells(paper)
    readers = dict(cell=cells.read_cell, col=cells.read_column)
    readers |= dict(
        row=cells.read_row_values, off=cells.list_row_keys_with_wrong_average
    )
    readers |= dict(settings=cells.runs_use_printed_settings)
    value = eval(formula, {"__builtins__": {}} | FUNCTIONS | OURS | readers)
    return FormulaResult(value, cells.texts_read)


def formula_calls_lib(formula: str) -> bool:
    """Return whether a formula asks this code for a setting or a count; other formulas
    compare printed numbers alone."""
    return any(f"{name}(" in formula for name in (*OURS, "settings"))


def agrees_with_printed_text(value: Any, printed_text: str) -> bool:
    """Return whether the value of a formula agrees with a printed text.

    It does where it is True, equals the printed number, or equals it when rounded to
    the print's decimals. A set agrees if it has one value, which agrees."""
    expected = parse_printed_number(printed_text)
    if isinstance(value, set):
        return len(value) == 1 and agrees_with_printed_text(
            next(iter(value)), printed_text
        )
    if isinstance(value, bool) or value == expected:
        return bool(value == expected or value is True)
    decimals = len(printed_text.partition(".")[2])
    return (
        isinstance(value, int | float | Fraction)
        and round_half_away(value, decimals) == expected
    )


def list_printed_inconsistencies() -> list[dict[str, Any]]:
    """Return the rows of `inconsistencies.csv`, the contradictions between printed
    numbers, each with the value that its formula gives as `found`.

    `found` is None for a row without a formula."""
    return [
        row
        | {
            "found": evaluate_formula(row["paper"], row["how"])[0]
            if row["how"]
            else None
        }
        for row in lists.read_csv_in_published_folder("inconsistencies")
    ]
