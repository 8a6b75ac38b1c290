"""Eager attention in one place, and the raw scores of it.

A raw score is query times key over the root of the head size, before mask and softmax. The
framework gives probabilities after dropout alone. Here `raw` computes all scores: an attention made
known by `register` calls it, and `watch` reads along.

Shapes: B batch, T tokens, A heads, D head size, L layers.
"""

from contextlib import contextmanager

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from .parts import embedding_output, layers

ATTENTION = f"{__name__}.attend"  # an export registers its own
SHORT = 64  # keys below which the softmax is taken with the keys as the outermost axis
OURS = set()  # names of attentions that call `raw`
_watched = {}  # {self-attention: the list that its scores go to}


def register(name, attention):
    """Make an attention known to transformers, with a mask [B, 1, T, T] that is added to scores."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)
    OURS.add(name)


def raw(module, query, key, attention_mask, scaling=None):
    """Masked scores [B, A, T, T] for the softmax. query, key: [B, A, T, D].

    The scores without the mask go to whoever watches.
    """
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if module in _watched:
        _watched[module].append(scores)
    return scores if attention_mask is None else scores + attention_mask


def maps(scores, drop):
    """drop(softmax over the keys) of scores [B, A, T, T].

    Along a short last axis a CPU takes the softmax element by element; across rows it works in
    vectors, ten times as fast. There the keys come first, and come back as a view.
    """
    if scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return drop(scores.softmax(-1))
    return drop(scores.permute(3, 0, 1, 2).contiguous().softmax(0)).permute(1, 2, 3, 0)


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """Context [B, T, A, D] and maps [B, A, T, T] after dropout, as transformers' interface wants.

    Dropout goes through the module's own layer, of the same rate: `lib.train.lean` may have put
    another kind of layer there.
    """
    scores = raw(module, query, key, attention_mask, scaling)
    found = maps(scores, lambda p: module.dropout(p.to(value.dtype)))
    return (found @ value).transpose(1, 2).contiguous(), found


register(ATTENTION, attend)


@contextmanager
def eager(model, wanted=True):
    """Within, a model's attention is the one of this file; its function stays the same.

    An attention that surgery put in stays. Does nothing unless `wanted`.
    """
    before = model.config._attn_implementation
    if not wanted or before in OURS:
        yield
        return
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def watch(model):
    """Within, each forward fills the yielded list with L scores [B, A, T, T] before the mask.

    The scores carry gradients.
    """
    seen, watched = [], [layer.attention.self for layer in layers(model)]
    _watched.update(dict.fromkeys(watched, seen))
    begin = embedding_output(model).register_forward_hook(lambda *_: seen.clear())
    try:
        with begin, eager(model):
            yield seen
    finally:
        for attention in watched:
            _watched.pop(attention, None)
