"""Figure 5's surfaces against closed forms and the recipe's known ranges."""

import numpy as np
import pytest

from lib.model.formula import NUMPY
from lib.papers.efficientbert.recipes import NETS
from lib.papers.efficientbert.search.net import Layer, Net
from lib.papers.efficientbert.search.surface import (
    LIMIT,
    SurfaceOptions,
    compute_network_surface,
    measure_roughness,
    scale_by_symlog,
)

SMALL = {"points": 41}


def one(formula, q=1, stack=1, width=540, layers=1):
    return Net(
        540, width, 12, "trigram", "truncate", (Layer(formula, stack, q),) * layers
    )


def plane(recipe):
    grid = np.linspace(recipe.low, recipe.high, recipe.points)
    return np.meshgrid(grid, grid)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def z_of(net, **choices):
    """The surface of a net under the recipe with these choices."""
    return compute_network_surface(net, SurfaceOptions(**SMALL | choices))[1]


def test_one_layer_by_hand():
    x, y = plane(SurfaceOptions(**SMALL))
    bert, f = one("W2 gelu(W1 x)"), 2 * NUMPY["gelu"](x + y)  # two inner channels
    close(z_of(bert), ((x + y) / 2 + f) / 2)
    close(z_of(bert, residual=False), f)
    close(z_of(bert, average="channels"), (x + y) / 2 + f)
    close(z_of(one("W2 gelu(W1 x)", width=2160)), ((x + y) / 2 + 4 * f) / 2)


@pytest.mark.parametrize("width, gain", [("whole", 1.0), ("real", 0.5)])
def test_a_width_below_1(width, gain):
    """2 / q is 1/2 for q = 4: at least one channel, or half of one."""
    x, y = plane(SurfaceOptions(**SMALL))
    close(
        z_of(one("W2 tanh(W1 x)", 4), width=width, residual=False),
        gain * np.tanh(x + y),
    )


def test_truncation_keeps_the_first_channel():
    x, y = plane(SurfaceOptions(**SMALL))
    net, first, second = (
        one("W2 tanh(W1 x * x)", 2),
        *(np.tanh((x + y) * c) for c in (x, y)),
    )
    close(z_of(net, width="whole", residual=False), first)
    close(z_of(net, width="real", residual=False), (first + second) / 2)


@pytest.mark.parametrize(
    "name, average, low, high",
    [
        ("BERT_BASE", "pair", -0.768, 7.11e11),
        ("EfficientBERT", "pair", 0.0337, 229),
        ("Base Model", "pair", -0.417, 1.22e3),
        ("BERT_BASE", "channels", -15, 2.91e15),
        ("Base Model", "channels", -15, 7.81e4),
    ],
)
def test_ranges_worked_out_apart(name, average, low, high):
    grid, z = compute_network_surface(
        NETS[name], SurfaceOptions(average=average, points=81)
    )
    assert (grid[0], grid[-1], z.shape) == (-15, 5, (81, 81))
    np.testing.assert_allclose([z.min(), z.max()], [low, high], rtol=5e-3)
    np.testing.assert_array_equal(
        z,
        compute_network_surface(NETS[name], SurfaceOptions(average=average, points=81))[
            1
        ],
    )


@pytest.mark.parametrize(
    "formula",
    [
        "W2 ((x * W1 x) * (x * max(x * tanh(x), x)))",
        "W2 (elu(W1 x) * x) + x * sigmoid(x)",
    ],
)
def test_nothing_overflows(formula):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for average, width in (("pair", "whole"), ("channels", "real")):
            deep = one(formula, stack=4, layers=12)
            z = z_of(deep, average=average, width=width, points=21)
            assert np.isfinite(z).all() and np.abs(z).max() <= LIMIT
            for drawn in (scale_by_symlog(z), z):
                assert np.isfinite(list(measure_roughness(drawn).values())).all()


def test_roughness_of_known_shapes():
    x, y = plane(SurfaceOptions(low=0, high=1, points=51))
    assert measure_roughness(0 * x) == {"variation": 0, "steepest": 0, "curvature": 0}
    assert measure_roughness(7 * x - 3) == pytest.approx(
        {"variation": 0.5, "steepest": 1, "curvature": 0}, abs=1e-9
    )
    assert measure_roughness(x * x + y * y) == pytest.approx(
        {"variation": 0.5, "steepest": 0.99, "curvature": 1}, abs=1e-9
    )
    wave = measure_roughness(np.sin(4 * np.pi * (x + 1 / 8)))
    assert wave["variation"] == pytest.approx(2, abs=0.01) and wave["curvature"] > 10
    step = measure_roughness((x > 0.5).astype(float))
    assert step["steepest"] == 50 and step["variation"] == 0.5
    z = z_of(NETS["EfficientBERT"])
    assert measure_roughness(z) == pytest.approx(measure_roughness(-1e5 * z.T + 4))


def test_the_scale_of_z():
    z = np.array([-1e30, -1000, -1e-3, 0, 1e-3, 10, 1000, 1e90])
    small = 1e-3 / 2 / np.log(10)
    assert scale_by_symlog(z) == pytest.approx(
        [-30, -3, -small, 0, small, 1, 3, 90], rel=5e-3
    )
