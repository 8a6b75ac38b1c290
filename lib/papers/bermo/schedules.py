"""This module has the schedules of fine-pruning as functions of the training step
(BERMo, section 2.3; Sanh et al. 2020).

They give the threshold of the pruning masks and the weight of the penalty on mask
scores. A controller changes that weight until a target share of the weights is kept.
Letters: w is `Prune.warmup_steps`; i and f are the initial and final warm-up in units
of w; T is the number of steps, which are counted from 0."""

import math
from dataclasses import dataclass

from lib.core.names import Refused
from lib.papers.bermo.options import Prune

# A controller (`compute_next_penalty_weight_by_pi_controller`) changes the weight of
# the penalty on mask scores, so that a target share of the weights is kept. EVERY is
# the number of training steps between two changes.
EVERY = 2
# Gains of the controller. It is a PI (proportional-integral) controller that acts on
# the logarithm of the penalty's weight.
PROPORTIONAL = 20.0
INTEGRAL = 1.0
# The controller keeps the penalty's weight within this factor of its initial value.
REACH = 1e4


@dataclass(frozen=True)
class ThresholdRamp:
    """A ThresholdRamp is the threshold of pruning masks as a function of the training
    step.

    The threshold is `start_threshold` up to step `last_step_at_start`. Then it moves
    along a cubic, fast at first, to `end_threshold` at step `first_step_at_end`, where
    it stays. Call the object with a step, counted from 0."""

    start_threshold: float
    end_threshold: float
    # Last step with the initial threshold: `initial_warmup * warmup_steps` of the Prune
    # settings.
    last_step_at_start: int
    # First step with the final threshold: the number of all steps minus
    # `final_warmup * warmup_steps`.
    first_step_at_end: int

    def __call__(self, step: int) -> float:
        """Return the threshold of the pruning masks at a training step, counted from 0.

        With the four fields as `start`, `end`, `first` and `last`, it is `end + (start
        - end) (1 - (step - first) / (last - first))^3` between `first` and `last`. It
        is `start` up to `first`, and `end` after `last`. Where `last` comes before
        `first`, it jumps from `start` to `end` after `first`."""
        if step <= self.last_step_at_start:
            return self.start_threshold
        if step > self.first_step_at_end:
            return self.end_threshold
        left = 1 - (step - self.last_step_at_start) / (
            self.first_step_at_end - self.last_step_at_start
        )
        return (
            self.end_threshold + (self.start_threshold - self.end_threshold) * left**3
        )


def plan_threshold_ramp(prune_options: Prune, step_count: int) -> ThresholdRamp:
    """Return the schedule of the masks' threshold for a training.

    The threshold decides which weights are pruned. It is constant in a warm-up at the
    start and in one at the end, and moves between them. Where the two leave no step
    between them, `pruning.overlong` decides: "refuse" raises Refused, and "jump"
    changes the threshold at once after the first warm-up, as the public code does.

    step_count: number of all training steps."""
    w = prune_options.warmup_steps
    both = prune_options.initial_warmup + prune_options.final_warmup
    if w * both >= step_count and prune_options.overlong == "refuse":
        why = f'that is {w * both} of the {step_count} steps: take fewer, or overlong "jump"'
        raise Refused(f"Prune.warmup_steps is {w}, {why}")
    first = prune_options.initial_warmup * w
    last = step_count - prune_options.final_warmup * w
    return ThresholdRamp(
        prune_options.initial_threshold, prune_options.final_threshold, first, last
    )


def compute_penalty_weight_at_threshold(
    threshold: float, prune_options: Prune
) -> float:
    """Return the weight of the penalty on mask scores at a value of the threshold.

    It is final_lambda * threshold / final_threshold, so it changes with the threshold
    and ends at `pruning.final_lambda`. The penalty is a term of the loss that lowers
    scores, so that their weights are pruned.

    threshold: the threshold of the masks at the current step."""
    return prune_options.final_lambda * threshold / prune_options.final_threshold


def compute_planned_mask_score(
    step: int, decay_start_step: int, step_count: int
) -> float:
    """Return the planned value, at a step, of the score that decides what is pruned.

    Pruning by scores keeps the wanted share of weights if the k-th largest score, with
    k the number of weights to keep, ends at the final threshold. The result is a value
    for this score, scaled to 1 at its initial value and 0 at the threshold. A
    controller (`compute_next_penalty_weight_by_pi_controller`) holds the score to this
    plan. The plan is 1 up to step `decay_start_step`, then falls to 0 along a parabola
    that ends with slope 0, because scores move less and less as the learning rate
    falls.

    step: number of the step, from 0.
    step_count: number of all steps of the training."""
    return (
        1.0 - max(0.0, (step - decay_start_step) / (step_count - decay_start_step))
    ) ** 2


def compute_next_penalty_weight_by_pi_controller(
    penalty_weight: float,
    mask_score_excess: float,
    previous_mask_score_excess: float,
    initial_penalty_weight: float,
) -> float:
    """Return the next weight of the penalty on mask scores, by a PI controller.

    The penalty lowers scores, and the controller leads it to prune a wanted share of
    the weights. The result is `penalty_weight * exp(20 * (mask_score_excess -
    previous_mask_score_excess) + mask_score_excess)`, cut to within a factor of 1e4 of
    `initial_penalty_weight`.

    mask_score_excess: how far the k-th largest score, with k the number of weights to
    keep, is above its plan (`compute_planned_mask_score`), as a share of the
    way from the initial score to the threshold.
    previous_mask_score_excess: this excess at the last change."""
    move = (
        PROPORTIONAL * (mask_score_excess - previous_mask_score_excess)
        + INTEGRAL * mask_score_excess
    )
    return min(
        max(penalty_weight * math.exp(move), initial_penalty_weight / REACH),
        initial_penalty_weight * REACH,
    )
