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
WATCHED = set()   # names of attentions that call `raw`


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


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """Eager attention as transformers' interface wants it: context [B, T, A, D] and maps [B, A, T, T] after dropout. It
    drops out through the module's own layer, of the same rate, which may draw its masks otherwise (lib.train.dropout)."""
    maps = module.dropout(raw(module, query, key, attention_mask, scaling).softmax(-1).to(value.dtype))
    return (maps @ value).transpose(1, 2).contiguous(), maps


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
