"""This module has the losses on logits and the distances between hidden states, as pure
functions.

Shapes: B batch, T tokens, H hidden, A heads, C classes."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lib.core.options import Targets
from lib.core.types import LossTerm


def compute_prediction_losses(
    logits: Tensor,
    labels: Tensor,
    target_settings: Targets,
    teacher_logits: Tensor | None = None,
) -> dict[LossTerm, Tensor]:
    """Return the losses of logits on the labels, on a teacher's logits, or on both.

    The dict has "hard" (on labels) and "soft" (on the teacher), as far as
    `target_settings` asks for them, and "loss", their sum. "hard" is the cross-entropy
    to the labels, or the squared error where C is 1. "soft" is the cross-entropy to the
    teacher's softmax, averaged or summed over classes as `target_settings` says, times
    the squared temperature; where C is 1 it is the squared error to the teacher's
    output. GhostBERT fine-tunes on labels in section 2.3, and with distillation in
    Table 8.

    logits, teacher_logits: [B, C].
    labels: classes [B], or scores where C is 1.
    target_settings: which losses are asked for, and the settings of "soft".

    For answer spans, logits are [B, 2, T] and labels are token positions [B, 2]: the
    first and the last token of B answers are 2 B choices among T tokens. The teacher's
    logits have at least T tokens. Labels beyond T are ignored, as in BERT's script."""
    if logits.dim() == 3:
        tokens = logits.shape[2]
        logits, labels = logits.flatten(0, 1), labels.flatten()
        # Labels beyond the last token are set to -100, which PyTorch's cross_entropy
        # ignores.
        labels = labels.masked_fill(labels >= tokens, -100)
        if teacher_logits is not None:
            teacher_logits = teacher_logits[..., :tokens].flatten(0, 1)
    regression, parts = logits.shape[1] == 1, {}
    if target_settings.kind != "soft" and regression:
        parts["hard"] = functional.mse_loss(logits[:, 0].float(), labels)
    elif target_settings.kind != "soft":
        parts["hard"] = functional.cross_entropy(logits.float(), labels)
    if target_settings.kind != "hard":
        assert teacher_logits is not None
        heat = target_settings.temperature
        if regression:
            parts["soft"] = functional.mse_loss(logits.float(), teacher_logits.float())
        else:
            probabilities = (teacher_logits.float() / heat).softmax(-1)
            cross_entropy = -(probabilities * (logits.float() / heat).log_softmax(-1))
            over_classes = torch.sum if target_settings.sum_classes else torch.mean
            parts["soft"] = over_classes(cross_entropy, -1).mean() * heat**2
    total = sum(parts.values())
    assert isinstance(total, Tensor)
    return {"loss": total, **parts}


def compute_mean_squared_error(
    student_states: Tensor,
    teacher_states: Tensor,
    token_mask: Tensor | None = None,
    excludes_padding_from_mean: bool = True,
) -> Tensor:
    """Return the mean squared difference of hidden states, a distillation loss.

    Only the student gets a gradient.

    student_states, teacher_states: hidden states [B, T, H].
    token_mask: attention mask [B, T], 1 for real tokens; None where all are real.
    excludes_padding_from_mean: whether the mean leaves out padded tokens."""
    return MaskedMeanSquaredError.apply(
        student_states,
        teacher_states,
        token_mask if excludes_padding_from_mean else None,
    )


class MaskedMeanSquaredError(torch.autograd.Function):
    """MaskedMeanSquaredError computes the mean squared difference of hidden states [B,
    T, H].

    This autograd function saves the difference for the backward pass, so that each pass
    reads the states only once. The student gets a gradient, and the teacher none. With
    a token mask [B, T], the mean is over real tokens alone; with None it is over all
    tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        student_states: Tensor,
        teacher_states: Tensor,
        token_mask: Tensor | None,
    ) -> Tensor:
        difference = student_states.float() - teacher_states.float()
        ctx.number = student_states.numel()
        ctx.dtype = student_states.dtype
        if token_mask is not None:
            difference.mul_(token_mask.unsqueeze(-1))
            ctx.number = token_mask.sum() * student_states.shape[-1]
        ctx.save_for_backward(difference)
        return torch.dot(difference.flatten(), difference.flatten()) / ctx.number

    @staticmethod
    # pyrefly: ignore[bad-override]  # torch declares *grad_outputs; this has one.
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (
            (ctx.saved_tensors[0] * (2 * gradient / ctx.number)).to(ctx.dtype),
            None,
            None,
        )


def compute_attention_mean_squared_error(
    student_attention_scores: Tensor,
    teacher_attention_scores: Tensor,
    token_mask: Tensor,
    excludes_padding_from_mean: bool,
) -> Tensor:
    """Return the mean squared difference of attention scores, a distillation loss.

    The scores are those of student and teacher before the softmax, [B, A, T, T] each
    (EfficientBERT, equation 1).

    token_mask: attention mask [B, T], 1 for real tokens.
    excludes_padding_from_mean: whether the mean leaves out each pair (query, key) in
    which a token is padding."""
    square = (
        student_attention_scores.float() - teacher_attention_scores.float()
    ).square()
    if not excludes_padding_from_mean:
        return square.mean()
    pairs = (token_mask[:, :, None] * token_mask[:, None, :]).to(square.dtype)
    return (square.mean(1) * pairs).sum() / pairs.sum()


def compute_attention_error_with_padded_scores_zeroed(
    student_attention_scores: Tensor,
    teacher_attention_scores: Tensor,
    token_mask: Tensor,
    excludes_padding_from_mean: bool,
) -> Tensor:
    """Return the mean squared difference of attention scores, padded keys set to 0.

    The scores are those of student and teacher before the softmax, [B, A, T, T] each.
    Scores of padded keys and all scores of at most -100 are first set to 0, in student
    and teacher, as in EfficientBERT's code for distillation.

    token_mask: attention mask [B, T], 1 for real tokens.
    excludes_padding_from_mean: whether the mean leaves out each pair (query, key) in
    which a token is padding. Otherwise it is over all T * T pairs."""
    gone = (token_mask == 0)[:, None, None, :]
    student_attention_scores, teacher_attention_scores = (
        x.masked_fill(gone | (x <= -100), 0.0)
        for x in (student_attention_scores.float(), teacher_attention_scores.float())
    )
    return compute_attention_mean_squared_error(
        student_attention_scores,
        teacher_attention_scores,
        token_mask,
        excludes_padding_from_mean,
    )


def compute_attention_error_ignoring_padded_keys(
    student_attention_scores: Tensor,
    teacher_attention_scores: Tensor,
    token_mask: Tensor,
    excludes_padding_from_mean: bool,
) -> Tensor:
    """Return the mean squared difference of attention scores, as in TinyBERT's code.

    The scores are those of student and teacher before the softmax, [B, A, T, T] each.
    Differences at padded keys are set to 0.

    token_mask: attention mask [B, T], 1 for real tokens.
    excludes_padding_from_mean: whether the mean is over pairs of real tokens alone.
    Otherwise it is over all T * T pairs."""
    token_mask = token_mask.bool()
    pairs = token_mask[:, None, None, :]
    if excludes_padding_from_mean:
        pairs = pairs & token_mask[:, None, :, None]
    square = (
        student_attention_scores.float() - teacher_attention_scores.float()
    ).square() * pairs
    return square.sum() / (
        pairs.expand_as(square).sum() if excludes_padding_from_mean else square.numel()
    )
