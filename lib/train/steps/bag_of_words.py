"""This step scores baselines without an encoder: the most frequent class, and a linear
model over word counts."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from transformers import PreTrainedTokenizerFast

from lib import data as sources
from lib.core.store import RunWriter
from lib.core.types import TokenCount
from lib.model import backbone
from lib.stats import metrics
from lib.train import heads


def bag_of_words(
    run: RunWriter, data: sources.DataDescriptor, cut: TokenCount = 0
) -> metrics.Metrics:
    """Score simple baselines without an encoder, by which a compressed model is judged.

    Returns a dict with the first metric of the task on the development rows for two
    baselines: "majority" predicts the most frequent class, the mean score or, for
    answer spans, no answer, and "bag_of_words" is a linear model over word counts, with
    a fixed regularisation. The linear model is left out for answer spans, and for
    training rows of one class. Further keys are "train_rows" and "dev_rows", the
    numbers of rows.

    run: the folder of this run, for writing.
    data: JSON that says which rows of which task are used.
    cut: where the run has an encoder as input `start`, the linear model reads only the
    first `cut` tokens of a row, as that encoder does. It is not used in a run without
    this input."""
    task, splits = sources.find_task_of_descriptor(data), sources.load(data, run.seed)
    train, dev = splits["train"], splits["dev"]
    result = {"majority": heads.score_majority_baseline(task, splits)}
    if not (task.span or task.labels and len(np.unique(train.y)) < 2):
        if "start" in run.inputs:
            tokenizer = backbone.load_tokenizer(run.inputs["start"].model_folder)
            train, dev = (
                truncate_texts(tokenizer, split, cut) for split in (train, dev)
            )
        counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
        x, y = (compute_word_count_features(counter, split) for split in (train, dev))
        # The type is `Any`, since the stubs of scikit-learn do not accept these arrays.
        model: Any = (
            LogisticRegression(C=0.3, max_iter=1000) if task.labels else Ridge(10.0)
        )
        said = model.fit(x, train.y).predict(y)
        result["bag_of_words"] = metrics.compute_metric(task.metrics[0], said, dev.y)
    return result | {"train_rows": len(train), "dev_rows": len(dev)}


def truncate_texts(
    tokenizer: PreTrainedTokenizerFast, split: sources.Split, max_tokens: int
) -> sources.Split:
    """Cut the texts of rows to the part that an encoder with a token limit reads.

    So a model over words gets no more text than the encoder to which it is compared.
    Returns new rows; labels stay.

    tokenizer: the encoder's.
    max_tokens: the number of tokens to which the encoder cuts a row, special tokens
    included."""
    texts = split.list_text_columns()
    coded = tokenizer(
        *texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True
    )
    ends = np.zeros((len(texts), len(split)), int)
    for row, offsets in enumerate(coded["offset_mapping"]):
        for text, (_, end) in zip(coded.sequence_ids(row), offsets, strict=True):
            if text is not None:
                ends[text, row] = max(ends[text, row], end)
    parts = [
        [text[:end] for text, end in zip(column, column_ends, strict=True)]
        for column, column_ends in zip(texts, ends, strict=True)
    ]
    return replace(split, a=parts[0], b=parts[1] if split.b else None)


def compute_word_count_features(
    counter: CountVectorizer, split: sources.Split
) -> csr_matrix:
    """Return the word counts of each row as a sparse matrix, for a linear model.

    It is [rows, features]. For two texts the features are the counts of the first text,
    the counts of the second, and two totals: how many words the two texts share, and
    how many further words the second has.

    counter: scikit-learn's CountVectorizer, fitted on the training texts.
    split: the rows."""
    a: Any = counter.transform(split.a)
    if split.b is None:
        return a
    b: Any = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    # pyrefly: ignore[bad-return]  # scipy's stub does not know that csr gives csr.
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])
