"""This module computes GLUE's metrics in float64, without torch.

Class metrics take classes [N], or logits [N, C] whose largest column is the prediction
(ties take the first). Regression metrics take values [N] or [N, 1].

Degenerate predictions have a value where libraries give nan or a warning. Matthews,
Pearson and Spearman are 0.0 where predictions or labels are constant (also for one
row), and F1 is 0.0 without a true positive. No rows, class labels below 0 (rows without
a label) and values that are not finite raise Refused, because no score would be
meaningful."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from lib.core.names import Refused, check_known_name
from lib.core.types import MetricName
from lib.data import Task
from lib.stats import paired

CORRELATIONS = ("pearson", "spearman")
Metrics: TypeAlias = dict[MetricName, Any]  # {metric: value} of a run, or of its model.
METRICS = ("accuracy", "f1", "matthews", *CORRELATIONS)


def compute_metric(metric: str, predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return a GLUE metric of predictions, from 0 to 1, or -1 to 1 for correlations.

    Tables and tests of differences use the same computation (`lib.stats.paired`). F1 is
    that of class 1 of two, as GLUE scores MRPC and QQP; the Matthews correlation takes
    any number of classes. Raises Refused for an unknown metric, for values that are not
    finite, without rows, for shapes that do not fit, and for class labels below 0, as
    rows of unlabelled test splits have them.

    metric: "accuracy", "f1", "matthews", "pearson" or "spearman".
    predictions: classes or values [N], or logits [N, C].
    labels: [N]."""
    check_known_name("metric", metric, METRICS)
    said, true = np.asarray(predictions, np.float64), np.asarray(labels, np.float64)
    if not (np.isfinite(said).all() and np.isfinite(true).all()):
        raise Refused(
            "a prediction or a label is not finite: a model diverged, or a file is bad"
        )
    said = paired.predict_classes(said)
    if not len(true) or said.shape != true.shape:
        raise Refused(
            f"predictions {said.shape} do not fit labels {true.shape}, or no rows"
        )
    if true.min() < 0 and metric not in CORRELATIONS:
        raise Refused(
            f"the label {true.min():g} is no class: the rows are of a test split?"
        )
    return paired.compute_score(metric, said, true)


def compute_metrics(task: Task, logits: ArrayLike, labels: ArrayLike) -> Metrics:
    """Return {metric: value} of all metrics of a task, its main metric first.

    The values are from 0 to 1, or -1 to 1 for correlations. Trained models of
    classification and regression are scored by it. Raises Refused as `compute_metric`
    does, such as for logits that are not finite.

    task: says which metrics the task has.
    logits: [N, C], where C is 1 for a regression.
    labels: [N]."""
    return {name: compute_metric(name, logits, labels) for name in task.metrics}
