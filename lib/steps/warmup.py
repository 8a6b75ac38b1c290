"""Step: fine-tuning by warm-up distillation: attention, states and predictions of a fine-tuned teacher in one loss
(EfficientBERT section 3.2), no labels but a regression's where the options ask for them."""

from functools import partial

import transformers

from lib import data as sources
from lib.model import backbone
from lib.options import Warmup
from lib.steps.finetune import evaluation, judged, predictions
from lib.train import heads, loop
from lib.train import warmup as matching


def warmup(run, data, train, numerics, warmup, net=None, classifier=None, span=None):
    """Inputs: `teacher`, fine-tuned on the task; `start`, a student or supernet to inherit from; `search`, whose Output net may
    be. net: what to train, or to cut out of `start` (lib.search.net as JSON), by default that of `start`. classifier: the
    task whose head a `start` of step multitask hands down as well.

    Metrics and predictions are kept as by step finetune, also of the held-out rows where the data have some; these select,
    where the training asks for the best. The loss over the steps is kept as `curve`.
    """
    numerics, train = loop.options(numerics, train)
    options, task, splits = Warmup(**warmup), sources.described(data), sources.load(data)
    teacher, tokenizer = matching.taught(run.inputs["teacher"].model, task)
    cls = (
        transformers.BertForQuestionAnswering
        if task.span
        else transformers.BertForSequenceClassification
    )
    student = matching.student(
        run, net, cls, teacher, options, train.dropout, num_labels=task.outputs
    )
    if classifier:
        if "start" not in run.inputs:
            raise ValueError(
                f"classifier is {classifier!r} without the input start: name the run whose head is handed down"
            )
        matching.put(student.classifier, *matching.head(run.inputs["start"].model, classifier))
    rows, _ = heads.rows(tokenizer, splits["train"], task, train.max_length, span)
    judges, curve = (
        evaluation(student, tokenizer, splits, task, train, numerics, span),
        matching.Curve(run),
    )
    if "held_out" in splits:
        judges |= {
            "held_out": evaluation(
                student, tokenizer, {"dev": splits["held_out"]}, task, train, numerics, span
            )["dev"]
        }
    select = judges.get("held_out", judges["dev"])

    with matching.matching(student, {"teacher": teacher}, options, numerics) as match:

        def loss(batch, chosen):
            mine, theirs = (partial(loop.outputs, model, batch) for model in (student, teacher))
            return curve.note(
                match("teacher", batch, mine, theirs, rows.labels[chosen].to(loop.device()))
            )

        result = loop.fit(
            run,
            student,
            rows,
            loss,
            train,
            numerics,
            lambda: judged(select, task, train),
            loop.Hooks(before=curve.before),
        )
    curve.save()
    matching.save(student, tokenizer, run.model)
    return result | predictions(run, judges) | backbone.size(student)
