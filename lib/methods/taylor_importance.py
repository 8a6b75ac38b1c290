"""Heads and neurons are cut by the Taylor importance of Torch-Pruning (Fang et al.
2023).

The source is `torch_pruning.importance.TaylorImportance` 1.6, after Molchanov et al.
2019. The library traces the model and finds which channels must go together. In
attention these are the rows of Q, K and V and the columns of O, in the feed-forward
block the rows of W1 and the columns of W2. The importance of a channel is the mean over
these matrices of the sum of |w * dLoss/dw| over its weights. That of a head is the mean
over its channels. Biases do not count. This is the library's default where heads are
pruned whole (its option `prune_num_heads`). It ranks within each layer, so that each
layer keeps the same share of its heads and neurons. Embeddings and hidden size stay
whole, as with the option `ignored_layers`. So the model has the shape of "Width" at the
same budget.

"Width" is a first-order Taylor expansion too (lib.train.steps.importance, after Hou et
al. 2020). It is taken on the same rows: held-out training rows, at `paper` the
development rows, as in the code of Hou et al. "Width" differs in three points. It takes
the absolute value after the sum over the weights of a part, where terms of opposite
sign cancel; the library takes the one of each weight. It takes the absolute value in
each batch and adds these values; here, as in the library's examples, the gradient is
first summed over all batches. It scores a head by a factor on its context, and counts
the bias of a neuron; the library scores only weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def keep(shape: Any, share: float) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """Return ([(number of heads, of neurons)] of each layer, the operation that cuts
    to M of A heads).

    M is the whole number nearest to share * A, but at least 1. Of the F neurons
    M * F / A stay."""
    heads = max(1, round(share * shape.heads))
    return [(heads, heads * shape.ffn // shape.heads)] * shape.layers, {
        "op": "cut",
        "heads": heads,
    }


def scores(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Return (importance of heads [L, A], importance of neurons [L, F]).

    Torch-Pruning scales them to a mean of 1 in each layer. Raises AttributeError where
    a gradient is missing.

    model: an encoder whose parameters have the gradient of the loss in `grad`."""
    import torch
    import torch_pruning

    # Trace the model with arbitrary token ids; the graph does not depend on them.
    example = {"input_ids": torch.full((1, 4), 5, device=model.device)}
    encoder: Any = model.base_model.encoder
    bias = getattr(encoder, "relative_attention_bias", torch.nn.Module())
    # Take the position bias that all layers of an MPNet share out of the graph: it
    # would tie the heads of all layers together.
    bias.requires_grad_(False)
    graph = torch_pruning.DependencyGraph().build_dependency(
        model, example_inputs=example
    )
    bias.requires_grad_(True)
    importance, heads, neurons = torch_pruning.importance.TaylorImportance(), [], []
    for layer in encoder.layer:
        attention, dense = layer.attention.self, layer.intermediate.dense
        for part_scores, linear, parts in (
            (heads, attention.query, attention.num_attention_heads),
            (neurons, dense, dense.out_features),
        ):
            every = list(range(linear.out_features))
            prune = torch_pruning.prune_linear_out_channels
            channels = importance(graph.get_pruning_group(linear, prune, every))
            assert channels is not None
            part_scores.append(channels.view(parts, -1).mean(1).cpu())
    return torch.stack(heads), torch.stack(neurons)
