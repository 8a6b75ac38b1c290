"""This module has the schedules of fine-pruning (BERMo section 2.3; Sanh et al. 2020).

They give the threshold and the weight of the penalty as functions of the step, counted
from 0. A controller finds the weight for a target of the kept share. The module is free
of torch. Letters: w steps are `Prune.warmup_steps`; i and f are the initial and final
warm-ups in units of w; T is the number of steps of the run."""

import math
from dataclasses import dataclass

from lib.core.names import Refused
from lib.papers.bermo.options import Prune

EVERY = 2  # Steps between two moves of the controller.
# Gains of the controller, for the logarithm of the penalty's weight.
PROPORTIONAL, INTEGRAL = (
    20.0,
    1.0,
)
REACH = 1e4  # Largest factor between the penalty's weight and its initial value.


@dataclass(frozen=True)
class Ramp:
    """A Ramp is a threshold that falls along a cubic from `start` to `end`.

    It is `start` up to step `first`, and `end` after step `last`."""

    start: float
    end: float
    first: int  # i w
    last: int  # T - f w

    def __call__(self, step: int) -> float:
        """Return end + (start - end) (1 - (step - first) / (last - first))^3, held at
        both ends."""
        if step <= self.first:
            return self.start
        if step > self.last:
            return self.end
        left = 1 - (step - self.first) / (self.last - self.first)
        return self.end + (self.start - self.end) * left**3


def plan_threshold_ramp(pruning: Prune, step_count: int) -> Ramp:
    """Return the Ramp of the threshold in a run of `step_count` steps.

    Where the two warm-ups leave no step for the ramp, `overlong` decides: "refuse"
    raises Refused, "jump" lets the threshold jump after the initial warm-up, as the
    public code does."""
    w, both = pruning.warmup_steps, pruning.initial_warmup + pruning.final_warmup
    if w * both >= step_count and pruning.overlong == "refuse":
        why = f'that is {w * both} of the {step_count} steps: take fewer, or overlong "jump"'
        raise Refused(f"Prune.warmup_steps is {w}, {why}")
    first, last = pruning.initial_warmup * w, step_count - pruning.final_warmup * w
    return Ramp(pruning.initial_threshold, pruning.final_threshold, first, last)


def compute_penalty_weight(threshold: float, pruning: Prune) -> float:
    """Return the weight of the penalty at a threshold: final_lambda * threshold /
    final_threshold.
    """
    return pruning.final_lambda * threshold / pruning.final_threshold


def plan_score_at_kept_share(step: int, first_step: int, steps: int) -> float:
    """Return the planned value of the decisive score at a step, between 1 and 0.

    The controller (`steer_penalty_weight`) holds the score to it. It is 1 up to step
    `first_step`. Then it falls along a parabola that ends at 0 with zero slope, as the
    linear learning rate slows the score down. It never rises, as no penalty can raise a
    score again."""
    return (1.0 - max(0.0, (step - first_step) / (steps - first_step))) ** 2


def steer_penalty_weight(
    weight: float, error: float, last_error: float, first_weight: float
) -> float:
    """Return the next weight of the penalty, by a proportional and integral controller.

    It is weight * exp(PROPORTIONAL * (error - last_error) + INTEGRAL * error), within a
    factor of REACH from the initial weight `first_weight`. error: the lag of the
    decisive score behind `plan_score_at_kept_share`, as a share of its whole way.
    last_error: the error at the last move."""
    move = PROPORTIONAL * (error - last_error) + INTEGRAL * error
    return min(max(weight * math.exp(move), first_weight / REACH), first_weight * REACH)
