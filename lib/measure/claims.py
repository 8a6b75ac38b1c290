"""Claims: from the runs that a claim's cells name to one word. Free of torch.

A claim is a row of `claims.csv`. `judge` takes the collected rows of the grids of its pages. For
each cell (`lib.measure.cells`) it estimates the contrast with its 95 % interval and reads from it
whether the contrast lies in the region of the cell. `Result.word` is the one place that turns an
interval into a word.

A claim is judged once all its planned seeds are there, and never before. It holds when all its
cells do, or as many as its column `least` says; so its p is the largest p of its cells
(intersection-union), or that of a partial conjunction. The opposite of one cell is enough to
contradict it, and one cell to hold it in part: both are read after correction over the cells.
`after_holm` corrects over the central claims of a paper.

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

# Texts: of each word (its mark, how it is counted, one line), of each word for a check of printed
# numbers, and how verdicts are to be read.
WORDS, CHECKS, READING = map(
    paths.toml(Path(__file__).with_suffix(".toml")).get, ("WORDS", "CHECKS", "READING")
)
SCALES = {"toy": "at toy scale", "mini": "at mini scale", "paper": "at the paper's scale"}
ALPHA = 0.05
DIFFER = 10 / 12  # of the scores of things that are ranked
FINAL = ("CONFIRMED", "CONTRADICTED", "PARTIAL")


@dataclass(frozen=True)
class Result:
    """One cell of a claim as measured, on some tasks."""

    cell: Cell
    task: str  # the tasks over which it is a mean, with "/" between; "" for none
    estimate: stats.Estimate | None
    done: int  # seeds of which all runs are there
    planned: int
    printed: float | None = None  # what the paper prints of the same cell and tasks
    why: str = ""  # it cannot be tested
    beside: bool = False  # one task of a mean over several: shown, and not part of the verdict
    partly: bool = False  # a mean over those tasks alone that can be tested

    @property
    def word(self):
        """The word on this cell: whether its interval lies in its region, and what forbids to read
        it."""
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
        """Two-sided p that it lies in its region: the larger one of both ends."""
        low, high = self.cell.bounds
        return max(beyond(self.estimate, low, 1), beyond(self.estimate, high, -1))

    @property
    def against(self):
        """Two-sided p that it lies outside."""
        low, high = self.cell.bounds
        return min(beyond(self.estimate, low, -1), beyond(self.estimate, high, 1))

    @property
    def unit(self):
        own = MEASURES[self.cell.measure].unit if self.cell.measure else "points"
        return f"{own} {self.cell.slope}".strip()

    @property
    def size(self):
        """The estimate, and its interval where the planned seeds are there."""
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
    """The word on a claim, and what it rests on."""

    claim: str
    verdict: str  # one of WORDS
    measured: str
    note: str = ""
    scale: str = "any scale"
    kind: str = "arithmetic"  # or "finding"
    p: float | None = None  # two-sided, of what the word says by itself; None where there is none
    holm: float | None = None  # the same after Holm over the claims of its paper
    results: tuple[Result, ...] = ()

    def __getitem__(self, key):
        """Return the part whose cells have a text, or that is of a task; see `__str__`."""
        found = [r for r in self.results if r.task == key]
        found = found or [r for r in self.results if key in r.cell.text]
        return replace(self, results=tuple(found))

    @property
    def printed(self):
        """What the paper prints of the first cell, as text."""
        told = [r for r in self.results if r.printed is not None]
        return f"{told[0].printed:+.1f}" if told else "nothing"

    def __str__(self):
        """Return the first cell in words, so that "{N1[STS-B][10 %]}" in a text is a measured
        figure.
        """
        first = next((r for r in self.results if r.estimate or r.why), None)
        if first is None or first.why:
            return "not testable" if first else "not measured yet"
        text, bracket, ends = replace(first, printed=None).size.partition(" [")
        return f"**{text}**{bracket}{ends}" if ends else text

    @property
    def seeds(self):
        """(done, planned) of the thinnest cell; None where nothing is counted in seeds."""
        own = [(r.done, r.planned) for r in self.results if not r.beside]
        return min(own, default=None)


def beyond(e, end, side):
    """Return the two-sided p of an Estimate above (side 1) or below (side -1) an end of its region.

    At 0 it is that of the Estimate, else read off its 95 % interval: 0.05 where that touches it.
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
    """p that at least so many of some hypotheses are false (Benjamini and Heller 2008)."""
    return min(1.0, (len(p) - least + 1) * sorted(p)[least - 1])


# ---- THE WORD ON A CLAIM


def verdict(results, least=""):
    """Return (word, p) on a claim from the Results of its cells.

    least: how many cells the claim asks for, as text: "7", "half" for more than half, "all" where
    the opposite of one contradicts it even where others hold, "" where they then hold it in part.
    """
    judged = [r for r in results if not r.beside]
    # a task that cannot be tested leaves
    asked = [r for r in judged if not (r.why and r.cell.each)]
    words = [r.word for r in asked]
    if not any(word != "NOT_TESTABLE" for word in words):
        return "NOT_TESTABLE", None
    never = all(low == high for low, high in (r.cell.bounds for r in asked))
    if never and "CONTRADICTED" in words:
        return "CONTRADICTED", None  # one run is enough
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
    """Return {claim: (word, p)} of the central claims of a paper, read after Holm over them.

    told: the same as each stands by itself. Claims whose seeds are not there yet count with p = 1,
    so that no word turns back when they are.
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

    line: its row of claims.csv. rows: see `lib.runs.sweep.joined`. metric_of: {task: columns}
    (`lib.measure.compare.pairs`). teachers: f(Spec) -> runs that it is to come near.
    printed: {(cell, task): points}, see `Result`. Raises LookupError, naming it, where no cell has
    rows.
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
    """Return the Results of one Cell on its rows: on each task, or on all that can be tested and on
    each beside.
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
    """Return the planned seeds of "10 to 14" or "10"; none of ""."""
    ends = [int(each) for each in text.split(" to ") if each]
    return range(ends[0], ends[-1] + 1) if ends else ()


# ---- WHAT CANNOT BE TESTED


def untestable(one, rows, metric_of, teachers, groups=(), may_fail=""):
    """Why the runs of a Cell on some tasks decide nothing; "" where they do.

    In at least half of its runs a model is no better than chance, gives one answer, diverged though
    the cell is not about that, or has less than half of its teacher's score; or two models give the
    same answers on all rows; or of the scores that are ranked too few differ. Models of `may_fail`,
    with "; " between, are spared: that they fail is what the claim says.
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
    """Return what makes one run decide nothing, in words; "" for nothing."""
    run, task = row["run"], row["task"]
    if row.get("diverged") in (True,):
        return "" if measure == "diverged" else f"it diverged on {task}"
    column = metric_of[task][0]
    if not row.get(column.key, np.nan) > -inf:  # it has no such score
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

    Chance reaches two standard errors above what the most frequent class has, and above 0 where the
    score is a correlation.
    """
    told = compare.judged(run, column)
    labels, said, n = told["labels"], told["said"], len(told["labels"])
    if column.metric in ("accuracy", *stats.MARKS):
        if column.metric in stats.MARKS:  # of a model that answers no question
            most = float(np.mean(labels < 0))
        else:
            most = np.unique(labels, return_counts=True)[1].max() / n
        chance = most + 2 * (most * (1 - most) / n) ** 0.5
    elif column.metric == "f1":
        most = float(np.mean(labels == 1))
        chance = 2 * most / (1 + most)  # of a model that says 1 to all
    else:
        chance = 2 / n**0.5
    score = stats.weighted_score(column.metric, [said], labels, np.ones((1, n)))[0, 0]
    return 100 * float(score), 100 * chance, len(np.unique(said)) == 1
