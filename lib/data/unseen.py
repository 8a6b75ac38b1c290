"""This module chooses unseen rows: labelled rows on which no run trains or selects.
Models are scored on them together with the development set.

Where a source has no official unseen rows, they are unused training rows that share no
text with a training or held-out row. Texts are compared as lower-cased words between
blanks. Two texts share text if four consecutive words are in both. A text of fewer
words shares text with another if one of the two is, as a whole, part of the other.

Runs predict all unseen rows. Scores use only rows of at least LONG words, and official
rows only if none of their texts is also in a training row. The training rows of SST-2
are phrases: their median is 6 words, that of a development sentence 19. Differences
between models are 0.56 times as large on all of these rows as on development rows. On
development rows together with the longer ones they are about 0.9 times as large (page
data_t02_mini_protocol). The module does not import torch."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from lib.core.types import Arrays

Text = tuple[str, ...]  # Words of a text.
# Number of consecutive words that two rows must have in common to share text.
WORDS = 4
SHORTER = range(1, WORDS)
LONG = 9  # Least number of words of an unseen row that counts in scores.


class _Split(Protocol):
    """A _Split is the type of Split of lib.data, which cannot be imported here, as it
    imports this module."""

    @property
    def a(self) -> list[str]: ...
    @property
    def b(self) -> list[str] | None: ...
    @property
    def y(self) -> np.ndarray: ...
    def __len__(self) -> int: ...
    def take(self, rows: Sequence[int] | np.ndarray) -> "_Split": ...


def texts(split: _Split, row: int) -> list[Text]:
    """Return the one or two texts of a row of a Split, each as its lower-case words."""
    return [
        tuple(column[row].lower().split()) for column in (split.a, split.b) if column
    ]


def words(split: _Split) -> np.ndarray:
    """Return the number of words in each row of a Split [N]; both texts of a pair
    count."""
    return np.array([sum(map(len, texts(split, row))) for row in range(len(split))])


def cut_parts(text: Text, *sizes: int) -> list[Text]:
    """Return all sequences of consecutive words (n-grams) of a text.

    sizes: the values of n."""
    return [
        part
        for size in sizes
        for part in zip(*(text[i:] for i in range(size)), strict=False)
    ]


def comparison_parts(text: Text) -> list[Text]:
    """Return the parts by which a text is compared with others: its n-grams of four
    words, or a shorter text as a whole."""
    return cut_parts(text, WORDS) if len(text) >= WORDS else [text] * bool(text)


def select_apart(
    split: _Split, taken: Iterable[int], rest: Iterable[int], count: int
) -> list[int]:
    """Return the first `count` rows of `rest` that share no text with the rows `taken`,
    or fewer where there are no more.

    Rows are positions in the Split, in arguments and result."""
    taken_texts = [text for row in taken for text in texts(split, row)]
    taken_parts = {
        part for text in taken_texts for part in cut_parts(text, *SHORTER, WORDS)
    }
    short = {text for text in taken_texts if len(text) < WORDS}

    def shares(text: Text) -> bool:
        if len(text) >= WORDS:
            return not taken_parts.isdisjoint(cut_parts(text, WORDS))
        return text in taken_parts or not short.isdisjoint(cut_parts(text, *SHORTER))

    new = (row for row in rest if not any(map(shares, texts(split, row))))
    return list(islice(new, count))


def clusters(*splits: _Split, only_equal: bool = False) -> np.ndarray:
    """Return the number of each row's cluster, from 0: [N] over the rows of all splits.

    Rows that share text, directly or through a chain of rows, are in one cluster.

    only_equal: whether only equal texts count as shared."""
    rows = [texts(split, row) for split in splits for row in range(len(split))]
    short = {text for row_texts in rows for text in row_texts if len(text) < WORDS}
    parent = list(range(len(rows)))
    first: dict[Text, int] = {}

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for row, row_texts in enumerate(rows):
        for text in row_texts:
            shared = [text]
            if not only_equal:
                within = [part for part in cut_parts(text, *SHORTER) if part in short]
                shared = comparison_parts(text) + within
            for mark in shared:
                parent[root(row)] = root(first.setdefault(mark, row))
    return np.unique([root(row) for row in range(len(rows))], return_inverse=True)[1]


def judging_rows(split: _Split, dev: _Split, train: _Split | None = None) -> Arrays:
    """Return the arrays by which predictions for N unseen rows are scored, together
    with D development rows.

    They are "labels" [N], "judged" (positions of the K unseen rows that count in
    scores), "cluster" [D + K] (`clusters`) and "words" [D + N] (number of words), with
    development rows first.

    split, dev: the unseen and the development rows.
    train: the training rows if unseen rows are official; an unseen row that has a text
    in common with them does not count."""
    seen = set()
    if train:
        seen = {text for row in range(len(train)) for text in texts(train, row)}
    new = [seen.isdisjoint(texts(split, row)) for row in range(len(split))]
    positions = np.flatnonzero(new & (words(split) >= LONG))
    cluster = clusters(dev, split.take(positions), only_equal=train is not None)
    lengths = np.concatenate([words(dev), words(split)])
    return {
        "labels": split.y,
        "judged": positions,
        "cluster": cluster,
        "words": lengths,
    }
