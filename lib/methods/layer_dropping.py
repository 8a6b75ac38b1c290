"""This method keeps whole layers at equal steps and removes the others, as DistilBERT
does to initialise its student (Sanh et al. 2019).

It is the simplest control: it has no importance scores, no search and no new parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lib.methods import EncoderSizes, LayerSizesAndPruneArguments

    KeptLayerIndices = list[int]
    CountByMetric = dict[str, int]


def plan_pruning(
    encoder_shape: EncoderSizes, kept_flops_share: float
) -> LayerSizesAndPruneArguments:
    """Choose which whole layers of an encoder to keep for a share of its FLOPs.

    Return ([(heads, neurons) of each remaining layer], {"layers": indices of the
    remaining layers}). The dict has the arguments of `prune`; FLOPs are counted from
    the list. The number of remaining layers is the divisor of L nearest to
    kept_flops_share * L, so that they lie at equal steps and each has a teacher's layer
    to match. The last layer always stays.

    encoder_shape: an object with `layers` L, `heads` and `ffn` (neurons of a layer).
    kept_flops_share: the share of the encoder's FLOPs to keep, from 0 to 1."""
    total = encoder_shape.layers
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    number = min(divisors, key=lambda n: (abs(n - kept_flops_share * total), -n))
    step = total // number
    return [(encoder_shape.heads, encoder_shape.ffn)] * number, {
        "layers": list(range(step - 1, total, step))
    }


def prune(model: PreTrainedModel, layers: KeptLayerIndices) -> CountByMetric:
    """Remove whole layers of an encoder in place, and keep the given ones.

    DistilBERT's student is initialised in this way. Return {"layers": how many layers
    remain}. Raises ValueError for a list that is empty, not rising, or has an index
    that is no layer of the model.

    layers: the indices of the layers that remain."""
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
