"""Losses: pure functions that return their parts, the sum under "loss".

Shapes: B batch, T tokens, H hidden, L layers, C classes.
"""

import torch
from torch.nn import functional


def prediction(logits, labels, targets, teacher_logits=None):
    """Cross-entropy or squared error to the labels, to the teacher's logits, or both (GhostBERT section 2.3, Table 8).

    logits [B, C]; labels [B] codes, or [B] scores where C is 1; teacher_logits [B, C]. A regression's soft part is
    the squared error to the teacher's score. Spans: logits [B, 2, T], labels [B, 2] tokens, teacher_logits of at least
    T tokens; first and last token are 2 B choices among T, labels beyond T do not count (as in BERT's script).
    """
    if logits.dim() == 3:
        tokens = logits.shape[2]
        logits, labels = logits.flatten(0, 1), labels.flatten()
        labels = labels.masked_fill(labels >= tokens, -100)  # cross_entropy passes over these
        teacher_logits = (
            teacher_logits if teacher_logits is None else teacher_logits[..., :tokens].flatten(0, 1)
        )
    parts = {}
    if targets.kind in ("hard", "both"):
        parts["hard"] = (
            functional.mse_loss(logits[:, 0].float(), labels)
            if logits.shape[1] == 1
            else functional.cross_entropy(logits.float(), labels)
        )
    if targets.kind in ("soft", "both"):
        heat = targets.temperature
        if logits.shape[1] == 1:
            parts["soft"] = functional.mse_loss(logits.float(), teacher_logits.float())
        else:
            wanted = (teacher_logits.float() / heat).softmax(-1)
            each = -(wanted * (logits.float() / heat).log_softmax(-1))
            parts["soft"] = (
                each.sum(-1) if targets.sum_classes else each.mean(-1)
            ).mean() * heat**2
    return {"loss": sum(parts.values()), **parts}


def states(student, teacher, mask=None):
    """Mean squared errors of the embedding output, of the L attention outputs and of the L layer outputs, summed
    with unit weights (GhostBERT section 2.3: L_distill).

    student, teacher: {"embedding": [B, T, H], "attention": L of [B, T, H], "ffn": L of [B, T, H]}.
    mask [B, T]: leave padding out of the means. Raises ValueError where the two do not have as many states.
    """
    parts = {}
    for name in ("embedding", "attention", "ffn"):
        mine, theirs = student[name], teacher[name]
        if name == "embedding":
            mine, theirs = [mine], [theirs]
        if len(mine) != len(theirs):
            raise ValueError(
                f"{len(mine)} {name} states in the student, {len(theirs)} in the teacher"
            )
        parts[name] = sum(mean_square(a, b, mask) for a, b in zip(mine, theirs, strict=True))
    return {"loss": sum(parts.values()), **parts}


def mean_square(a, b, mask=None):
    """Mean of (a - b)^2 over [B, T, H], over real tokens alone where a mask [B, T] is given. Nothing flows back to `b`."""
    return MeanSquare.apply(a, b, mask)


class MeanSquare(torch.autograd.Function):
    """The difference, zero at padding, is kept as it is: both directions then read it once."""

    @staticmethod
    def forward(ctx, a, b, mask):
        difference, ctx.number, ctx.dtype = a.float() - b.float(), a.numel(), a.dtype
        if mask is not None:
            difference.mul_(mask.unsqueeze(-1))
            ctx.number = mask.sum() * a.shape[-1]
        ctx.save_for_backward(difference)
        return torch.dot(difference.flatten(), difference.flatten()) / ctx.number

    @staticmethod
    def backward(ctx, gradient):
        return (ctx.saved_tensors[0] * (2 * gradient / ctx.number)).to(ctx.dtype), None, None
