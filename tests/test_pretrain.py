"""The small encoder: its conventions, a loss that falls, resumption to the bit."""

import pytest
import torch
from conftest import losses_of, same_run, small_backbone, stop_at

from lib.core.execute import execute
from lib.core.options import Train
from lib.core.store import Store
from lib.data import grammar, toy
from lib.model import backbone, parts
from lib.model.parts import get_recorded_model_changes
from lib.papers.grids import (
    find_encoder_shape,
    list_encoder_families,
    toy_pretrained_encoder_spec,
    untrained_toy_encoder_spec,
)
from lib.stats.cost import Shape, parameters
from lib.train import loop
from lib.train.batches import encode_split, make_batch
from lib.train.steps import pretrain as step

TRAIN = Train(
    epochs=2, batch=16, lr=2e-3, max_length=40, clip=1.0, warmup=0.1, dropout=0.1
)
CHAIN = {"bert": small_backbone(TRAIN, sentences=160, layers=1)}


def test_identities():
    assert (
        list_encoder_families("toy") == ("bert",)
        and toy_pretrained_encoder_spec().id == "ed7de587321a"
    )
    assert untrained_toy_encoder_spec().args == {
        k: v for k, v in toy_pretrained_encoder_spec().args.items() if k != "train"
    }


def test_the_loss_falls(runs):
    lines = losses_of(runs["bert"])
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"masked", "next"} < lines[0].keys() and runs["bert"].metrics[
        "passages"
    ] == 80


def test_what_is_saved_is_an_encoder(runs):
    model, tokenizer = backbone.load(runs["bert"].model_folder)
    assert (
        type(model).__name__ == "BertForPreTraining"
        and get_recorded_model_changes(model) == []
    )
    assert runs["bert"].metrics["parameters"] == sum(
        p.numel() for p in model.parameters()
    )
    classifier, _ = backbone.load_with_task_head(
        runs["bert"].model_folder, "SequenceClassification", 2, 0.0, 0
    )
    made = Shape("bert", 1, 48, 12, 96, len(grammar.list_vocabulary()), 128, 2, 48)
    assert sum(p.numel() for p in classifier.parameters()) == parameters(made)
    whole = find_encoder_shape("toy")
    assert (whole.heads, whole.positions, whole.types) == (
        made.heads,
        made.positions,
        made.types,
    )
    trained, other = (
        parts.get_encoder(each).state_dict() for each in (model, classifier)
    )
    common = trained.keys() & other.keys()
    assert len(common) > 15
    assert all(torch.equal(trained[k], other[k]) for k in common)
    told = tokenizer.convert_ids_to_tokens(
        tokenizer("the dog slept .", "a pig wept .")["input_ids"]
    )
    assert told == "[CLS] the dog slept . [SEP] a pig wept . [SEP]".split()


def test_padding_changes_nothing(runs):
    model, tokenizer = backbone.load(runs["bert"].model_folder)
    rows = encode_split(tokenizer, toy.load("RTE")["dev"].select_rows(range(4)), 40)
    base = parts.get_encoder(model)
    with torch.no_grad():
        single = base(**make_batch(rows, [0]))[0]
        padded = base(**make_batch(rows, [0], min_token_count=40))[0][
            :, : single.shape[1]
        ]
    assert torch.allclose(single, padded, atol=1e-5)


def test_masks_hide_words_and_never_the_ends(tokenizer):
    ids = torch.full((64, 64), 9)
    ids[:, 0] = tokenizer.cls_token_id
    options = {"share": 1.0, "hidden": 0.5, "replaced": 0.3}
    found, wanted, chosen = step.mask_tokens({"input_ids": ids}, tokenizer, options)
    assert (
        chosen[:, 1:].all() and not chosen[:, 0].any() and set(wanted.tolist()) == {9}
    )
    inner = found["input_ids"][:, 1:]
    assert torch.equal(found["input_ids"][:, 0], ids[:, 0])
    hidden, kept = (
        (inner == each).float().mean() for each in (tokenizer.mask_token_id, 9)
    )
    assert 0.45 < hidden < 0.55 and 0.15 < kept < 0.25


def test_every_second_passage_is_of_two():
    texts = toy.generate_passages(600, 0)
    first, second, follows = step.sample_sentence_pairs(texts, 0)
    together = [f"{a} {b}" in texts for a, b in zip(first, second, strict=True)]
    assert together == (follows == 0).tolist() and not follows[1::2].any()
    assert follows[::2].mean() > 0.9


def test_a_resumed_run_has_the_same_bits(runs, tmp_path, monkeypatch):
    store = Store(tmp_path, tmp_path / "none")
    stop_at(monkeypatch, loop, "write_checkpoint", 5)
    with pytest.raises(KeyboardInterrupt):
        execute(
            CHAIN["bert"], store, keep_weights=True, checkpoint_interval_seconds=0.0
        )
    again = execute(CHAIN["bert"], store, keep_weights=True)
    assert again.status["attempts"] == 2
    same_run(again, runs["bert"])
