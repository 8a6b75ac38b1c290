"""This module collects the runs of a page, and formats its tables. It is free of torch.

Runs of the page's profile stand beside recorded runs at mini. A table is written as
HTML and as Markdown."""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import nan
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.claims.seeds import find_planned_pair
from lib.claims.words import Setting, explain_unlearned
from lib.core.rows import Outcome, Row, format_width
from lib.core.spec import Spec
from lib.core.store import Store
from lib.data.unseen import LONG
from lib.papers import grids
from lib.stats import compare
from lib.stats.compare import Column
from lib.stats.paired import Estimate, paired_difference

# CSS of a column of words or sentences.
WORDS = "text-align: left; white-space: normal"
# Names of sources that are printed numbers of a paper.
PRINTED = re.compile(r"(published|printed)\b")
# Columns of a collected frame that are no labels.
HIDDEN = ("spec", "seed", "run", "state", "error")


def collect_results(
    rows: Iterable[Row],
    store: Store | None = None,
    reasons_of_loss: Mapping[Spec, str] | None = None,
) -> pd.DataFrame:
    """Return a DataFrame of a grid's rows with the results of their Specs.

    Its columns are those of the rows, `state`, `error`, `run` (a Run or None) and one
    for each metric. `error` names the first input that could not be made.
    reasons_of_loss: the failures that `lib.cluster.sweep.execute_specs` returned, if it was
    called before."""
    store, lines = store or Store(), []
    for row in rows:
        status = store.look_up_state(row.spec)
        error = ""
        if not status["run"]:
            spec, _ = store.find_run_or_twin(row.spec)
            error = (reasons_of_loss or {}).get(spec) or store.explain_missing_run(
                row.spec
            )
        lines.append(dict(Outcome(row, **status, error=error)))
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Runs:
    """A Runs object has the collected frames of one grid, as `Page.runs` returns them.

    current: the runs of the page's profile. recorded: the runs at mini that are in the
    records."""

    current: pd.DataFrame
    recorded: pd.DataFrame
    # A profile's name, or a `ReaderProfile` with a reader's own data or model.
    profile: str
    # Page of these runs. Comparisons take the seeds of its claims; "" takes all seeds.
    page: str = ""

    def select_runs(self, **labels: Any) -> "Runs":
        """Return the Runs of only those rows that have these labels."""

        def select_frame_rows(frame: pd.DataFrame) -> pd.DataFrame:
            rows = frame.to_dict("records")
            return frame.loc[[labels.items() <= row.items() for row in rows]]

        return replace(
            self,
            current=select_frame_rows(self.current),
            recorded=select_frame_rows(self.recorded),
        )

    def find_frame(self, profile: str) -> pd.DataFrame:
        """Return the frame of the page's own profile, or that of mini."""
        return self.current if str(profile) == str(self.profile) else self.recorded

    @property
    def frames_by_source(self) -> list[tuple[str, pd.DataFrame, str]]:
        """Return [(source, frame, profile)]: recorded runs if any, then the page's own.

        `source` says where the numbers come from, as the head of columns and panels."""
        collected = [(self.current, self.profile)]
        has_record = self.recorded.get("run", pd.Series()).notna().any()
        if str(self.profile) in ("toy", "paper") and has_record:
            collected.insert(0, (self.recorded, "mini"))
        return [
            (compare.name_source_of_numbers(frame, scale), frame, scale)
            for frame, scale in collected
        ]

    @property
    def rows_caption(self) -> str:
        """Return the end of a caption that says which examples the scores are of."""
        sources = ", ".join(source for source, *_ in self.frames_by_source)
        scale = "base" if str(self.profile) == "base" else "mini"
        unseen = f"unseen rows of {LONG} words and more"
        return f"on development rows and, at {scale}, {unseen} ({sources})"

    def make_caption(self, printed_split: str = "", ending: str = "") -> str:
        """Return the caption of a table of mean scores.

        printed_split: the split of printed scores beside them: "test", "development" or
        "".
        ending: the end of the caption."""
        opening = "Scores in points"
        if printed_split:
            opening = f"Published: {printed_split} scores in points. Measured: scores"
        return (
            f"{opening} {self.rows_caption}, mean ± standard deviation (seeds){ending}"
        )

    def tabulate_scores_by_task(
        self, columns: Sequence[Column] = ()
    ) -> list[dict[Any, dict[tuple[str, str], str]]]:
        """Return the mean score of each task in points, as parts of a page's table.

        columns: the columns of the paper's table (lib.stats.compare.Column).
        """
        return [
            compare.make_table_by_task(
                frame, grids.list_columns_by_task(scale, columns), source
            )
            for source, frame, scale in self.frames_by_source
        ]

    def list_scores_in_points(
        self,
        columns: Sequence[Column] = (),
        transform_points: Callable[[pd.DataFrame], pd.DataFrame] = lambda points: (
            points
        ),
    ) -> pd.DataFrame:
        """Return the scores of all runs in points, a line for each run and task.

        The column `source` says where a run is from, such as "recorded, mini"; the
        column `scale` has its profile.

        columns: metrics of the tasks (lib.papers.grids.list_columns_by_task).
        transform_points: a function of the points of one source, such as
        lib.stats.compare.average_columns."""
        return pd.concat(
            transform_points(
                compare.list_scores_in_points(
                    frame, grids.list_columns_by_task(scale, columns)
                )
            ).assign(source=source, scale=scale)
            for source, frame, scale in self.frames_by_source
        )

    def estimate_gaps(
        self,
        method: str,
        baseline: str,
        group_column: str | list[str] = "task",
        columns: Sequence[Column] = (),
    ) -> dict[tuple[str, Any], Estimate]:
        """Return {(source, value of the column `group_column`): Estimate} of `method`
        minus
        `baseline`.

        A comparison that is a cell of a claim has the seeds and the region of the cell.
        Seeds in which a model collapsed make no pair. Values without a pair are left
        out.

        columns: the columns whose mean the paper's table prints
        (lib.papers.grids.list_columns_by_task)."""
        estimates = {}
        for source, frame, scale in self.frames_by_source:
            metric_of = grids.list_columns_by_task(scale, columns)
            for value, rows in frame.groupby(group_column, sort=False):
                e = self.estimate_difference(rows, method, baseline, metric_of, scale)
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
        """Return the Estimate of the score of `method` minus that of `baseline`, or
        None (`estimate_rows`)."""
        ours, theirs = (frame[frame["model"] == name] for name in (method, baseline))
        return self.estimate_rows(ours, theirs, columns_by_task, profile)

    def estimate_rows(
        self,
        ours: pd.DataFrame,
        theirs: pd.DataFrame,
        metric_of: dict[str, tuple[Column, ...]],
        scale: str,
    ) -> Estimate | None:
        """Return the Estimate of the score of one model's rows minus that of another's,
        or None.

        It is None where no seed has both, or where a model learned too little."""
        sides: Any = [rows.to_dict("records") for rows in (ours, theirs)]
        spared, region, interest = [False, False], (), nan
        if match := find_planned_pair(self.page, str(scale), *sides):
            plan, turned = match
            sides = [
                [row for row in rows if row["seed"] in plan.seeds] for rows in sides
            ]
            spared = [model[0] in plan.may_fail for model in plan.cell.models]
            low, high = region = plan.cell.bounds
            interest = plan.interest_on(sides[0][0]["task"]) if sides[0] else nan
            if turned:
                spared, region, interest = spared[::-1], (-high, -low), -interest
        setting = Setting(metric_of, str(scale), level=grids.LEVEL.get(str(scale), {}))
        for rows, spare in zip(sides, spared, strict=True):
            if (
                not spare
                and "spec" in ours
                and explain_unlearned("", rows, "", setting)
            ):
                return None
        pairs = compare.pair_rows(sides[0], sides[1], metric_of, spared)
        aims = {"region": region, "interest": interest}
        return replace(paired_difference(pairs), **aims) if pairs else None

    def compare_models(
        self, baseline: str, columns: Sequence[Column] = ()
    ) -> dict[tuple[str, str], Estimate]:
        """Return {(source, "model, 3/12, task"): Estimate} of each model minus
        `baseline`, whatever its width.

        baseline: a name of `names_of_models`. Pairs and columns are as in
        `estimate_gaps`."""
        estimates = {}
        for source, frame, scale in self.frames_by_source:
            metric_of = grids.list_columns_by_task(scale, columns)
            for task, rows in frame.groupby("task", sort=False):
                parts = split_models(rows)
                base = parts.pop(baseline, rows[:0])
                for name, part in parts.items():
                    if e := self.estimate_rows(part, base, metric_of, scale):
                        estimates[source, f"{name}, {task}"] = e
        return estimates

    @property
    def names_of_models(self) -> list[str]:
        """Return the names of all models with a run, with the width if they have
        one."""
        parts = [
            split_models(compare.select_rows_with_runs(frame))
            for _, frame, _ in self.frames_by_source
        ]
        return list(dict.fromkeys(chain(*parts)))

    def estimate_gaps_to_rivals(
        self, method: str, columns: Sequence[Column] = ()
    ) -> dict[tuple[str, str], Estimate]:
        """Return {(source, "rival, 3/12, task"): Estimate} of `method` minus each
        rival.

        It is positive where `method` is better. The width is named where the runs have
        one (column `m`). Pairs and columns are as in `estimate_gaps`."""
        estimates, models = (
            {},
            [frame["model"] for _, frame, _ in self.frames_by_source],
        )
        by = [label for label in ("m", "task") if label in self.current]
        for rival in pd.concat(models).unique():
            gaps = (
                self.estimate_gaps(method, rival, by, columns)
                if rival != method
                else {}
            )
            for (source, (*m, task)), gap in gaps.items():
                place = ", ".join([rival, *(format_width({"m": k}) for k in m), task])
                estimates[source, place] = gap
        return estimates


def split_models(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return {name of a model: its rows} of a collected frame.

    The name has the width where the frame has one (column `m`): "Ghost, 3/12"."""
    parts: Any = frame.groupby(compare.list_row_columns(frame)[::-1], sort=False)
    return {
        ", ".join([model, *(format_width({"m": m}) for m in width)]): rows
        for (model, *width), rows in parts
    }


# Marks of Markdown within a text. A span of code comes first, since only * and | count
# in it. Then come a backslash before a mark, a mark, the target of a link, emphasis,
# and web addresses.
MARK = re.compile(
    r"((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))"
    r"|\\(?=[!-/:-@\[-`{-~]|$)|[*|`]|](?=[\[(])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|:(?=//)|(?<=\bwww)\."
)
# Marks of Markdown at the beginning of a text: headings, lists, lines, link targets.
BEGIN = re.compile(r"^(?=#{1,6}(\s|$)|[-+](\s|$)|-{3,}$|={3,}$|\[[^\]]*]:)")


def escape_text(text: object) -> str:
    """Return a text on one line, escaped for Markdown and HTML; code spans stay code.

    Texts may come from data: names of classes and files, and errors that quote them."""
    return BEGIN.sub(r"\\", escape_cell(text))


def escape_cell(text: object) -> str:
    """Return a text escaped for a cell of a Markdown table.

    Marks that count only at the beginning of a line stay as they are."""
    text = " ".join(html.escape(str(text), quote=False).split())
    return MARK.sub(escape_mark, text)


def escape_mark(mark: re.Match[str]) -> str:
    """Return a mark with a backslash before it.

    A span of code stays, with a backslash before each * and | in it."""
    return re.sub(r"[*|]", r"\\\g<0>", mark[0]) if mark[1] else rf"\{mark[0]}"


def join_levels(names: Iterable[object], separator: str) -> list[str]:
    """Return the names of rows or columns as text, their levels joined by
    `separator`."""
    return [
        separator.join(filter(None, map(str, name)))
        if isinstance(name, tuple)
        else str(name)
        for name in names
    ]


def arrange_for_page(frame: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return (a table as a page shows it, whether its columns must swap their levels).

    A column is (source, title), and the first word of a title is a task. Each measured
    column is put beside the printed columns of its task. Printed columns of other
    tasks, and scores on development rows alone, are left out: the file of the table has
    them. Where no task is common, all printed columns come first."""

    def find_task(column: tuple[object, ...]) -> str:
        return re.split(r"[\s,(]", str(column[1]))[0]

    if frame.columns.nlevels != 2:
        return frame, False
    columns: list[Any] = list(frame)
    printed = [c for c in columns if PRINTED.match(str(c[0]))]
    measured = [
        c for c in columns if c not in printed and not str(c[1]).endswith(compare.ALONE)
    ]
    tasks = [find_task(c) for c in measured]
    common = [c for c in printed if find_task(c) in tasks]
    if not common:
        return frame[printed + measured], False
    both = sorted(common + measured, key=lambda c: tasks.index(find_task(c)))
    return frame[both], True


def table_to_html(text_frame: pd.DataFrame, table_id: str) -> str:
    """Return a table of texts as HTML.

    Columns of words are flush left, and cells of numbers do not wrap. table_id: an
    identifier that no other table of the page has."""
    shown = Styler(
        text_frame,
        na_rep="–",
        uuid=re.sub(r"\W", "-", table_id),
        cell_ids=False,
        escape="html",
    )
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis)
        # pyrefly: ignore[missing-attribute]  The stubs of pandas lack it.
        shown.format_index_names(escape="html", axis=axis)
    words = text_frame.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left: Any = [{"selector": "", "props": WORDS}]
    return shown.set_table_styles(
        dict.fromkeys(text_frame.columns[words], left)
    ).to_html()


def format_value(value: object) -> str:
    """Return the text of a cell: a printed number as printed, a float to four
    digits."""
    plain = isinstance(value, float | np.floating) and not hasattr(value, "text")
    return f"{value:.4g}" if plain else str(value)


WIDTH = 830  # Width of a page on a code host, in pixels.
# Pixels of a letter, pixels of a cell's border, letters that do not wrap.
LETTER, BORDER, UNBROKEN = 8, 27, 18


def table_to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, with the row labels as first columns.

    A table that is wider than a page becomes several, each with the row labels."""
    names = [name or "" for name in frame.index.names]
    levels = len(names)
    frame = frame.fillna("").reset_index(names=names, allow_duplicates=True)
    tables = []
    for part in divide_columns(
        [count_pixels(frame.iloc[:, i]) for i in range(frame.shape[1])], levels
    ):
        chosen = frame.iloc[:, [*range(levels), *part]]
        lines = chosen.itertuples(index=False, name=None)
        rows = [chosen.columns, ["---"] * chosen.shape[1], *lines]
        tables.append(
            "".join(f"| {' | '.join(map(escape_cell, row))} |\n" for row in rows)
        )
    return "\n".join(tables)


def count_pixels(column: pd.Series) -> int:
    """Return the width of a column of texts in pixels; words wrap, numbers do not."""
    words = f"{column.name} {' '.join(map(str, column))}".split()
    texts = [min(len(str(text)), UNBROKEN) for text in column]
    return BORDER + LETTER * max([*texts, *map(len, words)])


def divide_columns(pixel_widths: Sequence[int], label_columns: int) -> list[range]:
    """Return the numbers of the columns behind the row labels, in parts that fit a
    page.

    pixel_widths: of all columns, in pixels. label_columns: number of columns with row
    labels."""
    columns = range(label_columns, len(pixel_widths))
    room, size = WIDTH - sum(pixel_widths[:label_columns]), max(1, len(columns))
    while True:
        parts = [columns[i : i + size] for i in range(0, max(1, len(columns)), size)]
        if size == 1 or all(
            sum(pixel_widths[c] for c in part) <= room for part in parts
        ):
            return parts
        size = -(-len(columns) // (len(parts) + 1))


def tabulate_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of a frame's labels, with the seeds whose runs are there or
    missing."""
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
