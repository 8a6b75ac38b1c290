"""Dropout from random bytes: on a CPU three to five times cheaper than a Bernoulli draw for each element.

One 64-bit draw serves eight elements, so the rate is a multiple of 1 / 256 (0.1 becomes 26 / 256 = 0.1016); the scale
is that of the true rate, so the mean is kept exactly. Attention goes through a function of our own, because the
framework's fused attention draws its mask element by element.

Shapes: B batch, T tokens, A heads, D head size.
"""

from contextlib import contextmanager

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

NAME = "byte_dropout"


def keep(x, rate):
    """A mask like `x`: 0 with probability round(256 rate) / 256, else 1 over the probability of staying."""
    level = round(256 * rate)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-2 ** 63, None)
    stays = draws.view(torch.uint8)[:x.numel()].view(x.shape) >= level
    return torch.where(stays, torch.tensor(256 / (256 - level), dtype=x.dtype, device=x.device), 0)


class ByteDropout(nn.Dropout):
    def forward(self, x):
        return x * keep(x, self.p) if self.training and self.p else x


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """softmax(Q K' scaling + mask), dropped out, times V. query, key, value [B, A, T, D]; returns [B, T, A, D]."""
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = scores.softmax(-1).to(value.dtype)
    if dropout:
        probabilities = probabilities * keep(probabilities, dropout)
    return (probabilities @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@contextmanager
def byte_dropout(model, wanted=True):
    """Within, a model's dropout layers and its attention draw their masks from bytes; does nothing unless `wanted`. An
    attention that surgery put in stays, with the dropout of its own."""
    if not wanted:
        yield
        return
    before = model.config._attn_implementation
    layers = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()
              if type(child) is nn.Dropout]
    for parent, name, child in layers:
        setattr(parent, name, ByteDropout(child.p).train(child.training))
    if before in ("sdpa", "eager"):
        model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        for parent, name, child in layers:
            setattr(parent, name, child.train(parent.training))
        model.set_attn_implementation(before)
