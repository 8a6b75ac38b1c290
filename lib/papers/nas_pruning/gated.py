"""This module counts the FLOPs of an encoder whose heads and neurons are multiplied by
masks, by the NAS report's convention.

A batch is one sequence of T = 128 tokens, and a multiply-add is two FLOPs. Counted are
the matrix products: queries, keys, values, output projection, attention scores,
weighted sum, both feed-forward products, and the pooler on one token. Not counted are
embeddings, biases, softmax, LayerNorm, GELU and classifier. Letters: H hidden, A heads,
D head size, L layers.

The width of a layer, its number of heads or neurons, is the sum of their masks. With
soft masks this gives the expected cost E, with masks of 0 and 1 the actual cost F. The
report's "original" sizes are expected costs at the start of a search, where each mask
is sigmoid(5). Only its BERT-Mini, which is not searched, is counted with masks of 1.
Widths may be numbers, arrays or tensors."""

import math
from typing import TypeAlias

from lib.core.options import START
from lib.stats.cost import SHAPES, Shape
from lib.stats.cost import count_flops_of_layers as flops
from lib.stats.cost import count_flops_of_transformer_layer as layer

# "projections", "attention products", "feed-forward" or "pooler".
PartName: TypeAlias = str
TOKENS = 128
# Mask value of every gate at the start of a search, where all gates are open:
# sigmoid(5) = 0.9933.
OPEN = 1 / (1 + math.exp(-START))
KEPT = 0.99  # A gate is on where its mask sigmoid(alpha) is above this.

# {model: (its sizes, mask value of all heads and neurons, GFLOPs that the NAS pruning
# paper prints)}. With these mask values the printed numbers can be computed again. The
# mask of an open gate, OPEN, is not quite 1; the paper counts most models with it.
REPORTED = {
    "TinyBERT-4L": (SHAPES["tinybert-4"], OPEN, 1.239),
    "TinyBERT-6L": (SHAPES["tinybert-6"], OPEN, 11.100),
    "BERT-base": (SHAPES["bert-base"], OPEN, 22.199),
    "BERT-Mini": (SHAPES["bert-mini"], 1.0, 0.873),
}


def count_masked_encoder_flops(
    shape: Shape, shared_mask_value: float = 1.0, token_count: int = TOKENS
) -> float:
    """Return the FLOPs of an encoder where all heads and neurons have the same mask.

    The report on pruning by differentiable NAS prints the FLOPs of most models with the
    mask sigmoid(5), which gates have at the start of a search. So its numbers can be
    checked. Counted are the matrix products and the pooler, for one sequence.

    shape: sizes of the encoder.
    shared_mask_value: from 0 to 1; 1 is the whole encoder.
    token_count: T, the length of the sequence."""
    width = {
        "heads": shared_mask_value * shape.heads,
        "ffn": shared_mask_value * shape.ffn,
    }
    return flops(
        shape.hidden, shape.hidden // shape.heads, [width] * shape.layers, token_count
    )


def count_head_flops(hidden_size: int, head_size: int) -> int:
    """Return the FLOPs of one attention head on T = 128 tokens: 8 T H D + 4 T T D.

    A multiply-add is two FLOPs. Compared with a neuron's, it says how many neurons a
    head is worth in a pruning search.

    hidden_size, head_size: H and D."""
    return layer(hidden_size, hidden_size, head_size, head_size, 0, TOKENS)


def count_neuron_flops(hidden_size: int, token_count: int = TOKENS) -> int:
    """Return the FLOPs of one feed-forward neuron on one sequence: 4 T H.

    A multiply-add is two FLOPs. Compared with a head's, it says how many neurons a head
    is worth in a pruning search.

    hidden_size, token_count: H and T."""
    return layer(hidden_size, hidden_size, 0, 0, 1, token_count)


def compute_flops_share_by_part(
    shape: Shape, token_count: int = TOKENS
) -> dict[PartName, float]:
    """Return the share of an encoder's FLOPs, 0 to 1, of each kind of matrix product.

    The keys are "projections" (queries, keys, values and output), "attention products"
    (scores and weighted sum), "feed-forward" and "pooler". The shares add up to 1. They
    tell which parts are worth pruning (section 7.2 of the report on pruning by
    differentiable NAS).

    shape: sizes of the encoder.
    token_count: T, the length of the one sequence that is counted."""
    h = shape.hidden
    layers = shape.layers
    parts = {
        "projections": layers
        * (layer(h, h, h, h, 0, token_count) - 4 * token_count**2 * h),
        "attention products": layers * 4 * token_count**2 * h,
        "feed-forward": layers * shape.ffn * count_neuron_flops(h, token_count),
        "pooler": 2 * h * h,
    }
    return {
        name: part / count_masked_encoder_flops(shape, token_count=token_count)
        for name, part in parts.items()
    }
