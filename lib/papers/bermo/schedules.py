"""This module has the schedules of fine-pruning as functions of the training step
(BERMo, section 2.3; Sanh et al. 2020).

They give the threshold of the masks and the weight of the penalty. A controller changes
that weight until a target share of the weights is kept. Letters: w is
`Prune.warmup_steps`; i and f are the initial and final warm-up in units of w; T is the
number of steps, which are counted from 0. The module does not import torch."""

import math
from dataclasses import dataclass

from lib.core.names import Refused
from lib.papers.bermo.options import Prune

EVERY = 2  # The controller changes the penalty's weight once in this number of steps.
# Gains of the controller, which acts on the logarithm of the penalty's weight.
PROPORTIONAL, INTEGRAL = (
    20.0,
    1.0,
)
# The penalty's weight stays within this factor of its initial value, up or down.
REACH = 1e4


@dataclass(frozen=True)
class Ramp:
    """A Ramp is the threshold of the masks as a function of the step. It falls along a
    cubic from `start` to `end`.

    It is `start` up to step `first`, and `end` after step `last`."""

    start: float
    end: float
    first: int  # The initial warm-up, i w steps.
    last: int  # The step before the final warm-up, T - f w.

    def __call__(self, step: int) -> float:
        """Return end + (start - end) (1 - (step - first) / (last - first))^3 between
        `first` and `last`, and the nearer of the two values outside."""
        if step <= self.first:
            return self.start
        if step > self.last:
            return self.end
        left = 1 - (step - self.first) / (self.last - self.first)
        return self.end + (self.start - self.end) * left**3


def plan_threshold_ramp(pruning: Prune, step_count: int) -> Ramp:
    """Return the threshold as a function of the step, for a run of `step_count` steps.

    Where the two warm-ups leave no step between them, `pruning.overlong` decides:
    "refuse" raises Refused, "jump" lets the threshold jump after the initial warm-up,
    as the public code does."""
    w, both = pruning.warmup_steps, pruning.initial_warmup + pruning.final_warmup
    if w * both >= step_count and pruning.overlong == "refuse":
        why = f'that is {w * both} of the {step_count} steps: take fewer, or overlong "jump"'
        raise Refused(f"Prune.warmup_steps is {w}, {why}")
    first, last = pruning.initial_warmup * w, step_count - pruning.final_warmup * w
    return Ramp(pruning.initial_threshold, pruning.final_threshold, first, last)


def compute_penalty_weight(threshold: float, pruning: Prune) -> float:
    """Return the weight of the penalty on scores while the threshold moves:
    final_lambda * threshold / final_threshold."""
    return pruning.final_lambda * threshold / pruning.final_threshold


def compute_planned_score_level(step: int, first_step: int, total_steps: int) -> float:
    """Return the planned value at a step of the score that decides the kept share,
    scaled from 1 at its initial value to 0 at the final threshold.

    `compute_next_penalty_weight` holds the score to it. It is 1 up to step
    `first_step`. Then it falls along a parabola that ends at 0 with slope zero, since
    scores move ever less as the learning rate falls linearly. It never rises, because a
    penalty cannot raise a score."""
    return (1.0 - max(0.0, (step - first_step) / (total_steps - first_step))) ** 2


def compute_next_penalty_weight(
    penalty_weight: float,
    score_error: float,
    previous_score_error: float,
    initial_penalty_weight: float,
) -> float:
    """Return the next weight of the penalty by a proportional-integral controller:
    penalty_weight * exp(PROPORTIONAL * (score_error - previous_score_error) +
    INTEGRAL * score_error), within a factor of REACH from `initial_penalty_weight`.

    score_error: how far the score that decides the kept share is above its plan
    (`compute_planned_score_level`), as a share of its whole way.
    previous_score_error: the error at the last change."""
    move = PROPORTIONAL * (score_error - previous_score_error) + INTEGRAL * score_error
    return min(
        max(penalty_weight * math.exp(move), initial_penalty_weight / REACH),
        initial_penalty_weight * REACH,
    )
