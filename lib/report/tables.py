"""This module collects the runs of a notebook's grid, estimates differences between
models, and formats tables.

A grid is a notebook's list of planned runs. On pages of the profiles (sizes of the
experiments) toy and paper, the page's runs stand beside recorded runs at mini. A table
is written as HTML and as Markdown."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.claims.seeds import find_planned_comparison_of_models
from lib.claims.words import JudgingInputs, explain_model_that_learned_little
from lib.core.rows import ExperimentOutcome, Row, format_kept_head_fraction
from lib.core.spec import Spec
from lib.core.store import Store
from lib.core.types import ModelName, ProfileName, TaskName
from lib.data.unseen import LONG
from lib.papers import grids
from lib.stats import compare
from lib.stats.compare import MetricColumn, ScoreTable
from lib.stats.paired import Estimate, estimate_paired_difference

# CSS of a column of words or sentences.
WORDS = "text-align: left; white-space: normal"
# Letters of a cell beyond which its column is shown as words, whatever its other cells.
LONG_CELL = 40
# Matches the heading above columns of printed numbers. A column's name begins with the
# source of its numbers, such as "published".
PRINTED = re.compile(r"(published|printed)\b")
# Columns of `collect_results` that do not distinguish the rows of the table of finished
# and missing seeds. That table has a row for each combination of the labels that are
# left, such as task and model.
HIDDEN = ("spec", "seed", "run", "state", "error")
# Profiles (sizes of the experiments) whose pages also show the recorded results at the
# profile mini.
WITH_MINI_RESULTS = ("toy", "paper")


def collect_results(
    grid_rows: Iterable[Row],
    store: Store | None = None,
    failure_reason_by_spec: Mapping[Spec, str] | None = None,
) -> pd.DataFrame:
    """Return a DataFrame with the results of experiments, the collected frame.

    It has a row for each experiment. The columns are its labels (such as task, model
    and seed), `spec` (the description of its run), `run` (the finished run or None),
    `state` (such as "finished" or "missing"), `error`, and the metrics of the run.
    `error` says why there is no run: because it failed, or because an input that it
    needs failed. It is "" where no attempt failed.

    grid_rows: the experiments, each a Row of labels and the description of a run.
    store: where runs are looked up, by default the project's folders.
    failure_reason_by_spec: {description of a run: why it failed}, as
    `lib.cluster.sweep.execute_specs` returned it, if it was called before."""
    store, lines = store or Store(), []
    for row in grid_rows:
        status = store.find_run_with_state(row.spec)
        error = ""
        if not status["run"]:
            spec, _ = store.find_run_or_float32_run(row.spec)
            error = (failure_reason_by_spec or {}).get(
                spec
            ) or store.explain_missing_run(row.spec)
        lines.append(dict(ExperimentOutcome(row, **status, error=error)))
    return pd.DataFrame(lines)


# {row: {column: value}} of a table.
CellByRowAndColumn: TypeAlias = Mapping[Any, Mapping[Any, Any]]
# {(source of the numbers, value of a group or name of a row): Estimate}.
EstimateBySourceAndGroup: TypeAlias = dict[tuple[str, Any], Estimate]


class SourceFrame(NamedTuple):
    source: str  # Where the numbers come from, such as "recorded, mini".
    frame: pd.DataFrame
    profile: ProfileName


@dataclass(frozen=True)
class Runs:
    """A Runs has the results of one notebook's experiments, and compares its models.

    A collected frame is a DataFrame with a row for each experiment: its labels (such as
    task, model and seed), its finished run or None, and the metrics of the run.

    current: the collected frame at `profile`.
    recorded: the collected frame at the profile mini, for comparison. Its runs are only
    looked up. It is empty on most pages of mini and base, which do not show it.
    profile: size of the experiments, which is toy, mini, base or paper; or a
    `ProfileWithUserData`, which adds a reader's own data or model.
    notebook_id: id of the notebook, by which the seeds planned for its tests of claims
    are found. Where the notebook tests a paper's claim, only these seeds are used. With
    "" all seeds are used."""

    current: pd.DataFrame
    recorded: pd.DataFrame
    profile: ProfileName
    notebook_id: str = ""

    def select_runs(self, **value_by_label: Any) -> "Runs":
        """Return a Runs with only some results, as by select_runs(task="CoLA").

        Rows with other values of these labels are left out of `current` (the results at
        the page's own profile) and of `recorded` (those at the profile mini)."""

        def select_rows_with_labels(frame: pd.DataFrame) -> pd.DataFrame:
            rows = frame.to_dict("records")
            return frame.loc[[value_by_label.items() <= row.items() for row in rows]]

        return replace(
            self,
            current=select_rows_with_labels(self.current),
            recorded=select_rows_with_labels(self.recorded),
        )

    def find_result_frame(self, profile: ProfileName) -> pd.DataFrame:
        """Return the table of results at a profile, the size of the experiments.

        For the page's own profile it is the table of the page's own results, and for
        any other profile the table of results at mini that are stored in the
        repository. A table has a row for each experiment: labels, finished run or None,
        metrics."""
        return self.current if str(profile) == str(self.profile) else self.recorded

    @property
    def result_frames_with_source(self) -> list[SourceFrame]:
        """Return (source, frame, profile) for each set of results that the page shows.

        `source` tells where the numbers come from, such as "recorded, mini" for
        results of experiments at the size mini that are stored in the repository; it is
        the head of columns in tables and of panels in figures. `frame` has a row for
        each experiment, and `profile` is the size of the experiments. On pages of the
        sizes toy and paper, results at mini come first, if there are any. The page's
        own results are last."""
        collected = [(self.current, self.profile)]
        has_record = self.recorded.get("run", pd.Series()).notna().any()
        if str(self.profile) in WITH_MINI_RESULTS and has_record:
            collected.insert(0, (self.recorded, "mini"))
        return [
            SourceFrame(compare.format_score_column_heading(frame, scale), frame, scale)
            for frame, scale in collected
        ]

    @property
    def finished_runs_frame(self) -> pd.DataFrame:
        """Return a DataFrame of all finished runs that a page shows, a row for each.

        It has the columns of the collected frames, `source` (where a run is from, such
        as "recorded, mini") and `scale` (its profile, the size of the experiments)."""
        return pd.concat(
            name_source_of_rows(compare.select_rows_with_runs(frame), source, scale)
            for source, frame, scale in self.result_frames_with_source
        )

    @property
    def scored_rows_description(self) -> str:
        """Return the end of a table's caption: on which examples scores are measured.

        An example is "on development rows and, at mini, unseen rows of 9 words and more
        (recorded, mini)". The brackets name the source, here results of experiments at
        the size mini that are stored in the repository. Unseen rows are labelled rows
        that were used neither for training nor to choose settings. Those of fewer words
        than LONG (9) do not count in scores."""
        sources = ", ".join(source for source, *_ in self.result_frames_with_source)
        scale = "base" if str(self.profile) == "base" else "mini"
        unseen = f"unseen rows of {LONG} words and more"
        return f"on development rows and, at {scale}, {unseen} ({sources})"

    def make_score_table_caption(
        self,
        published_split: Literal["", "test", "development"] = "",
        closing_text: str = "",
    ) -> str:
        """Return the caption of a table of mean scores ± standard deviation over seeds.

        The caption gives the unit (points: scores from 0 to 100) and says on which rows
        of the data the scores are measured.

        published_split: the split of the paper's scores in the same table, "test" or
        "development"; "" if the table has none.
        closing_text: text at the end."""
        opening = "Scores in points"
        if published_split:
            opening = f"Published: {published_split} scores in points. Measured: scores"
        rows = self.scored_rows_description
        return f"{opening} {rows}, mean ± standard deviation (seeds){closing_text}"

    def tabulate_scores_by_task(
        self, printed_columns: Sequence[MetricColumn] = ()
    ) -> list[ScoreTable]:
        """Return tables of mean scores over seeds, one for each source of results.

        A table is {row: {(source, title of the metric): text}}. A row is a model, or
        (width, model) where the experiments have a width (kept attention heads). The
        text is "81.2 ± 0.4 (3)": mean and standard deviation in points, number of
        seeds. A source is "this run, toy" (results of this machine at the experiment
        size toy), "recorded, mini" (results at mini that are stored in the repository)
        or similar. `compare.join_tables_by_row` puts the tables beside the paper's.

        printed_columns: metrics that the paper's table prints; at mini and base only
        the first of each task counts. A task without a metric there is scored by its
        first metric."""
        return [
            compare.make_score_table_by_task(
                frame,
                grids.select_metrics_by_task(scale, printed_columns),
                source,
            )
            for source, frame, scale in self.result_frames_with_source
        ]

    def tabulate_scores_by_run_and_metric(
        self,
        printed_columns: Sequence[MetricColumn] = (),
    ) -> pd.DataFrame:
        """Return a DataFrame of scores from 0 to 100, a line for each run and metric.

        It has the columns of the collected frame, `column` (title of the metric),
        `score` (on development and unseen rows), `development` (score on the
        development rows among them), `source` (where a run is from, such as "recorded,
        mini" for runs at mini that are stored in the repository) and `scale` (the
        profile of that run, the size of the experiments). Scores of missing runs are
        nan.

        printed_columns: metrics that the paper's table prints; at mini and base only
        the first of each task counts. A task without a metric there is scored by its
        first metric."""
        return pd.concat(
            name_source_of_rows(
                compare.tabulate_scores_by_run_and_metric(
                    frame, grids.select_metrics_by_task(scale, printed_columns)
                ),
                source,
                scale,
            )
            for source, frame, scale in self.result_frames_with_source
        )

    def estimate_differences(
        self,
        model_name: ModelName,
        baseline: ModelName,
        group_columns: str | list[str] = "task",
        printed_columns: Sequence[MetricColumn] = (),
    ) -> EstimateBySourceAndGroup:
        """Return the score of one model minus that of another, for each group of runs.

        The result is {(source, group): Estimate}. The source tells where the runs are
        from, such as "recorded, mini" (stored in the repository, at the experiment size
        mini). A group is a value of `group_columns`. The Estimate has the mean
        difference in points over pairs of equal seed, and its 95 % interval. A group
        without a pair is left out. So is a group in which at least half of a model's
        runs score no better than chance, or less than half of the unpruned model's
        score, unless a claim expects this of the model. If the difference was planned
        as a test of a claim, only the planned seeds count, and the Estimate also has
        the bounds within which the claim holds, (0, inf) for "> 0".

        model_name, baseline: names of the models; `baseline` is subtracted.
        group_columns: a label of the experiments by which they are grouped. With
        several labels a group is a tuple of values.
        printed_columns: metrics that the paper's table prints. A task is scored by the
        mean of its metrics there, at mini and base by the first of them; if it has none
        there, by its first metric."""
        estimates = {}
        for source, frame, scale in self.result_frames_with_source:
            columns_by_task = grids.select_metrics_by_task(scale, printed_columns)
            for value, rows in frame.groupby(group_columns, sort=False):
                if e := self.estimate_difference(
                    rows, model_name, baseline, columns_by_task, scale
                ):
                    estimates[source, value] = e
        return estimates

    def estimate_difference(
        self,
        runs_frame: pd.DataFrame,
        model_name: ModelName,
        baseline: ModelName,
        columns_by_task: dict[TaskName, tuple[MetricColumn, ...]],
        profile: ProfileName,
    ) -> Estimate | None:
        """Return the score of one model minus that of another, paired by seed.

        The Estimate has the mean difference in points and its 95 % interval.
        Differences are averaged over seeds, then over tasks. It is None where no seed
        has both models on a task. It is also None where at least half of a model's runs
        score no better than chance, or less than half of the unpruned model's score,
        unless a claim expects this of the model
        (`estimate_paired_difference_of_results`).

        runs_frame: results of experiments, with the columns task, seed, model, run and
        spec.
        model_name, baseline: names in the column `model`; `baseline` is subtracted.
        columns_by_task: {task: its metrics}.
        profile: size of the experiments, such as "mini"."""
        ours, theirs = (
            runs_frame[runs_frame["model"] == name] for name in (model_name, baseline)
        )
        return self.estimate_paired_difference_of_results(
            ours, theirs, columns_by_task, profile
        )

    def estimate_paired_difference_of_results(
        self,
        method_frame: pd.DataFrame,
        baseline_frame: pd.DataFrame,
        columns_by_task: dict[TaskName, tuple[MetricColumn, ...]],
        profile: ProfileName,
    ) -> Estimate | None:
        """Return the score in one frame minus that in another, paired by seed.

        Each frame has the results of one model. The Estimate has the mean difference in
        points and its 95 % interval. The result is None where no seed has both models,
        or where at least half of a model's runs fail to learn: they score no better
        than chance, or less than half of the unpruned model's score. If the difference
        was planned as a test of a claim, three things change: only the planned seeds
        count, a model that the claim expects to fail is compared nevertheless, and the
        Estimate also has the bounds within which the claim holds, (0, inf) for "> 0".

        method_frame, baseline_frame: rows with the columns task, seed, model, run and
        spec; the second is subtracted. Without `spec`, models that fail to learn are
        compared too.
        columns_by_task: {task: its metrics}.
        profile: size of the experiments, such as "mini"."""
        sides: Any = [
            rows.to_dict("records") for rows in (method_frame, baseline_frame)
        ]
        spared, region, interest = [False, False], (), nan
        match = find_planned_comparison_of_models(
            self.notebook_id, str(profile), *sides
        )
        # Other seeds, which a user chose, are compared too, but by no plan.
        if match and any(
            row["seed"] in match[0].seeds for rows in sides for row in rows
        ):
            plan, turned = match
            sides = [
                [row for row in rows if row["seed"] in plan.seeds] for rows in sides
            ]
            spared = [
                model[0] in plan.models_expected_to_collapse
                for model in plan.comparison.models
            ]
            low, high = region = plan.comparison.bounds
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
        pairs = compare.pair_runs_by_task_and_seed(
            sides[0], sides[1], columns_by_task, *spared
        )
        aims = {"claimed_region": region, "smallest_effect_of_interest": interest}
        return replace(estimate_paired_difference(pairs), **aims) if pairs else None

    def estimate_differences_from_baseline(
        self, baseline: ModelName, printed_columns: Sequence[MetricColumn] = ()
    ) -> EstimateBySourceAndGroup:
        """Return each model's score minus that of a baseline, on each task.

        The result is {(source, name of a row): Estimate}. The source tells where the
        runs are from, such as "recorded, mini" (stored in the repository, at the
        experiment size mini). The name has the model, the width (kept attention heads)
        if the experiments have it as a label, and the task: "Ghost, 3/12, SST-2". The
        Estimate has the mean difference in points over pairs of equal seed, and its
        95 % interval. Models of all widths are compared with the one baseline.

        baseline: a name of `split_frame_by_model`, such as "Prune, 3/12".
        printed_columns: metrics that the paper's table prints. A task is scored by the
        mean of its metrics there, at mini and base by the first of them; if it has none
        there, by its first metric."""
        estimates = {}
        for source, frame, scale in self.result_frames_with_source:
            columns_by_task = grids.select_metrics_by_task(scale, printed_columns)
            for task, rows in frame.groupby("task", sort=False):
                parts = split_frame_by_model(rows)
                base = parts.pop(baseline, rows[:0])
                for name, part in parts.items():
                    if e := self.estimate_paired_difference_of_results(
                        part, base, columns_by_task, scale
                    ):
                        estimates[source, f"{name}, {task}"] = e
        return estimates

    def estimate_differences_at_equal_width(
        self, model_name: ModelName, printed_columns: Sequence[MetricColumn] = ()
    ) -> EstimateBySourceAndGroup:
        """Return the score of a model minus that of each other model, paired by seed.

        The result is {(source, name of a row): Estimate}. The source tells where the
        runs are from, such as "recorded, mini" (stored in the repository, at the
        experiment size mini). The name has the other model, the width (kept attention
        heads) if the experiments have it as a label, and the task: "Prune, 3/12,
        SST-2". Models are compared at equal width. The Estimate has the mean difference
        in points, positive where `model_name` is better, and its 95 % interval.

        printed_columns: metrics that the paper's table prints. A task is scored by the
        mean of its metrics there, at mini and base by the first of them; if it has none
        there, by its first metric."""
        estimates = {}
        models = [frame["model"] for _, frame, _ in self.result_frames_with_source]
        by = [label for label in ("m", "task") if label in self.current]
        for rival in pd.concat(models).unique():
            if rival == model_name:
                continue
            gaps = self.estimate_differences(model_name, rival, by, printed_columns)
            for (source, (*m, task)), gap in gaps.items():
                place = ", ".join(
                    [rival, *(format_kept_head_fraction({"m": k}) for k in m), task]
                )
                estimates[source, place] = gap
        return estimates


def split_frame_by_model(frame: pd.DataFrame) -> dict[ModelName, pd.DataFrame]:
    """Return {name of a model: its rows} of a frame with the results of experiments.

    If the frame has a column `m` (kept attention heads), the name includes the share of
    kept heads, as in "Ghost, 3/12", so that each width is a model."""
    parts: Any = frame.groupby(
        compare.list_width_and_model_columns(frame)[::-1], sort=False
    )
    return {
        ", ".join([model, *(format_kept_head_fraction({"m": m}) for m in width)]): rows
        for (model, *width), rows in parts
    }


# Matches what is escaped in a text, so that Markdown shows it as it is. In the order of
# the pattern: a code span, which stays as it is; a backslash before a
# punctuation mark; one of * | `; the bracket before a link's target; _ or ~~ of
# emphasis or strikethrough; web addresses.
MARK = re.compile(
    r"((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))"
    r"|\\(?=[!-/:-@\[-`{-~]|$)|[*|`]|](?=[\[(])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|:(?=//)|(?<=\bwww)\."
)
# Matches markup that is escaped only at the beginning of a text: headings, lists,
# horizontal lines, link targets.
BEGIN = re.compile(r"^(?=#{1,6}(\s|$)|[-+](\s|$)|-{3,}$|={3,}$|\[[^\]]*]:)")


def escape_markdown_line(text: object) -> str:
    """Return a text on one line, escaped for Markdown and HTML; code spans stay code.

    Texts may come from a user's data, such as names of classes and files, and must not
    be read as markup."""
    return BEGIN.sub(r"\\", MARK.sub(escape_markdown_match, escape_html_line(text)))


def escape_markdown_cell(text: object) -> str:
    """Return a text escaped for a cell of a Markdown table.

    Markup that counts only at the beginning of a line is not escaped. A | ends a cell
    even in a code span, so it is escaped there too."""
    return re.sub(
        r"(?<!\\)\|", r"\|", MARK.sub(escape_markdown_match, escape_html_line(text))
    )


def escape_html_line(text: object) -> str:
    """Return a text on one line, in which <, > and & are not read as HTML."""
    return " ".join(html.escape(str(text), quote=False).split())


def escape_markdown_match(markup_match: re.Match[str]) -> str:
    """Return markup that was found in a Markdown text, escaped as plain text.

    The markup gets a backslash before it. A code span stays as it was written, since
    nothing in it is markup: Markdown itself escapes it for HTML.

    markup_match: a match of the pattern MARK. Its group 1 is the code span, if any."""
    return html.unescape(markup_match[0]) if markup_match[1] else rf"\{markup_match[0]}"


def flatten_multiindex_labels(
    names: Iterable[str | tuple[Any, ...]], separator: str
) -> list[str]:
    """Return the names of a table's rows or columns as text, without levels.

    The levels of a tuple, as in a MultiIndex, are joined by `separator`, since a CSV or
    Markdown table has one head line. Empty levels are left out."""
    return [
        separator.join(filter(None, map(str, name)))
        if isinstance(name, tuple)
        else str(name)
        for name in names
    ]


class ArrangedTable(NamedTuple):
    frame: pd.DataFrame
    # Whether the caller should swap the two column levels, so that the task stands
    # above the source of the numbers.
    swaps_column_levels: bool


def put_printed_beside_measured_columns(frame: pd.DataFrame) -> ArrangedTable:
    """Return a table with its columns chosen and ordered for a page.

    The result is (table, whether the caller should swap the two column levels). A
    column is (source, title), and the first word of a title is a task. A source that
    begins with "published" or "printed" has a paper's numbers. Printed and measured
    columns of the same task are put side by side, and the levels should be swapped, so
    that the task stands above the source. Printed columns of tasks that were not
    measured, and scores on development rows alone, are left out. Where no task is both
    printed and measured, all printed columns come first, then the measured ones. A
    table without two column levels is unchanged."""

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


def name_source_of_rows(
    frame: pd.DataFrame, source: str, profile: ProfileName
) -> pd.DataFrame:
    """Return a frame with the columns `source` and `scale`.

    Each row of `scale` is the profile itself, which may name a user's data and model;
    as text it would lose them.

    source: where the runs are from, such as "recorded, mini"."""
    scale = pd.Series([profile] * len(frame), index=frame.index, dtype=object)
    return frame.assign(source=source, scale=scale)


def table_to_html(text_frame: pd.DataFrame, table_id: str) -> str:
    """Return a table of texts as HTML, with all markup in the texts escaped.

    Columns of words are flush left and wrap, and so is a column with a long text among
    its numbers. Cells of other columns do not wrap. A missing text is shown as a dash.

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
        lambda column: (
            column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
            or column.str.len().max() > LONG_CELL
        )
    )
    left: Any = [{"selector": "", "props": WORDS}]
    return shown.set_table_styles(
        dict.fromkeys(text_frame.columns[words], left)
    ).to_html()


def format_table_cell(value: object) -> str:
    """Return the text of a table's value.

    A number that was read from a paper has all its printed digits. Any other float has
    four significant digits."""
    plain = isinstance(value, float | np.floating) and not hasattr(value, "text")
    return f"{value:.4g}" if plain else str(value)


WIDTH = 830  # Width in pixels of a page on a code host, such as GitHub.
# LETTER: width of a letter in pixels. BORDER: pixels of a column beside its letters.
# UNBROKEN: number of letters up to which a text is not wrapped.
LETTER, BORDER, UNBROKEN = 8, 27, 18


def table_to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, with the row labels as first columns.

    Code hosts such as GitHub cut off wide tables. So a table that is wider than their
    page is divided into several tables, each with the row labels."""
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
    """Return the estimated width in pixels of a column in a Markdown table.

    It is used to divide tables that are too wide for a page. Long texts wrap between
    words, so their longest word counts. Texts of up to 18 letters do not wrap."""
    words = f"{column.name} {' '.join(map(str, column))}".split()
    texts = [min(len(str(text)), UNBROKEN) for text in column]
    return BORDER + LETTER * max([*texts, *map(len, words)])


def split_columns_to_fit_page(
    pixel_widths: Sequence[int], label_column_count: int
) -> list[range]:
    """Return groups of column positions, by which a wide table is divided into several.

    Each group fits on a page (830 pixels wide) together with the row labels, unless it
    is a single column. The groups have about equal numbers of columns.

    pixel_widths: the width of each column in pixels, row labels first.
    label_column_count: the number of columns with row labels, which are in no group."""
    columns = range(label_column_count, len(pixel_widths))
    room, size = WIDTH - sum(pixel_widths[:label_column_count]), max(1, len(columns))
    while True:
        parts = [columns[i : i + size] for i in range(0, max(1, len(columns)), size)]
        if size == 1 or all(
            sum(pixel_widths[c] for c in part) <= room for part in parts
        ):
            return parts
        size = min(size - 1, -(-len(columns) // (len(parts) + 1)))


def tabulate_finished_and_missing_seeds(result_frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the experiments that a page rests on, and of missing seeds.

    It has a row for experiments that differ in the seed alone. The columns are run
    (kind of work, such as "finetune"), the labels of the experiments (such as model),
    "seeds there" (the seeds with a finished run) and "missing" (those without), as
    text. A column of seeds is left out where it would be empty. "once" stands for a run
    without a seed.

    result_frame: results of experiments, as `collect_results` returns them."""
    metrics = {name for run in result_frame["run"].dropna() for name in run.metrics}
    table = result_frame.drop(columns=[*HIDDEN, *metrics], errors="ignore")
    table = table.astype(object).fillna("")
    table.insert(0, "run", [spec.step for spec in result_frame["spec"]])
    seeds = [
        "once" if spec.seed is None else str(spec.seed) for spec in result_frame["spec"]
    ]
    has_run = result_frame["run"].notna()
    table = table.assign(
        seeds=seeds, there=has_run.map({True: "seeds there", False: "missing"})
    )
    lines = table.pivot_table(
        "seeds", list(table)[:-2], "there", ", ".join, fill_value="", sort=False
    )
    return lines.reset_index().rename_axis(columns=None)
