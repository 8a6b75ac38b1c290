"""Step: fine-tune a model on a task; the last stage of every method and the teacher of most."""

import numpy as np
import torch

from lib import data as sources
from lib.measure import metrics
from lib.model import backbone
from lib.options import Targets
from lib.spec import stream
from lib.train import loop, losses
from lib.train.batches import encode


def finetune(run, data, train, numerics, targets):
    """Inputs: `start` (any model), and `teacher` where the targets need its logits."""
    numerics, train = loop.options(numerics, train)
    targets = Targets(**targets)
    task, splits = sources.task(data["source"], data["task"]), sources.load(data)
    model, tokenizer = backbone.classifier(run.inputs["start"].model, task.outputs, train.dropout,
                                           stream(run.seed, "head"))
    rows = encode(tokenizer, splits["train"], train.max_length)
    teacher = None
    if targets.kind != "hard":
        network, _ = backbone.load(run.inputs["teacher"].model)
        teacher = torch.from_numpy(loop.predict(network, rows, numerics, pad_to=train.pad_to))

    def loss(batch, chosen):
        logits = model(**batch).logits
        labels = rows.labels[chosen].to(logits.device)
        return losses.prediction(logits, labels, targets, None if teacher is None else teacher[chosen].to(logits.device))

    dev = encode(tokenizer, splits["dev"], train.max_length)

    def score():
        return metrics.score(task.metrics[0], loop.predict(model, dev, numerics, pad_to=train.pad_to), splits["dev"].y)

    result = loop.fit(run, model, rows, loss, train, numerics, score)
    backbone.save(model, tokenizer, run.model)
    return result | evaluate(run, model, tokenizer, task, splits, train, numerics) | backbone.size(model)


def evaluate(run, model, tokenizer, task, splits, train, numerics):
    """Save logits, labels and row numbers of every labelled evaluation split; return its metrics, in float64.
    Those of the first development set stand under the metric's own name."""
    result = {}
    for name in [s for s in splits if s.startswith("dev")]:
        split = splits[name]
        logits = loop.predict(model, encode(tokenizer, split, train.max_length), numerics, pad_to=train.pad_to)
        run.save_arrays("predictions" if name == "dev" else f"predictions_{name}", logits=logits,
                        labels=np.ascontiguousarray(split.y), index=np.ascontiguousarray(split.index))
        values = metrics.scores(task, logits, split.y)
        result |= values if name == "dev" else {f"{name}.{metric}": value for metric, value in values.items()}
    return result
