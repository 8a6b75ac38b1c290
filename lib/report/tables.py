"""This module holds the runs of a page, and says how its tables look. It is free of
torch.

Runs of the page's own profile stand beside runs that are recorded at mini. A table is
written as HTML and as Markdown."""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.claims.seeds import planned_pair
from lib.claims.words import Setting, why_unlearned
from lib.core.rows import Outcome, Row, format_width
from lib.core.spec import Spec
from lib.core.store import Store
from lib.data.unseen import LONG
from lib.papers import grids
from lib.stats import compare
from lib.stats.compare import Column
from lib.stats.paired import Estimate, paired_difference

# A column of words or sentences has this style.
WORDS = "text-align: left; white-space: normal"
PRINTED = re.compile(r"(published|printed)\b")  # A paper prints these sources.
# These columns of a collected frame are no labels.
HIDDEN = ("spec", "seed", "run", "state", "error")


def collect(
    rows: Iterable[Row],
    store: Store | None = None,
    lost: Mapping[Spec, str] | None = None,
) -> pd.DataFrame:
    """Return a grid's rows with the results of their Specs, as a DataFrame.

    Its columns are those of the rows, `state`, `error`, `run` (a Run or None) and one
    for each metric. lost: what `lib.cluster.sweep.make_runs` returned, if it was called
    before. `error` names the root: the input that could not be made."""
    store, lines = store or Store(), []
    for row in rows:
        status = store.lookup(row.spec)
        error = ""
        if not status["run"]:
            spec, _ = store.look(row.spec)
            error = (lost or {}).get(spec) or store.why(row.spec)
        lines.append(dict(Outcome(row, **status, error=error)))
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Runs:
    """A Runs object holds the collected frames of one grid (`collect`).

    `Page.runs` makes it.

    current: the runs of the page's profile. recorded: the runs at mini that are in the
    records."""

    current: pd.DataFrame
    recorded: pd.DataFrame
    profile: str  # It may be a reader's `ReaderProfile`.
    page: str = ""  # Comparisons of this page have the seeds of its claims' cells.

    def where(self, **labels: Any) -> "Runs":
        """Return the runs of the rows that have these labels."""

        def chosen(frame: pd.DataFrame) -> pd.DataFrame:
            rows = frame.to_dict("records")
            return frame.loc[[labels.items() <= row.items() for row in rows]]

        return replace(
            self, current=chosen(self.current), recorded=chosen(self.recorded)
        )

    def frame_of(self, profile: str) -> pd.DataFrame:
        """Return the frame of a profile: of the page's own one, or of mini."""
        return self.current if str(profile) == str(self.profile) else self.recorded

    @property
    def frames(self) -> list[tuple[str, pd.DataFrame, str]]:
        """Return [(source, frame, profile)]: recorded runs, where there are any, then
        the page's own.

        `source` says in words where the numbers come from. It is the head of columns
        and panels."""
        collected = [(self.current, self.profile)]
        has_record = self.recorded.get("run", pd.Series()).notna().any()
        if str(self.profile) in ("toy", "paper") and has_record:
            collected.insert(0, (self.recorded, "mini"))
        return [
            (compare.name_source(frame, scale), frame, scale)
            for frame, scale in collected
        ]

    @property
    def rows(self) -> str:
        """Return in words, for a caption, which rows the scores are of."""
        sources = ", ".join(source for source, *_ in self.frames)
        scale = "base" if str(self.profile) == "base" else "mini"
        unseen = f"unseen rows of {LONG} words and more"
        return f"on development rows and, at {scale}, {unseen} ({sources})"

    def caption(self, published: str = "", more: str = "") -> str:
        """Return the caption of a table of mean scores.

        published: which scores are printed beside them: "test" or "development". more:
        the end of the caption."""
        opening = "Scores in points"
        if published:
            opening = f"Published: {published} scores in points. Measured: scores"
        return f"{opening} {self.rows}, mean ± standard deviation (seeds){more}"

    def by_task(
        self, columns: Sequence[Column] = ()
    ) -> list[dict[Any, dict[tuple[str, str], str]]]:
        """Return the mean score of each task in points, as parts of a page's table.

        columns: the columns of the paper's table (lib.stats.compare.Column).
        """
        return [
            compare.table_by_task(frame, grids.metrics(scale, columns), source)
            for source, frame, scale in self.frames
        ]

    def scores_in_points(
        self,
        columns: Sequence[Column] = (),
        transform: Callable[[pd.DataFrame], pd.DataFrame] = lambda points: points,
    ) -> pd.DataFrame:
        """Return all scores in points (lib.stats.compare.scores_in_points), with `source`.

        transform: a function of the points of one source, such as
        lib.stats.compare.average_columns."""
        return pd.concat(
            transform(
                compare.scores_in_points(frame, grids.metrics(scale, columns))
            ).assign(source=source, scale=scale)
            for source, frame, scale in self.frames
        )

    def estimate_gaps(
        self,
        method: str,
        baseline: str,
        by: str | list[str] = "task",
        columns: Sequence[Column] = (),
    ) -> dict[tuple[str, Any], Estimate]:
        """Return {(source, value of the column `by`): Estimate} of one model's score
        above another's.

        A comparison that is a cell of a claim has the seeds of the cell, and its
        region. Seeds in which a model collapsed make no pair, and values without any
        pair are left out.

        columns: the columns whose mean the paper's table prints
        (lib.papers.grids.metrics)."""
        estimates = {}
        for source, frame, scale in self.frames:
            metric_of = grids.metrics(scale, columns)
            for value, rows in frame.groupby(by, sort=False):
                e = self.estimate_difference(rows, method, baseline, metric_of, scale)
                if e:
                    estimates[source, value] = e
        return estimates

    def estimate_difference(
        self,
        frame: pd.DataFrame,
        method: str,
        baseline: str,
        metric_of: dict[str, tuple[Column, ...]],
        scale: str,
    ) -> Estimate | None:
        """Return the Estimate of one model's score above another's in a frame, or
        None."""
        sides: Any = [
            frame[frame["model"] == model].to_dict("records")
            for model in (method, baseline)
        ]
        spared, region = [False, False], ()
        if match := planned_pair(self.page, str(scale), *sides):
            plan, turned = match
            sides = [
                [row for row in rows if row["seed"] in plan.seeds] for rows in sides
            ]
            spared = [model[0] in plan.may_fail for model in plan.cell.models]
            low, high = region = plan.cell.bounds
            if turned:
                spared, region = spared[::-1], (-high, -low)
        setting = Setting(metric_of, str(scale), level=grids.LEVEL.get(str(scale), {}))
        for rows, spare in zip(sides, spared, strict=True):
            if not spare and "spec" in frame and why_unlearned("", rows, "", setting):
                return None
        pairs = compare.align_rows(sides[0], sides[1], metric_of, spared)
        return replace(paired_difference(pairs), region=region) if pairs else None

    def differences_to_rivals(
        self, method: str, columns: Sequence[Column] = ()
    ) -> dict[tuple[str, str], Estimate]:
        """Return the paired difference of a model to every other one, as {(source,
        "rival, 3/12, task"): Estimate}. It is positive where `method` is better.

        The width is named where the runs have one (column `m`). Pairs and columns are
        as in `estimate_gaps`."""
        estimates, models = {}, [frame["model"] for _, frame, _ in self.frames]
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


# What a text may hold that Markdown reads. First a span of code, in which only * and |
# are marks. Then a backslash before a mark, a mark, the target of a link, emphasis, and
# addresses.
MARK = re.compile(
    r"((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))"
    r"|\\(?=[!-/:-@\[-`{-~]|$)|[*|`]|](?=[\[(])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|:(?=//)|(?<=\bwww)\."
)
# A heading, a list, a line or the target of a link, where it begins a text.
BEGIN = re.compile(r"^(?=#{1,6}(\s|$)|[-+](\s|$)|-{3,}$|={3,}$|\[[^\]]*]:)")


def escape_text(text: object) -> str:
    """Return a text on one line, in which Markdown and HTML find no mark of theirs but
    code.

    Texts come from data too: names of classes and of files, and errors that hold them.
    """
    return BEGIN.sub(r"\\", escape_cell(text))


def escape_cell(text: object) -> str:
    """Return a text as `escape_text` does, for a cell of a table: nothing begins there."""
    text = " ".join(html.escape(str(text), quote=False).split())
    return MARK.sub(protect_mark, text)


def protect_mark(mark: re.Match[str]) -> str:
    """Return a mark behind a backslash, or a span of code with its own marks so."""
    return re.sub(r"[*|]", r"\\\g<0>", mark[0]) if mark[1] else rf"\{mark[0]}"


def join_levels(names: Iterable[object], between: str) -> list[str]:
    """Return the names of rows or columns as text, with `between` between their
    levels."""
    return [
        between.join(filter(None, map(str, name)))
        if isinstance(name, tuple)
        else str(name)
        for name in names
    ]


def shape_for_reader(frame: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return (a table as a page shows it, whether titles stand above sources in it).

    A column is (source, title), and the first word of a title is a task. Each measured
    column stands beside the printed columns of its task. PrintedNumber columns of other
    tasks are left out, and so are scores on development rows alone: the file of the
    table has them. Where no task is common, all printed columns stand first."""

    def task(column: tuple[object, ...]) -> str:
        return re.split(r"[\s,(]", str(column[1]))[0]

    if frame.columns.nlevels != 2:
        return frame, False
    columns: list[Any] = list(frame)
    printed = [c for c in columns if PRINTED.match(str(c[0]))]
    measured = [
        c for c in columns if c not in printed and not str(c[1]).endswith(compare.ALONE)
    ]
    tasks = [task(c) for c in measured]
    common = [c for c in printed if task(c) in tasks]
    if not common:
        return frame[printed + measured], False
    both = sorted(common + measured, key=lambda c: tasks.index(task(c)))
    return frame[both], True


def table_to_html(text: pd.DataFrame, name: str) -> str:
    """Return a table of texts as HTML.

    Columns of words or sentences are flush left, and cells of numbers do not wrap.

    name: a text that no other table of the page has.
    """
    shown = Styler(
        text, na_rep="–", uuid=re.sub(r"\W", "-", name), cell_ids=False, escape="html"
    )
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis)
        # pyrefly: ignore[missing-attribute]  The stubs of pandas lack it.
        shown.format_index_names(escape="html", axis=axis)
    words = text.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left: Any = [{"selector": "", "props": WORDS}]
    return shown.set_table_styles(dict.fromkeys(text.columns[words], left)).to_html()


def format_value(value: object) -> str:
    """Return the text of a cell: a printed number as printed, a float with four
    digits."""
    plain = isinstance(value, float | np.floating) and not hasattr(value, "text")
    return f"{value:.4g}" if plain else str(value)


WIDTH = 830  # A code host shows a page so wide, in pixels.
LETTER, BORDER, UNBROKEN = 8, 27, 18  # Of a cell: pixels, pixels, letters on a line.


def table_to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, the levels of its rows first.

    A level without a name has no title. A table that is wider than a page becomes
    several, each with the levels of the rows."""
    names = [name or "" for name in frame.index.names]
    levels = len(names)
    frame = frame.fillna("").reset_index(names=names, allow_duplicates=True)
    tables = []
    for part in part_columns(
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
    """Return the pixels that a column of texts needs: numbers stay on a line, words
    wrap."""
    words = f"{column.name} {' '.join(map(str, column))}".split()
    texts = [min(len(str(text)), UNBROKEN) for text in column]
    return BORDER + LETTER * max([*texts, *map(len, words)])


def part_columns(widths: Sequence[int], levels: int) -> list[range]:
    """Return the columns behind the levels of the rows, in as few even parts as fit a
    page."""
    columns = range(levels, len(widths))
    room, size = WIDTH - sum(widths[:levels]), max(1, len(columns))
    while True:
        parts = [columns[i : i + size] for i in range(0, max(1, len(columns)), size)]
        if size == 1 or all(sum(widths[c] for c in part) <= room for part in parts):
            return parts
        size = -(-len(columns) // (len(parts) + 1))


def show_what_varies(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what varies between the rows of a collected frame, as a table.

    It has the labels of the rows, the seeds whose runs are there, and the seeds whose
    runs are missing."""
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
