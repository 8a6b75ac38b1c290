"""Schedules of fine-pruning against their closed forms, and what they refuse."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.papers.bermo import recipes as bermo
from lib.papers.bermo import schedules
from lib.papers.bermo.options import Prune
from lib.papers.bermo.schedules import (
    ThresholdRamp,
    compute_next_penalty_weight_by_pi_controller,
    compute_penalty_weight_at_threshold,
    compute_planned_mask_score,
    plan_threshold_ramp,
)
from lib.train.loop import compute_learning_rate_factor


def prune(**changes):
    return replace(Prune("movement", 1.0, 0.1, 10, 1, 2, lr=1e-2), **changes)


def soft(**changes):
    return prune(method="soft", initial_threshold=0.0, final_lambda=200.0, **changes)


def test_the_cubic_in_closed_form():
    """MNLI of Table 7: T 73,632, w 12,000, i 1, f 1: the ramp goes from 12,000 to
    61,632."""
    ramp = plan_threshold_ramp(prune(warmup_steps=12000, final_warmup=1), 73632)
    assert ramp == ThresholdRamp(1.0, 0.1, 12000, 61632)
    for step in (0, 1, 11999, 12000):
        assert ramp(step) == 1.0
    for step in (61632, 61633, 73631):
        assert ramp(step) == pytest.approx(0.1, abs=1e-15)
    for step in (12001, 20000, 36816, 61631):
        done = (step - 12000) / (73632 - 24000)
        cubic = 1 - 3 * done + 3 * done**2 - done**3
        assert ramp(step) == pytest.approx(0.1 + 0.9 * cubic, abs=1e-14)
    assert ramp(36816) == pytest.approx(0.1 + 0.9 / 8, abs=1e-14)


@settings(max_examples=60, deadline=None)
@given(
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    steps=st.integers(2, 400),
    warmups=st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 3)),
)
def test_a_ramp_goes_one_way_from_start_to_end(ends, steps, warmups):
    (start, end), (w, i, f) = ends, warmups
    ramp = plan_threshold_ramp(
        Prune("movement", *ends, *warmups, lr=0.01, overlong="jump"), steps
    )
    values = [ramp(step) for step in range(steps + 1)]
    assert values[0] == start
    if w * (i + f) < steps:
        assert values[-1] == pytest.approx(end, abs=1e-12)
    ordered = values if start <= end else [-v for v in values]
    assert all(b - a >= -1e-12 for a, b in zip(ordered, ordered[1:], strict=False))


def test_lambda_rises_with_the_threshold_of_soft_movement():
    options = soft(warmup_steps=100, initial_warmup=1, final_warmup=1)
    ramp = plan_threshold_ramp(options, 1000)
    assert compute_penalty_weight_at_threshold(ramp(100), options) == 0.0
    assert compute_penalty_weight_at_threshold(ramp(1000), options) == pytest.approx(
        200, abs=1e-12
    )
    for step in (101, 300, 500, 899):
        x = (step - 100) / 800
        assert compute_penalty_weight_at_threshold(
            ramp(step), options
        ) == pytest.approx(200 * (1 - (1 - x) ** 3), abs=1e-10)


def test_warm_ups_longer_than_the_run_are_refused_with_what_would_fit():
    """MNLI for one epoch, as Figure 5 has it: 12,272 steps, 24,000 of warm-up."""
    options = prune(warmup_steps=12000, final_warmup=1)
    with pytest.raises(ValueError) as caught:
        plan_threshold_ramp(options, 12272)
    assert "Prune.warmup_steps is 12000, that is 24000 of the 12272 steps" in str(
        caught.value
    )
    assert plan_threshold_ramp(
        prune(warmup_steps=6135, final_warmup=1), 12272
    ) == ThresholdRamp(1.0, 0.1, 6135, 6137)
    with pytest.raises(ValueError):
        plan_threshold_ramp(prune(warmup_steps=6136, final_warmup=1), 12272)


def test_a_jump_on_request_is_what_the_public_code_does():
    ramp = plan_threshold_ramp(
        prune(warmup_steps=12, final_warmup=1, overlong="jump"), 20
    )
    assert [ramp(step) for step in range(20)] == [1.0] * 13 + [0.1] * 7
    ramp = plan_threshold_ramp(prune(warmup_steps=30, overlong="jump"), 20)
    assert {ramp(step) for step in range(20)} == {1.0}


@settings(max_examples=60, deadline=None)
@given(steps=st.integers(1, 100000), share=st.floats(0, 1))
def test_a_fraction_of_a_warm_up_in_steps(steps, share):
    warmup = round(share * steps)
    assert int(bermo.compute_warmup_share(warmup, steps) * steps) == warmup
    if warmup:
        assert (
            compute_learning_rate_factor(
                warmup - 1, steps, bermo.compute_warmup_share(warmup, steps)
            )
            == 1.0
        )


def test_a_learning_rate_that_never_stops_rising_is_refused():
    told = "a warm-up of 21 steps does not fit a run of 20: take at most 20"
    with pytest.raises(ValueError, match=told):
        bermo.compute_warmup_share(21, 20)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"final_threshold": 1.1},
            "final_threshold is 1.1; it must be at least 0 and at most 1",
        ),
        ({"final_lambda": -1.0}, "Prune.final_lambda is -1.0; it must be at least 0"),
        ({"method": "topK"}, "'topK'; allowed: 'magnitude', 'movement', 'soft', 'l0'"),
        ({"overlong": "cut"}, "Prune.overlong is 'cut'; allowed: 'refuse', 'jump'"),
    ],
)
def test_options_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        prune(**change)


def test_the_course_of_the_deciding_score_comes_to_rest():
    assert [
        compute_planned_mask_score(step, 10, 30) for step in (0, 10, 15, 25, 30)
    ] == [
        1.0,
        1.0,
        0.5625,
        0.0625,
        0.0,
    ]


def test_one_move_of_the_controller():
    p, i = schedules.PROPORTIONAL, schedules.INTEGRAL
    assert compute_next_penalty_weight_by_pi_controller(10.0, 0.0, 0.0, 10.0) == 10.0
    up, down = 10 * math.exp(0.02 * p + 0.03 * i), 10 * math.exp(-0.03 * i)
    assert compute_next_penalty_weight_by_pi_controller(
        10.0, 0.03, 0.01, 10.0
    ) == pytest.approx(up, rel=1e-14)
    assert compute_next_penalty_weight_by_pi_controller(
        10.0, -0.03, -0.03, 10.0
    ) == pytest.approx(down, rel=1e-14)
    assert (
        compute_next_penalty_weight_by_pi_controller(1.0, 9.0, 0.0, 1.0)
        == schedules.REACH
    )
    assert (
        compute_next_penalty_weight_by_pi_controller(1.0, -9.0, 0.0, 1.0)
        == 1 / schedules.REACH
    )


@pytest.mark.parametrize("pull", [0.02, 1.0, 40.0])
def test_the_controller_brings_a_drifting_score_to_its_cut(pull):
    """A score that falls by at most 0.05 a step, the faster the more the penalty
    outweighs the task's pull."""
    ramp = plan_threshold_ramp(
        soft(warmup_steps=20, initial_warmup=1, final_warmup=4), 400
    )
    score, weight, before, cut = 0.0, 200.0, 0.0, math.log(0.1 / 0.9)
    for step in range(400):
        if step % schedules.EVERY == 0 and step > ramp.last_step_at_start:
            error = (score - cut) / -cut - compute_planned_mask_score(
                step, ramp.last_step_at_start, 400
            )
            weight = compute_next_penalty_weight_by_pi_controller(
                weight, error, before, 200.0
            )
            before = error
        push = weight * compute_penalty_weight_at_threshold(ramp(step), soft()) / 200
        score -= 0.05 * max(0, 1 - step / 400) * (push - pull) / (push + pull)
    assert score == pytest.approx(cut, abs=0.05)


def test_lambda_of_l0_is_whole_from_the_first_step():
    options = prune(
        method="l0", final_threshold=1.0, lr=0.1, init=2.197, final_lambda=50.0
    )
    ramp = plan_threshold_ramp(options, 100)
    assert {
        compute_penalty_weight_at_threshold(ramp(step), options) for step in range(101)
    } == {50.0}
