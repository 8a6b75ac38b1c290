"""Step: one round of iterative magnitude pruning with rewinding, the rival of the report on NAS
pruning (Table 10). The procedure is that of the public code of "The Lottery Ticket Hypothesis for
Pre-trained BERT Networks" (Chen et al. 2020).
"""

import torch

from lib.model import backbone, masks
from lib.model.parts import base, size
from lib.train import loop
from lib.train.learn import Lesson, learn
from lib.train.objectives import predicting
from lib.train.options import Targets


def imp(run, data, train, numerics, kept):
    """Inputs: `start`, the round before, or for the first round the dense fine-tuned model;
    `origin`, the pre-trained model.

    Of the weights of all linear layers of encoder and pooler together, the share `kept` with the
    largest magnitude in `start` stays. The encoder goes back to its pre-trained values, the
    classifier does not. Then the rest is fine-tuned on the labels, and pruned weights stay zero.
    The public code prunes a tenth of all weights in each round. Metrics are those of `finetune`,
    `kept_share` and `pruned`. Raises ValueError where `kept` is no less than what the round before
    kept.
    """
    lesson = Lesson(run, data, train, numerics)
    model, tokenizer = lesson.start()
    ticket = Ticket(model, backbone.load(run.inputs["origin"].model)[0], kept)
    rows = lesson.rows(tokenizer)
    objective = predicting(lesson, model, rows, Targets("hard"))
    result = learn(lesson, model, tokenizer, rows, objective, [ticket])
    backbone.save(model, tokenizer, run.model)
    return result | size(model)


class Ticket(loop.Method):
    """The largest weights of a model, set back to those of `origin`; the others are zero and stay
    so.
    """

    def __init__(self, model, origin, kept):
        self.weights = prunable(model)
        self.masks = largest([w.detach().abs() for w in self.weights], kept)
        rewind(model, origin)
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.device()) for mask in self.masks]

    def gradients(self, step, steps):
        """Adam leaves a weight without gradients where it is."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            weight.grad *= mask

    def finish(self):
        total = sum(mask.numel() for mask in self.masks)
        left = sum(int(mask.sum()) for mask in self.masks)
        return {"kept_share": left / total, "pruned": total - left}


def prunable(model):
    """Weights of the encoder's linear layers, and of the pooler where there is one."""
    found = [part.weight for _, _, part in masks.projections(model)]
    pooler = getattr(base(model), "pooler", None)
    return found + ([pooler.dense.weight] if pooler is not None else [])


def largest(sizes, kept):
    """Masks of exactly round(kept * n) of the n values of all tensors together, the largest; of
    equal ones the first.
    """
    total, there = sum(s.numel() for s in sizes), sum(int(torch.count_nonzero(s)) for s in sizes)
    count = round(kept * total)
    if not 0 < count < there:
        raise ValueError(
            f"kept is {kept}, that is {count} of {total} weights; the round before kept {there}: "
            "keep fewer, and at least one"
        )
    return masks.top_of_all(sizes, count)


def rewind(model, origin):
    """Set the encoder to the weights of `origin`, which may have more. Raises KeyError or
    RuntimeError where one is missing or of another shape.
    """
    theirs = base(origin).state_dict()
    base(model).load_state_dict({name: theirs[name] for name in base(model).state_dict()})
