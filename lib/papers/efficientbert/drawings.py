"""This module draws EfficientBERT's networks layer by layer, and the surfaces of its
formulas."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from mpl_toolkits.mplot3d import Axes3D

from lib.papers.efficientbert.recipes import NETS
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import Space
from lib.papers.efficientbert.search.surface import SurfaceOptions, scale_by_symlog
from lib.papers.efficientbert.search.surface import compute_network_surface as heights
from lib.report import plot

PanelTitle: TypeAlias = str
AxisLabel: TypeAlias = str
DECADES = "z in decades, 3 is 1000"


class ScaledSurface(NamedTuple):
    coordinates: np.ndarray  # [N].
    heights_by_scale: dict[AxisLabel, np.ndarray]  # {label of an axis: z [N, N]}.


def count_changed_layers(net: Net, compared_net: Net) -> int:
    """Return in how many layers two networks of the same depth differ.

    Layers differ in the number of their feed-forward networks, in their share of the
    full inner width, or in their formula, such as "W2 gelu(W1 x)". The count shows how
    much a stage of the architecture search changed. Raises ValueError where the depths
    differ.

    net, compared_net: descriptions of the two networks."""
    return sum(a != b for a, b in zip(net.layers, compared_net.layers, strict=True))


def draw_network(
    axis: Axes, net: Net, title: str = "", compared_net: Net | None = None
) -> None:
    """Draw a network as one bar for each layer, layer 1 at the bottom.

    A bar shows the formula of the layer's feed-forward networks, such as "W2 gelu(W1
    x)", and "k × 1/q": the layer has k of them after each other, with 1/q of the full
    inner width.

    net: description of the network.
    compared_net: a network of the same depth. Differences from it are bold and orange,
    and the title says how many layers differ. None compares nothing."""
    count = len(net.layers)
    if compared_net:
        changed = count_changed_layers(net, compared_net)
        title += f"\n{changed} of {count} layers changed"
    axis.barh(range(1, count + 1), 1, 0.84, color="#f6f7f9", ec=plot.PALE)
    for number, layer in enumerate(net.layers, 1):
        old = compared_net.layers[number - 1] if compared_net else layer
        same_size = (layer.stack, layer.q) == (old.stack, old.q)
        text: dict[str, Any] = {"va": "center", "fontsize": 9}
        marked = text | {"color": plot.VERMILION, "fontweight": "bold"}
        formula = layer.formula
        size = f"{layer.stack} × {layer.inner_width_share_text}"
        axis.text(0.03, number, formula, **text if formula == old.formula else marked)
        axis.text(0.97, number, size, ha="right", **text if same_size else marked)
    axis.set(
        xlim=(0, 1), ylim=(0.5, count + 0.5), xticks=[], yticks=range(1, count + 1)
    )
    axis.set_title(title, fontsize=11, loc="left")
    axis.tick_params(labelsize=9)
    axis.grid(False)
    axis.set_frame_on(False)


def draw_surface(
    axis: Axes3D,
    axis_coordinates: np.ndarray,
    surface_heights: np.ndarray,
    title: str = "",
    elevation_and_azimuth_in_degrees: tuple[float, float] = (28, -125),
) -> None:
    """Draw the output of a network as a surface over its two inputs, on a 3-d axis.

    Such surfaces show how nonlinear the feed-forward networks are (EfficientBERT,
    Figure 5). Heights are scaled to 0 to 1, so that all surfaces have the same axis.

    axis_coordinates: [N], the values of either input.
    surface_heights: outputs z [N, N]; a row has one value of the second input.
    elevation_and_azimuth_in_degrees: elevation and azimuth in degrees."""
    x, y = np.meshgrid(axis_coordinates, axis_coordinates)
    surface_heights = (surface_heights - surface_heights.min()) / (
        np.ptp(surface_heights) or 1
    )
    indices = np.arange(surface_heights.size).reshape(surface_heights.shape)
    a = indices[:-1, :-1]
    b = indices[:-1, 1:]
    c = indices[1:, :-1]
    d = indices[1:, 1:]
    # Each square of the grid is split into two triangles along x + y = constant,
    # because steep edges of these surfaces often run in this direction.
    halves = (a, b, c), (b, c, d)
    triangles = np.concatenate([np.stack(half, -1).reshape(-1, 3) for half in halves])
    drawn = axis.plot_trisurf(
        x.ravel(),
        y.ravel(),
        surface_heights.ravel(),
        triangles=triangles,
        cmap="cividis",
        linewidth=0,
        antialiased=False,
        rasterized=True,
    )
    # A triangle's colour is the middle of its lowest and highest corner. With the mean
    # of the three corners, neighbours on a steep edge would alternate in colour.
    heights = surface_heights.ravel()[triangles]
    drawn.set_array((heights.min(1) + heights.max(1)) / 2)
    axis.view_init(*elevation_and_azimuth_in_degrees)
    axis.set_title(title, fontsize=9, y=0.99)
    ticks = [-15, -5, 5]
    axis.set(
        xlabel="x",
        ylabel="y",
        xticks=ticks,
        yticks=ticks,
        zlim=(0, 1),
        zticks=[0, 0.5, 1],
    )
    axis.set_zlabel("z, share of its range (linear)", fontsize=8)
    axis.tick_params(labelsize=8, pad=0)


def list_networks_of_figure_5(
    seed: int = 0, random_network_count: int = 3
) -> dict[PanelTitle, Net]:
    """Return {title: network} of the six panels of EfficientBERT's Figure 5.

    They are BERT-base, EfficientBERT, the base model from which the search starts, and
    "Random candidate 1" to 3. The paper does not say which random networks it drew.
    Here they are random networks of 15 to 16 million parameters from stage 1 of the
    search, which changes the formulas, such as "W2 gelu(W1 x)", and sizes of all
    feed-forward networks.

    seed: seed of the random networks.
    random_network_count: number of random networks."""
    space = Space("stage1", NETS["Base Model"], 15_000_000, 16_000_000)
    rng = np.random.default_rng(seed)
    panels = {
        "BERT-base": NETS["BERT_BASE"],
        "EfficientBERT": NETS["EfficientBERT"],
        "Base model": NETS["Base Model"],
    }
    for number in range(1, random_network_count + 1):
        panels[f"Random candidate {number}"] = space.sample_candidate(rng)
    return panels


def compute_network_surfaces_of_figure_5(
    points_per_axis: int,
) -> dict[PanelTitle, ScaledSurface]:
    """Return {title of the panel: surface} for EfficientBERT's Figure 5.

    A surface is the output z of a network's last layer, averaged over channels, as a
    function of two inputs. It shows how nonlinear the network is. A ScaledSurface has
    the `coordinates` [N] of either input, and `heights_by_scale`: {label of the axis,
    such as "linear z": z [N, N]}, on a linear and on a logarithmic scale.

    points_per_axis: N."""
    by_name = {}
    for name, net in list_networks_of_figure_5().items():
        line, z = heights(net, SurfaceOptions(points=points_per_axis))
        by_name[name] = ScaledSurface(
            line, {"linear z": z, DECADES: scale_by_symlog(z)}
        )
    return by_name
