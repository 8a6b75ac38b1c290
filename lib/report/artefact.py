"""This module is what a notebook calls to make runs, show tables and figures, and write
them to files.

    page = artefact.open_page("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.collect_runs(grid)
    page.show_table(frame, "Table 3"); page.show_figure(figure, data)
    page.show_verdicts_and_write_json()

A figure is written to `figures/<profile>/<id>.{svg,png}`, and the data that it draws to
`<id>.figure.csv`. A table is written to `<id>.csv`. `<id>.json` says which runs were
used, by which code and when. A table or figure without finished runs is replaced by a
sentence. Notebooks with changed parameters or cells are experiments, and write to
folders of their own below `figures/scratch/`
(lib.claims.notebook.find_notebook_page_folder)."""

import io
import json
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib.claims import judging as source
from lib.claims import lists, notebook
from lib.claims import planned as plans
from lib.claims.seeds import repeat_rows_at_planned_seeds
from lib.claims.words import Verdict
from lib.cluster import sweep
from lib.core import disk, paths
from lib.core.execute import read_commit_hash_as_dict
from lib.core.papers import find_paper_name_of_notebook
from lib.core.rows import Row, format_kept_head_fraction
from lib.core.store import Store
from lib.core.types import ProfileName
from lib.papers import grids
from lib.report import plot, site, tables
from lib.report.tables import (
    Runs,
    collect_results,
    escape_markdown_line,
    flatten_multiindex_labels,
    format_table_cell,
    put_printed_beside_measured_columns,
    split_frame_by_model,
    table_to_html,
    table_to_markdown,
    tabulate_finished_and_missing_seeds,
)
from lib.report.verdicts import (
    ENVIRONMENT,
    convert_verdict_to_json,
    format_verdict_counts,
    list_main_result_sentences,
    list_training_setup_sentences,
)
from lib.stats import compare
from lib.stats.compare import MetricColumn

if TYPE_CHECKING:
    from lib.report.explore import LiveFigure

# The function `grid` of a notebook: f(profile, **parameters) -> Rows of its experiment.
GridFunction = Callable[..., list[Row]]

ENVIRONMENT.filters["escaped"] = escape_markdown_line
PARTS: Any = ENVIRONMENT.get_template("parts.html.j2").module
END = ENVIRONMENT.get_template("end.md.j2")
# Matches ids in an SVG file and references to them. A prefix after each match gives
# every picture on a page ids of its own. Without it, two pictures may share an id; a
# browser then fails to resolve a reference if the first of the two is hidden.
SVG_NAME = re.compile(r'\bid="|url\(#|href="#')
# {origin of a run: word for it on a page}. A "run" was made on this machine, and a
# "record" is committed in the repository.
MADE = {"run": "made here", "record": "recorded"}


def display_text(markdown: str, html_text: str = "") -> None:
    """Show a text as output of the running notebook cell, as Markdown, HTML or both.

    HTML pages later take the HTML or, if it is empty, the Markdown. Markdown pages take
    the Markdown, in which paths of this machine are hidden. Nothing is shown where both
    texts are empty.

    html_text: the same content as HTML, where Markdown cannot express it."""
    forms = {"text/markdown": paths.hide_local_paths(markdown), "text/html": html_text}
    if forms := {kind: text for kind, text in forms.items() if text}:
        display(forms, raw=True)


@dataclass
class Page:
    """A Page is an open notebook that shows its results and writes their files.

    A notebook creates one with `open_page`, and shows tables, figures and remarks by
    its methods. A run is one training or measurement, which is stored and reused.

    id: name of the notebook, such as "ghostbert_t03_pruned_vs_ghost".
    parameter_values: {parameter of the notebook: value}.
    folder: where the files are written.
    changes_to_notebook: sentences on how the notebook differs from its original in the
    repository; none for a standard page.
    state_by_run_name: {name of a run: "made here" or "recorded", or the state of a
    missing run, such as "failed"}.
    written_files: names of the files that were written.
    shown_remarks: remarks that were shown, so that none is shown twice.
    difference_sentences: sentences on differences between models in runs of the page's
    own profile, such as "Ghost minus Prune, SST-2: +0.4 [−0.2, 1.1] points, 3 seeds."
    They may be shown below the title of the page.
    score_range_sentence: a sentence on the lowest and the highest score, which may be
    shown below the title too; "" for none.
    backend: where missing runs are made: "local", "ray" or "slurm".
    workers: how many of them are made at once; None for as many as fit."""

    id: str
    parameter_values: notebook.ParameterValues
    folder: Path
    changes_to_notebook: Sequence[str] = ()
    state_by_run_name: dict[str, str] = field(default_factory=dict)
    written_files: list[str] = field(default_factory=list)
    shown_remarks: set[str] = field(default_factory=set)
    difference_sentences: list[str] = field(default_factory=list)
    score_range_sentence: str = ""
    backend: str = "local"
    workers: int | None = None

    @cached_property
    def profile(self) -> ProfileName:
        """Return the notebook's profile, the size of its experiments, such as "toy".

        The notebook lists its experiments for this profile. If its parameters name a
        user's own data or model, the result is of the class `ProfileWithUserData`: a
        str with the attributes `data` and `model`, which name them."""
        return grids.make_profile_from_notebook_parameters(
            {"profile": "toy"} | self.parameter_values
        )

    @property
    def custom_data_and_model_notes(self) -> list[str]:
        """Return sentences on which data and model of the user the page is made from.

        The page shows them, so that nobody takes its numbers for results on the papers'
        data. The list is empty where the user brings neither."""
        return grids.describe_user_data_and_model(self.profile)

    def collect_result_frame(
        self,
        rows: Sequence[Row],
        if_missing: Literal["run_if_by_hand", "run_always", "skip"] = "run_if_by_hand",
        shows_comparison_counts_by_dtype: bool = True,
    ) -> pd.DataFrame:
        """Return a DataFrame with the results of experiments, a line for each.

        An experiment is a Row: the description of a run (a training or measurement),
        with labels such as task, model and seed. The columns are these labels, `spec`
        (the description), `run` (the finished run or None), `state` (such as "finished"
        or "missing"), `error` (why there is no run) and the metrics of the run. The
        page reports how many runs are missing, with the three most frequent reasons,
        unless an earlier call reported missing runs.

        if_missing: what happens to missing runs. "run_if_by_hand" executes them first
        if the notebook is run by hand; a command that makes pages has executed them
        before. "run_always" executes them always. "skip" neither executes nor reports
        them.
        shows_comparison_counts_by_dtype: whether the page says how many comparisons are
        in bfloat16 and how many in float32, where it has both."""
        lost = {}
        is_made = if_missing != "skip"
        if if_missing == "run_always" or is_made and not os.environ.get(notebook.BATCH):
            specs = [row.spec for row in rows]
            if todo := Store().plan_missing_runs(specs):
                clock = sweep.TimeForecast(
                    Store(), grids.make_run_time_estimator(self.profile)
                )
                work = sweep.describe_missing_runs(todo, clock, self.workers)
                self.show_remarks(
                    [f"{work}. What is made stays when you interrupt it."]
                )
                lost = sweep.execute_specs(
                    specs,
                    workers=self.workers,
                    backend=self.backend,
                    time_forecast=clock,
                )
        frame = collect_results(rows, failure_reason_by_spec=lost)
        if self.custom_data_and_model_notes and not is_made:
            # Runs that are only looked up serve the tests of claims. A page on a user's
            # own data or model tests none, so it does not count these runs as its own.
            return frame
        lines: Any = frame.to_dict("records")
        if shows_comparison_counts_by_dtype:
            # A page has several comparisons, of which each takes runs of one dtype.
            how = ": within each, models of one dtype are compared"
            self.show_remarks(
                compare.describe_pair_counts_by_dtype(lines, mixed_runs_are=how)
            )
        states = {}
        reasons = {}
        command = notebook.format_notebook_run_command(self.id, self.profile)
        changed = notebook.list_changed_parameters(self.id, self.parameter_values)
        for name in ("methods", "budgets", "seeds"):
            if name in changed:
                value = json.dumps(self.parameter_values[name], ensure_ascii=False)
                command += f" --{name} {shlex.quote(value)}"
        how = f"`{command}` makes them"
        for row in lines:
            if run := row["run"]:
                states[run.name] = MADE[run.origin]
            # A missing run is reported only if the notebook itself makes such runs. The
            # runs that it only looks up are shown where they exist.
            elif is_made:
                states[row["spec"].name] = row["state"]
                reasons[row["spec"].name] = row["error"] or how
        self.state_by_run_name |= states
        if not any("runs are missing" in line for line in self.shown_remarks):
            missing = f"of {len(states)} runs are missing"
            common = Counter(reasons.values()).most_common(3)
            self.show_remarks(f"{n} {missing}: {text}" for text, n in common)
        return frame

    def collect_runs(
        self,
        rows_or_grid_function: GridFunction | Sequence[Row],
        list_lookup_only_rows: Callable[[], Sequence[Row]] | None = None,
        transform_rows: Callable[[Sequence[Row]], Sequence[Row]] = list,
    ) -> Runs:
        """Return the results of a notebook's experiments, after executing missing runs.

        An experiment is a Row: the description of a run, with labels such as task,
        model and seed. The result, a Runs, has a table at the page's profile (size of
        the experiments, such as "toy"). On pages of the sizes toy and paper it has a
        second one at the profile mini, for comparison.
        Missing runs of the first table are executed if the notebook is run by hand; a
        command that makes pages has executed them before. Experiments of the second
        table are only looked up, never executed.

        rows_or_grid_function: the Rows of the first table, or a function that returns
        Rows for a profile and parameters of the notebook.
        list_lookup_only_rows: a function that returns the Rows of the second table,
        where `rows_or_grid_function` is no function. None for no second table.
        transform_rows: a function that replaces the Rows which the function
        `rows_or_grid_function` returned. For example, Rows of trained networks are
        replaced by those of the architecture searches that found them."""
        lookup_only_rows: Sequence[Row] = []
        if list_lookup_only_rows:
            lookup_only_rows = self.repeat_experiments_at_planned_seeds(
                list_lookup_only_rows(), "mini"
            )
        if callable(rows_or_grid_function):
            changes = notebook.list_changed_parameters(self.id, self.parameter_values)
            rows = plans.list_rows_to_run(
                rows_or_grid_function,
                self.profile,
                self.parameter_values,
                self.id,
                changes,
            )
            rows = transform_rows(
                self.repeat_experiments_at_planned_seeds(rows, self.profile)
            )
            for label, names in plans.read_label_values_left_out_at_profile(
                self.profile, self.id
            ).items():
                rest = f"{label} {', '.join(map(str, names))}"
                look = f"{self.profile[:]} is a first look, without rows of {rest}"
                self.show_remarks([f"{look}: seeds = [0] brings them."] * (not changes))
            if str(self.profile) in tables.WITH_MINI_RESULTS:
                mini_rows = rows_or_grid_function("mini")
                lookup_only_rows = transform_rows(
                    self.repeat_experiments_at_planned_seeds(mini_rows, "mini")
                )
        else:
            rows = rows_or_grid_function
        made = self.collect_result_frame(rows)
        recorded_frame = self.collect_result_frame(
            lookup_only_rows,
            if_missing="skip",
            # A page without runs of its own shows claims of many pages, each of which
            # tells its dtypes.
            shows_comparison_counts_by_dtype=bool(rows),
        )
        if len(made):
            display_text(
                "",
                PARTS.grid(
                    tabulate_finished_and_missing_seeds(made).to_html(
                        index=False, border=0
                    )
                ),
            )
        runs = Runs(made, recorded_frame, self.profile, self.id)
        if not self.custom_data_and_model_notes:
            self.show_remarks(list_score_caveats(runs))
            if self.profile == "toy" and not self.score_range_sentence:
                self.score_range_sentence = describe_score_range(
                    rows, made, self.profile
                )
        return runs

    def repeat_experiments_at_planned_seeds(
        self, rows: Sequence[Row], profile: ProfileName
    ) -> Sequence[Row]:
        """Return experiments, each repeated at the seeds that were planned for it.

        A committed plan fixes the seeds of each comparison that tests a paper's claim,
        so that tables, figures and tests rest on the same runs. Experiments (Rows) that
        no planned comparison uses keep their seed. All experiments stay unchanged where
        the user sets seeds, or brings data or a model.

        profile: size of the experiments. Only "mini" and "base" have planned seeds."""
        is_asked = (
            self.parameter_values.get("seeds") or self.custom_data_and_model_notes
        )
        return (
            rows if is_asked else repeat_rows_at_planned_seeds(self.id, profile, rows)
        )

    def show_table(
        self,
        frame: pd.DataFrame | tables.CellByRowAndColumn,
        caption: str,
        file_suffix: str = "",
        index_names: str | list[str] | None = None,
    ) -> None:
        """Show a table on the page and write it as a CSV file.

        Rows and columns without any value are dropped. If nothing is left, a sentence
        says that nothing is measured yet, and no file is written. The file has all
        columns. The page leaves out the paper's scores on tasks that were not measured,
        and scores on development rows alone
        (`lib.report.tables.put_printed_beside_measured_columns`).

        frame: a DataFrame, or {row: {column: value}}. Tuples as rows or columns make
        header levels.
        file_suffix: a suffix of the file's name, where a page has several tables.
        index_names: the name of the row index, or a list with a name for each of its
        levels."""
        if not isinstance(frame, pd.DataFrame):
            frame = compare.join_tables_by_row(frame, index_names=())
        frame = frame.rename_axis(index_names) if index_names and len(frame) else frame
        if self.custom_data_and_model_notes:
            caption = (
                f"{caption.removesuffix('.')}. {self.custom_data_and_model_notes[0]}"
            )
        rows = ", ".join(flatten_multiindex_labels(frame.index, " "))
        frame = frame.mask(frame.isin(["", "–", "not run"]))
        frame = frame.dropna(how="all").dropna(axis=1, how="all")
        if frame.empty:
            what = f"{caption}. Rows: {rows}" if rows else caption
            return display_text(f"Not measured yet: {escape_markdown_line(what)}.")
        text = frame.map(format_table_cell, na_action="ignore")
        stem = self._build_file_stem(file_suffix)
        shown, turned = put_printed_beside_measured_columns(text)
        flat = text.set_axis(flatten_multiindex_labels(text.columns, ", "), axis=1)
        self._write_file(f"{stem}.csv", flat.to_csv())
        html = table_to_html(shown.swaplevel(axis=1) if turned else shown, stem)
        light = table_to_markdown(
            shown.set_axis(flatten_multiindex_labels(shown.columns, ", "), axis=1)
        )
        opening = light_opening = caption
        if more := len(frame.columns) - len(shown.columns):
            several = f"{more} more columns" if more > 1 else "one more column"
            how = f"`python -m lib report {self.id} --profile {self.profile[:]}`"
            caption = caption.removesuffix(".")
            opening = f"{caption}. {stem}.csv, written with the page, has {several}"
            light_opening = f"{caption}. {how} writes it with {several}"
        display_text(
            f"*{escape_markdown_line(light_opening)}*\n\n{light}",
            PARTS.table(opening, html),
        )

    def show_remarks(
        self,
        remarks: Iterable[str],
        remark_prefix: str = "",
        collapsible_title: str = "",
    ) -> None:
        """Show remarks on the page as a bulleted list, such as warnings on numbers.

        A remark that the page already has is left out.

        remark_prefix: text before each remark.
        collapsible_title: title of a block that a reader unfolds to see the
        remarks; "" shows them openly."""
        remarks = [
            line for line in dict.fromkeys(remarks) if line not in self.shown_remarks
        ]
        self.shown_remarks |= {*remarks}
        text = "".join(
            f"- {escape_markdown_line(f'{remark_prefix}{line}')}\n" for line in remarks
        )
        if text and collapsible_title:
            summary = f"<summary>{escape_markdown_line(collapsible_title)}</summary>"
            text = f"<details>{summary}\n\n{text}\n</details>"
        display_text(text)

    def show_figure(
        self,
        figure: Figure,
        plotted_data: pd.DataFrame,
        file_suffix: str = "",
        hides_toy_scale_warning: bool = False,
    ) -> None:
        """Show a figure on the page; write it as SVG and PNG, and its data as CSV.

        The figure is closed. Without data a sentence says that nothing is measured yet,
        and no file is written. At the profile toy (tiny experiments) a line on the
        figure warns that its numbers are of toy scale, except on a user's own data or
        model.

        plotted_data: the numbers that the figure draws.
        file_suffix: a suffix of the files' names, where a page has several
        figures. If it contains "recorded", the figure shows results stored in the
        repository, and has no warning.
        hides_toy_scale_warning: whether the warning is left out, since the figure shows
        no results of training."""
        if plotted_data.dropna(how="all").empty:
            plt.close(figure)
            columns = escape_markdown_line(", ".join(map(str, plotted_data)))
            draws = f" It draws {columns}." if columns else ""
            return display_text(
                f"Not measured yet: the picture that belongs here.{draws}"
            )
        for axis in figure.axes:
            if axis.axison and not axis.has_data():
                axis.text(
                    0.5,
                    0.5,
                    "no run yet",
                    transform=axis.transAxes,
                    color="grey",
                    ha="center",
                    va="center",
                )
        stem = self._build_file_stem(file_suffix)
        if (
            self.profile == "toy"
            and not self.custom_data_and_model_notes
            and not hides_toy_scale_warning
            and "recorded" not in file_suffix
        ):
            remark = "toy scale, but for what is called recorded or published"
            figure.text(1, 1, remark, ha="right", va="bottom", color="grey", fontsize=9)
        if self.custom_data_and_model_notes:
            # A user's names may hold a $, which matplotlib would read as a formula.
            for text in figure.findobj(Text):
                text.set_parse_math(False)
        plot.wrap_long_texts(figure)
        svg = render_figure_svg(figure)
        self._write_file(f"{stem}.svg", svg)
        with disk.write_atomically(self.folder / f"{stem}.png") as place:
            figure.savefig(place, format="png", dpi=144, metadata={"Software": None})
        self.written_files.append(f"{stem}.png")
        self._write_file(f"{stem}.figure.csv", plotted_data.to_csv(index=False))
        title = escape_markdown_line(plot.make_svg_metadata_with_title(figure)["Title"])
        display_text(f"![{title}]({stem}.png)", render_figure_html(figure, svg))

    def show_live_figure(self, figure: "LiveFigure") -> None:
        """Show an interactive Plotly figure on the HTML page.

        The Markdown page, on which no script runs, has a sentence with the figure's
        title instead. A figure without traces (Plotly's sets of points) is not
        shown."""
        if figure.traces:
            display_text(
                f"*{figure.title}: on the live page alone.*", figure.figure_html
            )

    def show_forest_plot(
        self,
        estimates_by_row: plot.EstimateBySourceAndRow,
        printed_differences: plot.PrintedPointsByRow = (),
        axis_label: str = "difference (points)",
        file_suffix: str = "",
    ) -> None:
        """Show paired differences between models as a forest plot with printed values.

        It also keeps a sentence on each difference at the page's own profile, to be
        shown below the page's title. A difference without an Estimate (mean with 95 %
        interval) is left out, and so is its printed value. Where no difference is left,
        nothing is shown. Where no difference has the three seeds that an interval
        needs, a sentence replaces the figure, but not at the profile toy (tiny
        experiments).

        estimates_by_row: {(source, name of a row): Estimate or None}. The source tells
        where the numbers come from, such as "this run, toy".
        printed_differences: {name of a row: difference in points that a paper prints}.
        axis_label: what is subtracted from what, and the unit in brackets.
        file_suffix: a suffix of the files' names."""
        data = plot.make_forest_plot_data(estimates_by_row, printed_differences)
        if len(data):
            self.store_difference_sentences(
                estimates_by_row, axis_label.removesuffix(" (points)")
            )
            if self.profile == "toy" or data["low"].notna().any():
                return self.show_figure(
                    plot.draw_forest_plot(data, axis_label), data, file_suffix
                )
            text = plot.format_forest_plot_title(data, axis_label)
            display_text(f"No picture. {escape_markdown_line(text)}.")

    def store_difference_sentences(
        self, estimates_by_row: plot.EstimateBySourceAndRow, difference_label: str
    ) -> None:
        """Keep a sentence on each measured difference, for the text below the title.

        An example is "Ghost minus Prune, SST-2: +0.4 [−0.2, 1.1] points, 3 seeds." Only
        differences at the page's own profile (size of the experiments) get a sentence.

        estimates_by_row: {(source of the numbers, name of a row of a plot): Estimate or
        None}. The source ends with a profile, as in "this run, toy". An Estimate has
        the mean difference and its 95 % interval.
        difference_label: what is subtracted from what. In "Ghost minus another model",
        the name of the row, such as "Prune, SST-2", replaces "another model"."""
        method, is_named, _ = difference_label.rpartition(" another")
        start = f"{method} " if is_named else f"{difference_label}, "
        start = start[:1].upper() + start[1:]
        self.difference_sentences += [
            f"{start}{place}: {compare.format_estimate_with_interval(e, spells_out_units=True)}."
            for (source, place), e in estimates_by_row.items()
            if e and source.endswith(f", {self.profile}")
        ]

    def _build_file_stem(self, suffix: str) -> str:
        return f"{self.id}.{suffix}" if suffix else self.id

    def _write_file(self, file_name: str, text: str) -> None:
        disk.write_text_file(self.folder / file_name, paths.hide_local_paths(text))
        self.written_files.append(file_name)

    def show_verdicts_and_write_json(
        self,
        further_verdicts: Iterable[Verdict] = (),
        *deviations_from_paper_by_profile: Mapping[ProfileName, Sequence[str]],
        claim_ids: Iterable[str] | None = None,
        answer_sentences: Iterable[str] = (),
        opening_sentences: Iterable[str] = (),
    ) -> None:
        """Show the tested claims and the deviations from the papers; write a JSON file.

        Each notebook calls it in its cell tagged "verdicts"; cells for widgets may
        follow. A claim is a statement of a paper. Its comparisons are measured on runs,
        and each gets an outcome such as "agrees". The tested claims are those that name
        the notebook in `claims.csv`, unless all their comparisons are counted under
        other claims. At the profile toy (tiny experiments) they are tested on results
        at the profile mini instead, which are stored in the repository. On a user's own
        data or model none is tested, and the page names these data instead. The JSON
        file has the page's answer, runs, claims and files, for the index of pages.

        further_verdicts: Verdicts (claims with their outcomes) that the notebook itself
        computes, shown beside the tested ones.
        deviations_from_paper_by_profile: {profile: sentences on how its runs differ
        from the paper}, one dict for each paper.
        claim_ids: the ids of the claims to test, in place of those that name the
        notebook.
        answer_sentences: sentences that answer the page's question. Without them the
        answer is made from the tested claims and the differences that the page draws.
        The answer stands below the title, and a command prints its first sentence at
        the end.
        opening_sentences: sentences before the answer, where the page's question is not
        that of its claims."""
        profile = self.profile[:]
        if claim_ids is None:
            claim_ids = source.list_notebook_claim_ids(self.id, profile)
        if self.custom_data_and_model_notes:
            claim_ids = further_verdicts = ()
            deviations_from_paper_by_profile = (
                {profile: self.custom_data_and_model_notes},
            )
        scale = source.SCALE if profile == "toy" else profile
        verdicts = [
            *source.judge_claims(claim_ids, profile=scale).values(),
            *further_verdicts,
        ]
        judged = [scale] * any(verdict.kind == "finding" for verdict in verdicts)
        opening = f"Recorded at {scale}: " * (scale != profile)
        differences = {
            name: [
                line
                for lines in deviations_from_paper_by_profile
                for line in lines.get(name, ())
            ]
            for name in [*judged, profile]
        }
        counted = Counter(
            how for how in self.state_by_run_name.values() if how in MADE.values()
        )
        body = {
            "id": self.id,
            "profile": profile,
            "differs": list(self.changes_to_notebook),
            "parameters": self.parameter_values,
            "answer": self.put_toy_result_before_summary(
                [
                    *opening_sentences,
                    *(
                        list(answer_sentences)
                        or list_main_result_sentences(
                            verdicts, self.difference_sentences, scale, opening
                        )
                    ),
                ]
            )
            + list_training_setup_sentences(verdicts, scale),
            "counts": format_verdict_counts(verdicts),
            "counted": ", ".join(f"{n} {how}" for how, n in counted.items())
            or ("none" if self.state_by_run_name else "none of its own"),
            "runs": self.state_by_run_name,
            "records": source.digest_results_shown_by_notebook(self.id)
            if profile in source.SCALES
            else "",
            "verdicts": list(map(convert_verdict_to_json, verdicts)),
            "deviations": differences,
            "files": list(dict.fromkeys(self.written_files)),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        } | read_commit_hash_as_dict()
        self._write_file(
            f"{self.id}.json", json.dumps(body, indent=1, ensure_ascii=False) + "\n"
        )
        display_text(
            END.render(
                body,
                judged=judged,
                folder=paths.format_project_path(self.folder),
            )
        )
        if not os.environ.get(notebook.BATCH):
            site.write_page_index_of_profile(profile)

    def put_toy_result_before_summary(self, answer_sentences: list[str]) -> list[str]:
        """Put a result of a page's own runs before its answer, at the profile toy.

        Return the new answer, the sentences below the title. At toy (tiny experiments)
        the given answer comes from larger experiments, whose results are stored in the
        repository, while a user wants to see a result of the runs that were just made.
        This result is the first difference that the page draws, or else the range of
        its scores. On a user's own data or model the answer gets no such result. If
        none of the page's runs exists, a sentence at the start says so, at any profile.

        answer_sentences: the answer so far."""
        if self.state_by_run_name and not {*self.state_by_run_name.values()} & {
            *MADE.values()
        }:
            why = f"none of its {len(self.state_by_run_name)} runs is there"
            nothing = (
                f"No comparison of this page is measured at {self.profile}: {why}."
            )
            answer_sentences = [
                nothing,
                *(line for line in answer_sentences if "is measured at" not in line),
            ]
        first = [*self.difference_sentences, self.score_range_sentence][0].removesuffix(
            "."
        )
        if self.profile != "toy" or self.custom_data_and_model_notes or not first:
            return answer_sentences
        first, one, _ = first.partition(", 1 seed")
        scale = "toy, one seed" if one else "toy"
        opening = f"{first} ({scale}: shows how, proves nothing)."
        return [
            opening,
            *(
                line
                for line in answer_sentences
                if line not in self.difference_sentences
            ),
        ]


def describe_score_range(
    grid_rows: Sequence[Row], runs_frame: pd.DataFrame, profile: ProfileName
) -> str:
    """Return a sentence on the lowest and the highest score, for a page's answer.

    The answer is the sentences below the title of a notebook's HTML page. An example is
    "6 scores lie between 51.2 (Prune, seed 0) and 83.1 (Ghost, seed 1) points, 2
    seeds." In brackets are the labels in which the two experiments differ. The sentence
    is "" for fewer than two scores.

    grid_rows: experiments (Rows) with labels such as model and seed.
    runs_frame: their results, a line for each run (`collect_results`).
    profile: size of the experiments, such as "toy"."""
    columns_by_task = grids.select_metrics_by_task(profile)
    if "task" not in runs_frame:
        return ""
    scored = compare.tabulate_scores_by_run_and_metric(
        runs_frame[runs_frame["task"].isin(columns_by_task)], columns_by_task
    )
    scored = scored.dropna(subset="score").sort_values("score")
    labels = dict.fromkeys(chain.from_iterable(row.labels for row in grid_rows))
    if len(scored) < 2:
        return ""
    ends = scored.iloc[[0, -1]]
    texts = []
    apart = [name for name in labels if ends[name].nunique() > 1]
    for row in ends.to_dict("records"):
        names = filter(None, (format_row_label(row, name) for name in apart))
        texts.append(f"{row['score']:.1f} ({', '.join(names)})")
    count = scored["seed"].nunique()
    between = f"{len(scored)} scores lie between {' and '.join(texts)}"
    if ends["score"].nunique() == 1:
        between = f"all {len(scored)} scores are {ends['score'].iloc[0]:.1f}"
    return f"{between} points, {count} seed{'s' * (count != 1)}."


def format_row_label(value_by_label: Mapping[Any, Any], label_name: str) -> str:
    """Return a label of an experiment in words, such as "seed 3" or "task CoLA".

    The name of a model stands alone. The label "m" (number of kept attention heads) is
    "3/12 of the width" in words, or "" where it is 0, which marks an unpruned model.

    value_by_label: {label: value} of the experiment."""
    if label_name == "m":
        return (
            f"{format_kept_head_fraction(value_by_label)} of the width"
            if value_by_label["m"]
            else ""
        )
    if label_name == "model":
        return str(value_by_label["model"])
    return f"{label_name} {value_by_label[label_name]}"


def list_score_caveats(runs: Runs) -> list[str]:
    """Return sentences that warn a page's readers of scores that can mislead.

    They name seeds whose score, in the metric by which the paper's claims are tested,
    lies far from the median of their model. For sentence similarity (STS-B) they also
    give the correlation that the encoder reaches without fine-tuning, since a
    fine-tuned model owes that much of its score to pretraining.
    Only results at the profiles mini and base (sizes of the experiments) are examined.

    runs: the results of a notebook's experiments."""
    lines = []
    for _, frame, profile in runs.result_frames_with_source:
        if str(profile) in source.SCALES and len(frame):
            printed = source.list_metric_columns_of_claims(
                find_paper_name_of_notebook(runs.notebook_id)
            )
            lines += compare.describe_outlying_seeds(
                frame, grids.select_metrics_by_task(profile, printed)
            )
            tasks = set(frame["task"]) if "task" in frame else set()
            for row in lists.read_csv_in_published_folder("untouched"):
                where = row["profile"], row["split"]
                if where == (str(profile), "dev") and row["task"] in tasks:
                    lines.append(
                        f"{row['task']}: the cosine of the mean vectors of {row['checkpoint']}, "
                        f"untouched, has a Spearman of {row['spearman']} and a Pearson of "
                        f"{row['pearson']} on the {int(row['rows']):,} development rows. So "
                        "a difference there may show how well training keeps what the encoder knew"
                    )
    return lines


def open_page(notebook_id: str, notebook_globals: dict[str, Any]) -> Page:
    """Open the Page by which a notebook shows its results and writes its files.

    Every notebook calls it in its second code cell. It checks the notebook's
    parameters, chooses the folder for files, and sets the style of figures. It sets the
    notebook's variable `profile` (size of the experiments) to `Page.profile`.
    Raises Refused, a ValueError, for a parameter that is misspelt, of the wrong type or
    out of range.

    notebook_globals: the globals() of the notebook."""
    plot.set_figure_style()
    path = notebook.find_notebook_path(notebook_id)
    names = [
        *notebook.read_parameter_declarations(path),
        *notebook.list_parameters_set_by_papermill(notebook_globals.get("In", [])),
    ]
    given = {name: notebook_globals[name] for name in names if name in notebook_globals}
    values = notebook.check_and_complete_parameter_values(path, given)
    batch = os.environ.get(notebook.BATCH)
    folder, differs, *backend_and_workers = (
        json.loads(batch)
        if batch
        else notebook.find_notebook_page_folder(path, values, is_run_by_hand=True)
    )
    page = Page(notebook_id, values, Path(folder), differs)
    if backend_and_workers:
        page.backend, page.workers = backend_and_workers
    if not batch:
        place = paths.hide_local_paths(paths.format_project_path(folder))
        page.show_remarks([f"An experiment, in {place}.", *differs])
    notebook_globals["profile"] = page.profile
    return page


def render_figure_svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG file, to write it or to put it into a page.

    The file has a title for readers who cannot see the figure, and no date, so that
    equal figures give equal text."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata=plot.make_svg_metadata_with_title(figure)
    )
    return buffer.getvalue()


def display_figure(figure: Figure) -> None:
    """Show a matplotlib figure as output of the running notebook cell, and close it.

    The HTML page gets it as inline SVG. The Markdown page, which shows pictures of
    `Page.show_figure` alone, lacks it."""
    display_text("", render_figure_html(figure))


def render_figure_html(figure: Figure, rendered_svg: str | None = None) -> str:
    """Return a figure as HTML with an inline SVG, and close it.

    rendered_svg: the figure as SVG, if it was rendered before."""
    _, _, image = (rendered_svg or render_figure_svg(figure)).partition("<svg")
    wide = ' class="wide" tabindex="0"' if figure.get_figwidth() > 8 else ""
    plt.close(figure)
    return f'<figure{wide}><svg role="img"{image}</figure>'


def explore_with_widgets(
    draw_figure: Callable[..., Figure | None],
    argument_with_static_pictures: str | None = None,
    **widget_by_argument: Any,
) -> None:
    """Let a user change the arguments of a drawing function by widgets in JupyterLab.

    An HTML page cannot call the function again, so it has one picture. In it each
    argument has its default value in the function or, without a default, the first
    value of its widget. A Markdown page has no picture. Nothing is shown where a widget
    has an empty list of values.

    draw_figure: it returns the figure, or None if it only prints.
    argument_with_static_pictures: an argument whose widget is a list of values.
    An HTML page then has one picture for each value, and the reader chooses among them
    without a kernel or a script. With None it has the one picture above.
    widget_by_argument: {argument of `draw_figure`: its widget, in a form that
    ipywidgets.interact takes}, such as a list of values or (lowest, highest)."""

    @wraps(draw_figure)
    def show_result(**arguments: Any) -> None:
        if figure := draw_figure(**arguments):
            display_figure(figure)

    if [] in widget_by_argument.values():
        return
    if can_show_widgets():
        import ipywidgets

        ipywidgets.interact(show_result, **widget_by_argument)
        return
    chosen = {
        name: widget_by_argument[name][0] if p.default is p.empty else p.default
        for name, p in signature(draw_figure).parameters.items()
    }
    if not argument_with_static_pictures:
        return show_result(**chosen)
    pictures = {}
    for number, value in enumerate(widget_by_argument[argument_with_static_pictures]):
        if figure := draw_figure(**chosen | {argument_with_static_pictures: value}):
            prefix = rf"\g<0>{draw_figure.__name__}{number}-"
            pictures[value] = SVG_NAME.sub(prefix, render_figure_html(figure))
    display_text(
        "",
        PARTS.choice(
            draw_figure.__name__,
            argument_with_static_pictures,
            pictures,
            chosen[argument_with_static_pictures],
        ),
    )


CHOICE = """## Choose what the others are compared with

Each model minus the chosen one, whatever its width: paired differences with their 95 %
intervals over seeds and rows. They are of the runs above, so nothing is trained."""


def explore_score_differences_from_baseline(
    runs: Runs,
    printed_columns: Sequence[MetricColumn] = (),
    model_word_in_axis_label: str = "model",
) -> None:
    """Let a user of JupyterLab choose a baseline, and plot all models minus it.

    The drawing is a forest plot of score differences on one task, paired by seed, with
    95 % intervals. It rests on finished runs, so nothing is trained. Outside
    JupyterLab, and with fewer than two models, nothing is shown.

    runs: the results of a notebook's experiments.
    printed_columns: metrics that the paper's table prints. A task that has no metric
    there is scored by its first metric.
    model_word_in_axis_label: how the axis label calls a model on this page."""

    def draw_differences_from_baseline(task: str, baseline: str) -> Figure | None:
        gaps = runs.estimate_differences_from_baseline(
            baseline, printed_columns
        ).items()
        data = plot.make_forest_plot_data(
            {place: gap for place, gap in gaps if place[1].endswith(f", {task}")}
        )
        if len(data):
            label = f"score minus that of the {model_word_in_axis_label} {baseline} (points)"
            return plot.draw_forest_plot(data, label)
        display_text(
            f"On {task} nothing can be compared with {escape_markdown_line(baseline)}."
        )

    if not can_show_widgets():
        return
    finished = runs.finished_runs_frame
    names = list(split_frame_by_model(finished))
    if len(names) > 1:
        display_text(CHOICE)
        explore_with_widgets(
            draw_differences_from_baseline,
            task=list(finished["task"].unique()),
            baseline=names,
        )


def can_show_widgets() -> bool:
    """Return whether a reader has this notebook open in JupyterLab, so that widgets
    work."""
    return not os.environ.get(notebook.BATCH) and paths.is_in_jupyter_lab()
