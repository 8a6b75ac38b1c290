"""This module evaluates the formulas that check claims on printed numbers, without any
run.

    evaluate_formula_on_printed_tables("ghostbert", "cell('table3', 'GhostBERT Avg.
    acc', '1/12') > 75")

A formula is an expression of Python in a CSV file. It can read cells of one paper's
tables, settings and labels of the runs at the profile `paper`, and counts and
operations of this code. A key names a row of a table by its first columns: by a whole
text, by how the text begins, or by "*" for any. Numbers are exact fractions, and a cell
without a number is its text. The value of a formula is returned with the cells that it
read."""

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

from lib import data
from lib.claims import lists
from lib.core import options
from lib.core.names import Refused
from lib.core.papers import import_module_of_each_paper
from lib.core.rows import Row
from lib.core.spec import find_transitive_input_specs
from lib.core.types import CsvRow
from lib.stats import cost

# {section of a Spec's arguments: class of its options}. A Spec, the description of a
# run, omits default values, so a missing setting is looked up in this class. The
# section `surgery` has the settings of GhostBERT's added convolutions, class Ghost.
OPTIONS: dict[str, Any] = {"surgery": options.Ghost}
for _module in (options, *import_module_of_each_paper("options").values()):
    OPTIONS |= {name.lower(): value for name, value in vars(_module).items()}

RowNumber: TypeAlias = int  # Number, from 0, of a row in a printed table.
# {(name of a printed table, column, row number from 0): text of this cell}.
TextByTableColumnAndRow: TypeAlias = dict[tuple[str, str, RowNumber], str]


def compute_printed_effects(claim_id: str) -> lists.EffectByComparisonAndTask:
    """Compute the effects that a paper prints for the comparisons of one of its claims.

    Return {(text of a comparison, task): effect}, to be compared with the measured
    effects. The effects are computed from the paper's printed tables by Python
    expressions in `effects.csv`. For a mean over tasks, the key has all its tasks with
    "/" between, so that the printed mean is over the same tasks as the measured one.

    claim_id: such as "G1"."""
    paper, values = lists.read_claims()[claim_id]["paper"], {}
    for row in lists.read_csv_in_published_folder("effects"):
        if row["claim"] != claim_id:
            continue
        for task in row["tasks"].split("; "):
            printed, _ = evaluate_formula_on_printed_tables(
                paper, row["formula"].replace("{task}", task)
            )
            values[row["cell"], task] = float(printed)
    return values


def parse_printed_cell(cell_text: str) -> Fraction | str | None:
    """Return the number in a printed table's cell, or its text, or None if it is empty.

    The text is returned where it is no number. Commas of thousands are dropped, and "-"
    counts as empty. Fractions are exact, so a check of a printed sum does not fail by a
    rounding error of floats."""
    try:
        return Fraction(cell_text.replace(",", ""))
    except ValueError:
        return None if cell_text in ("", "-") else cell_text


def round_half_away_from_zero(value: float | Fraction, decimals: int) -> Fraction:
    """Return a value rounded to some decimals, with a half rounded away from zero.

    Papers round so, and Python's `round` does not. The result is an exact Fraction,
    which can be compared with a printed number."""
    scale, value = Fraction(10) ** decimals, Fraction(value)
    return int(abs(value) * scale + Fraction(1, 2)) / scale * (1 if value >= 0 else -1)


class PrintedCells:
    """A PrintedCells reads cells of one paper's printed tables and notes each of them.

    A number that the paper prints can so be checked against its tables. `texts_read`
    collects every cell that was read, {(table, column, row number): text}, so that a
    check can show which cells it rests on."""

    def __init__(self, paper: str) -> None:
        self.paper = paper
        self.texts_read: TextByTableColumnAndRow = {}

    def find_rows_with_index(
        self, table_name: str, first_cells_of_row: Sequence[str]
    ) -> list[tuple[RowNumber, CsvRow]]:
        rows = list(
            enumerate(lists.read_csv_in_published_folder(f"{self.paper}/{table_name}"))
        )
        for key, column in zip(first_cells_of_row, rows[0][1], strict=False):
            exact = [row for row in rows if row[1][column] == key]
            rows = exact or [
                row for row in rows if key == "*" or row[1][column].startswith(key)
            ]
        if not rows:
            raise Refused(
                f"{self.paper}/{table_name}.csv has no row {', '.join(first_cells_of_row)}"
            )
        return rows

    def read_column(
        self, table_name: str, column_name: str, *first_cells_of_row: str
    ) -> list[Fraction | str | None]:
        """Return one column of a printed table, in all rows that the keys select.

        Other numbers that the paper prints are checked against it. Numbers are exact
        Fractions, empty cells None, other cells text. Raises Refused where no row fits.

        first_cells_of_row: one text for each of the first columns of the table. A row
        fits where these columns equal the texts or, if no row does, begin with them;
        "*" fits any text."""
        rows = self.find_rows_with_index(table_name, first_cells_of_row)
        self.texts_read |= {
            (table_name, column_name, i): line[column_name] for i, line in rows
        }
        return [parse_printed_cell(line[column_name]) for _, line in rows]

    def read_cell(
        self, table_name: str, column_name: str, *first_cells_of_row: str
    ) -> Fraction | str | None:
        """Return one cell of a printed table: a Fraction, a text, or None if empty.

        Other numbers that the paper prints are checked against it. Raises Refused where
        no row fits the keys, and ValueError where several do.

        first_cells_of_row: one text for each of the first columns of the table. A row
        fits where these columns equal the texts or, if no row does, begin with them;
        "*" fits any text."""
        (value,) = self.read_column(table_name, column_name, *first_cells_of_row)
        return value

    def read_non_empty_cells(
        self, table_name: str, first_colon_last_column: str, *first_cells_of_row: str
    ) -> list[Fraction | str]:
        """Return the non-empty cells of a printed table's row in a span of columns.

        Numbers are exact Fractions, other cells text. From them a printed average, for
        example, is computed again and checked.

        first_colon_last_column: the span as "A:B", from column A to column B, both
        included.
        first_cells_of_row: one text for each of the first columns of the table, by
        which the row is found (`read_cell`)."""
        names = list(
            lists.read_csv_in_published_folder(f"{self.paper}/{table_name}")[0]
        )
        first, last = map(names.index, first_colon_last_column.split(":"))
        values = [
            self.read_cell(table_name, name, *first_cells_of_row)
            for name in names[first : last + 1]
        ]
        return [value for value in values if value is not None]

    def full_size_runs_use_settings_of_claim(self, claim_id: str) -> bool:
        """Return whether the runs at full size use all settings that a claim repeats.

        Such a claim repeats settings that its paper prints, such as a learning rate.
        The runs are those of profile `paper`, which has the sizes of the papers. They
        are planned, but need not be made. `settings.csv` lists each setting: the cell
        in which it is printed, and the argument of the runs that must agree with it.

        claim_id: such as "G115"."""
        lines = lists.read_csv_in_published_folder(f"{self.paper}/settings")
        return all(
            [
                self.full_size_runs_use_printed_setting(line)
                for line in lines
                if line["claim"] == claim_id
            ]
        )

    def full_size_runs_use_printed_setting(self, settings_csv_row: CsvRow) -> bool:
        """Return whether the runs at full size use one setting that a paper prints.

        The runs are those of profile `paper`, which has the sizes of the papers. They
        are planned, but need not be made.

        settings_csv_row: the table, column and row of the printed cell, and the step
        (kind of work) and argument of the runs that must agree with it. Where the
        column `times` names a second row, the product of both cells counts as printed.
        With the `relation` "is", all these runs must have the printed value; with
        "among", at least one of them."""
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
        """Return the keys of a printed table's rows whose printed average is wrong.

        It is wrong where it differs from the mean of the row's columns, rounded to one
        decimal (halves away from zero). Rows with an empty cell are left out.

        first_colon_last_column: the averaged columns as "A:B", from A to B.
        average_column: the column with the printed average.
        key_column_count: the number of first columns whose texts are the key of a
        row."""
        keys = [
            list(line.values())[:key_column_count]
            for line in lists.read_csv_in_published_folder(f"{self.paper}/{table_name}")
        ]
        parts = [
            (
                key,
                self.read_cell(table_name, average_column, *key),
                self.read_non_empty_cells(table_name, first_colon_last_column, *key),
            )
            for key in keys
        ]
        full = max(len(values) for *_, values in parts)
        wrong = []
        for key, printed, values in parts:
            if printed is None or len(values) < full:
                continue
            # pyrefly: ignore[bad-argument-type, bad-specialization]  # They are
            # numbers.
            mean = round_half_away_from_zero(statistics.mean(values), 1)
            if printed != mean:
                wrong.append(key)
        return wrong


def collect_setting_values_of_full_size_runs(
    notebook_id: str, step_name: str, dotted_setting_path: str, **row_labels: Any
) -> set[Fraction | str | None]:
    """Return all values that a setting has in a notebook's runs planned at full size.

    They are compared with the value that a paper prints. Numbers are exact Fractions,
    other values text. Full size is the profile `paper`. The values are read from the
    descriptions (Specs) of all runs of one step (kind of work) that the notebook lists,
    or that a listed run depends on. Raises Refused where no run has the setting.

    dotted_setting_path: the place of the setting in the step's arguments, such as
    "train.epochs".
    row_labels: labels of runs, such as task="SST-2"; only listed runs with these labels
    count."""
    rows = [
        row
        for row in list_full_size_runs_of_notebook(notebook_id)
        if row_labels.items() <= row.items()
    ]
    specs, settings = {row.spec for row in rows}, set()
    part, *names = dotted_setting_path.split(".")
    default = getattr(OPTIONS.get(part), names[-1], None) if names else None
    for spec in specs | find_transitive_input_specs(specs):
        if spec.step != step_name:
            continue
        values = spec.args[part] if part == "surgery" else [spec.args.get(part)]
        for name in names:
            values = [
                value.get(name, default)
                for value in values
                if isinstance(value, dict) and value.get("op", "ghost") == "ghost"
            ]
        settings |= {
            parse_printed_cell(str(value)) for value in values if value is not None
        }
    if not settings:
        raise Refused(
            f"no Spec of step {step_name} on {notebook_id} with {row_labels} "
            f"has {dotted_setting_path} at paper"
        )
    return settings


def collect_label_values_of_full_size_runs(
    notebook_id: str, label_name: str
) -> set[Fraction | str | None]:
    """Return all values of a label, such as `seed`, in a notebook's full-size runs.

    These are the runs that the notebook lists at profile `paper`, which has the sizes
    of the papers. Numbers are exact Fractions, other values text. So the number of
    seeds, for example, can be compared with the one that a paper prints."""
    labels = {
        row.get(label_name) for row in list_full_size_runs_of_notebook(notebook_id)
    } - {None}
    return {parse_printed_cell(str(value)) for value in labels}


def evaluate_mathematical_function(
    function_name: str, *arguments: float | Fraction
) -> float:
    """Compute a function of a feed-forward network, such as GELU, at some numbers.

    The result is compared with that of the equation that a paper prints. Raises
    KeyError for an unknown function.

    function_name: the name as a paper prints it, such as "Leaky ReLU".
    arguments: as many numbers as the function takes."""
    from lib.model.formula import NUMPY

    return float(NUMPY[function_name.lower().replace(" ", "_")](*map(float, arguments)))


def call_lib_function_with_encoder_shapes(
    module_colon_function: str, *arguments_or_encoder_names: Any, **keywords: Any
) -> Any:
    """Call a function of this package by its import path and return its result.

    The result, such as a count of parameters, is compared with the one that a paper
    prints. A positional argument that names an encoder, such as "bert-base", is
    replaced by its Shape (the encoder's sizes).

    module_colon_function: a module below `lib`, a colon, and the name of a function in
    it, such as "papers.efficientbert.search.net:count_ffn_parameters"."""
    module, name = module_colon_function.split(":")
    values = [cost.SHAPES.get(arg, arg) for arg in arguments_or_encoder_names]
    return getattr(import_module(f"lib.{module}"), name)(*values, **keywords)


def evaluate_printed_equation(
    printed_math_expression: str,
    constant_assignments: str | None = None,
    **variables: Any,
) -> Any:
    """Return the value of an expression as a paper prints it, such as "c * x^2".

    With the constants "c = 2" and the variable x=3 it is 18. "^" is the power, and
    `max` and all names of the module `math` can be used. The value is compared with
    what this package computes.

    constant_assignments: the printed constants, with "; " between them; None for none.
    variables: the values of the other names in the expression. They hide names of
    `math`, such as "e"."""
    values = vars(math) | {"max": max} | variables
    for constant in filter(None, (constant_assignments or "").split("; ")):
        name, value = constant.split(" = ")
        values[name] = eval(value, values)
    return eval(printed_math_expression.replace("^", "**"), values)


@cache
def list_full_size_runs_of_notebook(notebook_id: str) -> list[Row]:
    """Return the runs that a notebook lists at profile `paper`, the full size.

    Each Row has the labels of a run and its Spec (the description of the run). Checks
    compare the settings in them with those that a paper prints; no run is made."""
    from lib.claims import notebook

    with data.plan_with_missing_data(use_local_data=False):
        return notebook.list_notebook_runs_to_execute("paper", notebook_id)


def count_encoder_flops_or_parameters(
    cost_function_name: Literal[
        "flops", "parameters", "count_ghost_flops", "count_ghost_parameters"
    ],
    encoder_name: str = "bert-base",
    **counter_options: Any,
) -> Fraction:
    """Return the FLOPs or the parameters of an encoder as an exact Fraction.

    The count is compared with the one that a paper prints.

    cost_function_name: a function of `lib.stats.cost`: "flops" or "parameters" for the
    model, "count_ghost_flops" or "count_ghost_parameters" for GhostBERT's convolutions
    alone.
    encoder_name: the name of the encoder, such as "bert-base".
    counter_options: further arguments of that function, such as `heads` (kept heads in
    a layer)."""
    return Fraction(
        getattr(cost, cost_function_name)(cost.SHAPES[encoder_name], **counter_options)
    )


FUNCTIONS: dict[str, Callable[..., Any]] = dict(
    mean=statistics.mean,
    sd=statistics.stdev,
    r=round_half_away_from_zero,
    sum=sum,
    zip=zip,
    len=len,
    abs=abs,
    int=int,
    float=float,
    max=max,
    min=min,
    set=set,
    sorted=sorted,
    given=evaluate_printed_equation,
    isnum=lambda cell: isinstance(cell, Fraction),
    # `all` first evaluates all its values, so that every printed cell in them is
    # recorded as read. Python's own `all` would stop at the first false value.
    all=lambda values: all([*values]),
)
OURS: dict[str, Callable[..., Any]] = dict(
    setting=collect_setting_values_of_full_size_runs,
    axis=collect_label_values_of_full_size_runs,
    operation=evaluate_mathematical_function,
    ours=call_lib_function_with_encoder_shapes,
    counted=count_encoder_flops_or_parameters,
)


for _paper in import_module_of_each_paper("checks").values():
    OURS |= _paper.FUNCTIONS


class FormulaResult(NamedTuple):
    value: Any
    texts_read: TextByTableColumnAndRow


def evaluate_formula_on_printed_tables(
    paper: str, python_expression: str
) -> FormulaResult:
    """Evaluate a formula that checks a number which a paper prints.

    Return (value, texts_read). `texts_read` has the printed cells that the formula
    read, {(table, column, row number): text}, so that a check can show which cells it
    rests on.

    paper: the name of its folder, such as "ghostbert".
    python_expression: a Python expression with functions for printed cells, settings
    and counts, such as "cell('table3', 'GhostBERT Avg. acc', '1/12') > 75"."""
    cells = PrintedCells(paper)
    readers = dict(
        cell=cells.read_cell,
        col=cells.read_column,
        row=cells.read_non_empty_cells,
        off=cells.list_row_keys_with_wrong_average,
        settings=cells.full_size_runs_use_settings_of_claim,
    )
    value = eval(python_expression, {"__builtins__": {}} | FUNCTIONS | OURS | readers)
    return FormulaResult(value, cells.texts_read)


def formula_uses_project_code(python_expression: str) -> bool:
    """Return whether a formula asks this package for a setting or a count.

    A formula is a Python expression that checks a printed number. If the check fails,
    the paper disagrees with this package where the result is True. Where it is False,
    the formula compares printed numbers alone, and the paper disagrees with itself."""
    return any(f"{name}(" in python_expression for name in (*OURS, "settings"))


def agrees_with_printed_text(computed_value: Any, printed_text: str) -> bool:
    """Return whether the value of a formula agrees with what a paper prints.

    A formula is a Python expression that checks a printed number. Its value agrees
    where it is True, equals the printed number or text, or equals the printed number
    after rounding to the printed decimals (halves away from zero). A set, such as all
    values of a setting, agrees if it has a single value and that one agrees."""
    expected = parse_printed_cell(printed_text)
    if isinstance(computed_value, set):
        return len(computed_value) == 1 and agrees_with_printed_text(
            next(iter(computed_value)), printed_text
        )
    if isinstance(computed_value, bool) or computed_value == expected:
        return bool(computed_value == expected or computed_value is True)
    decimals = len(printed_text.partition(".")[2])
    return (
        isinstance(computed_value, int | float | Fraction)
        and round_half_away_from_zero(computed_value, decimals) == expected
    )


def read_inconsistencies_csv_with_computed_values() -> list[dict[str, Any]]:
    """Return the contradictions between the papers' printed numbers, as dicts.

    They are the rows of `inconsistencies.csv`, with keys such as `paper`, `locator`
    (the place in the paper), `printed` (the value there) and `how` (a Python expression
    that computes the value from the printed tables, or ""). The key `found` is added:
    the value of that expression, or None. A notebook lists them for readers."""
    return [
        row
        | {
            "found": evaluate_formula_on_printed_tables(row["paper"], row["how"])[0]
            if row["how"]
            else None
        }
        for row in lists.read_csv_in_published_folder("inconsistencies")
    ]
