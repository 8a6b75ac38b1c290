"""This module is what a notebook calls: it shows tables and figures, and writes them to
files.

    page = artefact.start("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.runs(grid, recorded)
    page.table(frame, "Table 3"); page.figure(figure, data); page.finish()

A figure is written to `figures/<profile>/<id>.{svg,png}`, and the data that it draws to
`<id>.figure.csv`. A table is written to `<id>.csv`. `<id>.json` says which runs were
used, by which code and when. A table or figure without runs is replaced by a sentence.
Experiments have folders of their own below `figures/scratch/`
(lib.claims.notebook.find_page_folder)."""

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
from typing import TYPE_CHECKING, Any

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
from lib.core.execute import read_commit
from lib.core.rows import Row, format_width
from lib.core.store import Store
from lib.core.types import Json
from lib.papers import grids
from lib.report import plot, site
from lib.report.tables import (
    Runs,
    arrange_for_page,
    collect_results,
    escape_text,
    format_value,
    join_levels,
    table_to_html,
    table_to_markdown,
    tabulate_labels,
)
from lib.report.verdicts import (
    ENVIRONMENT,
    convert_verdict_to_json,
    write_answer,
    write_counts,
)
from lib.stats import compare
from lib.stats.compare import Column
from lib.stats.paired import Estimate

if TYPE_CHECKING:
    from lib.report.explore import Live

ENVIRONMENT.filters["escaped"] = escape_text
PARTS: Any = ENVIRONMENT.get_template("parts.html.j2").module
END = ENVIRONMENT.get_template("end.md.j2")
# Names in an SVG file. Pictures on one page need different ones, as a hidden picture
# cannot serve another.
SVG_NAME = re.compile(r'\bid="|url\(#|href="#')
# Origin of a run -> words of a page.
MADE = {"run": "made here", "record": "recorded"}


def display_text(markdown: str, html_text: str = "") -> None:
    """Show Markdown in the notebook; light pages have it too (lib.report.builder).

    html_text: the same content for HTML pages, where Markdown is not enough."""
    forms = {"text/markdown": paths.hide_local_paths(markdown), "text/html": html_text}
    if forms := {kind: text for kind, text in forms.items() if text}:
        display(forms, raw=True)


@dataclass
class Page:
    """A Page is an open notebook, with its parameters, used runs and written files."""

    id: str
    values: Json
    folder: Path
    # Sentences on what makes the page an experiment.
    differs: Sequence[str] = ()
    # {name of a run: how it was made, or the state that it is in}
    used: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    # Remarks that were shown; none is shown twice.
    noted: set[str] = field(default_factory=set)
    # Sentences on the differences that the page draws, at its own profile.
    sentences: list[str] = field(default_factory=list)
    ends: str = ""  # Sentence on the lowest and the highest score of the page's runs.

    @cached_property
    def scope(self) -> str:
        """Return the profile for grids, with the reader's own data and model if any."""
        return grids.find_profile_of_values({"profile": "toy"} | self.values)

    @property
    def reader_lines(self) -> list[str]:
        """Return sentences on the reader's own data and model; [] without any."""
        return grids.describe_reader_inputs(self.scope)

    def collect(self, rows: Sequence[Row], if_missing: str = "run") -> pd.DataFrame:
        """Return the rows of a grid with their results
        (lib.report.tables.collect_results).

        Missing runs are made here, unless a command makes the page: it made them
        before. The page says why a run is still missing.

        if_missing: "run"; "skip" to make no run and to report none as missing; or
        "make" to make them here in any case, where which runs are needed depends on
        other runs."""
        lost, specs = {}, [row.spec for row in rows]
        is_made = if_missing != "skip"
        if if_missing == "make" or is_made and not os.environ.get(notebook.BATCH):
            if todo := Store().missing_specs(specs):
                clock = sweep.Clock(Store(), grids.make_run_time_estimator(self.scope))
                work = sweep.describe_work(todo, clock)
                self.note([f"{work}. What is made stays when you interrupt it."])
                lost = sweep.make_runs(specs, clock=clock)
        frame = collect_results(rows, reasons_of_loss=lost)
        if self.reader_lines and not is_made:
            return frame  # A reader's page has no verdicts, so these runs do not count.
        lines: Any = frame.to_dict("records")
        self.note(compare.describe_dtypes(lines))
        states, reasons = {}, {}
        command = notebook.format_page_command(self.id, self.scope)
        how = f"not made yet: `{command}` makes what is missing"
        for row in lines:
            if run := row["run"]:
                states[run.name] = MADE[run.origin]
            elif is_made:  # Runs that are only looked up do not count as missing.
                states[row["spec"].name] = row["state"]
                reasons[row["spec"].name] = row["error"] or how
        self.used |= states
        if not any("runs missing" in line for line in self.noted):
            missing = f"of {len(states)} runs missing"
            common = Counter(reasons.values()).most_common(3)
            self.note(f"{n} {missing}: {text}" for text, n in common)
        return frame

    def runs(
        self,
        grid: Callable[..., list[Row]] | Sequence[Row],
        recorded_rows: Callable[[], list[Row]] | Sequence[Row] = (),
        transform_rows: Callable[[Sequence[Row]], Sequence[Row]] = list,
    ) -> Runs:
        """Return the runs of a grid (lib.report.tables.Runs), and make the missing
        ones.

        grid: rows, or a function from a profile and the page's parameters to rows. A
        function also gives the rows at mini, whose runs are only looked up.

        recorded_rows: rows at mini to look up, or a function without arguments that
        makes them, where `grid` is no function.

        transform_rows: a function from the rows of the grid to other rows, such as
        those of the searches behind networks."""
        if callable(grid):
            changes = notebook.list_changed_parameters(self.id, self.values)
            rows = plans.make_page_rows(grid, self.scope, self.values, self.id, changes)
            for label, names in plans.list_omitted_labels(self.scope, self.id).items():
                rest = f"{label} {', '.join(map(str, names))}"
                look = f"{self.scope[:]} is a first look, without rows of {rest}"
                self.note([f"{look}: seeds = [0] brings them."] * (not changes))
            recorded_rows = transform_rows(self.rows_at_seeds(grid("mini"), "mini"))
            grid = transform_rows(self.rows_at_seeds(rows, self.scope))
        elif callable(recorded_rows):
            recorded_rows = recorded_rows()
        made = self.collect(grid)
        recorded_frame = self.collect(
            self.rows_at_seeds(recorded_rows, "mini"), if_missing="skip"
        )
        if len(made):
            display_text(
                "", PARTS.grid(tabulate_labels(made).to_html(index=False, border=0))
            )
        runs = Runs(made, recorded_frame, self.scope, self.id)
        if not self.reader_lines:
            self.note(write_caveats(runs))
            if self.scope == "toy" and not self.ends:
                self.ends = describe_score_range(grid, made, self.scope)
        return runs

    def rows_at_seeds(self, rows: Sequence[Row], profile: str) -> Sequence[Row]:
        """Return the rows of a grid at the planned seeds of the page's comparisons.

        A reader who asks for seeds, or brings data or a model, gets the rows
        unchanged."""
        is_asked = self.values.get("seeds") or self.reader_lines
        return rows if is_asked else add_planned_seeds(self.id, profile, rows)

    def table(
        self,
        frame: pd.DataFrame | Mapping[Any, Mapping[Any, Any]],
        caption: str,
        name: str = "",
        index: str | list[str] | None = None,
    ) -> None:
        """Show and write a table without its empty rows and columns.

        An empty table is replaced by a sentence. The file may have more columns than
        the page (`lib.report.tables.arrange_for_page`).

        frame: a DataFrame, or {row: {column: value}}. Tuples as rows or columns make
        levels.

        name: a word that tells several tables of one page apart.

        index: the name of the rows, or a list with a name for each of their levels."""
        if not isinstance(frame, pd.DataFrame):
            frame = compare.join_tables(frame, index_names=())
        frame = frame.rename_axis(index) if index and len(frame) else frame
        if self.reader_lines:
            caption = f"{caption.removesuffix('.')}. {self.reader_lines[0]}"
        rows = ", ".join(join_levels(frame.index, " "))
        frame = frame.mask(frame.isin(["", "–", "not run"]))
        frame = frame.dropna(how="all").dropna(axis=1, how="all")
        if frame.empty:
            what = f"{caption}. Rows: {rows}" if rows else caption
            return display_text(f"Not measured yet: {escape_text(what)}.")
        text = frame.map(format_value, na_action="ignore")
        stem, (shown, turned) = self._stem(name), arrange_for_page(text)
        flat = text.set_axis(join_levels(text.columns, ", "), axis=1)
        self._write(f"{stem}.csv", flat.to_csv())
        html = table_to_html(shown.swaplevel(axis=1) if turned else shown, stem)
        light = table_to_markdown(
            shown.set_axis(join_levels(shown.columns, ", "), axis=1)
        )
        opening = light_opening = caption
        if more := len(frame.columns) - len(shown.columns):
            several = f"{more} more columns" if more > 1 else "one more column"
            how = f"`python -m lib report {self.id} --profile {self.scope[:]}`"
            caption = caption.removesuffix(".")
            opening = f"{caption}. {stem}.csv, written with the page, has {several}"
            light_opening = f"{caption}. {how} writes it with {several}"
        display_text(
            f"*{escape_text(light_opening)}*\n\n{light}", PARTS.table(opening, html)
        )

    def note(
        self, remarks: Iterable[str], prefix: str = "", folded_title: str = ""
    ) -> None:
        """Show remarks as a list, each once on a page.

        prefix: text before each remark. folded_title: title of a folded block for the
        remarks; "" shows them openly."""
        remarks = [line for line in dict.fromkeys(remarks) if line not in self.noted]
        self.noted |= {*remarks}
        text = "".join(f"- {escape_text(f'{prefix}{line}')}\n" for line in remarks)
        if text and folded_title:
            text = f"<details><summary>{escape_text(folded_title)}</summary>\n\n{text}\n</details>"
        display_text(text)

    def figure(
        self,
        figure: Figure,
        data: pd.DataFrame,
        name: str = "",
        is_true_at_any_scale: bool = False,
    ) -> None:
        """Show and write a figure and its data; without data, show a sentence.

        A toy figure has a line that says so, unless it is `is_true_at_any_scale`: true
        at any scale."""
        if data.dropna(how="all").empty:
            plt.close(figure)
            return display_text(
                f"Not measured yet: a figure of {escape_text(', '.join(map(str, data)))}."
            )
        for axis in figure.axes:
            if axis.axison and not axis.has_data():
                axis.text(
                    0.5, 0.5, "no run yet", transform=axis.transAxes, **plot.CENTRE
                )
        stem = self._stem(name)
        if (
            self.scope == "toy"
            and not self.reader_lines
            and not is_true_at_any_scale
            and "recorded" not in name
        ):
            remark = "toy scale, but for what is called recorded or published"
            figure.text(1, 1, remark, ha="right", va="bottom", color="grey", fontsize=9)
        plot.fit_texts(figure)
        svg = draw_svg(figure)
        self._write(f"{stem}.svg", svg)
        with disk.atomic_path(self.folder / f"{stem}.png") as place:
            figure.savefig(place, format="png", dpi=144, metadata={"Software": None})
        self.files.append(f"{stem}.png")
        self._write(f"{stem}.figure.csv", data.to_csv(index=False))
        show(figure, f"{stem}.png", svg)

    def live(self, figure: "Live") -> None:
        """Show a figure of the live page; a light page has a sentence instead."""
        if figure.traces:
            display_text(
                f"*{figure.title}: on the live page alone.*", figure.figure_html
            )

    def forest(
        self,
        estimates: Mapping[tuple[str, str], Estimate | None],
        printed: Mapping[str, float] | Iterable[tuple[str, float]] = (),
        label: str = "difference (points)",
        name: str = "",
    ) -> None:
        """Show paired differences as a forest plot with printed values
        (`plot.draw_forest`).

        A comparison without an Estimate is left out, so no picture has printed numbers
        alone. Without any interval there is a sentence in place of a picture, but for a
        first look at toy. label: what is subtracted from what, and the unit in
        brackets."""
        data = plot.make_forest_data(estimates, printed)
        if len(data):
            self.note_differences(estimates, label.removesuffix(" (points)"))
            if self.scope == "toy" or data["low"].notna().any():
                return self.figure(plot.draw_forest(data, label), data, name)
            names, place = plot.shorten_row_names(data["at"])
            text = plot.write_forest_headline(data.replace({"at": names}), label, place)
            display_text(f"No picture. {escape_text(text)}.")

    def note_differences(
        self, estimates: Mapping[tuple[str, str], Estimate | None], difference_text: str
    ) -> None:
        """Keep sentences on differences at the page's own profile, for its answer."""
        method, is_named, _ = difference_text.rpartition(" another")
        start = f"{method} " if is_named else f"{difference_text}, "
        start = start[:1].upper() + start[1:]
        self.sentences += [
            f"{start}{place}: {compare.format_interval(e, is_sentence=True)}."
            for (source, place), e in estimates.items()
            if e and source.endswith(f", {self.scope}")
        ]

    def _stem(self, suffix: str) -> str:
        return f"{self.id}.{suffix}" if suffix else self.id

    def _write(self, file_name: str, text: str) -> None:
        disk.write_text_file(self.folder / file_name, paths.hide_local_paths(text))
        self.files.append(file_name)

    def finish(
        self,
        checks: Iterable[Verdict] = (),
        *deviations: Mapping[str, Sequence[str]],
        claims: Iterable[str] | None = None,
        answer: Iterable[str] = (),
    ) -> None:
        """Show verdicts and deviations, and write the page's JSON. It ends each
        notebook.

        The verdicts are on the claims that name the page (`lib.claims.judging`). On a
        toy page they rest on runs at mini. A page on a reader's own data or model has
        no verdict, and names these data instead.

        checks: Verdicts on printed numbers that the page itself computes.

        deviations: {profile: sentences} of each paper. Shown are those of the page's
        profile, and of the profile that the verdicts rest on.

        claims: the ids of the claims to judge, in place of those that name the page.

        answer: sentences that answer the page's question, where its verdicts do not.
        They stand below its title, and a command ends with them."""
        names = source.list_page_claims(self.id) if claims is None else claims
        profile = self.scope[:]
        if self.reader_lines:
            names, checks, deviations = (), (), ({profile: self.reader_lines},)
        scale = source.SCALE if profile == "toy" else profile
        verdicts = [*source.judge_claims(names, scale=scale).values(), *checks]
        judged = [scale] * any(verdict.kind == "finding" for verdict in verdicts)
        opening = f"Recorded at {scale}: " * (scale != profile)
        differences = {
            name: [*chain(*(lines.get(name, ()) for lines in deviations))]
            for name in [*judged, profile]
        }
        counted = Counter(how for how in self.used.values() if how in MADE.values())
        body = {
            "id": self.id,
            "profile": profile,
            "differs": list(self.differs),
            "parameters": self.values,
            "answer": self.answer(
                list(answer) or write_answer(verdicts, self.sentences, scale, opening)
            ),
            "counts": write_counts(verdicts),
            "counted": ", ".join(f"{n} {how}" for how, n in counted.items())
            or ("none" if self.used else "none needed"),
            "runs": self.used,
            "records": source.digest_page_records(self.id)
            if profile in source.SCALES
            else "",
            "verdicts": list(map(convert_verdict_to_json, verdicts)),
            "deviations": differences,
            "files": list(dict.fromkeys(self.files)),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        } | read_commit()
        self._write(f"{self.id}.json", json.dumps(body, indent=1) + "\n")
        display_text(
            END.render(body, judged=judged, folder=paths.show_path(self.folder))
        )
        if not os.environ.get(notebook.BATCH):
            site.write_index(self.scope[:])

    def answer(self, lines: list[str]) -> list[str]:
        """Return the answer of the page; a toy page begins with a number of its own
        runs.

        That number is the first difference that it draws, or else the range of its
        scores. lines: the answer so far, which a toy page takes from runs at mini."""
        if self.used and not {*self.used.values()} & {*MADE.values()}:
            why = f"none of its {len(self.used)} runs is there"
            nothing = f"No comparison of this page is measured at {self.scope}: {why}."
            lines = [nothing, *(line for line in lines if "is measured at" not in line)]
        first = [*self.sentences, self.ends][0].removesuffix(".")
        if self.scope != "toy" or self.reader_lines or not first:
            return lines
        first, one, _ = first.partition(", 1 seed")
        scale = "toy, one seed" if one else "toy"
        opening = f"{first} ({scale}: shows how, proves nothing)."
        return [opening, *(line for line in lines if line not in self.sentences)]


def describe_score_range(rows: Sequence[Row], frame: pd.DataFrame, profile: str) -> str:
    """Return a sentence on the lowest and the highest score of a collected frame.

    It names the labels in which the two rows differ. It is "" for fewer than two
    scores."""
    metric_of = grids.list_columns_by_task(profile)
    if "task" not in frame:
        return ""
    scored = compare.list_scores_in_points(
        frame[frame["task"].isin(metric_of)], metric_of
    )
    scored = scored.dropna(subset="score").sort_values("score")
    labels = dict.fromkeys(chain.from_iterable(row.labels for row in rows))
    if len(scored) < 2:
        return ""
    ends, texts = scored.iloc[[0, -1]], []
    apart = [name for name in labels if ends[name].nunique() > 1]
    for row in ends.to_dict("records"):
        names = filter(None, (name_label(row, name) for name in apart))
        texts.append(f"{row['score']:.1f} ({', '.join(names)})")
    count = scored["seed"].nunique()
    seeds = "1 seed" if count == 1 else f"{count} seeds"
    between = f"{len(scored)} scores lie between {' and '.join(texts)}"
    if ends["score"].nunique() == 1:
        between = f"all {len(scored)} scores are {ends['score'].iloc[0]:.1f}"
    return f"{between} points, {seeds}."


def name_label(row: Mapping[Any, Any], name: str) -> str:
    """Return a row's label in words; "" for the width of a whole model."""
    if name == "m":
        return f"{format_width(row)} of the width" if row["m"] else ""
    return str(row[name]) if name == "model" else f"{name} {row[name]}"


def write_caveats(runs: Runs) -> list[str]:
    """Return sentences that warn of recorded scores on a page.

    They name seeds far from the others, and tasks that the untouched encoder solves."""
    lines = []
    for _, frame, profile in runs.frames_by_source:
        if str(profile) in source.SCALES and len(frame):
            lines += compare.describe_outlying_seeds(
                frame, grids.list_columns_by_task(profile)
            )
            tasks = set(frame["task"]) if "task" in frame else set()
            for row in lists.read_published_csv("untouched"):
                where = row["profile"], row["split"]
                if where == (str(profile), "dev") and row["task"] in tasks:
                    lines.append(
                        f"{row['task']}: the cosine of the mean vectors of {row['checkpoint']}, "
                        f"untouched, has a Spearman of {row['spearman']} and a Pearson of "
                        f"{row['pearson']} on the {int(row['rows']):,} development rows"
                    )
    return lines


def start(notebook_id: str, notebook_globals: dict[str, Any]) -> Page:
    """Open the page of notebook `notebook_id` in its bootstrap cell.

    The notebook's variable `profile` gets the reader's own data and model, if the
    parameters name some. Raises Refused or TypeError for a parameter that is misspelt,
    mistyped or impossible, also for one that papermill injected.

    notebook_globals: the globals of the kernel."""
    plot.set_style()
    path = notebook.find_notebook_path(notebook_id)
    names = [
        *notebook.read_parameters(path),
        *notebook.list_injected_parameters(notebook_globals.get("In", [])),
    ]
    given = {name: notebook_globals[name] for name in names if name in notebook_globals}
    values = notebook.check_parameter_values(path, given)
    batch = os.environ.get(notebook.BATCH)
    folder, differs = (
        json.loads(batch)
        if batch
        else notebook.find_page_folder(path, values, is_run_by_hand=True)
    )
    page = Page(notebook_id, values, Path(folder), differs)
    if not batch:
        page.note(
            [
                f"An experiment, in {paths.hide_local_paths(paths.show_path(folder))}.",
                *differs,
            ]
        )
    notebook_globals["profile"] = page.scope
    return page


def draw_svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG file."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=plot.make_figure_metadata(figure))
    return buffer.getvalue()


def show(figure: Figure, png_name: str = "", svg_text: str = "") -> None:
    """Show a figure, with or without a file.

    png_name: the name of the figure's PNG file, to which the light page links.
    svg_text: the text from `draw_svg`, if it was called before."""
    light = (
        f"![{escape_text(plot.make_figure_metadata(figure)['Title'])}]({png_name})"
        * bool(png_name)
    )
    display_text(light, draw_html(figure, svg_text))


def draw_html(figure: Figure, svg_text: str = "") -> str:
    """Return a figure as HTML, and close it. svg_text: the text from `draw_svg`, if
    any."""
    svg_text = svg_text or draw_svg(figure)
    image = svg_text[svg_text.index("<svg") :].replace("<svg", '<svg role="img"', 1)
    wide = ' class="wide" tabindex="0"' if figure.get_figwidth() > 8 else ""
    plt.close(figure)
    return f"<figure{wide}>{image}</figure>"


def explore(
    function: Callable[..., Figure | None],
    pre_drawn_argument: str = "",
    **widget_options: Any,
) -> None:
    """Show the figure that a function returns, with knobs for a reader in JupyterLab.

    Elsewhere it is one picture: an argument has the function's default, or else the
    first value of its knob. Nothing is shown where a knob has an empty list of values.

    pre_drawn_argument: a knob with a list of values. A page has one picture for each,
    drawn beforehand, and its reader chooses without a kernel or a script.

    widget_options: arguments of ipywidgets.interact, by the function's argument."""

    @wraps(function)
    def show_result(**arguments: Any) -> None:
        if figure := function(**arguments):
            show(figure)

    if [] in widget_options.values():
        return
    if is_interactive():
        import ipywidgets

        ipywidgets.interact(show_result, **widget_options)
        return
    chosen = {
        name: widget_options[name][0] if p.default is p.empty else p.default
        for name, p in signature(function).parameters.items()
    }
    if not pre_drawn_argument:
        return show_result(**chosen)
    pictures = {}
    for number, value in enumerate(widget_options[pre_drawn_argument]):
        if figure := function(**chosen | {pre_drawn_argument: value}):
            prefix = rf"\g<0>{function.__name__}{number}-"
            pictures[value] = SVG_NAME.sub(prefix, draw_html(figure))
    display_text(
        "",
        PARTS.choice(
            function.__name__, pre_drawn_argument, pictures, chosen[pre_drawn_argument]
        ),
    )


CHOICE = """## Choose what the others are compared with

Each model minus the chosen one, whatever its width: paired differences with their 95 %
intervals over seeds and rows. They are of the runs above, so nothing is trained."""


def explore_models(
    runs: Runs, columns: Sequence[Column] = (), kind: str = "model"
) -> None:
    """Let a reader in JupyterLab choose the model with which all others are compared.

    The answer comes at once, as the page has the runs. A page that a command makes
    shows nothing.

    columns: as in `Runs.estimate_gaps`. kind: what a model of the page is called."""

    def minus(task: str, baseline: str) -> Figure | None:
        gaps = runs.compare_models(baseline, columns).items()
        data = plot.make_forest_data(
            {place: gap for place, gap in gaps if place[1].endswith(f", {task}")}
        )
        if len(data):
            label = f"score minus that of the {kind} {baseline} (points)"
            return plot.draw_forest(data, label)
        display_text(f"On {task} nothing can be compared with {escape_text(baseline)}.")

    if is_interactive() and len(names := runs.names_of_models) > 1:
        display_text(CHOICE)
        frames = [
            compare.select_rows_with_runs(frame)
            for _, frame, _ in runs.frames_by_source
        ]
        explore(minus, task=[*pd.concat(frames)["task"].unique()], baseline=names)


def is_interactive() -> bool:
    """Return whether a reader has this notebook open in JupyterLab."""
    return not os.environ.get(notebook.BATCH) and paths.is_in_jupyter_lab()
