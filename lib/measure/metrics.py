"""GLUE's metrics in float64, over stored predictions. Free of torch.

Class metrics take codes [N], or logits [N, C] whose largest column is the prediction (the first of
equals). Regression metrics take raw values [N] or [N, 1].

Degenerate predictions have a value where the libraries give nan or a warning. Matthews, Pearson and
Spearman are 0.0 where either side is constant (one row included), and F1 is 0.0 without a true
positive. No rows, rows without a label and logits that are not finite are errors, for which no
score would mean something.
"""

import numpy as np
import scipy

from lib.measure.stats import weighted_score
from lib.runs.spec import known

CORRELATIONS = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
METRICS = ("accuracy", "f1", "matthews", *CORRELATIONS)


def score(name, predictions, labels):
    """Return the metric of that name, a float.

    Class metrics are those of verdicts, each row being there once. F1 is that of class 1 of two, as
    GLUE scores MRPC and QQP; Matthews correlation takes any number of classes. Raises ValueError
    for an unknown name, and for what cannot be scored.
    """
    known("metric", name, METRICS)
    predicted, true = _checked(predictions, labels)
    if name in CORRELATIONS:
        if predicted.size != len(true):
            raise ValueError(f"a regression has one output a row, not {predicted.shape[1]} columns")
        predicted = predicted.ravel()
        varies = np.ptp(predicted) > 0 and np.ptp(true) > 0
        return float(CORRELATIONS[name](predicted, true).statistic) if varies else 0.0
    predicted, true = _classes(predicted, true)
    if name == "f1" and max(predicted.max(), true.max()) > 1:
        raise ValueError("F1 is that of class 1 of two; these rows have more classes")
    return float(weighted_score(name, [predicted], true, np.ones((1, len(true))))[0, 0])


def scores(task, logits, labels):
    """Return all metrics of a Task, in its order: {name: float}."""
    return {name: score(name, logits, labels) for name in task.metrics}


def _classes(predicted, true):
    """Both sides as int64 codes [N]."""
    if predicted.ndim == 2:
        if predicted.shape[1] < 2:
            raise ValueError("logits of one column hold no classes; expected [N], or [N, C > 1]")
        predicted = predicted.argmax(axis=1)
    for what, values in (("predictions", predicted), ("labels", true)):
        wrong = values[(values != np.floor(values)) | (values < 0)]
        if len(wrong):
            why = f"{len(wrong)} of {len(values)} {what} are no class codes, such as {wrong[0]:g}; "
            raise ValueError(f"{why}expected integers from 0, and a label in each row")
    return predicted.astype(np.int64), true.astype(np.int64)


def _checked(predictions, labels):
    predicted, true = np.asarray(predictions, np.float64), np.asarray(labels, np.float64)
    if true.ndim != 1 or predicted.ndim not in (1, 2) or len(predicted) != len(true):
        why = f"predictions of shape {list(predicted.shape)} do not fit labels of shape "
        raise ValueError(f"{why}{list(true.shape)}; expected [N] or [N, C] with [N]")
    if not predicted.size:
        raise ValueError("no rows to score")
    for values, what in (
        (predicted, "logits are not finite: the model diverged, or the file is damaged"),
        (true, "rows have no label (a test split?) and cannot be scored"),
    ):
        if bad := int((~np.isfinite(values)).sum()):
            raise ValueError(f"{bad} of {values.size} {what}")
    return predicted, true
