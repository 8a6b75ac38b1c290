"""MPNet, held to transformers' own model: whole, saved, cut, with ghosts, mix, masks
and gates, in training; its tokenizer, its checkpoint by digest, and a student with its
vocabulary."""

import json

import pytest
import torch
import transformers
from conftest import (
    REAL,
    classes,
    configuration,
    position_bias,
    put,
    silence,
    word_level,
)
from safetensors import safe_open
from test_masks import attached
from torch.utils.flop_counter import FlopCounterMode

from lib import data
from lib.core import disk, paths
from lib.core.options import Numerics
from lib.data import Split, models
from lib.model import backbone, gates, masks, mix, scores, supernet
from lib.model.layout import rename_layer_parts_as_bert
from lib.model.parts import get_encoder, get_layers
from lib.model.surgery import apply_surgery
from lib.papers.efficientbert.search.net import Layer, Net
from lib.stats import cost
from lib.train.batches import encode_split, make_batch
from lib.train.lean import (
    speed_up_passes_on_cpu,
    use_dropout_by_random_bytes,
)

A, D, F = 12, 4, 96  # the tiny model's heads, head size and neurons
HEADS, NEURONS = [[5, 0, 9], [11, 3, 4]], [[3, 90, 7], [8, 2, 50]]
FOLDER = REAL / "models" / "all-mpnet-base-v2"


def pair(tiny):
    """(ours, transformers' own): two classifiers with the same weights, in float64."""
    model = tiny("mpnet").double()
    theirs = classes("mpnet")[1](configuration("mpnet", A, 2))
    names = {name for name, _ in theirs.named_parameters()}
    with torch.no_grad():
        tensors = backbone.make_state_dict_with_transformers_names(model)
        assert names == tensors.keys()
        for name, value in theirs.double().named_parameters():
            value.copy_(tensors[name])
    assert type(theirs.mpnet.encoder.layer[0].attention).__name__ == "MPNetAttention"
    return model, theirs.eval()


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def columns(heads):
    return [head * D + i for head in heads for i in range(D)]


def silenced(theirs, heads, neurons):
    """transformers' model with the output columns of the other heads and neurons at
    zero."""
    for layer, some, few in zip(
        theirs.mpnet.encoder.layer, heads, neurons, strict=True
    ):
        silence(layer.attention.attn.o, columns(some))
        silence(layer.output.dense, few)
    return theirs


@pytest.mark.parametrize("tokens", [3, 30])
def test_a_whole_model_is_that_of_transformers(tokens, tiny, sentences, logits):
    model, theirs = pair(tiny)
    batch = sentences("mpnet", (tokens, 2, 3))
    close(logits(model, batch), logits(theirs, batch))
    with torch.no_grad():
        mine, other = (
            each(**batch, output_attentions=True) for each in (model, theirs)
        )
    for one, two in zip(mine.attentions, other.attentions, strict=True):
        close(one, two)


def test_distances_beyond_the_last_bucket_are_those_of_transformers():
    config = configuration("mpnet", A, 2)
    config.max_position_embeddings = 400
    torch.manual_seed(0)
    theirs = transformers.MPNetModel(config).double().eval()
    ids = torch.randint(5, 60, (1, 300))
    with torch.no_grad():
        expected = theirs(ids).last_hidden_state
        close(rename_layer_parts_as_bert(theirs)(ids).last_hidden_state, expected)


def test_a_training_step_has_the_gradients_of_transformers(tiny, sentences):
    model, theirs = pair(tiny)
    batch = sentences("mpnet")
    for each in (model, theirs):
        each(**batch).logits.square().sum().backward()
    found = {id(p): p.grad for p in model.parameters()}
    mine = dict(model.named_parameters())
    names = dict(
        zip(
            backbone.make_state_dict_with_transformers_names(model),
            model.state_dict(),
            strict=True,
        )
    )
    for name, value in theirs.named_parameters():
        close(found[id(mine[names[name]])], value.grad, 1e-9)
    assert theirs.mpnet.encoder.relative_attention_bias.weight.grad.abs().sum() > 0


def test_padding_does_not_change_a_row(tiny, sentences, logits):
    model, _ = pair(tiny)
    first, longer = (logits(model, sentences("mpnet", extra=extra)) for extra in (0, 6))
    close(first, longer)


def test_arranging_twice_changes_nothing(tiny):
    model, before = tiny("mpnet"), list(tiny("mpnet").state_dict())
    first = get_layers(model)[0].attention
    assert (
        rename_layer_parts_as_bert(rename_layer_parts_as_bert(model)) is model
        and get_layers(model)[0].attention is first
    )
    assert list(model.state_dict()) == before
    bert = tiny("bert")
    assert (
        rename_layer_parts_as_bert(bert) is bert
        and backbone.make_state_dict_with_transformers_names(bert) is None
    )


def test_a_plain_folder_is_one_of_transformers(
    tiny, sentences, logits, tokenizer, tmp_path
):
    model, theirs = pair(tiny)
    model, batch = model.float(), sentences("mpnet")
    backbone.save(model, tokenizer, tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    keys = []
    for name in ("ours", "theirs"):
        with safe_open(tmp_path / name / "model.safetensors", "pt") as file:
            keys.append(sorted(file.keys()))
    assert keys[0] == keys[1]
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "ours"
    )
    again, _ = backbone.load(tmp_path / "ours")
    assert torch.equal(logits(again, batch), logits(model, batch))
    # Orders of summation differ, and with them float32 by processor.
    opened, model = opened.double().eval(), model.double()
    close(logits(opened, batch), logits(model, batch))


def test_a_cut_folder_opens_as_it_was(tiny, sentences, logits, tokenizer, tmp_path):
    model, theirs = pair(tiny)
    batch = sentences("mpnet")
    ranks = torch.rand(2, A, generator=torch.Generator().manual_seed(1))
    kept = apply_surgery(model, {"op": "cut", "heads": 3}, head_scores=ranks)
    backbone.save(model.float(), tokenizer, tmp_path)
    again, _ = backbone.load(tmp_path)
    assert torch.equal(logits(again, batch), logits(model, batch))
    close(logits(again.double(), batch), logits(silenced(theirs, **kept), batch), 1e-6)
    with pytest.raises(ValueError, match="operated-mpnet"):
        transformers.AutoConfig.from_pretrained(tmp_path)


def test_an_encoder_whose_configuration_names_a_head_opens_alone(tokenizer, tmp_path):
    """all-mpnet-base-v2 names a masked-LM head that it does not have."""
    alone = backbone.build_random_model(
        transformers.MPNetModel, configuration("mpnet", A, 2)
    )
    backbone.save(alone, tokenizer, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    put(tmp_path, "config.json", config | {"architectures": ["MPNetForMaskedLM"]})
    model, _ = backbone.load(tmp_path)
    assert type(model) is transformers.MPNetModel
    again = model.state_dict()
    assert all(
        torch.equal(value, again[name]) for name, value in alone.state_dict().items()
    )


def test_a_cut_layer_has_its_own_heads_columns_of_the_bias(tiny, sentences, logits):
    model, theirs = pair(tiny)
    batch, generator = sentences("mpnet"), torch.Generator().manual_seed(2)
    ranks = torch.rand(2, A, generator=generator), torch.rand(2, F, generator=generator)
    kept = apply_surgery(
        model, {"op": "cut", "heads": 4}, head_scores=ranks[0], neuron_scores=ranks[1]
    )
    assert kept["heads"][0] != kept["heads"][1]
    close(logits(model, batch), logits(silenced(theirs, **kept), batch))
    found = [layer.attention.self.columns.tolist() for layer in get_layers(model)]
    assert found == kept["heads"]


def test_an_operation_takes_transformers_own_model(tiny, sentences, logits):
    model, theirs = pair(tiny)
    for each in (model, theirs):
        apply_surgery(each, {"op": "keep", "heads": HEADS, "neurons": NEURONS})
    assert torch.equal(
        logits(model, sentences("mpnet")), logits(theirs, sentences("mpnet"))
    )


def test_parts_that_are_kept_after_a_cut_have_their_columns_too(
    tiny, sentences, logits
):
    model, theirs = pair(tiny)
    ranks = torch.rand(2, A, generator=torch.Generator().manual_seed(3))
    kept = apply_surgery(model, {"op": "cut", "heads": 6}, head_scores=ranks)
    apply_surgery(
        model, {"op": "keep", "heads": [[4, 1], [5]], "neurons": [[3], [40, 0]]}
    )
    heads = [[kept["heads"][0][i] for i in (4, 1)], [kept["heads"][1][5]]]
    neurons = [[kept["neurons"][0][3]], [kept["neurons"][1][i] for i in (40, 0)]]
    batch = sentences("mpnet")
    close(logits(model, batch), logits(silenced(theirs, heads, neurons), batch))


@pytest.mark.parametrize("position, whole", [("qk", ["v", "o"]), ("v", ["o"])])
def test_ghosts_that_copy_a_head_are_copies_of_its_weights(
    position, whole, tiny, sentences, logits
):
    """A kernel of one tap that takes the first kept head makes its map, or its context,
    again. So transformers' model gives the same with that head's weights and column of
    the bias."""
    model, theirs = pair(tiny)
    apply_surgery(model, {"op": "cut", "heads": 3, "whole": whole})
    told = {"kind": "conv2d", "positions": [position], "kernel": 1}
    apply_surgery(model, {"op": "ghost", **told})
    model.double()
    with torch.no_grad():
        for layer in get_layers(model):
            kernels = layer.attention.self.ghost.convolution.weight
            kernels.zero_().view(A - 3, 3)[:, 0] = 1
        names = ("q", "k") if position == "qk" else ("q", "k", "v")
        for layer in theirs.mpnet.encoder.layer:
            for linear in (getattr(layer.attention.attn, name) for name in names):
                for part in (linear.weight, linear.bias):
                    part.view(A, D, -1)[3:] = part.view(A, D, -1)[:1].clone()
        table = theirs.mpnet.encoder.relative_attention_bias.weight
        table[:, 3:] = table[:, :1].clone()
    batch = sentences("mpnet")
    expected = logits(
        silenced(theirs, [list(range(A))] * 2, [list(range(3 * F // A))] * 2), batch
    )
    close(logits(model, batch), expected)


@pytest.mark.parametrize("alpha", [40.0, 0.5])
def test_gates_are_factors_on_columns(alpha, tiny, sentences, logits):
    model, theirs = pair(tiny)
    apply_surgery(model, {"op": "gates", "regions": ["heads", "ffn"]})
    factor = torch.tensor(alpha, dtype=torch.float64).sigmoid()
    batch = sentences("mpnet")
    with torch.no_grad():
        for each in gates.get_gate_logits(model.double()).values():
            each.fill_(alpha)
        for layer in theirs.mpnet.encoder.layer:
            layer.attention.attn.o.weight.mul_(factor)
            layer.output.dense.weight.mul_(factor)
    close(logits(model, batch), logits(theirs, batch))
    gates.remove_gates(model)
    close(logits(model, batch), logits(pair(tiny)[1], batch))


def test_a_mix_is_one_of_transformers_own_states(tiny, sentences, logits):
    model, theirs = pair(tiny)
    apply_surgery(model, {"op": "mix", "norm": "none", "init": "zeros"})
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    batch = sentences("mpnet")
    with torch.no_grad():
        mix.find_layer_mix(model.double()).alpha.copy_(weights.log())
        states = theirs.mpnet(**batch, output_hidden_states=True).hidden_states
        mixed = sum(w * state for w, state in zip(weights, states, strict=True))
        expected = theirs.classifier(mixed)
    close(logits(model, batch), expected)


def test_masks_are_zeros_of_transformers_weights(tiny, sentences, logits):
    model, theirs = pair(tiny)
    found, batch = attached(model, "magnitude"), sentences("mpnet")
    share = found.options.final_threshold
    with torch.no_grad():
        for value in theirs.mpnet.encoder.layer.parameters():
            if value.dim() == 2:
                value.mul_(
                    masks.make_top_k_mask(value.abs(), int(share * value.numel()))
                )
    expected = logits(theirs, batch)
    close(logits(model.eval(), batch), expected)
    found.after_last_step()
    close(logits(model, batch), expected)


def test_raw_scores_have_the_bias_that_the_softmax_sees(tiny, sentences):
    model, theirs = pair(tiny)
    apply_surgery(model, {"op": "keep", "heads": HEADS, "neurons": NEURONS})
    batch, inputs = sentences("mpnet"), []
    get_layers(model)[1].register_forward_pre_hook(
        lambda _, given: inputs.append(given[0])
    )
    with torch.no_grad(), scores.record_attention_scores(model) as seen:
        model(**batch)
        own, x = theirs.mpnet.encoder.layer[1].attention.attn, inputs[0]
        q, k = (
            part(x).unflatten(-1, (A, D)).transpose(1, 2) for part in (own.q, own.k)
        )
        expected = q @ k.transpose(2, 3) / 2 + position_bias(theirs, x)
    close(seen[1], expected[:, HEADS[1]])


@pytest.mark.parametrize("dtype, most", [("float32", 1e-5), ("bfloat16", 0.03)])
def test_a_lean_cut_model_computes_the_same(dtype, most, tiny, sentences, logits):
    model, batch = tiny("mpnet"), sentences("mpnet")
    apply_surgery(model, {"op": "keep", "heads": HEADS, "neurons": NEURONS})
    before = logits(model, batch)
    numerics, kind = Numerics(dtype, 1), getattr(torch, dtype)
    with (
        speed_up_passes_on_cpu(model, numerics),
        use_dropout_by_random_bytes(model),
    ):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            with scores.record_attention_scores(model) as seen:
                near = logits(model, batch)
            assert {each.dtype for each in seen} == {kind}
    assert (near - before).abs().max() <= most * before.abs().max()


def test_operations_are_those_that_pytorch_counts():
    shape = cost.Shape("mpnet", 2, 48, 4, 96, 100, 66, 0, 48)
    config = cost.build_transformers_config(shape, num_labels=3)
    assert cost.read_shape_of_config(config.to_dict()) == shape
    model = transformers.MPNetForSequenceClassification(config).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.full((1, 17), 5))
    assert cost.flops(shape, 17, label_count=3) == counter.get_total_flops()
    ours = sum(p.numel() for p in rename_layer_parts_as_bert(model).parameters())
    assert cost.parameters(shape, label_count=3) == ours


def test_two_texts_have_two_ends_between_them_and_no_kinds():
    tokenizer = word_level()
    first, second = (name for name in tokenizer.convert_ids_to_tokens([40, 41]))
    rows = encode_split(
        tokenizer,
        Split([first, f"{second} {first}"], [second, second], [0, 1], None),
        9,
    )
    assert [row.tolist() for row in rows.columns["input_ids"]] == [
        [0, 40, 2, 2, 41, 2],
        [0, 41, 40, 2, 2, 41, 2],
    ]
    assert rows.columns.keys() == {"input_ids"} and rows.padding_id == 1
    batch = make_batch(rows, [0, 1])
    assert batch["input_ids"][0].tolist() == [0, 40, 2, 2, 41, 2, 1]
    assert batch["attention_mask"].sum(1).tolist() == [6, 7]


def test_a_network_takes_the_tables_of_a_teacher_without_kinds(logits):
    config = configuration("mpnet", A, 2)
    net = Net(48, 96, A, "plain", "pad", (Layer("W2 (gelu(W1 x))", 1, 1),))
    model = supernet.build_efficientbert_model(
        net, transformers.BertForSequenceClassification, config
    )
    assert (model.config.type_vocab_size, model.config.pad_token_id) == (1, 1)
    assert model.config.vocab_size == config.vocab_size
    assert logits(model.eval(), {"input_ids": torch.full((1, 5), 7)}).shape == (1, 2)


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models_root", lambda: tmp_path / "models")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "data"))
    yield tmp_path


def test_a_checkpoint_of_another_digest_is_refused(at, tiny, tokenizer):
    backbone.save(
        get_encoder(tiny("mpnet")),
        tokenizer,
        at / "data" / "models" / "all-mpnet-base-v2",
    )
    with pytest.raises(ValueError, match="v2 have sha256 .*expected 78c0197b6159d926"):
        models.fetch_checkpoint("all-mpnet-base-v2")
    assert not (at / "models" / "all-mpnet-base-v2").exists()


@pytest.mark.parametrize("short", ["all-mpnet-base-v2", "all-MiniLM-L6-v2"])
@pytest.mark.parametrize("owner", ["", "sentence-transformers/"])
def test_the_hub_is_asked_for_both_names_of_a_checkpoint(
    owner, short, at, tiny, tokenizer, monkeypatch
):
    asked = []

    def give(name, folder):
        asked.append(models.HUB.get(name, name))
        backbone.save(get_encoder(tiny("mpnet")), tokenizer, folder)
        return folder

    monkeypatch.setattr(models, "_download_checkpoint", give)
    monkeypatch.setattr(paths, "DIGESTS", at / "none.json")
    assert models.fetch_checkpoint(owner + short) == at / "models" / short
    assert asked == [f"sentence-transformers/{short}"]


@pytest.mark.skipif(
    not FOLDER.exists(), reason="all-mpnet-base-v2 is not under DATA_ROOT/models"
)
def test_the_published_checkpoint_is_that_of_transformers():
    wanted = data.read_committed_data_digests()["models/all-mpnet-base-v2"]
    assert disk.digest_file(FOLDER / data.WEIGHTS) == wanted
    shape = cost.SHAPES["all-mpnet-base-v2"]
    assert cost.read_shape_of_config(backbone.read_configuration(FOLDER)) == shape
    model, tokenizer = backbone.load_with_task_head(
        FOLDER, "SequenceClassification", 2, 0.0, 0
    )
    assert (
        sum(p.numel() for p in model.parameters())
        == cost.parameters(shape)
        == 109_488_002
    )
    theirs = transformers.MPNetModel.from_pretrained(FOLDER, dtype=torch.float64).eval()
    batch = tokenizer(
        ["one word", "and five more of them"], padding=True, return_tensors="pt"
    )
    assert batch.keys() == {"input_ids", "attention_mask"}
    with torch.no_grad():
        expected = theirs(**batch).last_hidden_state
        close(get_encoder(model.double())(**batch).last_hidden_state, expected, 1e-9)
    kept = {"heads": [[layer, 11 - layer] for layer in range(6)] * 2}
    apply_surgery(model, {"op": "keep", **kept})
    with torch.no_grad():
        for layer, heads in zip(theirs.encoder.layer, kept["heads"], strict=True):
            mask = torch.zeros(12, 64).index_fill(0, torch.tensor(heads), 1).flatten()
            layer.attention.attn.o.weight.mul_(mask)
        expected = theirs(**batch).last_hidden_state
        close(get_encoder(model)(**batch).last_hidden_state, expected, 1e-9)
