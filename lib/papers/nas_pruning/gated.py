"""This module has the cost of an encoder with gates, by the report's convention.

It is free of torch. Batch 1, T = 128 tokens, one multiply-add is two FLOPs. Counted are
the matrix products: queries, keys, values, output projection, scores, weighted sum,
both feed-forward products, and the pooler on one token. Not counted are embeddings,
biases, softmax, LayerNorm, GELU and classifier. Letters: H hidden, A heads, D head
size, F neurons, L layers.

Every mask enters as a factor, so a width is a sum of masks. Soft masks give the
expected cost E, masks of zeros and ones the actual cost F. The report's "original"
sizes are expected costs at the start of a search, where each mask is sigmoid(5). Its
BERT-Mini is not searched and is counted whole. Widths may be numbers, arrays or
tensors."""

import math

from lib.core.options import START
from lib.stats.cost import SHAPES, Shape
from lib.stats.cost import count_flops_of_layer as layer
from lib.stats.cost import count_flops_of_layers as flops
from lib.stats.cost import count_widths_by_layer as count_widths_by_layer

TOKENS = 128
# Mask of an open gate at the start of a search: sigmoid(5) = 0.9933.
OPEN = 1 / (1 + math.exp(-START))
KEPT = 0.99  # Mask above which a gate counts as on.

# {name: (shape, mask, GFLOPs that the report prints)}
REPORTED = {
    "TinyBERT-4L": (SHAPES["tinybert-4"], OPEN, 1.239),
    "TinyBERT-6L": (SHAPES["tinybert-6"], OPEN, 11.100),
    "BERT-base": (SHAPES["bert-base"], OPEN, 22.199),
    "BERT-Mini": (SHAPES["bert-mini"], 1.0, 0.873),
}


def masked_flops(
    shape: Shape, mask_value: float = 1.0, token_count: int = TOKENS
) -> float:
    """Return the FLOPs of a model of a Shape whose heads and neurons all have one
    mask."""
    width = {"heads": mask_value * shape.heads, "ffn": mask_value * shape.ffn}
    return flops(
        shape.hidden, shape.hidden // shape.heads, [width] * shape.layers, token_count
    )


def count_head_flops(
    hidden_size: int, head_size: int, token_count: int = TOKENS
) -> int:
    """Return the FLOPs of one head: 8 T H D + 4 T T D. head_size: D."""
    return layer(hidden_size, hidden_size, head_size, head_size, 0, token_count)


def count_neuron_flops(hidden_size: int, token_count: int = TOKENS) -> int:
    """Return the FLOPs of one feed-forward neuron: 4 T H."""
    return layer(hidden_size, hidden_size, 0, 0, 1, token_count)


def shares(shape: Shape, token_count: int = TOKENS) -> dict[str, float]:
    """Return {part: its share of the whole model's FLOPs} (section 7.2).

    The parts are "projections", "attention products", "feed-forward" and "pooler".
    """
    h, layers = shape.hidden, shape.layers
    parts = {
        "projections": layers
        * (layer(h, h, h, h, 0, token_count) - 4 * token_count**2 * h),
        "attention products": layers * 4 * token_count**2 * h,
        "feed-forward": layers * shape.ffn * count_neuron_flops(h, token_count),
        "pooler": 2 * h * h,
    }
    return {
        name: part / masked_flops(shape, token_count=token_count)
        for name, part in parts.items()
    }
