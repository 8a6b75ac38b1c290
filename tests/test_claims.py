"""Claims: the grammar of cells, each word at the edge of its rule, what cannot be
measured, printed values, counts, seeds, twins, Holm's family."""

import random
import re
from dataclasses import replace
from itertools import product
from math import nextafter

import numpy as np
import pandas as pd
import pytest
from conftest import collected, holding, made_up
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sp

from lib import data
from lib.claims import checks, estimates, lists, notebook, words
from lib.claims import judging as source
from lib.claims.cells import (
    parse_comparison,
    parse_comparisons,
    parse_seeds,
    select_compared_rows,
)
from lib.claims.words import (
    AGREES,
    NO_EFFECT,
    NOISY,
    NOT_MEASURED,
    OPPOSITE,
    JudgingInputs,
    Result,
)
from lib.core.names import Refused
from lib.core.spec import Spec
from lib.core.store import Store
from lib.report.verdicts import format_result_sentence
from lib.stats import paired
from lib.stats.compare import MetricColumn

METRICS = {task: (MetricColumn(task, task, "accuracy"),) for task in ("SST-2", "QQP")}
METRICS["CoLA"] = (MetricColumn("CoLA", "CoLA", "matthews"),)
SETTING = JudgingInputs(METRICS, "mini")
LINE = {"id": "G1", "role": "central", "seeds": "", "may_fail": ""}


def judge(cells, frame, **setting):
    """(Results, note) of a claim with these cells on a made-up frame.

    Each model has a Spec of its own; "a again" is a second label of a's.
    """
    specs = [
        Spec(
            "finetune", {"data": {"task": task, "of": model.removesuffix(" again")}}
        ).with_seed(seed)
        for task, model, seed in zip(
            frame["task"], frame["model"], frame["seed"], strict=True
        )
    ]
    rows = frame.assign(spec=specs).to_dict("records")
    return words.judge_comparisons(
        LINE | {"cells": cells}, rows, replace(SETTING, **setting)
    )


def only(cells, frame, **setting):
    """The one Result of such a claim."""
    (result,) = judge(cells, frame, **setting)[0]
    return result


def even(share, n=600):
    """Which rows [n] are right: the same share in both classes, so Matthews is 2 share
    - 1."""
    return np.arange(n) // 2 < round(share * n / 2)


def told(low, high, text="a > b", mean=None, **more):
    """A Result with this interval, of three seeds and Student's freedom of two."""
    mean = (low + high) / 2 if mean is None else mean
    e = paired.Estimate(mean, low, high, 3, 1, 1.0, 0.04, degrees_of_freedom=2.0)
    return Result("G1", parse_comparison(text), "SST-2", e, 3, 3, **more)


@pytest.mark.papers("nas_pruning")
def test_a_cell_tells_models_places_and_its_region():
    above, alike, floor = parse_comparisons(
        "k = 3 > k = 1 @ m=3, task=SST-2; A ~ B +- 0.5; - X >= B - 0.5"
    )
    assert above.models == [
        (f"k = {k}", (("m", "3"), ("task", "SST-2"))) for k in (3, 1)
    ]
    assert [weight for weight, _ in above.terms] == [1.0, -1.0]
    assert (above.bounds, alike.bounds) == ((0, np.inf), (-0.5, 0.5))
    assert floor.bounds == (-0.5, np.inf) and floor.models[0][0] == "- X"
    below, limit, never = parse_comparisons(
        "A <= B + 5; noise :: A [m=6] <= value 0.25; misses :: A = value 0"
    )
    assert (below.bounds, limit.bounds) == ((-np.inf, 5), (-np.inf, 0.25))
    assert (limit.measure, limit.models) == ("noise", [("A", (("m", "6"),))])
    assert never.bounds == (0, 0)
    (slope,) = parse_comparisons("k = 3 | k = 5 | k = 9 < value 0")
    assert [w for w, _ in slope.terms] == pytest.approx(
        paired.compute_slope_weights(np.log2([3, 5, 9]))
    )
    (first,) = parse_comparisons(
        "first above the others :: k = 3 | k = 1 | k = 5 | k = 9 > value 0 @ m=1"
    )
    assert [w for w, _ in first.terms] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert [models[0][0] for _, models in first.terms] == [
        "k = 3",
        "k = 1",
        "k = 5",
        "k = 9",
    ]
    (gap,) = parse_comparisons("per step :: A over B [m=9] | A over B [m=1] < value 0")
    assert [w for w, _ in gap.terms] == pytest.approx([1 / 8, -1 / 8])
    assert gap.terms[1][1] == (("A", (("m", "1"),)), ("B", (("m", "1"),)))


@pytest.mark.parametrize(
    "text, message",
    [
        ("A", "expected 'A > B'"),
        ("A > B - 0.5", "expected 'A > B'"),
        ("A ~ B", "expected 'A > B'"),
        ("A > value 3", "weights sum to 0"),
        ("A | B 2 > value 0", "weights sum to 0"),
        ("A No. | B 2 > value 0", "weights sum to 0"),
        ("F1 :: A > value x", "cell 'F1 :: A > value x': after 'value'.* a number"),
        ("A ~ B +- 1.2.3", "cell 'A ~ B .- 1.2.3': after 'value'.* a number"),
        ("kept wieghts :: A > B", "did you mean 'kept weights'"),
    ],
)
def test_what_is_no_cell_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_comparisons(text)


def test_rows_that_cells_name_are_kept_once():
    spec = Spec("finetune", {"data": {"task": "SST-2"}})
    rows = [
        {"model": m, "m": 3.0, "task": "SST-2", "spec": spec} for m in ("A", "A", "B")
    ]
    rows.append({"model": "A", "m": 3, "spec": Spec("predict", {})})
    assert [
        row["model"]
        for row in select_compared_rows(parse_comparisons("A > C @ m=3"), rows)
    ] == ["A"]


TINY = nextafter(0.0, 1.0)


@pytest.mark.parametrize(
    "text, low, high, aim, word",
    [
        # agrees: the interval lies in the region, its ends included
        ("a > b", 0.0, 2.0, None, AGREES),
        ("a > b", -TINY, 2.0, None, NOISY),
        ("a > b", 0.5, 1.0, 3.0, AGREES),  # before the printed value is looked at
        ("a ~ b +- 0.5", -0.5, 0.5, None, AGREES),
        ("a ~ b +- 0.5", -0.5, nextafter(0.5, 1), None, NOISY),
        ("a >= b - 0.5", -0.5, 9.0, None, AGREES),
        ("a <= b + 0.5", -9.0, 0.5, None, AGREES),
        # the other way round: the interval lies wholly outside
        ("a > b", -2.0, -TINY, None, OPPOSITE),
        ("a > b", -2.0, 0.0, None, NOISY),
        ("a < b", TINY, 2.0, None, OPPOSITE),
        ("a ~ b +- 0.5", nextafter(0.5, 1), 2.0, None, OPPOSITE),
        ("a ~ b +- 0.5", 0.5, 2.0, None, NOISY),
        ("a ~ b +- 0.5", -2.0, nextafter(-0.5, -1), None, OPPOSITE),
        ("a > b", -2.0, -1.0, 3.0, OPPOSITE),
        # no such effect here: the interval shuts out the aim on the side of no effect
        ("a > b", -1.0, 1.0, 1.5, NO_EFFECT),
        ("a > b", -1.0, 1.0, nextafter(1.0, 2), NO_EFFECT),
        ("a > b", -1.0, 1.0, 1.0, NOISY),
        ("a < b", -1.0, 1.0, nextafter(-1.0, -2), NO_EFFECT),
        ("a < b", -1.0, 1.0, -1.0, NOISY),
        ("a > b", -1.0, 1.0, None, NOISY),
        ("a > b", -1.0, 1.0, 0.0, NOISY),  # it is no effect itself
        ("a > b", -1.0, 1.0, -1.5, NOISY),  # it lies outside of the region
        ("a ~ b +- 2", -3.0, 1.0, 1.5, NO_EFFECT),
        ("a ~ b +- 2", -3.0, 1.0, 2.5, NOISY),
    ],
)
@pytest.mark.parametrize("kind", ["printed", "smallest_effect_of_interest"])
def test_each_word_at_the_edge_of_its_rule(text, low, high, aim, word, kind):
    assert told(low, high, text, **{kind: aim}).verdict_word == word


def test_not_measured_comes_before_all_else():
    """Too few seeds, a reason, no run: whatever the interval and the printed value
    are."""
    sure = told(1.0, 2.0, printed=5.0)
    assert sure.verdict_word == AGREES and sure.unmeasured_reason == ""
    few = replace(sure, estimate=replace(sure.estimate, n_seeds=2))
    assert (few.verdict_word, few.unmeasured_reason) == (
        NOT_MEASURED,
        "2 seeds; 3 are needed",
    )
    assert (
        few.measured_effect_text == "+1.5 (2 seeds)"
        and few.p_value is None
        and few.interval_excludes_printed_value is None
    )
    one = replace(sure, estimate=replace(sure.estimate, n_seeds=1))
    assert one.measured_effect_text == "+1.5 (1 seed)"
    why = replace(sure, reason="b learned nothing on SST-2")
    assert (why.verdict_word, why.unmeasured_reason) == (
        NOT_MEASURED,
        "b learned nothing on SST-2",
    )
    assert (
        why.measured_effect_text == "–"
        and why.effect_strength_remark == ""
        and not why.is_significant_after_holm_correction
    )
    none = replace(sure, estimate=None)
    assert (none.verdict_word, none.unmeasured_reason, none.measured_effect_text) == (
        NOT_MEASURED,
        "not run yet",
        "–",
    )


def test_what_the_paper_prints_counts_before_an_interest():
    assert (
        told(-1, 1, printed=0.5, smallest_effect_of_interest=2.0).verdict_word == NOISY
    )
    assert (
        told(-1, 1, printed=2.0, smallest_effect_of_interest=0.5).verdict_word
        == NO_EFFECT
    )
    # A printed value that is no effect leaves no aim, whatever the plan names.
    assert (
        told(-1, 1, printed=0.0, smallest_effect_of_interest=2.0).verdict_word == NOISY
    )


def by_rule(region, interval, values, null):
    """The word by DESIGN's rules: sets of numbers that are ordered on a line, nothing
    of lib."""
    (a, b), (low, high) = region, interval
    if values[1] == null:  # A direction alone is asked for.
        values = ()
    value = next((v for v in values if v is not None), None)
    far = value not in (None, null) and a <= value <= b
    beyond = far and (low > value if value < null else high < value)
    rules = [min(low - a, b - high) >= 0, max(a - high, low - b) > 0, beyond, True]
    return [AGREES, OPPOSITE, NO_EFFECT, NOISY][rules.index(True)]


REGIONS = [
    "a > b",
    "a < b",
    "a ~ b +- 1",
    "a >= b - 1",
    "a <= b + 2",
    "noise :: a <= value 2",
]
REGIONS += ["noise :: a ~ value 2 +- 1", "variance ratio :: a over b <= value 1"]
REGIONS += ["size :: a >= value 1", "variance ratio :: a over b > value 2"]
NUMBERS = st.integers(-6, 6).map(lambda n: n / 2) | st.floats(-4, 4)
AIMS = st.none() | NUMBERS


@pytest.mark.papers("nas_pruning")
@settings(max_examples=600, deadline=None)
@given(st.sampled_from(REGIONS), NUMBERS, NUMBERS, AIMS, AIMS)
def test_the_word_is_that_of_an_independent_function(
    text, one, other, printed, interest
):
    low, high = sorted((one, other))
    result = told(
        low, high, text, printed=printed, smallest_effect_of_interest=interest
    )
    null = 1.0 if text.startswith(("variance", "size")) else 0.0
    region = result.comparison.bounds
    assert result.value_of_no_effect == null
    assert result.verdict_word == by_rule(
        region, (low, high), (printed, interest), null
    )
    out = printed is not None and not low <= printed <= high
    assert result.interval_excludes_printed_value == (None if printed is None else out)
    usable = printed not in (None, null) and region[0] <= printed <= region[1]
    usable &= interest != null
    below = printed is None and interest not in (None, null)
    below = below and region[0] <= interest <= region[1]
    below = below and (high < interest if interest > null else low > interest)
    assert bool(result.effect_strength_remark) == (
        result.verdict_word == AGREES and (out and usable or below)
    )
    p = result.p_value
    assert 0 <= p <= 1
    if result.verdict_word in words.DECIDED and one != other:
        assert p <= 0.05 + 1e-9


@pytest.mark.parametrize(
    "low, high, text, printed, size",
    [
        (0.5, 1.5, "a > b", 3.0, "weaker than printed"),
        (4.0, 5.0, "a > b", 3.0, "stronger than printed"),
        (2.0, 4.0, "a > b", 3.0, ""),
        (3.0, 4.0, "a > b", 3.0, ""),  # the end of an interval belongs to it
        (-1.5, -0.5, "a < b", -3.0, "weaker than printed"),
        (-5.0, -4.0, "a < b", -3.0, "stronger than printed"),
        (0.5, 1.5, "a > b", None, ""),
        (-0.4, 0.2, "a >= b - 0.5", 0.3, "weaker than printed"),
        (0.5, 0.7, "variance ratio :: a over b <= value 1", 0.2, "weaker than printed"),
        (
            0.1,
            0.2,
            "variance ratio :: a over b <= value 1",
            0.5,
            "stronger than printed",
        ),
    ],
)
def test_an_agreeing_interval_tells_whether_the_effect_is_weaker(
    low, high, text, printed, size
):
    result = told(low, high, text, printed=printed)
    assert (result.verdict_word, result.effect_strength_remark) == (
        AGREES,
        size,
    )
    assert result.verdict_text == (f"agrees ({size})" if size else "agrees")


def test_an_agreeing_effect_below_the_one_of_interest_says_so():
    """Without a printed value; an effect above the smallest one of interest is nothing
    to tell."""
    below = "weaker than the effect of interest"
    assert (
        told(0.5, 1.5, "a > b", smallest_effect_of_interest=3.0).effect_strength_remark
        == below
    )
    assert (
        told(
            -1.5, -0.5, "a < b", smallest_effect_of_interest=-3.0
        ).effect_strength_remark
        == below
    )
    assert (
        told(0.5, 1.5, "a > b", smallest_effect_of_interest=0.2).effect_strength_remark
        == told(0.5, 1.5, "a > b", smallest_effect_of_interest=1).effect_strength_remark
    )
    assert (
        told(0.5, 1.5, "a > b", smallest_effect_of_interest=1).effect_strength_remark
        == ""
    )


def test_an_equivalence_that_is_broken_reads_they_differ():
    assert told(2.0, 3.0, "a ~ b +- 1").verdict_text == "they differ"
    assert told(-3.0, -2.0, "a ~ b +- 1").verdict_word == OPPOSITE
    assert told(-3.0, -2.0).verdict_text == OPPOSITE
    assert (
        told(2.0, 3.0, "a ~ b +- 1", holm_p_value=0.01).verdict_text == "they differ †"
    )
    assert told(40.0, 40.0, "diverged :: a = value 0").verdict_text == OPPOSITE


def test_no_effect_of_a_ratio_is_one():
    text = "variance ratio :: a over b <= value 1"
    assert told(0.8, 1.5, text, printed=0.5).verdict_word == NO_EFFECT
    assert told(0.5, 1.5, text, printed=0.5).verdict_word == NOISY
    assert told(0.8, 1.5, text, printed=1.0).reference_effect is None
    assert told(0.8, 1.6, text, printed=0.5).measured_effect_text == "1.2 [0.80, 1.6]"


@pytest.mark.papers("nas_pruning")
def test_numbers_have_a_sign_where_they_compare_and_are_never_shown_as_none():
    assert told(-0.5, 2.0).measured_effect_text == "+0.8 [−0.5, 2.0]"
    assert told(0.004, 0.1).measured_effect_text.endswith("[0.004, 0.1]")
    assert told(-0.02, 1.0).measured_effect_text.endswith("[−0.02, 1.0]")
    assert told(0.0, 1.0).measured_effect_text.endswith("[0.0, 1.0]")
    assert (
        told(0.1, 0.3, "noise :: a <= value 2").measured_effect_text
        == "0.20 [0.10, 0.30]"
    )


def test_p_is_of_the_end_that_the_word_rests_on():
    def student(value, low, high):
        """The two-sided p of a value under an interval with two degrees of freedom."""
        half, mean = (high - low) / 2, (high + low) / 2
        return 2 * sp.t.sf(abs(value - mean) / half * sp.t.ppf(0.975, 2), 2)

    floor = "a >= b - 0.5"
    assert told(1.0, 2.0, floor, printed=9.0).p_value == pytest.approx(
        student(-0.5, 1, 2)
    )
    assert told(-2.0, -1.0, floor, printed=9.0).p_value == pytest.approx(
        student(-0.5, -2, -1)
    )
    assert told(-1.0, 1.0, floor, printed=9.0).p_value == pytest.approx(
        student(9, -1, 1)
    )
    both = [student(value, -1, 1) for value in (-0.5, 0.8)]
    assert told(-1.0, 1.0, floor, printed=0.8).p_value == pytest.approx(max(both))
    assert told(-1.0, 1.0, floor, printed=-0.4).p_value == pytest.approx(
        student(-0.4, -1, 1)
    )
    assert told(-1.0, 1.0, floor).p_value == pytest.approx(student(-0.5, -1, 1))
    # Of two finite ends it is the one that is less sure: beyond the region that is the
    # near one.
    alike = "a ~ b +- 2"
    assert told(-0.5, 1.5, alike).p_value == pytest.approx(student(2, -0.5, 1.5))
    assert told(3.0, 4.0, alike).p_value == pytest.approx(student(2, 3, 4))
    # At no effect it is the p of the Estimate itself.
    assert told(1.0, 2.0).p_value == 0.04


def test_p_is_0_05_where_an_interval_ends_at_the_region():
    for text, low, high in (("a >= b - 0.5", -0.5, 3.0), ("a <= b + 2", -1.0, 2.0)):
        assert told(low, high, text).p_value == pytest.approx(0.05)


def test_holm_is_over_cells_that_count_and_those_of_other_claims():
    results = [told(1.0, 2.0, "a >= b - 0.5") for _ in range(4)]
    results[1] = replace(results[1], is_single_task_of_mean=True)
    results[2] = replace(results[2], claim_that_counts_it="G7")
    results.append(replace(results[0], reason="not here"))
    p = results[0].p_value
    found = words.add_holm_corrected_p_values(results, [])
    assert [r.holm_p_value for r in found] == [
        pytest.approx(2 * p),
        None,
        None,
        pytest.approx(2 * p),
        None,
    ]
    more = words.add_holm_corrected_p_values(results, [0.9, 0.5])
    assert more[0].holm_p_value == pytest.approx(4 * p) and more[1].holm_p_value is None
    assert [replace(r, holm_p_value=None) for r in found] == results


def test_the_mark_is_for_decided_words_below_0_05_after_holm():
    assert told(1.0, 2.0, holm_p_value=0.049).verdict_text == "agrees †"
    assert told(1.0, 2.0, holm_p_value=0.05).verdict_text == "agrees"
    assert (
        told(1.0, 2.0, printed=9.0, holm_p_value=0.01).verdict_text
        == "agrees (weaker than printed) †"
    )
    assert (
        told(-1.0, 1.0, printed=9.0, holm_p_value=0.01).verdict_text
        == "no such effect here †"
    )
    assert told(-1.0, 1.0, holm_p_value=0.01).verdict_text == NOISY


@pytest.mark.papers("ghostbert")
def test_a_page_takes_the_other_cells_of_a_paper_from_the_committed_table(monkeypatch):
    result = told(1.0, 2.0, "a >= b - 0.5")
    rows = [
        {"profile": profile, "family": family, "claim": claim, "p": "0.9", "low": ""}
        for profile, family, claim in [
            ("mini", "ghostbert", "G2"),
            ("mini", "ghostbert", "G3"),
            ("mini", "ghostbert", "G1"),  # It is judged anew.
            ("mini", "", "G4"),  # It is a task of a mean.
            ("mini", "nas_pruning", "N1"),
            ("base", "ghostbert", "G5"),
        ]
    ]
    monkeypatch.setattr(source, "read_verdicts_csv", lambda: rows)
    one = words.Verdict("G1", (result,), profile="mini", kind="finding")
    (found,) = source.correct_p_values_by_holm({"G1": one})["G1"].results
    assert found.holm_p_value == pytest.approx(3 * result.p_value)


@pytest.mark.papers("bermo")
def test_a_finding_that_has_the_numbers_of_a_central_claim_counts_there(monkeypatch):
    """As a mean over all tasks does, where the tasks that it has more have no runs."""
    monkeypatch.setattr(source, "read_verdicts_csv", list)
    central, mean = told(1.0, 2.0, "a > b @ task=x"), told(1.0, 2.0, "a > b")
    other = replace(mean, estimate=replace(mean.estimate, mean=1.4))
    by_id = {
        id: words.Verdict(id, results, profile="mini", kind="finding")
        for id, results in {
            "B39": (mean, other),
            "B1": (central,),
            "B2": (central,),
        }.items()
    }
    found = source.correct_p_values_by_holm(by_id)
    assert [r.claim_that_counts_it for r in found["B39"].results] == ["B1", ""]
    assert [r.holm_p_value is None for r in found["B39"].results] == [True, False]
    # A page of findings takes what central claims have from the committed table.
    estimate = central.estimate
    row = {
        "profile": "mini",
        "claim": "B1",
        "task": central.task,
        "unit": "points",
        "p": "0.9",
    }
    row |= {
        "estimate": f"{estimate.mean}",
        "low": f"{estimate.low}",
        "same_as": "",
        "beside": "",
    }
    row |= {"region_low": "0.0", "region_high": "", "printed": "", "interest": ""}
    monkeypatch.setattr(
        source, "read_verdicts_csv", lambda: [row | {"family": "bermo"}]
    )
    alone = source.correct_p_values_by_holm({"B39": by_id["B39"]})["B39"].results
    assert [r.claim_that_counts_it for r in alone] == ["B1", ""]
    # What two central claims ask stays in both.
    assert found["B1"].results[0].holm_p_value and found["B2"].results[0].holm_p_value


@pytest.mark.papers("bermo")
@pytest.mark.parametrize("is_on_page_of_its_own", [False, True])
def test_a_repeated_comparison_has_the_word_of_the_claim_that_counts_it(
    monkeypatch, is_on_page_of_its_own
):
    """The finding prints no effect of its own; the central claim prints 9."""
    central, repeat = told(-1.0, 1.0, printed=9.0), told(-1.0, 1.0)
    row = {"profile": "mini", "claim": "B1", "task": "SST-2", "unit": "points"}
    row |= {"estimate": "0.0", "low": "-1.0", "region_low": "0.0", "region_high": ""}
    row |= {"printed": "9.0", "interest": "", "same_as": "", "beside": "", "p": "0.9"}
    recorded = [row | {"family": "bermo"}] if is_on_page_of_its_own else []
    monkeypatch.setattr(source, "read_verdicts_csv", lambda: recorded)
    results = {"B39": repeat} | ({} if is_on_page_of_its_own else {"B1": central})
    verdicts = {
        id: words.Verdict(id, (result,), profile="mini", kind="finding")
        for id, result in results.items()
    }
    (found,) = source.correct_p_values_by_holm(verdicts)["B39"].results
    assert (repeat.verdict_word, central.verdict_word) == (NOISY, NO_EFFECT)
    assert (found.claim_that_counts_it, found.printed, found.verdict_word) == (
        "B1",
        9.0,
        NO_EFFECT,
    )


@pytest.mark.parametrize(
    "planned, text", [(12, "3 of 12 planned seeds so far"), (3, ""), (2, "")]
)
def test_an_interval_of_fewer_seeds_than_planned_says_so(planned, text):
    result = replace(told(1.0, 2.0), planned_seed_count=planned)
    assert result.seed_progress_text == text
    assert (f"({text})" in format_result_sentence(result)) == bool(text)


@pytest.mark.parametrize(
    "cells, word",
    [
        ("a > b", AGREES),
        ("b > a", OPPOSITE),
        ("a > c", NOISY),
        ("a >= b - 0.5", AGREES),
        ("b >= a - 2", OPPOSITE),
        ("a <= b + 20", AGREES),
        ("a ~ b +- 20", AGREES),
        ("a ~ b +- 2", OPPOSITE),
        ("a ~ b +- 10", NOISY),
    ],
)
def test_a_word_follows_from_the_runs(cells, word):
    frame = made_up({"a": 0.9, "b": 0.8}, *other(0.9))
    result = only(cells, frame)
    assert result.verdict_word == word and (
        result.ended_seed_count,
        result.planned_seed_count,
    ) == (5, 5)
    if "c" not in cells:
        assert abs(result.estimate.mean) == pytest.approx(10)


def other(share, rows=600):
    """A rival c whose answers are right as often as others' are, in other rows."""
    return [
        (
            "SST-2",
            "c",
            seed,
            np.random.default_rng(99 - seed).permutation(rows) < share * rows,
            {},
        )
        for seed in range(5)
    ]


def test_a_margin_that_is_broken_turns_its_cell():
    frame, rng = made_up({"a": 0.9, "b": 0.8}), random.Random(7)
    for _ in range(4):
        margin = rng.uniform(14, 40)
        assert only(f"a ~ b +- {margin:.2f}", frame).verdict_word == AGREES
        assert only(f"a ~ b +- {margin / 20:.2f}", frame).verdict_word == OPPOSITE


@pytest.mark.parametrize(
    "done, word", [(2, NOT_MEASURED), (3, AGREES), (5, AGREES), (0, None)]
)
def test_three_seeds_make_an_interval_and_those_that_are_lacking_are_counted(
    done, word
):
    frame = made_up({"a": 0.9, "b": 0.8}, seeds=5)
    gone = (frame["seed"] >= done) & (frame["model"] == "a")
    frame.loc[gone, "run"], frame.loc[gone, "state"] = None, "missing"
    found = only("a > b", frame, planned_seed_count=5)
    assert found.verdict_word == (word or NOT_MEASURED) and (
        found.ended_seed_count,
        found.planned_seed_count,
    ) == (
        done,
        5,
    )
    if done == 2:
        assert found.measured_effect_text == "+10.0 (2 seeds)" and found.p_value is None
        assert found.unmeasured_reason == "2 seeds; 3 are needed"
    if not done:
        assert (found.measured_effect_text, found.unmeasured_reason) == (
            "–",
            "not run yet",
        )


def test_a_run_that_failed_has_ended_and_is_told():
    frame = made_up({"a": 0.9, "b": 0.8}, seeds=5)
    lost = (frame["seed"] == 4) & (frame["model"] == "a")
    frame.loc[lost, "run"], frame.loc[lost, "state"] = None, "failed"
    (found,), note = judge("a > b", frame, planned_seed_count=5)
    assert (found.ended_seed_count, found.estimate.n_seeds, note) == (
        5,
        4,
        "1 runs failed",
    )


def test_tasks_are_no_seeds():
    frame = pd.concat(
        [made_up({"a": 0.9, "b": 0.8}, seeds=2, task=t) for t in ("SST-2", "QQP")]
    )
    results, _ = judge("a > b", frame)
    assert {(r.verdict_word, r.estimate.n_seeds) for r in results} == {
        (NOT_MEASURED, 2)
    }


@pytest.mark.papers("nas_pruning")
def test_what_scores_no_model_decides_nothing():
    """A search and a prediction stand in the rows of a page under their network's
    name."""
    frame = made_up({"A": 0.9, "B": 0.8}, seeds=5)
    rival = frame[frame["model"] == "B"]
    sizes = {
        step: Spec(step, {"data": {"task": "SST-2"}})
        for step in ("nas_search", "predict")
    }
    network = Spec("retrain", {"data": {"task": "SST-2"}})
    rows = [frame.assign(spec=[network.with_seed(n) for n in range(len(frame))])]
    rows += [
        rival.assign(spec=spec.with_seed(n), run=holding({}, spec.step), accuracy=n / 9)
        for n, spec in enumerate(sizes.values())
    ]
    for cells in ("A > B", "variance ratio :: A over B <= value 1"):
        found = [
            words.judge_comparisons(
                LINE | {"cells": cells}, each.to_dict("records"), SETTING
            )[0][0]
            for each in (pd.concat(rows), rows[0])
        ]
        assert found[0].estimate == found[1].estimate, cells
    assert found[0].estimate.n_seeds == 5


def questions(f1, seeds=3):
    """Made-up runs on SQuAD of models {label: F1 of its questions [N]}; every second
    question has no answer."""
    lines = []
    for (model, marks), seed in product(f1.items(), range(seeds)):
        marks = np.roll(np.array(marks, float), seed)
        labels = np.where(np.arange(len(marks))[:, None] % 2, [[-1, -1]], [[3, 5]])
        arrays = {"span_f1": marks, "labels": labels, "index": np.arange(len(marks))}
        run = holding(arrays, f"{model}/{seed}", span_f1=marks.mean())
        lines.append({"task": "SQuAD2", "model": model, "seed": seed, "run": run})
    return pd.DataFrame(lines).assign(
        state="finished", span_f1=[r["run"].metrics["span_f1"] for r in lines]
    )


def test_questions_are_paired_by_their_marks():
    columns = METRICS | {"SQuAD2": (MetricColumn("SQuAD2", "SQuAD2", "span_f1"),)}
    frame = questions(
        {"a": [1.0, 0.9] * 300, "b": [0.9, 0.7] * 300, "none": [0, 1] * 300}
    )

    def on(cells):
        return only(cells, frame, columns_by_task=columns)

    found = on("a > b @ task=SQuAD2")
    assert found.verdict_word == AGREES and found.estimate.mean == pytest.approx(15.0)
    assert on("F1 :: a ~ value 95.4 +- 0.5 @ task=SQuAD2").verdict_word == AGREES
    broken = on("F1 :: a ~ value 85.3 +- 0.5 @ task=SQuAD2")
    assert broken.verdict_word == broken.verdict_text == OPPOSITE
    # A model that says "no answer" to all questions has half of the marks.
    assert (
        "none learned nothing on SQuAD2: 50.0 points"
        in on("a > none @ task=SQuAD2").reason
    )


@pytest.mark.papers("ghostbert")
def test_a_recipe_has_one_name_at_every_profile():
    """The row with both, and that of distillation alone, have other labels at mini and
    at paper."""
    (path,) = (
        path
        for path in notebook.find_notebooks()
        if notebook.make_notebook_id(path) == "ghostbert_t04_ablation"
    )
    names = {"mini": ("+ DA", "GhostBERT"), "paper": ("GhostBERT", "- DA")}
    with data.plan_with_missing_data(use_local_data=False):
        for scale, labels in names.items():
            rows = notebook.execute_grid_cell_and_list_rows_by_variable(
                path, {"profile": scale}
            )["grid"]
            for recipe, label in zip(("+ DA", "KD alone"), labels, strict=True):
                own = select_compared_rows(
                    parse_comparisons(f"{recipe} > - DA & KD @ m=3"), rows
                )
                assert {row["model"] for row in own} == {label, "- DA & KD"}, (
                    scale,
                    recipe,
                )
                augmented = [
                    "augmented" in row["spec"].inputs["start"].inputs
                    for row in own
                    if row["model"] == label
                ]
                assert {*augmented} == {recipe == "+ DA"}


def test_a_mean_over_tasks_has_each_task_beside_and_cells_of_each_are_apart():
    frame = pd.concat([made_up({"a": 0.9, "b": 0.8}, task=t) for t in ("SST-2", "QQP")])
    results, _ = judge("a > b", frame)
    assert [(r.task, r.is_single_task_of_mean) for r in results] == [
        ("QQP/SST-2", False), ("SST-2", True), ("QQP", True)
    ]  # fmt: skip
    verdict = words.Verdict("G1", tuple(results), kind="finding")
    assert (
        str(verdict["SST-2"])
        == verdict["SST-2"].first_result.measured_effect_text
        == results[1].measured_effect_text
    )
    assert str(verdict["@ m=3"]) == NOT_MEASURED
    results, _ = judge("a > b @ task=each", frame)
    assert [(r.task, r.is_single_task_of_mean) for r in results] == [
        ("SST-2", False),
        ("QQP", False),
    ]


def test_cells_of_the_same_runs_count_once():
    frame = made_up({"a": 0.9, "b": 0.8})
    both = pd.concat([frame, frame.assign(model=frame["model"] + " again")])
    assert len(judge("a > b; a again > b again", both)[0]) == 1
    # Another region, other runs or another measure is another comparison.
    apart = "a > b; a again > b again - 0.5".replace("> b again -", ">= b again -")
    assert len(judge(apart, both)[0]) == 2
    assert len(judge("a > b; b > a", both)[0]) == 2
    assert len(judge("a > b; diverged :: a > b", both)[0]) == 2


def test_slopes_with_other_weights_are_no_twins():
    """ "Straighter over the logarithm" has the runs and the region of "per decade"."""
    shares = {"10 % NAS": 0.7, "30 % NAS": 0.8, "70 % NAS": 0.9}
    line = " | ".join(shares) + " > value 0"
    cells = f"per decade :: {line}; straighter over the logarithm :: {line}"
    results, _ = judge(cells, made_up(shares))
    assert [r.comparison.contrast_weights_name for r in results] == [
        "per decade",
        "straighter over the logarithm",
    ]
    assert results[0].estimate.mean != results[1].estimate.mean
    assert (
        len(judge(f"per decade :: {line}; per decade :: {line}", made_up(shares))[0])
        == 1
    )


def test_the_first_above_the_mean_of_the_others_is_in_points():
    """0.86 less the mean of 0.80, 0.82 and 0.84 is four points."""
    shares = {"k = 3": 0.86, "k = 1": 0.80, "k = 5": 0.82, "k = 9": 0.84}
    (result,), _ = judge(
        f"first above the others :: {' | '.join(shares)} > value 0", made_up(shares)
    )
    assert (
        result.estimate.mean == pytest.approx(4.0, abs=0.1) and result.unit == "points"
    )
    assert result.verdict_word == AGREES


@pytest.mark.parametrize(
    "frame, why",
    [
        (made_up({"a": 0.9, "b": 0.51}),
         r"b learned nothing on SST-2: 51\.0 to 51\.7 points in 5 of 5 runs, no more than 54\.1"),
        (made_up({"a": 0.51, "b": 0.8}, seeds=1),
         r"a learned nothing on SST-2: 51\.0 points, no more than 54\.1"),
        (collected(*[("SST-2", m, s, np.arange(600) % 3 > 0, {}) for m in "ab" for s in range(3)]),
         "both models give the same answers on all 600 rows"),
        (collected(*[("SST-2", m, s, np.arange(600) % 2 == (m == "b"), {})
                     for m in "ab" for s in range(3)]), "a learned nothing on SST-2: 50.0 points"),
    ],
)  # fmt: skip
def test_models_that_learned_nothing_decide_nothing(frame, why):
    found = only("a > b", frame)
    assert found.verdict_word == NOT_MEASURED and re.fullmatch(
        f"{why}.*", found.unmeasured_reason
    )
    assert (
        found.estimate is None
        and found.measured_effect_text == "–"
        and found.p_value is None
    )


@pytest.mark.parametrize(
    "lost, runs, measured", [(1, 4, True), (2, 4, False), (2, 5, True)]
)
def test_half_of_the_runs_of_a_model_that_learned_nothing_are_too_many(
    lost, runs, measured
):
    rows = [("SST-2", "a", s, even(0.9), {}) for s in range(runs)]
    rows += [("SST-2", "b", s, even(0.5 if s < lost else 0.8), {}) for s in range(runs)]
    found = only("a > b", collected(*rows))
    assert (found.estimate is not None) == measured
    assert f"in {lost} of {runs} runs" in found.reason or measured
    if measured:  # Those that are left make the pairs, for both models alike.
        assert found.estimate.n_seeds == runs - lost
        assert found.estimate.mean == pytest.approx(10)
        assert found.collapsed == f"{lost} of {runs} runs of b collapsed"


@pytest.mark.parametrize(
    "whole, why",
    [
        (59.0, ""),
        (61.0, "b stayed under half of the whole model's score on CoLA: 30.0 "),
    ],
)
def test_half_of_a_whole_models_score_is_the_floor(whole, why):
    """It is a number of the profile, and no record that happens to be there."""
    rows = [("CoLA", m, s, even(0.75 - 0.1 * (m == "b")), {"matthews": 0.3})
            for m in "ab" for s in range(3)]  # fmt: skip
    found = only("a > b", collected(*rows), unpruned_scores={"CoLA": whole})
    assert found.reason.startswith(why) and bool(found.reason) == bool(why)
    assert found.reason.endswith("half is 30.5") or not why
    assert only("a > b", collected(*rows)).reason == ""


def test_a_reason_speaks_of_one_task_and_of_a_weak_run_before_a_collapsed_one():
    """The floor is of tasks whose whole model was scored; Tense has none."""
    runs = [("Tense", "b", 0, even(0.5), {})]
    runs += [("CoLA", "b", s, even(0.65), {"matthews": 0.3}) for s in range(2)]
    spec = Spec("finetune", {"data": {}})
    rows = collected(*runs).assign(spec=[spec] * 3).to_dict("records")
    inputs = words.JudgingInputs(
        METRICS | {"Tense": (MetricColumn("Tense", "Tense", "accuracy"),)},
        "mini",
        unpruned_scores={"CoLA": 61.0},
    )
    found = words.explain_model_that_learned_little("b", rows, "", inputs)
    why = (
        "b stayed under half of the whole model's score on CoLA: 30.0 points in 2 of 2"
    )
    assert found == f"{why} runs, half is 30.5"


def test_a_model_whose_failing_is_the_claim_may_fail():
    frame = made_up({"a": 0.9, "b": 0.51})
    assert only("a > b", frame).verdict_word == NOT_MEASURED
    found = only("a > b", frame, models_expected_to_collapse=("b",))
    assert found.verdict_word == AGREES and found.estimate.mean == pytest.approx(39)
    assert found.estimate.n_seeds == 5  # No seed is left out.
    assert found.collapsed == "b comes within 10 points of a in 0 of 5 seeds"
    assert (
        only("a > b", frame, models_expected_to_collapse=("a",)).verdict_word
        == NOT_MEASURED
    )


@pytest.mark.parametrize("where", ["", " @ task=SST-2/QQP"])
def test_a_task_that_cannot_be_tested_leaves_the_mean(where):
    """Also where the cell names its tasks: one probe at chance is not the word on
    five."""
    frame = pd.concat(
        [made_up({"a": 0.9, "b": 0.8}), made_up({"a": 0.5, "b": 0.5}, task="QQP")]
    )
    results, _ = judge(f"a > b{where}", frame)
    assert [(r.task, r.is_single_task_of_mean) for r in results] == [
        ("SST-2", False),
        ("QQP", True),
    ]
    assert results[0].verdict_word == AGREES and results[0].estimate.n_tasks == 1
    assert "learned nothing on QQP" in results[1].unmeasured_reason
    each, _ = judge("a > b @ task=each", frame)
    assert [r.verdict_word for r in each] == [AGREES, NOT_MEASURED]
    none = pd.concat([made_up({"a": 0.5, "b": 0.5}, task=t) for t in ("SST-2", "QQP")])
    results, _ = judge(f"a > b{where}", none)
    assert [(r.task, r.verdict_word) for r in results] == [
        ("QQP/SST-2", NOT_MEASURED), ("SST-2", NOT_MEASURED), ("QQP", NOT_MEASURED)
    ]  # fmt: skip


def test_the_printed_value_of_a_mean_is_that_of_the_tasks_that_are_left():
    table = {("a > b", "SST-2"): 1.0, ("a > b", "QQP"): 3.0}
    frame = pd.concat([made_up({"a": 0.9, "b": 0.8}, task=t) for t in ("SST-2", "QQP")])
    results, _ = judge("a > b", frame, printed_effects=table)
    assert [r.printed for r in results] == [2.0, 1.0, 3.0]
    lame = pd.concat(
        [made_up({"a": 0.9, "b": 0.8}), made_up({"a": 0.5, "b": 0.5}, task="QQP")]
    )
    assert judge("a > b", lame, printed_effects=table)[0][0].printed == 1.0


def test_a_printed_mean_needs_those_very_tasks():
    def value(table, task):
        return SETTING.average_known_effect_over_tasks(table, "x", task)

    assert value({("x", "A"): 1.0, ("x", "B"): 4.0}, "A/B") == 2.5
    assert value({("x", "A"): 1.0}, "A/B") is None
    assert value({("x", "A/B/C"): 1.0}, "A/B") is None
    assert (
        value({("x", "A/B"): 7.0, ("x", "A"): 1.0}, "A/B") == 7.0
    )  # as the paper prints it
    assert value({("y", "A"): 1.0}, "A") is None
    assert value({("x", ""): 0.5}, "A/B") == 0.5  # an interest of all tasks
    assert value({("x", ""): 0.5, ("x", "A"): 1.5}, "A/B") == 1.0


def test_a_cell_without_rows_says_what_the_profile_lacks():
    frame = made_up({"a": 0.9, "b": 0.8})
    results, _ = judge(
        "a > b; a > z; a > b @ task=CoLA/RTE; a > b @ family=roberta", frame
    )
    assert [r.reason for r in results] == [
        "",
        "the profile mini has no row “z”",
        "no row of this page is on CoLA or RTE at the profile mini",
        "no row of the profile mini has RoBERTa",
    ]
    assert {r.verdict_word for r in results[1:]} == {NOT_MEASURED}
    assert words.explain_missing_model_row("A at m 3, task CoLA", "base") == (
        "no row of this page is on CoLA at the profile base"
    )
    assert words.explain_missing_model_row("A at task CoLA", "base", {"CoLA"}) == (
        "the profile base has no row “A at task CoLA”"
    )
    assert words.explain_missing_model_row("A at task *", "base") == (
        "the row “A” is not planned at the profile base"
    )


def test_collapse_is_no_fault_where_it_is_measured_and_is_told_by_counts():
    frame = made_up({"a": 0.5, "b": 0.9})
    found = only("diverged :: a > b", frame)
    assert (found.verdict_word, found.estimate.mean) == (AGREES, 100)
    assert (
        found.measured_effect_text == found.counts == "5 of 5 against 0 of 5"
        and found.collapsed == ""
    )
    never = only("diverged :: b = value 0", frame)
    assert (never.verdict_word, never.measured_effect_text) == (AGREES, "0 of 5")
    assert (never.estimate.low, never.estimate.high) == (0, 0)
    always = only("diverged :: a = value 0", frame)
    assert (always.verdict_word, always.measured_effect_text) == (OPPOSITE, "5 of 5")


def test_a_share_is_on_each_task_alone():
    """Tasks are no runs: two tasks of five seeds are not ten."""
    frame = pd.concat([made_up({"a": 0.5, "b": 0.9}, task=t) for t in ("SST-2", "QQP")])
    results, _ = judge("diverged :: a > b", frame)
    assert [(r.task, r.counts, r.estimate.n_seeds) for r in results] == [
        ("SST-2", "5 of 5 against 0 of 5", 5), ("QQP", "5 of 5 against 0 of 5", 5)
    ]  # fmt: skip


def test_a_seed_in_which_one_model_collapsed_leaves_both():
    rows = [("SST-2", "a", s, even(0.9), {}) for s in range(5)]
    rows += [("SST-2", "b", s, even(0.5 if s == 4 else 0.8), {}) for s in range(5)]
    found = only("a > b", collected(*rows))
    assert (found.estimate.n_seeds, found.estimate.mean) == (4, pytest.approx(10))
    assert found.collapsed == "1 of 5 runs of b collapsed"
    assert only("a > b", collected(*rows[:9])).collapsed == ""
    both = rows + [
        ("QQP", m, s, even(0.9 - 0.1 * (m == "b")), {}) for m in "ab" for s in range(5)
    ]
    results, _ = judge("a > b", collected(*both))
    assert results[0].collapsed == "1 of 5 runs of b collapsed on SST-2"


def test_a_run_whose_loss_was_not_finite_collapsed():
    frame = made_up({"a": 0.9, "b": 0.8})

    def gone(_):
        raise FileNotFoundError("predictions")

    last = (frame["model"] == "b") & (frame["seed"] == 4)
    frame.loc[last, "run"].iloc[0].read_arrays = gone
    found = only("a > b", frame)
    assert (
        found.estimate.n_seeds == 4 and found.collapsed == "1 of 5 runs of b collapsed"
    )


def test_most_scores_that_are_ranked_differ():
    def rows(scores):
        lines = [("SST-2", str(n), 0, np.arange(600) < 600 * s, {"kind": "student"})
                 for n, s in enumerate(scores)]  # fmt: skip
        frame = collected(*lines)
        search = frame.assign(kind="search", **{"held_out.accuracy": list(scores)})
        return pd.concat([frame, search.drop(columns="accuracy")], ignore_index=True)

    text = (
        "rank correlation :: * [kind=student, task=each] over * [kind=search] > value 0"
    )
    assert only(text, rows(np.linspace(0.7, 0.9, 12))).verdict_word == AGREES
    tied = only(text, rows([0.7] * 4 + list(np.linspace(0.8, 0.9, 8))))
    assert (tied.verdict_word, tied.reason) == (
        NOT_MEASURED,
        "only 9 of 12 search scores differ",
    )
    assert (
        only(text, rows([0.7] * 3 + list(np.linspace(0.8, 0.9, 9)))).verdict_word
        == AGREES
    )
    # A part of the candidates would have another rank correlation.
    half = rows(np.linspace(0.7, 0.9, 24))
    late = (half["kind"] == "student") & (half["model"].astype(int) >= 12)
    half.loc[late, "run"], half.loc[late, "state"] = None, "missing"
    part = only(text, half)
    assert (part.verdict_word, part.estimate) == (NOT_MEASURED, None)
    assert part.reason == "36 of 48 runs are there, and ranks are of all"


@pytest.mark.papers("nas_pruning")
def test_a_measure_is_a_mean_over_seeds_and_its_region_a_value():
    frame = made_up({"a": 0.9, "b": 0.9}).assign(
        noise=lambda f: np.where(f["model"] == "a", 10.0, 30.0), pixels=70.0
    )
    assert only("noise :: b > a", frame).estimate.mean == 20
    found = only("share of noise :: a <= value 0.25", frame)
    assert (found.verdict_word, found.estimate.mean) == (AGREES, 0.125)
    assert only("share of noise :: b <= value 0.25", frame).verdict_word == OPPOSITE


def test_a_variance_is_a_ratio():
    rng = np.random.default_rng(0)
    rows = [
        (
            "SST-2",
            model,
            seed,
            rng.permutation(900) < 900 * (0.8 + spread * (seed - 4.5)),
            {},
        )
        for model, spread in (("a", 0.001), ("b", 0.02))
        for seed in range(10)
    ]
    found = only("variance ratio :: a over b <= value 1 @ task=each", collected(*rows))
    assert found.verdict_word == AGREES and found.estimate.mean < 0.1
    assert not found.measured_effect_text.startswith("+")


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("", ()),
        ("10", (10,)),
        ("10 to 14", (10, 11, 12, 13, 14)),
        ("10 to 12, 20 to 25", (10, 11, 12, 20, 21, 22, 23, 24, 25)),
        ("10, 12", (10, 12)),
    ],
)
def test_planned_seeds_are_read(text, numbers):
    assert parse_seeds(text) == numbers


@pytest.mark.parametrize("text", ["10-12", "10,11", "ten", "10 to", "12 to 10"])
def test_seeds_in_another_form_are_refused(text):
    with pytest.raises(Refused, match=f"seeds '{text}'.*; fix: "):
        parse_seeds(text)


@pytest.mark.papers("ghostbert")
def test_seeds_that_were_added_stand_behind_the_planned_ones_with_a_reason():
    added = lists.read_csv_in_published_folder("added")
    for row in added:
        line = lists.read_claims()[row["claim"]]
        new, every = set(parse_seeds(row["seeds"])), parse_seeds(line["seeds"])
        assert row["why"] and re.fullmatch(r"\d{4}-\d\d-\d\d", row["added"])
        first = int(line["planned"]["first_seed"])
        planned = set(range(first, first + int(line["planned"]["seeds"])))
        assert new and not new & planned and set(every) == planned | new
    assert (
        added
        and lists.list_planned_seeds("G1")
        and not lists.list_planned_seeds("G1", "paper")
    )


@pytest.mark.papers()
def test_the_cells_of_every_claim_can_be_read_and_are_sentences():
    for id, line in lists.read_claims().items():
        cells = parse_comparisons(line["cells"])
        assert cells or line["role"] not in ("central", "own"), id
        assert bool(parse_seeds(line["seeds"])) == bool(line["seeds"]), id
        for one in cells:
            told = lists.find_comparison_description(id, one.text)
            assert told["sentence"] and told["short"] and "@" not in told["sentence"], (
                id,
                one,
            )
            assert not told["sentence"].endswith("."), told
            same = told["same_as"]
            if same:  # The other claim has this comparison, and counts it itself.
                others = parse_comparisons(lists.read_claims()[same]["cells"])
                assert same != id, told
                assert any(
                    not lists.find_comparison_description(same, each.text)["same_as"]
                    for each in others
                )


def test_every_line_of_cells_is_a_cell_of_its_claim():
    for paper in (*lists.PAPERS, "own"):
        for row in lists.read_csv_in_published_folder(f"{paper}/cells"):
            line = lists.read_claims()[row["claim"]]
            assert line["paper"] == paper
            assert row["cell"] in {
                one.text for one in parse_comparisons(line["cells"])
            }, row


@pytest.mark.parametrize("id", source.list_central_claim_ids())
def test_a_central_claim_has_its_rows_at_mini_and_the_planned_seeds(id):
    line = lists.read_claims()[id]
    planned, rows = {*parse_seeds(line["seeds"])}, source.list_grid_rows_of_claim(line)
    assert planned and {row["seed"] for row in rows} == planned
    missing = [dict(row) | {"run": None, "state": "missing"} for row in rows]
    results, note = words.judge_comparisons(
        line, missing, replace(SETTING, planned_seed_count=len(planned))
    )
    assert results and not note
    assert {(r.verdict_word, r.ended_seed_count, r.estimate) for r in results} == {
        (NOT_MEASURED, 0, None)
    }
    assert all(r.unmeasured_reason for r in results)
    assert "not run yet" in {r.unmeasured_reason for r in results}


@pytest.mark.papers("bermo")
def test_every_claim_without_a_run_has_a_word(tmp_path):
    store = Store(tmp_path / "runs", tmp_path / "records")
    own = [
        id for id, c in lists.read_claims().items() if c["paper"] in ("bermo", "own")
    ]
    for id, found in source.judge_claims(own, store).items():
        line = lists.read_claims()[id]
        assert found.claim == id
        if line["check"] and line["role"] in ("arithmetic", "setting"):
            assert (
                found.verdict_word in words.CHECKS
                and found.measured
                and not found.results
            )
            continue
        assert not found.verdict_word, id
        assert bool(found.results) == bool(line["cells"]), id
        for r in found.results:
            assert (r.verdict_word, r.p_value, r.estimate) == (
                NOT_MEASURED,
                None,
                None,
            ), id
            assert r.unmeasured_reason and r.sentence and r.axis_label
            assert r.holm_p_value is None and r.claim == id


@pytest.mark.papers("ghostbert")
def test_each_printed_effect_is_a_formula_of_a_cell_that_a_claim_has():
    for row in lists.read_csv_in_published_folder("effects"):
        line = lists.read_claims()[row["claim"]]
        assert row["cell"] in {one.text for one in parse_comparisons(line["cells"])}, (
            row
        )
    effects = checks.compute_printed_effects("G1")
    assert effects["Ghost > Prune @ m=1", "STS-B"] == pytest.approx(1.4)
    whole = "CoLA/MNLI/MRPC/QNLI/QQP/RTE/SST-2/STS-B"
    assert effects["Ghost > Prune @ m=1", whole] == pytest.approx(2.1)
    assert ("Ghost > Prune @ m=1", "SST-2/STS-B") not in effects
    both = JudgingInputs(METRICS, "mini", effects).average_known_effect_over_tasks(
        effects, "Ghost > Prune @ m=1", "SST-2/STS-B"
    )
    alone = [effects["Ghost > Prune @ m=1", task] for task in ("SST-2", "STS-B")]
    assert both == pytest.approx(sum(alone) / 2)
    for id in {row["claim"] for row in lists.read_csv_in_published_folder("effects")}:
        assert all(
            np.isfinite(value) for value in checks.compute_printed_effects(id).values()
        )


def test_interests_are_numbers_in_the_region_of_their_cell():
    """Else no word could rest on them; 0 is no effect, and no word rests on it."""
    for id in lists.read_claims():
        for (text, _), value in lists.read_smallest_effects_of_interest(id).items():
            low, high = parse_comparison(text).bounds
            assert low <= value <= high, (id, text, value)


@pytest.mark.papers("ghostbert")
def test_a_printed_cell_that_changes_changes_the_effect(monkeypatch):
    rng, lines = random.Random(3), lists.read_csv_in_published_folder
    task = rng.choice(["SST-2", "STS-B", "CoLA"])
    before = checks.compute_printed_effects("G1")["Ghost > Prune @ m=3", task]

    def broken(name):
        rows = [dict(row) for row in lines(name)]
        if name == "ghostbert/table10":
            for row in rows:
                if (row["m"], row["Model"]) == ("3/12", "Ghost"):
                    row[task] = str(float(row[task]) + 5)
        return rows

    monkeypatch.setattr(lists, "read_csv_in_published_folder", broken)
    assert checks.compute_printed_effects("G1")[
        "Ghost > Prune @ m=3", task
    ] == pytest.approx(before + 5)


@pytest.mark.papers("ghostbert")
def test_a_comparison_that_a_central_claim_has_is_judged_at_its_seeds(
    anywhere, tmp_path
):
    """G28 is a comparison of G7: it has G7's seeds, and is counted there alone."""
    line = lists.read_claims()["G28"]
    assert [*source.group_comparisons_by_seeds(line, "mini")] == [
        lists.list_planned_seeds("G7")
    ]
    assert source.has_only_repeated_comparisons(
        "G28"
    ) and not source.has_only_repeated_comparisons("G7")
    store = Store(tmp_path / "runs", tmp_path / "records")
    results = source.judge_claims(["G28"], store)["G28"].results
    assert results
    for r in results:
        assert r.claim_that_counts_it == "G7" and r.planned_seed_count == len(
            lists.list_planned_seeds("G7")
        )


def test_a_mean_over_tasks_has_the_same_tasks_at_each_seed():
    """Else a task that one seed alone has would count as an effect of the seed."""
    first = pd.DataFrame(
        {"task": ["SST-2", "CoLA", "SST-2", "CoLA"], "seed": [0, 0, 1, 1], "value": 1.0}
    )
    second = first.assign(value=[2.0, 9.0, 2.0, 9.0])[:3]
    parts = estimates.select_rows_of_common_tasks([first, second])
    assert [[*part["task"]] for part in parts] == [["SST-2"] * 2] * 2
    (left, _) = estimates.select_rows_of_common_tasks([first[:1], second[2:]])
    assert [*left["task"]] == ["SST-2"]
    assert not any(
        map(len, estimates.select_rows_of_common_tasks([first[:1], first[1:2]]))
    )
