"""Step: fine-tuning of one encoder on several tasks by warm-up distillation, a classifier each (EfficientBERT section 3.2,
stage 3); with `shared`, of one part of a supernet in each step."""

from functools import partial

import numpy as np
import torch
import transformers
from torch import nn

from lib import data as sources
from lib.model import backbone, stack
from lib.options import Shared, Warmup
from lib.spec import stream
from lib.steps.finetune import evaluation
from lib.train import heads, loop
from lib.train import warmup as matching
from lib.train.batches import Encoded, order


def multitask(run, data, warmup, train, numerics, net=None, shared=None):
    """Inputs: `teacher:<name>`, fine-tuned, for each task of data: {name: descriptor}; `start`, a student or supernet to
    inherit from; `search`, whose Outputs net and shared may be. net: what to train (lib.search.net as JSON), by default
    that of `start`.

    A batch is of one task, batches of all tasks come mixed in proportion to their rows. The run keeps the encoder with
    its pooler, one head for each task (`lib.train.warmup.classifier` puts them together), and of each task, whole net
    active, metrics named <name>.<metric> and `predictions_<name>`.
    """
    numerics, train = loop.options(numerics, train)
    options, shared = Warmup(**warmup), shared and Shared(**shared)
    tasks = {name: sources.described(each) for name, each in data.items()}
    check(run, tasks, train)
    splits, found = {name: sources.load(each) for name, each in data.items()}, {}
    for name, task in tasks.items():
        found[name], tokenizer = matching.taught(run.inputs[f"teacher:{name}"].model, task)
    encoder = matching.student(
        run, net, transformers.BertModel, next(iter(found.values())), options, train.dropout
    )
    encoder.classifiers = nn.ModuleDict(
        {
            name: stack.draw(nn.Linear(encoder.config.hidden_size, task.outputs), encoder)
            for name, task in tasks.items()
        }
    )
    encoder.dropout = nn.Dropout(train.dropout)
    parts = {
        name: heads.rows(tokenizer, splits[name]["train"], task, train.max_length)[0]
        for name, task in tasks.items()
    }
    encoded, names, labels, batches = joined(parts, train, run.seed)
    curve, sample = matching.Curve(run), matching.sampler(encoder, shared, run.seed)

    def before(step, steps):
        curve.before(step, steps)
        sample(step)

    def logits(name, batch):
        return encoder.classifiers[name](encoder.dropout(encoder(**batch).pooler_output))

    with matching.matching(encoder, found, options, numerics) as match:

        def loss(batch, chosen):
            name = names[chosen[0]]
            wanted = torch.stack([labels[i] for i in chosen]).to(loop.device())
            return curve.note(
                match(
                    name,
                    batch,
                    partial(logits, name, batch),
                    partial(loop.outputs, found[name], batch),
                    wanted,
                )
            )

        result = loop.fit(
            run,
            encoder,
            encoded,
            loss,
            train,
            numerics,
            hooks=loop.Hooks(before=before, batches=batches),
        )
    curve.save()
    stack.choose(encoder)
    learned, result = encoder.classifiers, result | {"rows": len(encoded)}
    del encoder.classifiers, encoder.dropout
    matching.save(encoder, tokenizer, run.model)
    if run.model is not None:
        matching.keep(learned.state_dict(), run.model / matching.HEADS)
    for name, task in tasks.items():
        model = matching.headed(encoder, learned[name].weight, learned[name].bias)
        for split, judge in evaluation(
            model, tokenizer, splits[name], task, train, numerics
        ).items():
            values, arrays = judge()
            own = name if split == "dev" else f"{name}_{split}"
            run.save_arrays(f"predictions_{own}", **arrays)
            result |= {f"{own}.{metric}": value for metric, value in values.items()}
    return result | backbone.size(encoder)


def check(run, tasks, train):
    """Raises ValueError for a task of spans, tasks and teachers that are not the same, and a selection of the best."""
    teachers = {name.partition(":")[2] for name in run.inputs if name.startswith("teacher:")}
    spans = [name for name, task in tasks.items() if task.span]
    if teachers != set(tasks) or spans or train.select == "best":
        raise ValueError(
            f"tasks {sorted(tasks)} with teachers {sorted(teachers)}, select {train.select!r}: give each task an "
            f"input teacher:<name>, leave out tasks of spans ({', '.join(spans) or 'none here'}), and take "
            'select "last": there is no one score to select by'
        )


def joined(parts, train, seed):
    """(Encoded rows of all tasks one after another, the task of each row, its label, f(epoch) -> batches)."""
    encoded = Encoded(
        {
            name: [row for part in parts.values() for row in part.columns[name]]
            for name in next(iter(parts.values())).columns
        },
        None,
        next(iter(parts.values())).pad,
    )
    names = [name for name, part in parts.items() for _ in range(len(part))]
    labels = [label for part in parts.values() for label in part.labels]
    starts = np.cumsum([0, *map(len, parts.values())])

    def batches(epoch):
        every = [
            start + rows
            for start, part in zip(starts, parts.values(), strict=False)
            for rows in order(part.lengths(), train.batch, seed, epoch, bucket=not train.pad_to)
        ]
        return [
            every[i]
            for i in np.random.default_rng(stream(seed, f"tasks:{epoch}")).permutation(len(every))
        ]

    return encoded, names, labels, batches
