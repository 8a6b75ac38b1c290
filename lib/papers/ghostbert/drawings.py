"""This module draws the panels of GhostBERT's Figure 1, the score lost over the share
of the FLOPs, with the printed values beside those of our runs."""

from collections.abc import Collection, Mapping

import pandas as pd
from matplotlib.axes import Axes

from lib.core.types import ModelName
from lib.report import plot
from lib.stats.paired import SEEDS, Estimate

CALLED = {
    "Prune": "width pruning",
    "Ghost": "with ghosts",
    "Distilled": "whole, distilled",
}
# Horizontal offset of each model's marks, in units of the axis (% of the whole model's
# FLOPs), so that they do not overlap.
SHIFT = {"Prune": -1.0, "Ghost": 1.0, "Distilled": 0.0}


def find_lower_axis_limit(
    score_change_frame: pd.DataFrame,
    printed_frames_by_model: Mapping[ModelName, pd.DataFrame],
) -> float:
    """Return the lower end of the vertical axis of a figure of score changes, in
    points.

    Single seeds that score far below the others are left off the axis, so that they do
    not squeeze the rest; the figure names them in text.

    score_change_frame: a line for each model, width and seed, with the columns model, m
    (kept heads), share (of the FLOPs, in per cent) and lost (score minus that of the
    whole model, in points).
    printed_frames_by_model: {model: DataFrame of the printed m, share and lost}."""
    ends = [score_change_frame.groupby(["model", "m"])["lost"].median().min() * 1.6]
    return (
        min([*ends, *(rows["lost"].min() for rows in printed_frames_by_model.values())])
        - 0.5
    )


def select_rows_below_axis(
    score_change_frame: pd.DataFrame, lower_limit: float
) -> pd.DataFrame:
    """Return the rows of drawn models that a figure of score changes leaves off its
    axis.

    The figure names their seeds in text. Models that it does not draw, such as "Prune,
    labels twice", are left out.

    score_change_frame: a line for each model, width and seed, with the columns model
    and lost (score minus that of the whole model, in points).
    lower_limit: the lower end of the axis (`find_lower_axis_limit`)."""
    is_below = score_change_frame["lost"] <= lower_limit
    return score_change_frame[is_below & score_change_frame["model"].isin([*CALLED])]


def draw_score_changes_by_pruning(
    axis: Axes,
    score_change_frame: pd.DataFrame,
    printed_frames_by_model: Mapping[ModelName, pd.DataFrame],
) -> None:
    """Draw how many points models lose by pruning on one task, over their FLOPs.

    Dots are seeds, lines means with 95 % intervals, open diamonds printed values. Seeds
    far below the others are named in text, and left out of the means. Only the models
    "Prune", "Ghost" and "Distilled" are drawn.

    score_change_frame: a line for each model, width and seed, with the columns model, m
    (kept heads), seed, share (of the FLOPs, in per cent) and lost (score minus that of
    the whole model, in points).
    printed_frames_by_model: {model: DataFrame of the printed m, share and lost}."""
    floor = find_lower_axis_limit(score_change_frame, printed_frames_by_model)
    for model, name in CALLED.items():
        rows = score_change_frame[score_change_frame["model"] == model]
        look = plot.LOOKS[model]
        inside = rows[rows["lost"] > floor]
        inside = inside.assign(share=inside["share"] + SHIFT[model])
        plot.draw_means(axis, inside, "share", "lost", name, **look)
        axis.plot(inside["share"], inside["lost"], ".", color=look["color"], alpha=0.3)
        if model in printed_frames_by_model:
            theirs = printed_frames_by_model[model]
            axis.plot(
                theirs["share"],
                theirs["lost"],
                color=look["color"],
                label=f"{name}, printed",
                marker="D",
                mfc="none",
                ls=":",
                alpha=0.8,
            )
    for row in select_rows_below_axis(score_change_frame, floor).to_dict("records"):
        place = list(CALLED).index(row["model"])
        color = plot.LOOKS[row["model"]]["color"]
        text = f"▼ seed {row['seed']}: {row['lost']:.0f}".replace("-", plot.MINUS)
        spot = row["share"] + 5, floor + 0.07 * place * abs(floor)
        axis.text(*spot, text, fontsize=8, color=color, va="bottom")
    axis.plot([], [], ".", color=plot.GREY, label="a seed")
    axis.errorbar([], [], yerr=[], color=plot.GREY, capsize=3, label="95 % interval")
    axis.set_ylim(floor, max(2.5, score_change_frame["lost"].max() + 0.3))


def format_ghost_gain_summary(
    score_change_frame: pd.DataFrame,
    printed_frames_by_model: Mapping[ModelName, pd.DataFrame],
    ghost_gains: Collection[Estimate | None],
) -> str:
    """Return a phrase that sums up a figure of pruned models with and without ghosts.

    Ghosts are features that cheap convolutions add to a pruned model. The phrase says
    at how many widths models with ghosts score higher or lower than those without, by a
    difference whose 95 % interval excludes 0. Widths with fewer than three seeds do not
    count. It names the seeds that lie below the figure's axis.

    score_change_frame: a line for each model, width and seed, with the columns model, m
    (kept heads), seed and lost (score minus that of the whole model, in points).
    printed_frames_by_model: {model: DataFrame of the printed m, share and lost}.
    ghost_gains: the score with ghosts minus that without, at each width; None where it
    was not measured."""
    sure = [gap for gap in ghost_gains if gap and gap.n_seeds >= SEEDS]
    above = sum(gap.low > 0 for gap in sure)
    below = sum(gap.high < 0 for gap in sure)
    text = f"ghosts gain at {above or 'none'} of {len(sure)} widths"
    text += f", lose at {below}" * bool(below)
    if not sure:
        text = f"no width has {SEEDS} seeds of both"
    floor = find_lower_axis_limit(score_change_frame, printed_frames_by_model)
    out = sorted({*select_rows_below_axis(score_change_frame, floor)["seed"]})
    seeds = ", ".join(map(str, out))
    return text + f" (mean without seed {seeds})" * bool(out)
