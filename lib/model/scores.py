"""Raw attention scores: query times key over the root of the head size, of each layer, before mask and softmax.

The framework gives probabilities after dropout alone. Here one function computes scores; an attention that is
registered through `register` calls it, and `watch` reads along.

Shapes: B batch, T tokens, A heads, D head size, L layers.
"""

from contextlib import contextmanager

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from lib.model.backbone import embedding_output, layers

ATTENTION = "raw_scores"
SHORT = 64  # keys below which the softmax is taken with the keys as the outermost axis
WATCHED = set()  # names of attentions that call `raw`


def register(name, attention):
    """Make an attention known to transformers, with a mask [B, 1, T, T] that is added to the scores."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)
    WATCHED.add(name)


def raw(module, query, key, attention_mask, scaling=None):
    """Masked scores [B, A, T, T] for the softmax. query, key [B, A, T, D]; the plain ones go to whoever watches."""
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if getattr(module, "watcher", None) is not None:
        module.watcher.append(scores)
    return scores if attention_mask is None else scores + attention_mask


def maps(scores, drop):
    """drop(softmax over the keys) of scores [B, A, T, T]. Along a short last axis a CPU takes the softmax element by element,
    across rows in vectors, ten times as fast: there the keys come first, and come back as a view."""
    if scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return drop(scores.softmax(-1))
    return drop(scores.permute(3, 0, 1, 2).contiguous().softmax(0)).permute(1, 2, 3, 0)


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """Eager attention as transformers' interface wants it: context [B, T, A, D] and maps [B, A, T, T] after dropout. It
    drops out through the module's own layer, of the same rate, which may draw its masks otherwise (lib.train.dropout)."""
    found = maps(
        raw(module, query, key, attention_mask, scaling),
        lambda p: module.dropout(p.to(value.dtype)),
    )
    return (found @ value).transpose(1, 2).contiguous(), found


register(ATTENTION, attend)


@contextmanager
def watch(model):
    """Within, each forward fills the yielded list with L scores [B, A, T, T] before the mask, gradients included. The
    model's attention becomes eager, but for one that surgery put in; its function stays the same."""
    seen, before = [], model.config._attn_implementation
    handle = embedding_output(model).register_forward_hook(lambda *_: seen.clear())
    if before not in WATCHED:
        model.set_attn_implementation(ATTENTION)
    watched = [layer.attention.self for layer in layers(model)]
    for attention in watched:
        attention.watcher = seen
    try:
        yield seen
    finally:
        handle.remove()
        for attention in watched:
            attention.watcher = None
        model.set_attn_implementation(before)
