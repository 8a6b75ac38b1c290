"""Lean passes: the plain function up to rounding, and the model itself again
outside."""

import pytest
import torch

from lib.core.options import Numerics
from lib.model.surgery import apply_surgery
from lib.model.taps import record_hidden_states
from lib.train import loop
from lib.train.lean import speed_up_passes_on_cpu


def batch():
    ids, mask = torch.randint(5, 50, (4, 9)), torch.ones(4, 9, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def gradients(model, inputs, numerics):
    with loop.autocast_to_dtype(numerics):
        logits = model(**inputs).logits
    logits.float().square().sum().backward()
    found = torch.cat(
        [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    )
    model.zero_grad()
    return logits.detach().float(), found


@pytest.mark.parametrize("dtype, close", [("float32", 1e-5), ("bfloat16", 0.03)])
def test_a_lean_model_computes_the_same(dtype, close, tiny, family):
    model, numerics, inputs = tiny(family).eval(), Numerics(dtype, 1), batch()
    logits, wanted = gradients(model, inputs, Numerics("float32", 1))
    if (dtype, family) == ("bfloat16", "distilbert"):
        close = (
            0.04  # Its head has no tanh, which holds differences small in the others.
        )
    with (
        speed_up_passes_on_cpu(model, numerics),
        record_hidden_states(model) as seen,
    ):
        near, found = gradients(model, inputs, numerics)
        assert seen["embedding"].dtype == seen["ffn"][-1].dtype == getattr(torch, dtype)
    assert (near - logits).abs().max() <= close * logits.abs().max()
    assert (found - wanted).norm() <= close * wanted.norm()
    again, after = gradients(model, inputs, Numerics("float32", 1))
    assert torch.equal(again, logits) and torch.equal(after, wanted)


def test_attention_with_ghost_maps_stays(tiny):
    model = tiny("bert")
    apply_surgery(model, {"op": "cut", "heads": 2, "whole": ["v", "o"]})
    apply_surgery(
        model, {"op": "ghost", "kind": "conv2d", "positions": ["qk"], "kernel": 3}
    )
    before = model.config._attn_implementation
    with speed_up_passes_on_cpu(model, Numerics("float32", 1)):
        assert model.config._attn_implementation == before
