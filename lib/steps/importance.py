"""Step: rank the heads and neurons of a fine-tuned model by first-order Taylor (after Hou et al.
2020, Michel et al. 2019).

The score of a head is the sum over batches of |dLoss / dxi|, where xi is a factor of 1 on the
head's attention. That of a neuron is the sum over batches of |w1 . dLoss/dw1| + |w2 . dLoss/dw2|,
over its row of W1 (with bias) and its column of W2.
"""

import torch

from lib import data as sources
from lib.model import backbone, parts
from lib.options import Importance, Targets
from lib.train import heads, loop, losses
from lib.train.batches import collate


def importance(run, data, importance, numerics, span=None):
    numerics, options = loop.options(numerics), Importance(**importance)
    splits = sources.load(data)
    task = sources.described(data)
    model, tokenizer = backbone.load(run.inputs["teacher"].model)
    heads.by_name(model, task.labels)
    rows, _ = heads.rows(tokenizer, splits[options.split], task, options.max_length, span)
    found = scores(model, rows, options, numerics, run.progress)
    run.save_arrays("scores", heads=found[0].numpy(), neurons=found[1].numpy())
    return {"examples": len(rows), "outputs": task.outputs}


def scores(model, rows, options, numerics, progress=lambda fraction: None):
    """(head scores [L, A], neuron scores [L, F]) of a model in eval mode over `rows` (Encoded)."""
    model.to(loop.device()).eval()
    layers = parts.layers(model)
    factors, handles = [], []
    for layer in layers:
        attention = layer.attention.self
        factor = torch.ones(attention.num_attention_heads, requires_grad=True, device=loop.device())
        factors.append(factor)

        def scale(_, inputs, factor=factor, size=attention.attention_head_size):
            # Scaling a head's context is scaling its attention probabilities.
            return (inputs[0] * factor.repeat_interleave(size).to(inputs[0].dtype),)

        handles.append(layer.attention.output.dense.register_forward_pre_hook(scale))
    head_total = torch.zeros(len(layers), len(factors[0]))
    neuron_total = torch.zeros(len(layers), layers[0].intermediate.dense.out_features)
    watched = [
        p
        for layer in layers
        for p in (
            layer.intermediate.dense.weight,
            layer.intermediate.dense.bias,
            layer.output.dense.weight,
        )
    ]
    running = None
    starts = range(0, len(rows), options.batch)
    try:
        for start in starts:
            chosen = range(start, min(start + options.batch, len(rows)))
            batch = collate(rows, chosen, device=loop.device())
            with loop.autocast(numerics):
                logits = loop.outputs(model, batch)
            labels = rows.labels[list(chosen)].to(logits.device)
            gradients = torch.autograd.grad(
                losses.prediction(logits, labels, Targets("hard"))["loss"], factors + watched
            )
            if options.cumulative:
                gradients = running = [
                    a + b for a, b in zip(gradients, running or [0] * len(gradients), strict=True)
                ]
            for l, layer in enumerate(layers):
                w1, b1, w2 = gradients[len(layers) + 3 * l : len(layers) + 3 * l + 3]
                dense, out = layer.intermediate.dense, layer.output.dense
                head_total[l] += gradients[l].abs().float().cpu()
                neuron_total[l] += (
                    ((dense.weight * w1).sum(1) + dense.bias * b1).abs().float().detach().cpu()
                )
                neuron_total[l] += (out.weight * w2).sum(0).abs().float().detach().cpu()
            progress((start + options.batch) / len(rows))
    finally:
        for handle in handles:
            handle.remove()
    return head_total, neuron_total
