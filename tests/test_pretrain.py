"""Small encoders of all three kinds: conventions of the family, a loss that falls, resumption to
the bit.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import FAMILIES, same_run, stop_at

from lib.data import grammar, toy
from lib.execute import execute
from lib.measure.cost import Shape, parameters
from lib.model import backbone, parts
from lib.model.parts import surgery
from lib.options import MaskedLM, Train
from lib.papers.profiles import TOY_MODELS, shape, toy_backbone
from lib.spec import Spec
from lib.steps import pretrain as step
from lib.store import Store
from lib.train import loop
from lib.train.batches import collate, encode

SMALL = {"layers": 1, "hidden": 48, "ffn": 96}
TRAIN = Train(
    epochs=2, batch=16, lr=2e-3, max_length=40, clip=1.0, warmup=0.1, weight_decay=0.01, dropout=0.1
)


def small(family, **changes):
    whole = toy_backbone(family)
    narrow = {"embedding": 24} if family == "electra" else {}
    told = {"corpus": {"sentences": 160, "seed": 0}, "train": replace(TRAIN, **changes)}
    told["model"] = TOY_MODELS[family] | SMALL | narrow
    return replace(whole, args=whole.args | told)


CHAIN = {family: small(family) for family in FAMILIES}


def test_identities_by_kind():
    assert toy_backbone() == toy_backbone("bert") and toy_backbone().id == "cdeccc82d7f6"
    assert len({toy_backbone(family).id for family in FAMILIES}) == 3
    with pytest.raises(
        ValueError, match="unknown kind of small encoder: 'robert'; did you mean 'roberta'"
    ):
        toy_backbone("robert")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_loss_falls(name, runs):
    first, last = [line["loss"] for line in runs[name].events() if "epoch" in line]
    assert runs[name].metrics["train_loss"] == last < first


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_saved_is_an_encoder_of_its_kind(name, runs):
    model, tokenizer = backbone.load(runs[name].model)
    wanted = {
        "bert": "BertForPreTraining",
        "roberta": "RobertaForMaskedLM",
        "electra": "ElectraForPreTraining",
    }
    assert type(model).__name__ == wanted[name] and surgery(model) == []
    assert runs[name].metrics["parameters"] == sum(p.numel() for p in model.parameters())
    classifier, _ = backbone.headed(runs[name].model, "SequenceClassification", 2, 0.0, 0)
    heads, places = (4, 128) if name == "electra" else (12, 130 if name == "roberta" else 128)
    made = Shape(
        name,
        1,
        48,
        heads,
        96,
        len(grammar.vocabulary()),
        places,
        1 if name == "roberta" else 2,
        24 if name == "electra" else 48,
    )
    assert sum(p.numel() for p in classifier.parameters()) == parameters(made)
    whole = shape("toy", name)
    assert (whole.heads, whole.positions, whole.types) == (made.heads, made.positions, made.types)
    trained = parts.base(model).state_dict()
    assert all(
        torch.equal(trained[k], v)
        for k, v in parts.base(classifier).state_dict().items()
        if k in trained
    )


def test_roberta_conventions(runs, tmp_path):
    model, tokenizer = backbone.load(runs["roberta"].model)
    config = model.config
    ends = config.bos_token_id, config.pad_token_id, config.eos_token_id
    assert ends == (0, 1, 2) and config.type_vocab_size == tokenizer.pad_token_id == 1
    assert tokenizer.convert_ids_to_tokens(range(5)) == list(step.ROBERTA.values())
    pair = tokenizer("the dog slept .", "a pig wept .")
    assert set(pair) == {"input_ids", "attention_mask"}
    told = tokenizer.convert_ids_to_tokens(pair["input_ids"])
    assert told == "<s> the dog slept . </s> </s> a pig wept . </s>".split()
    texts = [" ".join(split.a[:50]) for split in toy.load("CoLA").values()]
    assert tokenizer.unk_token_id not in sum(tokenizer(texts)["input_ids"], [])
    longest = torch.full((1, config.max_position_embeddings - 2), 9)
    with torch.no_grad():
        assert model(input_ids=longest).logits.shape[1] == 128


def test_padding_changes_nothing(runs):
    for name, run in runs.items():
        model, tokenizer = backbone.load(run.model)
        rows = encode(tokenizer, toy.load("RTE")["dev"].take(range(4)), 40)
        base = parts.base(model)
        with torch.no_grad():
            single = base(**collate(rows, [0]))[0]
            padded = base(**collate(rows, [0], pad_to=40))[0][:, : single.shape[1]]
        assert torch.allclose(single, padded, atol=1e-5), name


def test_random_words_are_words(tokenizer):
    batch = {"input_ids": torch.full((64, 64), 9)}
    options = MaskedLM(share=1.0, hidden=0.0, replaced=1.0)
    found, wanted, chosen = step.mask(batch, tokenizer, options, lowest=5)
    assert chosen.all() and set(wanted.tolist()) == {9}
    assert set(found["input_ids"].unique().tolist()) == set(range(5, len(tokenizer)))


def test_the_generator_and_the_discriminator_share_their_table():
    tokenizer = SimpleNamespace(all_special_ids=[0, 1, 2, 3, 4], mask_token_id=4, __len__=None)
    sizes = dict(
        vocab_size=30,
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=20,
        embedding_size=24,
    )
    network, kept, _ = step.electra(sizes, tokenizer, MaskedLM(0.2, 1.0, 0.0), None)
    assert isinstance(kept, transformers.ElectraForPreTraining) and kept is network.discriminator
    table = kept.electra.embeddings.word_embeddings.weight
    assert network.generator.electra.embeddings.word_embeddings.weight is table
    assert network.generator.generator_lm_head.weight is table
    config = network.generator.config
    assert config.hidden_size == 12 and config.num_attention_heads == 1


@pytest.mark.parametrize("name", ["roberta", "electra"])
def test_no_next_sentence_for_the_other_kinds(name, tmp_path):
    spec, objective = small(name), MaskedLM(0.2, 0.8, 0.1, next_sentence=True)
    spec = replace(spec, args=spec.args | {"objective": objective})
    with pytest.raises(ValueError, match=f"'{name}' is pre-trained without it"):
        execute(spec, Store(tmp_path, tmp_path / "none"))


def test_pairs_that_follow_for_the_other_kinds():
    texts = toy.corpus(60, 0)
    first, second, follows = step.passages(texts, 0, mixed=False)
    assert not follows.any()
    assert all(f"{a} {b}" in texts for a, b in zip(first, second, strict=True))
    assert step.passages(texts, 0)[2].any()


def test_a_resumed_electra_has_the_same_bits(runs, tmp_path, monkeypatch):
    spec, store = small("electra"), Store(tmp_path, tmp_path / "none")
    stop_at(monkeypatch, loop, "checkpoint", 5)
    with pytest.raises(KeyboardInterrupt):
        execute(spec, store, keep=True, checkpoint_seconds=0.0)
    again = execute(spec, store, keep=True)
    assert again.status["attempts"] == 2
    same_run(again, runs["electra"])


def test_an_unknown_kind(tmp_path):
    spec = small("bert")
    spec = Spec("pretrain", spec.args | {"model": spec.args["model"] | {"family": "berd"}}, seed=0)
    with pytest.raises(ValueError, match="'berd'; did you mean 'bert'"):
        execute(spec, Store(tmp_path, tmp_path / "none"))
