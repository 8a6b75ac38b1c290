"""This module lists all measures that claims compare: those of lib.stats.measures and
of the papers that are here. It is free of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lib.core.papers import collect_modules
from lib.stats import measures
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

MEASURES: dict[str, measures.Measure] = {**measures.MEASURES}
for _paper in collect_modules("measures").values():
    MEASURES |= _paper.MEASURES


def add_measure_values(
    measure_name: str,
    frame: pd.DataFrame,
    columns_by_task: Mapping[str, Sequence[Column]],
) -> pd.DataFrame:
    """Return the rows of a frame whose runs have a measure, with a new column `value`.

    The frame has a row for each run. A row without a run, or without the measure, is
    left out. `columns_by_task` has the columns of each task."""
    how, frame = MEASURES[measure_name], frame[frame["run"].notna()]
    if how.by_run:
        return frame.assign(value=how.by_run(frame, columns_by_task)).dropna(
            subset="value"
        )
    names = re.findall(r"\b[a-z_]\w{3,}", how.values)
    if not {*names} <= {*frame}:
        return frame[:0].assign(value=0.0)
    frame = frame.dropna(subset=names).infer_objects()
    # pyrefly: ignore[bad-argument-type]  # For the stub, an expression may give a DataFrame.
    return frame.assign(value=frame.eval(how.values))
