"""This step measures what a task gives away without an encoder.

It judges the most frequent class, and a linear model over word counts.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data as sources
from lib.core.store import RunWriter
from lib.core.types import Json
from lib.data import Split
from lib.stats import metrics
from lib.train import heads


def bag_of_words(run: RunWriter, data: Json) -> dict[str, float]:
    """Judge answers that need no reading, by the task's first metric on the development
    set.

    "majority" is the most frequent class. "bag_of_words" is a linear model over word
    counts, with a fixed regularisation (C = 0.3, or ridge 10); a task of spans has no
    such model."""
    task, splits = sources.described(data), sources.load(data, run.seed)
    train, dev = splits["train"], splits["dev"]
    result = {"majority": heads.majority(task, splits)}
    if not task.span:
        counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
        x, y = (counts(counter, split) for split in (train, dev))
        # The stubs of scikit-learn have other arrays.
        model: Any = (
            LogisticRegression(C=0.3, max_iter=1000) if task.labels else Ridge(10.0)
        )
        said = model.fit(x, train.y).predict(y)
        result["bag_of_words"] = metrics.score(task.metrics[0], said, dev.y)
    return result | {"train_rows": len(train), "dev_rows": len(dev)}


def counts(counter: CountVectorizer, split: Split) -> csr_matrix:
    """Return the word counts of each row.

    Rows of pairs have the counts of both texts, the number of words that both share,
    and the number of words that are new in the second text."""
    a: Any = counter.transform(split.a)
    if split.b is None:
        return a
    b: Any = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    # pyrefly: ignore[bad-return]  # The stub does not know that csr gives csr.
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])
