"""Drawings of EfficientBERT: networks, with a formula for each layer, and surfaces of formulas."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from lib.page import plot


def network(axis, net, title="", before=None):
    """Draw a network as a bar for each layer, layer 1 at the bottom.

    In a bar stand the layer's formula, how many networks of it are stacked, and their size as a
    ratio. What differs from the network `before` is vermilion.
    """
    count = len(net.layers)
    axis.barh(range(1, count + 1), 1, 0.84, color="#f6f7f9", ec=plot.PALE)
    for number, layer in enumerate(net.layers, 1):
        old = before.layers[number - 1] if before else layer
        same_size = (layer.stack, layer.q) == (old.stack, old.q)
        text = {"va": "center", "fontsize": 9}
        marked = text | {"color": plot.VERMILION, "fontweight": "bold"}
        formula, size = layer.formula, f"{layer.stack} × {layer.ratio}"
        axis.text(0.03, number, formula, **text if formula == old.formula else marked)
        axis.text(0.97, number, size, ha="right", **text if same_size else marked)
    axis.set(xlim=(0, 1), ylim=(0.5, count + 0.5), xticks=[], yticks=range(1, count + 1))
    axis.set_title(title, fontsize=11, loc="left")
    axis.tick_params(labelsize=9)
    axis.grid(False)
    axis.set_frame_on(False)


def surface(axis, grid, z, title="", view=(28, -125)):
    """Draw a surface of Figure 5 on a 3-d axis.

    z: heights as `lib.search.surface.symlog` gives them; ticks are plain numbers.
    """
    look = {"cmap": "cividis", "linewidth": 0, "antialiased": False, "rasterized": True}
    x, y, count = *np.meshgrid(grid, grid), len(grid)
    drawn = axis.plot_surface(x, y, z, rcount=count, ccount=count, **look)
    corners = np.lib.stride_tricks.sliding_window_view(z, (2, 2))
    # the mean of the corners, which matplotlib takes, would stripe a cliff
    drawn.set_array((corners.min((2, 3)) + corners.max((2, 3))).ravel() / 2)
    axis.view_init(*view)
    axis.set_title(title, fontsize=10, y=0.99)
    ends, ticks = (min(0.0, z.min()), max(z.max(), 0.5)), [-15, -5, 5]
    axis.set(xlabel="X", ylabel="Y", xticks=ticks, yticks=ticks, zlim=ends)
    axis.zaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.zaxis.set_major_formatter(
        lambda t, _: f"${'-' * bool(t < 0)}10^{{{abs(t):g}}}$" if t else "0"
    )
    axis.tick_params(labelsize=8, pad=0)
