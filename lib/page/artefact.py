"""Artefact: what a notebook makes, written whole with where it came from.

    page = artefact.start("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.runs(grid, recorded)
    page.table(frame, "Table 3"); page.figure(figure, data); page.finish(verdicts)

Files: `figures/<profile>/<id>.{svg,png}` and `<id>.figure.csv`, the data drawn, for a figure,
`<id>.{csv,md,tex}` for a table; `<id>.json` says which runs, which code and when. What has no run
to show yet is a sentence instead. With parameters of the reader's own they go to `figures/scratch/`
and never reach the index.
"""

import html
import io
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from math import floor, isfinite, log10
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import HTML, display
from pandas.io.formats.style import Styler

from lib import paths, sweep
from lib.execute import commit
from lib.measure.verdict import SCALES
from lib.page import notebook, plot
from lib.page.runs import Runs
from lib.page.verdicts import table as table_of_verdicts
from lib.papers import protocol, submissions
from lib.papers.profiles import PROFILES
from lib.store import write_json


@dataclass
class Page:
    """An open notebook: its parameters, the runs it used, the files it wrote."""

    id: str
    values: dict
    defaults: bool
    used: dict = field(default_factory=dict)  # what is told of each run, by its name
    files: list = field(default_factory=list)
    wanted: set = field(
        default_factory=set
    )  # names of the runs that the page makes where they are missing

    @property
    def profile(self):
        return PROFILES[self.values.get("profile", "toy")]

    @property
    def folder(self):
        folder = paths.FIGURES / (self.profile.name if self.defaults else "scratch")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def collect(self, rows, on_missing="run"):
        """The rows with their results (lib.sweep.collect); what is missing is made, unless a batch
        made it before, and why it is missing stands below the cell.
        """
        if on_missing == "run":
            self.wanted |= {row["spec"].name for row in rows}
        frame = sweep.collect(
            rows, on_missing="skip" if os.environ.get(notebook.BATCH) else on_missing
        )
        there = {
            row["spec"].name: {
                "run": row["spec"].name,
                "origin": row["run"].origin if row["run"] else "",
                "state": row["state"],
                "error": row["error"],
            }
            for row in frame.to_dict("records")
        }
        new = [run for name, run in there.items() if name not in self.used]
        self.used |= there
        command = f"python -m lib run {self.id} --profile {self.profile.name}"
        how = f"not made yet: `{command}` makes what is missing"
        lost = Counter(
            (run["error"] or how) if run["run"] in self.wanted else ""
            for run in new
            if run["state"] != "finished"
        )
        self.note(
            [
                f"{count} of {len(there)} runs missing: {why}"
                if why
                else f"{count} of {len(there)} runs are not recorded yet"
                for why, count in lost.most_common(3)
            ]
        )
        return frame

    def runs(self, grid, recorded=()):
        """The runs of a grid (lib.page.runs.Runs): the page's own, made where they are missing, and
        those of `recorded`, Specs at mini, which are looked up."""
        own, there = self.collect(grid), self.collect(recorded, on_missing="skip")
        return Runs(own, there, self.profile.name)

    def table(self, frame, caption, name="", index=None, marks=None):
        """Write and show a table, or a sentence where it has no value.

        frame: a DataFrame, or {row: {column: value}}; tuples as rows or columns make levels.
        name: tells several tables of one page apart. index: the name of the rows, or a list of
        names of their levels. marks: f(frame) -> frame of CSS.
        """
        frame = frame if isinstance(frame, pd.DataFrame) else framed(frame)
        frame = frame if index is None else frame.rename_axis(index)
        flat = frame.copy()
        if isinstance(flat.columns, pd.MultiIndex):
            flat.columns = [", ".join(filter(None, map(str, c))) for c in flat.columns]
        if not any(
            value not in ("", "–") for value in flat.to_numpy().ravel() if not pd.isna(value)
        ):
            rows = ", ".join(
                " ".join(map(str, row)) if isinstance(row, tuple) else str(row)
                for row in frame.index
            )
            return self.unmade(f"{caption}" + f". Rows: {rows}" * bool(rows))
        stem = f"{self.id}.{name}" if name else self.id
        text = frame.apply(lambda column: column.map(digits(column), na_action="ignore"))
        values = flat.map(
            lambda v: round(v, 6) if type(v) in (float, np.float64) else getattr(v, "text", v)
        )
        self._write(f"{stem}.csv", values.to_csv())
        flat = flat.apply(lambda column: column.map(digits(column), na_action="ignore"))
        self._write(f"{stem}.md", markdown(flat.reset_index()))
        self._write(f"{stem}.tex", flat.to_latex(escape=True))
        shown = Styler(text, na_rep="–", uuid_len=0, cell_ids=False).set_caption(caption)
        marked = shown.apply(marks, axis=None) if marks else shown
        display(HTML(f'<div class="table">{marked.to_html()}</div>'))

    def note(self, lines, mark="", fold=""):
        """Show remarks below a table or figure; folded away under the words `fold`, where given."""
        told = "".join(f'<p class="provenance">{mark}{html.escape(line)}</p>' for line in lines)
        display(
            HTML(
                f'<details class="provenance"><summary>{html.escape(fold)}</summary>'
                f"{told}</details>"
                if fold
                else told
            )
        )

    def figure(self, figure, data, name="", exact=False):
        """Write and show a figure with the data it draws, a sentence where there is none; toy
        figures carry a watermark, unless what they show is exact at any scale.
        """
        if data.dropna(how="all").empty:
            plt.close(figure)
            return self.unmade(
                "a figure" + " of " * bool(len(data.columns)) + ", ".join(map(str, data.columns))
            )
        for axis in figure.axes:
            if axis.axison and not axis.has_data():
                axis.text(
                    0.5,
                    0.5,
                    "no run yet",
                    color="grey",
                    ha="center",
                    va="center",
                    transform=axis.transAxes,
                )
        stem = f"{self.id}.{name}" if name else self.id
        if self.profile.name == "toy" and not exact and "recorded" not in name:
            watermark(figure)
        figure.savefig(self.folder / f"{stem}.svg", metadata={"Date": None})
        figure.savefig(self.folder / f"{stem}.png", dpi=144, metadata={"Software": None})
        self.files += [f"{stem}.svg", f"{stem}.png"]
        self._write(f"{stem}.figure.csv", data.to_csv(index=False))
        show(figure, (self.folder / f"{stem}.svg").read_text())

    def unmade(self, what):
        """Say what a table or figure would show, had it runs."""
        display(
            HTML(
                '<p class="unmade">Nothing to show yet: none of the runs of this table or figure '
                f"is there. It would show: {html.escape(what)}.</p>"
            )
        )

    def file(self, path, about):
        """List a file that was written below the page's folder, and show a link to it."""
        name = Path(path).relative_to(self.folder).as_posix()
        self.files.append(name)
        display(
            HTML(
                f'<p class="provenance"><a href="{html.escape(name)}">{html.escape(name)}</a>: '
                f"{html.escape(about)}</p>"
            )
        )

    def archives(self, frame):
        """Write and list an archive for the GLUE server of each model and seed of a collected frame
        (lib.papers.submissions.submitted)."""
        rows = frame.to_dict("records")
        for path, about in submissions.archives(rows, self.folder, self.id, self.profile.source):
            self.file(path, about)

    def _write(self, name, text):
        temporary = self.folder / f".{name}.{os.getpid()}"
        temporary.write_text(text)
        os.replace(temporary, self.folder / name)
        self.files.append(name)

    def finish(self, verdicts=(), *deviations):
        """Show verdicts, deviations and failures; write the provenance. The last act of every page.
        deviations: each {profile: lines} of a paper; shown are those of this page's profile and of
        every profile that it judges.
        """
        verdicts = [protocol.with_plan(each) for each in verdicts]
        judged = [name for name, words in SCALES.items() if words in {v.scale for v in verdicts}]
        told = {
            name: [line for each in deviations for line in each.get(name, ())]
            for name in dict.fromkeys([*judged, self.profile.name])
        }
        runs = list(self.used.values())
        bad = [run for run in runs if run["state"] not in ("finished", "missing")]
        write_json(
            self.folder / f"{self.id}.json",
            {
                "id": self.id,
                "profile": self.profile.name,
                "parameters": self.values,
                "runs": runs,
                "verdicts": [
                    asdict(v) | {"provisional": v.provisional, "power": v.power} for v in verdicts
                ],
                "deviations": told,
                "files": sorted(set(self.files)),
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            | commit(),
        )
        parts = [table_of_verdicts(verdicts)] if verdicts else []
        for name, lines in told.items():
            items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
            parts += [
                f"<h4>Differences from the paper {SCALES[name]}"
                f"{', where claims are judged' * (name in judged)}</h4>"
                f"<ul>{items}</ul>"
            ] * bool(lines)
        if bad:
            items = "".join(
                f"<li><code>{r['run']}</code> {r['state']}: {r['error']}</li>" for r in bad
            )
            parts.append(f'<h4>Runs that did not finish</h4><ul class="bad">{items}</ul>')
        parts.append(
            f'<p class="provenance">Runs: {notebook.counted(runs)}; files in '
            f"<code>{paths.shown(self.folder)}/{self.id}.*</code></p>"
        )
        display(HTML("".join(parts)))
        lost = [self.used[name] for name in sorted(self.wanted) if not self.used[name]["origin"]]
        if lost and len(lost) == len(self.wanted) and not os.environ.get(notebook.BATCH):
            raise RuntimeError(
                f"none of the {len(lost)} runs of this page could be made: "
                f"{lost[0]['error'] or lost[0]['state']}"
            )


def framed(rows):
    """A DataFrame of {row: {column: value}}, whose values stay as they are."""
    frame = pd.DataFrame(list(rows.values()), index=range(len(rows)), dtype=object)
    for axis, keys in (("index", list(rows)), ("columns", list(frame.columns))):
        if keys and isinstance(keys[0], tuple):
            keys = pd.MultiIndex.from_tuples(keys)
        frame = frame.set_axis(keys, axis=axis)
    return frame


def start(name, namespace):
    """Open the page of notebook `name` from its bootstrap cell, with the kernel's globals.

    Raises ValueError or TypeError for a misspelt, mistyped or impossible parameter, also one that
    papermill injected.
    """
    plot.style()
    path = paths.NOTEBOOKS / f"{name}.ipynb"
    declared = notebook.parameters(path)
    given = {key: namespace[key] for key in declared if key in namespace}
    values = notebook.check(path, notebook.injected(namespace.get("In", [])) | given)
    changed = {k for k, v in values.items() if k != "profile" and v != declared[k].default}
    return Page(name, values, not changed)


def show(figure, svg=""):
    """Show a figure, which may belong to no artefact, such as one that a reader's knobs drive."""
    if not svg:
        with io.StringIO() as buffer:
            figure.savefig(buffer, format="svg", metadata={"Date": None})
            svg = buffer.getvalue()
    display(HTML(f"<figure>{svg[svg.index('<svg') :]}</figure>"))
    plt.close(figure)


def digits(column):
    """f(value) -> text for a column of a table: what is printed as printed; floats with the
    decimals that say all, where two do, else with those that leave the smallest of them two digits,
    one to four; the rest as it is.
    """

    def plain(v):
        return isinstance(v, float | np.floating) and not hasattr(v, "text")

    floats = [abs(v) for v in column if plain(v) and isfinite(v) and v]
    most = min(4, max(1, 1 - floor(log10(min(floats, default=1)))))
    least = next((n for n in range(3) if all(abs(round(v, n) - v) < 1e-9 for v in floats)), most)
    return lambda v: f"{v:.{least}f}" if plain(v) else str(v)


def watermark(figure):
    """Write "toy scale" over the panels of a figure; where titles tell recorded or published
    panels, over the others alone.
    """

    def told(words):
        return any(word in words for word in ("recorded", "published", "as printed"))

    heads = {
        round(axis.get_position().x0, 2): axis.get_title()
        for axis in reversed(figure.axes)
        if axis.get_title()
    }
    titles = [
        (axis, axis.get_title() or heads.get(round(axis.get_position().x0, 2), ""))
        for axis in figure.axes
    ]
    if figure.get_suptitle() and told(figure.get_suptitle()):
        return
    look = {"color": "grey", "alpha": 0.13, "rotation": 24, "ha": "center", "va": "center"}
    if not any(told(title) for _, title in titles):
        figure.text(0.5, 0.5, "toy scale", fontsize=44, **look)
        return
    for axis in [axis for axis, title in titles if not told(title) and "toy" in title]:
        axis.text(0.5, 0.5, "toy scale", fontsize=26, transform=axis.transAxes, **look)


def markdown(frame):
    """A DataFrame as a Markdown table."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + " --- |" * len(frame.columns)]
    lines += [
        "| " + " | ".join("" if pd.isna(v) else str(v) for v in row) + " |"
        for row in frame.itertuples(index=False)
    ]
    return "\n".join(lines) + "\n"


def explore(function, **knobs):
    """Knobs for a reader in JupyterLab (`knobs` as ipywidgets takes them); the function's own
    defaults in batch.
    """
    if os.environ.get(notebook.BATCH):
        function()
        return
    import ipywidgets

    ipywidgets.interact(function, **knobs)
