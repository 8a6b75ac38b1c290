"""What differs between tasks with classes, scores and spans: the head, the rows, the marks.

Shapes: N rows, C classes, W windows of the N rows, T tokens.
"""

from functools import partial

import numpy as np
import torch

from lib import data
from lib.data import spans
from lib.measure import metrics, squad
from lib.model import backbone
from lib.train.batches import Encoded, encode
from lib.train.options import Span

HEADS = {False: "SequenceClassification", True: "QuestionAnswering"}  # by whether it is of spans


def network(folder, task, dropout, seed):
    """Return a model with the head that a Task (lib.data) needs, and its tokenizer, out of any
    saved folder; a head that is not there is drawn from `seed`. Raises ValueError where the
    folder's head is another.
    """
    head = HEADS[task.span]
    kept = head in backbone.architecture(folder)
    model, tokenizer = backbone.headed(folder, head, task.outputs, dropout, seed)
    mine = ", ".join(name for _, name in sorted(model.config.id2label.items()))
    wanted, unnamed = ", ".join(task.labels), ", ".join(f"LABEL_{i}" for i in range(task.outputs))
    if kept and task.labels and mine.lower() not in (wanted.lower(), unnamed.lower()):
        why = "fix: save the model without its head, as AutoModel opens it"
        raise ValueError(f"the head's classes are {mine}, the task's {wanted}; {why}")
    return model, tokenizer


def rows(tokenizer, split, task, max_length, span=None):
    """Return (Encoded rows of a Split, f(logits) -> (metrics, arrays to keep)).

    span: a lib.train.options.Span as a dict, for tasks with spans. Their rows are windows of
    passages. What is kept holds no text.
    """
    if not task.span:
        return encode(tokenizer, split, max_length), partial(class_marks, task, split)
    span = Span(**span)
    windows = spans.features(tokenizer, split, max_length, span.stride, span.max_query)
    encoded = Encoded(windows.columns, torch.from_numpy(windows.labels), tokenizer.pad_token_id)
    return encoded, partial(span_marks, split, windows, span.max_answer)


def class_marks(task, split, logits):
    """Judge logits [N, C]: returns (metrics, arrays to keep)."""
    kept = {"logits": logits, "labels": split.y, "index": split.index}
    return metrics.scores(task, logits, split.y), kept


def unseen_marks(task, split, logits):
    """Return the marks of unseen rows: a run keeps what lib.data.packed says, and metrics are
    of that.
    """
    said = logits if task.labels else logits.astype(np.float16)
    return metrics.scores(task, said, split.y), data.packed(task.labels, said)


def span_marks(split, windows, max_answer, logits):
    """Judge logits [W, 2, T] of all windows: returns (metrics, arrays to keep).

    Where some questions have no answer (SQuAD 2.0), none is given if it scores better by more than
    0. The official script's best threshold is fitted to the rows that it is judged on: left out.
    """
    starts, ends = logits[:, 0], logits[:, 1]
    places, null = spans.best_places(starts, ends, windows, split, max_answer=max_answer)
    found, all_have = spans.texts(split, places), all(split.answers)
    pairs = zip(found, null, strict=True)
    said = ["" if more > 0 and not all_have else text for text, more in pairs]
    kept = {"spans": places, "null": null, "labels": split.y, "index": split.index}
    for metric in (squad.exact, squad.span_f1):
        kept[metric.__name__] = np.array([*map(metric, said, split.answers)])
    return squad.score(said, split.answers), kept


def majority(task, splits):
    """Return the first metric of the development set for the answer that needs no reading: the
    training set's most frequent class, its mean score, no answer to any question.
    """
    train, dev = splits["train"], splits["dev"]
    if task.span:
        return squad.score([""] * len(dev), dev.answers)[task.metrics[0]]
    said = np.bincount(train.y).argmax() if task.labels else train.y.mean()
    return metrics.score(task.metrics[0], np.full(len(dev), said), dev.y)
