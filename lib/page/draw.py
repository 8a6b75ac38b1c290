"""Drawings of EfficientBERT's networks: formulas as graphs, architectures, surfaces.

Each kind of operation has a shape of its own, so that colour alone tells nothing.
"""

import numpy as np
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import MaxNLocator

from lib.model.formula import BINARY, LINEAR, height, walk
from lib.page import plot

LOOKS = {  # of each kind of operation: fill, colour of its text, box, marker in the legend
    "input x": ("white", plot.INK, "circle", "o"),
    "linear map": (plot.BLUE, "white", "square", "s"),
    "activation": ("#F5C96B", plot.INK, "round,rounding_size=0.7", "H"),
    "binary": (plot.GREEN, "white", "circle", "o"),
}
SIGN = {"add": "+", "mul": "×", "leaky_relu": "leaky\nrelu"}
SIGN |= {name: f"${name[0]}_{name[1]}$" for name in LINEAR}
ROW = 0.42  # between operands; operations stand 1 apart


def kind(op):
    """Return the kind of an operation, one of LOOKS."""
    kinds = {"x": "input x"} | dict.fromkeys(LINEAR, "linear map") | dict.fromkeys(BINARY, "binary")
    return kinds.get(op, "activation")


def leaves(node):
    """Return how often the input is used: the rows that a drawing has."""
    return sum(n.op == "x" for n in walk(node))


def placed(node):
    """Return where a formula's operations stand: ([(op, column, row)], [edges]).

    An edge is a list of (column, row) points. The input is one node in column 0. An operation
    stands right of its operands. Rows are centred on 0.
    """
    nodes, edges = [("x", 0, 0.0)], []
    rows = iter(np.arange(leaves(node)) - (leaves(node) - 1) / 2)

    def put(n):
        if n.op == "x":
            return 0, next(rows)
        column, points = height(n), [put(child) for child in n.args]
        row = float(np.mean([r for _, r in points]))
        nodes.append((n.op, column, row))
        for c, r in points:
            start = (c, r) if c else (0, 0.0)  # all x are one node
            edges.append([start, *[(column - 1, r)] * (c < column - 1), (column, row)])
        return column, row

    put(node)
    return nodes, edges


def formula(axis, node, x=0.0, y=0.0, size=8.0):
    """Draw a formula from left to right, its input at (x, y)."""
    nodes, edges = placed(node)
    for line in edges:
        columns, rows = np.transpose(line)
        axis.plot(x + columns, y - ROW * rows, color=plot.GREY, lw=1.2, zorder=1)
    for op, column, row in nodes:
        fill, ink, shape, _ = LOOKS[kind(op)]
        word = {"color": ink, "fontsize": size * (0.75 if op in ("leaky_relu", "max") else 1.0)}
        word |= {"linespacing": 0.85, "bbox": dict(boxstyle=shape, fc=fill, ec=plot.INK, lw=0.7)}
        axis.text(x + column, y - ROW * row, SIGN.get(op, op), **plot.CENTRE | word)


def network(axis, net, title="", before=None, size=8.0):
    """Draw a network from layer 1 at the bottom.

    What differs from the network `before` is in vermilion. Beside a layer stands how many networks
    it stacks, and their size as a ratio.
    """
    right, y = max(5, *(height(layer.tree) for layer in net.layers)), 0.0
    for number, layer in enumerate(net.layers):
        old = before.layers[number] if before else layer
        half = 0.42 + ROW * max(0, leaves(layer.tree) - 2) / 2
        y += half
        new_formula = layer.formula != old.formula
        frame = {"lw": 1.4, "ec": plot.VERMILION} if new_formula else {"lw": 0.6, "ec": plot.PALE}
        round_ = "round,pad=0.02,rounding_size=0.1"
        place = (-0.45, y - half), right + 2.1, 2 * half
        axis.add_patch(FancyBboxPatch(*place, round_, fc="#f6f7f9", zorder=0, **frame))
        formula(axis, layer.tree, 0.0, y, size)
        new_size = (layer.stack, layer.q) != (old.stack, old.q)
        look = {"color": plot.VERMILION, "fontweight": "bold"} if new_size else {}
        text = {"ha": "center", "va": "center", "fontsize": size}
        axis.text(-0.75, y, str(number + 1), color=plot.GREY, **text)
        axis.text(right + 0.95, y, f"{layer.stack} × {layer.ratio}", **text | look)
        y += half + 0.16
    axis.set(xlim=(-1.1, right + 1.8), ylim=(-0.1, y - 0.06), aspect="equal")
    axis.set_title(title, fontsize=size + 2, loc="left")
    axis.axis("off")


def legend(figure):
    """The kinds of operations, and what vermilion means, below a figure of networks."""
    axis = figure.axes[0]
    for name, (fill, _, _, marker) in LOOKS.items():
        axis.plot([], [], marker, ms=10, mfc=fill, mec=plot.INK, label=name)
    axis.plot([], [], color=plot.VERMILION, lw=2, label="changed against the panel before")
    plot.legend(figure, columns=3, frameon=False)


def surface(axis, grid, z, title="", view=(28, -125)):
    """Draw a surface of Figure 5 on a 3-d axis; z as `lib.search.surface.symlog` gives it, ticks as
    plain numbers.
    """
    x, y = np.meshgrid(grid, grid)
    at = np.arange(z.size).reshape(z.shape)
    a, b, c, d = at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]
    halves = (a, b, c), (b, c, d)  # cut along x + y = constant, as cliffs often are
    triangles = np.concatenate([np.stack(half, -1).reshape(-1, 3) for half in halves])
    look = {"cmap": "cividis", "linewidth": 0, "antialiased": False, "rasterized": True}
    drawn = axis.plot_trisurf(x.ravel(), y.ravel(), z.ravel(), triangles=triangles, **look)
    heights = z.ravel()[triangles]  # the mean of three corners would stripe a cliff
    drawn.set_array((heights.min(1) + heights.max(1)) / 2)
    axis.view_init(*view)
    axis.set_title(title, fontsize=10, y=0.99)
    ends, ticks = (min(0.0, z.min()), max(z.max(), 0.5)), [-15, -5, 5]
    axis.set(xlabel="X", ylabel="Y", xticks=ticks, yticks=ticks, zlim=ends)
    axis.zaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.zaxis.set_major_formatter(
        lambda t, _: f"${'-' * bool(t < 0)}10^{{{abs(t):g}}}$" if t else "0"
    )
    axis.tick_params(labelsize=8, pad=0)
