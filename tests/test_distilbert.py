"""DistilBERT, held to transformers' own model: whole, saved, cut and in training; its
cost, and its own head."""

import pytest
import torch
import transformers
from conftest import classes, configuration, silence
from safetensors import safe_open
from torch.utils.flop_counter import FlopCounterMode

from lib.model import backbone
from lib.model.layout import rename_layer_parts_as_bert
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.stats import cost

A, D, F = 12, 4, 96  # the tiny model's heads, head size and neurons
HEADS, NEURONS = [[5, 0, 9], [11, 3, 4]], [[3, 90, 7], [8, 2, 50]]


def pair(tiny):
    """(ours, transformers' own): two classifiers with the same weights, in float64."""
    model = tiny("distilbert").double()
    theirs = classes("distilbert")[1](configuration("distilbert", A, 2)).double()
    theirs.load_state_dict(backbone.make_state_dict_with_transformers_names(model))
    assert type(theirs.distilbert.transformer.layer[0].attention).__name__ == (
        "DistilBertSelfAttention"
    )
    return model, theirs.eval()


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def silenced(theirs, heads, neurons):
    """transformers' model with the output columns of the other heads and neurons at
    zero."""
    parts = zip(theirs.distilbert.transformer.layer, heads, neurons, strict=True)
    for layer, some, few in parts:
        columns = [head * D + i for head in some for i in range(D)]
        silence(layer.attention.out_lin, columns)
        silence(layer.ffn.lin2, few)
    return theirs


@pytest.mark.parametrize("tokens", [3, 30])
def test_a_whole_model_is_that_of_transformers(tokens, tiny, sentences, logits):
    model, theirs = pair(tiny)
    batch = sentences("distilbert", (tokens, 2, 3))
    close(logits(model, batch), logits(theirs, batch))
    for each in (model, theirs):
        each.set_attn_implementation("eager")
    asked = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        mine, other = (each(**batch, **asked) for each in (model, theirs))
    assert len(other.attentions) == 2 and len(other.hidden_states) == 3
    for name in ("attentions", "hidden_states"):
        for one, two in zip(mine[name], other[name], strict=True):
            close(one, two)


def test_a_training_step_has_the_gradients_of_transformers(tiny, sentences):
    model, theirs = pair(tiny)
    batch = sentences("distilbert")
    for each in (model, theirs):
        each(**batch).logits.square().sum().backward()
    names = zip(
        backbone.make_state_dict_with_transformers_names(model),
        model.state_dict(),
        strict=True,
    )
    expected, found = dict(theirs.named_parameters()), dict(model.named_parameters())
    for theirs_name, name in names:
        close(found[name].grad, expected[theirs_name].grad, 1e-9)


def test_arranging_twice_changes_nothing(tiny):
    model, before = tiny("distilbert"), list(tiny("distilbert").state_dict())
    first = get_layers(model)[0].attention
    assert (
        rename_layer_parts_as_bert(rename_layer_parts_as_bert(model)) is model
        and get_layers(model)[0].attention is first
    )
    assert list(model.state_dict()) == before


def test_a_plain_folder_is_one_of_transformers(
    tiny, sentences, logits, tokenizer, tmp_path
):
    model, theirs = pair(tiny)
    model, batch = model.float(), sentences("distilbert")
    backbone.save(model, tokenizer, tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    names = []
    for name in ("ours", "theirs"):
        with safe_open(tmp_path / name / "model.safetensors", "pt") as file:
            names.append(sorted(file.keys()))
    assert names[0] == names[1]
    cls = transformers.AutoModelForSequenceClassification
    opened = cls.from_pretrained(tmp_path / "ours").eval()
    close(logits(opened, batch), logits(model, batch), 1e-6)
    again, _ = backbone.load(tmp_path / "ours")
    assert torch.equal(logits(again, batch), logits(model, batch))


def test_a_folder_keeps_the_head_that_it_has(
    tiny, sentences, logits, tokenizer, tmp_path
):
    model, theirs = pair(tiny)
    backbone.save(model.float(), tokenizer, tmp_path)
    again, _ = backbone.load_with_task_head(
        tmp_path, "SequenceClassification", 2, 0.0, seed=3
    )
    batch = sentences("distilbert")
    close(logits(again, batch), logits(theirs.float(), batch), 1e-6)


def test_a_cut_folder_opens_as_it_was(tiny, sentences, logits, tokenizer, tmp_path):
    model, theirs = pair(tiny)
    batch = sentences("distilbert")
    apply_surgery(model, {"op": "keep", "heads": HEADS, "neurons": NEURONS})
    expected = logits(silenced(theirs, HEADS, NEURONS), batch)
    close(logits(model, batch), expected)
    backbone.save(model.float(), tokenizer, tmp_path)
    again, _ = backbone.load(tmp_path)
    assert torch.equal(logits(again, batch), logits(model, batch))
    close(logits(again.double(), batch), expected, 1e-6)
    with pytest.raises(ValueError, match="operated-distilbert"):
        transformers.AutoConfig.from_pretrained(tmp_path)


def test_an_operation_takes_transformers_own_model(tiny, sentences, logits):
    model, theirs = pair(tiny)
    for each in (model, theirs):
        apply_surgery(each, {"op": "cut", "heads": 3, "whole": ["v", "o"]})
        apply_surgery(
            each, {"op": "ghost", "kind": "conv2d", "positions": ["qk"], "kernel": 3}
        )
        each.double()
    batch = sentences("distilbert")
    assert torch.equal(logits(model, batch), logits(theirs, batch))


def test_operations_are_those_that_pytorch_counts():
    shape = cost.Shape("distilbert", 2, 48, 4, 96, 100, 64, 0, 48)
    config = cost.build_transformers_config(shape, num_labels=3)
    assert cost.read_shape_of_config(config.to_dict()) == shape
    model = transformers.DistilBertForSequenceClassification(config).eval()
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.full((1, 17), 5))
    assert cost.flops(shape, 17, label_count=3) == counter.get_total_flops()
    ours = sum(p.numel() for p in rename_layer_parts_as_bert(model).parameters())
    assert cost.parameters(shape, label_count=3) == ours
