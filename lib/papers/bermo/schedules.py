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


def plan(options: Prune, steps: int) -> Ramp:
    """Return the Ramp of the threshold in a run of `steps` steps.

    Where the two warm-ups leave no step for the ramp, `overlong` decides: "refuse"
    raises Refused, "jump" lets the threshold jump after the initial warm-up, as the
    public code does."""
    w, both = options.warmup_steps, options.initial_warmup + options.final_warmup
    if w * both >= steps and options.overlong == "refuse":
        why = f'that is {w * both} of the {steps} steps: take fewer, or overlong "jump"'
        raise Refused(f"Prune.warmup_steps is {w}, {why}")
    first, last = options.initial_warmup * w, steps - options.final_warmup * w
    return Ramp(options.initial_threshold, options.final_threshold, first, last)


def penalty(threshold: float, options: Prune) -> float:
    """Return the weight of the penalty at a threshold: final_lambda * threshold /
    final_threshold.
    """
    return options.final_lambda * threshold / options.final_threshold


def planned_score(step: int, first: int, steps: int) -> float:
    """Return the planned value of the decisive score at a step, between 1 and 0.

    The controller (`steer_weight`) holds the score to it. It is 1 up to step `first`.
    Then it falls along a parabola that ends at 0 with zero slope, as the linear
    learning rate slows the score down. It never rises, as no penalty can raise a score
    again."""
    return (1.0 - max(0.0, (step - first) / (steps - first))) ** 2


def steer_weight(weight: float, error: float, before: float, first: float) -> float:
    """Return the next weight of the penalty, by a proportional and integral controller.

    It is weight * exp(PROPORTIONAL * (error - before) + INTEGRAL * error), within a
    factor of REACH from the initial weight `first`. error: the lag of the decisive
    score behind `planned_score`, as a share of its whole way. before: the error at the
    last move."""
    move = PROPORTIONAL * (error - before) + INTEGRAL * error
    return min(max(weight * math.exp(move), first / REACH), first * REACH)
