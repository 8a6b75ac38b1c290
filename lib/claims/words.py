"""This module gives each cell of a claim one of five words. It is free of torch.

A claim is a row of `claims.csv`, and a cell is one comparison of it
(`lib.claims.cells`). `judge_cells` takes the collected rows of the grids of the claim's
pages. For each cell and task it estimates the contrast with its 95 % interval.
`Result.word` is the one place that turns an interval into a word: it compares the
interval with the region that the paper claims, and with the value that the paper
prints. A claim has no word of its own. It is read as its cells.

Runs that collapsed make no pair, for both models alike, and are counted beside. A model
of which half the runs learned too little cannot be compared: `why_unlearned` says which and
why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from lib.claims.cells import FIRST, Cell, parse_cells, scores_examples
from lib.claims.cells import parse_cell as read
from lib.claims.estimates import (
    count_fewest_seeds,
    estimate_cell,
    pair_runs,
    select_comparable_rows,
    select_frames,
    select_rows_by_model,
)
from lib.claims.measures import add_values
from lib.core import disk
from lib.stats import compare, paired
from lib.stats.compare import Column
from lib.stats.measures import candidate_scores

# WORDS has the mark of each word and one line on it, in the order of a page. CHECKS has
# the words of printed numbers that are computed again. READING tells how words are to
# be read.
WORDS, CHECKS, READING = map(
    disk.read_toml(Path(__file__).with_suffix(".toml")).__getitem__,
    ("WORDS", "CHECKS", "READING"),
)
AGREES, OPPOSITE, NO_EFFECT, NOISY, NOT_MEASURED = (
    "agrees",
    "the other way round",
    "no such effect here",
    "too noisy to say",
    "not measured",
)
DECIDED = (AGREES, OPPOSITE, NO_EFFECT)
ALPHA = 0.05
NEAR = 10.0  # A model that may fail is told to come so many points near the other one.
FAMILIES = {
    "bert": "BERT",
    "roberta": "RoBERTa",
    "electra": "ELECTRA",
    "mpnet": "MPNet",
    "distilbert": "DistilBERT",
}
DIFFER = 10 / 12  # At least this share of the ranked scores must differ.


@dataclass(frozen=True)
class Result:
    """A Result is one cell of a claim as it was measured on some tasks at one
    profile."""

    claim: str
    cell: Cell
    task: str  # The result is a mean over these tasks, with "/" between; "" stands for none.
    estimate: paired.Estimate | None
    done: int  # All runs of so many seeds have ended.
    planned: int
    reason: str = ""  # This sentence says why the cell is not measured.
    printed: float | None = (
        None  # The paper prints this value of the same cell and tasks.
    )
    interest: float | None = (
        None  # The plan names it as the smallest effect of interest.
    )
    beside: bool = (
        False  # The result is one task of a mean. It is shown, and counts nowhere.
    )
    collapsed: str = ""  # It says how many runs of which model collapsed.
    counts: str = ""  # A share is told by its counts, such as "8 of 8 against 0 of 8".
    sentence: str = ""  # It says what is compared, and on which task.
    short: str = ""  # The same, for an axis.
    same_as: str = ""  # The central claim that has this very comparison, and counts it.
    holm: float | None = None  # It is p after Holm's correction over the family.

    @property
    def aim(self) -> float | None:
        """Return the effect that the interval is held to: printed, else of interest.

        It is None where it is no effect, or lies outside of the region.
        """
        value = self.interest if self.printed is None else self.printed
        low, high = self.cell.bounds
        usable = value is not None and value != self.null and low <= value <= high
        return value if usable else None

    @property
    def null(self) -> float:
        """Return the value that is no effect: 1 of a ratio, else 0."""
        return self.cell.quantity.null

    @property
    def unmeasured(self) -> str:
        """Return why there is no interval, in a sentence; "" where there is one."""
        if self.reason:
            return self.reason
        if self.estimate is None:
            return "not run yet"
        if self.estimate.n_seeds < paired.SEEDS:
            return f"{self.estimate.n_seeds} of at least {paired.SEEDS} seeds are there"
        return ""

    @property
    def word(self) -> str:
        """Return the word on this cell: the first of five rules that fits its
        interval."""
        if self.unmeasured:
            return NOT_MEASURED
        (low, high), e = self.cell.bounds, self.estimate
        assert e is not None
        if low <= e.low and e.high <= high:
            return AGREES
        if e.high < low or e.low > high:
            return OPPOSITE
        return NO_EFFECT if self.falls_short else NOISY

    @property
    def falls_short(self) -> bool:
        """Return whether the interval shuts out the aim on the side of no effect."""
        e, aim = self.estimate, self.aim
        if e is None or aim is None:
            return False
        return e.high < aim if aim > self.null else e.low > aim

    @property
    def size(self) -> str:
        """Return whether an agreeing interval shuts out the printed value, in words, or
        "".

        Without a printed value it tells whether the effect is below the one of
        interest."""
        e, (low, high) = self.estimate, self.cell.bounds
        if self.word != AGREES or self.aim is None or e is None:
            return ""
        if self.printed is None:
            return "weaker than the effect of interest" * self.falls_short
        if not self.shuts_out:
            return ""
        if isfinite(low) == isfinite(high):  # The distance from no effect tells.
            is_stronger = abs(e.mean - self.null) > abs(self.printed - self.null)
        else:  # The claim has a direction.
            is_stronger = (e.mean > self.printed) == isfinite(low)
        return f"{'stronger' if is_stronger else 'weaker'} than printed"

    @property
    def shuts_out(self) -> bool | None:
        """Return whether the interval shuts out the printed value; None where either is
        lacking."""
        if self.unmeasured or self.printed is None:
            return None
        assert self.estimate is not None
        return not self.estimate.low <= self.printed <= self.estimate.high

    @property
    def p(self) -> float | None:
        """Return the two-sided p of the end that the word rests on; None without an
        interval.

        That is the end of the region, or the printed value for "no such effect here".
        For "too noisy to say" it is the larger one of both."""
        word, e, aim = self.word, self.estimate, self.aim
        if word == NOT_MEASURED or e is None:
            return None
        ends = [e.p_of(end) for end in self.cell.bounds if isfinite(end)]
        if word == OPPOSITE:
            return min(ends)
        if word == NO_EFFECT:
            ends = []
        if word in (NO_EFFECT, NOISY) and aim is not None:
            ends.append(e.p_of(aim))
        return max(ends)

    @property
    def unit(self) -> str:
        unit, slope = self.cell.quantity.unit, self.cell.slope
        return f"{unit} {slope}" if slope and slope != FIRST else unit

    @property
    def compares(self) -> bool:
        """Return whether the number is a difference, which has a sign: no ratio, no
        level."""
        quantity = self.cell.quantity
        is_sole = quantity.null or quantity.of_all or len(self.cell.models) < 2
        return not is_sole

    def number(self, value: float) -> str:
        """Return a number in the unit of this cell as text, with its sign where it
        compares.

        A number that is not 0 is never shown as 0, so that a word can be read off its
        interval."""
        points = self.unit.startswith("points") and not self.cell.slope
        digits = 1 if points or (self.null and abs(value) >= 1) else 2
        text = f"{value:.{digits}f}"
        if value and not float(text):
            text = f"{value:.1g}" if abs(value) >= 1e-4 else "0"
        sign = "+" * (self.compares and value > 0 and bool(float(text)))
        return sign + text.replace("-", "−")

    @property
    def ours(self) -> str:
        """Return what was measured as text: "+0.3 [−0.1, 0.8]", or counts of a share.

        Without an interval it is the mean of the seeds that are there, if any.
        """
        e = self.estimate
        if self.counts:
            return self.counts
        if e is None or self.reason:
            return "–"
        if self.unmeasured:
            return f"{self.number(e.mean)} ({e.n_seeds} seed{'s' * (e.n_seeds != 1)})"
        ends = ", ".join(self.number(end).removeprefix("+") for end in (e.low, e.high))
        return f"{self.number(e.mean)} [{ends}]"

    @property
    def reading(self) -> str:
        """Return the word with what belongs to it: size, Holm's mark."""
        word = (
            "they differ" if self.word == OPPOSITE and self.equivalence else self.word
        )
        size = f" ({self.size})" if self.size else ""
        return f"{word}{size}{' †' * self.stays}"

    @property
    def equivalence(self) -> bool:
        return all(map(isfinite, self.cell.bounds))

    @property
    def stays(self) -> bool:
        """Return whether the word stays after Holm's correction over the family."""
        return self.word in DECIDED and self.holm is not None and self.holm < ALPHA


@dataclass(frozen=True)
class Verdict:
    """A Verdict is a claim with the Results of its cells, or a printed number computed
    again."""

    claim: str
    results: tuple[Result, ...] = ()
    note: str = ""
    profile: str = "any"
    kind: str = "arithmetic"  # The other kind is "finding".
    word: str = ""  # Arithmetic has one of CHECKS.
    measured: str = ""  # Arithmetic says what was computed.

    def __getitem__(self, key: str) -> "Verdict":
        """Return the Verdict with those Results alone that are of a task, or whose
        cells have a text.

        So "{N1[STS-B][10 %]}" in a text is a measured figure; see `__str__`.
        """
        matches = [r for r in self.results if r.task == key]
        matches = matches or [r for r in self.results if key in r.cell.text]
        return Verdict(self.claim, tuple(matches), self.note, self.profile, self.kind)

    @property
    def first(self) -> Result | None:
        """Return the first Result, measured or not; another one would answer another
        question."""
        return self.results[0] if self.results else None

    @property
    def printed(self) -> str:
        """Return what the paper prints of the first cell, as text."""
        first = self.first
        return (
            first.number(first.printed) if first and first.printed is not None else "–"
        )

    @property
    def reading(self) -> str:
        return self.first.reading if self.first else NOT_MEASURED

    @property
    def collapsed(self) -> str:
        """Return in brackets what the first cell tells of collapsed runs, "" without
        any."""
        return (
            f" ({self.first.collapsed})" if self.first and self.first.collapsed else ""
        )

    @property
    def n(self) -> str:
        """Return of how many seeds the first cell is, as text: "5 seeds"."""
        e = self.first.estimate if self.first else None
        return f"{e.n_seeds} seeds" if e else "no seeds"

    def __str__(self) -> str:
        """Return the size of the first cell that was measured, or that it was not."""
        first = self.first
        return (
            first.ours
            if first and first.estimate and not first.reason
            else NOT_MEASURED
        )


def correct_by_holm(results: list[Result], others: list[float]) -> list[Result]:
    """Return Results with Holm's corrected p over their family: one paper at one
    profile.

    A task of a mean, and a comparison that another claim counts, are not of the family.
    others: the p of its other cells."""
    family = [r for r in results if not (r.beside or r.same_as) and r.p is not None]
    adjusted = paired.holm([*(r.p or 0.0 for r in family), *others])[: len(family)]
    holm = {id(r): float(p) for r, p in zip(family, adjusted, strict=True)}
    return [replace(r, holm=holm[id(r)]) if id(r) in holm else r for r in results]


@dataclass(frozen=True)
class Setting:
    """A Setting is what the cells of a claim are judged with, beside their rows."""

    metric_of: Mapping[str, Sequence[Column]]  # As in `lib.stats.compare.pair_columns`.
    scale: str  # The name of the profile.
    # The key is (text of a cell, task).
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # The same; the task "" stands for all.
    interest: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # The points of a whole model in a trial, by task.
    level: Mapping[str, float] = field(default_factory=dict)
    planned: int = 0  # So many seeds are planned; 0 stands for those of the rows.
    may_fail: tuple[str, ...] = ()  # That these models fail is what the claim says.

    def value(
        self, table: Mapping[tuple[str, str], float], text: str, task: str
    ) -> float | None:
        """Return what a table has of a cell: the mean over its tasks, or None if one is
        lacking."""
        parts = [
            table.get((text, part), table.get((text, ""))) for part in task.split("/")
        ]
        values = [part for part in parts if part is not None]
        if len(values) == len(parts):
            return float(np.mean(values))
        return table.get((text, task))


def judge_cells(
    line: Mapping[str, str], rows: Sequence[Mapping[str, Any]], setting: Setting
) -> tuple[list[Result], str]:
    """Return (the Results of a claim, a note) from the collected rows of its cells.

    line: the row of claims.csv. rows: rows as `compare.with_metrics` returns them. A
    cell whose runs another cell of the claim has here counts once. One that has no rows
    at this profile is not measured, and says what it lacks."""
    results, seen, lost, compared = [], set(), set(), []
    for cell in parse_cells(line["cells"]):
        try:
            of_cell = select_comparable_rows(cell, rows)
        except LookupError as error:
            why = describe_lack(error.args[0], setting.scale)
            results.append(Result(line["id"], cell, "", None, 0, setting.planned, why))
            continue
        key = identify_comparison(cell, of_cell)
        if key not in seen:
            seen.add(key)
            compared.append(of_cell)
            lost |= {
                row["spec"] for row in of_cell if row["state"] in ("failed", "died")
            }
            results += measure_cell(cell, of_cell, line["id"], setting)
    notes = [f"{len(lost)} runs failed"] * bool(lost) + compare.describe_dtypes(
        *compared
    )
    return results, "; ".join(notes)


def describe_lack(model: str, scale: str) -> str:
    """Return in a sentence what a profile lacks, from the name of a model without
    rows."""
    label, _, place = model.partition(" at ")
    needs = dict(part.split(" ", 1) for part in place.split(", ") if " " in part)
    if "family" in needs:
        return f"no row of the profile {scale} has {FAMILIES[needs['family']]}"
    if "task" in needs:
        tasks = needs["task"].replace("/", " or ")
        return f"no row of the profile {scale} is on {tasks}"
    return f"the profile {scale} has no row “{model}”"


def identify_comparison(
    cell: Cell, rows: Sequence[Mapping[str, Any]]
) -> tuple[Any, ...]:
    """Return what makes two cells the same comparison: measure, region, weights and
    runs."""
    specs = [
        frozenset(row["spec"].id for row in part)
        for _, part in select_rows_by_model(cell, rows)
    ]
    weights = [round(weight, 9) for weight, _ in cell.terms]
    return cell.measure, cell.about, cell.bounds, *weights, *specs


def measure_cell(
    cell: Cell, rows: Sequence[Mapping[str, Any]], claim: str, setting: Setting
) -> list[Result]:
    """Return the Results of one Cell on its rows.

    They are one for each task, or one for the mean of all tasks that can be tested with
    one for each task beside it."""
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if isinstance(row.get("task"), str):
            by_task.setdefault(row["task"], []).append(row)

    def result(
        one: Cell, part: Sequence[Mapping[str, Any]], task: str, beside: bool = False
    ) -> Result:
        seeds, done = count_fewest_seeds(one, part)
        groups = (
            []
            if one.measure
            else pair_runs(one, part, setting.metric_of, setting.may_fail)
        )
        reason = why_untestable(one, part, setting, groups)
        e = None if reason else estimate_cell(one, part, setting.metric_of, groups)
        planned = setting.planned or seeds
        return Result(
            claim,
            cell,
            task,
            e,
            min(done, planned),
            planned,
            reason,
            printed=setting.value(setting.printed, cell.text, task),
            interest=setting.value(setting.interest, cell.text, task),
            beside=beside,
            collapsed=count_collapsed(one, part, setting),
            counts=count_shares(one, part, setting) if e else "",
        )

    if cell.is_per_task or (cell.quantity.share and len(by_task) > 1):
        results = []
        for task, part in by_task.items():
            one = read(cell.text.replace("task=each", f"task={task}"))
            if all(part for _, part in select_rows_by_model(one, part)):
                results.append(result(one, select_comparable_rows(one, part), task))
        return results
    # Tasks are compared with each other where a cell names another task for each of its
    # models.
    apart = len({dict(where).get("task") for _, where in cell.models}) > 1
    if len(by_task) < 2 or cell.measure or apart:
        return [result(cell, rows, "/".join(sorted(by_task)))]
    alone = [result(cell, part, task, beside=True) for task, part in by_task.items()]
    sound = [r.task for r in alone if r.estimate]
    if not sound:
        first = replace(alone[0], task="/".join(sorted(by_task)), beside=False)
        return [first, *alone]
    part = [row for row in rows if row.get("task") in sound]
    alone = [
        r for r in alone if [r.task] != sound
    ]  # One task is no mean, and stands once.
    return [result(cell, part, "/".join(sorted(sound))), *alone]


def why_untestable(
    cell: Cell,
    rows: Sequence[Mapping[str, Any]],
    setting: Setting,
    groups: Sequence[tuple[list[paired.Pair], float]] = (),
) -> str:
    """Return why the runs of a Cell cannot be compared, in a sentence, or "" where they
    can.

    At least half of a model's runs learned nothing, two models give the same answers on
    all rows, or not all that is ranked has run, or too few of the ranked scores differ.
    """
    for (label, _), part in select_rows_by_model(cell, rows):
        if label not in setting.may_fail:
            if reason := why_unlearned(label, part, cell.measure, setting):
                return reason
    for group, _ in groups:
        if group and all(np.array_equal(pair.a, pair.b) for pair in group):
            return f"both models give the same answers on all {len(group[0].labels):,} rows"
    if cell.measure == "rank correlation":
        made = [row["run"] is not None or row["state"] == "failed" for row in rows]
        if 0 < sum(made) < len(made):
            return f"{sum(made)} of {len(made)} runs are there, and ranks are of all"
        both = candidate_scores(select_frames(cell, rows), setting.metric_of)
        fewest = min(both.nunique()) if len(both) else inf
        if fewest < DIFFER * len(both):
            return f"only {fewest} of {len(both)} scores differ"
    return ""


def why_unlearned(
    label: str, rows: Sequence[Mapping[str, Any]], measure: str, setting: Setting
) -> str:
    """Return in a sentence that half of a model's runs or more learned too little, or
    "".

    A run learned too little if it collapsed, or has less than half of the score that a
    whole model has in a trial. Where the share of collapsed runs is what is measured,
    they are no fault."""
    faults, runs = [], 0
    for row in rows:
        if not (
            row["run"] and scores_examples(row["spec"]) and has_score(row, setting)
        ):
            continue
        level = compare.level_of_run(row["run"], setting.metric_of[row["task"]][0])
        floor = setting.level.get(row["task"], 0.0) / 2
        runs += 1
        if level.collapsed and measure == "diverged":
            continue
        if level.collapsed or level.score < floor:
            faults.append((level.score, row["task"], level))
    if not faults or 2 * len(faults) < runs:
        return ""
    scores, tasks, levels = zip(*faults, strict=True)
    low, high = f"{min(scores):.1f}", f"{max(scores):.1f}"
    reach = low if low == high else f"{low} to {high}"
    what = label.replace("*", "a model")
    count = f" in {len(faults)} of {runs} runs" * (runs > 1)
    place = f"on {tasks[0]}: {reach} points{count}"
    if all(level.collapsed for level in levels):
        return f"{what} learned nothing {place}, no more than {levels[0].chance:.1f}"
    half = setting.level[tasks[0]] / 2
    return f"{what} stayed under half of the whole model's score {place}, half is {half:.1f}"


def has_score(row: Mapping[str, Any], setting: Setting) -> bool:
    """Return whether the run of a row has the score of its task's first column."""
    return row.get(setting.metric_of[row["task"]][0].name_of_score, np.nan) > -inf


def count_collapsed(
    cell: Cell, rows: Sequence[Mapping[str, Any]], setting: Setting
) -> str:
    """Return how many runs of which model collapsed: "2 of 9 runs of 30 % IMP
    collapsed".

    Of a model that may fail it is in how many seeds it comes near the other one. It is
    "" where there is nothing to tell."""
    levels: dict[str, dict[str, list[tuple[int, compare.Level]]]] = {}
    for (label, _), part in select_rows_by_model(cell, rows):
        for row in part:
            if row["run"] and scores_examples(row["spec"]) and has_score(row, setting):
                level = compare.level_of_run(
                    row["run"], setting.metric_of[row["task"]][0]
                )
                by_task = levels.setdefault(label, {})
                by_task.setdefault(row["task"], []).append((row["seed"], level))
    lines, tasks = {}, {task for by_task in levels.values() for task in by_task}
    for label, by_task in levels.items():
        name, rivals = label.replace("*", "a model"), levels.keys() - {label}
        fails = label in setting.may_fail and len(rivals) == 1 and not cell.measure
        for task, runs in by_task.items():
            place = f" on {task}" * (len(tasks) > 1)
            lost = sum(level.collapsed for _, level in runs)
            if fails:
                (rival,) = rivals
                other = dict(levels[rival].get(task, ()))
                gaps = [
                    other[seed].score - level.score
                    for seed, level in runs
                    if seed in other
                ]
                near = sum(abs(gap) <= NEAR for gap in gaps)
                if near < len(gaps):
                    words = f"{name} comes within {NEAR:.0f} points of {rival} in"
                    lines[f"{words} {near} of {len(gaps)} seeds{place}"] = None
            elif lost and cell.measure != "diverged":
                lines[f"{lost} of {len(runs)} runs of {name} collapsed{place}"] = None
    return "; ".join(lines)


def count_shares(
    cell: Cell, rows: Sequence[Mapping[str, Any]], setting: Setting
) -> str:
    """Return the counts of a measure that is a share of runs: "8 of 8 against 0 of 8",
    else ""."""
    if not cell.quantity.share:
        return ""
    frames = [
        add_values(cell.measure, f, setting.metric_of)
        for f in select_frames(cell, rows)
    ]
    return " against ".join(f"{f['value'].sum()} of {len(f)}" for f in frames)
