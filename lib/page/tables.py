"""Runs and tables of a page. Free of torch.

Runs of its own profile stand beside those that are recorded at mini. Of a table it is told which
columns stand where, with which digits, as HTML and as Markdown.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.data.unseen import LONG
from lib.measure import compare
from lib.page.verdicts import escaped
from lib.papers import grids

WORDS = "text-align: left; white-space: normal"  # of a column of words or sentences
PRINTED = ("published", "printed")  # sources whose numbers a paper prints
HIDDEN = ("spec", "seed", "run", "state", "error")  # columns of a collected frame that are no label


@dataclass(frozen=True)
class Runs:
    """The collected frames of one grid (lib.runs.sweep.collect); `Page.runs` makes it.

    own: runs of the page's profile. recorded: runs at mini that are in the records.
    """

    own: pd.DataFrame
    recorded: pd.DataFrame
    profile: str  # or a reader's `Own`

    def where(self, **labels):
        """Return the runs of the rows that have these labels."""

        def chosen(frame):
            rows = frame.to_dict("records")
            return frame.loc[[labels.items() <= row.items() for row in rows]]

        return replace(self, own=chosen(self.own), recorded=chosen(self.recorded))

    def at(self, profile):
        """Return the frame of the page's own profile, or of mini."""
        return self.own if str(profile) == str(self.profile) else self.recorded

    @property
    def frames(self):
        """[(source, frame, profile)]: the recorded runs, where there are any, then the page's own.

        `source` says in words where the numbers come from. It is the head of columns and panels.
        """
        found, real = [(self.own, self.profile)], self.recorded.get("run", pd.Series())
        if str(self.profile) in ("toy", "paper") and real.notna().any():
            found.insert(0, (self.recorded, "mini"))
        return [(compare.source(frame, at), frame, at) for frame, at in found]

    @property
    def rows(self):
        """Which rows the scores are of, in words for a caption."""
        sources = ", ".join(source for source, *_ in self.frames)
        return f"on development rows and, at mini, unseen rows of {LONG} words and more ({sources})"

    def caption(self, published="", more=""):
        """Return the caption of a table of mean scores.

        published: which printed scores stand beside (test, development). more: what it ends with.
        """
        told = f"Published: {published} scores in points. Measured: scores" if published else ""
        told = told or "Scores in points"
        return f"{told} {self.rows}, mean ± standard deviation (seeds){more}"

    def by_task(self, columns=()):
        """Parts of a table (lib.measure.compare.table): mean score of each task, in points.

        columns: those that the paper's table prints (lib.measure.compare.Column).
        """
        return [
            compare.by_task(frame, grids.metrics(at, columns), source)
            for source, frame, at in self.frames
        ]

    def points(self, columns=(), of=lambda points: points):
        """Return one DataFrame of all scores in points (lib.measure.compare.points), with `source`.

        of: what is taken of the points of a source, such as lib.measure.compare.average.
        """
        return pd.concat(
            of(compare.points(frame, grids.metrics(at, columns))).assign(source=source, scale=at)
            for source, frame, at in self.frames
        )

    def gaps(self, method, baseline, by="task", columns=()):
        """Return {(source, value of the column `by`): Estimate} of how much a model scores above
        another.

        Runs that diverged are left out, and values where no two runs make a pair. columns: those
        that the paper's table averages (lib.papers.grids.metrics).
        """
        found = {
            (source, at): compare.difference(rows, method, baseline, grids.metrics(scale, columns))
            for source, frame, scale in self.frames
            for at, rows in frame[~compare.diverged(frame)].groupby(by, sort=False)
        }
        return {key: estimate for key, estimate in found.items() if estimate}

    def above(self, method, columns=()):
        """Return {(source, "rival, 3/12, task"): Estimate} of how much a model scores above each
        other.

        The width is named where the runs have one (column `m`). Pairs and columns as in `gaps`.
        """
        found, frames = {}, [frame for _, frame, _ in self.frames]
        for rival in dict.fromkeys(name for frame in frames for name in frame["model"]):
            by = ["m", "task"] if "m" in frames[0] else ["task"]
            gaps = self.gaps(method, rival, by, columns) if rival != method else {}
            for (source, (*width, task)), gap in gaps.items():
                found[source, ", ".join([rival, *map("{}/12".format, width), task])] = gap
        return found


def joined(names, between):
    """Return the names of rows or columns as text, `between` standing between their levels."""
    return [
        between.join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)
        for name in names
    ]


def seen(frame):
    """Return (a table as a page shows it, whether titles stand above sources in it).

    Columns are (source, title), and the first word of a title is a task. Each measured column
    stands beside the printed ones of its task. Printed columns of other tasks and scores on
    development rows alone are left out, for the file of the table has them. Where no task is
    common, all printed columns stand first.
    """

    def task(column):
        return re.split(r"[\s,(]", str(column[1]))[0]

    if frame.columns.nlevels != 2:
        return frame, False
    printed = [c for c in frame if re.split(r"\W", str(c[0]))[0] in PRINTED]
    measured = [c for c in frame if c not in printed and not str(c[1]).endswith(compare.ALONE)]
    tasks = [task(c) for c in measured]
    common = [c for c in printed if task(c) in tasks]
    if not common:
        return frame[printed + measured], False
    both = sorted(common + measured, key=lambda c: tasks.index(task(c)))
    return frame[both], True


def styled(text, name):
    """Return a table of texts as HTML; name: tells it from the other tables of its page.

    Columns of words or sentences are flush left. Cells of numbers do not wrap.
    """
    shown = Styler(text, na_rep="–", uuid=re.sub(r"\W", "-", name), cell_ids=False, escape="html")
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis).format_index_names(escape="html", axis=axis)
    words = text.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left = [f".col{n}" for n, flush in enumerate(words) if flush]
    return shown.set_table_styles([{"selector": each, "props": WORDS} for each in left]).to_html()


def digits(value):
    """Return the text of a cell: a printed number as printed, a float with four digits."""
    plain = isinstance(value, float | np.floating) and not hasattr(value, "text")
    return f"{value:.4g}" if plain else str(value)


def markdown(frame):
    """Return a table of texts as Markdown, the levels of its rows first; those without a name have
    no title.
    """
    names = [name or "" for name in frame.index.names]
    frame = frame.fillna("").reset_index(names=names, allow_duplicates=True)
    rows = [frame.columns, ["---"] * frame.shape[1], *frame.itertuples(index=False, name=None)]
    return "".join(f"| {' | '.join(map(escaped, row))} |\n" for row in rows)


def compared(frame):
    """Return what varies between the rows of a collected frame: its labels, and the seeds whose
    runs are there or missing.
    """
    metrics = {name for run in frame["run"].dropna() for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = frame[labels].astype(object).fillna("")
    table.insert(0, "run", [spec.step for spec in frame["spec"]])
    seeds = ["once" if spec.seed is None else str(spec.seed) for spec in frame["spec"]]
    there = frame["run"].notna()
    table = table.assign(seeds=seeds, there=there.map({True: "seeds there", False: "missing"}))
    by = [*table.columns[:-2], "there"]
    lines = table.groupby(by, sort=False)["seeds"].agg(", ".join)
    return lines.unstack("there", fill_value="").reset_index().rename_axis(columns=None)
