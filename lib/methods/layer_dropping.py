"""Layers at equal steps stay whole, and the others are removed, as at the start of
DistilBERT (Sanh et al. 2019).

It is the simplest control: it has no importance scores, no search and no new parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def keep(
    shape: Any, share: float
) -> tuple[list[tuple[int, int]], dict[str, list[int]]]:
    """Return ([(heads, neurons)] of the layers that stay, {"layers": their numbers}).

    The number of layers that stay is the divisor of L nearest to share * L, so that
    they lie at equal steps and each has a teacher's layer to match. The last layer
    stays, and those at equal steps before it.

    shape: shape of the model, with `layers`, `heads` and `ffn`.
    share: share of the model's FLOPs, from 0 to 1."""
    total = shape.layers
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    number = min(divisors, key=lambda n: (abs(n - share * total), -n))
    step = total // number
    return [(shape.heads, shape.ffn)] * number, {
        "layers": list(range(step - 1, total, step))
    }


def change(model: PreTrainedModel, layers: list[int]) -> dict[str, int]:
    """Remove all layers of a model but those with the numbers `layers`, and return
    {"layers": the number that stay}.

    Raises ValueError for a list that is empty, is not rising, or has a number that is
    no layer of the model."""
    from torch import nn

    encoder: Any = model.base_model.encoder
    total = len(encoder.layer)
    if (
        not layers
        or sorted(set(layers)) != layers
        or not 0 <= layers[0] <= layers[-1] < total
    ):
        allowed = f"give numbers from 0 to {total - 1}, rising"
        raise ValueError(f"layer_dropping keeps the layers {layers}: {allowed}")
    encoder.layer = nn.ModuleList(encoder.layer[i] for i in layers)
    return {"layers": len(layers)}
