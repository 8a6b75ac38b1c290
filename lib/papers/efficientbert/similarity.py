"""This module measures how similar two sets of states or of attention maps are.

It is free of torch.
"""

import numpy as np

TINY = 1e-12  # Smallest probability in a logarithm; smaller ones are raised to it.


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return KL(p || q) [...] in nats of distributions [..., T] along the last axis."""
    p, q = (np.maximum(x.astype(np.float64), TINY) for x in (p, q))
    return (p * np.log(p / q)).sum(-1)


def cka(x: np.ndarray, y: np.ndarray) -> float:
    """Return the linear centred kernel alignment of two sets of states [n, H], in [0,
    1].

    It is 1 for sets that are equal up to rotation, scale and shift. It is biased
    upwards where n is not far above H (Kornblith et al. 2019)."""
    x, y = (
        states.astype(np.float64) - states.mean(0, dtype=np.float64)
        for states in (x, y)
    )
    return float(
        np.linalg.norm(x.T @ y) ** 2
        / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    )
