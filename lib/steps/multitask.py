"""Step: fine-tuning of one encoder on several tasks by warm-up distillation, a classifier each
(EfficientBERT section 3.2, stage 3); with `shared`, of one part of a supernet in each step.
"""

from contextlib import ExitStack

import numpy as np
import torch
import transformers
from torch import nn

from lib.model import stack
from lib.model.parts import size
from lib.runs.spec import stream
from lib.train import loop, students
from lib.train.batches import Encoded, order
from lib.train.learn import Lesson, predictions
from lib.train.matching import matching, teaching
from lib.train.options import Shared, Warmup


def multitask(run, data, warmup, train, numerics, net=None, shared=None):
    """Inputs: `teacher:<name>`, fine-tuned, for each task of data: {name: descriptor}; `start`, a
    student or supernet to inherit from; `search`, whose Outputs net and shared may be. net: what to
    train (lib.search.net as JSON), by default that of `start`.

    A batch is of one task; batches of all tasks come mixed in proportion to their rows. The run
    keeps the encoder with its pooler, one head for each task (`lib.train.students.classifier` puts
    them together), and of each task, with the whole net active, metrics named <name>.<metric> and
    `predictions_<name>`.
    """
    options = Warmup(**warmup)
    lessons = {name: Lesson(run, each, train, numerics) for name, each in data.items()}
    numerics, train = loop.options(numerics, train)
    found = {
        name: students.taught(run.inputs[f"teacher:{name}"].model, lesson.task)
        for name, lesson in lessons.items()
    }
    teacher, tokenizer = next(iter(found.values()))
    encoder = students.student(run, net, transformers.BertModel, teacher, train.dropout)
    width = encoder.config.hidden_size
    encoder.classifiers = nn.ModuleDict()
    for name, lesson in lessons.items():
        encoder.classifiers[name] = stack.draw(nn.Linear(width, lesson.task.outputs), encoder)
    encoder.dropout = nn.Dropout(train.dropout)
    parts = {name: lesson.rows(tokenizer) for name, lesson in lessons.items()}
    encoded, names, batches = joined(parts, train, run.seed)
    methods = [students.Parts(encoder, Shared(**shared), run.seed)] if shared else []
    matches = students.matches(encoder, teacher, options)
    prediction = students.predicted(encoded.labels, options)

    def logits(model, batch, rows):
        pooled = model.dropout(model(**batch).pooler_output)
        return model.classifiers[names[rows[0]]](pooled)

    def teach(batch, rows):
        return teaches[names[rows[0]]](batch, rows)

    with ExitStack() as held:
        teaches = {
            name: held.enter_context(teaching(model, numerics, students.logits))
            for name, (model, _) in found.items()
        }
        loss = held.enter_context(matching(encoder, teach, matches, logits, prediction))
        result = loop.fit(
            run, encoder, encoded, loss, train, numerics, methods=methods, batches=batches
        )
    students.curve(run)
    learned, result = encoder.classifiers, result | {"rows": len(encoded)}
    del encoder.classifiers, encoder.dropout
    students.save(encoder, tokenizer, run.model)
    if run.model is not None:
        students.keep(learned.state_dict(), run.model / students.HEADS)
    for name, lesson in lessons.items():
        model = students.headed(encoder, learned[name].weight, learned[name].bias)
        result |= predictions(run, lesson.judges(model, tokenizer), name)
    return result | size(encoder)


def joined(parts, train, seed):
    """(Encoded rows of all tasks one after another, the task of each row, f(epoch) -> batches).

    Labels are float32: no loss here reads codes, for which the teachers' logits stand.
    """
    each = list(parts.values())
    columns = {
        name: [row for part in each for row in part.columns[name]] for name in each[0].columns
    }
    encoded = Encoded(columns, torch.cat([part.labels.float() for part in each]), each[0].pad)
    names = [name for name, part in parts.items() for _ in range(len(part))]
    starts = np.cumsum([0, *map(len, each)])

    def batches(epoch):
        every = [
            start + rows
            for start, part in zip(starts, each, strict=False)
            for rows in order(part.lengths(), train.batch, seed, epoch, bucket=not train.pad_to)
        ]
        dice = np.random.default_rng(stream(seed, f"tasks:{epoch}"))
        return [every[i] for i in dice.permutation(len(every))]

    return encoded, names, batches
