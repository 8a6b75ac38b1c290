"""Cutting each layer to heads and neurons of its own: equal to zeros in their place, small, saved and loaded."""

import pytest
import torch
import transformers

from lib.model import backbone
from lib.model.surgery import operate

HEADS, NEURONS = [[2, 7, 11], [4]], [[0, 5, 6, 95], [33]]
KEEP = {"op": "keep", "heads": HEADS, "neurons": NEURONS}


def zero_masked(model, heads, neurons):
    """The whole model with the context of the other heads, and the other neurons, set to zero."""

    def only(index):
        return lambda _, inputs: (
            inputs[0] * torch.zeros(inputs[0].shape[-1]).index_fill(0, index, 1.0).to(inputs[0]),
        )

    for layer, kept_heads, kept_neurons in zip(backbone.layers(model), heads, neurons, strict=True):
        size = layer.attention.self.attention_head_size
        columns = (torch.tensor(kept_heads)[:, None] * size + torch.arange(size)).flatten()
        layer.attention.output.dense.register_forward_pre_hook(only(columns))
        layer.output.dense.register_forward_pre_hook(only(torch.tensor(kept_neurons)))
    return model


@pytest.mark.parametrize(
    "heads, neurons",
    [(HEADS, NEURONS), ([[0], [11]], [[95], [0]]), ([[5, 1], list(range(12))], NEURONS)],
)
def test_kept_parts_alone_give_what_zeros_give(family, heads, neurons, tiny, sentences, logits):
    model, whole, batch = tiny(family).double(), tiny(family).double(), sentences(family)
    report = operate(model, {"op": "keep", "heads": heads, "neurons": neurons})
    assert report == {"heads": [len(h) for h in heads], "neurons": [len(n) for n in neurons]}
    expected = logits(zero_masked(whole, heads, neurons), batch)
    torch.testing.assert_close(logits(model, batch), expected, atol=1e-12, rtol=0)
    assert (expected - logits(tiny(family).double(), batch)).abs().max() > 1e-3
    for layer, h, n in zip(backbone.layers(model), heads, neurons, strict=True):
        assert layer.attention.self.query.weight.shape == (
            4 * len(h),
            48,
        ) and layer.output.dense.weight.shape == (48, len(n))


def test_everything_in_its_order_changes_nothing(family, tiny, sentences, logits):
    model, batch = tiny(family), sentences(family)
    operate(model, {"op": "keep", "heads": [list(range(12))] * 2, "neurons": [list(range(96))] * 2})
    assert torch.equal(logits(model, batch), logits(tiny(family), batch))


def test_keep_counts_within_what_an_earlier_operation_left(tiny, sentences, logits):
    model, batch = tiny("bert").double(), sentences()
    kept = operate(
        model,
        {"op": "cut", "heads": 3},
        head_scores=torch.rand(2, 12),
        neuron_scores=torch.rand(2, 96),
    )
    operate(model, {"op": "keep", "heads": [[1], [0, 2]], "neurons": [[3, 20], [7]]})
    heads = [[kept["heads"][0][1]], [kept["heads"][1][i] for i in (0, 2)]]
    neurons = [[kept["neurons"][0][i] for i in (3, 20)], [kept["neurons"][1][7]]]
    torch.testing.assert_close(
        logits(model, batch),
        logits(zero_masked(tiny("bert").double(), heads, neurons), batch),
        atol=1e-12,
        rtol=0,
    )


def test_saved_loaded_and_trained(family, tiny, sentences, logits, tokenizer, tmp_path):
    model, batch = tiny(family, labels=3), sentences(family)
    operate(model, KEEP)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert again.surgery == [KEEP] and torch.equal(logits(again, batch), logits(model, batch))
    again.train()(**batch).logits.sum().backward()
    assert all(layer.output.dense.weight.grad.abs().sum() > 0 for layer in backbone.layers(again))
    with pytest.raises((OSError, ValueError)):
        transformers.AutoModel.from_pretrained(tmp_path / "model", local_files_only=True)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"heads": [[1], []]},
            "keep heads of layer 1: found none; give at least one of 0 to 11, each once",
        ),
        (
            {"neurons": [[], [1]]},
            "keep neurons of layer 0: found none; give at least one of 0 to 95",
        ),
        ({"heads": [[1], [12]]}, "keep heads of layer 1: found 12; give at least one of 0 to 11"),
        ({"heads": [[-1], [2]]}, "keep heads of layer 0: found -1;"),
        ({"neurons": [[3, 4, 3], [2]]}, "keep neurons of layer 0: found 3; .* each once"),
        ({"neurons": [[1.0], [2]]}, "keep neurons of layer 0: found 1.0;"),
        ({"neurons": [[True], [2]]}, "keep neurons of layer 0: found True;"),
        ({"heads": [[1]]}, "keep heads: 2 lists of indices needed, one for each layer; found "),
        ({"heads": 3}, "keep heads: 2 lists of indices needed, one for each layer; found 3"),
    ],
)
def test_refusals_leave_the_model_alone(change, message, tiny, sentences, logits):
    model = tiny("bert")
    with pytest.raises(ValueError, match=message):
        operate(model, KEEP | change)
    assert model.surgery == [] and torch.equal(
        logits(model, sentences()), logits(tiny("bert"), sentences())
    )


def test_keep_after_ghosts_is_refused(tiny):
    model = tiny("bert")
    operate(model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3})
    with pytest.raises(ValueError, match="keep after ghost: put the keep first"):
        operate(model, KEEP)
