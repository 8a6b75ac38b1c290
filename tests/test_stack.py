"""Stacked networks of any formula against numpy, counts at true size, supernets and their parts, inheritance, saving."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from conftest import Draft
from torch.nn import functional

from lib import data
from lib.model import backbone, scores, stack
from lib.model.surgery import operate
from lib.model.taps import taps
from lib.options import Ghost, Numerics, Targets, Train
from lib.papers.efficientbert import NETS
from lib.search import formula
from lib.search.net import BERT, Layer, Net, attention_parameters, ffn_parameters, parameters
from lib.spec import plain
from lib.train import heads, loop, losses
from lib.train.batches import Encoded

FORMULAS = (
    "W2 gelu(W1 x)",
    "tanh(W2 gelu(W1 x))",
    "W2 gelu(W1 max(x, tanh(x)))",
    "W2 relu(W1 x * x)",
    "elu(W2 swish(W1 x + x))",
)
LIKE = transformers.BertConfig(vocab_size=60, max_position_embeddings=40)
GHOST = {"op": "ghost"} | plain(Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True))


def net(*layers, hidden=48, width=None, embedding="trigram", mismatch="truncate", heads=12):
    layers = layers or ((FORMULAS[1], 2, 2), (FORMULAS[3], 1, 3))
    return Net(
        hidden,
        width or hidden,
        heads,
        embedding,
        mismatch,
        tuple(Layer(*layer) for layer in layers),
    )


def supernet(layers=2, hidden=48):
    return net(*[(BERT, 4, 1)] * layers, hidden=hidden)


def model(wanted, cls=transformers.BertForSequenceClassification, seed=0, **config):
    """A model in float64 and eval mode whose biases and LayerNorms are random, with weights large enough to matter."""
    torch.manual_seed(seed)
    made = stack.build(wanted, cls, LIKE, initializer_range=0.25, **config).double().eval()
    with torch.no_grad():
        for value in made.parameters():
            if value.dim() == 1:
                value.add_(0.25 * torch.randn_like(value))
    return made


# ---- one network, one stack ----
@pytest.mark.parametrize("mismatch", ["truncate", "pad"])
@pytest.mark.parametrize("text", FORMULAS)
def test_a_stack_is_its_formula_k_times_with_residual_and_norm(text, mismatch):
    widths = (
        (24,) if mismatch == "pad" else (12, 5)
    )  # more inner channels than hidden ones, as in the TinyBERT transfer
    one = stack.Stack(12, widths[0], 3, 1e-5, 0.1).double().eval()
    layer = Layer(text, 2, 1)
    for inner in widths:
        one.use(layer, inner, mismatch)
        x = torch.randn(2, 3, 12, dtype=torch.float64)
        wanted = x.numpy()
        for network in one.networks[:2]:
            w1, b1, w2, b2 = (
                p.detach().numpy() for p in (*network.W1.parameters(), *network.W2.parameters())
            )
            found = formula.evaluate(
                layer.tree,
                wanted,
                lambda a, w=w1, b=b1, e=inner: a @ w[:e].T + b[:e],
                lambda a, w=w2, b=b2, e=inner: a @ w[:, :e].T + b,
                formula.NUMPY,
                mismatch,
            )
            total = torch.tensor(wanted + found)
            wanted = functional.layer_norm(total, (12,), eps=1e-5).numpy()
        np.testing.assert_allclose(one(None, x).detach().numpy(), wanted, atol=1e-12)


def test_padding_multiplies_by_one_and_adds_zero():
    """The transfer to TinyBERT: channels of W1 x beyond x pass as they are."""
    one = stack.Stack(4, 6, 1, 1e-5, 0.0).double()
    one.use(Layer("W2 relu(W1 x * x)"), 6, "pad")
    x, first = torch.randn(1, 4, dtype=torch.float64), one.networks[0]
    inner = first.W1(x)
    inner = torch.cat((inner[:, :4] * x, inner[:, 4:]), 1).relu()
    torch.testing.assert_close(one(None, x), first.LayerNorm(x + first.W2(inner)))


def test_dropout_is_inside_the_residual_of_every_network():
    made = model(net((BERT, 3, 1), (BERT, 1, 1)))
    rates = [
        m for m in made.bert.encoder.layer[0].output.modules() if isinstance(m, torch.nn.Dropout)
    ]
    assert len(rates) == 3
    backbone.set_dropout(made, 1.0)
    layer = backbone.layers(made)[0].output.train()
    x = torch.randn(2, 3, 48, dtype=torch.float64)
    wanted = x
    for network in layer.networks:
        wanted = network.LayerNorm(wanted)
    assert torch.equal(layer(None, x), wanted)


# ---- embedding ----
def test_trigrams_are_next_token_token_and_the_one_before():
    one = stack.Trigram(9, 4, 6, padding=0).double()
    ids = torch.tensor([[3, 5, 8]])
    rows, none = one.word_embeddings.weight[[3, 5, 8]], torch.zeros(4, dtype=torch.float64)
    wide = torch.stack(
        [
            torch.cat(three)
            for three in (
                (rows[1], rows[0], none),
                (rows[2], rows[1], rows[0]),
                (none, rows[2], rows[1]),
            )
        ]
    )
    torch.testing.assert_close(one(ids)[0], wide @ one.dense.weight.T + one.dense.bias)
    torch.testing.assert_close(
        one(functional.pad(ids, (0, 4)))[:, :3], one(ids)
    )  # padding's row is zero


@pytest.mark.parametrize("embedding", ["trigram", "plain"])
def test_padding_does_not_change_logits(embedding, sentences, logits):
    made = model(net(embedding=embedding))
    first, *others = (logits(made, sentences(lengths=(9, 6), extra=extra)) for extra in (0, 3, 7))
    assert max((first - other).abs().max() for other in others) < 1e-12


def test_training_the_used_rows_alone_is_exact_with_trigrams(tmp_path, monkeypatch):
    """Of 60 words 12 occur; the others must stay, and the result be that of training the whole table."""
    random = np.random.default_rng(0)
    rows = [random.integers(5, 17, size) for size in random.integers(4, 9, 24)]
    encoded = Encoded({"input_ids": rows}, torch.tensor([len(row) % 2 for row in rows]), 0)
    results = []
    for exact in (True, False):
        if not exact:
            monkeypatch.setattr(loop, "used_rows", lambda *_: nullcontext())
        made = model(net()).float()
        before = made.bert.embeddings.word_embeddings.word_embeddings.weight.detach().clone()

        def loss(batch, chosen, made=made):
            return losses.prediction(made(**batch).logits, encoded.labels[chosen], Targets("hard"))

        train = Train(epochs=2, batch=8, lr=1e-3, max_length=16, dropout=0.1)
        loop.fit(Draft(tmp_path / str(exact)), made, encoded, loss, train, Numerics("float32", 1))
        results.append(made.state_dict())
        after = made.bert.embeddings.word_embeddings.word_embeddings
        assert torch.equal(after.weight[20:], before[20:]) and not torch.equal(
            after.weight[5:17], before[5:17]
        )
        assert after.weight.shape == (60, 128) and (after.weight[0] == 0).all()
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[1])


# ---- counts ----
@pytest.mark.parametrize("name", NETS)
def test_published_nets_have_their_parameters_at_true_size(name):
    wanted = NETS[name]
    with torch.device("meta"):
        made = stack.build(wanted)
    total, pooler = (backbone.size(part)["parameters"] for part in (made, made.pooler))
    assert {p.device.type for p in made.parameters()} == {"meta"}
    assert total - pooler == parameters(wanted, "deployable") and total == parameters(
        wanted, "with pooler"
    )
    assert len(made.surgery) == 1 + (wanted.embedding == "trigram")


@pytest.mark.parametrize(
    "inner, count", [(540, 585360), (270, 293490), (180, 196200), (135, 147555)]
)
def test_unit_counts_of_the_540_wide_nets(inner, count):
    with torch.device("meta"):
        made = backbone.size(stack.Stack(540, inner, 2, 1e-5, 0.1))["parameters"]
    assert made == 2 * count == 2 * ffn_parameters(540, inner)
    assert attention_parameters(540) == 1169640


def test_values_of_the_configuration():
    config = stack.build(net(), like=LIKE).config
    assert (config.layer_norm_eps, config.initializer_range, config.hidden_act) == (
        1e-5,
        0.02,
        "gelu_pytorch_tanh",
    )
    assert (
        config.vocab_size,
        config.max_position_embeddings,
        config.hidden_size,
        config.num_hidden_layers,
    ) == (60, 40, 48, 2)


# ---- supernets ----
PARTS = [
    ((BERT, 4, 1), (BERT, 4, 1)),
    ((FORMULAS[1], 3, 2), (FORMULAS[2], 1, 4)),
    ((FORMULAS[3], 1, 3), (BERT, 2, 1)),
]


@pytest.mark.parametrize("layers", PARTS)
def test_a_chosen_part_computes_what_the_small_model_does(layers, sentences, logits):
    whole, part, batch = model(supernet()), net(*layers), sentences()
    before = logits(whole, batch)
    small = stack.materialise(whole, part)
    stack.choose(whole, part.to_json())
    chosen, expected = logits(whole, batch), logits(small, batch)
    assert (chosen - expected).abs().max() < 1e-12 and not small.training
    assert ((chosen - before).abs().max() > 1e-3) == (layers != PARTS[0])
    assert stack.of(small) == part and stack.of(whole) == supernet()
    assert backbone.size(small.bert)["parameters"] == parameters(
        part, "with pooler", vocab=60, positions=40
    )
    stack.choose(whole)
    assert torch.equal(logits(whole, batch), before)


def test_a_deeper_model_runs_each_layer_twice(sentences):
    whole, batch = model(supernet(), transformers.BertModel), sentences()
    deep = stack.materialise(whole, supernet(4))
    with torch.no_grad():
        x = whole.embeddings(batch["input_ids"])
        mask = (1.0 - batch["attention_mask"][:, None, None].double()) * torch.finfo(
            torch.float64
        ).min
        for layer in whole.encoder.layer:
            for _ in range(2):
                x = layer(x, mask)
        found = deep(**batch).last_hidden_state
    real = batch["attention_mask"].bool()
    assert (found - x)[real].abs().max() < 1e-12


def test_a_narrower_model_has_the_leading_blocks(sentences, logits):
    """540 to 360: here 48 to 36, twelve heads of 4 read as twelve of 3."""
    whole, part = model(supernet()), net((FORMULAS[1], 2, 2), (BERT, 1, 1), hidden=36)
    small = stack.materialise(whole, part)
    mine, theirs = small.state_dict(), whole.state_dict()
    networks = "bert.encoder.layer.0.output.networks"
    blocks = {
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
    for name, shape in blocks.items():
        assert mine[name].shape == shape and torch.equal(
            mine[name], theirs[name][tuple(slice(n) for n in shape)]
        ), name
    between = stack.materialise(whole, supernet(hidden=36))
    stack.choose(between, part)
    assert (logits(small, sentences()) - logits(between, sentences())).abs().max() < 1e-12


def test_inheritance_leaves_what_the_source_does_not_have():
    source, student = model(supernet(), transformers.BertModel), model(net(), seed=1)
    head = student.classifier.weight.clone()
    assert stack.inherit(student, source) == ["classifier.weight", "classifier.bias"]
    assert torch.equal(student.classifier.weight, head)
    assert torch.equal(student.bert.pooler.dense.weight, source.pooler.dense.weight)
    reader = model(net(), transformers.BertForQuestionAnswering)
    assert stack.inherit(reader, source) == ["qa_outputs.weight", "qa_outputs.bias"]


def test_a_plain_bert_hands_its_blocks_to_stacks_of_one(sentences):
    """The start of TinyBERT_4: the same states, once its GELU is the tanh form."""
    plain_net = net((BERT, 1, 1), (BERT, 1, 1), width=96, embedding="plain")
    config = transformers.BertConfig(
        **LIKE.to_diff_dict()
        | stack.sizes(plain_net)
        | {"layer_norm_eps": 1e-5, "initializer_range": 0.25}
    )
    torch.manual_seed(3)
    source = backbone.build(transformers.BertModel, config, []).double().eval()
    student = model(plain_net)
    assert stack.inherit(student, source) == ["classifier.weight", "classifier.bias"]
    batch = sentences()
    with torch.no_grad():
        mine, theirs = student.bert(**batch).last_hidden_state, source(**batch).last_hidden_state
    assert (mine - theirs).abs().max() < 1e-12


def test_channels_out_of_use_get_zero_gradients_and_networks_none(sentences):
    whole = model(supernet())
    stack.choose(whole, net((BERT, 2, 4), (BERT, 1, 1)))
    whole(**sentences()).logits.sum().backward()
    used, unused = (
        whole.bert.encoder.layer[0].output.networks[1],
        whole.bert.encoder.layer[0].output.networks[2],
    )
    assert (used.W1.weight.grad[12:] == 0).all() and (used.W1.weight.grad[:12] != 0).any()
    assert (used.W2.weight.grad[:, 12:] == 0).all() and all(
        p.grad is None for p in unused.parameters()
    )


# ---- taps, scores, saving ----
def test_taps_count_every_layer_and_follow_the_active_part(sentences):
    whole, batch = model(supernet()), sentences()
    with torch.no_grad(), taps(whole) as seen, taps(whole, "pre") as before:
        for part in (None, net(*PARTS[1])):
            stack.choose(whole, part)
            out = backbone.base(whole)(**batch, output_hidden_states=True)
            assert len(seen["ffn"]) == len(seen["attention"]) == len(before["ffn"]) == 2
            assert torch.equal(seen["ffn"][-1], out.last_hidden_state)
            first = backbone.layers(whole)[0].output
            assert torch.equal(
                first.networks[first.active - 1].LayerNorm(before["ffn"][0]), seen["ffn"][0]
            )


@pytest.mark.parametrize("mismatch, embedding", [("truncate", "trigram"), ("pad", "plain")])
def test_save_and_load_give_the_same_logits(
    mismatch, embedding, tokenizer, tmp_path, sentences, logits
):
    width = (
        144 if mismatch == "pad" else None
    )  # at the least ratio, 1 / 3, no fewer inner channels than hidden ones
    made = model(net(*PARTS[2], mismatch=mismatch, embedding=embedding, width=width)).float()
    backbone.save(made, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, sentences()), logits(made, sentences()))
    assert stack.of(again) == stack.of(made) and again.config.layer_norm_eps == 1e-5
    assert torch.equal(logits(copy.deepcopy(made), sentences()), logits(made, sentences()))


@pytest.mark.parametrize("ghosts", [False, True])
def test_raw_scores_are_those_that_the_softmax_sees(ghosts, family, tiny, sentences, logits):
    made, batch = tiny(family).double(), sentences(family)
    if ghosts:
        operate(made, {"op": "cut", "heads": 3, "whole": ["v", "o"]})
        operate(
            made,
            {"op": "ghost", "kind": "conv2d", "positions": ["qk"], "kernel": 3, "mask": True},
            seed=0,
        )
    before, implementation = logits(made, batch), made.config._attn_implementation
    attention = backbone.layers(made)[0].attention.self
    with torch.no_grad(), scores.watch(made) as seen:
        watched = made(**batch).logits
        state = attention_input(made, batch)
        made(**batch)
    size = attention.attention_head_size
    q, k = (
        layer(state).unflatten(-1, (-1, size)).transpose(1, 2)
        for layer in (attention.query, attention.key)
    )
    assert len(seen) == 2 and seen[0].shape == (3, 3 if ghosts else 12, 9, 9)
    torch.testing.assert_close(seen[0], q @ k.transpose(2, 3) / size**0.5)
    assert (watched - before).abs().max() < 1e-12
    assert made.config._attn_implementation == implementation and torch.equal(
        logits(made, batch), before
    )
    assert not any(
        getattr(layer.attention.self, "watcher", None) for layer in backbone.layers(made)
    )


def attention_input(made, batch):
    found = []
    handle = backbone.layers(made)[0].register_forward_pre_hook(
        lambda _, inputs: found.append(inputs[0])
    )
    made(**batch)
    handle.remove()
    return found[0]


def test_scores_carry_gradients_and_dropout_stays(tiny, sentences):
    made = tiny()
    backbone.set_dropout(made, 0.5)
    with scores.watch(made.train()) as seen:
        first, second = (made(**sentences()).logits for _ in range(2))
        assert not torch.allclose(first, second)
        seen[1].square().mean().backward()
    assert (made.bert.encoder.layer[1].attention.self.query.weight.grad != 0).any()
    assert made.bert.encoder.layer[1].attention.self.value.weight.grad is None


# ---- mistakes ----
def plain_bert(**config):
    return backbone.build(
        transformers.BertForSequenceClassification,
        transformers.BertConfig(
            vocab_size=60,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=12,
            intermediate_size=96,
            **config,
        ),
    )


def ghosted():
    made = plain_bert()
    operate(made, GHOST, seed=0)
    return made


@pytest.mark.parametrize(
    "act, message",
    [
        (
            lambda: stack.choose(model(net()), supernet()),
            "4 networks of 48 channels asked of a stack of 2 networks of 24",
        ),
        (
            lambda: stack.choose(model(supernet()), net(hidden=36)),
            "only formulas, stacks and ratios can be chosen",
        ),
        (
            lambda: operate(plain_bert(), {"op": "stack", "net": net(hidden=36).to_json()}),
            r"\(36, 2, 12\) on a model of \(48, 2, 12\)",
        ),
        (lambda: operate(model(net()), {"op": "cut", "heads": 3}), "cut after stack"),
        (lambda: operate(model(net()), GHOST, seed=0), "ghost after stack"),
        (
            lambda: operate(ghosted(), {"op": "stack", "net": net(embedding="plain").to_json()}),
            "stack after ghost",
        ),
        (
            lambda: stack.build(net(), transformers.BertForMaskedLM),
            "whose output layer shares the token table",
        ),
        (lambda: stack.of(plain_bert()), "BertForSequenceClassification has no stacks"),
        (
            lambda: stack.inherit(model(supernet(3)), model(supernet(2))),
            "60 words and 3 layers cannot inherit from 60 words and 2",
        ),
        (
            lambda: stack.inherit(model(net()), model(net(), vocab_size=61)),
            "60 words .* cannot inherit from 61 words",
        ),
        (lambda: stack.inherit(model(supernet()), model(net(*PARTS[2]))), "at least as large"),
        (lambda: stack.inherit(model(net()), model(net(), num_labels=3)), "have as many outputs"),
    ],
)
def test_what_does_not_fit_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_refused_choice_of_ghosts_changes_nothing(logits, sentences):
    made = ghosted().eval()
    before = logits(made, sentences())
    with pytest.raises(ValueError):
        operate(made, {"op": "stack", "net": net(embedding="plain").to_json()})
    assert torch.equal(logits(made, sentences()), before) and len(made.surgery) == 1
    assert replace(net(), embedding="plain") == net(embedding="plain")


def test_a_saved_encoder_without_a_head_gets_one(tokenizer, tmp_path):
    """Both kinds of head, drawn from the seed, over the encoder's own weights."""
    encoder = stack.build(net((FORMULAS[1], 2, 2)), like=LIKE)
    backbone.save(encoder, tokenizer, tmp_path / "model")
    first, again = (backbone.classifier(tmp_path / "model", 3, 0.2, 5)[0] for _ in range(2))
    assert first.classifier.out_features == 3 and stack.of(first) == stack.of(encoder)
    assert all(
        torch.equal(value, first.bert.state_dict()[name])
        for name, value in encoder.state_dict().items()
    )
    assert torch.equal(first.classifier.weight, again.classifier.weight)
    reader, _ = heads.network(tmp_path / "model", data.task("toy", "SQuAD1"), 0.1, 0)
    assert reader.qa_outputs.out_features == 2
    assert all(
        torch.equal(value, encoder.state_dict()[name])
        for name, value in reader.bert.state_dict().items()
    )
