"""Dropout from bytes: its rate, its mean, and that attention without it is the
framework's own."""

import pytest
import torch

from lib.model.parts import set_dropout
from lib.model.scores import SHORT, attend_eagerly
from lib.train.lean import apply_dropout_by_random_bytes, use_dropout_by_random_bytes


def test_rate_and_mean():
    torch.manual_seed(0)
    mask = apply_dropout_by_random_bytes(torch.ones(1000, 1003), 0.1)
    kept = (mask > 0).double().mean().item()
    assert (
        abs(kept - (1 - 26 / 256)) < 1e-3
        and abs(mask.double().mean().item() - 1) < 2e-3
    )
    assert mask.unique().tolist() == pytest.approx([0.0, 256 / 230])


def test_masks_of_neighbours_do_not_go_together():
    torch.manual_seed(0)
    mask = (
        apply_dropout_by_random_bytes(torch.ones(8, 125_000).t().contiguous(), 0.5) > 0
    ).double()  # the eight bytes of each draw
    correlation = torch.corrcoef(mask.t()) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 0.015


@pytest.mark.parametrize("tokens", [5, SHORT + 3])
def test_attention_is_the_reference_in_float64(tokens):
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, 3, tokens, 4, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )
    mask = torch.zeros(2, 1, tokens, tokens, dtype=torch.float64)
    mask[1, :, :, 3:] = torch.finfo(torch.float64).min
    module = torch.nn.Module()
    module.dropout = torch.nn.Identity()
    out, maps = attend_eagerly(module, q, k, v, mask, scaling=0.5)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=0.5
    ).transpose(1, 2)
    assert torch.allclose(out, wanted, atol=1e-12) and torch.allclose(
        maps.sum(-1), torch.ones((), dtype=torch.float64)
    )
    found, real = (
        torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, wanted)
    )
    assert all(
        torch.allclose(a, b, atol=1e-12) for a, b in zip(found, real, strict=True)
    )


def test_a_model_without_dropout_computes_the_same_inside_and_is_itself_again_outside(
    tiny, family
):
    model = tiny(family)
    set_dropout(model, 0.3)
    ids, mask = torch.randint(5, 50, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    before = model(input_ids=ids, attention_mask=mask).logits
    names = [type(m) for m in model.modules()]
    with use_dropout_by_random_bytes(model):
        assert torch.allclose(
            model(input_ids=ids, attention_mask=mask).logits, before, atol=1e-5
        )
        assert [type(m) for m in model.modules()] != names
        model.train()
        assert not torch.allclose(
            model(input_ids=ids, attention_mask=mask).logits, before, atol=1e-3
        )
    model.eval()
    assert [type(m) for m in model.modules()] == names
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, before)


def test_gradients_are_those_of_the_kept_elements():
    torch.manual_seed(0)
    x = torch.randn(50, 50, requires_grad=True)
    kept = apply_dropout_by_random_bytes(x, 0.25)
    kept.sum().backward()
    assert torch.equal(x.grad, (kept != 0) * (4 / 3)) and torch.equal(
        apply_dropout_by_random_bytes(x, 0.0), x
    )


def test_bfloat16_rounds_no_scale():
    x = torch.ones(1000, 1003, dtype=torch.bfloat16, requires_grad=True)
    (apply_dropout_by_random_bytes(x, 0.1) * 230 / 256).float().mean().backward()
    wanted = torch.tensor(256 / 230, dtype=torch.bfloat16)
    assert set(apply_dropout_by_random_bytes(x.detach(), 0.1).unique().tolist()) == {
        0.0,
        wanted.item(),
    }


@pytest.mark.parametrize("rate", [0.999, 1.0])
def test_a_rate_that_drops_everything_gives_zeros_and_no_gradient(rate):
    x = torch.ones(10, requires_grad=True)
    dropped = apply_dropout_by_random_bytes(x, rate)
    dropped.sum().backward()
    assert not dropped.any() and not x.grad.any()
