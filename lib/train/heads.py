"""This module has what differs between classification, regression and answer spans:
model heads, tokenised rows, and metrics.

Shapes: N rows, C classes, W windows of the N rows (long passages are cut into
overlapping windows), T tokens."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lib import data
from lib.core.names import Refused
from lib.core.options import Span
from lib.core.types import Arrays, SplitName
from lib.data import spans
from lib.model import backbone
from lib.stats import answers, metrics
from lib.train.batches import EncodedRows, encode_split
from lib.train.loop import SettingsJson

# ({metric: value}, arrays such as predictions that the run saves).
MetricsAndArraysToSave = tuple[metrics.Metrics, Arrays]
# f(logits of all rows of a split) -> their metrics and arrays.
LogitScorer = Callable[[np.ndarray], MetricsAndArraysToSave]
# {whether the answers of a task are spans of text: end of the name of the model class
# in transformers}.
HEADS = {False: "SequenceClassification", True: "QuestionAnswering"}


def load_task_model_and_tokenizer(
    model_folder: str | Path, task: data.Task, dropout: float, head_seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Open a saved model with the head that a task needs, to fine-tune or score it.

    Returns (model, tokenizer). A model without such a head gets a new one, drawn from
    `head_seed`. Raises Refused where the saved head has another number of outputs or
    other class names than the task; case does not count, and LABEL_0, LABEL_1 and so on
    fit every task. Raises Refused too where a model without such a head was pruned or
    otherwise changed, or has another head whose tensors have the same names.

    task: says what the head predicts: classes, a score or answer spans.
    dropout: the rate that all dropout layers get."""
    head = HEADS[task.span]
    has_head = head in backbone.read_model_class_name(model_folder)
    model, tokenizer = backbone.load_with_task_head(
        model_folder, head, task.output_width, dropout, head_seed
    )
    assert model.config.id2label is not None
    head_classes = ", ".join(name for _, name in sorted(model.config.id2label.items()))
    task_classes = ", ".join(task.labels)
    unnamed = ", ".join(f"LABEL_{i}" for i in range(task.output_width))
    fitting = task_classes.lower(), unnamed.lower()
    if has_head and task.labels and head_classes.lower() not in fitting:
        raise Refused(
            f"the head's classes are {head_classes}, the task's {task_classes}; "
            f"{backbone.suggest_fix_for_wrong_head(model_folder)}"
        )
    return model, tokenizer


def encode_rows_and_make_scorer(
    tokenizer: PreTrainedTokenizerFast,
    split: data.Split,
    task: data.Task,
    max_length: int,
    span_settings: SettingsJson | None = None,
) -> tuple[EncodedRows, LogitScorer]:
    """Tokenise the rows of a task, and make the function that scores logits on them.

    Returns (tokenised rows, f(logits) -> ({metric: value}, {name: array})). The arrays
    are to be saved, such as "logits" and "labels". For a task of answer spans, as in
    SQuAD, a long passage is cut into overlapping windows, and each window is a
    tokenised row. Raises Refused for such a task without `span_settings`.

    split: the rows with their labels, such as the development rows.
    max_length: tokens to which rows are cut.
    span_settings: for answer spans, {"stride": tokens from one window to the next,
    "max_query": longest question, "max_answer": longest answer, in tokens}; None for
    other tasks."""
    if not task.span:
        return encode_split(tokenizer, split, max_length), partial(
            score_class_or_regression_logits, task, split
        )
    if span_settings is None:
        fix = "give it span=Span(128, 64, 30), or take a task of classes"
        raise Refused(f"{task.name} is a task of spans; fix: {fix}")
    cut = Span(**span_settings)
    windows = spans.tokenise_questions(
        tokenizer, split, max_length, cut.stride, cut.max_query
    )
    encoded = EncodedRows(
        windows.columns, torch.from_numpy(windows.labels), tokenizer.pad_token_id
    )
    return encoded, partial(score_span_logits, split, windows, cut.max_answer)


def score_class_or_regression_logits(
    task: data.Task, split: data.Split, logits: np.ndarray
) -> MetricsAndArraysToSave:
    """Score a model's logits on labelled rows, for classification or regression.

    Returns ({metric: value}, arrays). The arrays are those that a training saves, so
    that predictions can be compared later: "logits", "labels" and "index" (row numbers
    in the data set).

    task: says which metrics are computed.
    split: the rows with their labels.
    logits: [N, C], where C is 1 for a regression."""
    arrays = {"logits": logits, "labels": split.y, "index": split.index}
    return metrics.compute_metrics(task, logits, split.y), arrays


def score_and_pack_test_predictions(
    task: data.Task, split: data.Split, logits: np.ndarray
) -> MetricsAndArraysToSave:
    """Score a model's logits on unseen rows, and pack its predictions in few bytes.

    Unseen rows are labelled test rows that training and model selection never use.
    Returns ({metric: value}, {name: array}) with one array: "bits" (predicted classes,
    eight rows a byte) where the task has two classes, "classes" where it has more, or
    "scores" in float16 for a regression. Metrics of a regression are computed from
    these rounded scores, so that the saved array gives the same metrics again.

    task: says the classes and metrics.
    split: the unseen rows with their labels.
    logits: [N, C], where C is 1 for a regression."""
    said = logits if task.labels else logits.astype(np.float16)
    return metrics.compute_metrics(task, said, split.y), data.pack_predictions(
        task.labels, said
    )


def score_span_logits(
    split: data.Split,
    windows: spans.QuestionWindows,
    max_answer_tokens: int,
    logits: np.ndarray,
) -> MetricsAndArraysToSave:
    """Score a model's logits for answer spans by exact match and F1 of the answers.

    Returns ({metric: value}, arrays). The arrays have a value for each of N questions:
    "spans" (best answer, start and end in characters [N, 2]), "null" (score of no
    answer minus that of the best span), "labels" (true answer as in "spans", -1 for
    none), "index" (row numbers), "exact" (0 or 1) and "span_f1".

    Where some questions have no answer (SQuAD 2.0), the prediction is no answer if
    "null" is above 0.

    split: the questions and passages with their answers.
    windows: the W overlapping windows of passages that the model read.
    max_answer_tokens: the longest answer.
    logits: of the first and the last token of an answer, [W, 2, T]."""
    starts, ends = logits[:, 0], logits[:, 1]
    places, null = spans.find_best_spans(
        starts, ends, windows, split, max_answer_tokens=max_answer_tokens
    )
    assert split.answers is not None
    texts, all_have = spans.extract_answer_texts(split, places), all(split.answers)
    pairs = zip(texts, null, strict=True)
    said = ["" if more > 0 and not all_have else text for text, more in pairs]
    arrays = {"spans": places, "null": null, "labels": split.y, "index": split.index}
    for name, score_answer in answers.SCORES_BY_NAME.items():
        arrays[name] = np.array([*map(score_answer, said, split.answers)])
    return answers.compute_mean_exact_match_and_f1(said, split.answers), arrays


def score_majority_baseline(
    task: data.Task, splits: Mapping[SplitName, data.Split]
) -> float:
    """Return the development score of a constant prediction, a baseline.

    It needs no model. It predicts the most frequent class of the training rows, their
    mean score, or no answer to any question. A model near this score has learned
    nothing. The score is the first metric of the task.

    splits: {"train": training rows, "dev": development rows}."""
    train, dev = splits["train"], splits["dev"]
    if task.span:
        assert dev.answers is not None
        return answers.compute_mean_exact_match_and_f1([""] * len(dev), dev.answers)[
            task.metrics[0]
        ]
    said = np.bincount(train.y).argmax() if task.labels else train.y.mean()
    return metrics.compute_metric(task.metrics[0], np.full(len(dev), said), dev.y)
