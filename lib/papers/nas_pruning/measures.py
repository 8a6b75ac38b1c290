"""This module has what the claims of the NAS report measure beside scores: how a
pruning search approaches its target cost, and how many inputs of noise it keeps."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

import numpy as np

from lib.core.store import Run
from lib.stats.measures import Measure

if TYPE_CHECKING:
    import pandas as pd


def read_flops_share_by_step(run: Run) -> np.ndarray | None:
    """Return the share of the whole model's FLOPs that is left at each of N steps.

    It shows how a pruning search approaches its target: float [N], from 0 to 1. It is
    None for a run of another step than `nas_search`: a retraining, a random draw, which
    has no steps, or the check on digits, which counts inputs in place of FLOPs.

    run: the finished run."""
    if run.spec["step"] != "nas_search":
        return None
    return run.read_arrays("search")["curve"][:, 1]


def list_epochs_to_target_flops(
    runs_frame: pd.DataFrame, unused_columns_by_task: object
) -> list[float]:
    """Return for each run how many epochs its pruning search needs to reach its target.

    The target counts as reached at the first step with at most 1 % more FLOPs. A search
    that never reaches it gets all its epochs, a run without a search nan. A claim on
    how fast searches converge is tested by it.

    runs_frame: a line for each run, a search or a training; the column `run` has the
    finished run.
    unused_columns_by_task: not used; the caller gives it to every such measure."""
    epochs = []
    for run in runs_frame["run"]:
        flops = read_flops_share_by_step(run)
        if flops is None:
            epochs.append(nan)
        else:
            indices = np.flatnonzero(flops <= 1.01 * run.metrics["target"])
            share = (indices[0] + 1) / len(flops) if len(indices) else 1.0
            epochs.append(share * run.spec["args"]["train"]["epochs"])
    return epochs


def list_final_flops_standard_deviations(
    runs_frame: pd.DataFrame, unused_columns_by_task: object
) -> list[float]:
    """Return for each run how much the FLOPs of its pruning search still fluctuate.

    It is the standard deviation over the last fifth of the steps, in points (hundredths
    of the whole model's FLOPs), before the final correction to the target. A run
    without a search has nan. A claim on how stable searches are is tested by it.

    runs_frame: a line for each run; the column `run` has the finished run.
    unused_columns_by_task: not used; the caller gives it to every such measure."""
    swings = []
    for flops in map(read_flops_share_by_step, runs_frame["run"]):
        swing = nan
        if flops is not None:
            end = flops[-max(2, round(len(flops) / 5)) :]
            swing = 100 * float(np.std(end, ddof=1))
        swings.append(swing)
    return swings


MEASURES = {
    "epochs to the target": Measure(
        "epochs", compute_by_run=list_epochs_to_target_flops
    ),
    "gates that return": Measure("of the gates", "switched_on / switched_off"),
    "misses": Measure(
        "points of the searches that miss their target by over 1 %",
        "abs(before_trim / target - 1) > 0.01",
        is_boolean=True,
    ),
    "noise": Measure("noise inputs", "1.0 * noise", rounding_step=1.0),
    # At the target of 10 %, where it is compared, 157 of 1,568 inputs are kept.
    "share of noise": Measure(
        "of the kept inputs",
        "noise / (noise + pixels)",
        rounding_step=1 / 157,
        value_of_no_effect=0.5,  # Half of the inputs are noise.
    ),
    "size": Measure("times the target", "before_trim / target", value_of_no_effect=1.0),
    "swing": Measure(
        "points of FLOPs, from step to step",
        compute_by_run=list_final_flops_standard_deviations,
    ),
}
