"""Step: what a task gives away without reading: the most frequent class, and a linear model over word counts."""

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data as sources
from lib.measure import metrics


def bag_of_words(run, data):
    """Features of a pair: the counts of each side, the number of shared words, and of words that are new in the
    second. The regularisation is fixed at C = 0.3 (ridge: 10)."""
    task, splits = sources.task(data["source"], data["task"]), sources.load(data)
    train, dev = splits["train"], splits["dev"]
    counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
    regression = not task.labels
    words = Ridge(10.0) if regression else LogisticRegression(C=0.3, max_iter=200)
    constant = DummyRegressor() if regression else DummyClassifier(strategy="most_frequent")
    result = {}
    for name, model in (("majority", constant), ("bag_of_words", words)):
        model.fit(features(counter, train), train.y)
        said = model.predict(features(counter, dev))
        result[name] = metrics.score(task.metrics[0], said.astype(float) if regression else said, dev.y)
    return result | {"train_rows": len(train), "dev_rows": len(dev)}


def features(counter, split):
    a = counter.transform(split.a)
    if split.b is None:
        return a
    b = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])
