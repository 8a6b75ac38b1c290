"""First-order Taylor scores against finite differences and independent gradients."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from lib.core.names import Refused
from lib.core.options import Importance, Numerics
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.train.batches import EncodedRows, make_batch
from lib.train.steps.importance import compute_taylor_importance

NUMERICS = Numerics("float32", 1)


def rows(labels=2, number=10):
    draw = np.random.default_rng(0)
    y = (
        draw.uniform(0, 5, number).astype(np.float32)
        if labels == 1
        else draw.integers(0, labels, number)
    )
    return EncodedRows(
        {
            "input_ids": [
                draw.integers(5, 60, draw.integers(3, 9)) for _ in range(number)
            ]
        },
        torch.as_tensor(y),
        0,
    )


def options(batch=4, **more):
    return Importance("held_out", batch, 64, **more)


def batches(encoded, batch=4):
    for start in range(0, len(encoded), batch):
        chosen = list(range(start, min(start + batch, len(encoded))))
        yield make_batch(encoded, chosen), encoded.labels[chosen]


def loss_of(model, batch, labels):
    logits = model(**batch).logits
    if logits.shape[1] == 1:
        return functional.mse_loss(logits[:, 0], labels.to(logits.dtype))
    return functional.cross_entropy(logits, labels)


@pytest.mark.parametrize("labels", [2, 1])
@pytest.mark.parametrize("cumulative", [False, True])
def test_head_scores_are_derivatives(labels, cumulative, tiny):
    """Central differences of the loss by a factor on one head's context, batch by
    batch."""
    model, encoded, eps = tiny("bert", labels=labels).double(), rows(labels), 1e-4
    found, _ = compute_taylor_importance(
        model, encoded, options(cumulative=cumulative), NUMERICS
    )
    expected = torch.zeros(2, 12, dtype=torch.float64)
    for l, layer in enumerate(get_layers(model)):
        for head in range(12):
            running = 0.0
            for batch, y in batches(encoded):
                ends = []
                for factor in (1 + eps, 1 - eps):
                    scale = torch.ones(48, dtype=torch.float64)
                    scale[4 * head : 4 * head + 4] = factor
                    handle = layer.attention.output.dense.register_forward_pre_hook(
                        lambda _, x, scale=scale: x[0] * scale
                    )
                    with torch.no_grad():
                        ends.append(loss_of(model, batch, y))
                    handle.remove()
                slope = (ends[0] - ends[1]) / (2 * eps)
                running = running + slope if cumulative else slope
                expected[l, head] += running.abs()
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-4)
    assert expected.min() > 0


@pytest.mark.parametrize("cumulative", [False, True])
def test_neuron_scores_are_the_formula(cumulative, family, tiny):
    """|w1 . g + b1 g| + |w2 . g| from gradients of backward(), zeroed between batches
    or not."""
    model, encoded = tiny(family).double(), rows()
    _, found = compute_taylor_importance(
        model, encoded, options(cumulative=cumulative), NUMERICS
    )
    expected = torch.zeros(2, 96, dtype=torch.float64)
    for batch, y in batches(encoded):
        if not cumulative:
            model.zero_grad()
        loss_of(model, batch, y).backward()
        for l, layer in enumerate(get_layers(model)):
            one, two = layer.intermediate.dense, layer.output.dense
            for i in range(96):
                expected[l, i] += (
                    (
                        one.weight[i] @ one.weight.grad[i]
                        + one.bias[i] * one.bias.grad[i]
                    )
                    .abs()
                    .detach()
                )
                expected[l, i] += (
                    (two.weight[:, i] @ two.weight.grad[:, i]).abs().detach()
                )
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)


def test_a_head_or_neuron_without_effect_scores_zero(family, tiny):
    model = tiny(family)
    with torch.no_grad():
        get_layers(model)[1].attention.output.dense.weight[:, 8:12] = 0
        get_layers(model)[0].output.dense.weight[:, 5] = 0
        get_layers(model)[0].intermediate.dense.weight[5] = 0
        get_layers(model)[0].intermediate.dense.bias[5] = 0
    heads, neurons = compute_taylor_importance(model, rows(), options(), NUMERICS)
    assert heads.shape == (2, 12) and neurons.shape == (2, 96)
    assert (heads == 0).nonzero().tolist() == [[1, 2]] and (
        neurons == 0
    ).nonzero().tolist() == [[0, 5]]


def test_one_batch_is_the_same_either_way(tiny):
    once, summed = (
        compute_taylor_importance(tiny(), rows(), options(16, cumulative=c), NUMERICS)
        for c in (False, True)
    )
    assert all(torch.equal(a, b) for a, b in zip(once, summed, strict=True))


def test_the_model_is_left_as_it_was(tiny, sentences, logits):
    model, told = tiny(), []
    expected = logits(model, sentences())
    compute_taylor_importance(model, rows(), options(), NUMERICS, told.append)
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert torch.equal(logits(model, sentences()), expected)
    assert told == [0.4, 0.8, 1.0]


def test_four_heads(tiny):
    heads, _ = compute_taylor_importance(
        tiny("electra", 4), rows(), options(), NUMERICS
    )
    assert heads.shape == (2, 4) and (heads > 0).all()


def test_layers_of_different_sizes_are_refused_in_a_line(tiny):
    """As a search leaves them."""
    model = tiny()
    apply_surgery(
        model, {"op": "keep", "heads": [[0, 1], [0]], "neurons": [[0, 1], [2]]}
    )
    with pytest.raises(Refused, match="1 and 1, 2 and 2.*rank the whole model"):
        compute_taylor_importance(model, rows(), options(), NUMERICS)


NET = {
    "hidden": 48,
    "heads": 12,
    "width": 96,
    "embedding": "plain",
    "mismatch": "truncate",
    "layers": [["W2 gelu(W1 x)", 1, 1]] * 2,
}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3},
        {"op": "stack", "net": NET},
        {"op": "int8"},
    ],
    ids=["ghost", "stack", "int8"],
)
def test_layers_that_are_not_plain_are_refused_in_a_line(operation, tiny):
    model = tiny()
    apply_surgery(model, operation)
    with pytest.raises(Refused, match=f"has {operation['op']}: rank it before"):
        compute_taylor_importance(model, rows(), options(), NUMERICS)
