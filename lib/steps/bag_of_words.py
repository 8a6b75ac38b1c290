"""Step: what a task gives away without reading: the most frequent class, and a linear model over
word counts.
"""

import re

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data as sources
from lib.measure import metrics, squad
from lib.train import heads

WORD = re.compile(r"\w+|[^\w\s]")
LONGEST = 12  # words of an answer


def bag_of_words(run, data):
    """Metrics: the task's first one on the development set, for two answers that need no reading.

    "majority" is the most frequent class, or no answer for spans. "bag_of_words" is a linear model
    over word counts, with a fixed regularisation: C = 0.3, ridge 10.
    """
    task, splits = sources.task(data["source"], data["task"]), sources.load(data)
    train, dev = splits["train"], splits["dev"]
    return {
        "majority": heads.majority(task, splits),
        "bag_of_words": (spans if task.span else classes)(task, train, dev),
        "train_rows": len(train),
        "dev_rows": len(dev),
    }


def classes(task, train, dev):
    """The score of the linear model.

    Features of a pair are the counts of each side, the number of shared words, and the number of
    words that are new in the second.
    """
    counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
    model = LogisticRegression(C=0.3, max_iter=1000) if task.labels else Ridge(10.0)
    said = model.fit(counts(counter, train), train.y).predict(counts(counter, dev))
    return metrics.score(task.metrics[0], said, dev.y)


def counts(counter, split):
    a = counter.transform(split.a)
    if split.b is None:
        return a
    b = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])


def spans(task, train, dev):
    """The score of the linear model for spans.

    For each word of a passage alone: does an answer begin here, does one end here? Features are the
    word, whether the question has it, and its kind beside the question's first word. There is no
    answer where the best span is worth less than the threshold that suits the training rows best.
    """
    counter = CountVectorizer(analyzer=lambda features: features, dtype=np.float32)
    texts = train.b + dev.b
    cut = [list(WORD.finditer(text)) for text in texts]
    told = list(map(features, train.a + dev.a, cut))
    table = counter.fit_transform([word for row in told[: len(train)] for word in row])
    odds = []
    for side in (0, 1):
        learned = zip(cut, train.y, strict=False)  # the training rows come first
        at = [word.span()[side] == y[side] for words, y in learned for word in words]
        model = LogisticRegression(C=0.3, max_iter=1000).fit(table, at)
        odds.append(
            [
                model.decision_function(counter.transform(row)) if row else np.zeros(0)
                for row in told
            ]
        )
    said, worth = zip(*map(best, texts, cut, *odds), strict=True)
    version, lack, rows = 1 if all(dev.answers) else 2, -np.array(worth), len(train)
    limit = np.inf
    if version == 2:
        limit = squad.best_threshold(said[:rows], lack[:rows], train.answers)[0]
    pairs = zip(said[rows:], lack[rows:], strict=True)
    answers = ["" if much > limit else text for text, much in pairs]
    return squad.score(answers, dev.answers, version)[task.metrics[0]]


def features(question, words):
    """A list of names for each word."""
    asked = [word.group().lower() for word in WORD.finditer(question)] or [""]
    return [
        [
            word.group().lower(),
            "asked" if word.group().lower() in asked else "new",
            f"{asked[0]} {kind(word.group())}",
        ]
        for word in words
    ]


def kind(word):
    first = word[0]
    kinds = {"number": first.isdigit(), "mark": not first.isalnum(), "name": first.isupper()}
    return next((name for name, fits in kinds.items() if fits), "word")


def best(text, words, begin, end):
    """(answer, its worth) of a passage: the span of at most LONGEST words with the largest sum of
    log-odds [words].
    """
    if not words:
        return "", -np.inf
    worth = begin[:, None] + end[None]
    worth[np.tril_indices(len(words), -1)] = worth[np.triu_indices(len(words), LONGEST)] = -np.inf
    i, j = np.unravel_index(worth.argmax(), worth.shape)
    return text[words[i].start() : words[j].end()], worth[i, j]
