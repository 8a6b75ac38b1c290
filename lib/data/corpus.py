"""Plain text for pre-training: a reader, and pairs of texts as EfficientBERT's data are made.

A corpus is UTF-8 text, one paragraph a line, a blank line between documents.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from lib.data.lines import each_line
from lib.data.tokens import Rows, chunks
from lib.spec import stream


@dataclass(frozen=True)
class Pairs:
    """How documents become pairs. Only the length is in the paper; the rest is what its code
    does."""

    max_length: int = 128  # tokens with [CLS] and twice [SEP]
    short: float = 0.1  # share of documents whose pairs gather fewer tokens
    random_next: float = 0.5  # share of pairs whose second part is from another document
    recycle: int = 5  # data epochs made, then used again in turn; 0: a new one each epoch
    # A document is one segment, hence one pair, whose second part is always from another document:
    # the code makes one article a line. False: a segment a paragraph.
    whole: bool = True


class Row(NamedTuple):
    ids: list  # [CLS] first [SEP] second [SEP]
    segments: list  # 0 to the first [SEP], 1 after it
    is_next: bool  # the second part follows the first in its document


def documents(paths, most=None):
    """Lists of paragraphs, one list a document, of several files.

    A file's end ends a document, and so do `most` paragraphs: EfficientBERT's code cuts books after
    20 lines. Raises ValueError with file and line where a file is not UTF-8.
    """
    for path in paths:
        document = []
        for line in chain(each_line(path), [""]):
            text = line.strip()
            document += [text] if text else []
            if document and (not text or len(document) == most):
                yield document
                document = []


def tokenized(documents, tokenize, options=Pairs()):
    """Documents one after another as lists of segments, each a list of token ids.

    Empty ones are dropped. `tokenize` gives the ids of each of some texts, without special tokens.
    """
    joined = ([" ".join(each)] if options.whole else each for each in documents)
    for part in chunks(joined):
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
    """Rows of one epoch one after another, in the order of the documents (`Documents`, or a list).

    special: ids of [CLS] and [SEP]. Another document is drawn with a probability proportional to
    its segments. Raises ValueError for fewer than two documents.
    """
    room = options.max_length - 3
    if len(tokenized) < 2 or room < 2:
        raise ValueError(
            f"{len(tokenized)} document(s) and room for {room} tokens; expected at least two of "
            "both; fix: put blank lines between documents, or raise max_length"
        )
    epoch = epoch % options.recycle if options.recycle else epoch
    rng = np.random.default_rng(stream(seed, f"pairs:{epoch}"))
    return _pairs(tokenized, special, room, options, rng)


def _pairs(tokenized, special, room, options, rng):
    on_disk = isinstance(tokenized, Documents)
    ends = np.cumsum(tokenized.counts() if on_disk else list(map(len, tokenized)))

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
            start = end if is_next else cut  # segments that a random second part displaced return


def _fitted(first, last, room, rng):
    """Both cut to `room` tokens, the longer one first, each token off the front or the back by a
    coin."""
    sizes = len(first), len(last)
    if sum(sizes) > room:
        short = min(len(last), max(room // 2, room - len(first)))
        sizes = (room - short, short)
    for ids, size in zip((first, last), sizes, strict=True):
        front = int(rng.binomial(len(ids) - size, 0.5))
        yield ids[front : front + size]


def _row(first, last, special, is_next):
    cls, sep = special
    segments = [0] * (len(first) + 2) + [1] * (len(last) + 1)
    return Row([cls, *first, sep, *last, sep], segments, is_next)
