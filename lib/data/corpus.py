"""Pairs of texts for pre-training, as EfficientBERT's data are made.

Only their length is in the paper; the rest is what its code does. That code makes one article a
line, so a document is one segment and one pair, whose second part is from another document.
"""

import numpy as np

from lib.runs.spec import stream

EPOCHS = 5  # data epochs that are made, then used again in turn
SHORT = 0.1  # share of documents for which a lower length is drawn


def pairs(documents, special, max_length, seed, epoch):
    """Yield rows of one epoch one after another, in the order of the documents: {"input_ids": [CLS]
    document [SEP] another [SEP], "token_type_ids"}, each of at most `max_length` tokens.

    documents: token ids of each (`tokens.Rows`, or lists). special: ids of [CLS] and [SEP]. Raises
    ValueError for fewer than two documents.
    """
    room, count = max_length - 3, len(documents)
    if count < 2 or room < 2:
        given = f"{count} document(s) and room for {room} tokens; expected at least two of both"
        raise ValueError(f"{given}; fix: put blank lines between documents, or raise max_length")
    (cls, sep), rng = special, np.random.default_rng(stream(seed, f"pairs:{epoch % EPOCHS}"))
    for number in range(count):
        if rng.random() < SHORT:
            rng.integers(2, room + 1)  # without an effect where a document is one segment
        other = (number + 1 + int(rng.integers(count - 1))) % count
        first, last = _fitted(documents[number], documents[other], room, rng)
        kinds = [0] * (len(first) + 2) + [1] * (len(last) + 1)
        yield {"input_ids": [cls, *first, sep, *last, sep], "token_type_ids": kinds}


def _fitted(first, last, room, rng):
    """Yield both cut to `room` tokens, the longer one first, each token off the front or the back
    by a coin."""
    sizes = len(first), len(last)
    if sum(sizes) > room:
        short = min(len(last), max(room // 2, room - len(first)))
        sizes = (room - short, short)
    for ids, size in zip((first, last), sizes, strict=True):
        front = int(rng.binomial(len(ids) - size, 0.5))
        yield ids[front : front + size]
