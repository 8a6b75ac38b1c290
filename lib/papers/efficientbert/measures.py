"""This module has what EfficientBERT's claims measure beside task scores.

It measures how early a training from inherited weights (a warm start) reaches a loss,
and how fast a network is. It does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lib.core.store import Run
from lib.core.types import Arrays
from lib.stats import compare, paired
from lib.stats.measures import Measure, smooth_loss

if TYPE_CHECKING:
    import pandas as pd


def compute_share_of_steps_to_match_loss(
    warm_started_curve: Arrays, curve_from_scratch: Arrays, loss_name: str = "loss"
) -> float:
    """Return how early a warm-started training reaches the last loss of a training from
    scratch.

    The value is the number of steps until then, as a share of the steps of the training
    from scratch. It is 1 where the loss is never reached. Losses are smoothed by a
    trailing mean.

    warm_started_curve, curve_from_scratch: arrays over the logged steps of each
    training, "step" [N] and the losses [N].
    loss_name: the loss that is compared."""
    indices = np.flatnonzero(
        smooth_loss(warm_started_curve[loss_name])
        <= smooth_loss(curve_from_scratch[loss_name])[-1]
    )
    if not len(indices):
        return 1.0
    return min(
        1.0,
        float(
            (warm_started_curve["step"][indices[0]] + 1)
            / (curve_from_scratch["step"][-1] + 1)
        ),
    )


def compute_step_shares_by_seed(
    runs_frame: pd.DataFrame, loss_name: str = "loss"
) -> dict[int, float]:
    """Return {seed: share}: the steps in which a training with inherited weights
    reaches the last loss of one from scratch, as a share of the latter's steps.

    Seeds without both runs are left out. loss_name: the loss that is compared.

    runs_frame: a DataFrame with a row for each run."""
    made = compare.select_rows_with_runs(runs_frame)
    rows = zip(made["model"], made["seed"], made["run"], strict=True)
    curves = {(model, seed): run.read_arrays("curve") for model, seed, run in rows}
    return {
        seed: compute_share_of_steps_to_match_loss(
            curve, curves["from scratch", seed], loss_name
        )
        for (model, seed), curve in curves.items()
        if model == "inherits" and ("from scratch", seed) in curves
    }


def list_shares_of_steps_to_match_loss(
    runs_frame: pd.DataFrame, unused_columns: object
) -> pd.Series:
    """Return for each run with inherited weights how soon it reaches the last loss of
    training from scratch, as a share of the steps of the latter.

    A run from scratch gets 0, so that a difference between the two is the share
    itself.

    runs_frame: a DataFrame with a row for each run.
    unused_columns: not used; all measures by run have it."""
    share = runs_frame["seed"].map(compute_step_shares_by_seed(runs_frame))
    return share.where(runs_frame["model"] == "inherits", 0 * share)


def list_final_losses(runs_frame: pd.DataFrame, unused_columns: object) -> list[float]:
    """Return the smoothed training loss at the last step of each run.

    runs_frame: a DataFrame with a row for each run.
    unused_columns: not used; all measures by run have it."""
    return [
        smooth_loss(run.read_arrays("curve")["loss"])[-1] for run in runs_frame["run"]
    ]


def estimate_speed_ups(latency_run: Run) -> dict[str, paired.Estimate]:
    """Return {model: Estimate} of how many times as fast each model is as the
    reference.

    An Estimate is the ratio of the two median times with its interval. Times are paired
    by turn, since all models are timed once in each turn.

    latency_run: a finished run of the step `latency`."""
    args = latency_run.spec["args"]
    times = dict(
        zip(args["models"], latency_run.read_arrays("times")["wall"], strict=True)
    )
    first = times.pop(args["reference"])
    return {
        name: paired.estimate_median_ratio(first, seconds)
        for name, seconds in times.items()
    }


def estimate_speed_up(
    latency_frames: Sequence[pd.DataFrame], unused_columns: object, model_name: str
) -> paired.Estimate | None:
    """Return the Estimate of one model's speed-up over the reference, from the first
    finished latency run; None without a run.

    latency_frames: a list whose first DataFrame has a row for each run.
    unused_columns: not used; all measures of this kind have it."""
    runs = latency_frames[0]["run"].dropna()
    return estimate_speed_ups(runs.iloc[0])[model_name] if len(runs) else None


MEASURES = {
    "last loss": Measure("of the loss", by_run=list_final_losses),
    "share of steps": Measure(
        "of the steps to the loss that training from scratch ends on",
        by_run=list_shares_of_steps_to_match_loss,
        null=1.0,
    ),
    "speed-up": Measure(
        "times as fast as BERT-base", of_all=estimate_speed_up, null=1.0
    ),
}
