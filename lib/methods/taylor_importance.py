"""Heads and neurons by the Taylor importance of the library Torch-Pruning (Fang et al. 2023).

Source: `torch_pruning.importance.TaylorImportance` 1.6, after Molchanov et al. 2019. The library
traces the model and finds which channels must go together: in attention the rows of Q, K and V and
the columns of O, in the feed-forward block the rows of W1 and the columns of W2. The importance of
a channel is the mean over these matrices of the sum of |w * dLoss/dw| over its weights. That of a
head is the mean over its channels. Biases do not count. So the library does it by default, heads
being pruned whole (its option `prune_num_heads`), and it ranks within each layer: each layer keeps
the same share of its heads and neurons. Embeddings and hidden size stay whole, as `ignored_layers`
would leave them, so that the model has the shape of "Width" at the same budget.

"Width" is a first-order Taylor expansion too (lib.steps.importance, after Hou et al. 2020), on the
same rows: training rows that are held out, at `paper` the development rows, as the ancestor's code
has it. It differs in three points. It takes the absolute value after the sum over the weights of a
part, where terms of opposite sign cancel; the library takes that of each weight. It takes the
absolute value in each batch and adds these; here, as in the library's examples, the gradient is
summed over all batches first. It scores a head by a factor on its context and counts the bias of a
neuron; the library scores weights alone.
"""


def kept(shape, share):
    """Return ([(heads, neurons)] of each layer, {"op": "cut", "heads": M of A}).

    M is the whole number next to share * A, at least one; the neurons are M * F / A of F.
    """
    heads = max(1, round(share * shape.heads))
    return [(heads, heads * shape.ffn // shape.heads)] * shape.layers, {"op": "cut", "heads": heads}


def scores(model):
    """Return (head scores [L, A], neuron scores [L, F]), the library's means being 1 in each layer.

    model: a BERT, RoBERTa or ELECTRA of which every parameter has the gradient of the loss in
    `grad`. Raises AttributeError where a gradient is missing.
    """
    import torch
    import torch_pruning

    example = {"input_ids": torch.full((1, 4), 5, device=model.device)}  # all trace the same graph
    graph = torch_pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    importance, heads, neurons = torch_pruning.importance.TaylorImportance(), [], []
    for layer in model.base_model.encoder.layer:
        attention, dense = layer.attention.self, layer.intermediate.dense
        for found, linear, parts in (
            (heads, attention.query, attention.num_attention_heads),
            (neurons, dense, dense.out_features),
        ):
            every = list(range(linear.out_features))
            prune = torch_pruning.prune_linear_out_channels
            channels = importance(graph.get_pruning_group(linear, prune, every))
            found.append(channels.view(parts, -1).mean(1).cpu())
    return torch.stack(heads), torch.stack(neurons)
