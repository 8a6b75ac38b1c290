"""A ghost feature of a small signal in NumPy, to look at: what `lib.model.ghost` makes of features.

x [T, C]: T tokens, C channels; taps outside the signal see zeros. Weights: "dwconv" [C, k],
"conv1d_s" [C, C, k], "conv1d_f" [T, T, k], "conv2d" [k, k] (GhostBERT section 4.1).
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def convolve(x, kind, weight):
    """The convolution of x [T, C] by a kind, [T, C]."""
    if kind == "conv1d_f":
        return convolve(x.T, "conv1d_s", weight).T
    taps = weight.shape[-1]
    ends = (taps // 2, taps // 2)
    if kind == "conv2d":
        return np.einsum("tcij,ij->tc", sliding_window_view(np.pad(x, ends), (taps, taps)), weight)
    windows = sliding_window_view(np.pad(x, (ends, (0, 0))), taps, axis=0)  # [T, C, k]
    return np.einsum("tck,ck->tc" if kind == "dwconv" else "tck,dck->td", windows, weight)


def softmax(raw, kind):
    """Weights that come to 1 where one output sums them.

    These are the taps, or all inputs and taps of a kind that mixes channels.
    """
    axes = -1 if kind == "dwconv" else (-2, -1)
    powers = np.exp(raw - raw.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


def example(kind, taps, spread, tokens=24, channels=4):
    """(a signal [T, C] of waves and noise, its ghost ReLU(conv(x)) by softmaxed weights).

    The weights are drawn with a standard deviation of `spread`; 0 gives a plain mean.
    """
    random = np.random.default_rng(0)
    waves = np.sin(np.arange(tokens)[:, None] * 2 * np.pi / (4.0 + 4.0 * np.arange(channels)))
    x = waves + 0.4 * random.normal(size=(tokens, channels))
    size = {
        "dwconv": (channels, taps),
        "conv1d_s": (channels, channels, taps),
        "conv1d_f": (tokens, tokens, taps),
        "conv2d": (taps, taps),
    }[kind]
    return x, np.maximum(convolve(x, kind, softmax(spread * random.normal(size=size), kind)), 0.0)
