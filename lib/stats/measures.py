"""This module defines the measures that claims compare beside task scores, such as the
ratio of two variances.

A measure gives a value for each run of a collected frame, or one Estimate for all runs.
Measures of a single paper are in `measures.py` of the paper's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from lib.stats import compare, paired
from lib.stats.compare import MetricColumn

if TYPE_CHECKING:
    import pandas as pd

# Smallest number of candidate networks for which a rank correlation is estimated.
RANKED = 12


@dataclass(frozen=True)
class Measure:
    """A Measure says how a quantity is computed from runs.

    An example is the share of remaining weights. One of `metric_expression`,
    `compute_by_run` and `estimate_from_model_frames` is given, and none of them for the
    task score, whose computation is built in.

    metric_expression: an expression over the names of a run's metrics, such as "100 *
    remaining".
    compute_by_run: f(frame of runs, {task: its metrics}) -> a value for each run.
    estimate_from_model_frames: f(a frame of runs for each model, {task: its metrics},
    text) -> an Estimate (a number with its interval) or None. The text says which part
    of the runs is meant, such as the name of one timed model, or is "".
    unit: the unit as text.
    rounding_step: the number of which all values are multiples, such as 1 for whole
    epochs; 0 for none.
    value_of_no_effect: the value that means no effect: 0 for a difference, 1 for a
    ratio.
    is_boolean: whether values are true or false, and are reported as counts of runs,
    such as "8 of 10".
    replicates: what the estimate's `n_seeds` counts, such as "seeds"."""

    unit: str
    metric_expression: str = ""
    compute_by_run: Callable[..., Any] | None = None
    estimate_from_model_frames: Callable[..., paired.Estimate | None] | None = None
    rounding_step: float = 0.0
    value_of_no_effect: float = 0.0
    is_boolean: bool = False
    replicates: str = "seeds"


def smooth_loss(losses: np.ndarray, window_share: float = 0.05) -> np.ndarray:
    """Return the trailing mean of the losses [N] of a training, so that curves can be
    compared.

    It has shape [N]. The window has `window_share` * N points, at the start fewer."""
    import pandas as pd

    wide = max(1, round(window_share * len(losses)))
    return pd.Series(losses, dtype=float).rolling(wide, min_periods=1).mean().to_numpy()


def list_scores_at_seeds_without_collapse(
    model_frames: Sequence[pd.DataFrame],
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
) -> list[np.ndarray]:
    """Return the scores in points of each compared model, without collapsed seeds.

    There is a score for each run that trained a model and each metric of its task. A
    seed at which one of the models collapsed (scored no better than chance) is left out
    for all of them, on this task.

    model_frames: for each model a table with a row for each run.
    columns_by_task: {task: its Columns (metrics on splits)}."""
    import pandas as pd

    trained = [*map(compare.select_runs_of_trained_models, model_frames)]
    runs = pd.concat(trained)
    has_collapsed = compare.make_mask_of_collapsed_runs(runs, columns_by_task)
    collapsed = pd.MultiIndex.from_frame(runs[["task", "seed"]])[has_collapsed]
    scores = []
    for frame in trained:
        places = pd.MultiIndex.from_frame(frame[["task", "seed"]])
        sound = frame[~places.isin(collapsed)]
        table = compare.tabulate_scores_by_run_and_metric(sound, columns_by_task)
        scores.append(table["score"].dropna().to_numpy())
    return scores


def estimate_score_variance_ratio(
    numerator_and_denominator_frames: Sequence[pd.DataFrame],
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
    unused_measure_argument: str = "",
) -> paired.Estimate | None:
    """Estimate the ratio of two models' variances of scores over seeds.

    It tells whether one model depends less on the seed. Interval and p-value are those
    of the F distribution, and 1 is no effect. It is None where a model has fewer than
    two scores, or the second model's scores do not vary.

    numerator_and_denominator_frames: for each of the two models a table with a row for
    each run.
    columns_by_task: {task: its Columns (metrics on splits)}.
    unused_measure_argument: not used; other measures with this signature need it."""
    a, b = list_scores_at_seeds_without_collapse(
        numerator_and_denominator_frames, columns_by_task
    )
    least = min(len(a), len(b))
    if least < 2 or not b.var():
        return None
    ratio = a.var(ddof=1) / b.var(ddof=1)
    law = scipy.stats.f(len(a) - 1, len(b) - 1)
    high, low = ratio / law.ppf((0.025, 0.975))
    p = min(1.0, 2 * law.cdf(ratio), 2 * law.sf(ratio))
    return paired.Estimate(
        ratio, low, high, least, 1, nan, float(p), value_of_no_effect=1.0
    )


def tabulate_search_and_final_scores_by_candidate(
    final_and_search_frames: Sequence[pd.DataFrame],
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
) -> pd.DataFrame:
    """Return the two scores of each candidate of an architecture search, in points.

    A row is a candidate network. The columns are "search", its cheap score during the
    search, and "final", its score after full training. If a candidate was trained
    several times or has several metrics, the first run and the first metric count. From
    this table the rank correlation of the two scores is computed. A candidate without
    one of the two scores is left out.

    final_and_search_frames: [table of the full trainings, table of the runs of the
    search], each with a row for each run.
    columns_by_task: {task: its Columns (metrics on splits)}."""
    import pandas as pd

    students, searches = final_and_search_frames
    final = (
        compare.tabulate_scores_by_run_and_metric(students, columns_by_task)
        .drop_duplicates("model")
        .set_index("model")["score"]
    )
    names = sorted(name for name in map(str, searches) if name.startswith("held_out."))
    held = "held_out.score" if "held_out.score" in names else next(iter(names), None)
    search = 100 * searches.set_index("model")[held] if held else pd.Series(dtype=float)
    return pd.DataFrame({"search": search, "final": final}).dropna()


def estimate_search_rank_correlation(
    final_and_search_frames: Sequence[pd.DataFrame],
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
    unused_measure_argument: str = "",
) -> paired.Estimate | None:
    """Estimate Kendall's tau between candidates' scores in a search and after training.

    It tells whether the cheap score of an architecture search ranks networks as full
    training does. It is None for fewer than RANKED (12) candidates.

    final_and_search_frames: [table of the full trainings, table of the runs of the
    search], each with a row for each run.
    columns_by_task: {task: its Columns (metrics on splits)}.
    unused_measure_argument: not used; other measures with this signature need it."""
    both = tabulate_search_and_final_scores_by_candidate(
        final_and_search_frames, columns_by_task
    )
    search, final = both.to_numpy().T
    return paired.estimate_kendall_tau(search, final) if len(both) >= RANKED else None


# SCORE: the score of a model on its task, in points. A comparison that names no other
# Measure compares it.
SCORE = Measure("points")
MEASURES = {
    "accuracy": Measure("points", "100 * accuracy"),
    "damage at the start": Measure(
        "points below the teacher before any training",
        "100 * (teacher_score - start_score)",
    ),
    "diverged": Measure(
        "points of the runs that collapse",
        compute_by_run=compare.make_mask_of_collapsed_runs,
        is_boolean=True,
    ),
    "distance": Measure("of the distillation loss", "1.0 * distance"),
    "F1": Measure("F1 points", "100 * span_f1"),
    "kept weights": Measure("points of weights", "100 * remaining"),
    "rank correlation": Measure(
        "of Kendall's tau", estimate_from_model_frames=estimate_search_rank_correlation
    ),
    "variance ratio": Measure(
        "times the variance",
        estimate_from_model_frames=estimate_score_variance_ratio,
        value_of_no_effect=1.0,
    ),
}
