"""The mix of all layers: its mathematics, where it stands, saving and loading."""

import copy
import math

import pytest
import torch
import transformers
from torch import nn

from lib.model import backbone, mix
from lib.model.parts import surgery
from lib.model.surgery import operate
from lib.options import MIX_NORMS, Ghost, Mix
from lib.spec import plain


def op(norm="layers", init="xavier_uniform", **more):
    return {"op": "mix", "norm": norm, "init": init, "dropout": 0.0, **more}


def layer_mix(norm, states=4, init="xavier_uniform", dropout=0.0):
    return mix.LayerMix(
        states, norm, init, dropout, [None], torch.Generator().manual_seed(1)
    ).double()


def states(number=4, rows=2, tokens=5, hidden=6):
    return torch.randn(number, rows, tokens, hidden, dtype=torch.float64)


def hidden_states(model, batch):
    """The L + 1 states of the plain model, by the framework's own means."""
    with torch.no_grad():
        return backbone.base(model)(**batch, output_hidden_states=True).hidden_states


# ---- mathematics ----
@pytest.mark.parametrize("norm", MIX_NORMS)
def test_the_formula_in_float64(norm):
    module, h = layer_mix(norm), states()
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    if norm == "layers_affine":
        nn.init.normal_(module.scale)
        nn.init.normal_(module.shift)
    nn.init.constant_(module.gamma, 1.7)
    real = mask.bool()[None, :, :, None].expand_as(h)

    def standard(values, **axes):
        return values.mean(**axes, keepdim=True), values.var(
            **axes, keepdim=True, unbiased=False
        ).sqrt()

    if norm.startswith("layers"):
        mean, deviation = standard(h, dim=0)
    elif norm == "channels":
        mean, deviation = standard(h, dim=-1)
    elif norm == "tokens":
        each = [standard(h[j][real[j]], dim=0) for j in range(4)]
        mean, deviation = (torch.stack(part).view(4, 1, 1, 1) for part in zip(*each, strict=True))
    else:
        mean, deviation = 0.0, 1.0
    z = (h - mean) / deviation
    if norm == "layers_affine":
        z = z * module.scale.view(4, 1, 1, 1) + module.shift.view(4, 1, 1, 1)
    a = module.alpha.exp() / module.alpha.exp().sum()
    expected = 1.7 * torch.einsum("j,jbtc->btc", a, z)
    torch.testing.assert_close(module(list(h), mask), expected, atol=1e-9, rtol=0)
    assert torch.allclose(module.weights(), a) and (a.max() - a.min()) > 0.05


def test_read_literally_equal_weights_give_zero_whatever_the_input():
    for h in (states(13), 100 + 50 * states(13)):
        assert layer_mix("layers", 13, "zeros")(list(h)).abs().max() < 1e-13
        assert (
            layer_mix("layers", 13)(list(h)).abs().max() > 0.1
        )  # the spread of alpha is the signal
        for norm in set(MIX_NORMS) - {"layers"}:
            module = layer_mix(norm, 13, "zeros")
            if norm == "layers_affine":
                nn.init.normal_(module.shift)
            assert module(list(h)).abs().max() > 0.1


def test_read_literally_the_signal_is_the_deviation_from_equal_weights():
    module, h = layer_mix("layers"), states()
    z = (h - h.mean(0)) / h.var(0, unbiased=False).sqrt()
    expected = torch.einsum("j,jbtc->btc", module.weights() - 0.25, z)
    torch.testing.assert_close(module(list(h)), expected, atol=1e-9, rtol=0)


def test_padding_is_left_out_of_the_statistics_over_tokens():
    module, h = layer_mix("tokens"), states()
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    other = h.clone()
    other[:, mask == 0] += 7
    seen = mask.bool()
    torch.testing.assert_close(module(list(h), mask)[seen], module(list(other), mask)[seen])
    assert not torch.allclose(module(list(h))[seen], module(list(h), mask)[seen])


@pytest.mark.parametrize("norm", MIX_NORMS)
def test_gradients_in_float64(norm):
    module, h = layer_mix(norm, 3), states(3, 1, 2, 3).requires_grad_()
    mask = torch.tensor([[1, 1]])
    names = [name for name, _ in module.named_parameters()]

    def f(h, *parameters):
        return torch.func.functional_call(
            module, dict(zip(names, parameters, strict=True)), (list(h), mask)
        )

    assert torch.autograd.gradcheck(f, (h, *module.parameters()))


def test_dropout_acts_on_the_normalised_states_in_training_alone():
    module, h = (
        layer_mix("none", dropout=0.5),
        [torch.ones(2, 50, 40, dtype=torch.float64) for _ in range(4)],
    )
    assert torch.allclose(module.eval()(h), torch.ones(()).double())
    out = module.train()(h)
    possible = {
        round(sum(2 * a for a, on in zip(module.weights().tolist(), bits, strict=True) if on), 9)
        for bits in [[i >> j & 1 for j in range(4)] for i in range(16)]
    }
    assert {
        round(v, 9) for v in out.flatten().tolist()
    } == possible and out.mean().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "init, bound, deviation",
    [
        ("xavier_uniform", math.sqrt(6 / 14), math.sqrt(2 / 14)),
        ("xavier_normal", math.inf, math.sqrt(2 / 14)),
        ("zeros", 0, 0),
    ],
)
def test_initial_weights_are_xavier_of_one_row(init, bound, deviation):
    drawn = torch.stack(
        [
            mix.LayerMix(
                13, "layers", init, 0.0, [None], torch.Generator().manual_seed(seed)
            ).alpha.detach()
            for seed in range(400)
        ]
    )
    assert drawn.abs().max() <= bound and drawn.std().item() == pytest.approx(deviation, abs=0.01)
    assert bound in (0, math.inf) or drawn.abs().max() > 0.99 * bound


# ---- in a model ----
@pytest.mark.parametrize("norm", MIX_NORMS)
def test_the_mix_stands_between_encoder_and_head(family, norm, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    h = hidden_states(model, batch)
    assert operate(model, op(norm), seed=4) == {
        "states": 3,
        "parameters": 4 + 6 * (norm == "layers_affine"),
    }
    with torch.no_grad():
        mixed = mix.present(model)(list(h), batch["attention_mask"])
        out = backbone.base(model)(**batch)
        assert torch.equal(out.last_hidden_state, mixed) and not torch.allclose(mixed, h[-1])
        if family == "bert":
            pooled = backbone.base(model).pooler(mixed)
            assert torch.equal(out.pooler_output, pooled)
            expected = model.classifier(pooled)
        else:
            expected = model.classifier(mixed)
        assert torch.equal(model(**batch).logits, expected)


def test_the_mix_stands_before_the_span_head(tiny, sentences):
    model, batch = (
        backbone.build(transformers.BertForQuestionAnswering, tiny("bert").config).eval(),
        sentences(),
    )
    h = hidden_states(model, batch)
    operate(model, op("channels"), seed=4)
    with torch.no_grad():
        start, end = model.qa_outputs(mix.present(model)(list(h))).unbind(-1)
        found = model(**batch)
    assert torch.equal(found.start_logits, start) and torch.equal(found.end_logits, end)


def test_one_state_alone_is_the_model_without_a_mix(family, tiny, sentences, logits):
    model, batch = tiny(family), sentences(family)
    expected = logits(model, batch)
    operate(model, op("none"))
    with torch.no_grad():
        mix.present(model).alpha.copy_(torch.tensor([-100.0, -100.0, 100.0]))
    torch.testing.assert_close(logits(model, batch), expected)


def test_equal_weights_read_literally_blind_the_model(tiny, sentences, logits):
    model = tiny()
    operate(model, op("layers", "zeros"))
    found = logits(model, sentences())
    torch.testing.assert_close(found, logits(model, sentences(seed=1)), atol=1e-5, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(
            found[0],
            model.classifier(model.bert.pooler.activation(model.bert.pooler.dense.bias)),
            atol=1e-5,
            rtol=0,
        )


def test_padding_does_not_change_a_row(family, tiny, sentences, logits):
    model = tiny(family)
    operate(model, op("tokens"), seed=2)
    torch.testing.assert_close(
        logits(model, sentences(family)),
        logits(model, sentences(family, extra=6)),
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize(
    "before",
    [
        [],
        [
            {"op": "cut", "heads": 3},
            {"op": "ghost"} | plain(Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, mask=True)),
        ],
    ],
    ids=["whole", "cut and ghosts"],
)
def test_saved_and_loaded_gives_the_same_logits(
    family, before, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = tiny(family, labels=3), sentences(family)
    for each in [*before, op("layers_affine")]:
        operate(model, each, **({"seed": 3} if each["op"] != "cut" else {}))
    with torch.no_grad():
        for value in mix.present(model).parameters():
            value.add_(torch.randn_like(value))
    expected = logits(model, batch)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, batch), expected) and surgery(again) == surgery(model)
    with pytest.raises((OSError, ValueError)):
        transformers.AutoModel.from_pretrained(tmp_path / "model", local_files_only=True)


def test_a_copied_model_mixes_by_itself(tiny, sentences, logits):
    model, batch = tiny(), sentences()
    operate(model, op("tokens"), seed=2)
    twin, expected = copy.deepcopy(model), logits(model, batch)
    with torch.no_grad():
        mix.present(twin).gamma.mul_(3)
    assert not torch.allclose(logits(twin, batch), expected) and torch.equal(
        logits(model, batch), expected
    )


def test_every_parameter_learns_and_nothing_is_held_back(tiny, sentences):
    model = tiny()
    operate(model, op("layers_affine"), seed=2)
    model(**sentences()).logits.sum().backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for p in mix.present(model).parameters()
    )
    assert mix.present(model).seen == []


def test_bert_base_gains_fourteen_parameters():
    with torch.device("meta"):
        plain_model = backbone.build(
            transformers.BertForSequenceClassification, transformers.BertConfig()
        )
        model = backbone.build(
            transformers.BertForSequenceClassification, transformers.BertConfig(), [op()]
        )
        affine = backbone.build(
            transformers.BertForSequenceClassification,
            transformers.BertConfig(),
            [op("layers_affine")],
        )
    assert {n: p.numel() for n, p in mix.present(model).named_parameters()} == {
        "alpha": 13,
        "gamma": 1,
    }
    size = backbone.size(plain_model)["parameters"]
    assert (
        backbone.size(model)["parameters"] - size,
        backbone.size(affine)["parameters"] - size,
    ) == (14, 40)


def test_the_memory_of_the_mix_is_what_its_states_take(tiny, sentences):
    model, batch, held = tiny(), sentences(), []
    operate(model, op("none"))
    module = mix.present(model)
    module.register_forward_pre_hook(
        lambda _, inputs: held.extend(state.nbytes for state in inputs[0])
    )
    with torch.no_grad():
        model(**batch)
    assert sum(held) == batch["input_ids"].numel() * mix.memory(2, 48)
    assert mix.memory(12, 768) == 39936 and mix.memory(12, 768, 2) == 19968


# ---- refusals ----
def test_models_without_hidden_states_are_refused(tiny):
    small = transformers.DistilBertConfig(
        vocab_size=60, dim=24, n_layers=1, n_heads=2, hidden_dim=24
    )
    for model in (
        transformers.DistilBertForSequenceClassification(small),
        nn.Sequential(nn.Linear(2, 2)),
    ):
        with pytest.raises(
            ValueError,
            match="has no hidden states to mix: it takes an embedding and a list of layers",
        ):
            operate(model, op())
        assert surgery(model) == []
    model = tiny()
    operate(model, op())
    with pytest.raises(ValueError, match="has a layer mix already"):
        operate(model, op())


def test_a_layer_that_was_replaced_afterwards_is_noticed(tiny, sentences):
    model = tiny()
    operate(model, op())
    model.bert.encoder.layer[1] = copy.deepcopy(tiny().bert.encoder.layer[1])
    with pytest.raises(
        ValueError,
        match="saw 2 states and weighs 3: a layer was replaced after it; put the mix last",
    ):
        model(**sentences())


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
    good = Mix("tokens", "zeros", 1e-2, 0.1)
    assert good.surgery == {"op": "mix", "norm": "tokens", "init": "zeros", "dropout": 0.1}
