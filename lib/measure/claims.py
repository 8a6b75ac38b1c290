"""This module turns the runs that a claim's cells name into one word. It is free of torch.

A claim is a row of `claims.csv`. `judge` takes the collected rows of the grids of its pages. For
each cell (`lib.measure.cells`) it estimates the contrast with its 95 % interval, and tells whether
the contrast lies in the region of the cell. `Result.word` is the one place that turns an interval
into a word.

A claim is judged when the runs of all its planned seeds have ended, and never before. It holds when
all its cells hold, or as many as its column `least` says. So its p is the largest p of its cells
(intersection-union), or that of a partial conjunction. One cell is enough to contradict a claim,
and one cell to hold it in part; both are read after correction over the cells. `after_holm`
corrects over the central claims of a paper.

A comparison of models that learned nothing decides nothing: `untestable` says which and why.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path

import numpy as np
import scipy

from lib.measure import compare, stats
from lib.measure.cells import Cell, cell, parsed, scored
from lib.measure.estimates import estimate, frames_of, groups_of, parts_of, rows_of, thinnest
from lib.measure.measures import MEASURES, ranked
from lib.runs import paths

# WORDS has the mark, the name in counts and one line of each word. CHECKS has the text of each word
# where printed numbers are checked. READING tells how verdicts are to be read.
WORDS, CHECKS, READING = map(
    paths.toml(Path(__file__).with_suffix(".toml")).get, ("WORDS", "CHECKS", "READING")
)
SCALES = {"toy": "at toy scale", "mini": "at mini scale", "base": "at base scale"}
SCALES["paper"] = "at the paper's scale"
ALPHA = 0.05
DIFFER = 10 / 12  # At least this share of the ranked scores must differ.
FINAL = ("CONFIRMED", "CONTRADICTED", "PARTIAL")


@dataclass(frozen=True)
class Result:
    """A Result is one cell of a claim as it was measured on some tasks."""

    cell: Cell
    task: str  # The result is a mean over these tasks, with "/" between; "" stands for none.
    estimate: stats.Estimate | None
    done: int  # All runs of so many seeds have ended.
    planned: int
    printed: float | None = None  # The paper prints this value of the same cell and tasks.
    why: str = ""  # This is the reason why the cell cannot be tested.
    beside: bool = False  # The result is one task of a mean. It is shown and not judged.
    partly: bool = False  # Some tasks cannot be tested, and the mean is over the others.

    @property
    def word(self):
        """Return the word on this cell.

        It tells whether the interval lies in the region of the cell, or why that is not told.
        """
        (low, high), e = self.cell.bounds, self.estimate
        if self.why:
            return "NOT_TESTABLE"
        if low == high and e and e.mean > 0:
            return "CONTRADICTED"
        if self.done < self.planned:
            return "OPEN" if e or self.done else "NOT_RUN"
        if low == high and e:
            return "CONFIRMED"
        if e is None or e.n_seeds < stats.SEEDS:
            return "INCONCLUSIVE"
        if low <= e.low and e.high <= high and self.toward < ALPHA:
            return "CONFIRMED"
        outside = e.high < low or e.low > high
        return "CONTRADICTED" if outside and self.against < ALPHA else "INCONCLUSIVE"

    @property
    def toward(self):
        """Return the two-sided p that the value lies in the region: the larger p of both ends."""
        low, high = self.cell.bounds
        return max(beyond(self.estimate, low, 1), beyond(self.estimate, high, -1))

    @property
    def against(self):
        """Return the two-sided p that the value lies outside of the region."""
        low, high = self.cell.bounds
        return min(beyond(self.estimate, low, -1), beyond(self.estimate, high, 1))

    @property
    def unit(self):
        own = MEASURES[self.cell.measure].unit if self.cell.measure else "points"
        return f"{own} {self.cell.slope}".strip()

    @property
    def size(self):
        """Return the estimate as text, with its interval where the planned seeds are complete."""
        digits = 1 if self.unit == "points" or self.unit.startswith("points of") else 3
        text = f"{self.estimate.mean:+.{digits}f} {self.unit}"
        if not self.cell.measure and self.estimate.n_tasks <= self.task.count("/"):
            text += f" over {self.estimate.n_tasks} of {self.task.count('/') + 1} tasks"
        if self.word in ("OPEN", "NOT_RUN") or self.estimate.n_seeds < stats.SEEDS:
            return f"{text} ({self.done} of {self.planned} seed{'s' * (self.planned != 1)})"
        text = f"{text} [{self.estimate.low:.{digits}f}, {self.estimate.high:.{digits}f}]"
        printed = "" if self.printed is None else f", {self.printed:+.{digits}f} printed"
        whole = self.cell.measure and MEASURES[self.cell.measure].whole
        return f"{text} ({self.estimate.n_seeds} {'values' if whole else 'seeds'}{printed})"

    def __str__(self):
        told = self.cell.each or self.beside or self.partly
        place = f" on {self.task.replace('/', ' and ')}" if told else ""
        if self.why or self.estimate is None:
            return f"{self.cell.words}{place}: {self.why or 'not measured'}"
        return f"{self.cell.words}{place}: {self.size}"


@dataclass(frozen=True)
class Verdict:
    """A Verdict is the word on a claim, and the Results that it rests on."""

    claim: str
    verdict: str  # It is one of WORDS.
    measured: str
    note: str = ""
    scale: str = "any scale"
    kind: str = "arithmetic"  # The other kind is "finding".
    p: float | None = None  # It is the two-sided p of this word by itself, where there is one.
    holm: float | None = None  # It is p after Holm's correction over the claims of the paper.
    results: tuple[Result, ...] = ()

    def __getitem__(self, key):
        """Return the Verdict with those Results alone that are of a task, or whose cells have a
        text.

        So "{N1[STS-B][10 %]}" in a text is a measured figure; see `__str__`.
        """
        found = [r for r in self.results if r.task == key]
        found = found or [r for r in self.results if key in r.cell.text]
        return replace(self, results=tuple(found))

    @property
    def printed(self):
        """Return the value that the paper prints of the first cell, as text."""
        told = [r for r in self.results if r.printed is not None]
        return f"{told[0].printed:+.1f}" if told else "nothing"

    def __str__(self):
        """Return the size of the first cell that was measured, or why it could not be tested."""
        first = next((r for r in self.results if r.estimate or r.why), None)
        if first is None or first.why:
            return "not testable" if first else "not measured yet"
        text, bracket, ends = replace(first, printed=None).size.partition(" [")
        return f"**{text}**{bracket}{ends}" if ends else text

    @property
    def seeds(self):
        """Return (done, planned) of the cell with fewest seeds done; None without any cell."""
        own = [(r.done, r.planned) for r in self.results if not r.beside]
        return min(own, default=None)


def beyond(e, end, side):
    """Return the two-sided p that an Estimate lies above or below an end of its region.

    side: 1 for above, -1 for below. At 0 it is the p of the Estimate. At another end it is read off
    the 95 % interval: it is 0.05 where the interval touches the end.
    """
    if not isfinite(end):
        return 0.0 if (end < 0) == (side > 0) else 1.0
    if end == 0:
        return e.p if side * e.mean > 0 else 1.0
    room, half = side * (e.mean - end), side * (e.mean - (e.low if side > 0 else e.high))
    if half <= 0:
        return float(room < 0)
    normal = scipy.stats.norm
    return min(1.0, 2 * float(normal.sf(normal.ppf(1 - ALPHA / 2) * room / half)))


def conjunction(p, least):
    """Return p that at least so many of some hypotheses are false (Benjamini and Heller 2008)."""
    return min(1.0, (len(p) - least + 1) * sorted(p)[least - 1])


# ---- THE WORD ON A CLAIM


def verdict(results, least=""):
    """Return (word, p) on a claim from the Results of its cells.

    least: how many cells the claim asks for, as text. "7" is a number, "half" means more than half,
    and "all" means that one opposite contradicts the claim even where other cells hold. With "" the
    claim then holds in part.
    """
    judged = [r for r in results if not r.beside]
    # A task that cannot be tested does not count.
    asked = [r for r in judged if not (r.why and r.cell.each)]
    words = [r.word for r in asked]
    if not any(word != "NOT_TESTABLE" for word in words):
        return "NOT_TESTABLE", None
    never = all(low == high for low, high in (r.cell.bounds for r in asked))
    if never and "CONTRADICTED" in words:
        return "CONTRADICTED", None  # One run is enough.
    if {"OPEN", "NOT_RUN"} & {*words}:
        return "OPEN" if {*words} - {"NOT_RUN"} else "NOT_RUN", None
    if never:
        return "CONFIRMED", None
    there = [
        r.estimate is not None and r.estimate.n_seeds >= stats.SEEDS and not r.why for r in asked
    ]
    toward = [r.toward if ok else 1.0 for r, ok in zip(asked, there, strict=True)]
    against = [r.against if ok else 1.0 for r, ok in zip(asked, there, strict=True)]
    n = len(asked)
    wanted = {"": n, "all": n, "half": n // 2 + 1}.get(least) or min(int(least), n)
    p, opposite = conjunction(toward, wanted), conjunction(against, n - wanted + 1)
    if words.count("CONFIRMED") >= wanted and p < ALPHA:
        return "CONFIRMED", p
    some = min(stats.holm(toward)) if "CONFIRMED" in words else 1.0
    if "CONTRADICTED" in words and opposite < ALPHA and (least or some >= ALPHA):
        return "CONTRADICTED", opposite
    if some < ALPHA:
        return "PARTIAL", float(some)
    return ("NOT_TESTABLE" if "NOT_TESTABLE" in words else "INCONCLUSIVE"), min(p, opposite)


def after_holm(alone):
    """Return {claim: (word, p)} of the central claims of a paper after Holm's correction over them.

    alone: {claim: (word, p)} of each claim by itself. A claim whose seeds are not complete counts
    with p = 1, so that no word is taken back when they are.
    """
    family = [id for id, (word, p) in alone.items() if p is not None or word in ("OPEN", "NOT_RUN")]
    p = stats.holm([1.0 if alone[id][1] is None else alone[id][1] for id in family])
    found = dict(alone)
    for id, adjusted in zip(family, map(float, p), strict=True):
        word, own = alone[id]
        if own is not None:
            lost = word in FINAL and adjusted >= ALPHA
            found[id] = "INCONCLUSIVE" if lost else word, adjusted
    return found


def judge(line, rows, metric_of, teachers, scale, printed=None):
    """Return the Verdict on a claim from the collected rows of its cells.

    line: the row of claims.csv. rows: rows as `compare.with_metrics` returns them.
    metric_of: {task: Columns} as in `lib.measure.compare.pairs`. teachers: f(Spec) -> the runs
    whose scores its model should approach. printed: {(cell, task): points}, see `Result`. Raises
    LookupError that names what is missing, where no cell has rows.
    """
    results, absent, seen, lost, away = [], {}, {}, set(), set()
    for one in parsed(line["cells"]):
        try:
            own = rows_of(one, rows)
        except LookupError as error:
            absent[f"not at this scale: {error.args[0]}"] = error.args[0]
            continue
        specs = [frozenset(row["spec"] for row in part) for _, part in parts_of(one, own)]
        runs = one.measure, one.bounds, *specs
        if runs in seen:
            absent[f"{one.words} has the runs of {seen[runs]} here"] = ""
            continue
        seen[runs] = one.words
        lost |= {row["spec"] for row in own if row["state"] in ("failed", "died")}
        if not one.measure:
            away |= {row["spec"] for row in own if row.get("diverged") in (True,)}
        results += measured(one, own, metric_of, teachers, line)
    if not results:
        raise LookupError("; ".join(absent.values()))
    results = [replace(r, printed=(printed or {}).get((r.cell.text, r.task))) for r in results]
    word, p = verdict(results, line["least"])
    notes = [*absent, *[f"{len(lost)} runs failed"] * bool(lost)]
    if any(r.estimate for r in results) and away:
        notes.append(f"runs that diverged and are left out: {len(away)}")
    shown = "; ".join(map(str, results)) if word != "NOT_RUN" else "not measured"
    told = shown, "; ".join(notes), SCALES[scale], "finding", p
    return Verdict(line["id"], word, *told, results=tuple(results))


# ---- ONE CELL


def measured(one, rows, metric_of, teachers, line):
    """Return the Results of one Cell on its rows.

    They are one for each task, or one for all tasks that can be tested with one for each beside it.
    """
    of = {}
    for row in rows:
        if isinstance(row.get("task"), str):
            of.setdefault(row["task"], []).append(row)
    plan = len(seeds(line["seeds"]))

    def result(cells, part, task, **more):
        there, done = thinnest(cells, part)
        groups = [] if cells.measure else groups_of(cells, part, metric_of)
        e, why = None, untestable(cells, part, metric_of, teachers, groups, line["may_fail"])
        if not why:
            e = estimate(cells, part, metric_of, groups)
        planned = plan or there
        return Result(one, task, e, min(done, planned), planned, why=why, **more)

    if one.each:
        own = {t: cell(one.text.replace("task=each", f"task={t}")) for t in of}
        kept = {t: c for t, c in own.items() if all(part for _, part in parts_of(c, rows))}
        return [result(c, rows_of(c, rows), t) for t, c in kept.items()]
    apart = any(key == "task" for _, where in one.models for key, _ in where)
    if len(of) < 2 or apart or one.measure:
        return [result(one, rows, "/".join(sorted(of)))]
    alone = [result(one, part, task, beside=True) for task, part in of.items()]
    sound = [r.task for r in alone if not r.why]
    if not sound:
        return [Result(one, "/".join(sorted(of)), None, 0, 1, why=alone[0].why), *alone]
    part = [row for row in rows if row.get("task") in sound]
    whole = result(one, part, "/".join(sorted(sound)), partly=len(sound) < len(of))
    if line["role"] not in ("central", "own") or len(sound) == 1:
        alone = [r for r in alone if r.why]
    return [whole, *alone]


def seeds(text):
    """Return the planned seeds of "10 to 14" or "10"; "" has none."""
    ends = [int(each) for each in text.split(" to ") if each]
    return range(ends[0], ends[-1] + 1) if ends else ()


# ---- WHAT CANNOT BE TESTED


def untestable(one, rows, metric_of, teachers, groups=(), may_fail=""):
    """Return why the runs of a Cell on some tasks decide nothing, or "" where they do.

    One reason is that at least half of a model's runs have a `fault`. Another is that two models
    give the same answers on all rows, or that too few of the ranked scores differ. may_fail: the
    models whose failing is what the claim says, with "; " between; they are spared.
    """
    for (label, where), part in parts_of(one, rows):
        if label in may_fail.split("; "):
            continue
        there = [row for row in part if row["run"] and scored(row["spec"])]
        found = list(filter(None, (fault(row, one.measure, metric_of, teachers) for row in there)))
        if found and 2 * len(found) >= len(there):
            place = "".join(f", {k} {v}" for k, v in where if v != "*" and k != "task")
            about = f" ({len(found)} of {len(there)} runs)" * (len(there) > 1)
            return f"{label.replace('*', 'any')}{place}: {found[0]}{about}"
    for group, _ in groups:
        if group and all(np.array_equal(pair.a, pair.b) for pair in group):
            return f"two models give the same answers on all {len(group[0].labels):,} rows"
    if one.measure == "rank correlation":
        both = ranked(frames_of(one, rows), metric_of)
        fewest = min(both.nunique()) if len(both) else inf
        if fewest < DIFFER * len(both):
            return f"{fewest} scores of {len(both)} differ"
    return ""


def fault(row, measure, metric_of, teachers):
    """Return in words what makes one run decide nothing, or "" where nothing does.

    The run diverged and `measure` is another one, it gives one answer, it is no better than chance,
    or it has less than half of the score of its teacher.
    """
    run, task = row["run"], row["task"]
    if row.get("diverged") in (True,):
        return "" if measure == "diverged" else f"it diverged on {task}"
    column = metric_of[task][0]
    if not row.get(column.key, np.nan) > -inf:  # The run has no such score.
        return ""
    score, chance, one = level(run, column)
    if one:
        return f"it gives one answer on all rows of {task}"
    if score <= chance:
        return f"it scores {score:.1f} on {task}, and chance reaches {chance:.1f}"
    best = max((level(each, column)[0] for each in teachers(row["spec"])), default=0.0)
    if score < best / 2:
        return f"it scores {score:.1f} on {task}, less than half of its teacher's {best:.1f}"
    return ""


@lru_cache(maxsize=4096)
def level(run, column):
    """Return (score of a run in points, what chance reaches, whether it gives one answer alone).

    Chance reaches two standard errors above the share of the most frequent class, or above 0 where
    the score is a correlation.
    """
    told = compare.judged(run, column)
    labels, said, n = told["labels"], told["said"], len(told["labels"])
    if column.metric in ("accuracy", *stats.MARKS):
        if column.metric in stats.MARKS:  # A model may answer no question.
            most = float(np.mean(labels < 0))
        else:
            most = np.unique(labels, return_counts=True)[1].max() / n
        chance = most + 2 * (most * (1 - most) / n) ** 0.5
    elif column.metric == "f1":
        most = float(np.mean(labels == 1))
        chance = 2 * most / (1 + most)  # A model may say 1 to all rows.
    else:
        chance = 2 / n**0.5
    score = stats.weighted_score(column.metric, [said], labels, np.ones((1, n)))[0, 0]
    return 100 * float(score), 100 * chance, len(np.unique(said)) == 1
