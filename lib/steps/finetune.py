"""Step: fine-tune a model on a task; the last stage of every method and the teacher of most."""

import torch

from lib import data as sources
from lib.model import backbone
from lib.options import Targets
from lib.spec import stream
from lib.train import heads, loop, losses


def finetune(run, data, train, numerics, targets, span=None):
    """Inputs: `start` (any model), and `teacher` where the targets need its logits. `span` for tasks such as SQuAD.

    Predictions, labels and row numbers of every labelled evaluation split are saved; metrics are in float64, those of
    the first development set under their own names.
    """
    numerics, train = loop.options(numerics, train)
    targets = Targets(**targets)
    splits = sources.load(data)
    task = sources.described(data)
    model, tokenizer = heads.network(run.inputs["start"].model, task, train.dropout, stream(run.seed, "head"))
    rows, _ = heads.rows(tokenizer, splits["train"], task, train.max_length, span)
    teacher = None
    if targets.kind != "hard":
        network, _ = backbone.load(run.inputs["teacher"].model)
        heads.by_name(network, task.labels)
        teacher = torch.from_numpy(loop.predict(network, rows, numerics, pad_to=train.pad_to))

    def loss(batch, chosen):
        logits = loop.outputs(model, batch)
        labels = rows.labels[chosen].to(logits.device)
        return losses.prediction(logits, labels, targets, None if teacher is None else teacher[chosen].to(logits.device))

    sets = {name: heads.rows(tokenizer, split, task, train.max_length, span) for name, split in splits.items()
            if name.startswith("dev")}

    def judge(name):
        """(metrics, arrays) of an evaluation split."""
        encoded, marks = sets[name]
        return marks(loop.predict(model, encoded, numerics, pad_to=train.pad_to))

    result = loop.fit(run, model, rows, loss, train, numerics, lambda: judge("dev")[0][task.metrics[0]])
    backbone.save(model, tokenizer, run.model)
    for name in sets:
        values, arrays = judge(name)
        run.save_arrays("predictions" if name == "dev" else f"predictions_{name}", **arrays)
        result |= values if name == "dev" else {f"{name}.{metric}": value for metric, value in values.items()}
    return result | backbone.size(model)
