"""Cheaper passes of an encoder on a CPU: the same function up to rounding."""

from contextlib import contextmanager

import torch

from lib.model import scores
from lib.model.backbone import embedding_output


@contextmanager
def lean(model, numerics):
    """Within, on a CPU, a model's attention is the plain one of lib.model.scores, two to three times as fast on short rows
    as the framework's fused one, and in bfloat16 the hidden states are of that type from the embedding on: nothing
    between two matrix products is then cast to and fro. Weights, gates and masks stay in float32. An attention that
    surgery put in stays. Does nothing on other devices."""
    if next(model.parameters()).device.type != "cpu":
        yield
        return
    before, handle = model.config._attn_implementation, None
    if numerics.dtype == "bfloat16":   # first of all hooks, so that those who read along see what the layers see
        handle = embedding_output(model).register_forward_hook(lambda _, __, output: output.to(torch.bfloat16), prepend=True)
    if before in ("sdpa", "eager"):
        model.set_attn_implementation(scores.ATTENTION)
    try:
        yield
    finally:
        if handle:
            handle.remove()
        model.set_attn_implementation(before)
