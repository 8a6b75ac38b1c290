"""Runs of a page: those of its own profile beside those that are recorded at mini."""

from dataclasses import dataclass, replace

import pandas as pd

from lib.data.unseen import LONG
from lib.measure import compare
from lib.papers import grids
from lib.papers.grids import Own


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
            for name, value in labels.items():
                frame = frame[frame[name].eq(value)] if name in frame else frame[:0]
            return frame

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
        if not isinstance(self.profile, Own) and self.profile != "mini" and real.notna().any():
            found.insert(0, (self.recorded, "mini"))
        return [(compare.source(frame, at), frame, at) for frame, at in found]

    @property
    def rows(self):
        """Which rows the scores are of, in words for a caption."""
        told = []
        for source, frame, _ in (part for part in self.frames if len(part[1])):
            counts = [f"{n:,} and {m:,} of {task}" for task, (n, m) in compare.rows(frame).items()]
            more = f" and unseen rows of {LONG} words and more" * bool(counts)
            told.append(f"development rows{more} ({'; '.join([source, *counts])})")
        return f"on {', '.join(told) or 'development rows'}"

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
        """Return one DataFrame of all scores in points (lib.measure.compare.points), with
        `source`."""
        return pd.concat(
            of(compare.points(frame, grids.metrics(at, columns))).assign(source=source, scale=at)
            for source, frame, at in self.frames
        )

    def averages(self, columns=()):
        """Return one DataFrame of the average over tasks, in points, of each model and seed."""
        return self.points(columns, compare.average)

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
