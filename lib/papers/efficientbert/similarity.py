"""This module measures how similar two sets of hidden states, or of attention maps,
are."""

import numpy as np

TINY = 1e-12  # Smaller probabilities are raised to it, so that logarithms are finite.


def compute_kl_divergence(
    first_distribution: np.ndarray, second_distribution: np.ndarray
) -> np.ndarray:
    """Return KL(first || second) in nats, a distance of attention maps.

    Both arrays are probabilities [..., T] that sum to 1 over the last axis; the result
    is [...]. Probabilities below 1e-12 are raised to it, so that the result is
    finite."""
    first_distribution, second_distribution = (
        np.maximum(x.astype(np.float64), TINY)
        for x in (first_distribution, second_distribution)
    )
    return (first_distribution * np.log(first_distribution / second_distribution)).sum(
        -1
    )


def compute_cka(model_states: np.ndarray, reference_states: np.ndarray) -> float:
    """Return the linear centred kernel alignment (CKA) of two sets of hidden states.

    It measures how similar the states [N, H] of two models are on the same N inputs;
    the two widths H may differ. It is in [0, 1], and 1 for sets that are equal up to
    rotation, scale and shift. It is biased upwards unless N is far above H (Kornblith
    et al. 2019)."""
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
