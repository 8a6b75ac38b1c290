"""Cutting, adding ghosts, saving and loading, for BERT, RoBERTa and ELECTRA."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lib.measure.cost import SHAPES, ghost_parameters, parameters
from lib.model import backbone
from lib.model.surgery import operate, rank
from lib.options import Ghost
from lib.spec import plain

GHOST = Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True, mask=True)
CUT, ADD = {"op": "cut", "heads": 3}, {"op": "ghost"} | plain(GHOST)


def random_scores(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    layers, heads = len(backbone.layers(model)), model.config.num_attention_heads
    return {
        "head_scores": torch.rand(layers, heads, generator=generator),
        "neuron_scores": torch.rand(layers, model.config.intermediate_size, generator=generator),
    }


def zero_masked(model, kept):
    """The uncut model with the context of dropped heads, and dropped neurons, set to zero."""

    def keep(index):
        return lambda _, inputs: (
            inputs[0] * torch.zeros(inputs[0].shape[-1]).index_fill(0, index, 1.0),
        )

    for number, layer in enumerate(backbone.layers(model)):
        size = layer.attention.self.attention_head_size
        columns = (
            torch.tensor(kept["heads"][number])[:, None] * size + torch.arange(size)
        ).flatten()
        layer.attention.output.dense.register_forward_pre_hook(keep(columns))
        layer.output.dense.register_forward_pre_hook(keep(torch.tensor(kept["neurons"][number])))
    return model


def test_ranking_and_permuting_leaves_logits(family, tiny, sentences, logits):
    model, batch = tiny(family), sentences(family)
    expected, query = (
        logits(tiny(family), batch),
        backbone.layers(model)[0].attention.self.query.weight,
    )
    kept = operate(model, {"op": "cut", "heads": 12}, **random_scores(model))
    assert [sorted(k) for k in kept["heads"]] == [list(range(12))] * 2
    assert not torch.equal(query, backbone.layers(model)[0].attention.self.query.weight)
    torch.testing.assert_close(logits(model, batch), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("total, heads", [(12, 9), (12, 3), (12, 1), (4, 1)])
def test_cutting_equals_zero_masking(family, total, heads, tiny, sentences, logits):
    model, batch = tiny(family, total), sentences(family)
    scores = random_scores(model)
    kept = operate(model, {"op": "cut", "heads": heads}, **scores)
    for name, kind, number in (
        ("heads", "head_scores", heads),
        ("neurons", "neuron_scores", 96 * heads // total),
    ):
        assert kept[name] == [rank(row)[:number].tolist() for row in scores[kind]]
    expected = logits(zero_masked(tiny(family, total), kept), batch)
    torch.testing.assert_close(logits(model, batch), expected, atol=1e-5, rtol=0)
    assert (expected - logits(tiny(family, total), batch)).abs().max() > 1e-3


def test_cut_keeps_output_biases_whole_and_slices_the_others(family, tiny):
    whole, model = tiny(family), tiny(family)
    kept = operate(model, CUT, **random_scores(model))
    for number, (a, b) in enumerate(
        zip(backbone.layers(whole), backbone.layers(model), strict=True)
    ):
        assert torch.equal(a.attention.output.dense.bias, b.attention.output.dense.bias)
        assert torch.equal(a.output.dense.bias, b.output.dense.bias)
        assert torch.equal(
            a.intermediate.dense.bias[kept["neurons"][number]], b.intermediate.dense.bias
        )
        for name in ("query", "key", "value"):
            bias = (
                getattr(a.attention.self, name).bias.view(12, -1)[kept["heads"][number]].flatten()
            )
            assert torch.equal(bias, getattr(b.attention.self, name).bias)


def test_cut_without_scores_keeps_the_first(tiny):
    kept = operate(tiny("bert"), {"op": "cut", "heads": 2})
    assert kept == {"heads": [[0, 1]] * 2, "neurons": [list(range(16))] * 2}


def test_cut_weights_can_be_trained(tiny, sentences):
    model = tiny("bert")
    operate(model, CUT, **random_scores(model))
    model(**sentences("bert")).logits.sum().backward()
    for layer in backbone.layers(model):
        for linear in (
            layer.attention.self.query,
            layer.attention.output.dense,
            layer.intermediate.dense,
            layer.output.dense,
        ):
            assert linear.weight.is_leaf and linear.weight.requires_grad
        assert layer.output.dense.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("heads", [None, 9, 1])
@pytest.mark.parametrize("ghost", [None, GHOST])
def test_parameters_are_those_of_the_formula(family, heads, ghost, tiny, shape):
    model = tiny(family)
    if heads:
        operate(model, {"op": "cut", "heads": heads})
    if ghost:
        report = operate(model, ADD)
        assert (
            report
            == {"modules": 4, "parameters": ghost_parameters(shape(family), ghost)}
            == {"modules": 4, "parameters": 576}
        )
    assert backbone.size(model) == {"parameters": parameters(shape(family), heads, ghost)}


@pytest.mark.parametrize(
    "op, more, message",
    [
        (
            {"op": "cut", "heads": 0},
            {},
            "cut to 0 heads: a layer of this model has 12; keep 1 to 12",
        ),
        (
            {"op": "cut", "heads": 13},
            {},
            "cut to 13 heads: a layer of this model has 12; keep 1 to 12",
        ),
        ({"op": "cut", "heads": 2.5}, {}, "cut to 2.5 heads"),
        (CUT, {"head_scores": torch.rand(2, 4)}, r"head scores.*\[2, 4\].*2 layers of 12"),
        (CUT, {"neuron_scores": torch.rand(2, 95)}, r"neuron scores.*\[2, 95\].*2 layers of 96"),
        (CUT, {"head_scores": torch.rand(1, 12)}, r"head scores.*\[1, 12\].*2 layers of 12"),
        (CUT, {"head_scores": torch.rand(3, 12)}, r"head scores.*\[3, 12\].*2 layers of 12"),
        (CUT, {"head_scores": torch.rand(12)}, r"head scores.*\[12\].*2 layers of 12"),
        ({"op": "cutt", "heads": 3}, {}, "unknown surgery: 'cutt'; did you mean 'cut'"),
        ({"heads": 3}, {}, "unknown surgery: None"),
        (ADD | {"kind": "dwconf"}, {}, "Ghost.kind is 'dwconf'; allowed: 'dwconv'"),
        (
            ADD | {"features": 2, "positions": ["ffn1"]},
            {},
            "features is 2; more than one is defined at 'o' and 'ffn2'",
        ),
        (
            CUT | {"whole": ["v"]},
            {},
            r"cut with \"whole\": \['v'\]; what can stay .* \[\], \['o'\], \['v', 'o'\]",
        ),
        (CUT | {"whole": ["q"]}, {}, r"cut with \"whole\": \['q'\]"),
        (CUT | {"whole": "o"}, {}, r"cut with \"whole\": o;"),
    ],
)
def test_refusals_leave_the_model_alone(op, more, message, tiny, sentences, logits):
    model, batch = tiny("bert"), sentences("bert")
    with pytest.raises(ValueError, match=message) as caught:
        operate(model, op, **more)
    assert "\n" not in str(caught.value)
    assert model.surgery == []
    assert torch.equal(logits(model, batch), logits(tiny("bert"), batch))


@pytest.mark.parametrize(
    "ops, message",
    [
        ([ADD, CUT], "cut after ghost: put the cut first"),
        ([ADD, ADD], "position 'o' has a ghost already"),
    ],
)
def test_ghosts_come_once_and_last(ops, message, tiny):
    model = tiny("bert")
    operate(model, ops[0])
    shapes = {k: v.shape for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        operate(model, ops[1])
    assert model.surgery == [ADD] and shapes == {k: v.shape for k, v in model.state_dict().items()}


def test_twelve_heads_are_refused_on_a_four_head_model(tiny):
    with pytest.raises(
        ValueError, match="cut to 9 heads: a layer of this model has 4; keep 1 to 4"
    ):
        operate(tiny("electra", 4), {"op": "cut", "heads": 9})


def operated(model, ops):
    for op in ops:
        operate(model, op, **(random_scores(model) if op["op"] == "cut" else {"seed": 3}))
    return model


@pytest.mark.parametrize(
    "ops", [[], [CUT], [CUT, ADD], [ADD]], ids=["whole", "cut", "cut+ghost", "ghost"]
)
def test_saved_and_loaded_gives_the_same_logits(
    family, ops, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = operated(tiny(family, labels=3), ops), sentences(family)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, words = backbone.load(tmp_path / "model")
    assert type(again) is type(model) and not again.training
    assert again.surgery == model.surgery == ops
    assert torch.equal(logits(again, batch), logits(model, batch))
    assert (
        words("word3 word11", "word4")["input_ids"]
        == tokenizer("word3 word11", "word4")["input_ids"]
    )
    backbone.save(again, words, tmp_path / "again")
    assert torch.equal(logits(backbone.load(tmp_path / "again")[0], batch), logits(model, batch))


@pytest.mark.parametrize("ops", [[], [CUT, ADD]], ids=["whole", "cut+ghost"])
def test_classifier_keeps_a_fitting_head_and_refuses_another(
    ops, tiny, sentences, logits, tokenizer, tmp_path
):
    model = operated(tiny("bert", labels=3), ops)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.classifier(tmp_path / "model", 3, 0.1, seed=5)
    assert torch.equal(logits(again.eval(), sentences()), logits(model, sentences()))
    assert {m.p for m in again.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
    with pytest.raises(ValueError, match="the model in model has 3 outputs; the task needs 2"):
        backbone.classifier(tmp_path / "model", 2, 0.1, seed=5)


def test_classifier_draws_a_new_head_from_its_seed(family, tiny, tokenizer, tmp_path):
    backbone.save(tiny(family, masked_lm=True), tokenizer, tmp_path / "model")
    same, twin, other = (
        backbone.classifier(tmp_path / "model", 2, 0.0, seed)[0].state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(same[k], twin[k]) for k in same)
    heads = [k for k in same if not torch.equal(same[k], other[k])]
    assert heads and all("pooler" in k or "classifier" in k for k in heads)


@pytest.mark.parametrize(
    "cls", [transformers.AutoModel, transformers.AutoModelForSequenceClassification]
)
def test_a_plain_load_refuses_a_folder_with_surgery(cls, tiny, tokenizer, tmp_path):
    backbone.save(operated(tiny("bert"), [CUT]), tokenizer, tmp_path / "model")
    with pytest.raises((OSError, ValueError)):
        cls.from_pretrained(tmp_path / "model", local_files_only=True)


def test_weights_that_disagree_with_their_surgery_are_named(tiny, tokenizer, tmp_path):
    folder = tmp_path / "model"
    backbone.save(operated(tiny("bert"), [CUT, ADD]), tokenizer, folder)
    body, weights = (
        json.loads((folder / "surgery.json").read_text()),
        load_file(folder / "weights.safetensors"),
    )

    def refusal(ops, tensors):
        (folder / "surgery.json").write_text(json.dumps(body | {"surgery": ops}))
        save_file(tensors, folder / "weights.safetensors")
        with pytest.raises(ValueError) as caught:
            backbone.load(folder)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    first = "bert.encoder.layer.0.attention.output"
    assert f"{first}.dense.dense.weight (48, 12), expected (48, 16)" in refusal(
        [{"op": "cut", "heads": 4}, ADD], weights
    )
    assert f"{first}.dense.convolution.weight (48, 3), expected none" in refusal([CUT], weights)
    assert f"{first}.dense.convolution.weight (48, 3), expected (48, 5)" in refusal(
        [CUT, ADD | {"kernel": 5}], weights
    )
    missing = {k: v for k, v in weights.items() if k != "classifier.bias"}
    assert "classifier.bias missing, expected (2,)" in refusal([CUT, ADD], missing)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no config.json"):
        backbone.classifier(tmp_path, 2, 0.0, 0)


def test_nothing_is_saved_where_nobody_needs_it(tiny, tokenizer, tmp_path):
    before = set(tmp_path.iterdir())
    backbone.save(tiny("bert"), tokenizer, None)
    assert set(tmp_path.iterdir()) == before


TRUE_SIZE = {
    "bert-base": ("Bert", {}, 55296),
    "roberta-base": (
        "Roberta",
        {"vocab_size": 50265, "type_vocab_size": 1, "max_position_embeddings": 514},
        55296,
    ),
    "electra-small": ("Electra", {}, 18432),
}


@pytest.mark.parametrize("name", TRUE_SIZE)
@pytest.mark.parametrize("heads", [None, 3])
def test_true_size_on_the_meta_device(name, heads):
    prefix, options, extra = TRUE_SIZE[name]
    ops = ([{"op": "cut", "heads": heads}] if heads else []) + [ADD]
    config = getattr(transformers, f"{prefix}Config")(**options)
    with torch.device("meta"):
        model = backbone.build(
            getattr(transformers, f"{prefix}ForSequenceClassification"), config, ops
        )
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert backbone.size(model)["parameters"] == parameters(SHAPES[name], heads, GHOST)
    assert sum(p.numel() for n, p in model.named_parameters() if "convolution" in n) == extra
    assert model.surgery == ops
