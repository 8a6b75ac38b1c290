"""This module computes attention by separate matrix products ("eager"), and gives
access to its raw scores, on which some distillation losses are defined.

A raw score is query times key divided by the root of the head size, before mask and
softmax; in an MPNet the relative position bias is added. transformers returns only
probabilities after dropout. Here every attention calls
`compute_and_record_masked_scores`, and `record_attention_scores` collects the scores.

Shapes: B batch, T tokens, A heads, D head size, L layers.
"""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.compiler import is_exporting
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from .options import ContextYield
from .parts import AnyModule, get_last_embedding_module, get_layers

ContextsAndMaps = tuple[torch.Tensor, torch.Tensor]

# Name by which transformers finds the function `attend_eagerly`. An exported model has
# a copy of this module. Through `__name__` the copy registers its function under
# another name, and does not replace this one.
ATTENTION = f"{__name__}.attend"
# For fewer keys than this, `compute_attention_maps` takes the softmax on a CPU along
# the first axis of a transposed copy, which is faster.
SHORT = 64
# Names of the attention functions that this package has registered with transformers.
# All of them compute scores by `compute_and_record_masked_scores`, which can record them. So a
# model with one of them keeps it while scores are recorded; any other model is switched
# to `attend_eagerly`.
OURS: set[str] = set()
# {self-attention module: list to which its raw scores are appended}.
_watched: dict[nn.Module, list[torch.Tensor]] = {}


def register_attention_function(
    attention_name: str, attention_function: Callable[..., Any]
) -> None:
    """Register an attention function with transformers under a name.

    A model's configuration can then choose it by this name. The function gets a mask
    [B, 1, T, T] that is to be added to the scores, or None where no token is masked. It
    must compute its scores by `compute_and_record_masked_scores`, so that they can be
    recorded for distillation."""
    AttentionInterface.register(attention_name, attention_function)
    AttentionMaskInterface.register(attention_name, eager_mask)
    OURS.add(attention_name)


def compute_and_record_masked_scores(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    position_bias: torch.Tensor | None,
) -> torch.Tensor:
    """Return the attention scores [B, A, T, T] with the mask added, before the softmax.

    While `record_attention_scores` is active, the scores without the mask are also
    appended to the list that it yields, for a distillation loss.

    module: the self-attention.
    query, key: [B, A, T, D].
    attention_mask: a tensor that is added to the scores; None masks no token.
    scaling: the factor of the scores; None is 1 / sqrt(D).
    position_bias: MPNet's relative position bias [1, A, T, T], which is added too; None
    adds none."""
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
    """Return the attention maps: softmax of the scores over keys, then dropout.

    They are [B, A, T, T], as the scores. On a CPU, PyTorch computes a softmax along a
    short last axis element by element, and along the first axis by vector instructions,
    ten times as fast. So for few keys the axis of keys is moved to the front. This is
    not done in an exported graph, which has to work for any number of keys.

    scores: [B, A, T, T].
    dropout: a function that applies dropout to a tensor."""
    if is_exporting() or scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return dropout(scores.softmax(-1))
    return dropout(scores.permute(3, 0, 1, 2).contiguous().softmax(0)).permute(
        1, 2, 3, 0
    )


def attend_eagerly(
    module: AnyModule,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> ContextsAndMaps:
    """Compute self-attention by separate matrix products, without a fused kernel.

    So the scores can be recorded and the dropout can be replaced. Returns (contexts [B,
    T, A, D], attention maps [B, A, T, T] after dropout). transformers calls this
    function, so it has the signature of transformers' attention functions.

    module: the self-attention.
    query, key, value: [B, A, T, D].
    attention_mask: a tensor that is added to the scores; None masks no token.
    scaling: the factor of the scores; None is 1 / sqrt(D).
    dropout: ignored. The module's own dropout layer is called, because it may have been
    replaced by a faster one of the same rate (`lib.train.lean`).
    position_bias: MPNet's relative position bias [1, A, T, T]; None adds none."""
    scores = compute_and_record_masked_scores(
        module, query, key, attention_mask, scaling, position_bias
    )
    attention_maps = compute_attention_maps(
        scores, lambda p: module.dropout(p.to(value.dtype))
    )
    return (attention_maps @ value).transpose(1, 2).contiguous(), attention_maps


register_attention_function(ATTENTION, attend_eagerly)


@contextmanager
def use_eager_attention(
    model: PreTrainedModel, is_enabled: bool = True
) -> ContextYield[None]:
    """Let a model compute attention without a fused kernel during a `with` block.

    It then uses `attend_eagerly`, so that attention scores can be recorded or dropout
    replaced. Its outputs change only by rounding. A model that already uses an
    attention function of this package is not changed.

    is_enabled: False leaves the model unchanged."""
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
def record_attention_scores(model: PreTrainedModel) -> ContextYield[list[torch.Tensor]]:
    """Record the raw attention scores of each forward pass during a `with` block.

    Yields a list that each forward pass fills anew with the scores [B, A, T, T] of the
    L layers, before mask and softmax. They have gradients, so that a distillation loss
    can be computed on them."""
    seen: list[torch.Tensor] = []
    watched = [layer.attention.self for layer in get_layers(model)]
    _watched.update(dict.fromkeys(watched, seen))
    begin = get_last_embedding_module(model).register_forward_hook(
        lambda *_: seen.clear()
    )
    try:
        with begin, use_eager_attention(model):
            yield seen
    finally:
        for attention in watched:
            _watched.pop(attention, None)
