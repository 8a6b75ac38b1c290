"""This module has what BERMo's claims measure beside scores: in how few epochs a model
scores as well as BERT, and how large gradients are in the lower layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from lib.core.types import TaskName
from lib.stats import compare
from lib.stats.compare import MetricColumn
from lib.stats.measures import Measure

if TYPE_CHECKING:
    import pandas as pd

# A score that is at most this many points (of 100) below another counts as equal to it.
MATCH = 0.5


def list_mean_log10_gradient_norms_of_lower_layers(
    runs_frame: pd.DataFrame,
    collapse_check_columns_by_task: Mapping[TaskName, Sequence[MetricColumn]],
) -> list[float]:
    """Return a log10 gradient norm of the lower half of the layers for each run.

    The value is the mean of log10 norms over bins of training steps and over layers 1
    to L / 2. A bin has the mean norm of its steps; norms below 1e-12 count as 1e-12.
    BERMo claims that its weighted sum of all layers' outputs lets gradients reach these
    layers. The value is NaN where the loss became infinite or NaN, and where the run
    collapsed (it scores no better than chance): a model that learned nothing has no
    gradients to compare.

    runs_frame: a DataFrame with a row for each run. Its column "run" has the run, whose
    saved array `gradient_norm` is [bins of steps, L].
    collapse_check_columns_by_task: {task: a sequence of its metrics}; by the first a
    run's collapse is told."""
    # For each run the gradient norms [bins of steps, L].
    norms = [
        run.read_arrays("course")["gradient_norm"].clip(1e-12)
        for run in runs_frame["run"]
    ]
    values = [np.log10(norm[:, : norm.shape[1] // 2]).mean() for norm in norms]
    has_collapsed = compare.make_mask_of_collapsed_runs(
        runs_frame, collapse_check_columns_by_task
    )
    return np.where(has_collapsed, nan, values).tolist()


def tabulate_fewest_epochs_to_match_bert_by_seed(
    runs_frame: pd.DataFrame,
    columns_by_task: Mapping[TaskName, Sequence[MetricColumn]],
    score_margin_in_points: float = MATCH,
) -> pd.DataFrame:
    """Return in how few epochs each model scores as well as BERT trained longest.

    It tests the claim that BERMo needs fewer epochs than BERT. Each model was trained
    several times, with different numbers of epochs. The result has a row for each task
    and seed, with the columns "task" and "seed", and for each model a column with its
    number of epochs. A model that never scores so well gets the longest training plus
    the last increment: 8 where runs have 2, 4 and 6 epochs. A task and seed are left
    out where a model lacks a run, or where there is only one number of epochs.

    runs_frame: a DataFrame with a row for each run and the columns task, seed, model,
    epochs and run (the Run, a stored result with its scores).
    columns_by_task: {task: a sequence of the one metric by which it is scored}. Raises
    ValueError where there are several.
    score_margin_in_points: a score that is at most this many points (of 100) lower
    counts as equal."""
    import pandas as pd

    runs_frame = (
        runs_frame.dropna(subset=["epochs"])
        if "epochs" in runs_frame
        else runs_frame[:0]
    )
    lines = []
    for (task, seed), rows in compare.tabulate_scores_by_run_and_metric(
        runs_frame, columns_by_task
    ).groupby(["task", "seed"], sort=False):
        table = rows.pivot(index="epochs", columns="model", values="score").sort_index()
        if len(table) < 2 or table.isna().any(axis=None):
            continue
        longest = table.index[-1]
        step = int(table.index[-1] - table.index[-2])
        target_score = table["BERT"].iloc[-1] - score_margin_in_points
        least = {
            model: min(
                table.index[table[model] >= target_score], default=longest + step
            )
            for model in table
        }
        lines.append({"task": task, "seed": seed} | least)
    return pd.DataFrame(
        lines, columns=list(dict.fromkeys(["task", "seed", *runs_frame["model"]]))
    )


def list_fewest_epochs_to_match_bert(
    runs_frame: pd.DataFrame, columns_by_task: Mapping[TaskName, Sequence[MetricColumn]]
) -> list[float]:
    """Return for each run in how few epochs its model reaches BERT's final score.

    Each model was trained several times, with different numbers of epochs. All runs of
    a model at a task and seed get the same value
    (`tabulate_fewest_epochs_to_match_bert_by_seed`), so that two models can be compared
    seed by seed. A score a little below that of BERT's longest training counts as
    reached. A model that never reaches it gets its longest training and one increment,
    such as 8 for runs of 2, 4 and 6 epochs. The value is NaN where a model lacks a run
    at that task and seed, or where there is only one number of epochs.

    runs_frame: a DataFrame with a row for each run and the columns task, seed, model,
    epochs and run (the Run, a stored result with its scores).
    columns_by_task: {task: a sequence of the one metric by which it is scored}. Raises
    ValueError where there are several."""
    least = tabulate_fewest_epochs_to_match_bert_by_seed(
        runs_frame, columns_by_task
    ).set_index(["task", "seed"])
    rows = zip(runs_frame["task"], runs_frame["seed"], runs_frame["model"], strict=True)
    return [least[m].get((t, s), nan) if m in least else nan for t, s, m in rows]


MEASURES = {
    "epochs to match": Measure(
        "epochs", compute_by_run=list_fewest_epochs_to_match_bert, rounding_step=1.0
    ),
    "gradient of the lower layers": Measure(
        "decades", compute_by_run=list_mean_log10_gradient_norms_of_lower_layers
    ),
}
