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


def share_of_steps(inherits: Arrays, scratch: Arrays, part: str = "loss") -> float:
    """Return the share of the steps after which one run reaches the last loss of
    another.

    Losses are smoothed. The share is of the other run's steps, and 1 where the loss is
    never reached. inherits, scratch: the arrays `curve` of the step warmup."""
    indices = np.flatnonzero(
        smooth_loss(inherits[part]) <= smooth_loss(scratch[part])[-1]
    )
    if not len(indices):
        return 1.0
    return min(
        1.0, float((inherits["step"][indices[0]] + 1) / (scratch["step"][-1] + 1))
    )


def shares(frame: pd.DataFrame, part: str = "loss") -> dict[int, float]:
    """Return {seed: share of steps} for the seeds of a frame that have both runs."""
    made = compare.with_runs(frame)
    rows = zip(made["model"], made["seed"], made["run"], strict=True)
    curves = {(model, seed): run.arrays("curve") for model, seed, run in rows}
    return {
        seed: share_of_steps(curve, curves["from scratch", seed], part)
        for (model, seed), curve in curves.items()
        if model == "inherits" and ("from scratch", seed) in curves
    }


def steps(frame: pd.DataFrame, _: object) -> pd.Series:
    """Return for each warm-started run the share of steps to the other run's last loss.

    The other run starts from scratch; it has 0 itself."""
    share = frame["seed"].map(shares(frame))
    return share.where(frame["model"] == "inherits", 0 * share)


def last_loss(frame: pd.DataFrame, _: object) -> list[float]:
    """Return the smoothed loss that each run of step warmup ends on."""
    return [smooth_loss(run.arrays("curve")["loss"])[-1] for run in frame["run"]]


def speed_ups(run: Run) -> dict[str, paired.Estimate]:
    """Return {model: Estimate} of the reference's time over a model's, turn by turn.

    run: a run of the step latency, whose turns time all models once each."""
    args = run.spec["args"]
    times = dict(zip(args["models"], run.arrays("times")["wall"], strict=True))
    first = times.pop(args["reference"])
    return {
        name: paired.ratio_of_medians(first, seconds) for name, seconds in times.items()
    }


def speed_up(
    parts: Sequence[pd.DataFrame], _: object, name: str
) -> paired.Estimate | None:
    """Return the Estimate of one model's speed-up in the first run of its frame.

    Its replicates are the turns. It is None without a run."""
    runs = parts[0]["run"].dropna()
    return speed_ups(runs.iloc[0])[name] if len(runs) else None


MEASURES = {
    "last loss": Measure("of the loss", by_run=last_loss),
    "share of steps": Measure(
        "of the steps to the loss that training from scratch ends on",
        by_run=steps,
        null=1.0,
    ),
    "speed-up": Measure("times as fast as BERT-base", of_all=speed_up, null=1.0),
}
