"""Step: what a task gives away without reading: the most frequent class, and a linear model over
word counts.
"""

import re

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data as sources
from lib.measure import metrics, squad

WORD = re.compile(r"\w+|[^\w\s]")
LONGEST = 12  # words of an answer


def bag_of_words(run, data):
    """Metrics: the task's first one on the development set, for two answers that need no reading.

    "majority" is the most frequent class, or no answer for spans. "bag_of_words" is a linear model
    over word counts, with a fixed regularisation: C = 0.3, ridge 10.
    """
    task, splits = sources.task(data["source"], data["task"]), sources.load(data)
    train, dev = splits["train"], splits["dev"]
    return (spans if task.span else classes)(task, train, dev) | {
        "train_rows": len(train),
        "dev_rows": len(dev),
    }


def classes(task, train, dev):
    """Scores of both answers.

    Features of a pair are the counts of each side, the number of shared words, and the number of
    words that are new in the second.
    """
    counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
    regression = not task.labels
    words = Ridge(10.0) if regression else LogisticRegression(C=0.3, max_iter=1000)
    constant = DummyRegressor() if regression else DummyClassifier(strategy="most_frequent")
    result = {}
    for name, model in (("majority", constant), ("bag_of_words", words)):
        model.fit(counts(counter, train), train.y)
        said = model.predict(counts(counter, dev))
        result[name] = metrics.score(
            task.metrics[0], said.astype(float) if regression else said, dev.y
        )
    return result


def counts(counter, split):
    a = counter.transform(split.a)
    if split.b is None:
        return a
    b = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])


def spans(task, train, dev):
    """Scores of both answers for spans.

    For each word of a passage alone: does an answer begin here, does one end here? Features are the
    word, whether the question has it, and its kind beside the question's first word. There is no
    answer where the best span is worth less than the threshold that suits the training rows best.
    """
    counter = CountVectorizer(analyzer=lambda features: features, dtype=np.float32)
    cut = [[list(WORD.finditer(text)) for text in split.b] for split in (train, dev)]
    known, asked = (
        [features(a, words) for a, words in zip(split.a, each, strict=True)]
        for split, each in zip((train, dev), cut, strict=True)
    )
    table = counter.fit_transform([word for row in known for word in row])
    odds = []
    for side in (0, 1):
        at = np.array(
            [
                (word.start(), word.end())[side] == y[side]
                for words, y in zip(cut[0], train.y, strict=True)
                for word in words
            ]
        )
        model = LogisticRegression(C=0.3, max_iter=1000).fit(table, at)
        odds.append(
            [
                model.decision_function(counter.transform(row)) if row else np.zeros(0)
                for rows in (known, asked)
                for row in rows
            ]
        )
    said, worth = zip(
        *(
            best(text, words, *each)
            for text, words, *each in zip(train.b + dev.b, cut[0] + cut[1], *odds, strict=True)
        ),
        strict=True,
    )
    version, lack = 1 if all(dev.answers) else 2, -np.array(worth)
    limit = (
        squad.best_threshold(said[: len(train)], lack[: len(train)], train.answers)[0]
        if version == 2
        else np.inf
    )
    said = [
        "" if much > limit else text
        for text, much in zip(said[len(train) :], lack[len(train) :], strict=True)
    ]
    return {
        name: squad.score(answers, dev.answers, version)[task.metrics[0]]
        for name, answers in (("majority", [""] * len(dev)), ("bag_of_words", said))
    }


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
    return (
        "number"
        if word[0].isdigit()
        else "mark"
        if not word[0].isalnum()
        else "name"
        if word[0].isupper()
        else "word"
    )


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
