"""Stacked networks of any formula against numpy, counts at true size, supernets and
their parts, inheritance, saving."""

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import transformers
from conftest import RunWriter, position_bias
from torch.nn import functional

from lib.core.options import Numerics, Targets, Train
from lib.model import backbone, formula, scores, stack, supernet
from lib.model.parts import count_parameters, get_encoder, get_layers, set_dropout
from lib.model.surgery import apply_surgery
from lib.model.taps import record_hidden_states
from lib.papers.efficientbert.recipes import NETS
from lib.papers.efficientbert.search.net import BERT, Layer, Net, count_net_parameters
from lib.train import loop, losses
from lib.train.batches import EncodedRows

FORMULAS = (
    "W2 gelu(W1 x)",
    "tanh(W2 gelu(W1 x))",
    "W2 gelu(W1 max(x, tanh(x)))",
    "W2 relu(W1 x * x)",
    "elu(W2 swish(W1 x + x))",
)
LIKE = transformers.BertConfig(vocab_size=60, max_position_embeddings=40)
CLASSIFIER = transformers.BertForSequenceClassification
GHOST = {"op": "ghost", "kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3}


def net(
    *parts, hidden=48, width=None, embedding="trigram", mismatch="truncate", heads=12
):
    parts = parts or ((FORMULAS[1], 2, 2), (FORMULAS[3], 1, 3))
    found = tuple(Layer(*part) for part in parts)
    return Net(hidden, width or hidden, heads, embedding, mismatch, found)


def large(count=2, hidden=48):
    return net(*[(BERT, 4, 1)] * count, hidden=hidden)


def model(wanted, cls=CLASSIFIER, seed=0, **config):
    """A model in float64 whose biases and LayerNorms are random, with weights that
    matter."""
    torch.manual_seed(seed)
    made = (
        supernet.build_efficientbert_model(
            wanted, cls, LIKE, initializer_range=0.25, **config
        )
        .double()
        .eval()
    )
    with torch.no_grad():
        for value in made.parameters():
            if value.dim() == 1:
                value.add_(0.25 * torch.randn_like(value))
    return made


def small(whole, wanted):
    """A model of its own for a Net, with the weights that it inherits."""
    made = model(wanted, type(whole), seed=1)
    supernet.inherit_weights_and_list_missing_tensors(made, whole)
    return made


@pytest.mark.parametrize("mismatch", ["truncate", "pad"])
@pytest.mark.parametrize("text", FORMULAS)
def test_a_stack_is_its_formula_k_times_with_residual_and_norm(text, mismatch):
    # To pad, more inner channels than hidden ones, as in the transfer to TinyBERT.
    widths = (24,) if mismatch == "pad" else (12, 5)
    layer = Layer(text, 2, 1)
    one = stack.FeedForwardStack(12, widths[0], 3, 1e-5, 0.1).double().eval()
    for inner in widths:
        one.set_active_subnetwork(text, 2, inner, mismatch)
        x = torch.randn(2, 3, 12, dtype=torch.float64)
        wanted = x.numpy()
        for network in one.networks[:2]:
            maps = {}
            for name in formula.LINEAR:
                w, b = (p.detach().numpy() for p in getattr(network, name).parameters())
                w, b = (w[:, :inner], b) if name == "W2" else (w[:inner], b[:inner])
                maps[name] = lambda a, w=w, b=b: a @ w.T + b
            found = formula.evaluate_formula_tree(
                layer.formula_tree, wanted, maps, formula.NUMPY, mismatch
            )
            wanted = functional.layer_norm(
                torch.tensor(wanted + found), (12,), eps=1e-5
            ).numpy()
        np.testing.assert_allclose(one(None, x).detach().numpy(), wanted, atol=1e-12)


def test_dropout_is_inside_the_residual_of_every_network():
    made = model(net((BERT, 3, 1), (BERT, 1, 1)))
    set_dropout(made, 1.0)
    layer = get_layers(made)[0].output.train()
    x = wanted = torch.randn(2, 3, 48, dtype=torch.float64)
    for network in layer.networks:
        wanted = network.LayerNorm(wanted)
    assert torch.equal(layer(None, x), wanted)


def test_trigrams_are_next_token_token_and_the_one_before():
    one = stack.TrigramEmbedding(9, 4, 6, padding_id=0).double()
    ids = torch.tensor([[3, 5, 8]])
    a, b, c = one.word_embeddings.weight[[3, 5, 8]]
    none = torch.zeros(4, dtype=torch.float64)
    wide = torch.stack(
        [torch.cat(three) for three in ((b, a, none), (c, b, a), (none, c, b))]
    )
    torch.testing.assert_close(one(ids)[0], wide @ one.dense.weight.T + one.dense.bias)
    padded = one(functional.pad(ids, (0, 4)))[:, :3]  # padding's row is zero
    torch.testing.assert_close(padded, one(ids))


@pytest.mark.parametrize("embedding", ["trigram", "plain"])
def test_padding_does_not_change_logits(embedding, sentences, logits):
    made = model(net(embedding=embedding))
    first, *others = (
        logits(made, sentences(lengths=(9, 6), extra=extra)) for extra in (0, 3, 7)
    )
    assert max((first - other).abs().max() for other in others) < 1e-12


def test_training_the_used_rows_alone_is_exact_with_trigrams(tmp_path, monkeypatch):
    """Of 60 words 12 occur. The others stay; the result is that of training the whole
    table."""
    random = np.random.default_rng(0)
    rows = [random.integers(5, 17, size) for size in random.integers(4, 9, 24)]
    encoded = EncodedRows(
        {"input_ids": rows}, torch.tensor([len(row) % 2 for row in rows]), 0
    )
    results = []
    for exact in (True, False):
        if not exact:
            monkeypatch.setattr(
                loop, "train_only_embedding_rows_in_data", lambda *_: nullcontext()
            )
        made = model(net()).float()
        before = (
            made.bert.embeddings.word_embeddings.word_embeddings.weight.detach().clone()
        )

        def loss(batch, chosen, made=made):
            return losses.compute_prediction_losses(
                made(**batch).logits, encoded.labels[chosen], Targets("hard")
            )

        train = Train(epochs=2, batch=8, lr=1e-3, max_length=16, dropout=0.1)
        loop.fit(
            RunWriter(tmp_path / str(exact)),
            made,
            encoded,
            loss,
            train,
            Numerics("float32", 1),
        )
        results.append(made.state_dict())
        after = made.bert.embeddings.word_embeddings.word_embeddings.weight
        assert torch.equal(after[20:], before[20:]) and not torch.equal(
            after[5:17], before[5:17]
        )
        assert after.shape == (60, 128) and (after[0] == 0).all()
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[1])


@pytest.mark.parametrize("name", NETS)
def test_published_nets_have_their_parameters_at_true_size(name):
    wanted = NETS[name]
    with torch.device("meta"):
        made = supernet.build_efficientbert_model(wanted)
    assert {p.device.type for p in made.parameters()} == {"meta"}
    assert count_parameters(made)["parameters"] == count_net_parameters(
        wanted, "with pooler"
    )


PARTS = [
    ((BERT, 4, 1), (BERT, 4, 1)),
    ((FORMULAS[1], 3, 2), (FORMULAS[2], 1, 4)),
    ((FORMULAS[3], 1, 3), (BERT, 2, 1)),
]


@pytest.mark.parametrize("parts", PARTS)
def test_a_chosen_part_computes_what_the_small_model_does(parts, sentences, logits):
    whole, part, batch = model(large()), net(*parts), sentences()
    before, own = logits(whole, batch), small(whole, part)
    for name in ("weight", "bias"):
        getattr(own.classifier, name).data.copy_(getattr(whole.classifier, name))
    supernet.activate_subnetwork(whole, part.to_json())
    chosen = logits(whole, batch)
    assert (chosen - logits(own, batch)).abs().max() < 1e-12
    assert ((chosen - before).abs().max() > 1e-3) == (parts != PARTS[0])
    assert (
        supernet.read_architecture_of_model(own) == part.to_json()
        and supernet.read_architecture_of_model(whole) == large().to_json()
    )
    count = count_net_parameters(part, "with pooler", vocab=60, positions=40)
    assert count_parameters(own.bert)["parameters"] == count
    with record_hidden_states(whole) as seen, torch.no_grad():
        out = get_encoder(whole)(**batch)
    assert len(seen["ffn"]) == len(seen["attention"]) == 2
    assert torch.equal(seen["ffn"][-1], out.last_hidden_state)
    supernet.activate_subnetwork(whole)
    assert torch.equal(logits(whole, batch), before)


def test_a_deeper_model_runs_each_layer_twice(sentences):
    whole, batch = model(large(), transformers.BertModel), sentences()
    deep, real = small(whole, large(4)), batch["attention_mask"].bool()
    with torch.no_grad():
        x, lowest = whole.embeddings(batch["input_ids"]), torch.finfo(torch.float64).min
        mask = (~real[:, None, None]).double() * lowest
        for layer in whole.encoder.layer:
            x = layer(layer(x, mask), mask)
        found = deep(**batch).last_hidden_state
    assert (found - x)[real].abs().max() < 1e-12


def test_a_narrower_model_has_the_leading_blocks():
    """540 to 360: here 48 to 36, twelve heads of 4 read as twelve of 3."""
    whole = model(large())
    mine = small(whole, net((FORMULAS[1], 2, 2), (BERT, 1, 1), hidden=36)).state_dict()
    theirs, networks = whole.state_dict(), "bert.encoder.layer.0.output.networks"
    shapes = {
        "bert.encoder.layer.1.attention.self.query.weight": (36, 36),
        "bert.pooler.dense.weight": (36, 36),
        "bert.embeddings.word_embeddings.dense.weight": (36, 384),
        "bert.embeddings.LayerNorm.bias": (36,),
        "bert.embeddings.word_embeddings.word_embeddings.weight": (60, 128),
        "classifier.weight": (2, 36),
        f"{networks}.1.W1.weight": (18, 36),
        f"{networks}.1.W2.weight": (36, 18),
        f"{networks}.0.W1.bias": (18,),
    }
    for name, shape in shapes.items():
        block = theirs[name][tuple(slice(n) for n in shape)]
        assert mine[name].shape == shape and torch.equal(mine[name], block), name


def test_inheritance_leaves_what_the_source_does_not_have():
    source = model(large(), transformers.BertModel)
    for cls, head in (
        (CLASSIFIER, "classifier"),
        (transformers.BertForQuestionAnswering, "qa_outputs"),
    ):
        student = model(net(), cls, seed=1)
        before = getattr(student, head).weight.clone()
        assert supernet.inherit_weights_and_list_missing_tensors(student, source) == [
            f"{head}.weight",
            f"{head}.bias",
        ]
        assert torch.equal(getattr(student, head).weight, before)
        query = "encoder.layer.0.attention.self.query.weight"
        assert torch.equal(student.bert.state_dict()[query], source.state_dict()[query])


def test_a_plain_bert_hands_its_blocks_to_stacks_of_one(sentences):
    """The start of TinyBERT_4: the same states, once its GELU is the tanh form."""
    student = model(net((BERT, 1, 1), (BERT, 1, 1), width=96, embedding="plain"))
    torch.manual_seed(3)
    source = transformers.BertModel(copy.deepcopy(student.config)).double().eval()
    assert supernet.inherit_weights_and_list_missing_tensors(student, source) == [
        "classifier.weight",
        "classifier.bias",
    ]
    with torch.no_grad():
        mine, theirs = (
            m(**sentences()).last_hidden_state for m in (student.bert, source)
        )
    assert (mine - theirs).abs().max() < 1e-12


def test_channels_out_of_use_get_zero_gradients_and_networks_none(sentences):
    whole = model(large())
    supernet.activate_subnetwork(whole, net((BERT, 2, 4), (BERT, 1, 1)))
    whole(**sentences()).logits.sum().backward()
    _, used, unused, _ = whole.bert.encoder.layer[0].output.networks
    assert (used.W1.weight.grad[12:] == 0).all() and (
        used.W1.weight.grad[:12] != 0
    ).any()
    assert (used.W2.weight.grad[:, 12:] == 0).all()
    assert all(p.grad is None for p in unused.parameters())


@pytest.mark.parametrize(
    "mismatch, embedding", [("truncate", "trigram"), ("pad", "plain")]
)
def test_save_and_load_give_the_same_logits(
    mismatch, embedding, tokenizer, tmp_path, sentences, logits
):
    width = (
        144 if mismatch == "pad" else None
    )  # at ratio 1/3 no fewer channels than hidden ones
    made = model(
        net(*PARTS[2], mismatch=mismatch, embedding=embedding, width=width)
    ).float()
    backbone.save(made, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, sentences()), logits(made, sentences()))
    assert (
        supernet.read_architecture_of_model(again)
        == supernet.read_architecture_of_model(made)
        and again.config.layer_norm_eps == 1e-5
    )
    assert torch.equal(
        logits(copy.deepcopy(made), sentences()), logits(made, sentences())
    )


@pytest.mark.parametrize("ghosts", [False, True])
def test_raw_scores_are_those_that_the_softmax_sees(
    ghosts, family, tiny, sentences, logits
):
    made, batch = tiny(family).double(), sentences(family)
    if ghosts:
        apply_surgery(made, {"op": "cut", "heads": 3, "whole": ["v", "o"]})
        apply_surgery(
            made, GHOST | {"kind": "conv2d", "positions": ["qk"], "mask": True}
        )
    before, implementation = logits(made, batch), made.config._attn_implementation
    attention, inputs = get_layers(made)[0].attention.self, []
    handle = get_layers(made)[0].register_forward_pre_hook(
        lambda _, given: inputs.append(given[0])
    )
    with scores.record_attention_scores(made) as seen:
        watched = logits(made, batch)
    handle.remove()
    q, k = (
        linear(inputs[0]).unflatten(-1, (-1, 4)).transpose(1, 2)
        for linear in (attention.query, attention.key)
    )
    assert len(seen) == 2 and seen[0].shape == (3, 3 if ghosts else 12, 9, 9)
    bias = position_bias(made, inputs[0])[
        :, : seen[0].shape[1]
    ]  # The first heads stay in a cut.
    torch.testing.assert_close(seen[0], q @ k.transpose(2, 3) / 2 + bias)
    assert (watched - before).abs().max() < 1e-12
    assert made.config._attn_implementation == implementation
    kept = list(seen)
    assert torch.equal(logits(made, batch), before)
    assert all(
        a is b for a, b in zip(kept, seen, strict=True)
    )  # nobody watches any longer


def plain_bert():
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 12}
    return CLASSIFIER(transformers.BertConfig(vocab_size=60, **sizes))


def inherited(student, *source, **config):
    """Let a classifier for one Net inherit from that for another."""
    return supernet.inherit_weights_and_list_missing_tensors(
        model(student), model(*source, **config)
    )


@pytest.mark.parametrize(
    "act, message",
    [
        (
            lambda: supernet.activate_subnetwork(model(net()), large()),
            "24 channels cannot run 4 of 48",
        ),
        (
            lambda: apply_surgery(model(net()), {"op": "cut", "heads": 3}),
            "cut after stack",
        ),
        (lambda: apply_surgery(model(net()), GHOST, seed=0), "ghost after stack"),
        (lambda: inherited(large(3), large(2)), "60, 3.* and a multiple of the layers"),
        (
            lambda: inherited(net(), net(), vocab_size=61),
            "60, 2.*61, 2.* take the same vocabulary",
        ),
        (lambda: inherited(large(), net(*PARTS[2])), "at least as large"),
        (lambda: inherited(net(), net(), num_labels=3), "have as many outputs"),
    ],
)
def test_what_does_not_fit_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_values_of_the_configuration():
    config = supernet.build_efficientbert_model(net(), vocabulary_config=LIKE).config
    names = (
        "layer_norm_eps",
        "initializer_range",
        "hidden_act",
        "vocab_size",
        "hidden_size",
    )
    found = [getattr(config, name) for name in (*names, "num_hidden_layers")]
    assert found == [1e-5, 0.02, "gelu_pytorch_tanh", 60, 48, 2]


def test_scores_carry_gradients_and_dropout_stays(tiny, sentences):
    made = tiny()
    set_dropout(made, 0.5)
    with scores.record_attention_scores(made.train()) as seen:
        first, second = (made(**sentences()).logits for _ in range(2))
        assert not torch.allclose(first, second)
        seen[1].square().mean().backward()
    attention = made.bert.encoder.layer[1].attention.self
    assert (
        attention.query.weight.grad != 0
    ).any() and attention.value.weight.grad is None
