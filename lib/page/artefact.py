"""Artefact: what a notebook makes, written whole with where it came from.

    page = artefact.start("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.collect(grid)
    page.table(frame, "Table 3"); page.figure(figure, data); page.finish(verdicts)

Files: `figures/<profile>/<id>.{svg,png,csv,json}` for a figure, `{csv,md,tex,json}` for a table; the csv is the data
shown, the json says which runs, which code and when. With parameters of the reader's own they go to
`figures/scratch/` and never reach the index.
"""

import html
import io
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from IPython.display import HTML, display
from pandas.io.formats.style import Styler

from lib import paths, sweep
from lib.execute import commit
from lib.measure.verdict import SCALES
from lib.page import notebook
from lib.page.verdicts import table as table_of_verdicts
from lib.papers import protocol
from lib.papers.profiles import PROFILES
from lib.store import write_json

PALETTE = {"Prune": "#D55E00", "Ghost": "#0072B2", "Plain": "#000000", "Distilled": "#009E73"}  # Okabe and Ito


def style():
    """One look for all figures; colours that colour-blind readers can tell apart; bytes that do not change by the day."""
    sns.set_theme(style="whitegrid", context="notebook", palette="colorblind",
                  rc={"svg.hashsalt": "workbook", "figure.dpi": 110, "savefig.bbox": "tight", "axes.titlesize": "medium"})


@dataclass
class Page:
    """An open notebook: its parameters, the runs it used, the files it wrote."""
    id: str
    values: dict
    defaults: bool
    runs: list = field(default_factory=list)
    files: list = field(default_factory=list)

    @property
    def profile(self):
        return PROFILES[self.values.get("profile", "toy")]

    @property
    def folder(self):
        folder = paths.FIGURES / (self.profile.name if self.defaults else "scratch")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def collect(self, rows, on_missing="run"):
        """The rows with their results (lib.sweep.collect); what is missing is made, unless a batch made it before."""
        if os.environ.get(notebook.BATCH):
            on_missing = "skip"
        frame = sweep.collect(rows, on_missing=on_missing)
        self.runs += [{"run": row["spec"].name, "origin": row["run"].origin if row["run"] else "", "state": row["state"],
                       "error": row["error"]} for row in frame.to_dict("records")]
        return frame

    def table(self, frame, caption, name="", marks=None):
        """Write and show a table. `name` tells several tables of one page apart; `marks`: f(frame) -> frame of CSS."""
        stem = f"{self.id}.{name}" if name else self.id
        flat = frame.apply(lambda column: column.map(lambda v: round(v, 6) if isinstance(v, float) else v))
        if isinstance(flat.columns, pd.MultiIndex):
            flat.columns = [", ".join(filter(None, map(str, c))) for c in flat.columns]
        self._write(f"{stem}.csv", flat.to_csv())
        self._write(f"{stem}.md", markdown(flat.reset_index()))
        self._write(f"{stem}.tex", flat.to_latex(escape=True))
        shown = Styler(frame, na_rep="–", precision=1, uuid_len=0, cell_ids=False).set_caption(caption)
        display(HTML(f'<div class="table">{(shown.apply(marks, axis=None) if marks else shown).to_html()}</div>'))

    def note(self, lines, mark=""):
        """Show remarks below a table or figure."""
        display(HTML("".join(f'<p class="provenance">{mark}{html.escape(line)}</p>' for line in lines)))

    def figure(self, figure, data, name="", exact=False):
        """Write and show a figure with the data it draws; toy figures carry a watermark, unless what they show is exact
        at any scale."""
        stem = f"{self.id}.{name}" if name else self.id
        if self.profile.name == "toy" and not exact:
            figure.text(0.5, 0.5, "toy scale", fontsize=44, color="grey", alpha=0.13, rotation=24, ha="center", va="center")
        figure.savefig(self.folder / f"{stem}.svg", metadata={"Date": None})
        figure.savefig(self.folder / f"{stem}.png", dpi=144, metadata={"Software": None})
        self.files += [f"{stem}.svg", f"{stem}.png"]
        self._write(f"{stem}.csv", data.to_csv(index=False))
        show(figure, (self.folder / f"{stem}.svg").read_text())

    def file(self, path, about):
        """List a file that was written below the page's folder, and show a link to it."""
        name = Path(path).relative_to(self.folder).as_posix()
        self.files.append(name)
        display(HTML(f'<p class="provenance"><a href="{html.escape(name)}">{html.escape(name)}</a>: {html.escape(about)}</p>'))

    def _write(self, name, text):
        temporary = self.folder / f".{name}.{os.getpid()}"
        temporary.write_text(text)
        os.replace(temporary, self.folder / name)
        self.files.append(name)

    def finish(self, verdicts=(), *deviations):
        """Show verdicts, deviations and failures; write the provenance. The last act of every page. deviations: each
        {profile: lines} of a paper; shown are those of this page's profile and of every profile that it judges."""
        verdicts = [protocol.with_plan(each) for each in verdicts]
        judged = [name for name, words in SCALES.items() if words in {v.scale for v in verdicts}]
        told = {name: [line for each in deviations for line in each.get(name, ())]
                for name in dict.fromkeys([*judged, self.profile.name])}
        bad = [run for run in self.runs if run["state"] not in ("finished", "missing")]
        missing = sum(run["state"] == "missing" for run in self.runs)
        write_json(self.folder / f"{self.id}.json", {
            "id": self.id, "profile": self.profile.name, "parameters": self.values, "runs": self.runs,
            "verdicts": [asdict(v) | {"provisional": v.provisional, "power": v.power} for v in verdicts],
            "deviations": told, "files": sorted(set(self.files)),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} | commit())
        parts = [table_of_verdicts(verdicts)] if verdicts else []
        for name, lines in told.items():
            items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
            parts += [f"<h4>Differences from the paper {SCALES[name]}{', where claims are judged' * (name in judged)}</h4>"
                      f"<ul>{items}</ul>"] * bool(lines)
        if bad:
            items = "".join(f"<li><code>{r['run']}</code> {r['state']}: {r['error']}</li>" for r in bad)
            parts.append(f'<h4>Runs that did not finish</h4><ul class="bad">{items}</ul>')
        made = sum(run["origin"] == "run" for run in self.runs)
        recorded = sum(run["origin"] == "record" for run in self.runs)
        parts.append(f'<p class="provenance">{made} runs made here, {recorded} recorded, {missing} missing; files in '
                     f"<code>{paths.shown(self.folder)}/{self.id}.*</code></p>")
        display(HTML("".join(parts)))


def start(name, namespace):
    """Open the page of notebook `name` from its bootstrap cell, with the kernel's globals.

    Raises ValueError or TypeError for a misspelt, mistyped or impossible parameter, also one that papermill injected.
    """
    style()
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
    display(HTML(f"<figure>{svg[svg.index('<svg'):]}</figure>"))
    plt.close(figure)


def markdown(frame):
    """A DataFrame as a Markdown table."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + " --- |" * len(frame.columns)]
    lines += ["| " + " | ".join("" if pd.isna(v) else str(v) for v in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def explore(function, **knobs):
    """Knobs for a reader in JupyterLab (`knobs` as ipywidgets takes them); the function's own defaults in batch."""
    if os.environ.get(notebook.BATCH):
        function()
        return
    import ipywidgets
    ipywidgets.interact(function, **knobs)
