"""Step: fine-tune a model on a task; the last stage of every method and the teacher of most."""

from functools import partial

import torch

from lib import data as sources
from lib.data import unlabelled
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
    model, tokenizer = heads.network(
        run.inputs["start"].model, task, train.dropout, stream(run.seed, "head")
    )
    rows, _ = heads.rows(tokenizer, splits["train"], task, train.max_length, span)
    teacher = teacher_logits(run, targets, task, rows, train, numerics)

    def loss(batch, chosen):
        logits = loop.outputs(model, batch)
        labels = rows.labels[chosen].to(logits.device)
        return losses.prediction(
            logits, labels, targets, None if teacher is None else teacher[chosen].to(logits.device)
        )

    judges = evaluation(model, tokenizer, splits, task, train, numerics, span)
    result = loop.fit(
        run, model, rows, loss, train, numerics, lambda: judged(judges["dev"], task, train)
    )
    backbone.save(model, tokenizer, run.model)
    return result | predictions(run, judges) | backbone.size(model)


def teacher_logits(run, targets, task, rows, train, numerics):
    """Logits of the input `teacher` on the training rows, [N, C] or [N, 2, T]; None where the targets need none."""
    if targets.kind == "hard":
        return None
    network, _ = backbone.load(run.inputs["teacher"].model)
    heads.by_name(network, task.labels)
    return torch.from_numpy(loop.predict(network, rows, numerics, pad_to=train.pad_to))


def evaluation(model, tokenizer, splits, task, train, numerics, span=None, names=("dev", "unseen")):
    """{name: f() -> (metrics, arrays to keep)} of every labelled split whose name begins with one of `names`, for the model
    as it then is. Unseen rows are for the end alone: nothing may select on them."""

    def judge(name, split):
        encoded, marks = heads.rows(tokenizer, split, task, train.max_length, span)
        if name == "unseen":
            marks = partial(heads.unseen_marks, task, split)
        return lambda: marks(loop.predict(model, encoded, numerics, pad_to=train.pad_to))

    return {
        name: judge(name, split)
        for name, split in splits.items()
        if name.startswith(names) and unlabelled.labelled(split)
    }


def judged(judge, task, train):
    """The score that `train.select` goes by, of a judge of `evaluation`: the mean of the metrics asked for."""
    values, names = judge()[0], train.select_by or task.metrics[:1]
    return sum(values[name] for name in names) / len(names)


def predictions(run, judges):
    """Save what the judges of `evaluation` keep. Returns their metrics, those of "dev" under their own names."""
    result = {}
    for name, judge in judges.items():
        values, arrays = judge()
        run.save_arrays("predictions" if name == "dev" else f"predictions_{name}", **arrays)
        result |= (
            values
            if name == "dev"
            else {f"{name}.{metric}": value for metric, value in values.items()}
        )
    return result
