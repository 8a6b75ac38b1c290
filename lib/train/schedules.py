"""Schedules of fine-pruning as functions of the step (BERMo section 2.3; Sanh et al. 2020).

They give the threshold and the weight of the penalty, and a controller finds the weight for a
wanted kept share. Pure arithmetic, free of torch. Steps are counted from 0. w is
`Prune.warmup_steps`, i and f are the initial and final warm-ups in units of w, and T is the number
of steps of the run.
"""

import math
from dataclasses import dataclass

EVERY = 2  # steps between two moves of the controller
PROPORTIONAL, INTEGRAL = 20.0, 1.0  # on the penalty's logarithm, for a lag of the whole way
REACH = 1e4  # the penalty stays within this factor of where it started


@dataclass(frozen=True)
class Ramp:
    """A value that is `start` up to step `first`, a cubic after it, and `end` after `last`."""

    start: float
    end: float
    first: int  # i w
    last: int  # T - f w

    def __call__(self, step):
        """end + (start - end) (1 - (step - first) / (last - first))^3, held at both ends."""
        if step <= self.first:
            return self.start
        if step > self.last:
            return self.end
        left = 1 - (step - self.first) / (self.last - self.first)
        return self.end + (self.start - self.end) * left**3


def plan(options, steps):
    """Return the Ramp of the threshold of a run of `steps` steps, from a lib.train.options.Prune.

    Where the two warm-ups leave no room for a ramp, `overlong` "refuse" raises ValueError. "jump"
    lets the threshold jump after the initial warm-up, as the public code does.
    """
    w, both = options.warmup_steps, options.initial_warmup + options.final_warmup
    if w * both >= steps and options.overlong == "refuse":
        why = f'that is {w * both} of the {steps} steps: take fewer, or overlong "jump"'
        raise ValueError(f"Prune.warmup_steps is {w}, {why}")
    first, last = options.initial_warmup * w, steps - options.final_warmup * w
    return Ramp(options.initial_threshold, options.final_threshold, first, last)


def penalty(threshold, options):
    """Return the weight of the penalty at a threshold, final_lambda * threshold /
    final_threshold.
    """
    return options.final_lambda * threshold / options.final_threshold


def course(step, first, steps):
    """Return where on its way from 1 to 0 the deciding score should be at a step.

    It is 1 up to step `first`. Then it falls along a parabola that ends at 0 with zero slope, as
    its speed falls with a linear learning rate. It never rises: no penalty can raise a score again.
    """
    return (1.0 - max(0.0, (step - first) / (steps - first))) ** 2


def steered(weight, error, before, first):
    """Return the next weight of the penalty.

    It is weight * exp(PROPORTIONAL * (error - before) + INTEGRAL * error), within a factor of REACH
    from `first`. error: how far the deciding score is behind `course`, as a share of its way.
    before: the error at the last move.
    """
    move = PROPORTIONAL * (error - before) + INTEGRAL * error
    return min(max(weight * math.exp(move), first / REACH), first * REACH)
