"""This module has what BERMo's claims measure beside scores: the epochs until a score
is reached, and the gradient in the lower layers.

It does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from lib.stats import compare
from lib.stats.compare import Column
from lib.stats.measures import Measure

if TYPE_CHECKING:
    import pandas as pd

# A model that scores at most this many points less counts as equal.
MATCH = 0.5


def list_gradient_norms_of_lower_layers(
    runs_frame: pd.DataFrame, unused_columns: object
) -> list[float]:
    """Return for each run the log10 of the gradient norm in the lower half of the
    layers, averaged over steps and layers.

    BERMo claims that its weighted sum of layers lets gradients reach these layers.

    runs_frame: a DataFrame with a row for each run.
    unused_columns: not used; all measures by run have it."""
    # For each run the gradient norms [bins of steps, L].
    norms = [
        run.read_arrays("course")["gradient_norm"].clip(1e-12)
        for run in runs_frame["run"]
    ]
    return [np.log10(norm[:, : norm.shape[1] // 2]).mean() for norm in norms]


def find_fewest_epochs_to_reach_bert(
    runs_frame: pd.DataFrame,
    columns_by_task: Mapping[str, Sequence[Column]],
    score_margin: float = MATCH,
) -> pd.DataFrame:
    """Return the fewest epochs with which each model scores as well as BERT's longest
    training.

    It has a line for each task and seed with runs of all numbers of epochs: task, seed,
    and a column for each model. A model that never scores so well counts one increment
    of epochs more than the longest training.

    runs_frame: a DataFrame with a row for each run, with the column "epochs".
    columns_by_task: {task: its metrics}.
    score_margin: a score that is at most this many points lower counts as equal."""
    import pandas as pd

    runs_frame = (
        runs_frame.dropna(subset=["epochs"])
        if "epochs" in runs_frame
        else runs_frame[:0]
    )
    lines = []
    for (task, seed), rows in compare.list_scores_in_points(
        runs_frame, columns_by_task
    ).groupby(["task", "seed"], sort=False):
        table = rows.pivot(index="epochs", columns="model", values="score").sort_index()
        if len(table) < 2 or table.isna().any(axis=None):
            continue
        longest, step = table.index[-1], int(table.index[-1] - table.index[-2])
        target_score = table["BERT"].iloc[-1] - score_margin
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


def list_epochs_to_reach_bert(
    runs_frame: pd.DataFrame, columns_by_task: Mapping[str, Sequence[Column]]
) -> list[float]:
    """Return for each run the fewest epochs with which its model scores as well as
    BERT's longest training (`find_fewest_epochs_to_reach_bert`).

    runs_frame, columns_by_task: as in `find_fewest_epochs_to_reach_bert`."""
    least = find_fewest_epochs_to_reach_bert(runs_frame, columns_by_task).set_index(
        ["task", "seed"]
    )
    rows = zip(runs_frame["task"], runs_frame["seed"], runs_frame["model"], strict=True)
    return [least[m].get((t, s), nan) if m in least else nan for t, s, m in rows]


MEASURES = {
    "epochs to match": Measure(
        "epochs", by_run=list_epochs_to_reach_bert, resolution=1.0
    ),
    "gradient of the lower layers": Measure(
        "decades", by_run=list_gradient_norms_of_lower_layers
    ),
}
