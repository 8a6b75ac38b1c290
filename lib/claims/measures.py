"""This module collects in one table all measures that claims compare, such as the share
of remaining weights: those of lib.stats.measures and those of each installed paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from lib.core.papers import import_module_of_each_paper
from lib.stats import measures
from lib.stats.compare import MetricColumn

if TYPE_CHECKING:
    import pandas as pd

# {task: its Columns}, the metrics by which a task is scored.
MetricColumnsByTask: TypeAlias = Mapping[str, Sequence[MetricColumn]]
MEASURES: dict[str, measures.Measure] = {**measures.MEASURES}
for _paper in import_module_of_each_paper("measures").values():
    MEASURES |= _paper.MEASURES


def compute_measure_of_each_run(
    measure_name: str,
    result_frame: pd.DataFrame,
    columns_by_task: MetricColumnsByTask,
) -> pd.DataFrame:
    """Return a table of runs with a new column `value`, a measured quantity.

    Comparisons of a quantity other than the task score are computed from this column. A
    row without a run, or without this quantity, is left out.

    measure_name: the quantity, a key of MEASURES such as "kept weights".
    result_frame: a table with one row for each run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored."""
    measure, frame = MEASURES[measure_name], result_frame[result_frame["run"].notna()]
    if measure.compute_by_run:
        return frame.assign(
            value=measure.compute_by_run(frame, columns_by_task)
        ).dropna(subset="value")
    names = re.findall(r"\b[a-z_]\w{3,}", measure.metric_expression)
    if not {*names} <= {*frame}:
        return frame[:0].assign(value=0.0)
    frame = frame.dropna(subset=names).infer_objects()
    # pyrefly: ignore[bad-argument-type]  # pandas' stub lets eval return a DataFrame.
    return frame.assign(value=frame.eval(measure.metric_expression))
