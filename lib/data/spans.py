"""From questions on passages to windows of tokens, and from logits over windows back to answers.

A passage that is too long for the model is cut into windows. `stride` is the distance between their
starts, as in BERT's own script (for tokenizers it is the overlap). Of the windows that hold a
token, only the one with the most context around it may begin an answer there. An answer is made of
whole tokens: one inside a word piece cannot be had. Free of torch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Features:
    """W windows of the N rows of a Split, in the order of the rows and from left to right."""

    columns: dict  # what the model takes, by name: W int32 arrays each
    labels: np.ndarray  # int64 [W, 2]: the answer's first and last token; 0, 0: it is not inside
    row: np.ndarray  # [W] number of the window's row in the split
    first: np.ndarray  # [W] position of the first token of the passage
    offsets: list  # W int32 arrays [n, 2]: each passage token's first character, one after its last
    fullest: list  # W bool arrays [n]: no other window has more context around this token


def features(tokenizer, split, max_length, stride, max_query=64):
    """Return windows of at most `max_length` tokens over a Split with spans, questions cut to
    `max_query`.

    Token 0, [CLS], stands for no answer. Raises ValueError where a question leaves no room.
    """
    before, between, after, types = _form(tokenizer)
    plain = {"add_special_tokens": False, "verbose": False}  # many a passage is too long
    questions = tokenizer(split.a, **plain)["input_ids"]
    place = {text: i for i, text in enumerate(dict.fromkeys(split.b))}  # it has several questions
    coded = tokenizer(list(place), return_offsets_mapping=True, **plain)
    passages = [np.array(ids, np.int32) for ids in coded["input_ids"]]
    spots = [np.array(pairs, np.int32).reshape(-1, 2) for pairs in coded["offset_mapping"]]
    found = []
    for row, text in enumerate(split.b):
        question, passage = questions[row][:max_query], passages[place[text]]
        head, spot = [*before, *question, *between], spots[place[text]]
        room = max_length - len(head) - len(after)
        if room < 1:
            size = f"the question of row {row} has {len(question)} tokens"
            fix = f"raise max_length, or lower max_query ({max_query})"
            raise ValueError(f"{size}, too many for max_length {max_length}; fix: {fix}")
        # first and last token that share a character with the answer; last < first where none does
        begin = int(np.searchsorted(spot[:, 1], split.y[row][0], "right"))
        last = int(np.searchsorted(spot[:, 0], split.y[row][1], "left")) - 1
        for start, end, most in _windows(len(passage), room, stride):
            ids = np.array([*head, *passage[start:end], *after], np.int32)
            kinds = np.repeat(np.array(types, np.int32), [len(head), len(ids) - len(head)])
            inside, shift = start <= begin <= last < end, len(head) - start
            label = (begin + shift, last + shift) if inside else (0, 0)
            found.append((ids, kinds, label, row, len(head), spot[start:end], most))
    ids, kinds, labels, rows, firsts, offsets, fullest = map(list, zip(*found, strict=True))
    columns = {"input_ids": ids}
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = kinds
    told = np.array(labels, np.int64), np.array(rows), np.array(firsts)
    return Features(columns, *told, offsets, fullest)


def texts(split, places):
    """Return N texts: what stands at the characters `places` [N, 2] of the passages, "" for -1 and
    -1."""
    spans = zip(split.b, places.tolist(), strict=True)
    return [text[first:end] if first >= 0 else "" for text, (first, end) in spans]


def best_places(start_logits, end_logits, features, split, n_best=20, max_answer=30):
    """Return (int64 [N, 2], float64 [N]): the best span of each row, and how much better no answer
    scores.

    A span is its first character and the one after its last, as if the row had an answer; -1 and -1
    where no span is valid, and then the difference is infinite. It has at most `max_answer` tokens,
    and its ends are among a window's `n_best`. Logits: [W, T] or W arrays, each at least as long as
    its window. Raises ValueError for logits that are not numbers.
    """
    places = np.full((len(split), 2), -1)
    best, null = np.full(len(split), -np.inf), np.full(len(split), np.inf)
    told = features.columns["input_ids"], features.row, features.first, features.offsets
    for w, (ids, row, first, spot) in enumerate(zip(*told, strict=True)):
        start, end = (np.asarray(x[w], np.float64)[: len(ids)] for x in (start_logits, end_logits))
        if np.isnan([start, end]).any():
            raise ValueError(f"the logits of window {w} are not numbers: the model diverged")
        null[row] = min(null[row], start[0] + end[0])
        solid = spot[:, 0] < spot[:, 1]  # not a blank of its own, as byte-level tokenizers have
        i = _top(start, n_best, first, features.fullest[w] & solid)
        j = _top(end, n_best, first, solid)
        valid = (j >= i[:, None]) & (j - i[:, None] < max_answer)
        if not valid.any():
            continue
        sums = np.where(valid, start[first + i][:, None] + end[first + j], -np.inf)
        a, b = np.unravel_index(sums.argmax(), sums.shape)
        if sums[a, b] > best[row]:
            best[row] = sums[a, b]
            begin, stop = int(spot[i[a], 0]), int(spot[j[b], 1])
            text = split.b[row][begin:stop]  # its tokens may bring blanks along
            lead, tail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
            places[row] = begin + lead, stop - tail
    return places, null - best


def _top(logits, n_best, first, allowed):
    """Return the allowed ones of the window's `n_best` tokens, numbered within the passage, best
    first."""
    places = np.argsort(-logits, kind="stable")[:n_best] - first
    places = places[(places >= 0) & (places < len(allowed))]
    return places[allowed[places]]


def _form(tokenizer):
    """Return how a tokenizer writes a pair: special tokens before, between and after, and the type
    of either text."""
    form = tokenizer("a", "a", return_token_type_ids=True)
    sides, ids = form.sequence_ids(0), form["input_ids"]
    a, b, size = sides.index(0), sides.index(1), sides.count(0)
    types = [form["token_type_ids"][i] for i in (a, b)]
    return ids[:a], ids[a + size : b], ids[b + sides.count(1) :], types


@lru_cache(maxsize=10_000)
def _windows(tokens, room, stride):
    """Return [(first token, one after the last, bool [n] where no other window has more context)]
    of a passage."""
    step = min(stride, room)  # no token is left out
    starts = np.arange(1 + max(0, -(-(tokens - room) // step))) * step
    ends, spots = np.minimum(starts + room, tokens), np.arange(tokens)
    context = np.minimum(spots - starts[:, None], ends[:, None] - 1 - spots)
    context = np.where(context < 0, -1, context + 0.01 * (ends - starts)[:, None])
    owner = context.argmax(axis=0)  # the first of equals
    windows = enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
    return [(start, end, owner[start:end] == w) for w, (start, end) in windows]
