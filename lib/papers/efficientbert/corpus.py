"""This module pairs documents for pre-training, as EfficientBERT's public code does.

The paper gives only the length of a pair. In its code an article is one line, so each
document is one segment and begins one pair, whose second part is another document."""

from collections.abc import Iterator, Sequence

import numpy as np

from lib.core.names import Refused, derive_seed
from lib.data.tokens import Rows

Ids = Sequence[int] | np.ndarray  # Token ids of one document.

# Epochs with pairs of their own; later epochs use these pairs again in turn.
EPOCHS = 5
# Share of the documents for which a shorter length is drawn.
SHORT = 0.1


def pair_documents(
    documents: Sequence[Ids] | Rows,
    special_tokens: tuple[int, int],
    max_length: int,
    seed: int,
    epoch: int,
) -> Iterator[dict[str, list[int]]]:
    """Yield the rows of one epoch in the order of the documents.

    A row is {"input_ids": [CLS] document [SEP] another document [SEP],
    "token_type_ids"} and has at most `max_length` tokens. documents: the token ids of
    each document. special_tokens: the ids of [CLS] and [SEP]. Raises Refused for fewer
    than two documents, or where fewer than two tokens of text fit."""
    room, count = max_length - 3, len(documents)
    if count < 2 or room < 2:
        given = f"{count} document(s) and room for {room} tokens; expected at least two of both"
        raise Refused(
            f"{given}; fix: put blank lines between documents, or raise max_length"
        )
    (cls, sep), rng = (
        special_tokens,
        np.random.default_rng(derive_seed(seed, f"pairs:{epoch % EPOCHS}")),
    )
    for number in range(count):
        if rng.random() < SHORT:
            # The draw keeps the code's random numbers; its length has no effect where a
            # document is one segment.
            rng.integers(2, room + 1)
        other = (number + 1 + int(rng.integers(count - 1))) % count
        first, last = _cut_documents(documents[number], documents[other], room, rng)
        kinds = [0] * (len(first) + 2) + [1] * (len(last) + 1)
        yield {"input_ids": [cls, *first, sep, *last, sep], "token_type_ids": kinds}


def _cut_documents(
    first_document: Ids, last_document: Ids, max_tokens: int, rng: np.random.Generator
) -> Iterator[Ids]:
    """Yield two documents, cut to `max_tokens` tokens together.

    The longer one is cut first. For each token that goes, a coin decides whether it is
    taken from the front or from the back."""
    sizes = len(first_document), len(last_document)
    if sum(sizes) > max_tokens:
        short = min(
            len(last_document), max(max_tokens // 2, max_tokens - len(first_document))
        )
        sizes = (max_tokens - short, short)
    for ids, size in zip((first_document, last_document), sizes, strict=True):
        front = int(rng.binomial(len(ids) - size, 0.5))
        yield ids[front : front + size]
