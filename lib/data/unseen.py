"""Unseen rows: labelled rows that no run trains or selects on, for verdicts beside the development
set.

Where a source has no official ones they are training rows left over, none of which shares text with
a training or held-out row. Texts are compared as lower-cased words between blanks. A text shares
with another where four of its words in a row stand there too. One of fewer words shares where it
is, as a whole, part of the other, or holds a whole such text itself. Free of torch.
"""

import numpy as np

WORDS = 4  # in a row, that two rows may not share


def texts(split, row):
    """The texts of a row as tuples of words."""
    return [tuple(each[row].lower().split()) for each in (split.a, split.b) if each]


def parts(text, *sizes):
    """Every so many words in a row."""
    return [part for size in sizes for part in zip(*(text[i:] for i in range(size)), strict=False)]


def marks(text):
    """What a text is compared by: every four words in a row, or a shorter text as a whole."""
    return parts(text, WORDS) if len(text) >= WORDS else [text] * bool(text)


def short(found):
    return {text for text in found if len(text) < WORDS}


def within(text, whole):
    """The parts of a text that are one of the short texts `whole`."""
    return [part for part in parts(text, *range(1, WORDS)) if part in whole]


def apart(split, taken, rest, count):
    """The first `count` rows of `rest` that share with none of the rows `taken`; fewer where no
    more are there."""
    found = [text for row in taken for text in texts(split, row)]
    there = {part for text in found for part in parts(text, *range(1, WORDS + 1))}
    whole = short(found)

    def shares(text):
        few = len(text) < WORDS
        return not there.isdisjoint(marks(text)) or (few and bool(within(text, whole)))

    chosen = []
    for row in rest:
        if len(chosen) == count:
            break
        if not any(map(shares, texts(split, row))):
            chosen.append(row)
    return chosen


def clusters(split):
    """Number of each row's cluster, [N]: rows that share are of one, and so are those that a chain
    of such rows links."""
    found = [texts(split, row) for row in range(len(split))]
    whole = short(text for each in found for text in each)
    parent, first = list(range(len(found))), {}

    def root(row):
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for row, each in enumerate(found):
        for mark in (mark for text in each for mark in marks(text) + within(text, whole)):
            parent[root(row)] = root(first.setdefault(mark, row))
    return np.unique([root(row) for row in range(len(found))], return_inverse=True)[1]


def packed(labels, scores):
    """What a run keeps of its predictions [N, C] for unseen rows of a task of these classes: one
    bit a row for two classes, the class for more; of a regression the scores."""
    if not labels:
        return {"scores": scores[:, 0]}
    said = scores.argmax(1)
    if len(labels) == 2:
        return {"bits": np.packbits(said == 1)}
    return {"classes": said.astype(np.min_scalar_type(len(labels) - 1))}


def unpacked(arrays, count):
    """The classes or scores [N] of `count` rows that `packed` kept."""
    [(kind, values)] = arrays.items()
    return np.unpackbits(values.astype(np.uint8), count=count) if kind == "bits" else values
