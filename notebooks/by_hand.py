"""Compress an encoder six ways with transformers.Trainer and Torch-Pruning alone, as
one would without this project. `make bench` measures it beside `92_your_task`.

    python notebooks/by_hand.py SETTINGS.json

The file has the rows, the encoder and the settings of the training stages (`bench.py`
writes it). Scores are printed as JSON in the last line. Nothing of `lib` is used.

Each student is made of the fine-tuned encoder, matches its hidden states in a first
stage, and learns the labels in a second one. The teacher runs beside its student, as in
common scripts. The Trainer is tuned: dynamic padding, batches of similar length,
bfloat16 where the processor has it."""

import copy
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch_pruning as tp
import transformers
from torch import nn


class DistillationTrainer(transformers.Trainer):
    """This Trainer minimises the mean squared difference between the hidden states of a
    student and of its teacher, without padded tokens."""

    def __init__(self, *args, teacher, **options):
        super().__init__(*args, **options)
        self.teacher = teacher.eval().to(self.args.device)

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        student = model(**inputs, output_hidden_states=True)
        with torch.no_grad():
            teacher = self.teacher(**inputs, output_hidden_states=True)
        # A student with fewer layers matches every k-th state of the teacher.
        step = (len(teacher.hidden_states) - 1) // (len(student.hidden_states) - 1)
        mask = inputs["attention_mask"].unsqueeze(-1)
        loss = torch.zeros((), device=mask.device)
        for s, t in zip(
            student.hidden_states, teacher.hidden_states[::step], strict=True
        ):
            square = (s.float() - t.float()).square() * mask
            loss = loss + square.sum() / (mask.sum() * s.shape[-1])
        return (loss, student) if return_outputs else loss


def encode(tokenizer, texts, labels, max_length):
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length)
    return [
        {name: values[i] for name, values in encoded.items()} | {"labels": int(label)}
        for i, label in enumerate(labels)
    ]


def train(model, rows, stage, job, teacher=None):
    """Train a model in place by one stage of the settings."""
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=stage["batch"],
        num_train_epochs=stage["epochs"],
        learning_rate=stage["lr"],
        warmup_steps=stage["warmup"],
        weight_decay=stage["weight_decay"],
        max_grad_norm=stage["clip"],
        train_sampling_strategy="group_by_length",
        bf16=job["bf16"],
        use_cpu=job["device"] == "cpu",
        seed=job["seed"],
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    make = transformers.Trainer
    further = {}
    if teacher is not None:
        make, further = DistillationTrainer, {"teacher": teacher}
    pad = transformers.DataCollatorWithPadding(job["tokenizer"])
    trainer = make(model, arguments, train_dataset=rows, data_collator=pad, **further)
    trainer.train()
    # Take off the cast to bfloat16 that accelerate puts around `forward`.
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)


@torch.inference_mode()
def accuracy(model, rows, job):
    """Return the share of right answers of a model, in points."""
    model = model.eval().to("cpu" if job["on_cpu"] else job["device"])
    pad = transformers.DataCollatorWithPadding(job["tokenizer"])
    right = 0
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
    for start in range(0, len(rows), 64):
        batch = pad([rows[i] for i in order[start : start + 64]]).to(model.device)
        labels = batch.pop("labels")
        right += int((model(**batch).logits.argmax(-1) == labels).sum())
    return 100 * right / len(rows)


def drop_layers(model, share):
    layers = model.base_model.encoder.layer
    step = round(1 / share)
    model.base_model.encoder.layer = nn.ModuleList(layers[step - 1 :: step])
    model.config.num_hidden_layers = len(model.base_model.encoder.layer)


def cut_heads_and_neurons(model, share, importance):
    """Cut the same share of heads and neurons out of each layer with Torch-Pruning."""
    layers = model.base_model.encoder.layer
    heads = {}
    for layer in layers:
        attention = layer.attention.self
        for linear in (attention.query, attention.key, attention.value):
            heads[linear] = attention.num_attention_heads
    inner = {layer.intermediate.dense for layer in layers} | set(heads)
    kept_whole = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding)
        and module not in inner
    ]
    pruner = tp.pruner.BasePruner(
        model,
        {"input_ids": torch.full((1, 4), 5, device=model.device)},
        importance,
        pruning_ratio=1 - share,
        ignored_layers=kept_whole,
        num_heads=heads,
        prune_num_heads=True,
        prune_head_dims=False,
        head_pruning_ratio=1 - share,
        output_transform=lambda out: out.logits.sum(),
    )
    pruner.step()
    for layer in layers:
        attention = layer.attention.self
        attention.num_attention_heads = pruner.num_heads[attention.query]
        attention.all_head_size = attention.query.out_features


def add_gradients(model, rows, job):
    """Sum the gradients of the loss over held-out rows, for Taylor importance."""
    pad = transformers.DataCollatorWithPadding(job["tokenizer"])
    model.zero_grad()
    for start in range(0, len(rows), 8):
        model(**pad(rows[start : start + 8]).to(model.device)).loss.backward()


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    transformers.set_seed(job["seed"])
    torch.set_num_threads(job["threads"])
    job["tokenizer"] = transformers.AutoTokenizer.from_pretrained(job["model"])
    job["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    job["on_cpu"] = False
    tables = {
        name: pd.read_csv(Path(job["rows"]) / f"{name}.tsv", sep="\t")
        for name in ("train", "dev")
    }
    classes = sorted(tables["train"]["label"].unique())
    parts = {
        name: encode(
            job["tokenizer"],
            table["text"],
            table["label"].map(classes.index),
            job["max_length"],
        )
        for name, table in tables.items()
    }
    # The rows that the library draws from a reader's files are the same at each seed.
    order = np.random.default_rng(0).permutation(len(parts["train"]))
    training = [parts["train"][i] for i in order[: job["training_rows"]]]
    held_out = [parts["train"][i] for i in order[job["training_rows"] :]]

    teacher = transformers.AutoModelForSequenceClassification.from_pretrained(
        job["model"], num_labels=len(classes)
    )
    train(teacher, training, job["stages"]["teacher"], job)
    scores = {"Whole": accuracy(teacher, parts["dev"], job)}

    def student(prune=None):
        """Return the score of a student that a function prunes, after both stages."""
        model = copy.deepcopy(teacher)
        if prune:
            prune(model)
        train(model, training, job["stages"]["distil"], job, teacher)
        train(model, training, job["stages"]["finetune"], job)
        return accuracy(model, parts["dev"], job)

    def taylor(model):
        add_gradients(model, held_out, job)
        cut_heads_and_neurons(model, job["share"], tp.importance.TaylorImportance())
        model.zero_grad()

    def magnitude(model):
        importance = tp.importance.MagnitudeImportance(p=2)
        cut_heads_and_neurons(model, job["share"], importance)

    scores["Whole, distilled"] = student()
    scores["Width"] = student(magnitude)
    scores["Torch-Pruning Taylor"] = student(taylor)
    scores["Layer dropping"] = student(lambda model: drop_layers(model, job["share"]))
    int8 = torch.ao.quantization.quantize_dynamic(
        copy.deepcopy(teacher).to("cpu"), {nn.Linear}, dtype=torch.qint8
    )
    scores["Int8"] = accuracy(int8, parts["dev"], job | {"on_cpu": True})
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
