"""This module chooses unseen rows: labelled test rows on which no model is trained or
selected. Models are scored on them together with the development set, so that
differences between models have narrower intervals.

Where a data set has no official test rows with labels, unseen rows are unused training
rows that share no text with a training or held-out row. Texts are compared as
lower-case words between blanks. Two texts share text if four consecutive words are in
both. A text of fewer words shares text with another if one of the two is, as a whole,
part of the other. But when unseen rows are chosen, one with a text of four words or
more is kept although a whole shorter training text is part of it.

Models predict all unseen rows. Scores use only rows of at least nine words (LONG), and
official rows only if none of their texts is also in a training row. The reason is
SST-2, whose training rows are phrases: the median of its 8,000 unseen rows is 6 words,
that of a development sentence 19. On all of these rows, differences between models are
0.54 times as large as on development rows. On development rows together with the longer
ones they are 0.85 times as large (page data_t02_mini_protocol)."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

import numpy as np

from lib.core.types import Arrays
from lib.data.split import Split

WordsOfText: TypeAlias = tuple[str, ...]
WordNgram: TypeAlias = tuple[str, ...]
# None in the place of training rows: the unseen rows are training rows themselves.
UnseenRowsAreFromTraining: TypeAlias = None
# Arrays of these names, by which predictions for unseen rows are scored.
LabelsScoredPositionsGroupsWordCounts: TypeAlias = Arrays
# Two rows share text if they have this many consecutive words in common.
WORDS = 4
SHORTER = range(1, WORDS)
# Least number of words that an unseen row (a labelled test row, see above) must have to
# count in the scores of models. Differences between models are smaller on shorter rows,
# such as the phrases of SST-2.
LONG = 9


def list_words_of_row_texts(split: Split, row_position: int) -> list[WordsOfText]:
    """Return the one or two texts of a row of a Split, each as a tuple of its
    lower-case words."""
    return [
        tuple(column[row_position].lower().split())
        for column in split.list_text_columns()
    ]


def count_words_per_row(split: Split) -> np.ndarray:
    """Return the number of words in each of the N rows of a Split, [N]; both texts of a
    pair count."""
    return np.array(
        [
            sum(map(len, list_words_of_row_texts(split, row)))
            for row in range(len(split))
        ]
    )


def list_ngrams(text: WordsOfText, *lengths: int) -> list[WordNgram]:
    """Return all n-grams (sequences of n consecutive words) of a text.

    text: its words.
    lengths: the values of n."""
    return [
        part
        for size in lengths
        for part in zip(*(text[i:] for i in range(size)), strict=False)
    ]


def select_row_positions_without_shared_text(
    split: Split,
    taken_row_positions: Iterable[int],
    candidate_row_positions: Iterable[int],
    max_row_count: int,
) -> list[int]:
    """Return the first `max_row_count` candidate rows that share no text with any taken
    row.

    It chooses test rows that do not repeat training rows. A candidate text shares
    text with a taken one if four consecutive words are in both, or, where the candidate
    text has fewer words, if one of the two is, as a whole, part of the other. Fewer
    rows are returned where there are no more.

    taken_row_positions, candidate_row_positions: positions of rows in the Split; the
    result is positions too."""
    taken_texts = [
        text
        for row in taken_row_positions
        for text in list_words_of_row_texts(split, row)
    ]
    taken_parts = {
        part for text in taken_texts for part in list_ngrams(text, *SHORTER, WORDS)
    }
    short = {text for text in taken_texts if len(text) < WORDS}

    def shares_ngram_with_taken_rows(text: WordsOfText) -> bool:
        if len(text) >= WORDS:
            return not taken_parts.isdisjoint(list_ngrams(text, WORDS))
        return text in taken_parts or not short.isdisjoint(list_ngrams(text, *SHORTER))

    new = (
        row
        for row in candidate_row_positions
        if not any(
            map(shares_ngram_with_taken_rows, list_words_of_row_texts(split, row))
        )
    )
    return list(islice(new, max_row_count))


def cluster_rows_by_shared_text(
    *splits: Split, only_equal_texts: bool = False
) -> np.ndarray:
    """Group rows that share text, and return the number of each row's group.

    The result is [rows of all splits], in the order of the arguments; groups are
    numbered from 0. Two rows are in one group if they have four consecutive words in
    common, or if one contains a whole text of the other of fewer than four words; so
    are rows that a chain of such pairs connects. Confidence intervals of scores leave
    out whole groups (jackknife), because the rows of a group are not independent.

    only_equal_texts: whether rows share text only if they have an equal text. It is
    True for official test rows."""
    rows = [
        list_words_of_row_texts(split, row)
        for split in splits
        for row in range(len(split))
    ]
    short = {text for row_texts in rows for text in row_texts if len(text) < WORDS}
    parent = list(range(len(rows)))
    first: dict[WordNgram, int] = {}

    def find_root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for row, row_texts in enumerate(rows):
        for text in row_texts:
            shared = [text]
            if not only_equal_texts:
                within = [part for part in list_ngrams(text, *SHORTER) if part in short]
                shared = list_ngrams(text, WORDS) + within
            for mark in shared:
                parent[find_root(row)] = find_root(first.setdefault(mark, row))
    return np.unique([find_root(row) for row in range(len(rows))], return_inverse=True)[
        1
    ]


def compute_unseen_row_scoring_arrays(
    unseen_split: Split,
    dev_split: Split,
    train_split: Split | UnseenRowsAreFromTraining = None,
) -> LabelsScoredPositionsGroupsWordCounts:
    """Return the arrays needed to score predictions for test rows and development rows.

    For N unseen rows (labelled test rows) and D development rows they are "labels" [N],
    "judged" [K] (positions of the K unseen rows that count in scores), "cluster" [D +
    K] (the number of a row's group; rows that share text are in one group) and "words"
    [D + N] (number of words). Development rows come first.

    An unseen row counts if it has at least nine words (LONG) and no text in common with
    a training row. Models differ less on shorter rows, such as the phrases of SST-2.

    train_split: the training rows, if the unseen rows are official test rows; rows are
    then grouped only by equal texts. None if the unseen rows were chosen to share no
    text with training rows."""
    seen = set()
    if train_split:
        seen = {
            text
            for row in range(len(train_split))
            for text in list_words_of_row_texts(train_split, row)
        }
    new = [
        seen.isdisjoint(list_words_of_row_texts(unseen_split, row))
        for row in range(len(unseen_split))
    ]
    positions = np.flatnonzero(new & (count_words_per_row(unseen_split) >= LONG))
    cluster = cluster_rows_by_shared_text(
        dev_split,
        unseen_split.select_rows(positions),
        only_equal_texts=train_split is not None,
    )
    lengths = np.concatenate(
        [count_words_per_row(dev_split), count_words_per_row(unseen_split)]
    )
    return {
        "labels": unseen_split.y,
        "judged": positions,
        "cluster": cluster,
        "words": lengths,
    }
