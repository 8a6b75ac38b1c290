"""This module draws the panels of GhostBERT's Figure 1, the score lost over the share
of the FLOPs, with printed values beside ours.

It does not import torch."""

from collections.abc import Collection, Mapping

import pandas as pd
from matplotlib.axes import Axes

from lib.report import plot
from lib.stats.paired import SEEDS, Estimate

CALLED = {
    "Prune": "width pruning",
    "Ghost": "with ghosts",
    "Distilled": "whole, distilled",
}
# Horizontal offset of each model's marks, in % of the FLOPs, so that they do not overlap.
SHIFT = {"Prune": -1.0, "Ghost": 1.0, "Distilled": 0.0}


def find_lower_axis_limit(
    rows_by_seed: pd.DataFrame, printed_frames_by_model: Mapping[str, pd.DataFrame]
) -> float:
    """Return the lower end of a panel's axis, in points. Seeds that score below it are
    written as text, so that they do not squeeze the others.

    rows_by_seed: a line for each seed, with the columns model, m, share (of the FLOPs)
    and lost (score minus that of the whole model, in points).
    printed_frames_by_model: {model: DataFrame of printed m, share and lost}."""
    ends = [rows_by_seed.groupby(["model", "m"])["lost"].median().min() * 1.6]
    return (
        min([*ends, *(rows["lost"].min() for rows in printed_frames_by_model.values())])
        - 0.5
    )


def draw_score_losses(
    axis: Axes,
    rows_by_seed: pd.DataFrame,
    printed_frames_by_model: Mapping[str, pd.DataFrame],
) -> None:
    """Draw for one task how many points each model loses, over its share of the FLOPs.

    Dots are seeds, open diamonds printed values.

    rows_by_seed, printed_frames_by_model: as in `find_lower_axis_limit`."""
    floor = find_lower_axis_limit(rows_by_seed, printed_frames_by_model)
    for model, name in CALLED.items():
        rows, look = rows_by_seed[rows_by_seed["model"] == model], plot.LOOKS[model]
        inside = rows[rows["lost"] > floor]
        inside = inside.assign(share=inside["share"] + SHIFT[model])
        plot.draw_means(axis, inside, "share", "lost", name, **look)
        axis.plot(inside["share"], inside["lost"], ".", color=look["color"], alpha=0.3)
        if model in printed_frames_by_model:
            diamonds = {"marker": "D", "mfc": "none", "ls": ":", "alpha": 0.8}
            label, color = f"{name}, printed", look["color"]
            theirs = printed_frames_by_model[model]
            places = theirs["share"], theirs["lost"]
            axis.plot(*places, color=color, label=label, **diamonds)
    for row in rows_by_seed[rows_by_seed["lost"] <= floor].to_dict("records"):
        place = list(CALLED).index(row["model"])
        color = plot.LOOKS[row["model"]]["color"]
        text = f"▼ seed {row['seed']}: {row['lost']:.0f}".replace("-", plot.MINUS)
        spot = row["share"] + 5, floor + 0.07 * place * abs(floor)
        axis.text(*spot, text, fontsize=8, color=color, va="bottom")
    axis.plot([], [], ".", color=plot.GREY, label="a seed")
    axis.errorbar([], [], yerr=[], color=plot.GREY, capsize=3, label="95 % interval")
    axis.set_ylim(floor, max(2.5, rows_by_seed["lost"].max() + 0.3))


def format_score_losses(
    rows_by_seed: pd.DataFrame,
    printed_frames_by_model: Mapping[str, pd.DataFrame],
    ghost_gains: Collection[Estimate | None],
) -> str:
    """Return a sentence for a panel: at how many widths ghosts score higher or lower
    than pruning alone, and which seeds are below the panel.

    rows_by_seed, printed_frames_by_model: as in `find_lower_axis_limit`.
    ghost_gains: the score with ghosts minus that without, at each width."""
    sure = [gap for gap in ghost_gains if gap and gap.n_seeds >= SEEDS]
    above = sum(gap.low > 0 for gap in sure)
    below = sum(gap.high < 0 for gap in sure)
    text = f"ghosts gain at {above or 'none'} of {len(sure)} widths"
    text += f", lose at {below}" * bool(below)
    floor = find_lower_axis_limit(rows_by_seed, printed_frames_by_model)
    out = sorted({*rows_by_seed[rows_by_seed["lost"] <= floor]["seed"]})
    seeds = ", ".join(map(str, out))
    return text + f" (mean without seed {seeds})" * bool(out)
