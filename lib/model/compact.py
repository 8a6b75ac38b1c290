"""This module removes the zero heads and neurons of a pruned model, and counts its
bytes.

Letters: a weight is [O, I]; L layers; N units (heads or neurons) of `size` columns."""

import torch
from torch import nn

from . import ghost, masks
from .cut import count_parts
from .parts import get_layers
from .surgery import operate


@torch.no_grad()
def remove_zero_parts(model: nn.Module) -> dict[str, list[int]]:
    """Remove heads and neurons whose weights are all zero, and return the numbers that
    stay: {"heads": [L], "neurons": [L]}.

    A unit goes if all its outgoing or all its incoming weights are zero. Without
    incoming weights its output is a constant, which is added to the next bias, so
    outputs of the model change by rounding alone. Each layer keeps at least its first
    head and neuron. A model with ghosts is not changed.

    model: a model whose masks are multiplied into its weights."""
    selection: dict[str, list[list[int]]] = {"heads": [], "neurons": []}
    total = {
        what: [count_parts(layer)[what] for layer in get_layers(model)]
        for what in selection
    }
    if any(map(ghost.find_ghosts_of_layer, get_layers(model))):
        return total
    for layer in get_layers(model):
        attention, first, second = (
            layer.attention.self,
            layer.intermediate,
            layer.output.dense,
        )
        value, out = attention.value, layer.attention.output.dense
        size, activated = (
            attention.attention_head_size,
            first.intermediate_act_fn(first.dense.bias),
        )
        selection["heads"].append(fold_empty_units(value.weight, out, value.bias, size))
        selection["neurons"].append(
            fold_empty_units(first.dense.weight, second, activated, 1)
        )
    counts = {
        what: [len(indices) for indices in lists] for what, lists in selection.items()
    }
    if counts != total:
        operate(model, {"op": "keep", **selection})
    return counts


def fold_empty_units(
    incoming_weights: torch.Tensor,
    next_layer: nn.Linear,
    constant_outputs: torch.Tensor,
    rows_per_unit: int,
) -> list[int]:
    """Return the indices of units with weights, and add the constant output of the
    others to the next bias.

    incoming_weights: weights [N * rows_per_unit, I].
    next_layer: the next linear layer, with N * rows_per_unit inputs, whose bias
    changes.
    constant_outputs: output [N * rows_per_unit] of units without incoming weights."""
    dead = (incoming_weights.unflatten(0, (-1, rows_per_unit)) == 0).all(2).all(1)
    unused = (next_layer.weight.unflatten(1, (-1, rows_per_unit)) == 0).all(2).all(0)
    stay = ~(dead | unused)
    stay[0] |= not stay.any()
    gone = (~stay).repeat_interleave(rows_per_unit)
    if gone.any():
        # pyrefly: ignore[bad-assignment]  += on a Parameter returns a Parameter.
        next_layer.bias += next_layer.weight[:, gone] @ constant_outputs[gone]
    return stay.nonzero().flatten().tolist()


def count_stored_bytes(model: nn.Module) -> dict[str, int]:
    """Return the bytes of a pruned model in float32: {"bytes_dense", "bytes_sparse"}.

    A sparse linear layer stores its weights that are not 0, and one bit for each
    weight. A layer counts as sparse where that takes fewer bytes."""
    dense, spared = count_bytes(model), 0
    for _, _, linear in masks.list_linear_layers(model):
        total, nonzero = linear.weight.numel(), int(torch.count_nonzero(linear.weight))
        spared += max(0, 4 * (total - nonzero) - -(-total // 8))
    return {"bytes_dense": dense, "bytes_sparse": dense - spared}


def count_bytes(model: nn.Module) -> int:
    """Return the bytes of all tensors that are saved with a model."""
    return sum(
        value.numel() * value.element_size() for value in model.state_dict().values()
    )
