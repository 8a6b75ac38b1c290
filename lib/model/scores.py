"""This module has eager attention in one place, and gives access to its raw scores.

A raw score is query times key over the root of the head size, before mask and softmax;
in an MPNet its bias is added. The framework gives only probabilities after dropout.
Here `masked_scores` computes all scores: every attention that `register` makes known calls it,
and `watch_scores` reads along.

Shapes: B batch, T tokens, A heads, D head size, L layers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.compiler import is_exporting
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from .parts import Part, embedding_output, layers

ATTENTION = f"{__name__}.attend"  # An export registers another name.
SHORT = 64  # With fewer keys than these the softmax is taken along the outermost axis.
# Attention functions of these names report their raw scores by themselves, so `watch_scores`
# need not replace them.
OURS: set[str] = set()
# The scores of each of these self-attentions go to its list.
_watched: dict[nn.Module, list[torch.Tensor]] = {}


def register(name: str, attention: Callable[..., Any]) -> None:
    """Make an attention known to transformers; its mask [B, 1, T, T] is added to the
    scores."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)
    OURS.add(name)


def masked_scores(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    position_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the masked scores [B, A, T, T] of query and key [B, A, T, D], for the
    softmax.

    position_bias: [1, A, T, T], which is added to the scores (lib.model.layout), or
    None. The scores without the mask go to the list of `watch_scores`."""
    scores = (
        query
        @ key.transpose(2, 3)
        * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    )
    if position_bias is not None:
        scores = scores + position_bias.to(scores.dtype)
    if module in _watched:
        _watched[module].append(scores)
    return scores if attention_mask is None else scores + attention_mask


def maps(
    scores: torch.Tensor, drop: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return drop(softmax over the keys) of scores [B, A, T, T].

    Along a short last axis a CPU takes the softmax element by element. Along the first
    axis it works in vectors, ten times as fast. So short rows of keys are moved there,
    and back as a view; not in an exported graph, which takes rows of any length."""
    if is_exporting() or scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return drop(scores.softmax(-1))
    return drop(scores.permute(3, 0, 1, 2).contiguous().softmax(0)).permute(1, 2, 3, 0)


def attend(
    module: Part,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (context [B, T, A, D], maps [B, A, T, T] after dropout), as transformers
    wants them.

    Dropout goes through the module's own layer, of the same rate, because
    `lib.train.lean` may have put another kind of layer there."""
    scores = masked_scores(module, query, key, attention_mask, scaling, position_bias)
    attention_maps = maps(scores, lambda p: module.dropout(p.to(value.dtype)))
    return (attention_maps @ value).transpose(1, 2).contiguous(), attention_maps


register(ATTENTION, attend)


@contextmanager
def use_eager_attention(
    model: PreTrainedModel, is_enabled: bool = True
) -> Iterator[None]:
    """Let a model use the attention of this file while the context is open.

    The function of the model stays the same. An attention that surgery put in stays.
    Nothing happens unless `is_enabled`."""
    before: Any = model.config._attn_implementation
    if not is_enabled or before in OURS:
        yield
        return
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def watch_scores(model: PreTrainedModel) -> Iterator[list[torch.Tensor]]:
    """Yield a list that each forward pass fills with L scores [B, A, T, T] before the
    mask.

    The scores carry gradients.
    """
    seen: list[torch.Tensor] = []
    watched = [layer.attention.self for layer in layers(model)]
    _watched.update(dict.fromkeys(watched, seen))
    begin = embedding_output(model).register_forward_hook(lambda *_: seen.clear())
    try:
        with begin, use_eager_attention(model):
            yield seen
    finally:
        for attention in watched:
            _watched.pop(attention, None)
