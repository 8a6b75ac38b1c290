"""This module has what EfficientBERT's claims measure beside task scores.

It measures the last loss of a training, how early a training from inherited weights (a
warm start) reaches a loss, and how fast a network is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lib.core.store import Run
from lib.core.types import Arrays, ModelName, Seed
from lib.stats import compare, paired
from lib.stats.measures import Measure, smooth_loss

if TYPE_CHECKING:
    import pandas as pd


def compute_share_of_steps_to_match_loss(
    warm_started_curve: Arrays, curve_from_scratch: Arrays, loss_name: str = "loss"
) -> float:
    """Return how early a warm start reaches the final loss of training from scratch.

    A warm start begins with inherited weights. The value is the number of its steps
    until then, as a share of the steps of the training from scratch up to its last
    logged one. It is 1 where the warm start does not reach the loss earlier. Losses are
    smoothed by a trailing mean over 5 % of the points.

    warm_started_curve, curve_from_scratch: the logged curves of the two trainings,
    {"step": [N], name of a loss: [N]}.
    loss_name: the loss that is compared, "loss" or a term of it, such as
    "prediction"."""
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


def compute_share_of_steps_to_match_loss_by_seed(
    runs_frame: pd.DataFrame, loss_name: str = "loss"
) -> dict[Seed, float]:
    """Return for each seed how early a warm start reaches the final loss from scratch.

    The result is {seed: share}. The share is the steps until a training with inherited
    weights reaches the last loss of a training from scratch, divided by all steps of
    the training from scratch. A seed that lacks one of the two runs is left out.

    runs_frame: a DataFrame with a row for each run, and the columns model ("inherits"
    or "from scratch"), seed and run (the finished Run, or None).
    loss_name: the loss that is compared, "loss" or a term of it, such as
    "prediction"."""
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


def list_shares_of_steps_to_final_loss_from_scratch(
    runs_frame: pd.DataFrame, unused_columns_by_task: object
) -> pd.Series:
    """Return for each run how early it reaches the final loss of training from scratch.

    A run with inherited weights gets the number of its steps until then, as a share of
    the steps from scratch. A run from scratch gets 0, so that the difference between
    the two models is this share. A run gets NaN where its seed lacks a run of the other
    model.

    runs_frame: a DataFrame with a row for each run, and the columns model ("inherits"
    or "from scratch"), seed and run (the finished Run, or None).
    unused_columns_by_task: not used; all functions that measure runs take this
    argument."""
    share = runs_frame["seed"].map(
        compute_share_of_steps_to_match_loss_by_seed(runs_frame)
    )
    return share.where(runs_frame["model"] == "inherits", 0 * share)


def list_final_losses(
    runs_frame: pd.DataFrame, unused_columns_by_task: object
) -> list[float]:
    """Return the training loss of each run at its last logged step.

    The loss is smoothed by a trailing mean over the last 5 % of the logged points. By
    these losses, trainings that start from different weights are compared.

    runs_frame: a DataFrame with a row for each run; the column "run" has the finished
    Run, and none is missing.
    unused_columns_by_task: not used; all functions that measure runs take this
    argument."""
    return [
        smooth_loss(run.read_arrays("curve")["loss"])[-1] for run in runs_frame["run"]
    ]


def estimate_speed_up_over_reference_by_model(
    latency_run: Run,
) -> dict[ModelName, paired.Estimate]:
    """Return how many times as fast as a reference each of some models is.

    The result is {model: Estimate}, without the reference. An Estimate is the median
    ratio of the reference's time to the model's, with a 95 % interval. All models are
    timed once in each turn, and times of the same turn make a ratio.

    latency_run: a finished run that timed forward passes of models with random weights
    (step `latency`)."""
    args = latency_run.spec["args"]
    times = dict(
        zip(args["models"], latency_run.read_arrays("times")["wall"], strict=True)
    )
    first = times.pop(args["reference"])
    return {
        name: paired.estimate_median_time_ratio(first, seconds)
        for name, seconds in times.items()
    }


def estimate_speed_up_over_reference(
    runs_frames_with_latency_run: Sequence[pd.DataFrame],
    unused_columns_by_task: object,
    model_name: ModelName,
) -> paired.Estimate | None:
    """Return how many times as fast one model is as the reference, as an Estimate.

    An Estimate is a ratio with its 95 % interval
    (`estimate_speed_up_over_reference_by_model`). The first finished run that timed the
    models counts. The result is None where there is none.

    runs_frames_with_latency_run: a list of which only the first DataFrame is read, as
    one run times all models. It has a row for each run, and the column "run" has the
    finished Run, or None.
    unused_columns_by_task: not used; all functions that measure runs take this
    argument.
    model_name: the model, as the run that timed it calls it. Raises KeyError for
    another name, and for that of the reference."""
    runs = runs_frames_with_latency_run[0]["run"].dropna()
    return (
        estimate_speed_up_over_reference_by_model(runs.iloc[0])[model_name]
        if len(runs)
        else None
    )


MEASURES = {
    "last loss": Measure("of the loss", compute_by_run=list_final_losses),
    "share of steps": Measure(
        "of the steps",
        compute_by_run=list_shares_of_steps_to_final_loss_from_scratch,
        value_of_no_effect=1.0,
    ),
    "speed-up": Measure(
        "times as fast as BERT-base",
        estimate_from_model_frames=estimate_speed_up_over_reference,
        value_of_no_effect=1.0,
        replicates="turns",
    ),
}
