"""This module has EfficientBERT's measures beside scores: how early a warm start
reaches a loss, and how fast a network is.

It is free of torch."""

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


def compute_share_of_steps(
    warm_started_run: Arrays, run_from_scratch: Arrays, loss_name: str = "loss"
) -> float:
    """Return the share of the steps after which one run reaches the last loss of
    another.

    Losses are smoothed. The share is of the other run's steps, and 1 where the loss is
    never reached. warm_started_run, run_from_scratch: the arrays `curve` of the step
    warmup."""
    indices = np.flatnonzero(
        smooth_loss(warm_started_run[loss_name])
        <= smooth_loss(run_from_scratch[loss_name])[-1]
    )
    if not len(indices):
        return 1.0
    return min(
        1.0,
        float(
            (warm_started_run["step"][indices[0]] + 1)
            / (run_from_scratch["step"][-1] + 1)
        ),
    )


def compute_shares_by_seed(
    frame: pd.DataFrame, loss_name: str = "loss"
) -> dict[int, float]:
    """Return {seed: share of steps} for the seeds of a frame that have both runs."""
    made = compare.select_rows_with_runs(frame)
    rows = zip(made["model"], made["seed"], made["run"], strict=True)
    curves = {(model, seed): run.read_arrays("curve") for model, seed, run in rows}
    return {
        seed: compute_share_of_steps(curve, curves["from scratch", seed], loss_name)
        for (model, seed), curve in curves.items()
        if model == "inherits" and ("from scratch", seed) in curves
    }


def list_shares_of_steps(frame: pd.DataFrame, _: object) -> pd.Series:
    """Return for each warm-started run the share of steps to the other run's last loss.

    The other run starts from scratch; it has 0 itself."""
    share = frame["seed"].map(compute_shares_by_seed(frame))
    return share.where(frame["model"] == "inherits", 0 * share)


def list_last_losses(frame: pd.DataFrame, _: object) -> list[float]:
    """Return the smoothed loss that each run of step warmup ends on."""
    return [smooth_loss(run.read_arrays("curve")["loss"])[-1] for run in frame["run"]]


def estimate_speed_ups(latency_run: Run) -> dict[str, paired.Estimate]:
    """Return {model: Estimate} of the reference's time over a model's, turn by turn.

    latency_run: a run of the step latency, whose turns time all models once each."""
    args = latency_run.spec["args"]
    times = dict(
        zip(args["models"], latency_run.read_arrays("times")["wall"], strict=True)
    )
    first = times.pop(args["reference"])
    return {
        name: paired.estimate_ratio_of_medians(first, seconds)
        for name, seconds in times.items()
    }


def estimate_speed_up(
    latency_frames: Sequence[pd.DataFrame], _: object, model_name: str
) -> paired.Estimate | None:
    """Return the Estimate of one model's speed-up in the first run of its frame.

    Its replicates are the turns. It is None without a run."""
    runs = latency_frames[0]["run"].dropna()
    return estimate_speed_ups(runs.iloc[0])[model_name] if len(runs) else None


MEASURES = {
    "last loss": Measure("of the loss", by_run=list_last_losses),
    "share of steps": Measure(
        "of the steps to the loss that training from scratch ends on",
        by_run=list_shares_of_steps,
        null=1.0,
    ),
    "speed-up": Measure(
        "times as fast as BERT-base", of_all=estimate_speed_up, null=1.0
    ),
}
