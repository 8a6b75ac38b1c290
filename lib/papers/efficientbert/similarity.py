"""This module measures how similar two sets of states or of attention maps are.

It is free of torch.
"""

import numpy as np

TINY = 1e-12  # Smallest probability in a logarithm; smaller ones are raised to it.


def compute_kl_divergence(
    distribution: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Return KL(distribution || reference) [...] in nats of distributions [..., T]
    along the last axis."""
    distribution, reference = (
        np.maximum(x.astype(np.float64), TINY) for x in (distribution, reference)
    )
    return (distribution * np.log(distribution / reference)).sum(-1)


def compute_cka(model_states: np.ndarray, reference_states: np.ndarray) -> float:
    """Return the linear centred kernel alignment of two sets of states [n, H], in [0,
    1].

    It is 1 for sets that are equal up to rotation, scale and shift. It is biased
    upwards where n is not far above H (Kornblith et al. 2019)."""
    model_states, reference_states = (
        states.astype(np.float64) - states.mean(0, dtype=np.float64)
        for states in (model_states, reference_states)
    )
    return float(
        np.linalg.norm(model_states.T @ reference_states) ** 2
        / (
            np.linalg.norm(model_states.T @ model_states)
            * np.linalg.norm(reference_states.T @ reference_states)
        )
    )
