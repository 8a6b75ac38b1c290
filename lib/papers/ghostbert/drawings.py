"""This module draws panels of Figure 1, with printed values beside ours. It is free of
torch."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from lib.report import plot

CALLED = {
    "Prune": "width pruning",
    "Ghost": "with ghosts",
    "Distilled": "whole, distilled",
}


def lower_limit(part: pd.DataFrame, printed: Mapping[str, pd.DataFrame]) -> float:
    """Return the lower end of a panel, in points; lower seeds become text.

    part: one line for each seed, with model, m, share and `lost`, the points below the
    whole model. printed: {model: frame of printed m, share and lost}."""
    ends = [part.groupby(["model", "m"])["lost"].median().min() * 1.6]
    return min([*ends, *(rows["lost"].min() for rows in printed.values())]) - 0.5


def draw_losses(
    axis: Axes, part: pd.DataFrame, printed: Mapping[str, pd.DataFrame]
) -> None:
    """Draw the points that each model of a task loses, over its share of the FLOPs.

    Dots are seeds, and open diamonds are printed. Arguments are those of
    `lower_limit`."""
    floor = lower_limit(part, printed)
    for model, name in CALLED.items():
        rows, look = part[part["model"] == model], plot.LOOKS[model]
        inside = rows[rows["lost"] > floor]
        plot.means(axis, inside, "share", "lost", name, **look)
        axis.plot(inside["share"], inside["lost"], ".", color=look["color"], alpha=0.5)
        if model in printed:
            diamonds = {"marker": "D", "mfc": "none", "ls": ":", "alpha": 0.8}
            label, color = f"{name}, printed", look["color"]
            theirs = printed[model]
            places = theirs["share"], theirs["lost"]
            axis.plot(*places, color=color, label=label, **diamonds)
    for row in part[part["lost"] <= floor].to_dict("records"):
        place = list(CALLED).index(row["model"])
        color = plot.LOOKS[row["model"]]["color"]
        text = f"seed {row['seed']}: {row['lost']:.0f} ▼"
        spot = row["share"] + 3, floor + 0.07 * place * abs(floor)
        axis.text(*spot, text, fontsize=8, color=color, va="bottom")
    axis.set_ylim(floor, max(2.5, part["lost"].max() + 0.3))


def tell_losses(part: pd.DataFrame, printed: Mapping[str, pd.DataFrame]) -> str:
    """Return a sentence on the loss of the cut models at the least width, ours and
    printed. Ours is the mean that `draw_losses` draws, without collapsed seeds."""
    least, texts = part["m"].min(), []
    inside = part[part["lost"] > lower_limit(part, printed)]
    for model, theirs in printed.items():
        ours = inside[(inside["model"] == model) & (inside["m"] == least)]
        beside = theirs.loc[theirs["m"] == least, "lost"]
        also = "".join(f", printed {value:+.1f}" for value in beside)
        texts.append(f"{CALLED[model]} {ours['lost'].mean():+.1f}{also}")
    return f"at {least}/12 {'; '.join(texts)}"
