"""This module computes the surfaces of EfficientBERT's Figure 5 (section 4.6).

They show what a network's feed-forward part does to the plane. The paper's recipe: two
input channels on a square of -15 to 5, attention left out, weights 1, biases 0,
LayerNorm "replaced by the simple average", z the mean output of the last layer. What
that leaves open is a `Recipe`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lib.model.formula import LINEAR, NUMPY, evaluate
from lib.papers.efficientbert.search.net import Net

CHANNELS = 2
# Largest magnitude of a value: the product of two, or a GELU's third power, is finite.
LIMIT = 1e90


@dataclass(frozen=True)
class Recipe:
    """A Recipe settles the points that Figure 5 leaves open."""

    # Stand-in for LayerNorm: "pair", (h + f) / 2, or "channels", the mean over both
    # channels.
    average: str = "pair"
    residual: bool = True  # Whether f(h) is added to h; without it f(h) is the output.
    # Inner channels are "whole", max(1, int(D / q)), since int(2 / q) is 0 for q > 2,
    # or they are "real", D / q.
    width: str = "whole"
    points: int = 121  # Number of points on each axis.
    low: float = -15.0
    high: float = 5.0


def clip_to_limit(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -LIMIT, LIMIT)


def _make_linear_maps(
    inner_size: float, real_width: str
) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return the linear maps with weights 1.

    A real width e keeps both channels, each with weight e / 2.
    """

    def make_repeated_sum(
        repeat_count: int, factor: float = 1.0
    ) -> Callable[[np.ndarray], np.ndarray]:
        return lambda a: np.repeat(
            clip_to_limit(factor * a.sum(-1, keepdims=True)), repeat_count, -1
        )

    if real_width == "whole":
        up, down = (
            make_repeated_sum(max(1, int(inner_size))),
            make_repeated_sum(CHANNELS),
        )
    else:
        up, down = (
            make_repeated_sum(CHANNELS),
            make_repeated_sum(CHANNELS, inner_size / CHANNELS),
        )
    return dict.fromkeys(LINEAR, up) | {"W2": down}


def compute_surface(
    net: Net, recipe: Recipe | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (axis, z) of a network: coordinates [points] and mean output [points,
    points].

    Rows of z lie along the second input. Magnitudes end at LIMIT. The result is
    deterministic and in float64."""
    recipe = recipe or Recipe()
    axis = np.linspace(recipe.low, recipe.high, recipe.points)
    h = np.stack(np.meshgrid(axis, axis), -1)
    functions = NUMPY | {"mul": lambda a, b: clip_to_limit(a * b)}
    for layer in net.layers:
        linears = _make_linear_maps(
            CHANNELS * net.width / net.hidden / layer.q, recipe.width
        )
        for _ in range(layer.stack):
            f = evaluate(layer.tree, h, linears, functions, net.mismatch)
            both = h + f if recipe.residual else f
            if recipe.average == "channels":
                h = np.repeat(both.mean(-1, keepdims=True), CHANNELS, -1)
            else:
                h = both / 2 if recipe.residual else f
            h = clip_to_limit(h)
    return axis, h.mean(-1)


def scale_by_symlog(heights: np.ndarray) -> np.ndarray:
    """Return arcsinh(z / 2) / ln 10.

    It is straight around 0 and decades further out: 3 is 1000 and -3 is -1000.
    """
    return np.arcsinh(heights / 2) / np.log(10)


def measure_roughness(heights: np.ndarray) -> dict[str, float]:
    """Return how uneven a surface is, with z and both axes scaled to 0 to 1.

    "variation" is the mean over all lines parallel to an axis of the way up and down;
    it is 1 if each climbs the whole range. "steepest" is the greatest slope along an
    axis, 1 for a plane along it. "curvature" is the mean absolute second derivative
    along the axes, 0 for a plane. All are 0 for a constant."""
    low, high = heights.min(), heights.max()
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
