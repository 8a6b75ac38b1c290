"""This method keeps whole layers at equal steps and removes the others, as DistilBERT
does to initialise its student (Sanh et al. 2019).

It is the simplest control: it has no importance scores, no search and no new parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lib.methods import PruningPlan


def plan_pruning(encoder_shape: Any, flops_share: float) -> PruningPlan:
    """Return ([(heads, neurons) of each remaining layer], {"layers": their numbers}).

    The number of remaining layers is the divisor of L nearest to flops_share * L, so
    that they lie at equal steps and each has a teacher's layer to match. The last layer
    stays.

    encoder_shape: the encoder's sizes, with `layers` L, `heads` and `ffn` (neurons).
    flops_share: share of the model's FLOPs to keep, from 0 to 1."""
    total = encoder_shape.layers
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    number = min(divisors, key=lambda n: (abs(n - flops_share * total), -n))
    step = total // number
    return [(encoder_shape.heads, encoder_shape.ffn)] * number, {
        "layers": list(range(step - 1, total, step))
    }


def prune(model: PreTrainedModel, layers: list[int]) -> dict[str, int]:
    """Remove all layers of a model but some, and return {"layers": the number that
    remain}.

    Raises ValueError for a list that is empty, is not rising, or has a number that is
    no layer of the model.

    layers: the numbers of the layers that remain, from 0."""
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
