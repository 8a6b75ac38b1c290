"""Unseen rows: labelled rows that no run trains or selects on, judged beside the development set.

Where a source has no official ones they are training rows left over, none of which shares text with
a training or held-out row. Texts are compared as lower-cased words between blanks. A text shares
with another where four of its words in a row stand there too. One of fewer words shares where it
is, as a whole, part of the other, or holds a whole such text itself.

Runs predict all unseen rows. Scores count those of LONG words and more in their texts, and of
official ones only those that have no text in common with a training row. The training rows of SST-2
are phrases: 6 words in the median, against 19 of a development sentence. Differences between models
are 0.56 as large on all of them as on development rows, and about 0.9 as large on development rows
together with the longer ones (page data_t02_mini_protocol). Free of torch.
"""

from itertools import islice

import numpy as np

WORDS = 4  # in a row, that two rows may not share
LONG = 9  # words of an unseen row that is judged, at least


def texts(split, row):
    """Return the texts of a row as tuples of words."""
    return [tuple(each[row].lower().split()) for each in (split.a, split.b) if each]


def words(split):
    """Return words [N] of each row, both texts of a pair together."""
    return np.array([sum(map(len, texts(split, row))) for row in range(len(split))])


def parts(text, *sizes):
    """Return every so many words in a row."""
    return [part for size in sizes for part in zip(*(text[i:] for i in range(size)), strict=False)]


def marks(text):
    """Return what a text is compared by: every four words in a row, or a shorter text as a
    whole."""
    return parts(text, WORDS) if len(text) >= WORDS else [text] * bool(text)


def short(every):
    """Return the texts that have fewer than WORDS words."""
    return {text for text in every if len(text) < WORDS}


def within(text, whole):
    """Return the parts of a text that are one of the short texts `whole`."""
    return [part for part in parts(text, *range(1, WORDS)) if part in whole]


def apart(split, taken, rest, count):
    """Return the first `count` rows of `rest` that share with none of the rows `taken`; fewer where
    no more are there."""
    found = [text for row in taken for text in texts(split, row)]
    there = {part for text in found for part in parts(text, *range(1, WORDS + 1))}
    whole = short(found)

    def shares(text):
        few = len(text) < WORDS
        return not there.isdisjoint(marks(text)) or (few and bool(within(text, whole)))

    new = (row for row in rest if not any(map(shares, texts(split, row))))
    return list(islice(new, count))


def clusters(*splits, whole=False):
    """Return the number of each row's cluster, [N] over all rows of the splits: rows that share are
    of one, and so are those that a chain of such rows links. whole: only equal texts are shared."""
    found = [texts(split, row) for split in splits for row in range(len(split))]
    few = short(text for each in found for text in each)
    parent, first = list(range(len(found))), {}

    def root(row):
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for row, each in enumerate(found):
        for text in each:
            for mark in [text] if whole else marks(text) + within(text, few):
                parent[root(row)] = root(first.setdefault(mark, row))
    return np.unique([root(row) for row in range(len(found))], return_inverse=True)[1]


def judged(split, dev, train=None):
    """Return what N unseen rows of a split are judged by, beside D development rows.

    train: the training rows, with which no judged row has a text in common, where unseen rows are
    official. Returns {"labels" [N], "judged": numbers of the K rows that count, "cluster" [D + K]
    and "words" in the texts [D + N], of development rows first}.
    """
    seen = {text for row in range(len(train or ())) for text in texts(train, row)}
    new = [seen.isdisjoint(texts(split, row)) for row in range(len(split))]
    kept = np.flatnonzero(new & (words(split) >= LONG))
    cluster = clusters(dev, split.take(kept), whole=train is not None)
    lengths = np.concatenate([words(dev), words(split)])
    return {"labels": split.y, "judged": kept, "cluster": cluster, "words": lengths}
