"""Tasks with classes, scores and spans differ in what this module has: head, rows and judging.

Shapes: N rows, C classes, W windows of the N rows, T tokens.
"""

from functools import partial

import numpy as np
import torch

from lib import data
from lib.core.names import Refused
from lib.core.options import Span
from lib.data import spans
from lib.measure import metrics, squad
from lib.model import backbone
from lib.train.batches import Encoded, encode

# A task of spans has the second head.
HEADS = {False: "SequenceClassification", True: "QuestionAnswering"}


def network(folder, task, dropout, seed):
    """Return (model, tokenizer) of a saved folder, with the head that a Task (lib.data) needs.

    A folder without such a head gets a new one, drawn from `seed`. dropout: the rate of all layers.
    Raises Refused where the folder's head has other outputs or classes than the task.
    """
    head = HEADS[task.span]
    kept = head in backbone.architecture(folder)
    model, tokenizer = backbone.headed(folder, head, task.outputs, dropout, seed)
    mine = ", ".join(name for _, name in sorted(model.config.id2label.items()))
    wanted, unnamed = ", ".join(task.labels), ", ".join(f"LABEL_{i}" for i in range(task.outputs))
    if kept and task.labels and mine.lower() not in (wanted.lower(), unnamed.lower()):
        why = "fix: save the model without its head, as AutoModel opens it"
        raise Refused(f"the head's classes are {mine}, the task's {wanted}; {why}")
    return model, tokenizer


def rows(tokenizer, split, task, max_length, span=None):
    """Return (Encoded rows of a Split, f(logits) -> (metrics, arrays to keep)).

    span: the fields of a lib.core.options.Span, for a task of spans. The rows of such a task are
    windows of passages. The arrays hold no text.
    """
    if not task.span:
        return encode(tokenizer, split, max_length), partial(class_marks, task, split)
    span = Span(**span)
    windows = spans.features(tokenizer, split, max_length, span.stride, span.max_query)
    encoded = Encoded(windows.columns, torch.from_numpy(windows.labels), tokenizer.pad_token_id)
    return encoded, partial(span_marks, split, windows, span.max_answer)


def class_marks(task, split, logits):
    """Judge the logits [N, C] of a Split. Returns (metrics, arrays to keep)."""
    kept = {"logits": logits, "labels": split.y, "index": split.index}
    return metrics.scores(task, logits, split.y), kept


def unseen_marks(task, split, logits):
    """Judge the logits [N, C] of unseen rows. Returns (metrics, arrays to keep).

    Runs keep them packed (lib.data.packed), and the metrics are those of the packed values.
    """
    said = logits if task.labels else logits.astype(np.float16)
    return metrics.scores(task, said, split.y), data.packed(task.labels, said)


def span_marks(split, windows, max_answer, logits):
    """Judge the logits [W, 2, T] of all windows. Returns (metrics, arrays to keep).

    Where some questions have no answer (SQuAD 2.0), the model gives none if that scores better than
    its best span. The official script also fits a threshold to the very rows that it judges; here
    the threshold is 0.
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
    """Return the first metric of the development set for an answer that needs no reading.

    It is the training set's most frequent class or mean score, or no answer to any question.
    """
    train, dev = splits["train"], splits["dev"]
    if task.span:
        return squad.score([""] * len(dev), dev.answers)[task.metrics[0]]
    said = np.bincount(train.y).argmax() if task.labels else train.y.mean()
    return metrics.score(task.metrics[0], np.full(len(dev), said), dev.y)
