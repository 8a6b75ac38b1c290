"""This module has the NAS report's measures beside scores: the approach of a search to
its target, and the inputs that it keeps.

It is free of torch."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

import numpy as np

from lib.core.store import Run
from lib.stats.measures import Measure

if TYPE_CHECKING:
    import pandas as pd


def compute_flops_course(run: Run) -> np.ndarray | None:
    """Return the share of the FLOPs [N] after each of the N steps of a run's search.

    It is None for the run of a network that was only cut."""
    if "target" not in run.metrics:
        return None
    return run.read_arrays("search")["curve"][:, 1]


def list_epochs_to_target(frame: pd.DataFrame, _: object) -> list[float]:
    """Return for each search the epochs until its FLOPs are within 1 % of the
    target."""
    epochs = []
    for run in frame["run"]:
        share, flops = nan, compute_flops_course(run)
        if flops is not None:
            indices = np.flatnonzero(flops <= 1.01 * run.metrics["target"])
            share = (indices[0] + 1) / len(flops) if len(indices) else 1.0
        epochs.append(share * run.spec["args"]["train"]["epochs"])
    return epochs


def measure_last_size_changes(frame: pd.DataFrame, _: object) -> list[float]:
    """Return for each search how much its FLOPs still swing at the end.

    It is their standard deviation over the last fifth of the steps, before the final
    trim, in points of the whole model's FLOPs. It is nan for networks that were only
    cut."""
    swings = []
    for flops in map(compute_flops_course, frame["run"]):
        if flops is None:
            swings.append(nan)
        else:
            end = flops[-max(2, round(len(flops) / 5)) :]
            swings.append(100 * float(np.std(end, ddof=1)))
    return swings


MEASURES = {
    "epochs to the target": Measure("epochs", by_run=list_epochs_to_target),
    "gates that return": Measure("of the gates", "switched_on / switched_off"),
    "misses": Measure(
        "points of the searches that miss their target by over 1 %",
        "abs(before_trim / target - 1) > 0.01",
        share=True,
    ),
    "noise": Measure("noise inputs", "1.0 * noise"),
    "share of noise": Measure("of the kept inputs", "noise / (noise + pixels)"),
    "size": Measure("times the target", "before_trim / target", null=1.0),
    "swing": Measure(
        "points of FLOPs, from step to step", by_run=measure_last_size_changes
    ),
}
