"""Artefact: what a notebook makes, written whole with where it came from.

    page = artefact.start("ghostbert_t03_pruned_vs_ghost", globals())
    runs = page.runs(grid, recorded)
    page.table(frame, "Table 3"); page.figure(figure, data); page.finish()

A figure is written to `figures/<profile>/<id>.{svg,png}`, the data it draws to `<id>.figure.csv`. A
table is written to `<id>.csv`. `<id>.json` says which runs, which code and when. What has
no run to show yet is a sentence instead. Experiments have folders of their own below
`figures/scratch/` (lib.page.notebook.place).
"""

import io
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import signature
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display

from lib.measure import compare
from lib.measure.claims import SCALES
from lib.page import claims as source
from lib.page import notebook, plot, report
from lib.page.tables import Runs, compared, digits, joined, markdown, seen, styled
from lib.page.verdicts import ENVIRONMENT, answers, escaped, tally, told
from lib.papers import grids
from lib.runs import paths, sweep
from lib.runs.execute import commit

PARTS = ENVIRONMENT.get_template("parts.html.j2").module
END = ENVIRONMENT.get_template("end.md.j2")
MADE = {"run": "made here", "record": "recorded"}  # by the origin of a run


def put(markdown, html=""):
    """Show text in Markdown, of which light pages are made too (lib.page.sheet).

    html: the same, where a page can show more than Markdown says.
    """
    forms = {"text/markdown": paths.scrubbed(markdown), "text/html": html}
    if forms := {kind: text for kind, text in forms.items() if text}:
        display(forms, raw=True)


@dataclass
class Page:
    """An open notebook: its parameters, the runs it used, the files it wrote."""

    id: str
    values: dict
    folder: Path
    differs: tuple = ()  # sentences on what makes it an experiment
    used: dict = field(default_factory=dict)  # name of a run: how it was made, or its state
    files: list = field(default_factory=list)

    @cached_property
    def scope(self):
        """The profile as grids know it: with the reader's own data and model."""
        return grids.meant({"profile": "toy"} | self.values)

    @property
    def mine(self):
        """Sentences on what is the reader's own; none where all is the profile's."""
        return grids.own_lines(self.scope)

    def collect(self, rows, on_missing="run"):
        """Return the rows with their results (lib.runs.sweep.collect).

        Missing runs are made here, unless a batch made them before. Why some are still missing
        stands below the cell. on_missing: "skip" makes none, and tells of none.
        """
        lost, specs = {}, [row["spec"] for row in rows]
        if on_missing == "run" and not os.environ.get(notebook.BATCH):
            if todo := sweep.missing(specs):
                self.note([f"{sweep.expected(todo)}. What is made stays when you interrupt it."])
                lost = sweep.make(specs)
        frame = sweep.collect(rows, lost=lost)
        if self.mine and on_missing == "skip":
            return frame  # of the paper's verdicts, which are off
        there = {row["spec"].name: row for row in frame.to_dict("records")}
        for name, row in there.items():
            self.used[name] = MADE[row["run"].origin] if row["run"] else row["state"]
        if on_missing != "skip":
            how = f"not made yet: `{notebook.command(self.id, self.scope)}` makes what is missing"
            why = Counter(row["error"] or how for row in there.values() if not row["run"])
            self.note(f"{n} of {len(there)} runs missing: {text}" for text, n in why.most_common(3))
        return frame

    def runs(self, grid, recorded=(), of=list):
        """Return the runs of a grid (lib.page.tables.Runs).

        grid: rows, or a function that makes them for a profile and the page's parameters. The
        page's own are made where they are missing. Those at mini, which the function makes too or
        which are `recorded` (rows, or a function without arguments), are looked up. of: f(rows that
        the function makes) -> other rows, such as those of the searches behind networks.
        """
        if callable(grid):
            grid, recorded = of(grids.rows(grid, self.scope, self.values)), of(grid("mini"))
        recorded = recorded() if callable(recorded) else recorded
        made, there = self.collect(grid), self.collect(recorded, on_missing="skip")
        if len(made):
            put("", PARTS.grid(compared(made).to_html(index=False, border=0)))
        return Runs(made, there, self.scope)

    def table(self, frame, caption, name="", index=None):
        """Write and show a table without its empty rows and columns, or a sentence where all are.

        frame: a DataFrame, or {row: {column: value}}; tuples as rows or columns make levels.
        name: tells several tables of one page apart. index: the name of the rows, or a list of
        names of their levels. Its file has more columns than the page, see `lib.page.tables.seen`.
        """
        if not isinstance(frame, pd.DataFrame):
            frame = compare.table(frame, names=())
        frame = frame.rename_axis(index) if index and len(frame) else frame
        if self.mine:
            caption = f"{caption.removesuffix('.')}. {self.mine[0]}"
        rows = ", ".join(joined(frame.index, " "))
        frame = frame.mask(frame.isin(["", "–", "not run"]))
        frame = frame.dropna(how="all").dropna(axis=1, how="all")
        if frame.empty:
            what = f"{caption}. Rows: {rows}" if rows else caption
            return put(f"Not measured yet: {escaped(what)}.")
        text = frame.map(digits, na_action="ignore")
        stem, (shown, turned) = self._stem(name), seen(text)
        self._write(f"{stem}.csv", text.set_axis(joined(text.columns, ", "), axis=1).to_csv())
        if more := len(frame.columns) - len(shown.columns):
            caption = f"{caption.removesuffix('.')}. {more} more columns are in {stem}.csv"
        html = styled(shown.swaplevel(axis=1) if turned else shown, stem)
        light = markdown(shown.set_axis(joined(shown.columns, ", "), axis=1))
        put(f"*{escaped(caption)}*\n\n{light}", PARTS.table(caption, html))

    def note(self, lines, mark="", fold=""):
        """Show remarks below a table or figure; folded away under the words `fold`, where given."""
        text = "".join(f"- {escaped(f'{mark}{line}')}\n" for line in lines)
        if text and fold:
            text = f"<details><summary>{escaped(fold)}</summary>\n\n{text}\n</details>"
        put(text)

    def figure(self, figure, data, name="", exact=False):
        """Write and show a figure with the data it draws, or a sentence where there is none.

        A line above a toy figure says that it is one, unless what it shows is exact at any scale.
        """
        if data.dropna(how="all").empty:
            plt.close(figure)
            return put(f"Not measured yet: a figure of {escaped(', '.join(map(str, data)))}.")
        for axis in figure.axes:
            if axis.axison and not axis.has_data():
                axis.text(0.5, 0.5, "no run yet", transform=axis.transAxes, **plot.CENTRE)
        stem = self._stem(name)
        if self.scope == "toy" and not self.mine and not exact and "recorded" not in name:
            told = "toy scale, but for what is called recorded or published"
            figure.text(1, 1, told, ha="right", va="bottom", color="grey", fontsize=9)
        svg = drawn(figure)
        self._write(f"{stem}.svg", svg)
        with paths.whole(self.folder / f"{stem}.png") as place:
            figure.savefig(place, format="png", dpi=144, metadata={"Software": None})
        self.files.append(f"{stem}.png")
        self._write(f"{stem}.figure.csv", data.to_csv(index=False))
        show(figure, f"{stem}.png", svg)

    def _stem(self, name):
        return f"{self.id}.{name}" if name else self.id

    def _write(self, name, text):
        paths.write(self.folder / name, paths.scrubbed(text))
        self.files.append(name)

    def finish(self, checks=(), *deviations, claims=None, answer=()):
        """Show verdicts, deviations and failures; write the provenance. It ends every page.

        The verdicts are those of `lib.page.claims` on the claims that name the page, or on
        `claims`, ids of others; on a page of toy runs they rest on mini. checks: Verdicts on
        printed numbers that the page itself computes. deviations: each {profile: lines} of a paper.
        Those of the page's profile are shown, and those of every profile that it judges. A page on
        a reader's own data or model has no verdict, and says what is the reader's instead. answer:
        lines on what the page answers, where it is not what its verdicts say. They stand below its
        title and end a command.
        """
        names, at = source.of_page(self.id) if claims is None else claims, self.scope[:]
        if self.mine:
            names, checks, deviations = (), (), [{at: self.mine}]
        scale = source.SCALE if at == "toy" else at
        verdicts = [*source.judged(names, scale=scale).values(), *checks]
        judged = [scale] * any(verdict.kind == "finding" for verdict in verdicts)
        differences = {
            name: [line for each in deviations for line in each.get(name, ())]
            for name in dict.fromkeys([*judged, at])
        }
        counted = Counter(self.used.values()).items()
        body = {
            "id": self.id,
            "profile": at,
            "differs": list(self.differs),
            "parameters": self.values,
            "answer": list(answer) or answers(verdicts),
            "counts": tally(verdicts),
            "counted": ", ".join(f"{n} {how}" for how, n in counted) or "none wanted",
            "runs": self.used,
            "verdicts": list(map(told, verdicts)),
            "deviations": differences,
            "files": list(dict.fromkeys(self.files)),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        } | commit()
        self._write(f"{self.id}.json", json.dumps(body, indent=1) + "\n")
        put(END.render(body, judged=judged, scales=SCALES, folder=paths.shown(self.folder)))
        if not os.environ.get(notebook.BATCH):
            report.publish(self.scope[:])


def start(name, namespace):
    """Open the page of notebook `name` from its bootstrap cell, with the kernel's globals.

    Raises ValueError or TypeError for a misspelt, mistyped or impossible parameter, also one that
    papermill injected. The global `profile` becomes one with the reader's own data and model, where
    the parameters name some.
    """
    plot.style()
    path = paths.NOTEBOOKS / f"{name}.ipynb"
    names = [*notebook.parameters(path), *notebook.injected(namespace.get("In", []))]
    values = notebook.check(path, {name: namespace[name] for name in names if name in namespace})
    batch = os.environ.get(notebook.BATCH)
    folder, differs = json.loads(batch) if batch else notebook.place(path, values, hand=True)
    page = Page(name, values, Path(folder), differs)
    if not batch:
        page.note([f"An experiment, in {paths.scrubbed(paths.shown(folder))}.", *differs])
    namespace["profile"] = page.scope
    return page


def drawn(figure):
    """Return a figure as the text of an SVG."""
    with io.StringIO() as buffer:
        figure.savefig(buffer, format="svg", metadata=plot.described(figure))
        return buffer.getvalue()


def show(figure, file="", svg=""):
    """Show a figure, which may belong to no artefact, such as one that a reader's knobs drive.

    file: the name of its picture, which stands on the light page. svg: as `drawn`, where it was.
    """
    svg = svg or drawn(figure)
    image = svg[svg.index("<svg") :].replace("<svg", '<svg role="img"', 1)
    wide = ' class="wide" tabindex="0"' if figure.get_figwidth() > 8 else ""
    light = f"![{escaped(plot.described(figure)['Title'])}]({file})" * bool(file)
    put(light, f"<figure{wide}>{image}</figure>")
    plt.close(figure)


def explore(function, **knobs):
    """Show the figure that a function returns, with knobs for a reader in JupyterLab.

    knobs: as ipywidgets takes them; nothing is shown where a list of values is empty. Elsewhere it
    is one picture, of the function's own defaults, else of the first values.
    """

    @wraps(function)
    def shown(**values):
        if figure := function(**values):
            show(figure)

    if [] in knobs.values():
        return
    if os.environ.get(notebook.BATCH) or not paths.in_lab():
        needed = [p.name for p in signature(function).parameters.values() if p.default is p.empty]
        shown(**{name: knobs[name][0] for name in needed})
        return
    import ipywidgets

    ipywidgets.interact(shown, **knobs)
