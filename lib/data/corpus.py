"""Plain text for pre-training: a reader, sentence pairs, and masking, as EfficientBERT's pre-training data are made.

A corpus is UTF-8 text, one paragraph a line, a blank line between documents. The paper tells its corpora, the length
and the number of epochs; `Pairs` and `Masking` hold what its code does where the paper is silent.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib.data.lines import each_line
from lib.data.tokens import Rows, chunks
from lib.spec import stream


@dataclass(frozen=True)
class Pairs:
    """How documents become pairs."""

    max_length: int = 128  # tokens with [CLS] and twice [SEP]; in the paper
    short: float = 0.1  # share of documents whose pairs gather fewer tokens; not in the paper
    random_next: float = (
        0.5  # share of pairs whose second part is from another document; not in the paper
    )
    recycle: int = (
        5  # data epochs made, then used again in turn (0: a new one each epoch); not in the paper
    )
    whole: bool = (
        True  # a document is one segment, hence one pair, its second part always random, as the
    )
    #                              code's one article a line makes it; False: a segment a paragraph. Not in the paper


@dataclass(frozen=True)
class Masking:
    """Which tokens are predicted."""

    share: float = 0.15  # of the tokens, special ones counted, at least one; not in the paper
    most: int = (
        20  # predictions a row; the code's script asks for 0: EfficientBERT trains on whole text
    )
    mask: float = 0.8  # of the predicted tokens become [MASK]; not in the paper
    other: float = 0.1  # of them any token of the vocabulary; the rest stay; not in the paper


class Row(NamedTuple):
    ids: list  # [CLS] first [SEP] second [SEP]
    segments: list  # 0 to the first [SEP], 1 after it
    is_next: bool  # the second part follows the first in its document


def documents(paths, most=None):
    """Lists of paragraphs, one list a document, of one path or several. A file's end ends a document; so do `most`
    paragraphs (EfficientBERT's code cuts books after 20 lines). Raises ValueError with file and line where a file is
    not UTF-8."""
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        document = []
        for line in chain(each_line(Path(path)), [""]):
            if line.strip():
                document.append(line.strip())
            if document and (not line.strip() or len(document) == most):
                yield document
                document = []


def tokenized(documents, tokenize, options=Pairs()):
    """Documents one after another as lists of segments, each a list of token ids; empty ones are dropped. `tokenize` gives
    the ids of each of some texts, without special tokens."""
    for part in chunks(
        [" ".join(document)] if options.whole else document for document in documents
    ):
        ids = iter(tokenize([text for texts in part for text in texts]))
        for texts in part:
            if segments := [found for found in islice(ids, len(texts)) if found]:
                yield segments


@dataclass(frozen=True)
class Documents:
    """Tokenised documents on disk: `ids` of each, and `sizes` of its segments."""

    ids: Rows
    sizes: Rows

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, number):
        ids, ends = self.ids[number].tolist(), np.cumsum(self.sizes[number]).tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def counts(self):
        """Segments of each document."""
        return self.sizes.lengths()


def pairs(tokenized, special, seed, epoch, options=Pairs()):
    """Rows of one epoch one after another, in the order of the documents, which are Documents or a list. `special`: ids of
    [CLS] and [SEP]. Another document is drawn with a probability proportional to its segments. Raises ValueError for fewer
    than two documents."""
    room = options.max_length - 3
    if len(tokenized) < 2 or room < 2:
        raise ValueError(
            f"{len(tokenized)} document(s) and room for {room} tokens; expected at least two of both; "
            "fix: put blank lines between documents, or raise max_length"
        )
    return _pairs(
        tokenized,
        special,
        room,
        options,
        np.random.default_rng(
            stream(seed, f"pairs:{epoch % options.recycle if options.recycle else epoch}")
        ),
    )


def _pairs(tokenized, special, room, options, rng):
    ends = np.cumsum(
        tokenized.counts() if isinstance(tokenized, Documents) else list(map(len, tokenized))
    )

    def second(own, length):
        """Segments from a random place of another document on, up to a length."""
        drawn = (ends[own] + int(rng.integers(ends[-1] - len(tokenized[own])))) % ends[-1]
        other = tokenized[bisect_right(ends, drawn)]
        found = []
        for segment in other[int(rng.integers(len(other))) :]:
            found += segment
            if len(found) >= length:
                break
        return found

    for number, document in enumerate(tokenized):
        target = int(rng.integers(2, room + 1)) if rng.random() < options.short else room
        start = 0
        while start < len(document):
            end, gathered = start, 0
            while end < len(document) and gathered < target:
                gathered += len(document[end])
                end += 1
            cut = start + 1 if end - start == 1 else int(rng.integers(start + 1, end))
            is_next = cut < end and rng.random() >= options.random_next
            first = sum(document[start:cut], [])
            last = sum(document[cut:end], []) if is_next else second(number, target - len(first))
            yield _row(*_fitted(first, last, room, rng), special, is_next)
            start = (
                end if is_next else cut
            )  # segments that a random second part displaced come again


def _fitted(first, last, room, rng):
    """Both cut to `room` tokens, the longer one first, each token off the front or the back by a coin."""
    half = room // 2
    if len(first) + len(last) > room:
        short = min(len(last), max(half, room - len(first)))
        sizes = (room - short, short)
    else:
        sizes = (len(first), len(last))
    for ids, size in zip((first, last), sizes, strict=True):
        front = int(rng.binomial(len(ids) - size, 0.5))
        yield ids[front : front + size]


def _row(first, last, special, is_next):
    cls, sep = special
    return Row(
        [cls, *first, sep, *last, sep], [0] * (len(first) + 2) + [1] * (len(last) + 1), is_next
    )


def mask(ids, special, mask_id, vocabulary, rng, options=Masking()):
    """(ids with some masked, their positions in order, the ids that stood there), as arrays. `special` ids are never
    predicted; `vocabulary` is its size; `rng` a numpy Generator."""
    ids = np.array(ids, np.int64)
    open_ = np.flatnonzero(~np.isin(ids, list(special)))
    most = min(options.most, max(1, round(len(ids) * options.share)), len(open_))
    places = np.sort(rng.permutation(open_)[:most])
    draw, labels = rng.random(most), ids[places]
    other = rng.integers(vocabulary, size=most)
    ids[places] = np.where(
        draw < options.mask, mask_id, np.where(draw < options.mask + options.other, other, labels)
    )
    return ids, places, labels
