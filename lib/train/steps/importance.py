"""This step measures the importance of heads and neurons of a fine-tuned model, by
which it is pruned.

It is a first-order Taylor expansion, after Hou et al. 2020 and Michel et al. 2019. The
score of a head is the sum over batches of |dLoss / dxi|, where xi is a factor of 1 on
the head's attention. The score of a neuron is the sum over batches of |w1 . dLoss/dw1|
+ |w2 . dLoss/dw2|, over its row of W1 (with bias) and its column of W2. Where
`Importance.by` is set, the module of lib.methods that it names computes other scores
instead."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import torch
import transformers

from lib.core.names import Refused
from lib.core.options import Importance, Numerics, Targets
from lib.data.tokens import split_into_chunks
from lib.methods import import_method
from lib.model import parts
from lib.stats.metrics import Metrics
from lib.train import heads, loop, losses
from lib.train.batches import EncodedRows, make_batch
from lib.train.learn import TaskTraining


class Importances(NamedTuple):
    heads: torch.Tensor  # [L, A], for L layers with A attention heads each.
    neurons: torch.Tensor  # [L, F], for F neurons of the feed-forward network.


def importance(training: TaskTraining, importance: loop.SettingsJson) -> Metrics:
    """Measure the importance of a fine-tuned model's heads and neurons, to prune it.

    It saves the arrays "heads" [L, A] and "neurons" [L, F] in a file `scores`. Returns
    {"examples": number of rows (of windows, for answer spans), "outputs": number of the
    model's outputs}.

    training: the rows, and the run, whose input `teacher` (an earlier result) is the
    model.
    importance: settings: which rows, the size of a batch, the length of rows, and the
    method; by default first-order Taylor importance."""
    run, options = training.run, Importance(**importance)
    model, tokenizer = training.teacher
    split = training.splits[options.split]
    rows, _ = heads.encode_rows_and_make_scorer(
        tokenizer, split, training.task, options.max_length, training.span
    )
    rank = (
        compute_importance_by_method_file if options.by else compute_taylor_importance
    )
    ranking = rank(model, rows, options, training.numerics, run.report_progress)
    run.save_arrays(
        "scores", heads=ranking.heads.numpy(), neurons=ranking.neurons.numpy()
    )
    return {"examples": len(rows), "outputs": training.task.output_width}


def compute_taylor_importance(
    model: transformers.PreTrainedModel,
    encoded: EncodedRows,
    importance_settings: Importance,
    numerics: Numerics,
    report_progress: Callable[[float], None] = lambda fraction: None,
) -> Importances:
    """Return the first-order Taylor importance of a model's heads and neurons.

    The result is (heads [L, A], neurons [L, F]); those of low importance are then
    pruned (Hou et al. 2020, Michel et al. 2019). The importance of a head is the sum
    over batches of |dLoss / dxi|, where xi is a factor of 1 on its output. That of a
    neuron is the sum over batches of |w1 . dLoss/dw1| + |w2 . dLoss/dw2|, for its row
    w1 of the first feed-forward matrix (with bias) and its column w2 of the second. If
    `importance_settings.cumulative`, the gradient at a batch is that of all batches so
    far, summed. The model is set to eval mode.

    Raises Refused for layers with different numbers of heads or neurons, which a model
    from an architecture search may have.

    encoded: the tokenised rows with labels, over whose loss the gradients are taken.
    importance_settings: settings, such as the size of a batch.
    numerics: the dtype of the passes.
    report_progress: a function that gets the share of rows done, 0 to 1."""
    changes = {operation["op"] for operation in parts.get_recorded_model_changes(model)}
    if unfit := sorted(changes & {"ghost", "stack", "int8"}):
        raise Refused(
            f"ranks are of plain layers, and this model has {', '.join(unfit)}: rank it before"
        )
    layers, watched, running = parts.get_layers(model), [], None
    sizes = {
        (
            layer.attention.self.num_attention_heads,
            layer.intermediate.dense.out_features,
        )
        for layer in layers
    }
    if len(sizes) > 1:
        known = ", ".join(f"{heads} and {neurons}" for heads, neurons in sorted(sizes))
        why = f"layers have different numbers of heads and neurons ({known})"
        raise Refused(
            f"ranks are of layers of one size, and {why}: rank the whole model"
        )
    ((head_count, neuron_count),) = sizes
    head_total = torch.zeros(len(layers), head_count)
    neuron_total = torch.zeros(len(layers), neuron_count)
    with ExitStack() as held:
        for layer in layers:
            factor = torch.ones(
                head_count, requires_grad=True, device=loop.get_device()
            )
            held.enter_context(
                layer.attention.output.dense.register_forward_pre_hook(
                    partial(scale_head_contexts_before_projection, factor)
                )
            )
            dense = layer.intermediate.dense
            watched += [factor, dense.weight, dense.bias, layer.output.dense.weight]
        if not all(tensor.requires_grad for tensor in watched):
            raise Refused(
                "some feed-forward weights are frozen, so neurons have no gradients; "
                "fix: model.requires_grad_(True)"
            )
        for loss in iterate_batch_losses(
            model, encoded, importance_settings, numerics, report_progress
        ):
            gradients = torch.autograd.grad(loss, watched)
            if importance_settings.cumulative:
                before = running or [0] * len(gradients)
                gradients = running = [
                    a + b for a, b in zip(gradients, before, strict=True)
                ]
            products = [
                (value * gradient).detach()
                for value, gradient in zip(watched, gradients, strict=True)
            ]
            for l in range(len(layers)):
                head, w1, b1, w2 = products[4 * l : 4 * l + 4]
                head_total[l] += head.abs().cpu()
                neuron_total[l] += (w1.sum(1) + b1).abs().cpu()
                neuron_total[l] += w2.sum(0).abs().cpu()
    return Importances(head_total, neuron_total)


def scale_head_contexts_before_projection(
    head_factors: torch.Tensor,
    _module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
) -> tuple[torch.Tensor]:
    """Scale each head's context, which is the same as scaling its attention weights.

    It is the forward pre-hook of an output projection. The loss then has gradients with
    respect to the factors, by which heads are ranked.

    head_factors: a factor for each head, [A].
    inputs: the contexts of all heads, as the only tensor."""
    contexts = inputs[0]
    factors = head_factors.repeat_interleave(contexts.shape[-1] // len(head_factors))
    return (contexts * factors.to(contexts.dtype),)


def compute_importance_by_method_file(
    model: transformers.PreTrainedModel,
    encoded: EncodedRows,
    importance_settings: Importance,
    numerics: Numerics,
    report_progress: Callable[[float], None] = lambda fraction: None,
) -> Importances:
    """Return the importance of heads and neurons by a function from lib.methods.

    The result is (heads [L, A], neurons [L, F]); those of low importance are then
    pruned. Each module of lib.methods has a pruning method. `importance_settings.by`
    names the one whose `compute_importance_scores` is called with the model. Before the
    call, the model is set to eval mode and gets gradients of the loss, summed over all
    batches. Raises Refused where the function returns anything but two tensors of these
    shapes.

    encoded: the tokenised rows with labels, over which the loss is taken.
    importance_settings: settings: the method, and the size of a batch.
    numerics: the dtype of the passes.
    report_progress: a function that gets the share of rows done, 0 to 1."""
    for loss in iterate_batch_losses(
        model, encoded, importance_settings, numerics, report_progress
    ):
        loss.backward()
    scores = import_method(importance_settings.by).compute_importance_scores(model)
    layers = parts.get_layers(model)
    units = (
        layers[0].attention.self.num_attention_heads,
        layers[0].intermediate.dense.out_features,
    )
    needed = [torch.Size((len(layers), count)) for count in units]
    items = scores if isinstance(scores, (tuple, list)) else [scores]
    if [isinstance(item, torch.Tensor) and item.shape for item in items] != needed:
        shown = ", ".join(
            f"{type(item).__name__} {[*getattr(item, 'shape', ())]}" for item in items
        )
        raise Refused(
            f"lib/methods/{importance_settings.by}.py: compute_importance_scores "
            f"returned {shown}; fix: let it return two tensors, importance of heads "
            f"{[*needed[0]]} and of neurons {[*needed[1]]}"
        )
    return Importances(*(item.detach().cpu() for item in items))


def iterate_batch_losses(
    model: transformers.PreTrainedModel,
    encoded: EncodedRows,
    importance_settings: Importance,
    numerics: Numerics,
    report_progress: Callable[[float], None],
) -> Iterator[torch.Tensor]:
    """Yield the mean loss of each batch of rows against the labels, as a scalar tensor.

    The tensor has its autograd graph, so that the caller can take gradients, by which
    heads and neurons are ranked. The model is set to eval mode, and moved to the device
    of this process.

    encoded: the tokenised rows with labels.
    importance_settings: settings, of which the size of a batch is read.
    numerics: the dtype of the passes.
    report_progress: a function that gets the share of rows done, 0 to 1."""
    assert encoded.labels is not None
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(loop.get_device()).eval()
    for chosen in split_into_chunks(range(len(encoded)), importance_settings.batch):
        batch = make_batch(encoded, chosen, device=loop.get_device())
        with loop.autocast_to_dtype(numerics):
            logits = loop.compute_logits(model, batch)
        labels = encoded.labels[chosen].to(logits.device)
        yield losses.compute_prediction_losses(logits, labels, Targets("hard"))["loss"]
        report_progress((chosen[-1] + 1) / len(encoded))
