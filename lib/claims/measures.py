"""This module has measures of runs that are no score, which claims compare beside
scores.

A measure gives a value for each row of a collected frame, or one Estimate of all its
rows. The module is free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from lib.core import disk
from lib.core.store import Run
from lib.core.types import Arrays
from lib.stats import compare, paired
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

MATCH = (
    0.5  # A run matches a score that it misses by at most so many points (claim B3).
)
RANKED = 12  # A rank correlation takes at least so many things (claim E4).


@dataclass(frozen=True)
class Measure:
    """A Measure says how its values are computed, in one of three ways
    (`measures.toml`).

    values: an expression over the metrics of runs. by_run: the name of f(frame, metric_of) -> a
    value for each row. of_all: the name of f(frames of each model, metric_of, the text in brackets)
    -> an Estimate or None.
    """

    unit: str
    values: str = ""
    by_run: str = ""
    of_all: str = ""
    resolution: float = 0.0  # All values are multiples of it.
    null: float = 0.0  # This value is no effect: 1 of a ratio.
    share: bool = False  # The values are yes or no, so they are told as counts.


def smoothed(loss: np.ndarray, share: float = 0.05) -> np.ndarray:
    """Return the trailing mean [N] of a loss [N] over this share of its points.

    At the start it is over fewer points.
    """
    import pandas as pd

    wide = max(1, round(share * len(loss)))
    return pd.Series(loss, dtype=float).rolling(wide, min_periods=1).mean().to_numpy()


def share_of_steps(inherits: Arrays, scratch: Arrays, part: str = "loss") -> float:
    """Return how soon one run reaches the smoothed loss that another run ends on.

    It is a share of the other run's steps, and 1 where the loss is never reached.
    inherits, scratch: the arrays `curve` of step warmup."""
    indices = np.flatnonzero(smoothed(inherits[part]) <= smoothed(scratch[part])[-1])
    if not len(indices):
        return 1.0
    return min(
        1.0, float((inherits["step"][indices[0]] + 1) / (scratch["step"][-1] + 1))
    )


def shares(frame: pd.DataFrame, part: str = "loss") -> dict[int, float]:
    """Return {seed: share of steps} of a collected frame, for seeds that have both
    runs."""
    made = compare.with_runs(frame)
    rows = zip(made["model"], made["seed"], made["run"], strict=True)
    curves = {(model, seed): run.arrays("curve") for model, seed, run in rows}
    return {
        seed: share_of_steps(curve, curves["from scratch", seed], part)
        for (model, seed), curve in curves.items()
        if model == "inherits" and ("from scratch", seed) in curves
    }


def steps(frame: pd.DataFrame, _: object) -> pd.Series:
    """Return how early each warm-started run reaches the loss of the run from scratch,
    as a share of the latter's steps. The run from scratch itself has 0."""
    share = frame["seed"].map(shares(frame))
    return share.where(frame["model"] == "inherits", 0 * share)


def last_loss(frame: pd.DataFrame, _: object) -> list[float]:
    """Return the smoothed loss that each run of step warmup ends on."""
    return [smoothed(run.arrays("curve")["loss"])[-1] for run in frame["run"]]


def collapsed(
    frame: pd.DataFrame, metric_of: Mapping[str, Sequence[Column]]
) -> list[bool]:
    """Return whether each run collapsed (lib.stats.compare.level)."""
    return [
        compare.level(run, metric_of[task][0]).collapsed
        for run, task in zip(frame["run"], frame["task"], strict=True)
    ]


def lower_gradient(frame: pd.DataFrame, _: object) -> list[float]:
    """Return log10 of the norm of the gradient in the lower half of the layers.

    It is a mean over each run.
    """
    # The norms of a run are [parts, L].
    norms = [run.arrays("course")["gradient_norm"].clip(1e-12) for run in frame["run"]]
    return [np.log10(norm[:, : norm.shape[1] // 2]).mean() for norm in norms]


def matched(
    frame: pd.DataFrame,
    metric_of: Mapping[str, Sequence[Column]],
    margin: float = MATCH,
) -> pd.DataFrame:
    """Return the least epochs with which each model matches BERT's longest run.

    A model matches a score that it misses by at most `margin` points. The DataFrame has
    one line for each task and seed whose budgets were all run: task, seed, and a column
    for each model. A model that never matches counts one step of the budgets more than
    the longest run."""
    import pandas as pd

    frame = frame.dropna(subset=["epochs"]) if "epochs" in frame else frame[:0]
    lines = []
    for (task, seed), rows in compare.points(frame, metric_of).groupby(
        ["task", "seed"], sort=False
    ):
        table = rows.pivot(index="epochs", columns="model", values="score").sort_index()
        if len(table) < 2 or table.isna().any(axis=None):
            continue
        longest, step = table.index[-1], int(table.index[-1] - table.index[-2])
        target_score = table["BERT"].iloc[-1] - margin
        least = {
            model: min(
                table.index[table[model] >= target_score], default=longest + step
            )
            for model in table
        }
        lines.append({"task": task, "seed": seed} | least)
    return pd.DataFrame(
        lines, columns=list(dict.fromkeys(["task", "seed", *frame["model"]]))
    )


def epochs_to_match(
    frame: pd.DataFrame, metric_of: Mapping[str, Sequence[Column]]
) -> list[float]:
    """Return for each run the least epochs with which its model matches BERT's longest
    run."""
    least = matched(frame, metric_of).set_index(["task", "seed"])
    rows = zip(frame["task"], frame["seed"], frame["model"], strict=True)
    return [least[m].get((t, s), nan) if m in least else nan for t, s, m in rows]


def flops_course(run: Run) -> np.ndarray | None:
    """Return the FLOPs [N] of a network after each step of its search.

    It is None for the run of a network that was cut, which searches nothing."""
    if "target" not in run.metrics:
        return None
    return run.arrays("search")["curve"][:, 1]


def epochs_to_target(frame: pd.DataFrame, _: object) -> list[float]:
    """Return the epochs of each search until its FLOPs come within 1 % of the
    target."""
    epochs = []
    for run in frame["run"]:
        share, flops = nan, flops_course(run)
        if flops is not None:
            indices = np.flatnonzero(flops <= 1.01 * run.metrics["target"])
            share = (indices[0] + 1) / len(flops) if len(indices) else 1.0
        epochs.append(share * run.spec["args"]["train"]["epochs"])
    return epochs


def swing(frame: pd.DataFrame, _: object) -> list[float]:
    """Return how far the FLOPs of each search still swing at its end.

    It is the standard deviation over the last fifth of the steps, in points of the
    whole model's FLOPs, before the final trim. It is nan for the networks that were
    cut."""
    swings = []
    for flops in map(flops_course, frame["run"]):
        if flops is None:
            swings.append(nan)
        else:
            end = flops[-max(2, round(len(flops) / 5)) :]
            swings.append(100 * float(np.std(end, ddof=1)))
    return swings


def scores(frame: pd.DataFrame, metric_of: Mapping[str, Sequence[Column]]) -> pd.Series:
    """Return the scores in points [N] of the models of a frame that did not diverge."""
    models = frame["spec"].map(lambda spec: spec.step in compare.SCORED)
    made = frame[frame["run"].notna() & models]
    sound = [not is_collapsed for is_collapsed in collapsed(made, metric_of)]
    return compare.points(made[sound], metric_of)["score"]


def variance_ratio(
    parts: Sequence[pd.DataFrame],
    metric_of: Mapping[str, Sequence[Column]],
    _: str = "",
) -> paired.Estimate | None:
    """Return the Estimate of the variance of one model's scores over that of another's.

    The interval and p are those of the F distribution. It is None where a model has
    fewer than two scores, or the other's scores do not vary."""
    a, b = (scores(part, metric_of).dropna().to_numpy() for part in parts)
    least = min(len(a), len(b))
    if least < 2 or not b.var():
        return None
    ratio = a.var(ddof=1) / b.var(ddof=1)
    law = scipy.stats.f(len(a) - 1, len(b) - 1)
    high, low = ratio / law.ppf((0.025, 0.975))
    p = min(1.0, 2 * law.cdf(ratio), 2 * law.sf(ratio))
    return paired.Estimate(ratio, low, high, least, 1, nan, float(p), null=1.0)


def ranked(
    parts: Sequence[pd.DataFrame], metric_of: Mapping[str, Sequence[Column]]
) -> pd.DataFrame:
    """Return the columns [search, final] of the candidates of a search: both scores in
    points.

    parts: the frames of their final trainings, and of the runs by which the search
    scores them. A candidate without one of its two scores is left out."""
    import pandas as pd

    students, searches = parts
    final = (
        compare.points(students, metric_of)
        .drop_duplicates("model")
        .set_index("model")["score"]
    )
    names = sorted(name for name in map(str, searches) if name.startswith("held_out."))
    held = "held_out.score" if "held_out.score" in names else next(iter(names), None)
    search = 100 * searches.set_index("model")[held] if held else pd.Series(dtype=float)
    return pd.DataFrame({"search": search, "final": final}).dropna()


def rank_correlation(
    parts: Sequence[pd.DataFrame],
    metric_of: Mapping[str, Sequence[Column]],
    _: str = "",
) -> paired.Estimate | None:
    """Return the Estimate of Kendall's tau of final and search scores.

    It is None for fewer than RANKED candidates.
    """
    both = ranked(parts, metric_of)
    search, final = both.to_numpy().T
    return paired.rank_correlation(search, final) if len(both) >= RANKED else None


def speed_ups(run: Run) -> dict[str, paired.Estimate]:
    """Return {model: Estimate} of the reference's time over a model's, turn by turn.

    run: a run of step latency.
    """
    args = run.spec["args"]
    times = dict(zip(args["models"], run.arrays("times")["wall"], strict=True))
    first = times.pop(args["reference"])
    return {name: paired.ratio(first, seconds) for name, seconds in times.items()}


def speed_up(
    parts: Sequence[pd.DataFrame], _: object, name: str
) -> paired.Estimate | None:
    """Return the Estimate of one model's speed-up in the first run of its frame.

    Its replicates are the turns. It is None where there is no run.
    """
    runs = parts[0]["run"].dropna()
    return speed_ups(runs.iloc[0])[name] if len(runs) else None


SCORE = Measure("points")  # It is what a cell without a measure compares.
MEASURES = {
    name: Measure(**fields)
    for name, fields in disk.toml(Path(__file__).with_suffix(".toml")).items()
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        collapsed,
        epochs_to_match,
        epochs_to_target,
        last_loss,
        lower_gradient,
        rank_correlation,
        speed_up,
        steps,
        swing,
        variance_ratio,
    )
}


def valued(
    name: str, frame: pd.DataFrame, metric_of: Mapping[str, Sequence[Column]]
) -> pd.DataFrame:
    """Return the rows of a frame whose runs have a measure, with it as column
    `value`."""
    how, frame = MEASURES[name], frame[frame["run"].notna()]
    if how.by_run:
        return frame.assign(value=FUNCTIONS[how.by_run](frame, metric_of)).dropna(
            subset="value"
        )
    names = re.findall(r"\b[a-z_]\w{3,}", how.values)
    if not {*names} <= {*frame}:
        return frame[:0].assign(value=0.0)
    frame = frame.dropna(subset=names).infer_objects()
    # pyrefly: ignore[bad-argument-type]  # For the stub, an expression may give a DataFrame.
    return frame.assign(value=frame.eval(how.values))
