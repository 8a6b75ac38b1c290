"""Step: one round of iterative magnitude pruning with rewinding, the rival of the report on NAS pruning (Table 10; the
procedure as in the public code of "The Lottery Ticket Hypothesis for Pre-trained BERT Networks", Chen et al. 2020)."""

import torch

from lib import data as sources
from lib.model import backbone, masks
from lib.options import Targets
from lib.spec import stream
from lib.steps.finetune import evaluation, judged, predictions
from lib.train import heads, loop, losses


def imp(run, data, train, numerics, kept):
    """Inputs: `start`, the round before, or the dense fine-tuned model for the first; `origin`, the pre-trained model.

    Of the weights of all linear layers of the encoder and the pooler together, the share `kept` with the largest
    magnitude in `start` stays; the encoder goes back to its pre-trained values, the classifier does not; then the rest
    is fine-tuned on the labels, pruned weights staying zero. The public code prunes a tenth of all weights in each round.
    Metrics as those of `finetune`, `kept_share` and `pruned`. Raises ValueError where `kept` is no less than what the
    round before kept.
    """
    numerics, train = loop.options(numerics, train)
    splits, task = sources.load(data), sources.described(data)
    model, tokenizer = heads.network(
        run.inputs["start"].model, task, train.dropout, stream(run.seed, "head")
    )
    weights = prunable(model)
    chosen = largest([w.detach().abs() for w in weights], kept)
    origin, _ = backbone.load(run.inputs["origin"].model)
    rewind(model, origin)
    with torch.no_grad():
        for weight, mask in zip(weights, chosen, strict=True):
            weight *= mask
    model.to(loop.device())
    chosen = [mask.to(loop.device()) for mask in chosen]
    rows, _ = heads.rows(tokenizer, splits["train"], task, train.max_length)

    def loss(batch, rows_of):
        logits = loop.outputs(model, batch)
        return losses.prediction(logits, rows.labels[rows_of].to(logits.device), Targets("hard"))

    def gradients(*_):  # Adam leaves a weight without gradients where it is
        for weight, mask in zip(weights, chosen, strict=True):
            weight.grad *= mask

    judges = evaluation(model, tokenizer, splits, task, train, numerics)
    result = loop.fit(
        run,
        model,
        rows,
        loss,
        train,
        numerics,
        lambda: judged(judges["dev"], task, train),
        loop.Hooks(gradients=gradients),
    )
    backbone.save(model, tokenizer, run.model)
    total, left = sum(w.numel() for w in weights), sum(int(mask.sum()) for mask in chosen)
    return (
        result
        | predictions(run, judges)
        | backbone.size(model)
        | {"kept_share": left / total, "pruned": total - left}
    )


def prunable(model):
    """Weights of the encoder's linear layers, and of the pooler where there is one."""
    found = [part.weight for _, _, part in masks.projections(model)]
    pooler = getattr(backbone.base(model), "pooler", None)
    return found + ([pooler.dense.weight] if pooler is not None else [])


def largest(sizes, kept):
    """Masks of exactly round(kept * n) of the n values of all tensors together, the largest; of equal ones the first."""
    total, there = sum(s.numel() for s in sizes), sum(int(torch.count_nonzero(s)) for s in sizes)
    count = round(kept * total)
    if not 0 < count < there:
        raise ValueError(
            f"kept is {kept}, that is {count} of {total} weights; the round before kept {there}: keep fewer, and "
            "at least one"
        )
    kth, surplus = masks.top_of_all(sizes, count)
    return [masks.at_least(size, kth, over) for size, over in zip(sizes, surplus, strict=True)]


def rewind(model, origin):
    """Set the encoder to the weights of `origin`. Raises ValueError where these are not all there."""
    mine, theirs = backbone.base(model).state_dict(), backbone.base(origin).state_dict()
    lacking = [
        name
        for name, value in mine.items()
        if name not in theirs or theirs[name].shape != value.shape
    ]
    if lacking:
        raise ValueError(
            f"the origin has no {lacking[0]} of the model's shape: rewind to the model that it was fine-tuned from"
        )
    backbone.base(model).load_state_dict({name: theirs[name] for name in mine})
