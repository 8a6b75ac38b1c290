"""This module gives each comparison of a claim one of five words, such as "agrees".

A claim is a row of `claims.csv`, with one or more Comparisons
(`lib.claims.cells`). `judge_comparisons` takes the rows of the claim's runs. For each
comparison and task it estimates the effect with its 95 % interval.
`Result.verdict_word` alone turns an interval into a word: it compares the interval with
the region that the paper claims, and with the value that the paper prints. A claim has
no word of its own: a page shows the words of its comparisons.

A seed in which a model collapsed is left out of the pairs and counted. A model cannot
be compared if at least half of its runs learned too little:
`explain_model_that_learned_little` says which model and why."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from lib.claims.cells import FIRST, Comparison, parse_comparisons
from lib.claims.cells import parse_comparison as read
from lib.claims.estimates import (
    WeightedPairs,
    count_planned_and_ended_seeds,
    estimate_comparison_effect,
    group_rows_by_model,
    list_tasks_in_non_score_estimate,
    make_data_frame_per_model,
    make_value_frame_per_model,
    pair_runs_of_compared_models,
    select_result_rows_in_one_dtype,
)
from lib.claims.lists import ClaimsCsvRow, EffectByComparisonAndTask
from lib.claims.measures import MetricColumnsByTask
from lib.core import disk
from lib.core.rows import ResultRow
from lib.core.types import ReasonOrEmpty
from lib.papers.encoder import FAMILIES
from lib.stats import compare, paired
from lib.stats.measures import tabulate_search_and_final_scores_by_candidate

# Tables of words.toml. WORDS: {outcome of a comparison, such as "agrees": (symbol shown
# before it, rule by which it is given)}, in the order in which the rules are tried.
# CHECKS: {outcome for a printed number that is computed again, such as "equal": its
# symbol}. READING: paragraphs that explain the outcomes to readers.
# MEASURED_ON: {profile: sentence on encoder, rows and intervals of its comparisons}.
WORDS, CHECKS, READING, MEASURED_ON = map(
    disk.read_toml(Path(__file__).with_suffix(".toml")).__getitem__,
    ("WORDS", "CHECKS", "READING", "MEASURED_ON"),
)
# "not measured", "agrees", "the other way round", "no such effect here", "too noisy to
# say".
NOT_MEASURED, AGREES, OPPOSITE, NO_EFFECT, NOISY = WORDS
DECIDED = (AGREES, OPPOSITE, NO_EFFECT)
ALPHA = 0.05
# A model that a claim expects to fail counts as near its rival if their scores differ
# by at most this number of points.
NEAR = 10.0
# A rank correlation is tested only if at least this share of the scores are distinct,
# in both of the two rankings.
DIFFER = 10 / 12


def format_verdict_word_counts(verdict_words: Iterable[str]) -> str:
    """Return how often each outcome occurs, as text: "3 agree, 1 too noisy to say".

    Outcomes of comparisons have a fixed order, and those that do not occur are left
    out.

    verdict_words: outcomes such as "agrees", one for each comparison."""
    counts = Counter(verdict_words)
    order = AGREES, OPPOSITE, NO_EFFECT, NOISY, NOT_MEASURED
    return ", ".join(
        f"{n} {inflect_verdict_word(w, n)}" for w in order if (n := counts[w])
    )


def inflect_verdict_word(verdict_word: str, count: int) -> str:
    """Return an outcome in the form that follows a number: "3 agree", but "1 agrees".

    Only the word is returned. Other outcomes, such as "too noisy to say", stay as they
    are."""
    return "agree" if verdict_word == AGREES and count != 1 else verdict_word


@dataclass(frozen=True)
class Result:
    """A Result is one comparison of a claim, measured at one size of the experiments.

    `verdict_word` says how it stands to the paper's claim: "agrees", "the other way
    round", "no such effect here", "too noisy to say" or "not measured".

    claim: the id of the claim, such as "G1".
    comparison: the comparison of models.
    task: the task, or the tasks of a mean with "/" between; "" without a task.
    estimate: the measured effect with its 95 % interval; None where runs are missing,
    or where `reason` says why there is none.
    ended_seed_count: how many of the planned seeds have ended with all their runs.
    reason: why the comparison is not measured, in a sentence; "" where it is measured,
    or not run yet.
    printed: the effect that the paper prints for this comparison; None where it prints
    none.
    smallest_effect_of_interest: the smallest effect of interest, named with the first
    seeds; None for none. The value of no effect says that the plan reads the comparison
    as a direction alone, so that the interval is tested against no size.
    is_single_task_of_mean: whether it is the result on one task, shown beside the
    result on the mean over tasks. Totals count only the mean.
    collapsed: text on how many runs of which model scored no better than chance; "" for
    none.
    counts: for a share of runs, the counts behind it, such as "8 of 8 against 0 of 8".
    sentence: the comparison and its task, in words.
    axis_label: the comparison and its task as an axis label.
    claim_that_counts_it: the id of another claim that makes the same comparison; "" for
    none. Totals count the comparison under that claim alone.
    holm_p_value: the p-value after Holm's correction over all comparisons of a paper;
    None without a correction."""

    claim: str
    comparison: Comparison
    task: str
    estimate: paired.Estimate | None
    ended_seed_count: int
    planned_seed_count: int
    reason: str = ""
    printed: float | None = None
    smallest_effect_of_interest: float | None = None
    is_single_task_of_mean: bool = False
    collapsed: str = ""
    counts: str = ""
    sentence: str = ""
    axis_label: str = ""
    claim_that_counts_it: str = ""
    holm_p_value: float | None = None

    @property
    def is_counted_in_totals(self) -> bool:
        """Return whether totals and Holm's correction count this comparison.

        A single task of a mean over tasks, and a comparison that is counted under
        another claim, would count twice."""
        return not (self.is_single_task_of_mean or self.claim_that_counts_it)

    @property
    def reference_effect(self) -> float | None:
        """Return the effect against which the interval is tested.

        It is the effect that the paper prints or, where it prints none, the smallest
        effect of interest. The measured effect is weaker where its whole interval lies
        below this value (above it, for a value below "no effect"). The result is None
        where there is neither, where the value means no effect, or where the claim
        excludes it, as "> 0" excludes -1. It is None too where the plan reads the
        comparison as a direction alone."""
        interest, (low, high) = self.smallest_effect_of_interest, self.comparison.bounds
        if interest == self.value_of_no_effect:
            return None
        value = interest if self.printed is None else self.printed
        usable = (
            value is not None
            and value != self.value_of_no_effect
            and low <= value <= high
        )
        return value if usable else None

    @property
    def value_of_no_effect(self) -> float:
        """Return the value that means no effect: 1 for a ratio, else 0.

        The direction and the strength of an effect are counted from it."""
        return self.comparison.measured_quantity.value_of_no_effect

    @property
    def unmeasured_reason(self) -> str:
        """Explain in a sentence why this comparison counts as not measured.

        Examples are missing runs, fewer than three seeds, or a model that learned
        nothing. It is "" where there is a 95 % interval."""
        if self.reason:
            return self.reason
        if self.estimate is None:
            return "not run yet"
        if self.estimate.n_seeds < paired.SEEDS:
            seeds = f"{self.estimate.n_seeds} seed{'s' * (self.estimate.n_seeds > 1)}"
            return f"{seeds}; {paired.SEEDS} are needed"
        return ""

    @property
    def seed_progress_text(self) -> str:
        """Return "3 of 12 planned seeds so far" where an interval is an interim one.

        It is "" where all planned seeds have ended, where nothing is measured, and
        where `counts` already tells the number of runs. An outcome may change with the
        missing seeds, so pages show the text beside the outcome."""
        if self.unmeasured_reason or self.counts:
            return ""
        assert self.estimate is not None
        # The larger number counts. `ended_seed_count` includes seeds whose runs collapsed, which
        # are not in the estimate. `n_seeds` includes seeds that still lack the run on
        # one of several tasks.
        count = max(self.ended_seed_count, self.estimate.n_seeds)
        is_interim = count < self.planned_seed_count
        return (
            f"{count} of {self.planned_seed_count} planned seeds so far"
            if is_interim
            else ""
        )

    @property
    def seed_count_text(self) -> str:
        """Return the number of seeds of the estimate: "5 seeds".

        A mean over tasks has a range, such as "6 to 10 seeds", if some tasks have fewer
        seeds: a seed is left out on a task where a model collapsed (did not learn). For
        measured times it is the number of repetitions, "50 turns", in each of which
        every model is timed once. While planned seeds are missing it is "3 of 5 planned
        seeds so far". It is "no seeds" without an estimate. Templates of pages quote
        this text."""
        replicates = self.comparison.measured_quantity.replicates
        if self.estimate is None:
            return f"no {replicates}"
        if self.seed_progress_text:
            return self.seed_progress_text
        fewest = self.estimate.n_seeds
        is_mean = self.estimate.n_tasks > 1
        if self.collapsed and is_mean and fewest < self.ended_seed_count:
            return f"{fewest} to {self.ended_seed_count} {replicates}"
        return f"{fewest} {replicates.removesuffix('s') if fewest == 1 else replicates}"

    @property
    def seed_count_in_brackets(self) -> str:
        """Return " (5 seeds)", or "" where other text counts the seeds already."""
        is_told_elsewhere = self.unmeasured_reason or self.seed_progress_text
        return "" if is_told_elsewhere else f" ({self.seed_count_text})"

    @property
    def remarks_in_brackets(self) -> str:
        """Return what stands beside the measured value, such as " (1 run collapsed)".

        The first remark counts runs that collapsed, which means a score at chance. The
        second counts the seeds, where not all planned ones have ended. The result is
        "" where neither is to be told."""
        remarks = (self.collapsed, self.seed_progress_text)
        return "".join(f" ({remark})" for remark in remarks if remark)

    @property
    def verdict_word(self) -> str:
        """Return how the 95 % interval stands to the paper's claim, in a fixed phrase.

        The first rule that fits counts. "not measured": there is no interval. "agrees":
        the claim, such as "> 0", holds for all values in the interval. "the other way
        round": it holds for none. "no such effect here": all values are weaker than the
        reference effect (the printed one or the smallest of interest). "too noisy to
        say": all else."""
        if self.unmeasured_reason:
            return NOT_MEASURED
        (low, high), e = self.comparison.bounds, self.estimate
        assert e is not None
        if low <= e.low and e.high <= high:
            return AGREES
        if e.high < low or e.low > high:
            return OPPOSITE
        return NO_EFFECT if self.interval_excludes_reference_effect else NOISY

    @property
    def interval_excludes_reference_effect(self) -> bool:
        """Return whether the whole interval is weaker than the reference effect.

        The reference effect is the effect that the paper prints or, where it prints
        none, the smallest effect of interest. The 95 % interval then excludes this
        effect, on the side of "no effect". The result is False without an interval or a
        reference effect."""
        e, aim = self.estimate, self.reference_effect
        if e is None or aim is None:
            return False
        return e.high < aim if aim > self.value_of_no_effect else e.low > aim

    @property
    def effect_strength_remark(self) -> str:
        """Return "weaker than printed" or "stronger than printed", or "".

        The phrase qualifies a result that agrees with the claim, where the 95 %
        interval excludes the effect that the paper prints. Where the paper prints none,
        the phrase is "weaker than the effect of interest" if the whole interval is
        weaker than the smallest effect of interest. In all other cases the result is
        ""."""
        e, (low, high) = self.estimate, self.comparison.bounds
        if self.verdict_word != AGREES or self.reference_effect is None or e is None:
            return ""
        if self.printed is None:
            is_weaker = self.interval_excludes_reference_effect
            return "weaker than the effect of interest" * is_weaker
        if not self.interval_excludes_printed_value:
            return ""
        # A claimed region with two finite ends, or with none, gives no direction. So
        # the distances from the value of no effect are compared.
        if isfinite(low) == isfinite(high):
            is_stronger = abs(e.mean - self.value_of_no_effect) > abs(
                self.printed - self.value_of_no_effect
            )
        else:  # The region has one finite end; the claimed direction is away from it.
            is_stronger = (e.mean > self.printed) == isfinite(low)
        return f"{'stronger' if is_stronger else 'weaker'} than printed"

    @property
    def interval_excludes_printed_value(self) -> bool | None:
        """Return whether the paper's printed effect lies outside the 95 % interval.

        It is None where no effect is printed, or there is no interval."""
        if self.unmeasured_reason or self.printed is None:
            return None
        assert self.estimate is not None
        return not self.estimate.low <= self.printed <= self.estimate.high

    @property
    def p_value(self) -> float | None:
        """Return the two-sided p-value of the test behind this comparison's outcome.

        For "agrees" and "the other way round" the null value is an end of the range for
        which the claim holds, such as 0 for "> 0". For "no such effect here" it is the
        printed effect or the smallest of interest (`reference_effect`). For "too noisy
        to say" the largest p of all these tests is returned. The result is None without
        an interval, and where nothing is tested: for times, and for claims that no run,
        or every run, has a property."""
        word, e, aim = self.verdict_word, self.estimate, self.reference_effect
        # Turns of a timing on one machine are no sample, and where a claim is that no
        # run, or every run, has a property, counting decides.
        is_tested = self.comparison.measured_quantity.replicates == "seeds"
        is_tested &= not self.counts or len({*self.comparison.bounds}) > 1
        if word == NOT_MEASURED or e is None or not is_tested:
            return None
        ends = [
            e.compute_p_value(end) for end in self.comparison.bounds if isfinite(end)
        ]
        if word == NO_EFFECT:
            ends = []
        if word in (NO_EFFECT, NOISY) and aim is not None:
            ends.append(e.compute_p_value(aim))
        return max(ends)

    @property
    def unit(self) -> str:
        unit, slope = (
            self.comparison.measured_quantity.unit,
            self.comparison.contrast_weights_name,
        )
        return f"{unit} {slope}" if slope and slope != FIRST else unit

    @property
    def is_effect_a_difference(self) -> bool:
        """Return whether the effect is a difference, which is shown with its sign.

        Ratios, rank correlations and values of a single model are shown without "+"."""
        quantity = self.comparison.measured_quantity
        is_sole = (
            quantity.value_of_no_effect
            or quantity.estimate_from_model_frames
            or len(self.comparison.models) < 2
        )
        return not is_sole

    def format_number(self, value: float) -> str:
        """Return a number in the unit of this comparison as text for tables.

        Points and ratios of at least 1 have one decimal, slopes and other numbers two;
        a difference has its sign. A number of at least 0.0001 is never shown as 0.0,
        so that a reader can see on which side of 0 an interval lies."""
        points = (
            self.unit.startswith("points") and not self.comparison.contrast_weights_name
        )
        digits = 1 if points or (self.value_of_no_effect and abs(value) >= 1) else 2
        text = compare.format_number_with_its_sign_side(value, digits)
        sign = "+" * (self.is_effect_a_difference and value > 0 and bool(float(text)))
        return sign + text.replace("-", "−")

    @property
    def measured_effect_text(self) -> str:
        """Return the effect with its 95 % interval as text: "+0.3 [−0.1, 0.8]".

        For shares of runs the text has the counts, such as "8 of 8 against 0 of 8".
        With too few seeds for an interval it has the mean and the number of seeds.
        Without an estimate it is "–"."""
        e = self.estimate
        if self.counts:
            return self.counts
        if e is None or self.reason:
            return "–"
        if self.unmeasured_reason:
            return f"{self.format_number(e.mean)} ({e.n_seeds} seed{'s' * (e.n_seeds != 1)})"
        ends = ", ".join(
            self.format_number(end).removeprefix("+") for end in (e.low, e.high)
        )
        return f"{self.format_number(e.mean)} [{ends}]"

    @property
    def verdict_text(self) -> str:
        """Return the outcome as tables show it: "agrees (weaker than printed) †".

        The brackets compare our effect with the one that the paper prints or, where it
        prints none, with the smallest effect of interest. They stand only where our 95
        % interval excludes that effect. A claim that models are equal has the outcome
        "they differ" where it fails. The mark † says that the outcome stays significant
        after Holm's correction."""
        word, strength = self.verdict_word, self.effect_strength_remark
        if word == OPPOSITE and self.claims_equivalence:
            word = "they differ"
        if strength:
            word += f" ({strength})"
        return word + " †" * self.is_significant_after_holm_correction

    @property
    def claims_equivalence(self) -> bool:
        """Return whether the claim is that models are equal, within a margin.

        A claim on a single model, such as "A = value 0", compares it with a printed
        value instead."""
        return len(self.comparison.models) > 1 and all(
            map(isfinite, self.comparison.bounds)
        )

    @property
    def is_significant_after_holm_correction(self) -> bool:
        """Return whether the outcome stays significant after Holm's correction.

        The correction is over all comparisons of a paper, at level 0.05. Tables mark
        such a result with †. The outcomes "too noisy to say" and "not measured" never
        hold."""
        return (
            self.verdict_word in DECIDED
            and self.holm_p_value is not None
            and self.holm_p_value < ALPHA
        )


@dataclass(frozen=True)
class Verdict:
    """A Verdict is the outcome of one claim: its measured comparisons, or a check.

    A claim that runs decide (kind "finding") has `results`, a Result for each
    comparison and task. A claim on printed numbers (kind "arithmetic") is computed
    again; `verdict_word` has the outcome, such as "equal", and `measured` the computed
    value as text.

    claim: the id of the claim.
    note: remarks for readers, such as on failed runs.
    profile: the size of the experiments, such as "mini"; "any" for a check."""

    claim: str
    results: tuple[Result, ...] = ()
    note: str = ""
    profile: str = "any"
    # Whether runs test the claim ("finding"), or numbers that the paper prints are
    # computed again ("arithmetic").
    kind: Literal["arithmetic", "finding"] = "arithmetic"
    verdict_word: str = ""  # Such as "equal", a key of CHECKS; "" for a finding.
    measured: str = ""  # The computed value in words; "" for a finding.

    def __getitem__(self, task_or_comparison_part: str) -> "Verdict":
        """Return a Verdict with only some of the measured comparisons.

        These are the comparisons on the task `task_or_comparison_part` or, if there is
        none, those whose text contains it. So a template for README can quote one
        number of the claim N1 by a field of `str.format`, such as
        "{N1[STS-B][10 %]}"."""
        matches = [r for r in self.results if r.task == task_or_comparison_part]
        matches = matches or [
            r for r in self.results if task_or_comparison_part in r.comparison.text
        ]
        return replace(self, results=tuple(matches))

    @property
    def first_result(self) -> Result | None:
        """Return the Result of the claim's first comparison, or None if there is none.

        A Result is a comparison with its measured effect, which may be missing. Texts
        quote only this comparison, since the others answer other questions."""
        return self.results[0] if self.results else None

    @property
    def printed_effect_text(self) -> str:
        """Return the effect that the paper prints for the claim's first comparison.

        It is text, "–" where the paper prints none. Templates of pages quote it beside
        the measured effect."""
        first = self.first_result
        return (
            first.format_number(first.printed)
            if first and first.printed is not None
            else "–"
        )

    @property
    def verdict_text_of_first_comparison(self) -> str:
        return self.first_result.verdict_text if self.first_result else NOT_MEASURED

    @property
    def verdict_text_with_symbol(self) -> str:
        """Return the first verdict's text after its symbol, for tables: "✓ agrees
        †"."""
        first = self.first_result
        symbol = WORDS[first.verdict_word if first else NOT_MEASURED][0]
        return f"{symbol} {self.verdict_text_of_first_comparison}"

    @property
    def collapsed_runs_text(self) -> str:
        """Return how many runs of the claim's first comparison collapsed, in brackets.

        A run has collapsed if it scores no better than chance. Templates of pages quote
        this text, such as " (2 of 9 runs of 30 % IMP collapsed)". The result is ""
        where no run collapsed."""
        return (
            f" ({self.first_result.collapsed})"
            if self.first_result and self.first_result.collapsed
            else ""
        )

    @property
    def seed_count_text(self) -> str:
        """Return the number of seeds of the claim's first comparison: "5 seeds".

        It is "no seeds" without a comparison. Templates of pages quote this text."""
        return self.first_result.seed_count_text if self.first_result else "no seeds"

    def __str__(self) -> str:
        """Return the effect of the claim's first comparison with its 95 % interval.

        It is text, "not measured" without an estimate. So templates of pages can quote
        a claim by its id."""
        first = self.first_result
        return (
            first.measured_effect_text
            if first and first.estimate and not first.reason
            else NOT_MEASURED
        )


def add_holm_corrected_p_values(
    results: list[Result], p_values_of_other_results: list[float]
) -> list[Result]:
    """Return measured comparisons with p-values after Holm's correction.

    The correction is over a family: all comparisons of one paper at one size of the
    experiments. A single task of a mean over tasks, and a comparison that is counted
    under another claim, are not in the family and stay unchanged.

    results: the measured comparisons; the field `holm_p_value` of the copies gets the
    p-value.
    p_values_of_other_results: p-values of the family's comparisons that are not among
    `results`."""
    family = [r for r in results if r.is_counted_in_totals and r.p_value is not None]
    adjusted = paired.adjust_p_values_by_holm(
        [*(r.p_value or 0.0 for r in family), *p_values_of_other_results]
    )[: len(family)]
    holm = {id(r): float(p) for r, p in zip(family, adjusted, strict=True)}
    return [
        replace(r, holm_p_value=holm[id(r)]) if id(r) in holm else r for r in results
    ]


@dataclass(frozen=True)
class JudgingInputs:
    """A JudgingInputs has what a test of a claim needs besides the claim's runs.

    columns_by_task: {task: its Columns}, the metrics by which the task is scored.
    profile: the size of the experiments, such as "mini".
    printed_effects: {(text of a comparison, task): effect that the paper prints}, where
    the task "" stands for all tasks.
    smallest_effects_of_interest: the smallest effects of interest, in the same form.
    unpruned_scores: {task: score of the unpruned model in points, at a seed that no
    claim uses}. A model with less than half of this score has learned too little to be
    compared.
    planned_seed_count: the number of planned seeds; 0 to count those in the rows.
    models_expected_to_collapse: labels of models that the claim expects to fail."""

    columns_by_task: MetricColumnsByTask
    profile: str
    printed_effects: EffectByComparisonAndTask = field(default_factory=dict)
    smallest_effects_of_interest: EffectByComparisonAndTask = field(
        default_factory=dict
    )
    unpruned_scores: Mapping[str, float] = field(default_factory=dict)
    planned_seed_count: int = 0
    models_expected_to_collapse: tuple[str, ...] = ()

    def average_known_effect_over_tasks(
        self,
        effect_by_comparison_and_task: EffectByComparisonAndTask,
        comparison_text: str,
        slash_separated_tasks: str,
    ) -> float | None:
        """Return the known effect of a comparison, averaged over its tasks.

        A task without a value in `effect_by_comparison_and_task` gets the value under
        the task "". If that is missing too, the value under `slash_separated_tasks` as
        a whole is returned, or None if `effect_by_comparison_and_task` lacks this as
        well.

        effect_by_comparison_and_task: the printed effects or the smallest effects of
        interest, as {(text of a comparison, task): effect}.
        slash_separated_tasks: one task, or several with "/" between."""
        parts = [
            effect_by_comparison_and_task.get(
                (comparison_text, part),
                effect_by_comparison_and_task.get((comparison_text, "")),
            )
            for part in slash_separated_tasks.split("/")
        ]
        if None not in parts:
            # pyrefly: ignore[no-matching-overload]  # No part is None here.
            return float(np.mean(parts))
        return effect_by_comparison_and_task.get(
            (comparison_text, slash_separated_tasks)
        )


class JudgedComparisons(NamedTuple):
    results: list[Result]
    # Remark on failed runs, and on runs in different dtypes; "" without such runs.
    note: str


def judge_comparisons(
    claim: ClaimsCsvRow,
    result_rows: Sequence[ResultRow],
    inputs: JudgingInputs,
) -> JudgedComparisons:
    """Test the comparisons of a claim on the runs.

    Return (results, note): a Result for each comparison and task, which says whether
    the runs agree with the claim, and a note on failed runs and mixed dtypes ("" for
    none). Of two comparisons of the same runs, only the first has Results. A comparison
    without rows is not measured, and its Result says what is missing.

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    result_rows: rows of a table of results, each with the labels, run, state and
    metrics of a run.
    inputs: the metrics of each task, the printed effects, the smallest effects of
    interest, the scores of unpruned models, and the models expected to fail."""
    results, seen, lost, compared = [], set(), set(), []
    for comparison in parse_comparisons(claim["cells"]):
        try:
            of_cell = select_result_rows_in_one_dtype(comparison, result_rows)
        except LookupError as error:
            tasks = {str(row.get("task")) for row in result_rows}
            why = explain_missing_model_row(error.args[0], inputs.profile, tasks)
            results.append(
                Result(
                    claim["id"], comparison, "", None, 0, inputs.planned_seed_count, why
                )
            )
            continue
        key = make_comparison_key(comparison, of_cell)
        if key in seen:
            continue
        seen.add(key)
        if comparison.has_several_models:
            compared.append(of_cell)
        lost |= {row["spec"] for row in of_cell if row["state"] in ("failed", "died")}
        results += make_results_of_comparison(comparison, of_cell, claim["id"], inputs)
    notes = [f"{len(lost)} runs failed"] * bool(lost)
    notes += compare.describe_pair_counts_by_dtype(*compared)
    return JudgedComparisons(results, "; ".join(notes))


def explain_missing_model_row(
    model_and_conditions_text: str, profile: str, tasks_with_rows: Collection[str] = ()
) -> str:
    """Explain in a sentence which row a table of results lacks for a comparison.

    A comparison needs a row for each of its models under its conditions, such as a
    task. A page shows the sentence as the reason why the comparison is not measured. If
    the conditions name a kind of encoder, the sentence names only that, else only the
    task if they name one without any row, else the model with all conditions. Where
    they accept any task ("*"), it is the model that lacks a row, and the sentence names
    it.

    model_and_conditions_text: the model and conditions without a row, such as "Ghost at
    task MRPC" (the message of `select_result_rows_in_one_dtype`).
    profile: the size of the experiments, such as "mini".
    tasks_with_rows: the tasks on which other models have rows."""
    label, _, place = model_and_conditions_text.partition(" at ")
    needs = dict(part.split(" ", 1) for part in place.split(", ") if " " in part)
    if "family" in needs:
        return f"no row of the profile {profile} has {FAMILIES[needs['family']]}"
    if needs.get("task") == "*":
        return f"the row “{label}” is not planned at the profile {profile}"
    if "task" in needs and not {*needs["task"].split("/")} & {*tasks_with_rows}:
        tasks = needs["task"].replace("/", " or ")
        return f"no row of this page is on {tasks} at the profile {profile}"
    return f"the profile {profile} has no row “{model_and_conditions_text}”"


def make_comparison_key(
    comparison: Comparison, rows: Sequence[ResultRow]
) -> tuple[Any, ...]:
    """Return a hashable key by which equal comparisons of a claim are found.

    It has the measure, the range of effects for which the claim holds, the factor of
    each model in the comparison (such as 1 and -1), and the runs. Comparisons with the
    same key are counted once, even if their texts differ.

    rows: rows of the compared runs, each with labels and Spec (description of the
    run)."""
    specs = [
        frozenset(row["spec"].id for row in part)
        for _, part in group_rows_by_model(comparison, rows)
    ]
    weights = [round(weight, 9) for weight, _ in comparison.terms]
    return (
        comparison.measure,
        comparison.measure_argument,
        comparison.bounds,
        *weights,
        *specs,
    )


def make_results_of_comparison(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    claim_id: str,
    inputs: JudgingInputs,
) -> list[Result]:
    """Estimate one comparison of a claim on its runs and return its Results.

    A Result is the comparison on a task, or on the mean of tasks, with its estimate and
    interval. `judge_comparisons` collects the Results of a claim. A comparison that is
    tested on each task alone, or compares shares of runs, has one Result for each task.
    A comparison of scores on several tasks has one Result for the mean of all testable
    tasks, followed by one for each task. Any other comparison has a single Result.

    rows: rows of the compared runs, each with labels, run and metrics.
    claim_id: the id of the claim, such as "G1", which each Result keeps.
    inputs: the metrics of each task, the printed effects, the smallest effects of
    interest, the scores of unpruned models, and the models expected to fail."""
    by_task: dict[str, list[ResultRow]] = {}
    for row in rows:
        if isinstance(row.get("task"), str):
            by_task.setdefault(row["task"], []).append(row)

    def make_result_from_rows(
        one: Comparison,
        part: Sequence[ResultRow],
        task: str,
        is_single_task_of_mean: bool = False,
    ) -> Result:
        seeds, done = count_planned_and_ended_seeds(one, part)
        planned = inputs.planned_seed_count or seeds
        groups = []
        if not one.measure:
            groups = pair_runs_of_compared_models(
                one, part, inputs.columns_by_task, inputs.models_expected_to_collapse
            )
        e, counts = None, ""
        reason = explain_untestable_comparison(one, part, inputs, groups)
        if not reason:
            e = estimate_comparison_effect(one, part, inputs.columns_by_task, groups)
        if e:
            counts = format_counts_of_boolean_measure(one, part, inputs)
        place = comparison.text, task
        return Result(
            claim_id,
            comparison,
            task,
            e,
            min(done, planned),
            planned,
            reason,
            printed=inputs.average_known_effect_over_tasks(
                inputs.printed_effects, *place
            ),
            smallest_effect_of_interest=inputs.average_known_effect_over_tasks(
                inputs.smallest_effects_of_interest, *place
            ),
            is_single_task_of_mean=is_single_task_of_mean,
            collapsed=describe_collapsed_runs(one, part, inputs),
            counts=counts,
        )

    if comparison.is_tested_on_each_task or (
        comparison.measured_quantity.is_boolean and len(by_task) > 1
    ):
        results = []
        for task, part in by_task.items():
            one = read(comparison.text.replace("task=each", f"task={task}"))
            if all(rows for _, rows in group_rows_by_model(one, part)):
                compared = select_result_rows_in_one_dtype(one, part)
                results.append(make_result_from_rows(one, compared, task))
        return results
    # A comparison whose models are on different tasks compares these tasks with each
    # other, so it has no mean over tasks.
    apart = len({dict(where).get("task") for _, where in comparison.models}) > 1
    needs_all_frames = comparison.measured_quantity.estimate_from_model_frames
    if len(by_task) < 2 or comparison.measure or apart:
        tasks = every = sorted(by_task)
        if not (apart or len(every) < 2 or needs_all_frames):
            estimated = list_tasks_in_non_score_estimate(
                comparison, rows, inputs.columns_by_task
            )
            tasks = sorted(estimated) or every
            rows = [row for row in rows if row["task"] in tasks]
        result = make_result_from_rows(comparison, rows, "/".join(tasks))
        if tasks == every:
            return [result]
        absent = (
            f"{len(every) - len(tasks)} of {len(every)} tasks lack a run that counts"
        )
        remarks = filter(None, [result.collapsed, absent])
        return [replace(result, collapsed="; ".join(remarks))]
    alone = [
        make_result_from_rows(comparison, part, task, is_single_task_of_mean=True)
        for task, part in by_task.items()
    ]
    sound = [r.task for r in alone if r.estimate]
    if not sound:
        place = comparison.text, "/".join(sorted(by_task))
        first = replace(
            alone[0],
            task=place[1],
            is_single_task_of_mean=False,
            printed=inputs.average_known_effect_over_tasks(
                inputs.printed_effects, *place
            ),
            smallest_effect_of_interest=inputs.average_known_effect_over_tasks(
                inputs.smallest_effects_of_interest, *place
            ),
        )
        return [first, *alone]
    part = [row for row in rows if row.get("task") in sound]
    # A mean over one task equals that task, which is then not listed again.
    alone = [r for r in alone if [r.task] != sound]
    return [make_result_from_rows(comparison, part, "/".join(sorted(sound))), *alone]


def explain_untestable_comparison(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    inputs: JudgingInputs,
    weighted_pairs: Sequence[WeightedPairs],
) -> ReasonOrEmpty:
    """Explain in a sentence why a comparison cannot be tested; "" if it can.

    There are four reasons: at least half of a model's runs learned too little; two
    models give equal predictions on all examples; for a rank correlation, some runs are
    still missing; or too few of the ranked scores differ.

    comparison: the comparison.
    rows: rows of the compared runs, each with labels, run and metrics.
    weighted_pairs: [(pairs of runs, factor of their mean difference in the effect),
    ...] from `pair_runs_of_compared_models`."""
    for (label, _), part in group_rows_by_model(comparison, rows):
        if label not in inputs.models_expected_to_collapse:
            if reason := explain_model_that_learned_little(
                label, part, comparison.measure, inputs
            ):
                return reason
    for group, _ in weighted_pairs:
        if group and all(np.array_equal(pair.a, pair.b) for pair in group):
            return f"both models give the same answers on all {len(group[0].labels):,} rows"
    if comparison.measure == "rank correlation":
        made = [row["run"] is not None or row["state"] == "failed" for row in rows]
        if 0 < sum(made) < len(made):
            return f"{sum(made)} of {len(made)} runs are there, and ranks are of all"
        both = tabulate_search_and_final_scores_by_candidate(
            make_data_frame_per_model(comparison, rows), inputs.columns_by_task
        )
        counts = both.nunique()
        if len(both) and counts.min() < DIFFER * len(both):
            kind = counts.idxmin()
            return f"only {counts.min()} of {len(both)} {kind} scores differ"
    return ""


def explain_model_that_learned_little(
    model_label: str,
    rows: Sequence[ResultRow],
    measure_name: str,
    inputs: JudgingInputs,
) -> ReasonOrEmpty:
    """Return a sentence if at least half of a model's runs learned too little, else "".

    Such a model is not compared. A run learned too little if it collapsed (scored no
    better than chance), or has less than half of the unpruned model's score. If the
    compared measure is "diverged", the share of collapsed runs, a collapsed run is no
    fault.

    model_label: the model's name for the sentence.
    rows: the model's rows, each with labels, run and metrics.
    measure_name: the compared measure; "" for the score."""
    measured, faults = list_rows_with_score_and_chance(rows, inputs), []
    for row, level in measured:
        if level.has_collapsed and measure_name == "diverged":
            continue
        floor = inputs.unpruned_scores.get(row["task"], 0.0) / 2
        if level.has_collapsed or level.score < floor:
            faults.append((level.score, row["task"], level))
    if not faults or 2 * len(faults) < len(measured):
        return ""
    # The sentence speaks of one task, and of weak runs before collapsed ones.
    weak = [fault for fault in faults if not fault[2].has_collapsed] or faults
    faults = [fault for fault in faults if fault[1] == weak[0][1]]
    measured = [row for row, _ in measured if row["task"] == weak[0][1]]
    scores, tasks, levels = zip(*faults, strict=True)
    low, high = f"{min(scores):.1f}", f"{max(scores):.1f}"
    reach = low if low == high else f"{low} to {high}"
    what = model_label.replace("*", "a model")
    count = f" in {len(faults)} of {len(measured)} runs" * (len(measured) > 1)
    place = f"on {tasks[0]}: {reach} points{count}"
    if all(level.has_collapsed for level in levels):
        chance = f"{levels[0].chance_score:.1f}, chance and two standard errors"
        return f"{what} learned nothing {place}, no more than {chance}"
    half = inputs.unpruned_scores[tasks[0]] / 2
    return f"{what} stayed under half of the whole model's score {place}, half is {half:.1f}"


def list_rows_with_score_and_chance(
    rows: Sequence[ResultRow], inputs: JudgingInputs
) -> list[tuple[ResultRow, compare.ScoreAndChance]]:
    """Return [(row, its score and that of chance), ...] of the runs with a score.

    Rows are left out whose run is missing, scores no model on examples, or lacks the
    first metric of its task. The others can be compared with chance.

    rows: labels, run and metrics of each run."""
    levels = []
    for row in rows:
        if row["run"] and compare.is_scored_on_examples(row["spec"]):
            column = inputs.columns_by_task[row["task"]][0]
            if row.get(column.score_key, np.nan) > -inf:
                level = compare.measure_score_and_chance_level(row["run"], column)
                levels.append((row, level))
    return levels


def describe_collapsed_runs(
    comparison: Comparison, rows: Sequence[ResultRow], inputs: JudgingInputs
) -> str:
    """Return how many runs of which model collapsed, as text; "" for none.

    A run has collapsed if it scores no better than chance. An example is "2 of 9 runs
    of 30 % IMP collapsed". For a model that the claim expects to fail, the text says at
    how many seeds it comes within 10 points of the other model instead, or that its
    collapsed runs count.

    comparison: the comparison of models.
    rows: rows of the compared runs, each with labels, run and metrics."""
    levels: dict[str, dict[str, list[tuple[int, compare.ScoreAndChance]]]] = {}
    for (label, _), part in group_rows_by_model(comparison, rows):
        for row, level in list_rows_with_score_and_chance(part, inputs):
            by_task = levels.setdefault(label, {})
            by_task.setdefault(row["task"], []).append((row["seed"], level))
    lines, tasks = {}, {task for by_task in levels.values() for task in by_task}
    for label, by_task in levels.items():
        name, rivals = label.replace("*", "a model"), levels.keys() - {label}
        fails = (
            label in inputs.models_expected_to_collapse
            and len(rivals) == 1
            and not comparison.measure
        )
        for task, runs in by_task.items():
            place = f" on {task}" * (len(tasks) > 1)
            lost = sum(level.has_collapsed for _, level in runs)
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
            elif lost and comparison.measure != "diverged":
                counts = ", which count" * (label in inputs.models_expected_to_collapse)
                words = f"{lost} of {len(runs)} runs of {name} collapsed{counts}"
                lines[f"{words}{place}"] = None
    return "; ".join(lines)


def format_counts_of_boolean_measure(
    comparison: Comparison, rows: Sequence[ResultRow], inputs: JudgingInputs
) -> str:
    """Return the counts behind a share of runs, as text: "8 of 8 against 0 of 8".

    Where the compared measure is true or false for each run, the counts of true runs
    tell more than a percentage. It is "" for any other measure.

    comparison: the comparison of models.
    rows: rows of the compared runs, each with labels, run and metrics."""
    if not comparison.measured_quantity.is_boolean:
        return ""
    frames = make_value_frame_per_model(comparison, rows, inputs.columns_by_task)
    return " against ".join(f"{f['value'].sum()} of {len(f)}" for f in frames)
