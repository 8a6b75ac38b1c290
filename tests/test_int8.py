"""The operation "int8": what is stored, what it computes, that it goes last and comes
back."""

import pytest
import torch
from torch import nn

from lib.model import backbone
from lib.model.ghost import Convolution, PerHeadGhostedLayer
from lib.model.int8 import Int8Linear, pad_for_cuda
from lib.model.options import Ghost
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery


def test_a_layer_of_whole_numbers_is_exact():
    linear = nn.Linear(4, 3)
    with torch.no_grad():
        linear.weight.copy_(
            torch.tensor([[127.0, 3, 0, -5], [-127, 1, 2, 3], [127, 0, 0, 64]])
        )
    x = torch.tensor([[[127.0, 0, -2, 9], [1, -127, 5, 0]]])
    torch.testing.assert_close(Int8Linear(linear)(x), linear(x), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 16, 17, 40])
@pytest.mark.parametrize(("inputs", "outputs"), [(8, 16), (13, 1), (332, 3)])
def test_the_zeros_that_cuda_asks_for_change_no_sum(rows, inputs, outputs):
    x, weight = (
        torch.randint(-127, 128, size, dtype=torch.int8)
        for size in ((rows, inputs), (outputs, inputs))
    )
    wide, large = pad_for_cuda(x, 17), pad_for_cuda(weight)
    assert len(wide) > 16 and large.shape[0] % 8 == large.shape[1] % 8 == 0
    sums = torch._int_mm(wide, large.t())[:rows, :outputs]
    assert torch.equal(sums, x.int() @ weight.int().t())


def test_the_error_is_within_half_a_step_of_both_sides():
    linear, x = nn.Linear(64, 32), torch.randn(2, 5, 64)
    made, wanted = Int8Linear(linear)(x), linear(x)
    w, s = linear.weight.abs(), x.abs().amax(-1, keepdim=True) / 254
    bound = (
        (s + 1e-6) * w.sum(1) + x.abs().sum(-1, keepdim=True) * w.amax(1) / 254 + 1e-3
    )
    assert ((made - wanted).abs() <= 1.05 * bound).all()
    assert (made - wanted).abs().max() > 0


def test_a_model_is_close_stored_in_eight_bits_and_comes_back(
    tiny, sentences, tokenizer, tmp_path, family
):
    model, batch = tiny(family), sentences(family)
    before = model(**batch).logits
    assert apply_surgery(model, {"op": "int8"}) == {
        "matrices": 6 * len(get_layers(model))
    }
    after = model(**batch).logits
    # DistilBERT's head has no tanh, which holds differences small in the others.
    limit = 0.2 if family == "distilbert" else 0.15
    assert (after - before).abs().max() < limit * before.abs().max()
    weight = get_layers(model)[0].attention.self.query.weight
    assert weight.dtype == torch.int8
    backbone.save(model, tokenizer, tmp_path)
    assert torch.equal(backbone.load(tmp_path)[0](**batch).logits, after)


def test_nothing_comes_after_it(tiny):
    model = tiny()
    apply_surgery(model, {"op": "int8"})
    for op in (
        {"op": "cut", "heads": 3},
        {"op": "int8"},
        {"op": "layer_dropping", "layers": [0]},
    ):
        with pytest.raises(ValueError, match="after int8"):
            apply_surgery(model, op)


def test_it_follows_a_cut(tiny, sentences):
    model = tiny()
    apply_surgery(model, {"op": "cut", "heads": 3})
    before = model(**sentences()).logits
    apply_surgery(model, {"op": "int8"})
    assert (
        model(**sentences()).logits - before
    ).abs().max() < 0.15 * before.abs().max()


def test_ghosts_of_each_head_read_whole_numbers_exactly():
    options = Ghost("dwconv", ("o",), 3, features=2)
    convolution = Convolution(3, options, torch.Generator().manual_seed(0), 2, 2)
    linear, x = nn.Linear(4, 3), torch.tensor([[[127.0, 0, -2, 9], [1, -127, 5, 0]]])
    with torch.no_grad():
        linear.weight.copy_(
            torch.tensor([[127.0, 3, 0, -5], [-127, 1, 2, 3], [127, 0, 0, 64]])
        )
    made, wanted = (
        PerHeadGhostedLayer(dense, convolution, options, None, "o")(x)
        for dense in (Int8Linear(linear), linear)
    )
    torch.testing.assert_close(made, wanted, rtol=1e-6, atol=1e-3)


def test_it_follows_several_ghosts(tiny, sentences, tokenizer, tmp_path):
    model, batch = tiny(), sentences()
    apply_surgery(model, {"op": "cut", "heads": 3})
    told = {"kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3, "features": 2}
    apply_surgery(model, {"op": "ghost", **told})
    before = model(**batch).logits
    apply_surgery(model, {"op": "int8"})
    after = model(**batch).logits
    assert 0 < (after - before).abs().max() < 0.15 * before.abs().max()
    backbone.save(model, tokenizer, tmp_path)
    assert torch.equal(backbone.load(tmp_path)[0](**batch).logits, after)


def test_zeros_stay_zeros():
    linear = nn.Linear(4, 2)
    nn.init.zeros_(linear.weight)
    assert torch.equal(
        Int8Linear(linear)(torch.zeros(1, 4)), linear.bias.detach()[None]
    )
