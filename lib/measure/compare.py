"""From collected runs to comparisons: pairs for the statistics, and the short texts that tables show."""

from math import isfinite

import numpy as np
import pandas as pd

from lib.measure.stats import Pair, summary


def pairs(frame, method, baseline, metric_of):
    """Pairs of `method` and `baseline` runs of a collected frame (columns task, seed, model, run), matched by task and
    seed, rows by their index. metric_of: {task: metric}. Runs that are missing or failed make no pair."""
    there = {(row.task, row.seed, row.model): row.run for row in frame.itertuples() if row.run is not None}
    found = []
    for (task, seed, model), run in sorted(there.items(), key=lambda item: item[0][:2]):
        other = there.get((task, seed, baseline))
        if model != method or other is None:
            continue
        a, b = run.arrays("predictions"), other.arrays("predictions")
        if not np.array_equal(a["index"], b["index"]):
            raise ValueError(f"{run.name} and {other.name} were evaluated on different rows of {task}")
        found.append(Pair(task, seed, a["labels"], a["logits"], b["logits"], metric_of[task]))
    return found


def lost(frame):
    """How many runs of a frame failed or died."""
    return int(frame["state"].isin(["failed", "died", "stopped"]).sum())


def points(frame, metric_of):
    """The frame with a column `score`: the task's first metric in points."""
    frame = frame.copy()
    frame["score"] = [100 * getattr(row, metric_of[row.task], np.nan) for row in frame.itertuples()]
    return frame


def rows_of(frame):
    """The columns that name a row of a table: kept heads, where there are any, and model."""
    return [name for name in ("m", "model") if name in frame]


def average(frame):
    """Replicates of the task average: one line for each row of the table and seed whose tasks are all there."""
    wanted = frame["task"].nunique()
    by = frame.groupby([*rows_of(frame), "seed"], sort=False)["score"].agg(["mean", "count"]).reset_index()
    return by[by["count"] == wanted].rename(columns={"mean": "score"}).drop(columns="count")


def table(*parts):
    """One DataFrame of several {(m, model) or model: {(source, column): value}}, rows in the order in which they first
    occur."""
    keys = list(dict.fromkeys(key for part in parts for key in part))
    index = (pd.MultiIndex.from_tuples(keys, names=["m", "model"]) if isinstance(keys[0], tuple)
             else pd.Index(keys, name="model"))
    frame = pd.DataFrame([{k: v for part in parts for k, v in part.get(key, {}).items()} for key in keys], index=index)
    frame.columns = pd.MultiIndex.from_tuples(frame.columns)
    return frame


def spread(values):
    """Mean and standard deviation over seeds as text: "81.2 ± 0.4 (3)"."""
    s = summary([v for v in values if v is not None and isfinite(v)])
    if not s.n:
        return "–"
    return f"{s.mean:.1f} ({s.n})" if s.n == 1 else f"{s.mean:.1f} ± {s.sd:.1f} ({s.n})"


def interval(estimate):
    """An Estimate as text: "+0.4 [-0.2, 1.1]"."""
    return "–" if estimate is None or not isfinite(estimate.mean) else (
        f"{estimate.mean:+.1f} [{estimate.low:.1f}, {estimate.high:.1f}]")


def by_task(frame, metric_of, source):
    """{(m, model) or model: {(source, task): text, ..., (source, "average"): text}} of a collected frame; cells that were
    not run are dashes."""
    scored = points(frame, metric_of)
    by, table = rows_of(scored), {}
    means = dict(list(average(scored).groupby(by, sort=False)["score"]))
    for key, rows in scored.groupby(by, sort=False):
        name = (f"{key[0]}/12", key[1]) if len(key) > 1 else key[0]
        row = table[name] = {(source, task): spread(part["score"]) for task, part in rows.groupby("task", sort=False)}
        row[source, "average"] = spread(means.get(key, ()))
    return table
