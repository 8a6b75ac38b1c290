"""This module pairs documents for pre-training, as EfficientBERT's public code does.

The paper gives only the length of a pair. In its code an article is one line. So a
document is one segment here. Each document is the first segment of one pair, whose
second segment is another document."""

from collections.abc import Iterator, Sequence

import numpy as np

from lib.core.names import Refused, derive_seed
from lib.core.types import ModelInput
from lib.data.tokens import TokenRows

TokenIds = Sequence[int] | np.ndarray  # Token ids of one document.

# Number of epochs that have different pairs of documents. Later epochs use the same
# pairs again, in turn.
EPOCHS = 5
# Probability that a shorter target length is drawn for a pair of documents, as in
# BERT's pre-training code.
SHORT = 0.1


def iterate_encoded_segment_pairs(
    token_ids_by_document: Sequence[TokenIds] | TokenRows,
    cls_and_sep_ids: tuple[int, int],
    max_tokens_per_row: int,
    seed: int,
    epoch: int,
) -> Iterator[dict[ModelInput, list[int]]]:
    """Pair each document with a random other one, as rows of a pre-training epoch.

    Yield the rows. Documents come in order, and each is the first segment of one row. A
    row is {"input_ids": [CLS] document [SEP] other document [SEP], "token_type_ids": 0
    for the first and 1 for the second segment}. Documents are cut so that a row has at
    most `max_tokens_per_row` tokens. Raises Refused for fewer than two documents, or
    where fewer than two tokens of text fit.

    token_ids_by_document: the token ids of each document.
    cls_and_sep_ids: the ids of [CLS] and [SEP].
    seed, epoch: they decide on the pairs; epochs 0 to 4 have different pairs, which
    later epochs repeat in turn."""
    room = max_tokens_per_row - 3
    count = len(token_ids_by_document)
    if count < 2 or room < 2:
        given = f"{count} document(s) and room for {room} tokens; expected at least two of both"
        raise Refused(
            f"{given}; fix: put blank lines between documents, or raise max_length"
        )
    cls, sep = cls_and_sep_ids
    rng = np.random.default_rng(derive_seed(seed, f"pairs:{epoch % EPOCHS}"))
    for number in range(count):
        if rng.random() < SHORT:
            # The authors' code draws a shorter target length here. Where a document is
            # one segment, this length is not used. But the draw is made here too, since
            # it advances the generator and so decides on the pairs that follow.
            rng.integers(2, room + 1)
        other = (number + 1 + int(rng.integers(count - 1))) % count
        first, last = _truncate_document_pair(
            token_ids_by_document[number], token_ids_by_document[other], room, rng
        )
        kinds = [0] * (len(first) + 2) + [1] * (len(last) + 1)
        yield {"input_ids": [cls, *first, sep, *last, sep], "token_type_ids": kinds}


def _truncate_document_pair(
    first_document: TokenIds,
    second_document: TokenIds,
    max_tokens_of_both: int,
    rng: np.random.Generator,
) -> Iterator[TokenIds]:
    """Yield two documents, cut so that together they have at most `max_tokens_of_both`
    tokens.

    Tokens are dropped from the longer document first. For each dropped token a coin
    decides whether it goes from the front or from the back, as in BERT's pre-training
    code."""
    sizes = len(first_document), len(second_document)
    if sum(sizes) > max_tokens_of_both:
        short = min(
            len(second_document),
            max(max_tokens_of_both // 2, max_tokens_of_both - len(first_document)),
        )
        sizes = (max_tokens_of_both - short, short)
    for ids, size in zip((first_document, second_document), sizes, strict=True):
        front = int(rng.binomial(len(ids) - size, 0.5))
        yield ids[front : front + size]
