"""This module makes texts on how the comparisons that test a paper's claims turned out.

They are words with a symbol, sentences for the answer below a page's title, and entries
of its JSON file. A comparison of models has one of five outcomes, called its word, such
as "agrees" (`lib.claims.words`)."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import jinja2

from lib.claims import lists, words
from lib.claims.words import (
    CHECKS,
    MEASURED_ON,
    NO_EFFECT,
    READING,
    WORDS,
    Result,
    Verdict,
)
from lib.core.types import Json, ProfileName
from lib.papers.grids import PROFILES
from lib.stats.paired import SEEDS

TEMPLATE = Path(__file__).parent / "template"
# Largest number of sentences with main results below the title of a page. The table of
# the page has all comparisons.
MOST = 4


def format_verdict_word_with_symbol(verdict_word: str) -> str:
    """Return an outcome such as "agrees" with its symbol before it ("✓ agrees").

    So a reader of a page recognises the outcome without its colour. Raises KeyError for
    a word that is not one of the fixed outcomes.

    verdict_word: outcome of a comparison with a paper's claim or with a printed
    number."""
    return f"{(WORDS | CHECKS)[verdict_word][0]} {verdict_word}"


# Headings of the index of pages, in order. The first has the pages that belong to no
# paper, the last those with changed code, parameters or data.
HEADINGS = ("The workbook", *lists.PAPERS.values(), "Experiments")
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True
)
# pyrefly: ignore[bad-assignment]  # jinja2 types its globals by its own entries alone.
ENVIRONMENT.globals |= {
    "mark": format_verdict_word_with_symbol,
    "words": WORDS,
    "reading": READING,
    "headings": HEADINGS,
    "profiles": PROFILES,
}


def format_verdict_counts(verdicts: Collection[Verdict]) -> str:
    """Return a sentence that counts the outcomes of claims, for the end of a page.

    An example is "Comparisons: 3 agree, 1 too noisy to say; printed numbers: 5 of 6
    equal". A printed number is equal if computing it again gives the same. Two kinds of
    comparisons are left out: a comparison on a single task, where the mean over several
    tasks is counted, and one that is counted under another claim. The sentence is ""
    where nothing counts.

    verdicts: Verdicts, each a claim of a paper with its measured comparisons."""
    cells = [r for v in verdicts for r in v.results if r.is_counted_in_totals]
    sums = [v.verdict_word for v in verdicts if v.verdict_word]
    lines = []
    if cells:
        counts = words.format_verdict_word_counts(r.verdict_word for r in cells)
        lines.append(f"Comparisons: {counts}")
    if sums:
        lines.append(f"printed numbers: {sums.count('equal')} of {len(sums)} equal")
    text = "; ".join(lines)
    return text[:1].upper() + text[1:]


def format_effect_printed_in_paper(result: Result) -> str:
    """Return the effect that a paper prints for a comparison, as text for a table.

    Where the paper prints none, the text is the smallest effect of interest that was
    named with the first seeds, in brackets. It is "" where there is neither of these.

    result: a comparison that tests a claim of a paper, as it was measured."""
    if result.printed is None:
        interest = result.smallest_effect_of_interest
        return f"({result.format_number(interest)} of interest)" if interest else ""
    if result.counts:
        return f"{result.printed:+.0f} % of the runs"
    return result.format_number(result.printed)


def format_result_sentence(result: Result) -> str:
    """Return a measured comparison as a sentence, with its numbers and its outcome.

    An example is "Ghosts minus pruning on SST-2: +0.3 [−0.1, 0.8] points (5 seeds),
    printed +1.5: no such effect here." With too few seeds for an interval it has the
    number alone, and without any estimate it says why nothing was measured.

    result: a comparison that tests a claim of a paper."""
    printed = ""
    if result.printed is not None:
        printed = f", printed {format_effect_printed_in_paper(result)}"
    elif result.verdict_word == NO_EFFECT and result.smallest_effect_of_interest:
        printed = f", of interest from {result.format_number(result.smallest_effect_of_interest)}"
    if result.unmeasured_reason:
        if not result.estimate:
            return f"{result.sentence}: not measured ({result.unmeasured_reason})."
        number = f"{result.format_number(result.estimate.mean)} {result.unit}"
        return (
            f"{result.sentence}: {number} ({result.seed_count_text}){printed}; "
            f"{SEEDS} seeds are needed for an interval."
        )
    seeds = "" if result.counts else f" {result.unit}{result.seed_count_in_brackets}"
    measured = f"{result.measured_effect_text}{seeds}{printed}"
    measured += result.remarks_in_brackets
    return f"{result.sentence}: {measured}: {result.verdict_text}."


def list_main_result_sentences(
    verdicts: Collection[Verdict],
    difference_sentences: Sequence[str] = (),
    claim_test_profile: str = "",
    comparison_sentence_prefix: str = "",
) -> list[str]:
    """Return the main results of a page as at most MOST (4) sentences with numbers.

    They stand below the page's title. There are five kinds of sentences, and only the
    first kind that the page has is taken: comparisons of a paper's central claims, with
    an interval; differences that the page draws, with an interval; comparisons of
    central claims with too few seeds for an interval; comparisons of lesser claims with
    an interval, if the page has no comparison of a central claim, measured or not; all
    drawn differences. Where the page has none of these, the sentences say why nothing
    is measured, or no central comparison beside which lesser one; and how many printed
    statements hold when they are computed again.

    verdicts: Verdicts, each a claim of a paper with its measured comparisons.
    difference_sentences: sentences on the differences that the page draws.
    claim_test_profile: the profile (size of the experiments) at which claims are
    tested.
    comparison_sentence_prefix: text before each comparison, such as "Recorded at mini:
    " on a page whose own runs are at another profile."""
    leading = [
        r
        for v in verdicts
        if tests_central_claim(v)
        for r in v.results
        if not r.is_single_task_of_mean
    ]
    cells = [r for v in verdicts for r in v.results if not r.is_single_task_of_mean]
    measured = [r for r in cells if not r.unmeasured_reason]

    def format_sentences(results: Iterable[Result]) -> list[str]:
        return [
            f"{comparison_sentence_prefix}{format_result_sentence(r)}" for r in results
        ]

    sure = [r for r in leading if not r.unmeasured_reason]
    few = [r for r in leading if r.unmeasured_reason and r.estimate and not r.reason]
    further = [] if leading else measured
    intervals = [line for line in difference_sentences if "[" in line]
    for part, results in (
        (format_sentences(sure), sure),
        (intervals, []),
        (format_sentences(few), []),
        (format_sentences(further), further),
        (list(difference_sentences), []),
    ):
        if len(part) > MOST and results:
            rest = results[MOST - 1 :]
            counts = words.format_verdict_word_counts(r.verdict_word for r in rest)
            return [*part[: MOST - 1], f"{len(rest)} more below: {counts}."]
        if part:
            return part[:MOST]
    lines = []
    if cells:
        reasons = dict.fromkeys(r.unmeasured_reason or "–" for r in leading or cells)
        why = "; ".join([*reasons][:2])
        lines = [
            f"No {'central ' * bool(measured)}comparison of this page is measured at "
            f"{claim_test_profile}: {why}.",
            *format_sentences(r for r in measured if not r.counts)[:1],
        ]
    sums = [v.verdict_word for v in verdicts if v.verdict_word]
    if sums:
        equal = sums.count("equal")
        lines.append(
            f"{equal} of {len(sums)} printed statements on this page's numbers hold "
            "when they are computed again."
        )
    return lines


def list_training_setup_sentences(
    verdicts: Collection[Verdict], profile: ProfileName
) -> list[str]:
    """Return a sentence on what was trained for the comparisons that a page shows.

    It names the encoder, the rows and what intervals cover, since a reader may see one
    page alone. The list is empty where no comparison has scores of a task.

    verdicts: Verdicts, each a claim of a paper with its measured comparisons.
    profile: size of the experiments with the comparisons, such as "mini"."""
    has_scores = any(r.task and r.estimate for v in verdicts for r in v.results)
    return [MEASURED_ON[profile]] if has_scores and profile in MEASURED_ON else []


def tests_central_claim(verdict: Verdict) -> bool:
    """Return whether a claim's comparisons lead on a page, as its main result.

    The result is True for a central claim of a paper, or a question of this project, if
    it is tested by runs and not by arithmetic on printed numbers.

    verdict: a claim with its measured comparisons."""
    role = lists.read_claims().get(verdict.claim, {"role": "own"})["role"]
    return role in ("central", "own") and verdict.kind == "finding"


def convert_verdict_to_json(verdict: Verdict) -> Json:
    """Return a claim and its measured comparisons as a dict for a page's JSON file.

    The keys are claim (its id), says (its sentence), paper (title, or "the workbook"
    for a question of this project), kind ("finding" or "arithmetic"), profile (size of
    the experiments), word and measured (outcome and value of a printed number that is
    computed again), note (remarks, such as on failed runs), leading
    (`tests_central_claim`) and cells. `cells` is a list of dicts, one for each
    comparison: sentence, ours (measured effect), printed
    (`format_effect_printed_in_paper`), word (outcome), reading (outcome as tables show
    it, such as "agrees (weaker than printed)"), reason (why it is not measured) and
    beside (whether it is one task of a mean over tasks).

    verdict: a claim of a paper with its measured comparisons."""
    unknown = {"says": "", "role": "own", "paper": "", "rule": ""}
    claim = lists.read_claims().get(verdict.claim, unknown)
    # The rule of some claims is about the profile (size of experiments) "paper", of
    # which no run is recorded. A reader must not take it for this page's profile.
    scope = "At the profile paper: " * ("at the profile paper" in claim["rule"])
    cells = [
        {
            "sentence": r.sentence
            if not r.is_single_task_of_mean
            else f"on {r.task} alone",
            "ours": f"{r.measured_effect_text}{r.remarks_in_brackets}",
            "printed": format_effect_printed_in_paper(r),
            "word": r.verdict_word,
            "reading": r.verdict_text,
            "reason": r.unmeasured_reason,
            "beside": r.is_single_task_of_mean,
        }
        for r in verdict.results
    ]
    return {
        "claim": verdict.claim,
        "says": scope + claim["says"],
        "kind": verdict.kind,
        "paper": lists.PAPERS.get(claim["paper"], "the workbook"),
        "profile": verdict.profile,
        "word": verdict.verdict_word,
        "measured": verdict.measured,
        "note": verdict.note,
        "leading": tests_central_claim(verdict),
        "cells": cells,
    }
