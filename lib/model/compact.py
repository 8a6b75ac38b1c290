"""This module removes the heads and neurons of a pruned model whose weights are all
zero, and counts the bytes of a model.

Letters: a weight is [O, I] (outputs, inputs); L layers."""

import torch
from torch import nn

from . import ghost, masks
from .cut import RemainingUnitsPerLayerByKind, count_prunable_units
from .parts import CountByMetric, get_layers
from .surgery import apply_surgery


@torch.no_grad()
def remove_constant_heads_and_neurons(model: nn.Module) -> RemainingUnitsPerLayerByKind:
    """Remove the heads and neurons of a pruned model whose output is constant, in
    place.

    This makes the model smaller and faster. A head or neuron is removed if all its
    outgoing or all its incoming weights are zero. The incoming weights of a head are
    those of its values; queries and keys do not count. A head or neuron without
    incoming weights has a constant output. The effect of this constant is added to the
    bias of the next layer, so the model's outputs change only by rounding. Each layer
    keeps at least one head and one neuron. A model with ghost modules (convolutions
    that generate further features) is not changed.

    Returns the numbers of heads and neurons that are left in each of the L layers:
    {"heads": [L], "neurons": [L]}.

    model: a model with the pruning masks already multiplied into its weights."""
    selection: dict[str, list[list[int]]] = {"heads": [], "neurons": []}
    total = {
        what: [count_prunable_units(layer)[what] for layer in get_layers(model)]
        for what in selection
    }
    if any(map(ghost.find_ghost_modules_by_position, get_layers(model))):
        return total
    for layer in get_layers(model):
        attention = layer.attention.self
        first = layer.intermediate
        second = layer.output.dense
        value, out = attention.value, layer.attention.output.dense
        size = attention.attention_head_size
        activated = first.intermediate_act_fn(first.dense.bias)
        selection["heads"].append(
            fold_dead_units_into_bias_and_list_live_units(
                value.weight, out, value.bias, size
            )
        )
        selection["neurons"].append(
            fold_dead_units_into_bias_and_list_live_units(
                first.dense.weight, second, activated, 1
            )
        )
    counts = {
        what: [len(indices) for indices in lists] for what, lists in selection.items()
    }
    if counts != total:
        apply_surgery(model, {"op": "keep", **selection})
    return counts


def fold_dead_units_into_bias_and_list_live_units(
    incoming_weights: torch.Tensor,
    next_layer: nn.Linear,
    constant_outputs: torch.Tensor,
    rows_per_unit: int,
) -> list[int]:
    """Find the heads or neurons of a layer to keep, and fold the others into a bias.

    A unit (head or neuron) is dead if all its incoming or all its outgoing weights are
    zero. Without incoming weights its output is a constant. This constant times the
    outgoing weights is added to the bias of the next layer, so the unit can then be
    removed without a change of the outputs.

    Returns the indices of the units that are not dead, in ascending order. If all units
    are dead, the list is [0], as a layer must keep one unit; its constant then stays
    out of the bias.

    incoming_weights: weights that compute the N units from I inputs,
    [N * rows_per_unit, I].
    next_layer: the linear layer that reads the N * rows_per_unit outputs of the units;
    its bias changes in place.
    constant_outputs: what units without incoming weights put out, [N * rows_per_unit].
    rows_per_unit: outputs of a unit: the head size, or 1 for neurons."""
    dead = (incoming_weights.unflatten(0, (-1, rows_per_unit)) == 0).all(2).all(1)
    unused = (next_layer.weight.unflatten(1, (-1, rows_per_unit)) == 0).all(2).all(0)
    stay = ~(dead | unused)
    stay[0] |= not stay.any()
    gone = (~stay).repeat_interleave(rows_per_unit)
    if gone.any():
        # pyrefly: ignore[bad-assignment]  += on a Parameter returns a Parameter.
        next_layer.bias += next_layer.weight[:, gone] @ constant_outputs[gone]
    return stay.nonzero().flatten().tolist()


def count_dense_and_sparse_bytes(model: nn.Module) -> CountByMetric:
    """Count the bytes of a pruned float32 model, stored dense and stored sparse.

    The sparse number tells how much storage zero weights save. Returns {"bytes_dense":
    bytes of all tensors as they are, "bytes_sparse": the same with sparse weight
    matrices}. A sparse matrix is stored as a bitmap, with one bit for each weight that
    says whether it is 0, and the float32 values of all weights that are not 0. Only
    linear layers inside the transformer layers are stored so, and only where that takes
    fewer bytes."""
    dense, spared = count_state_dict_bytes(model), 0
    for _, _, linear in masks.list_linear_layers(model):
        total, nonzero = linear.weight.numel(), int(torch.count_nonzero(linear.weight))
        spared += max(0, 4 * (total - nonzero) - -(-total // 8))
    return {"bytes_dense": dense, "bytes_sparse": dense - spared}


def count_state_dict_bytes(model: nn.Module) -> int:
    """Return the bytes of all tensors in a model's state dict.

    This is the size of its file of weights, without the file's header."""
    return sum(
        value.numel() * value.element_size() for value in model.state_dict().values()
    )
