"""This module has eager attention, and gives access to its raw scores.

A raw score is query times key divided by the root of the head size, before mask and
softmax; in an MPNet the relative position bias is added. transformers returns only
probabilities after dropout. Here every attention calls `compute_masked_scores`, and
`record_scores` collects the scores.

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

from .parts import AnyModule, get_embedding_output, get_layers

# Name for transformers. It has the module's name, so that an exported model, whose
# module has another, does not replace it.
ATTENTION = f"{__name__}.attend"
SHORT = 64  # Number of keys below which the softmax is taken along the first axis.
# Names of attention functions that call `compute_masked_scores`, so that
# `record_scores` works with them.
OURS: set[str] = set()
# {self-attention module: list that collects its raw scores}.
_watched: dict[nn.Module, list[torch.Tensor]] = {}


def register_attention(name: str, attention_function: Callable[..., Any]) -> None:
    """Register an attention function with transformers, with a mask [B, 1, T, T] that
    is added to the scores."""
    AttentionInterface.register(name, attention_function)
    AttentionMaskInterface.register(name, eager_mask)
    OURS.add(name)


def compute_masked_scores(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    position_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention scores [B, A, T, T] with mask, before the softmax.

    Scores without the mask are appended to the list of `record_scores`.

    query, key: [B, A, T, D].
    attention_mask: tensor that is added, or None.
    position_bias: [1, A, T, T] (lib.model.layout), or None."""
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


def compute_attention_maps(
    scores: torch.Tensor, dropout: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the attention maps: dropout(softmax over the keys) of scores [B, A, T, T].

    Along a short last axis, PyTorch computes the softmax on a CPU element by element.
    Along the first axis it uses vector instructions, ten times as fast. So short rows
    of keys are moved there, but not in an exported graph, which takes rows of any
    length.

    dropout: the dropout function."""
    if is_exporting() or scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return dropout(scores.softmax(-1))
    return dropout(scores.permute(3, 0, 1, 2).contiguous().softmax(0)).permute(
        1, 2, 3, 0
    )


def attend(
    module: AnyModule,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (context [B, T, A, D], attention maps [B, A, T, T] after dropout) of eager
    attention.

    The signature is that of transformers' attention interface. The module's dropout
    layer is called, and `dropout` ignored, because `lib.train.lean` may have replaced
    the layer by a faster one of the same rate."""
    scores = compute_masked_scores(
        module, query, key, attention_mask, scaling, position_bias
    )
    attention_maps = compute_attention_maps(
        scores, lambda p: module.dropout(p.to(value.dtype))
    )
    return (attention_maps @ value).transpose(1, 2).contiguous(), attention_maps


register_attention(ATTENTION, attend)


@contextmanager
def use_eager_attention(
    model: PreTrainedModel, is_enabled: bool = True
) -> Iterator[None]:
    """Let a model use the eager attention of this file while the context is open.

    Outputs change by rounding alone. A model whose attention already calls
    `compute_masked_scores`, as after surgery, is not changed. Nothing happens unless
    `is_enabled`."""
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
def record_scores(model: PreTrainedModel) -> Iterator[list[torch.Tensor]]:
    """Yield a list that each forward pass fills with the raw scores [B, A, T, T] of L
    layers, before mask and softmax.

    The scores have gradients."""
    seen: list[torch.Tensor] = []
    watched = [layer.attention.self for layer in get_layers(model)]
    _watched.update(dict.fromkeys(watched, seen))
    begin = get_embedding_output(model).register_forward_hook(lambda *_: seen.clear())
    try:
        with begin, use_eager_attention(model):
            yield seen
    finally:
        for attention in watched:
            _watched.pop(attention, None)
