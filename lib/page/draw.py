"""Drawings of EfficientBERT's networks: formulas as graphs, architectures, surfaces. Colours of
Okabe and Ito, and shapes of their own, so that colour is never alone in telling kinds apart.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from lib.search.formula import BINARY, LINEAR, height, walk

INK, SOFT, CHANGED = "#1c1e21", "#8a929c", "#D55E00"
FILL = {"x": "#FFFFFF", "linear": "#0072B2", "unary": "#F5C96B", "binary": "#009E73"}
TEXT = {"x": INK, "linear": "white", "unary": INK, "binary": "white"}
SIGN = {
    "add": "+",
    "mul": "×",
    "max": "max",
    "W1": "$W_1$",
    "W2": "$W_2$",
    "leaky_relu": "leaky\nrelu",
}
ROW = 0.42  # between operands; operations stand 1 apart


def kind(op):
    """ "x", "linear", "unary" or "binary"."""
    return "x" if op == "x" else "linear" if op in LINEAR else "binary" if op in BINARY else "unary"


def leaves(node):
    """How often the input is used: the rows that a drawing has."""
    return sum(n.op == "x" for n in walk(node))


def placed(node):
    """Where a formula's operations stand: ([(op, column, row)], [edges]), each edge a list of
    (column, row) points.

    The input is one node in column 0; an operation stands right of its operands, rows are centred
    on 0.
    """
    nodes, edges, read = [], [], []

    def put(n):
        column = height(n)
        if n.op == "x":
            read.append(len(read))
            return 0, read[-1]
        points = [put(child) for child in n.args]
        row = float(np.mean([r for _, r in points]))
        nodes.append((n.op, column, row))
        for c, r in points:
            edges.append([(c, r), *([(column - 1, r)] if c < column - 1 else []), (column, row)])
        return column, row

    put(node)
    middle = (len(read) - 1) / 2
    edges = [
        [(c, r - middle) if c else (0, 0.0) for c, r in line] for line in edges
    ]  # all x are one
    return [("x", 0, 0.0), *((op, c, r - middle) for op, c, r in nodes)], edges


def formula(axis, node, x=0.0, y=0.0, size=8.0):
    """Draw a formula from left to right, its input at (x, y)."""
    nodes, edges = placed(node)
    for line in edges:
        axis.plot(
            *zip(*((x + c, y - ROW * r) for c, r in line), strict=True),
            color=SOFT,
            lw=1.2,
            zorder=1,
        )
    for op, column, row in nodes:
        at, what = (x + column, y - ROW * row), kind(op)
        edge = {"facecolor": FILL[what], "edgecolor": INK, "lw": 0.7, "zorder": 2}
        if what in ("x", "binary"):
            axis.add_patch(Circle(at, 0.21 if what == "binary" else 0.15, **edge))
        else:
            round_ = 0.02 if what == "linear" else 0.13
            half = 0.27 if what == "linear" else 0.39
            axis.add_patch(
                FancyBboxPatch(
                    (at[0] - half, at[1] - 0.16),
                    2 * half,
                    0.32,
                    mutation_aspect=1,
                    boxstyle=f"round,pad=0.02,rounding_size={round_}",
                    **edge,
                )
            )
        axis.text(
            *at,
            SIGN.get(op, op),
            ha="center",
            va="center",
            color=TEXT[what],
            zorder=3,
            linespacing=0.85,
            fontsize=size * (0.8 if op in ("leaky_relu", "max") else 1.0),
        )


def slices(axis, layer, x, y, size=0.6):
    """The part of the supernet's four full networks that a layer uses: k bars, 1/q wide, in four
    outlines.
    """
    for i in range(max(4, layer.stack)):
        bottom = y + (1.5 - i) * 0.19 - 0.07
        axis.add_patch(Rectangle((x, bottom), size, 0.14, facecolor="none", edgecolor=SOFT, lw=0.6))
        if i < layer.stack:
            axis.add_patch(
                Rectangle(
                    (x, bottom), size / layer.q, 0.14, facecolor=FILL["linear"], edgecolor="none"
                )
            )


def network(axis, net, title="", before=None, size=8.0):
    """Draw a network from layer 1 at the bottom; what differs from the network `before` is in
    vermilion.
    """
    right, y = max(5, *(height(layer.tree) for layer in net.layers)), 0.0
    for number, layer in enumerate(net.layers):
        old, half = (
            before.layers[number] if before else layer,
            0.42 + ROW * max(0, leaves(layer.tree) - 2) / 2,
        )
        y += half
        look = (
            {"lw": 1.4, "edgecolor": CHANGED}
            if layer.formula != old.formula
            else {"lw": 0.6, "edgecolor": "#dfe3e8"}
        )
        axis.add_patch(
            FancyBboxPatch(
                (-0.45, y - half),
                right + 3.1,
                2 * half,
                zorder=0,
                facecolor="#f6f7f9",
                boxstyle="round,pad=0.02,rounding_size=0.1",
                **look,
            )
        )
        axis.text(-0.75, y, str(number + 1), ha="center", va="center", fontsize=size, color=SOFT)
        formula(axis, layer.tree, 0.0, y, size)
        look = (
            {"color": CHANGED, "fontweight": "bold"}
            if (layer.stack, layer.q) != (old.stack, old.q)
            else {"color": INK}
        )
        axis.text(
            right + 0.95,
            y,
            f"{layer.stack} × {layer.ratio}",
            ha="center",
            va="center",
            fontsize=size,
            **look,
        )
        slices(axis, layer, right + 1.75, y)
        y += half + 0.16
    axis.set(xlim=(-1.1, right + 2.8), ylim=(-0.1, y - 0.06), aspect="equal")
    axis.set_title(title, fontsize=size + 2, loc="left")
    axis.axis("off")


def legend(figure, size=8.0):
    """The kinds of operations, the slices, and what vermilion means, below a figure of networks."""

    def mark(symbol, **look):
        return Line2D([], [], marker=symbol, ls="none", markersize=10, markeredgecolor=INK, **look)

    entries = {
        "input x": mark("o", markerfacecolor="white"),
        "linear map": mark("s", markerfacecolor=FILL["linear"]),
        "activation": mark("H", markerfacecolor=FILL["unary"]),
        "binary": mark("o", markerfacecolor=FILL["binary"]),
        "stack k × ratio 1/q, and that slice of four full networks": Line2D(
            [], [], color=FILL["linear"], lw=7, solid_capstyle="butt"
        ),
        "changed against the panel before": Line2D([], [], color=CHANGED, lw=2),
    }
    figure.legend(
        entries.values(),
        entries,
        loc="lower center",
        ncols=3,
        fontsize=size + 1,
        frameon=False,
        bbox_to_anchor=(0.5, -0.03),
    )


def surface(axis, grid, z, title="", view=(28, -125)):
    """Draw a surface of Figure 5 on a 3-d axis; z as `lib.search.surface.symlog` gives it, ticks as
    plain numbers.
    """
    (x, y), n = np.meshgrid(grid, grid), len(grid)
    corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    across = [corner + 1, corner + n]  # cut along x + y = constant, as cliffs often are
    triangles = np.concatenate(
        [np.stack([corner, *across], 1), np.stack([across[0], corner + n + 1, across[1]], 1)]
    )
    drawn = axis.plot_trisurf(
        x.ravel(),
        y.ravel(),
        z.ravel(),
        triangles=triangles,
        cmap="cividis",
        linewidth=0,
        antialiased=False,
        rasterized=True,
    )
    heights = z.ravel()[triangles]
    drawn.set_array(
        (heights.min(1) + heights.max(1)) / 2
    )  # the mean of three corners would stripe a cliff
    axis.view_init(*view)
    axis.set_title(title, fontsize=10, y=0.99)
    axis.set(
        xlabel="X",
        ylabel="Y",
        xticks=[-15, -5, 5],
        yticks=[-15, -5, 5],
        zlim=(min(0.0, z.min()), max(z.max(), 0.5)),
    )
    low, high = np.ceil(z.min()), max(1, np.floor(z.max()))
    ticks = np.arange(0, high + 1, max(1, np.ceil((high - low) / 4)))
    ticks = np.concatenate([-ticks[1:][ticks[1:] <= -low], ticks])
    axis.set_zticks(
        ticks, ["0" if t == 0 else f"{'−' if t < 0 else ''}$10^{{{abs(t):.0f}}}$" for t in ticks]
    )
    axis.tick_params(labelsize=8, pad=0)


def graph(node, size=12.0):
    """A figure of one formula alone."""
    wide, high = height(node) + 1.0, ROW * leaves(node) + 0.3
    figure, axis = plt.subplots(figsize=(0.95 * wide, 0.95 * high))
    formula(axis, node, size=size)
    axis.set(xlim=(-0.5, wide - 0.5), ylim=(-high / 2, high / 2), aspect="equal")
    axis.axis("off")
    return figure
