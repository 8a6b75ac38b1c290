"""This module computes the surfaces of EfficientBERT's Figure 5 (section 4.6).

A surface is the output of a network as a function of two inputs. It shows how nonlinear
the feed-forward networks are. The paper's recipe: two input channels on a square of -15
to 5, no attention, all weights 1, biases 0, "the simple average operation" in place of
LayerNorm, z the mean output of the last layer. The settings in `SurfaceOptions` say
what the paper leaves open."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from lib.model.formula import LINEAR, NUMPY, evaluate_formula_tree
from lib.papers.efficientbert.search.net import Net

RoughnessMeasure: TypeAlias = Literal["variation", "steepest", "curvature"]
Roughness = dict[
    RoughnessMeasure, float
]  # {"variation", "steepest", "curvature": value}.
CHANNELS = 2
# Values are cut at this magnitude, so that a product of two values, or the third power
# in a GELU, does not overflow.
LIMIT = 1e90


class Surface(NamedTuple):
    coordinates: np.ndarray  # [points].
    heights: np.ndarray  # [points, points].


@dataclass(frozen=True)
class SurfaceOptions:
    """A SurfaceOptions says how a surface of Figure 5 is computed where the paper is
    silent.

    A surface is the output of a network as a function of two inputs, with all weights 1
    (EfficientBERT, section 4.6).

    average: what replaces LayerNorm: "pair", the mean of input and output of a
    feed-forward network (without `residual`, its output), or "channels", the mean over
    the two channels.
    residual: whether the result of a feed-forward network f is h + f(h), or f(h) alone.
    width: number of inner channels of a layer with 1/q of the full inner width D:
    "real" is D / q, maybe a fraction. "whole" is int(D / q), but at least 1, as it
    would be 0 for D = 2 and q > 2.
    points: number of points on each axis.
    low, high: ends of both axes, by default the paper's."""

    average: Literal["pair", "channels"] = "pair"
    residual: bool = True
    width: Literal["whole", "real"] = "whole"
    points: int = 121
    low: float = -15.0
    high: float = 5.0


def clip_to_avoid_overflow(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -LIMIT, LIMIT)


def _make_linear_maps_of_unit_weights(
    inner_channel_count: float, inner_width_rounding: Literal["whole", "real"]
) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return the two linear maps of a feed-forward network whose weights are all 1.

    They are {"W1": f, "W2": f}, with f(values [..., input channels]) -> [..., output
    channels]. Each output channel is the sum of all input channels.

    inner_channel_count: number of inner channels e, maybe a fraction.
    inner_width_rounding: "whole" gives W1 max(1, int(e)) output channels. With "real"
    W1 has two, and W2 multiplies the sum by e / 2, which allows a fraction. W2 always
    has two."""

    def make_equal_weight_linear_map(
        output_channel_count: int, shared_weight: float
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a linear map with equal weights.

        It is f(values [..., C]) -> [..., output_channel_count]. Each output channel is
        the sum over the C input channels times `shared_weight`."""
        return lambda a: np.repeat(
            clip_to_avoid_overflow(shared_weight * a.sum(-1, keepdims=True)),
            output_channel_count,
            -1,
        )

    channels = CHANNELS
    weight = inner_channel_count / CHANNELS
    if inner_width_rounding == "whole":
        channels = max(1, int(inner_channel_count))
        weight = 1.0
    up = make_equal_weight_linear_map(channels, 1.0)
    down = make_equal_weight_linear_map(CHANNELS, weight)
    return dict.fromkeys(LINEAR, up) | {"W2": down}


def compute_network_surface(net: Net, surface_options: SurfaceOptions) -> Surface:
    """Return the output of a network with all weights 1 as a function of two inputs.

    The surface shows how nonlinear the feed-forward networks are (EfficientBERT,
    section 4.6 and Figure 5). There is no attention. The result has the `coordinates`
    [N] of either input and `heights` [N, N], the outputs averaged over channels, in
    float64. A row of heights has one value of the second input. Magnitudes are cut at
    1e90, so that nothing overflows.

    net: description of the network, with the formula and size of each layer.
    surface_options: what the paper leaves open, such as what replaces LayerNorm."""
    axis = np.linspace(
        surface_options.low, surface_options.high, surface_options.points
    )
    h = np.stack(np.meshgrid(axis, axis), -1)
    functions = NUMPY | {"mul": lambda a, b: clip_to_avoid_overflow(a * b)}
    for layer in net.layers:
        linears = _make_linear_maps_of_unit_weights(
            CHANNELS * net.width / net.hidden / layer.q, surface_options.width
        )
        for _ in range(layer.stack):
            f = evaluate_formula_tree(
                layer.formula_tree, h, linears, functions, net.mismatch
            )
            both = h + f if surface_options.residual else f
            if surface_options.average == "channels":
                h = np.repeat(both.mean(-1, keepdims=True), CHANNELS, -1)
            else:
                h = both / 2 if surface_options.residual else f
            h = clip_to_avoid_overflow(h)
    return Surface(axis, h.mean(-1))


def scale_by_symlog(heights: np.ndarray) -> np.ndarray:
    """Return heights on a logarithmic scale that has a sign, for plots.

    The value is arcsinh(z / 2) / ln 10. It is linear near 0 and counts decades further
    out: about 3 at 1000 and -3 at -1000. So surfaces of very different size can be
    drawn.

    heights: z, an array of any shape."""
    return np.arcsinh(heights / 2) / np.log(10)


def measure_roughness(heights: np.ndarray) -> Roughness:
    """Return three measures of how uneven a surface is, all 0 for a constant one.

    By them the surfaces of networks are compared. Heights and both axes are scaled to 0
    to 1 first. "variation" is the total variation along a line parallel to an axis,
    averaged over all lines; it is 1 if each line climbs the whole range once.
    "steepest" is the largest slope along an axis; it is 1 for a plane that rises along
    it. "curvature" is the mean absolute second derivative along the axes; it is 0 for a
    plane.

    heights: z [N, N] at N x N points with equal distances."""
    low = heights.min()
    high = heights.max()
    if not high > low:
        return {"variation": 0.0, "steepest": 0.0, "curvature": 0.0}
    steps = [np.diff(heights / (high - low), axis=axis) for axis in (0, 1)]
    bends = [np.abs(np.diff(s, axis=axis)).mean() for axis, s in enumerate(steps)]
    cells = heights.shape[0] - 1
    return {
        "variation": float(
            np.mean([np.abs(s).sum(axis).mean() for axis, s in enumerate(steps)])
        ),
        "steepest": float(max(np.abs(s).max() for s in steps) * cells),
        "curvature": float(np.mean(bends) * cells**2),
    }
