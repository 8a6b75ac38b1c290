"""The program in lib/README.md runs as it stands there: an encoder becomes a ghost model on your
own rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_own import encoder as encoder  # These are fixtures.
from test_own import tsv as tsv
from transformers import Trainer, TrainingArguments

import lib
from lib.core import options, paths
from lib.core.names import Refused
from lib.model import backbone
from lib.model.parts import get_layers


def lines():
    text = (paths.ROOT / "lib" / "README.md").read_text()
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def test_the_program_makes_a_cut_model_with_ghosts(tsv, encoder, tmp_path, monkeypatch):
    folder = encoder(heads=4)
    (tmp_path / "my-encoder").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    program = lines()
    assert len([line for line in program.splitlines() if line.strip()]) == 12
    for name in ("Spec", "Store", "store"):
        assert name not in program
    names = {}
    exec(program, names)
    before, after = names["whole"], names["small"]
    assert {"steps", "accuracy"} <= before.keys() & after.keys() and after[
        "accuracy"
    ] > 0.8
    model, _ = backbone.load(tmp_path / "my-ghost")
    assert [
        layer.attention.self.num_attention_heads for layer in get_layers(model)
    ] == [
        2,
        2,
    ]
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        ours, saved = (
            each.eval()(input_ids=ids).logits for each in (names["model"], model)
        )
    assert np.allclose(ours, saved, atol=1e-6) and any(
        "convolution" in n for n in model.state_dict()
    )


def test_a_loop_leaves_the_process_as_it_was(tsv, encoder):
    """Its threads and random states are the caller's, also where it fails."""
    task, rows = lib.rows(tsv)
    model, tokenizer = lib.network(encoder(heads=4), task)
    train = options.Train(epochs=1, batch=16, lr=1e-3, max_length=16)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    try:
        lib.fit(model, tokenizer, task, rows, train)
        lib.rank(model, tokenizer, task, rows["dev"])
        best = lib.fit(model, tokenizer, task, rows, replace(train, select="best"))
        assert best["best_step"] == best["steps"]
        with pytest.raises(FloatingPointError):
            lib.fit(model, tokenizer, task, rows, replace(train, lr=1e30, epochs=9))
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        torch.set_num_threads(1)


def test_what_does_not_fit_together_is_refused_before_any_training(tsv, encoder):
    task, rows = lib.rows(tsv)
    model, tokenizer = lib.network(encoder(heads=4), task)
    assert [*model.config.id2label.values()] == [*task.labels]
    train = options.Train(epochs=1, batch=16, lr=1e-3, max_length=16)

    def refused(why, model=model, task=task, rows=rows, **changes):
        with pytest.raises(Refused, match=why):
            lib.fit(model, tokenizer, task, rows, replace(train, **changes))

    refused("max_length is 5000; this model reads", max_length=5000)
    refused("unknown metric of train.select_by: 'f1'", select_by=("f1",))
    refused("train.dropout is 0.9, the model's .0.1.: leave it out", dropout=0.9)
    refused("unknown split of rows: 'dev'", rows={"train": rows["train"]})
    refused("of 2 outputs, the task needs a .* of 1", task=replace(task, labels=()))
    refused("max_length is 999", pad_to=999)
    refused("the model is a BertModel of 2 outputs", model=model.base_model)
    with pytest.raises(Refused, match="max_length is 5000"):
        lib.rank(model, tokenizer, task, rows["dev"], max_length=5000)
    lib.operate(model, {"op": "int8"})
    refused("the model is in int8 or frozen")
    with pytest.raises(Refused, match="the model is in int8 or frozen"):
        lib.rank(model, tokenizer, task, rows["dev"], max_length=16)


def test_a_trainer_of_transformers_takes_an_operated_model_and_the_rows(
    tsv, encoder, tmp_path
):
    task, rows = lib.rows(tsv)
    model, tokenizer = lib.network(encoder(heads=4), task)
    lib.operate(model, {"op": "cut", "heads": 2})
    lib.operate(
        model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3}
    )
    tokens = lib.dataset(rows).map(lambda row: tokenizer(row["a"], truncation=True))
    options = TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=10,
        learning_rate=5e-3,
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(
        model, options, train_dataset=tokens["train"], processing_class=tokenizer
    )
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainer.train()
    moved = {
        name
        for name, weight in model.named_parameters()
        if not weight.equal(before[name])
    }
    assert any("convolution" in name for name in moved)
    said = trainer.predict(tokens["dev"]).predictions.argmax(1)
    assert np.mean(said == rows["dev"].y) > 0.8


def write_rows(folder, **labels_by_split):
    """Write files of rows with these labels, and return their folder."""
    for split, labels in labels_by_split.items():
        lines = [f"{split} film number {n}\t{label}" for n, label in enumerate(labels)]
        text = "\n".join(["text\tlabel", *lines])
        (folder / f"{split}.tsv").write_text(text)
    return folder


def test_a_label_with_an_invisible_character_is_no_class_of_its_own(tmp_path):
    labels = ["good", "bad"] * 30 + ["good\u200b"] * 10
    with pytest.raises(Refused, match="spell them alike"):
        lib.rows(write_rows(tmp_path, train=labels))
    task, _ = lib.rows(write_rows(tmp_path, train=[0, 1] * 30 + ["1\u200b"] * 10))
    assert task.labels == ("0", "1")


def test_scores_that_are_all_the_same_are_refused(tmp_path):
    folder = write_rows(tmp_path, train=[n / 2 for n in range(67)], dev=[1.5] * 20)
    with pytest.raises(Refused, match="all 20 rows of dev have one score"):
        lib.rows(folder)
