"""The mix of all layers: its mathematics, where it stands, saving and loading."""

import copy
import math

import pytest
import torch
import transformers
from torch import nn

from lib.core.options import MIX_NORMS
from lib.model import backbone, mix
from lib.model.parts import count_parameters, get_encoder, get_recorded_model_changes
from lib.model.surgery import apply_surgery
from lib.papers.bermo.options import Mix

CLASSIFIER = transformers.BertForSequenceClassification
every_norm = pytest.mark.parametrize("norm", MIX_NORMS)


def op(norm="layers", init="xavier_uniform", **more):
    return {"op": "mix", "norm": norm, "init": init, "dropout": 0.0, **more}


def layer_mix(norm, states=4, init="xavier_uniform", dropout=0.0, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return mix.LayerMix(states, norm, init, dropout, None, draw).double()


def states(number=4, rows=2, tokens=5, hidden=6):
    return torch.randn(number, rows, tokens, hidden, dtype=torch.float64)


def hidden_states(model, batch):
    """The L + 1 states of the plain model, by the framework's own means."""
    with torch.no_grad():
        return get_encoder(model)(**batch, output_hidden_states=True).hidden_states


@every_norm
def test_the_formula_in_float64(norm):
    module, h = layer_mix(norm), states()
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    if norm == "layers_affine":
        nn.init.normal_(module.scale)
        nn.init.normal_(module.shift)
    nn.init.constant_(module.gamma, 1.7)

    def standard(values, dim):
        deviation = values.var(dim=dim, keepdim=True, unbiased=False).sqrt()
        return values.mean(dim=dim, keepdim=True), deviation

    mean, deviation = 0.0, 1.0
    if norm.startswith("layers"):
        mean, deviation = standard(h, 0)
    elif norm == "channels":
        mean, deviation = standard(h, -1)
    elif norm == "tokens":
        each = [standard(state[mask.bool()].flatten(), 0) for state in h]
        mean, deviation = (
            torch.stack(part).view(4, 1, 1, 1) for part in zip(*each, strict=True)
        )
    z = (h - mean) / deviation
    if norm == "layers_affine":
        z = z * module.scale.view(4, 1, 1, 1) + module.shift.view(4, 1, 1, 1)
    a = module.alpha.exp() / module.alpha.exp().sum()
    expected = 1.7 * torch.einsum("j,jbtc->btc", a, z)
    torch.testing.assert_close(module(list(h), mask), expected, atol=1e-9, rtol=0)
    assert (
        torch.allclose(module.compute_hidden_state_weights(), a)
        and (a.max() - a.min()) > 0.05
    )


def test_read_literally_equal_weights_give_zero_whatever_the_input():
    for h in (states(13), 100 + 50 * states(13)):
        assert layer_mix("layers", 13, "zeros")(list(h)).abs().max() < 1e-13
        assert (
            layer_mix("layers", 13)(list(h)).abs().max() > 0.1
        )  # alpha's spread is the signal
        for norm in set(MIX_NORMS) - {"layers"}:
            module = layer_mix(norm, 13, "zeros")
            if norm == "layers_affine":
                nn.init.normal_(module.shift)
            assert module(list(h)).abs().max() > 0.1


def test_padding_is_left_out_of_the_statistics_over_tokens():
    module, h = layer_mix("tokens"), states()
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    other, seen = h.clone(), mask.bool()
    other[:, ~seen] += 7
    torch.testing.assert_close(
        module(list(h), mask)[seen], module(list(other), mask)[seen]
    )
    assert not torch.allclose(module(list(h))[seen], module(list(h), mask)[seen])


def test_dropout_acts_on_the_normalised_states_in_training_alone():
    module = layer_mix("none", dropout=0.5)
    h = [torch.ones(2, 50, 40, dtype=torch.float64) for _ in range(4)]
    assert torch.allclose(module.eval()(h), torch.ones(()).double())
    out, weights = module.train()(h), module.compute_hidden_state_weights().tolist()
    subsets = [[i >> j & 1 for j in range(4)] for i in range(16)]
    sums = [
        sum(2 * a for a, on in zip(weights, bits, strict=True) if on)
        for bits in subsets
    ]
    assert {round(v, 9) for v in out.flatten().tolist()} == {round(v, 9) for v in sums}
    assert out.mean().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "init, bound, deviation",
    [
        ("xavier_uniform", 6**0.5, 2**0.5),
        ("xavier_normal", math.inf, 2**0.5),
        ("zeros", 0, 0),
    ],
)
def test_initial_weights_are_xavier_of_one_row(init, bound, deviation):
    made = [
        layer_mix("layers", 13, init, seed=seed).alpha.detach() for seed in range(400)
    ]
    drawn = torch.stack(made) * 14**0.5
    assert drawn.abs().max() <= bound and drawn.std().item() == pytest.approx(
        deviation, abs=0.04
    )
    assert bound in (0, math.inf) or drawn.abs().max() > 0.99 * bound


@every_norm
def test_the_mix_stands_between_encoder_and_head(family, norm, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    h, count = hidden_states(model, batch), 4 + 6 * (norm == "layers_affine")
    assert apply_surgery(model, op(norm), seed=4) == {"states": 3, "parameters": count}
    with torch.no_grad():
        mixed = mix.find_layer_mix(model)(list(h), batch["attention_mask"])
        out = get_encoder(model)(**batch)
        assert torch.equal(out.last_hidden_state, mixed) and not torch.allclose(
            mixed, h[-1]
        )
        seen = get_encoder(model).pooler(mixed) if family == "bert" else mixed
        if family == "distilbert":
            seen = model.pre_classifier(mixed[:, 0]).relu()
        assert torch.equal(model(**batch).logits, model.classifier(seen))


def test_the_mix_stands_before_the_span_head(tiny, sentences):
    model = backbone.build_random_model(
        transformers.BertForQuestionAnswering, tiny("bert").config
    ).eval()
    h = hidden_states(model, sentences())
    apply_surgery(model, op("channels"), seed=4)
    with torch.no_grad():
        start, end = model.qa_outputs(mix.find_layer_mix(model)(list(h))).unbind(-1)
        found = model(**sentences())
    assert torch.equal(found.start_logits, start) and torch.equal(found.end_logits, end)


def test_padding_does_not_change_a_row(family, tiny, sentences, logits):
    model = tiny(family)
    apply_surgery(model, op("tokens"), seed=2)
    first, longer = (logits(model, sentences(family, extra=extra)) for extra in (0, 6))
    torch.testing.assert_close(first, longer, atol=1e-5, rtol=0)


GHOST = {
    "op": "ghost",
    "kind": "dwconv",
    "positions": ["o", "ffn2"],
    "kernel": 3,
    "mask": True,
}


@pytest.mark.parametrize(
    "before", [[], [{"op": "cut", "heads": 3}, GHOST]], ids=["whole", "cut"]
)
def test_a_saved_and_a_copied_model_are_the_same_function(
    family, before, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = tiny(family, labels=3), sentences(family)
    for each in [*before, op("layers_affine")]:
        apply_surgery(model, each)
    with torch.no_grad():
        for value in mix.find_layer_mix(model).parameters():
            value.add_(torch.randn_like(value))
    expected = logits(model, batch)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, batch), expected) and get_recorded_model_changes(
        again
    ) == get_recorded_model_changes(model)
    twin = copy.deepcopy(model)
    assert torch.equal(logits(twin, batch), expected)
    with torch.no_grad():
        mix.find_layer_mix(twin).gamma.mul_(3)
    assert not torch.allclose(logits(twin, batch), expected)
    assert torch.equal(logits(model, batch), expected)


def test_bert_base_gains_fourteen_parameters():
    with torch.device("meta"):
        plain, model, affine = (
            backbone.build_random_model(CLASSIFIER, transformers.BertConfig(), ops)
            for ops in ([], [op()], [op("layers_affine")])
        )
    counts = {n: p.numel() for n, p in mix.find_layer_mix(model).named_parameters()}
    assert counts == {"alpha": 13, "gamma": 1}
    more = [
        count_parameters(each)["parameters"] - count_parameters(plain)["parameters"]
        for each in (model, affine)
    ]
    assert more == [14, 40]


def test_a_model_with_a_mix_is_refused(tiny):
    model = tiny()
    apply_surgery(model, op())
    with pytest.raises(ValueError, match="has a layer mix already"):
        apply_surgery(model, op())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"norm": "layer"}, "Mix.norm is 'layer'; allowed: 'layers', "),
        ({"init": "xavier"}, "Mix.init is 'xavier'; allowed: 'xavier_uniform'"),
        ({"lr": 0.0}, "Mix.lr is 0.0; it must be above 0"),
        ({"dropout": 1.0}, "Mix.dropout is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_options_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        Mix(**{"norm": "layers", "init": "zeros", "lr": 1e-2} | change)
    assert Mix("tokens", "zeros", 1e-2, 0.1).surgery_operation == op(
        "tokens", "zeros"
    ) | {"dropout": 0.1}


@every_norm
def test_gradients_in_float64(norm):
    module, h = layer_mix(norm, 3), states(3, 1, 2, 3).requires_grad_()
    names = [name for name, _ in module.named_parameters()]

    def f(h, *parameters):
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(
            module, values, (list(h), torch.tensor([[1, 1]]))
        )

    assert torch.autograd.gradcheck(f, (h, *module.parameters()))


def test_every_parameter_learns_and_nothing_is_held_back(tiny, sentences):
    model = tiny()
    apply_surgery(model, op("layers_affine"), seed=2)
    model(**sentences()).logits.sum().backward()
    module = mix.find_layer_mix(model)
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters()
    )
    assert module.seen == []
