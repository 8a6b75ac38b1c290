"""This module is what a notebook calls to make runs, show tables and figures, and write
them to files.

    page = artefact.open_page("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.collect_runs(grid, recorded)
    page.show_table(frame, "Table 3"); page.show_figure(figure, data)
    page.show_verdicts_and_write_json()

A figure is written to `figures/<profile>/<id>.{svg,png}`, and the data that it draws to
`<id>.figure.csv`. A table is written to `<id>.csv`. `<id>.json` says which runs were
used, by which code and when. A table or figure without runs is replaced by a sentence.
Notebooks with changed parameters or cells are experiments, and write to folders of
their own below `figures/scratch/` (lib.claims.notebook.find_notebook_page_folder)."""

import io
import json
import os
import re
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

from lib.claims import judging as source
from lib.claims import lists, notebook
from lib.claims import planned as plans
from lib.claims.seeds import add_planned_seeds
from lib.claims.words import Verdict
from lib.cluster import sweep
from lib.core import disk, paths
from lib.core.execute import read_git_commit_entry
from lib.core.rows import Row, format_model_width
from lib.core.store import Store
from lib.core.types import Json
from lib.papers import grids
from lib.report import plot, site
from lib.report.tables import (
    Runs,
    arrange_columns_for_page,
    collect_results,
    escape_markdown_line,
    format_table_cell,
    join_name_levels,
    table_to_html,
    table_to_markdown,
    tabulate_run_labels,
)
from lib.report.verdicts import (
    ENVIRONMENT,
    convert_verdict_to_json,
    format_verdict_counts,
    list_answer_sentences,
)
from lib.stats import compare
from lib.stats.compare import Column

if TYPE_CHECKING:
    from lib.report.explore import LiveFigure

ENVIRONMENT.filters["escaped"] = escape_markdown_line
PARTS: Any = ENVIRONMENT.get_template("parts.html.j2").module
END = ENVIRONMENT.get_template("end.md.j2")
# Matches ids in an SVG file and references to them. Pictures on one page need different
# ids, as a browser does not resolve those of a hidden picture.
SVG_NAME = re.compile(r'\bid="|url\(#|href="#')
# {origin of a run: how a page calls it}.
MADE = {"run": "made here", "record": "recorded"}


def display_text(markdown: str, html_text: str = "") -> None:
    """Show Markdown as an output of the notebook; the Markdown page
    (lib.report.builder) has it too.

    html_text: the same content for HTML pages, where Markdown is not enough."""
    forms = {"text/markdown": paths.hide_local_paths(markdown), "text/html": html_text}
    if forms := {kind: text for kind, text in forms.items() if text}:
        display(forms, raw=True)


@dataclass
class Page:
    """A Page is an open notebook with its parameters, the runs that it used and the
    files that it wrote.

    Notebooks create one with `open_page` and show all their results through it."""

    id: str
    values: Json
    folder: Path
    # Sentences on how the notebook differs from the committed one; none for a standard
    # page.
    differs: Sequence[str] = ()
    # {name of a run: how it was made, or why it is missing}.
    used: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    # Remarks that were shown, so that none is shown twice.
    noted: set[str] = field(default_factory=set)
    # Sentences on the differences between models that the page draws at its own
    # profile.
    sentences: list[str] = field(default_factory=list)
    ends: str = ""  # Sentence on the range of the scores of the page's runs.

    @cached_property
    def reader_profile(self) -> str:
        """Return the page's profile (scale of the runs), with the reader's own data and
        model if any. Grids are listed for it."""
        return grids.find_profile_of_parameters({"profile": "toy"} | self.values)

    @property
    def reader_input_sentences(self) -> list[str]:
        """Return sentences on the reader's own data and model; [] for the papers' data
        and models."""
        return grids.format_reader_sentences(self.reader_profile)

    def collect_frame(
        self, rows: Sequence[Row], if_missing: Literal["run", "skip", "make"] = "run"
    ) -> pd.DataFrame:
        """Return the collected frame of a grid's rows: their labels, runs and metrics.

        Missing runs are made here, unless a command makes the page, which made them
        before. The page says why a run is still missing.

        if_missing: "run"; "skip" to make no run and to report none as missing; or
        "make" to make them here in any case, where earlier results decide which runs
        are needed."""
        lost, specs = {}, [row.spec for row in rows]
        is_made = if_missing != "skip"
        if if_missing == "make" or is_made and not os.environ.get(notebook.BATCH):
            if todo := Store().list_missing_specs(specs):
                clock = sweep.TimeForecast(
                    Store(), grids.make_run_time_estimator(self.reader_profile)
                )
                work = sweep.describe_missing_runs(todo, clock)
                self.show_remarks(
                    [f"{work}. What is made stays when you interrupt it."]
                )
                lost = sweep.execute_specs(specs, time_forecast=clock)
        frame = collect_results(rows, failure_reason_by_spec=lost)
        if self.reader_input_sentences and not is_made:
            # A page on a reader's own data tests no claims, so these runs are not
            # counted.
            return frame
        lines: Any = frame.to_dict("records")
        self.show_remarks(compare.describe_dtypes(lines))
        states, reasons = {}, {}
        command = notebook.format_notebook_run_command(self.id, self.reader_profile)
        how = f"not made yet: `{command}` makes what is missing"
        for row in lines:
            if run := row["run"]:
                states[run.name] = MADE[run.origin]
            elif is_made:  # Runs that are only looked up are not reported as missing.
                states[row["spec"].name] = row["state"]
                reasons[row["spec"].name] = row["error"] or how
        self.used |= states
        if not any("runs missing" in line for line in self.noted):
            missing = f"of {len(states)} runs missing"
            common = Counter(reasons.values()).most_common(3)
            self.show_remarks(f"{n} {missing}: {text}" for text, n in common)
        return frame

    def collect_runs(
        self,
        rows_or_grid: Callable[..., list[Row]] | Sequence[Row],
        recorded_rows: Callable[[], list[Row]] | Sequence[Row] = (),
        transform_rows: Callable[[Sequence[Row]], Sequence[Row]] = list,
    ) -> Runs:
        """Return the results of a grid as Runs, after making the missing runs.

        rows_or_grid: rows, or a function from a profile and the page's parameters to
        rows. A function also gives the rows at mini, whose runs are only looked up.
        recorded_rows: rows at mini whose runs are only looked up, or a function that
        lists them, where `rows_or_grid` is no function.
        transform_rows: a function from the grid's rows to other rows, such as those of
        the searches that found the networks."""
        if callable(rows_or_grid):
            changes = notebook.list_changed_parameters(self.id, self.values)
            rows = plans.list_rows_to_run(
                rows_or_grid, self.reader_profile, self.values, self.id, changes
            )
            for label, names in plans.read_omitted_values_by_label(
                self.reader_profile, self.id
            ).items():
                rest = f"{label} {', '.join(map(str, names))}"
                look = (
                    f"{self.reader_profile[:]} is a first look, without rows of {rest}"
                )
                self.show_remarks([f"{look}: seeds = [0] brings them."] * (not changes))
            recorded_rows = transform_rows(
                self.add_rows_at_planned_seeds(rows_or_grid("mini"), "mini")
            )
            rows_or_grid = transform_rows(
                self.add_rows_at_planned_seeds(rows, self.reader_profile)
            )
        elif callable(recorded_rows):
            recorded_rows = recorded_rows()
        made = self.collect_frame(rows_or_grid)
        recorded_frame = self.collect_frame(
            self.add_rows_at_planned_seeds(recorded_rows, "mini"), if_missing="skip"
        )
        if len(made):
            display_text(
                "", PARTS.grid(tabulate_run_labels(made).to_html(index=False, border=0))
            )
        runs = Runs(made, recorded_frame, self.reader_profile, self.id)
        if not self.reader_input_sentences:
            self.show_remarks(list_caveats(runs))
            if self.reader_profile == "toy" and not self.ends:
                self.ends = describe_score_range(
                    rows_or_grid, made, self.reader_profile
                )
        return runs

    def add_rows_at_planned_seeds(
        self, rows: Sequence[Row], profile: str
    ) -> Sequence[Row]:
        """Return the rows of a grid at the seeds that are planned for the page's
        comparisons.

        A reader who sets seeds, or brings data or a model, gets the rows unchanged."""
        is_asked = self.values.get("seeds") or self.reader_input_sentences
        return rows if is_asked else add_planned_seeds(self.id, profile, rows)

    def show_table(
        self,
        frame: pd.DataFrame | Mapping[Any, Mapping[Any, Any]],
        caption: str,
        name: str = "",
        index: str | list[str] | None = None,
    ) -> None:
        """Show and write a table without its empty rows and columns.

        An empty table is replaced by a sentence. The file may have more columns than
        the page (`lib.report.tables.arrange_columns_for_page`).

        frame: a DataFrame, or {row: {column: value}}. Tuples as rows or columns make
        levels.
        name: a suffix of the file's name, where a page has several tables.
        index: the name of the row index, or a list with a name for each of its
        levels."""
        if not isinstance(frame, pd.DataFrame):
            frame = compare.join_tables_by_row(frame, index_names=())
        frame = frame.rename_axis(index) if index and len(frame) else frame
        if self.reader_input_sentences:
            caption = f"{caption.removesuffix('.')}. {self.reader_input_sentences[0]}"
        rows = ", ".join(join_name_levels(frame.index, " "))
        frame = frame.mask(frame.isin(["", "–", "not run"]))
        frame = frame.dropna(how="all").dropna(axis=1, how="all")
        if frame.empty:
            what = f"{caption}. Rows: {rows}" if rows else caption
            return display_text(f"Not measured yet: {escape_markdown_line(what)}.")
        text = frame.map(format_table_cell, na_action="ignore")
        stem, (shown, turned) = (
            self._build_file_stem(name),
            arrange_columns_for_page(text),
        )
        flat = text.set_axis(join_name_levels(text.columns, ", "), axis=1)
        self._write_file(f"{stem}.csv", flat.to_csv())
        html = table_to_html(shown.swaplevel(axis=1) if turned else shown, stem)
        light = table_to_markdown(
            shown.set_axis(join_name_levels(shown.columns, ", "), axis=1)
        )
        opening = light_opening = caption
        if more := len(frame.columns) - len(shown.columns):
            several = f"{more} more columns" if more > 1 else "one more column"
            how = f"`python -m lib report {self.id} --profile {self.reader_profile[:]}`"
            caption = caption.removesuffix(".")
            opening = f"{caption}. {stem}.csv, written with the page, has {several}"
            light_opening = f"{caption}. {how} writes it with {several}"
        display_text(
            f"*{escape_markdown_line(light_opening)}*\n\n{light}",
            PARTS.table(opening, html),
        )

    def show_remarks(
        self, remarks: Iterable[str], prefix_of_each: str = "", folded_title: str = ""
    ) -> None:
        """Show remarks as a list, each once on a page.

        prefix_of_each: text before each remark.
        folded_title: title of a folded block for the remarks; "" shows them openly."""
        remarks = [line for line in dict.fromkeys(remarks) if line not in self.noted]
        self.noted |= {*remarks}
        text = "".join(
            f"- {escape_markdown_line(f'{prefix_of_each}{line}')}\n" for line in remarks
        )
        if text and folded_title:
            summary = f"<summary>{escape_markdown_line(folded_title)}</summary>"
            text = f"<details>{summary}\n\n{text}\n</details>"
        display_text(text)

    def show_figure(
        self,
        figure: Figure,
        data: pd.DataFrame,
        name: str = "",
        rests_on_no_runs: bool = False,
    ) -> None:
        """Show a figure and write it with its data; without data, show a sentence.

        On a page at the profile toy the figure has a line that warns of it.

        name: a suffix of the files' names, where a page has several figures.
        rests_on_no_runs: whether the figure needs no such line, since it rests on
        no runs."""
        if data.dropna(how="all").empty:
            plt.close(figure)
            return display_text(
                f"Not measured yet: a figure of {escape_markdown_line(', '.join(map(str, data)))}."
            )
        for axis in figure.axes:
            if axis.axison and not axis.has_data():
                axis.text(
                    0.5, 0.5, "no run yet", transform=axis.transAxes, **plot.CENTRE
                )
        stem = self._build_file_stem(name)
        if (
            self.reader_profile == "toy"
            and not self.reader_input_sentences
            and not rests_on_no_runs
            and "recorded" not in name
        ):
            remark = "toy scale, but for what is called recorded or published"
            figure.text(1, 1, remark, ha="right", va="bottom", color="grey", fontsize=9)
        plot.wrap_long_texts(figure)
        svg = render_figure_svg(figure)
        self._write_file(f"{stem}.svg", svg)
        with disk.write_atomically(self.folder / f"{stem}.png") as place:
            figure.savefig(place, format="png", dpi=144, metadata={"Software": None})
        self.files.append(f"{stem}.png")
        self._write_file(f"{stem}.figure.csv", data.to_csv(index=False))
        display_figure(figure, f"{stem}.png", svg)

    def show_live_figure(self, figure: "LiveFigure") -> None:
        """Show an interactive figure on the HTML page; the Markdown page has a sentence
        instead."""
        if figure.traces:
            display_text(
                f"*{figure.title}: on the live page alone.*", figure.figure_html
            )

    def show_forest_plot(
        self,
        estimates_by_row: plot.EstimatesByRow,
        printed_differences: plot.DifferencesByRow = (),
        axis_label: str = "difference (points)",
        name: str = "",
    ) -> None:
        """Show paired differences as a forest plot with printed values
        (`plot.draw_forest`).

        A comparison without an Estimate is left out, so no figure has printed numbers
        alone. Without any interval a sentence replaces the figure, except at the
        profile toy.

        axis_label: what is subtracted from what, and the unit in brackets.
        name: a suffix of the files' names."""
        data = plot.make_forest_plot_data(estimates_by_row, printed_differences)
        if len(data):
            self.add_difference_sentences(
                estimates_by_row, axis_label.removesuffix(" (points)")
            )
            if self.reader_profile == "toy" or data["low"].notna().any():
                return self.show_figure(plot.draw_forest(data, axis_label), data, name)
            names, place = plot.shorten_row_names(data["at"])
            text = plot.format_forest_plot_title(
                data.replace({"at": names}), axis_label, place
            )
            display_text(f"No picture. {escape_markdown_line(text)}.")

    def add_difference_sentences(
        self, estimates_by_row: plot.EstimatesByRow, difference_label: str
    ) -> None:
        """Keep sentences on the differences at the page's own profile, for the page's
        answer.

        difference_label: what is subtracted from what."""
        method, is_named, _ = difference_label.rpartition(" another")
        start = f"{method} " if is_named else f"{difference_label}, "
        start = start[:1].upper() + start[1:]
        self.sentences += [
            f"{start}{place}: {compare.format_estimate_with_interval(e, is_in_sentence=True)}."
            for (source, place), e in estimates_by_row.items()
            if e and source.endswith(f", {self.reader_profile}")
        ]

    def _build_file_stem(self, suffix: str) -> str:
        return f"{self.id}.{suffix}" if suffix else self.id

    def _write_file(self, file_name: str, text: str) -> None:
        disk.write_text_file(self.folder / file_name, paths.hide_local_paths(text))
        self.files.append(file_name)

    def show_verdicts_and_write_json(
        self,
        further_verdicts: Iterable[Verdict] = (),
        *deviations_by_profile: Mapping[str, Sequence[str]],
        claim_ids: Iterable[str] | None = None,
        answer_sentences: Iterable[str] = (),
    ) -> None:
        """Show the tested claims and the deviations from the papers, and write the
        page's JSON. Each notebook ends with it.

        The claims are those that name the notebook (`lib.claims.judging`). On a toy
        page they are tested on recorded runs at mini. A page on a reader's own data or
        model tests none, and names these data instead.

        further_verdicts: Verdicts on printed numbers that the notebook itself computes.
        deviations_by_profile: {profile: sentences on how its runs differ from the
        paper}, one dict for each paper.
        claim_ids: the ids of the claims to test, in place of those that name the
        notebook.
        answer_sentences: sentences that answer the page's question, where its claims do
        not. They stand below its title, and a command prints them at its end."""
        names = source.list_notebook_claims(self.id) if claim_ids is None else claim_ids
        profile = self.reader_profile[:]
        if self.reader_input_sentences:
            names, further_verdicts, deviations_by_profile = (
                (),
                (),
                ({profile: self.reader_input_sentences},),
            )
        scale = source.SCALE if profile == "toy" else profile
        verdicts = [
            *source.judge_claims(names, profile=scale).values(),
            *further_verdicts,
        ]
        judged = [scale] * any(verdict.kind == "finding" for verdict in verdicts)
        opening = f"Recorded at {scale}: " * (scale != profile)
        differences = {
            name: [*chain(*(lines.get(name, ()) for lines in deviations_by_profile))]
            for name in [*judged, profile]
        }
        counted = Counter(how for how in self.used.values() if how in MADE.values())
        body = {
            "id": self.id,
            "profile": profile,
            "differs": list(self.differs),
            "parameters": self.values,
            "answer": self.add_own_number_to_answer(
                list(answer_sentences)
                or list_answer_sentences(verdicts, self.sentences, scale, opening)
            ),
            "counts": format_verdict_counts(verdicts),
            "counted": ", ".join(f"{n} {how}" for how, n in counted.items())
            or ("none" if self.used else "none needed"),
            "runs": self.used,
            "records": source.digest_notebook_records(self.id)
            if profile in source.SCALES
            else "",
            "verdicts": list(map(convert_verdict_to_json, verdicts)),
            "deviations": differences,
            "files": list(dict.fromkeys(self.files)),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        } | read_git_commit_entry()
        self._write_file(f"{self.id}.json", json.dumps(body, indent=1) + "\n")
        display_text(
            END.render(body, judged=judged, folder=paths.format_path(self.folder))
        )
        if not os.environ.get(notebook.BATCH):
            site.write_profile_index(self.reader_profile[:])

    def add_own_number_to_answer(self, answer_sentences: list[str]) -> list[str]:
        """Return the sentences that answer the page's question; on a toy page, the
        first is a number of its own runs.

        That number is the first difference that the page draws, or else the range of
        its scores.

        answer_sentences: the answer so far, which a toy page takes from runs at
        mini."""
        if self.used and not {*self.used.values()} & {*MADE.values()}:
            why = f"none of its {len(self.used)} runs is there"
            nothing = f"No comparison of this page is measured at {self.reader_profile}: {why}."
            answer_sentences = [
                nothing,
                *(line for line in answer_sentences if "is measured at" not in line),
            ]
        first = [*self.sentences, self.ends][0].removesuffix(".")
        if self.reader_profile != "toy" or self.reader_input_sentences or not first:
            return answer_sentences
        first, one, _ = first.partition(", 1 seed")
        scale = "toy, one seed" if one else "toy"
        opening = f"{first} ({scale}: shows how, proves nothing)."
        return [
            opening,
            *(line for line in answer_sentences if line not in self.sentences),
        ]


def describe_score_range(
    grid_rows: Sequence[Row], frame: pd.DataFrame, profile: str
) -> str:
    """Return a sentence on the lowest and the highest score of a collected frame.

    It names the labels in which their two rows differ. It is "" for fewer than two
    scores."""
    columns_by_task = grids.list_columns_by_task(profile)
    if "task" not in frame:
        return ""
    scored = compare.list_scores_in_points(
        frame[frame["task"].isin(columns_by_task)], columns_by_task
    )
    scored = scored.dropna(subset="score").sort_values("score")
    labels = dict.fromkeys(chain.from_iterable(row.labels for row in grid_rows))
    if len(scored) < 2:
        return ""
    ends, texts = scored.iloc[[0, -1]], []
    apart = [name for name in labels if ends[name].nunique() > 1]
    for row in ends.to_dict("records"):
        names = filter(None, (describe_row_label(row, name) for name in apart))
        texts.append(f"{row['score']:.1f} ({', '.join(names)})")
    count = scored["seed"].nunique()
    seeds = "1 seed" if count == 1 else f"{count} seeds"
    between = f"{len(scored)} scores lie between {' and '.join(texts)}"
    if ends["score"].nunique() == 1:
        between = f"all {len(scored)} scores are {ends['score'].iloc[0]:.1f}"
    return f"{between} points, {seeds}."


def describe_row_label(row: Mapping[Any, Any], label_name: str) -> str:
    """Return a row's label in words, such as "seed 3"; "" for the width of an unpruned
    model."""
    if label_name == "m":
        return f"{format_model_width(row)} of the width" if row["m"] else ""
    return (
        str(row[label_name])
        if label_name == "model"
        else f"{label_name} {row[label_name]}"
    )


def list_caveats(runs: Runs) -> list[str]:
    """Return sentences that warn a reader of the scores of recorded runs on a page.

    They name seeds that score far from the others, and tasks that the pretrained
    encoder already solves without training."""
    lines = []
    for _, frame, profile in runs.source_frames:
        if str(profile) in source.SCALES and len(frame):
            lines += compare.describe_outlying_seeds(
                frame, grids.list_columns_by_task(profile)
            )
            tasks = set(frame["task"]) if "task" in frame else set()
            for row in lists.read_csv_in_published_folder("untouched"):
                where = row["profile"], row["split"]
                if where == (str(profile), "dev") and row["task"] in tasks:
                    lines.append(
                        f"{row['task']}: the cosine of the mean vectors of {row['checkpoint']}, "
                        f"untouched, has a Spearman of {row['spearman']} and a Pearson of "
                        f"{row['pearson']} on the {int(row['rows']):,} development rows"
                    )
    return lines


def open_page(notebook_id: str, notebook_globals: dict[str, Any]) -> Page:
    """Open the Page of a notebook. Every notebook calls it in its second code cell.

    The notebook's variable `profile` gets the reader's own data and model, if the
    parameters name some. Raises Refused or TypeError for a parameter that is misspelt,
    mistyped or impossible, also for one that papermill injected.

    notebook_globals: the globals() of the notebook."""
    plot.set_style()
    path = notebook.find_notebook_path(notebook_id)
    names = [
        *notebook.read_parameter_declarations(path),
        *notebook.list_injected_parameters(notebook_globals.get("In", [])),
    ]
    given = {name: notebook_globals[name] for name in names if name in notebook_globals}
    values = notebook.complete_parameter_values(path, given)
    batch = os.environ.get(notebook.BATCH)
    folder, differs = (
        json.loads(batch)
        if batch
        else notebook.find_notebook_page_folder(path, values, is_run_by_hand=True)
    )
    page = Page(notebook_id, values, Path(folder), differs)
    if not batch:
        page.show_remarks(
            [
                f"An experiment, in {paths.hide_local_paths(paths.format_path(folder))}.",
                *differs,
            ]
        )
    notebook_globals["profile"] = page.reader_profile
    return page


def render_figure_svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG file."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=plot.make_figure_metadata(figure))
    return buffer.getvalue()


def display_figure(figure: Figure, png_name: str = "", svg_text: str = "") -> None:
    """Show a figure as an output of the notebook, and close it.

    png_name: the name of the figure's PNG file, to which the Markdown page links; ""
    for none.
    svg_text: the figure as SVG, if it was rendered before."""
    light = (
        f"![{escape_markdown_line(plot.make_figure_metadata(figure)['Title'])}]({png_name})"
        * bool(png_name)
    )
    display_text(light, render_figure_html(figure, svg_text))


def render_figure_html(figure: Figure, svg_text: str = "") -> str:
    """Return a figure as HTML with an inline SVG, and close it.

    svg_text: the figure as SVG, if it was rendered before."""
    svg_text = svg_text or render_figure_svg(figure)
    image = svg_text[svg_text.index("<svg") :].replace("<svg", '<svg role="img"', 1)
    wide = ' class="wide" tabindex="0"' if figure.get_figwidth() > 8 else ""
    plt.close(figure)
    return f"<figure{wide}>{image}</figure>"


def explore_with_widgets(
    draw_figure: Callable[..., Figure | None],
    argument_drawn_beforehand: str = "",
    **widget_options: Any,
) -> None:
    """Show the figure that a function returns, with widgets for its arguments in
    JupyterLab.

    Elsewhere it is one picture: an argument has the function's default, or else the
    first value of its widget. Nothing is shown where a widget has an empty list of
    values.

    argument_drawn_beforehand: an argument whose widget is a list of values. An HTML
    page has one picture for each, drawn beforehand, so that its reader can choose
    without a kernel or a script.
    widget_options: arguments of ipywidgets.interact, by the function's argument."""

    @wraps(draw_figure)
    def show_result(**arguments: Any) -> None:
        if figure := draw_figure(**arguments):
            display_figure(figure)

    if [] in widget_options.values():
        return
    if is_interactive():
        import ipywidgets

        ipywidgets.interact(show_result, **widget_options)
        return
    chosen = {
        name: widget_options[name][0] if p.default is p.empty else p.default
        for name, p in signature(draw_figure).parameters.items()
    }
    if not argument_drawn_beforehand:
        return show_result(**chosen)
    pictures = {}
    for number, value in enumerate(widget_options[argument_drawn_beforehand]):
        if figure := draw_figure(**chosen | {argument_drawn_beforehand: value}):
            prefix = rf"\g<0>{draw_figure.__name__}{number}-"
            pictures[value] = SVG_NAME.sub(prefix, render_figure_html(figure))
    display_text(
        "",
        PARTS.choice(
            draw_figure.__name__,
            argument_drawn_beforehand,
            pictures,
            chosen[argument_drawn_beforehand],
        ),
    )


CHOICE = """## Choose what the others are compared with

Each model minus the chosen one, whatever its width: paired differences with their 95 %
intervals over seeds and rows. They are of the runs above, so nothing is trained."""


def explore_model_differences(
    runs: Runs, columns: Sequence[Column] = (), word_for_model: str = "model"
) -> None:
    """Let a reader in JupyterLab choose the model with which all others are compared,
    in a forest plot.

    No run is made for it. A page that a command makes shows nothing.

    columns: the metrics whose mean the paper's table prints.
    word_for_model: the word for a model on this page."""

    def draw_differences_from_baseline(task: str, baseline: str) -> Figure | None:
        gaps = runs.compare_models(baseline, columns).items()
        data = plot.make_forest_plot_data(
            {place: gap for place, gap in gaps if place[1].endswith(f", {task}")}
        )
        if len(data):
            label = f"score minus that of the {word_for_model} {baseline} (points)"
            return plot.draw_forest(data, label)
        display_text(
            f"On {task} nothing can be compared with {escape_markdown_line(baseline)}."
        )

    if is_interactive() and len(names := runs.names_of_models) > 1:
        display_text(CHOICE)
        frames = [
            compare.select_rows_with_runs(frame) for _, frame, _ in runs.source_frames
        ]
        explore_with_widgets(
            draw_differences_from_baseline,
            task=[*pd.concat(frames)["task"].unique()],
            baseline=names,
        )


def is_interactive() -> bool:
    """Return whether a reader has this notebook open in JupyterLab, so that widgets
    work."""
    return not os.environ.get(notebook.BATCH) and paths.is_in_jupyter_lab()
