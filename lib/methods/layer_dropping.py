"""Layers at equal steps stay whole, and the others go, as DistilBERT begins (Sanh et
al. 2019).

It is the simplest control of all: it has no importance, no search and no new parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def keep(
    shape: Any, share: float
) -> tuple[list[tuple[int, int]], dict[str, list[int]]]:
    """Return ([(heads, neurons)] of the layers that stay, {"layers": their numbers}).

    So many layers stay as the divisor of L that is nearest to share * L, so that each
    matches a layer of the teacher. They are the last layer and those at equal steps
    before it."""
    total = shape.layers
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    number = min(divisors, key=lambda n: (abs(n - share * total), -n))
    step = total // number
    return [(shape.heads, shape.ffn)] * number, {
        "layers": list(range(step - 1, total, step))
    }


def change(model: PreTrainedModel, layers: list[int]) -> dict[str, int]:
    """Remove all layers of a model but those with the numbers `layers`. Returns
    {"layers": how many stay}.

    Raises ValueError for a list that is empty, is not rising, or names a layer that the
    model does not have."""
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
