"""This module does extractive question answering: it turns questions about passages
into windows of tokens, and a model's logits over windows into answers.

A passage that is too long for the model is cut into overlapping windows. `stride` is
the distance between the starts of neighbouring windows, as in BERT's public script; in
the tokenizers library the word means the overlap. A token can be in several windows; an
answer may begin at it only in the window with the most context around it. An answer
consists of whole tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lib.core.names import Refused
from lib.core.types import ModelInput
from lib.data import Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class QuestionWindows:
    """QuestionWindows are the model inputs and labels for the N questions of a Split.

    A long passage is cut into overlapping windows. There are W windows in all, each
    with its question and a part of the passage, in the order of the questions and of
    the passage.

    columns: {model input, such as "input_ids": W int32 arrays of different lengths}.
    labels: positions in the window of the first and the last token of the answer, int64
    [W, 2]; 0 and 0 where the window does not contain the answer.
    question_index: the index of each window's question in the Split, [W].
    first_passage_token: the position of the first passage token in each window, [W].
    character_spans: for each window with n passage tokens, int32 [n, 2]: start and end
    (exclusive) of each token in the passage, in characters.
    has_most_context: for each window, bool [n]: whether the window is the one with the
    most context around the passage token, the first of several with equal context.
    Answers begin only at such tokens."""

    columns: dict[ModelInput, list[np.ndarray]]
    labels: np.ndarray
    question_index: np.ndarray
    first_passage_token: np.ndarray
    character_spans: list[np.ndarray]
    has_most_context: list[np.ndarray]


def tokenise_questions(
    tokenizer: PreTrainedTokenizerFast,
    split: Split,
    max_length: int,
    window_start_distance: int,
    max_question_tokens: int = 64,
) -> QuestionWindows:
    """Tokenise questions with their passages, cut into overlapping windows for a model.

    Returns the inputs and labels of all windows. A window without the answer has the
    label 0, the position of [CLS], which means no answer. Raises Refused where a
    question leaves no room for the passage.

    split: the questions in `a`, the passages in `b`.
    max_length: the largest number of tokens in a window.
    window_start_distance: the number of tokens from the start of a window to the start
    of the next one.
    max_question_tokens: the number of tokens to which questions are cut."""
    assert split.b is not None
    before, between, after, types = _infer_text_pair_format(tokenizer)
    # verbose=False hides the warning that a passage is longer than the model's input.
    plain = {"add_special_tokens": False, "verbose": False}
    questions = tokenizer(split.a, **plain)["input_ids"]
    # Tokenise each passage once, as it may have several questions.
    different = list(dict.fromkeys(split.b))
    coded = tokenizer(different, return_offsets_mapping=True, **plain)
    passages = {
        text: (ids, np.array(offsets, np.int32).reshape(-1, 2))
        for text, ids, offsets in zip(
            different, coded["input_ids"], coded["offset_mapping"], strict=True
        )
    }
    windows = []
    for row, text in enumerate(split.b):
        question, (passage, spot) = questions[row][:max_question_tokens], passages[text]
        head = [*before, *question, *between]
        room = max_length - len(head) - len(after)
        if room < 1:
            size = f"the question of row {row} has {len(question)} tokens"
            fix = f"raise max_length, or lower max_query ({max_question_tokens})"
            raise Refused(f"{size}, too many for max_length {max_length}; fix: {fix}")
        # First and last token of the passage that share a character with the answer. If
        # there is no such token, last < begin.
        begin = int(np.searchsorted(spot[:, 1], split.y[row][0], "right"))
        last = int(np.searchsorted(spot[:, 0], split.y[row][1], "left")) - 1
        for start, end, most in _divide_into_windows(
            len(passage), room, window_start_distance
        ):
            ids = np.array([*head, *passage[start:end], *after], np.int32)
            inside, shift = start <= begin <= last < end, len(head) - start
            label = (begin + shift, last + shift) if inside else (0, 0)
            windows.append((ids, label, row, len(head), spot[start:end], most))
    ids, labels, rows, firsts, offsets, fullest = map(list, zip(*windows, strict=True))
    columns = {"input_ids": ids}
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = [
            np.repeat(types, [first, len(window) - first])
            for window, first in zip(ids, firsts, strict=True)
        ]
    return QuestionWindows(
        columns,
        np.array(labels, np.int64),
        np.array(rows),
        np.array(firsts),
        offsets,
        fullest,
    )


def extract_answer_texts(split: Split, answer_character_spans: np.ndarray) -> list[str]:
    """Return the answer texts of N questions, cut out of their passages.

    split: the questions in `a`, the passages in `b`.
    answer_character_spans: start and end (exclusive) in characters [N, 2]; -1 and -1
    give ""."""
    assert split.b is not None
    spans = zip(split.b, answer_character_spans.tolist(), strict=True)
    return [text[first:end] if first >= 0 else "" for text, (first, end) in spans]


class BestSpans(NamedTuple):
    # Start and end of the best answer to each of N questions, in characters of its
    # passage, int64 [N, 2].
    character_spans: np.ndarray
    # Score of "no answer" minus score of the best span, float64 [N].
    no_answer_margins: np.ndarray


def find_best_spans(
    start_logits: Sequence[np.ndarray] | np.ndarray,
    end_logits: Sequence[np.ndarray] | np.ndarray,
    windows: QuestionWindows,
    split: Split,
    n_best: int = 20,
    max_answer_tokens: int = 30,
) -> BestSpans:
    """Find the best answer to each of N questions from the logits over W windows.

    Returns (spans, margins). Spans are int64 [N, 2], start and end (exclusive) in
    characters of the passage. The score of a span is the sum of its start and end
    logit. Margins are float64 [N], the score of "no answer" minus the score of the best
    span. "No answer" is scored as a span of token 0, [CLS], in the window where this
    score is lowest, as in BERT's public script. The best span is returned even where
    the margin is positive, so that the caller decides about "no answer". Where no span
    is valid, start and end are -1, and the margin is infinite. Raises Refused for
    logits that are NaN.

    start_logits, end_logits: a logit for each token: W arrays, at least as long as
    their windows, or one array with W rows.
    windows: the windows, as `tokenise_questions` made them.
    split: the questions and passages of which the windows were made.
    n_best: a span begins at one of the `n_best` tokens with the highest start logits of
    a window, and ends at one of those with the highest end logits.
    max_answer_tokens: the largest number of tokens in a span."""
    assert split.b is not None
    places = np.full((len(split), 2), -1)
    best, null = np.full(len(split), -np.inf), np.full(len(split), np.inf)
    for w, ids in enumerate(windows.columns["input_ids"]):
        row, first = windows.question_index[w], windows.first_passage_token[w]
        spot = windows.character_spans[w]
        start = np.asarray(start_logits[w], np.float64)[: len(ids)]
        end = np.asarray(end_logits[w], np.float64)[: len(ids)]
        if np.isnan([start, end]).any():
            fault = f"the logits of window {w} are not numbers"
            raise Refused(f"{fault}: the model diverged")
        null[row] = min(null[row], start[0] + end[0])
        # Exclude tokens that cover no characters of the passage: byte-level tokenizers
        # have them for blanks.
        solid = spot[:, 0] < spot[:, 1]
        i = _find_top_passage_token_positions(
            start, n_best, first, windows.has_most_context[w] & solid
        )
        j = _find_top_passage_token_positions(end, n_best, first, solid)
        valid = (j >= i[:, None]) & (j - i[:, None] < max_answer_tokens)
        if not valid.any():
            continue
        sums = np.where(valid, start[first + i][:, None] + end[first + j], -np.inf)
        a, b = np.unravel_index(sums.argmax(), sums.shape)
        if sums[a, b] > best[row]:
            best[row] = sums[a, b]
            begin, stop = int(spot[i[a], 0]), int(spot[j[b], 1])
            text = split.b[row][begin:stop]  # Blanks at the ends are removed below.
            lead, tail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
            places[row] = begin + lead, stop - tail
    return BestSpans(places, null - best)


def _find_top_passage_token_positions(
    logits: np.ndarray,
    n_best: int,
    first_passage_token_position: int,
    allowed_token_mask: np.ndarray,
) -> np.ndarray:
    """Return where an answer may begin or end in a window: the allowed passage tokens
    among the `n_best` tokens with the highest logits, best first, numbered from the
    first passage token.

    logits: the start or end logits of the window [T].
    first_passage_token_position: the position of the first passage token in the window.
    allowed_token_mask: bool [n]: whether an answer may begin or end at each passage
    token."""
    places = np.argsort(-logits, kind="stable")[:n_best] - first_passage_token_position
    places = places[(places >= 0) & (places < len(allowed_token_mask))]
    return places[allowed_token_mask[places]]


class PairFormat(NamedTuple):
    # Ids of the special tokens before the first text, between the two texts, and after
    # the second text.
    special_ids_before: list[int]
    special_ids_between: list[int]
    special_ids_after: list[int]
    token_type_ids: np.ndarray  # Token types of the first and the second text [2].


def _infer_text_pair_format(tokenizer: PreTrainedTokenizerFast) -> PairFormat:
    """Return how a tokenizer puts special tokens around a pair of texts.

    The result has four parts: the ids of the special tokens before the first text,
    between the texts, and after the second text, and the token types of the two texts,
    int32 [2]. Windows of a passage are put together with it, without tokenising the
    passage again."""
    form = tokenizer("a", "a", return_token_type_ids=True)
    sides, ids = form.sequence_ids(0), form["input_ids"]
    a, b, size = sides.index(0), sides.index(1), sides.count(0)
    types = np.array(form["token_type_ids"], np.int32)[[a, b]]
    return PairFormat(ids[:a], ids[a + size : b], ids[b + sides.count(1) :], types)


class Window(NamedTuple):
    start: int  # Position in the passage of the window's first token.
    end: int  # Position in the passage of the window's last token, plus 1.
    # bool [n] for the n tokens of the window: whether, of all windows, this one has the
    # most context around the token (the first one in a tie). A predicted answer begins
    # only at such a token, so each token counts in one window.
    has_most_context: np.ndarray


@lru_cache(maxsize=10_000)
def _divide_into_windows(
    token_count: int, max_tokens_per_window: int, window_start_distance: int
) -> list[Window]:
    """Cut a passage of tokens into overlapping windows that fit into a model.

    Returns (start, end (exclusive), has_most_context) for each window, in tokens of the
    passage. The last part is bool [end - start]: whether this window has the most
    context around the token, and is the first of several with equal context.

    token_count: the number of tokens of the passage.
    max_tokens_per_window: the number of passage tokens that fit into a window.
    window_start_distance: the number of tokens from the start of a window to the start
    of the next one; at most `max_tokens_per_window` is used."""
    step = min(
        window_start_distance, max_tokens_per_window
    )  # A longer step would leave tokens out.
    starts = (
        np.arange(1 + max(0, -(-(token_count - max_tokens_per_window) // step))) * step
    )
    ends = np.minimum(starts + max_tokens_per_window, token_count)
    spots = np.arange(token_count)
    context = np.minimum(spots - starts[:, None], ends[:, None] - 1 - spots)
    context = np.where(context < 0, -1, context + 0.01 * (ends - starts)[:, None])
    # Each token belongs to the window with the most context around it. If several
    # windows have equally much, argmax takes the first.
    owner = context.argmax(axis=0)
    windows = enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
    return [Window(start, end, owner[start:end] == w) for w, (start, end) in windows]
