"""This method prunes heads and neurons by the Taylor importance of Torch-Pruning (Fang
et al. 2023).

The source is `torch_pruning.importance.TaylorImportance` 1.6, after Molchanov et al.
2019. The library traces the model and finds which channels have to go together: rows of
Q, K and V with columns of O, and rows of W1 with columns of W2. The importance of a
channel is the mean over these matrices of the sum of |w * dLoss/dw| over its weights.
That of a head is the mean over its channels. Biases do not count. This is the library's
default where heads are pruned whole (`prune_num_heads`). Ranking is within each layer,
so each layer keeps the same share of heads and neurons. Embeddings and hidden size stay
whole, as with the option `ignored_layers`.

The method "Width" of this project is a first-order Taylor expansion too
(lib.train.steps.importance, after Hou et al. 2020), with the same rows and the same
shape of the pruned model. "Width" differs from the library in three points. It takes
the absolute value after the sum over the weights of a head or neuron, where terms of
opposite sign cancel; the library takes it of each weight. "Width" takes absolute values
in each batch and adds them up; here, as in the library's examples, the gradient is
first summed over batches. "Width" scores a head by a factor on its output, and includes
a neuron's bias; the library scores weights alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from lib.methods import EncoderSizes, LayerSizesAndPruneArguments

    HeadAndNeuronScores = tuple[Tensor, Tensor]


def plan_pruning(
    encoder_shape: EncoderSizes, kept_flops_share: float
) -> LayerSizesAndPruneArguments:
    """Choose how many heads and neurons of each layer to keep for a share of the FLOPs.

    Return ([(heads, neurons) of each layer], {"op": "cut", "heads": M}). The dict is
    the operation that prunes the model; FLOPs are counted from the list. M is the whole
    number nearest to kept_flops_share * A, but at least 1. Of F neurons M * F / A are
    kept, rounded down. Importance scores decide later which ones.

    encoder_shape: an object with `layers`, `heads` A and `ffn` (neurons of a layer) F.
    kept_flops_share: the share of the encoder's FLOPs to keep, from 0 to 1."""
    heads = max(1, round(kept_flops_share * encoder_shape.heads))
    return [
        (heads, heads * encoder_shape.ffn // encoder_shape.heads)
    ] * encoder_shape.layers, {
        "op": "cut",
        "heads": heads,
    }


def compute_importance_scores(
    model_with_gradients: PreTrainedModel,
) -> HeadAndNeuronScores:
    """Return (importance of heads [L, A], importance of neurons [L, F]), for pruning.

    They are first-order Taylor scores of Torch-Pruning, a sum of |w * dLoss/dw| over
    the weights of a head or neuron. The library scales them to a mean of 1 in each
    layer. Raises AttributeError where a gradient is missing.

    model_with_gradients: an encoder whose parameters have the gradient of the loss in
    `grad`."""
    import torch
    import torch_pruning

    # Trace the model with arbitrary token ids; the graph does not depend on them.
    example = {"input_ids": torch.full((1, 4), 5, device=model_with_gradients.device)}
    encoder: Any = model_with_gradients.base_model.encoder
    bias = getattr(encoder, "relative_attention_bias", torch.nn.Module())
    # Take the position bias that all layers of an MPNet share out of the graph: it
    # would tie the heads of all layers together.
    bias.requires_grad_(False)
    graph = torch_pruning.DependencyGraph().build_dependency(
        model_with_gradients, example_inputs=example
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
