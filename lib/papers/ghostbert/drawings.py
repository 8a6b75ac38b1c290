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
SHIFT = {"Prune": -1.0, "Ghost": 1.0, "Distilled": 0.0}  # In % of the FLOPs.


def find_lower_limit(
    seed_rows: pd.DataFrame, printed_frames: Mapping[str, pd.DataFrame]
) -> float:
    """Return the lower end of a panel, in points; lower seeds become text.

    seed_rows: one line for each seed, with model, m, share and `lost`, the points below
    the whole model. printed_frames: {model: frame of printed m, share and lost}."""
    ends = [seed_rows.groupby(["model", "m"])["lost"].median().min() * 1.6]
    return min([*ends, *(rows["lost"].min() for rows in printed_frames.values())]) - 0.5


def draw_losses(
    axis: Axes, seed_rows: pd.DataFrame, printed_frames: Mapping[str, pd.DataFrame]
) -> None:
    """Draw the points that each model of a task loses, over its share of the FLOPs.

    Dots are seeds, and open diamonds are printed. Arguments are those of
    `find_lower_limit`."""
    floor = find_lower_limit(seed_rows, printed_frames)
    for model, name in CALLED.items():
        rows, look = seed_rows[seed_rows["model"] == model], plot.LOOKS[model]
        inside = rows[rows["lost"] > floor]
        # Models of one share stand side by side.
        inside = inside.assign(share=inside["share"] + SHIFT[model])
        plot.draw_means(axis, inside, "share", "lost", name, **look)
        axis.plot(inside["share"], inside["lost"], ".", color=look["color"], alpha=0.3)
        if model in printed_frames:
            diamonds = {"marker": "D", "mfc": "none", "ls": ":", "alpha": 0.8}
            label, color = f"{name}, printed", look["color"]
            theirs = printed_frames[model]
            places = theirs["share"], theirs["lost"]
            axis.plot(*places, color=color, label=label, **diamonds)
    for row in seed_rows[seed_rows["lost"] <= floor].to_dict("records"):
        place = list(CALLED).index(row["model"])
        color = plot.LOOKS[row["model"]]["color"]
        text = f"▼ seed {row['seed']}: {row['lost']:.0f}".replace("-", plot.MINUS)
        spot = row["share"], floor + 0.07 * place * abs(floor)
        axis.text(*spot, text, fontsize=8, color=color, va="bottom")
    axis.set_ylim(floor, max(2.5, seed_rows["lost"].max() + 0.3))


def describe_losses(
    seed_rows: pd.DataFrame, printed_frames: Mapping[str, pd.DataFrame]
) -> str:
    """Return a sentence on the loss of the cut models at the least width, ours and
    printed. Ours is the mean that `draw_losses` draws, without collapsed seeds."""
    least, texts = seed_rows["m"].min(), []
    inside = seed_rows[seed_rows["lost"] > find_lower_limit(seed_rows, printed_frames)]
    for model, theirs in printed_frames.items():
        ours = inside[(inside["model"] == model) & (inside["m"] == least)]
        beside = theirs.loc[theirs["m"] == least, "lost"]
        also = "".join(f", printed {value:+.1f}" for value in beside)
        text = f"{ours['lost'].mean():+.1f}{also}".replace("-", plot.MINUS)
        texts.append(f"{CALLED[model]} {text}")
    out = sorted({*seed_rows.drop(inside.index).query("m == @least")["seed"]})
    collapsed = f", without collapsed seed {', '.join(map(str, out))}" if out else ""
    return f"at {least}/12{collapsed} {'; '.join(texts)}"
