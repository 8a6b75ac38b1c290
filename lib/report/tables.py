"""This module collects the runs of a notebook's grid, estimates differences between
models, and formats tables. It does not import torch.

Runs of the page's profile (scale) stand beside recorded runs at mini. A table is
written as HTML and as Markdown."""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.claims.seeds import find_planned_comparison_of_models
from lib.claims.words import JudgingInputs, explain_model_that_learned_little
from lib.core.rows import Outcome, Row, format_model_width
from lib.core.spec import Spec
from lib.core.store import Store
from lib.data.unseen import LONG
from lib.papers import grids
from lib.stats import compare
from lib.stats.compare import Column, ScoreTable
from lib.stats.paired import Estimate, paired_difference

# CSS of a column of words or sentences.
WORDS = "text-align: left; white-space: normal"
# Heads of columns that have a paper's printed numbers.
PRINTED = re.compile(r"(published|printed)\b")
# Columns of a collected frame that are not labels of its rows.
HIDDEN = ("spec", "seed", "run", "state", "error")


def collect_results(
    grid_rows: Iterable[Row],
    store: Store | None = None,
    failure_reason_by_spec: Mapping[Spec, str] | None = None,
) -> pd.DataFrame:
    """Return a DataFrame of a grid's rows with the results of their runs, the collected
    frame.

    Its columns are the rows' labels, `state`, `error`, `run` (a Run or None) and one
    for each metric. `error` says why there is no run: its own failure, or the first
    input that could not be made.

    failure_reason_by_spec: {Spec: why its run failed}, as
    `lib.cluster.sweep.execute_specs` returned it, if it was called before."""
    store, lines = store or Store(), []
    for row in grid_rows:
        status = store.look_up_state(row.spec)
        error = ""
        if not status["run"]:
            spec, _ = store.find_run_or_float32_run(row.spec)
            error = (failure_reason_by_spec or {}).get(
                spec
            ) or store.explain_missing_run(row.spec)
        lines.append(dict(Outcome(row, **status, error=error)))
    return pd.DataFrame(lines)


# {(source of the numbers, value of a group or name of a row): Estimate}.
EstimatesBySource: TypeAlias = dict[tuple[str, Any], Estimate]


class SourceFrame(NamedTuple):
    source: str  # Where the numbers come from, such as "recorded, mini".
    frame: pd.DataFrame
    profile: str


@dataclass(frozen=True)
class Runs:
    """A Runs object holds the results of one notebook's grid, and compares its models.

    current: the collected frame of the page's own profile (scale).
    recorded: the collected frame at mini, whose runs are looked up in the records."""

    current: pd.DataFrame
    recorded: pd.DataFrame
    # Name of the profile, or a `ReaderProfile` with a reader's own data or model.
    profile: str
    # Id of the notebook. Comparisons that its claims plan take the planned seeds; ""
    # takes all seeds.
    page: str = ""

    def select_runs(self, **labels: Any) -> "Runs":
        """Return the Runs with only those rows that have these labels, such as
        task="CoLA"."""

        def select_frame_rows(frame: pd.DataFrame) -> pd.DataFrame:
            rows = frame.to_dict("records")
            return frame.loc[[labels.items() <= row.items() for row in rows]]

        return replace(
            self,
            current=select_frame_rows(self.current),
            recorded=select_frame_rows(self.recorded),
        )

    def find_frame(self, profile: str) -> pd.DataFrame:
        """Return the collected frame of the page's own profile, or that of mini for any
        other name."""
        return self.current if str(profile) == str(self.profile) else self.recorded

    @property
    def source_frames(self) -> list[SourceFrame]:
        """Return a frame (a row for each run) for each source of a page's runs, with
        the name of the source: first the recorded runs, if a toy or paper page has any,
        then the page's own.

        Tables have that name above their columns, figures above their panels."""
        collected = [(self.current, self.profile)]
        has_record = self.recorded.get("run", pd.Series()).notna().any()
        if str(self.profile) in ("toy", "paper") and has_record:
            collected.insert(0, (self.recorded, "mini"))
        return [
            SourceFrame(compare.describe_source_of_scores(frame, scale), frame, scale)
            for frame, scale in collected
        ]

    @property
    def caption_of_scored_rows(self) -> str:
        """Return the end of a table's caption that says on which examples its scores
        are."""
        sources = ", ".join(source for source, *_ in self.source_frames)
        scale = "base" if str(self.profile) == "base" else "mini"
        unseen = f"unseen rows of {LONG} words and more"
        return f"on development rows and, at {scale}, {unseen} ({sources})"

    def make_caption(self, printed_split: str = "", closing_text: str = "") -> str:
        """Return the caption of a table of mean scores.

        printed_split: the split of the paper's scores in the same table: "test",
        "development", or "" for none.
        closing_text: text at the end."""
        opening = "Scores in points"
        if printed_split:
            opening = f"Published: {printed_split} scores in points. Measured: scores"
        rows = self.caption_of_scored_rows
        return f"{opening} {rows}, mean ± standard deviation (seeds){closing_text}"

    def tabulate_scores_by_task(
        self, columns: Sequence[Column] = ()
    ) -> list[ScoreTable]:
        """Return tables of mean scores in points over seeds, each as {model: {(task,
        metric): text}}. There is one for the page's own runs and one for the recorded
        runs at mini; `compare.join_tables_by_row` puts them beside the printed table.

        columns: the metrics that the paper's table has."""
        return [
            compare.make_score_table_by_task(
                frame, grids.list_columns_by_task(scale, columns), source
            )
            for source, frame, scale in self.source_frames
        ]

    def list_scores_in_points(
        self,
        columns: Sequence[Column] = (),
        transform_points: Callable[[pd.DataFrame], pd.DataFrame] = lambda points: (
            points
        ),
    ) -> pd.DataFrame:
        """Return the scores of all runs in points, a line for each run and metric of
        its task.

        The column `source` says where a run is from, such as "recorded, mini"; the
        column `scale` has its profile.

        columns: the metrics that the paper's table has.
        transform_points: a function applied to the scores of each source, such as
        lib.stats.compare.average_scores_over_tasks."""
        return pd.concat(
            transform_points(
                compare.list_scores_in_points(
                    frame, grids.list_columns_by_task(scale, columns)
                )
            ).assign(source=source, scale=scale)
            for source, frame, scale in self.source_frames
        )

    def estimate_differences(
        self,
        method: str,
        baseline: str,
        group_column: str | list[str] = "task",
        columns: Sequence[Column] = (),
    ) -> EstimatesBySource:
        """Return {(source, value of `group_column`): Estimate} of the score of `method`
        minus that of `baseline`, paired by seed.

        A difference that a claim compares has the claim's planned seeds and claimed
        region. Seeds in which a model collapsed make no pair. Values without a pair are
        left out.

        group_column: a label of the rows, or several, by which the differences are
        grouped.
        columns: the metrics whose mean the paper's table prints."""
        estimates = {}
        for source, frame, scale in self.source_frames:
            columns_by_task = grids.list_columns_by_task(scale, columns)
            for value, rows in frame.groupby(group_column, sort=False):
                e = self.estimate_difference(
                    rows, method, baseline, columns_by_task, scale
                )
                if e:
                    estimates[source, value] = e
        return estimates

    def estimate_difference(
        self,
        frame: pd.DataFrame,
        method: str,
        baseline: str,
        columns_by_task: dict[str, tuple[Column, ...]],
        profile: str,
    ) -> Estimate | None:
        """Return the Estimate of the score of `method` minus that of `baseline` in a
        collected frame, or None where they cannot be compared
        (`estimate_difference_of_frames`)."""
        ours, theirs = (frame[frame["model"] == name] for name in (method, baseline))
        return self.estimate_difference_of_frames(
            ours, theirs, columns_by_task, profile
        )

    def estimate_difference_of_frames(
        self,
        method_frame: pd.DataFrame,
        baseline_frame: pd.DataFrame,
        columns_by_task: dict[str, tuple[Column, ...]],
        profile: str,
    ) -> Estimate | None:
        """Return the Estimate of one model's scores minus another's, paired by seed, or
        None.

        It is None where no seed has both models, or where a model learned too little to
        be compared. A comparison that the page's claims plan has the planned seeds and
        the claimed region.

        method_frame, baseline_frame: collected frames of one model each."""
        sides: Any = [
            rows.to_dict("records") for rows in (method_frame, baseline_frame)
        ]
        spared, region, interest = [False, False], (), nan
        if match := find_planned_comparison_of_models(self.page, str(profile), *sides):
            plan, turned = match
            sides = [
                [row for row in rows if row["seed"] in plan.seeds] for rows in sides
            ]
            spared = [
                model[0] in plan.models_expected_to_collapse
                for model in plan.cell.models
            ]
            low, high = region = plan.cell.bounds
            interest = (
                plan.find_smallest_effect_of_interest(sides[0][0]["task"])
                if sides[0]
                else nan
            )
            if turned:
                spared, region, interest = spared[::-1], (-high, -low), -interest
        inputs = JudgingInputs(
            columns_by_task,
            str(profile),
            unpruned_scores=grids.LEVEL.get(str(profile), {}),
        )
        for rows, spare in zip(sides, spared, strict=True):
            if (
                not spare
                and "spec" in method_frame
                and explain_model_that_learned_little("", rows, "", inputs)
            ):
                return None
        pairs = compare.pair_rows(sides[0], sides[1], columns_by_task, spared)
        aims = {"region": region, "interest": interest}
        return replace(paired_difference(pairs), **aims) if pairs else None

    def compare_models(
        self, baseline: str, columns: Sequence[Column] = ()
    ) -> EstimatesBySource:
        """Return {(source, "model, 3/12, task"): Estimate} of each model's score minus
        that of `baseline`, whatever their widths.

        A reader chooses the baseline on a page.

        baseline: one of `names_of_models`.
        columns: the metrics whose mean the paper's table prints."""
        estimates = {}
        for source, frame, scale in self.source_frames:
            columns_by_task = grids.list_columns_by_task(scale, columns)
            for task, rows in frame.groupby("task", sort=False):
                parts = split_frame_by_model(rows)
                base = parts.pop(baseline, rows[:0])
                for name, part in parts.items():
                    if e := self.estimate_difference_of_frames(
                        part, base, columns_by_task, scale
                    ):
                        estimates[source, f"{name}, {task}"] = e
        return estimates

    @property
    def names_of_models(self) -> list[str]:
        """Return the names of all models with a run, with the share of kept heads if
        the rows have it: "Ghost, 3/12"."""
        parts = [
            split_frame_by_model(compare.select_rows_with_runs(frame))
            for _, frame, _ in self.source_frames
        ]
        return list(dict.fromkeys(chain(*parts)))

    def estimate_differences_to_other_models(
        self, method: str, columns: Sequence[Column] = ()
    ) -> EstimatesBySource:
        """Return {(source, "rival, 3/12, task"): Estimate} of the score of `method`
        minus that of each other model.

        It is positive where `method` is better. The share of kept heads is named where
        the rows have it (column `m`).

        columns: the metrics whose mean the paper's table prints."""
        estimates, models = (
            {},
            [frame["model"] for _, frame, _ in self.source_frames],
        )
        by = [label for label in ("m", "task") if label in self.current]
        for rival in pd.concat(models).unique():
            gaps = (
                self.estimate_differences(method, rival, by, columns)
                if rival != method
                else {}
            )
            for (source, (*m, task)), gap in gaps.items():
                place = ", ".join(
                    [rival, *(format_model_width({"m": k}) for k in m), task]
                )
                estimates[source, place] = gap
        return estimates


def split_frame_by_model(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return {name of a model: its rows} of a collected frame.

    The name has the share of kept heads where the frame has it (column `m`): "Ghost,
    3/12"."""
    parts: Any = frame.groupby(compare.list_row_index_columns(frame)[::-1], sort=False)
    return {
        ", ".join([model, *(format_model_width({"m": m}) for m in width)]): rows
        for (model, *width), rows in parts
    }


# Markup of Markdown within a text, in the order of the pattern: a code span, in which
# only * and | are escaped; a backslash before a mark; a mark; the bracket before a
# link's target; emphasis; and web addresses.
MARK = re.compile(
    r"((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))"
    r"|\\(?=[!-/:-@\[-`{-~]|$)|[*|`]|](?=[\[(])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|:(?=//)|(?<=\bwww)\."
)
# Markup of Markdown at the beginning of a text: headings, lists, lines, link targets.
BEGIN = re.compile(r"^(?=#{1,6}(\s|$)|[-+](\s|$)|-{3,}$|={3,}$|\[[^\]]*]:)")


def escape_markdown_line(text: object) -> str:
    """Return a text on one line, escaped for Markdown and HTML; code spans stay code.

    Texts may come from a user's data, such as names of classes and files, and must not
    be read as markup."""
    return BEGIN.sub(r"\\", escape_markdown_cell(text))


def escape_markdown_cell(text: object) -> str:
    """Return a text escaped for a cell of a Markdown table.

    Markup that counts only at the beginning of a line is not escaped."""
    text = " ".join(html.escape(str(text), quote=False).split())
    return MARK.sub(escape_markdown_match, text)


def escape_markdown_match(markup_match: re.Match[str]) -> str:
    """Return a match of MARK with a backslash before it.

    A code span is returned with a backslash before each * and | in it."""
    return (
        re.sub(r"[*|]", r"\\\g<0>", markup_match[0])
        if markup_match[1]
        else rf"\{markup_match[0]}"
    )


def join_name_levels(names: Iterable[object], separator: str) -> list[str]:
    """Return the names of a table's rows or columns as text; the levels of a tuple are
    joined by `separator`."""
    return [
        separator.join(filter(None, map(str, name)))
        if isinstance(name, tuple)
        else str(name)
        for name in names
    ]


class ArrangedTable(NamedTuple):
    frame: pd.DataFrame
    swaps_column_levels: bool  # Whether to swap the levels of its columns.


def arrange_columns_for_page(frame: pd.DataFrame) -> ArrangedTable:
    """Return a table with the columns that a page shows.

    A column is (source, title), and the first word of a title is a task. Each measured
    column is put beside the printed columns of its task. Printed columns of other
    tasks, and scores on development rows alone, are left out: the table's CSV file has
    them. Where no task is common, all printed columns come first."""

    def find_task(column: tuple[object, ...]) -> str:
        return re.split(r"[\s,(]", str(column[1]))[0]

    if frame.columns.nlevels != 2:
        return ArrangedTable(frame, False)
    columns: list[Any] = list(frame)
    printed = [c for c in columns if PRINTED.match(str(c[0]))]
    measured = [
        c for c in columns if c not in printed and not str(c[1]).endswith(compare.ALONE)
    ]
    tasks = [find_task(c) for c in measured]
    common = [c for c in printed if find_task(c) in tasks]
    if not common:
        return ArrangedTable(frame[printed + measured], False)
    both = sorted(common + measured, key=lambda c: tasks.index(find_task(c)))
    return ArrangedTable(frame[both], True)


def table_to_html(text_frame: pd.DataFrame, table_id: str) -> str:
    """Return a table of texts as HTML.

    Columns of words are flush left, and cells of numbers do not wrap.

    table_id: an identifier for CSS that no other table of the page has."""
    shown = Styler(
        text_frame,
        na_rep="–",
        uuid=re.sub(r"\W", "-", table_id),
        cell_ids=False,
        escape="html",
    )
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis)
        # pyrefly: ignore[missing-attribute]  # Missing in pandas' stubs.
        shown.format_index_names(escape="html", axis=axis)
    words = text_frame.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left: Any = [{"selector": "", "props": WORDS}]
    return shown.set_table_styles(
        dict.fromkeys(text_frame.columns[words], left)
    ).to_html()


def format_table_cell(value: object) -> str:
    """Return the text of a table's cell: a number that a paper prints as it is printed,
    any other float with four digits."""
    plain = isinstance(value, float | np.floating) and not hasattr(value, "text")
    return f"{value:.4g}" if plain else str(value)


WIDTH = 830  # Width of a page on a code host, in pixels.
# Pixels of a letter; pixels of a cell's border; length of a text, in letters, up to
# which it is not wrapped.
LETTER, BORDER, UNBROKEN = 8, 27, 18


def table_to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, with the row labels as first columns.

    A table that is wider than the page of a code host is divided into several, each
    with the row labels."""
    names = [name or "" for name in frame.index.names]
    levels = len(names)
    frame = frame.fillna("").reset_index(names=names, allow_duplicates=True)
    tables = []
    for part in split_columns_to_fit_page(
        [estimate_column_pixels(frame.iloc[:, i]) for i in range(frame.shape[1])],
        levels,
    ):
        chosen = frame.iloc[:, [*range(levels), *part]]
        lines = chosen.itertuples(index=False, name=None)
        rows = [chosen.columns, ["---"] * chosen.shape[1], *lines]
        tables.append(
            "".join(
                f"| {' | '.join(map(escape_markdown_cell, row))} |\n" for row in rows
            )
        )
    return "\n".join(tables)


def estimate_column_pixels(column: pd.Series) -> int:
    """Return the estimated width of a table's column in pixels. Long texts wrap between
    words, short ones do not."""
    words = f"{column.name} {' '.join(map(str, column))}".split()
    texts = [min(len(str(text)), UNBROKEN) for text in column]
    return BORDER + LETTER * max([*texts, *map(len, words)])


def split_columns_to_fit_page(
    pixel_widths: Sequence[int], label_column_count: int
) -> list[range]:
    """Return the positions of a table's value columns in groups, such that each group
    and the row labels fit a page.

    pixel_widths: the width of each column in pixels, row labels first.
    label_column_count: the number of columns with row labels."""
    columns = range(label_column_count, len(pixel_widths))
    room, size = WIDTH - sum(pixel_widths[:label_column_count]), max(1, len(columns))
    while True:
        parts = [columns[i : i + size] for i in range(0, max(1, len(columns)), size)]
        if size == 1 or all(
            sum(pixel_widths[c] for c in part) <= room for part in parts
        ):
            return parts
        size = -(-len(columns) // (len(parts) + 1))


def tabulate_run_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the runs of a collected frame: their labels, and the seeds
    whose runs exist or are missing."""
    metrics = {name for run in frame["run"].dropna() for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = frame[labels].astype(object).fillna("")
    table.insert(0, "run", [spec.step for spec in frame["spec"]])
    seeds = ["once" if spec.seed is None else str(spec.seed) for spec in frame["spec"]]
    has_run = frame["run"].notna()
    table = table.assign(
        seeds=seeds, there=has_run.map({True: "seeds there", False: "missing"})
    )
    lines = table.pivot_table(
        "seeds", list(table)[:-2], "there", ", ".join, fill_value="", sort=False
    )
    return lines.reset_index().rename_axis(columns=None)
