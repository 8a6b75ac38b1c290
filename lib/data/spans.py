"""From questions on passages to windows of tokens, and from logits over windows back to answers.

A passage that is too long for the model is cut into windows. As in BERT's own script, `stride` is the distance between
their starts (for tokenizers it is the overlap), and of the windows that hold a token only the one with the most context
around it may begin an answer there. An answer is made of whole tokens: one inside a word piece cannot be had.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from lib.train.batches import Encoded


@dataclass(frozen=True)
class Features:
    """W windows of the N rows of a Split, in the order of the rows and from left to right."""

    encoded: Encoded  # labels int64 [W, 2]: first and last token of the answer, 0 and 0 where it is not inside
    row: np.ndarray  # [W] number of the window's row in the split
    first: np.ndarray  # [W] position of the first token of the passage
    offsets: list  # W int32 arrays [n, 2]: first character and one after the last of each token of the passage
    fullest: list  # W bool arrays [n]: no other window has more context around this token

    def __len__(self):
        return len(self.row)


def features(tokenizer, split, max_length, stride, max_query=64):
    """Windows of at most `max_length` tokens over a Split with spans (lib.data), questions cut to `max_query` tokens.
    Token 0, [CLS], stands for no answer. Raises ValueError where a question leaves no room."""
    if stride < 1 or max_query < 0:
        raise ValueError(
            f"stride {stride} and max_query {max_query} given; expected at least 1 and 0"
        )
    before, between, after, types = _form(tokenizer)
    plain = {
        "add_special_tokens": False,
        "verbose": False,
    }  # many a passage is longer than the model takes
    questions = tokenizer(split.a, **plain)["input_ids"]
    place = {
        text: i for i, text in enumerate(dict.fromkeys(split.b))
    }  # a passage has several questions
    coded = tokenizer(list(place), return_offsets_mapping=True, **plain)
    passages = [np.array(ids, np.int32) for ids in coded["input_ids"]]
    spots = [np.array(pairs, np.int32).reshape(-1, 2) for pairs in coded["offset_mapping"]]
    ids, kinds, where, offsets, fullest, labels = ([] for _ in range(6))
    for row, text in enumerate(split.b):
        question, passage, spot = (
            questions[row][:max_query],
            passages[place[text]],
            spots[place[text]],
        )
        head = [*before, *question, *between]
        room = max_length - len(head) - len(after)
        if room < 1:
            raise ValueError(
                f"the question of row {row}, of {len(question)} tokens, leaves its passage no room in "
                f"max_length {max_length}; fix: raise max_length, or lower max_query ({max_query})"
            )
        # first and last token that share a character with the answer; the first is later where none does
        begin = int(np.searchsorted(spot[:, 1], split.y[row][0], "right"))
        last = int(np.searchsorted(spot[:, 0], split.y[row][1], "left")) - 1
        for start, end, most in _windows(len(passage), room, stride):
            ids.append(np.array([*head, *passage[start:end], *after], np.int32))
            kinds.append(
                np.repeat(np.array(types, np.int32), [len(head), end - start + len(after)])
            )
            where.append((row, len(head)))
            offsets.append(spot[start:end])
            fullest.append(most)
            inside = start <= begin <= last < end
            labels.append(
                (begin - start + len(head), last - start + len(head)) if inside else (0, 0)
            )
    columns = {"input_ids": ids}
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = kinds
    encoded, (rows, firsts) = (
        Encoded(columns, torch.tensor(labels), tokenizer.pad_token_id),
        np.array(where).T,
    )
    return Features(encoded, rows, firsts, offsets, fullest)


def answers(
    start_logits, end_logits, features, split, n_best=20, max_answer=30, null_threshold=None
):
    """N texts cut out of the passages. With a `null_threshold` (SQuAD 2.0; usually 0): "" where no answer scores better
    by more than that. Logits: see `best_spans`."""
    texts, differences = best_spans(start_logits, end_logits, features, split, n_best, max_answer)
    limit = np.inf if null_threshold is None else null_threshold
    return ["" if more > limit else text for text, more in zip(texts, differences, strict=True)]


def best_spans(start_logits, end_logits, features, split, n_best=20, max_answer=30):
    """(N texts, float64 [N]): each row's best span as if it had an answer, and how much better no answer scores; see
    `best_places`. Where no span is valid the text is "" and the difference infinite."""
    places, differences = best_places(start_logits, end_logits, features, split, n_best, max_answer)
    return texts(split, places), differences


def texts(split, places):
    """N texts: what stands at the characters `places` [N, 2] of the passages, "" for -1 and -1."""
    return [
        text[first:end] if first >= 0 else ""
        for text, (first, end) in zip(split.b, places.tolist(), strict=True)
    ]


def best_places(start_logits, end_logits, features, split, n_best=20, max_answer=30):
    """(int64 [N, 2], float64 [N]): first character of each row's best span as if it had an answer, and the one after
    its last, -1 and -1 where no span is valid; and how much better no answer scores.

    Logits: [W, T] or W arrays, each at least as long as its window. A span has at most `max_answer` tokens, its ends
    are among a window's `n_best`.
    """
    if not len(start_logits) == len(end_logits) == len(features):
        raise ValueError(
            f"logits of {len(start_logits)} starts, {len(end_logits)} ends for {len(features)} windows"
        )
    places, best, null = (
        np.full((len(split), 2), -1),
        np.full(len(split), -np.inf),
        np.full(len(split), np.inf),
    )
    sizes = features.encoded.lengths()
    for w, (row, first, spot) in enumerate(
        zip(features.row, features.first, features.offsets, strict=True)
    ):
        start, end = (
            np.asarray(logits[w], np.float64)[: sizes[w]] for logits in (start_logits, end_logits)
        )
        if (
            start.shape != (sizes[w],)
            or end.shape != start.shape
            or np.isnan(start).any()
            or np.isnan(end).any()
        ):
            raise ValueError(
                f"the logits of window {w} (row {row}) are not {sizes[w]} numbers each: they are of other "
                "windows, or the model diverged"
            )
        null[row] = min(null[row], start[0] + end[0])
        solid = spot[:, 0] < spot[:, 1]  # not a blank of its own, as byte-level tokenizers have
        i, j = (
            _top(start, n_best, first, features.fullest[w] & solid),
            _top(end, n_best, first, solid),
        )
        valid = (j >= i[:, None]) & (j - i[:, None] < max_answer)
        if valid.any():
            sums = np.where(valid, start[first + i][:, None] + end[first + j], -np.inf)
            a, b = np.unravel_index(sums.argmax(), sums.shape)
            if sums[a, b] > best[row]:
                best[row] = sums[a, b]
                begin, end = int(spot[i[a], 0]), int(spot[j[b], 1])
                text = split.b[row][begin:end]  # its tokens may bring blanks along
                places[row] = (
                    begin + len(text) - len(text.lstrip()),
                    end - len(text) + len(text.rstrip()),
                )
    return places, null - best


def _top(logits, n_best, first, allowed):
    """Those of the window's `n_best` tokens that are allowed tokens of the passage, numbered within it, best first."""
    places = np.argsort(-logits, kind="stable")[:n_best] - first
    places = places[(places >= 0) & (places < len(allowed))]
    return places[allowed[places]]


def _form(tokenizer):
    """How the tokenizer writes a pair: special tokens before, between and after, and the type of either text."""
    form = tokenizer("a", "a", return_token_type_ids=True) if tokenizer.is_fast else None
    sides = form.sequence_ids(0) if form else []
    if (
        1 not in sides
        or sides.index(1) < sides.index(0)
        or form["input_ids"][0] != tokenizer.cls_token_id
    ):
        raise ValueError(
            f"{type(tokenizer).__name__} cannot make windows; expected a fast tokenizer that writes "
            "[CLS], question, passage: one of BERT, RoBERTa or ELECTRA"
        )
    ids, a, b, size = form["input_ids"], sides.index(0), sides.index(1), sides.count(0)
    return (
        ids[:a],
        ids[a + size : b],
        ids[b + sides.count(1) :],
        [form["token_type_ids"][i] for i in (a, b)],
    )


@lru_cache(maxsize=10_000)
def _windows(tokens, room, stride):
    """[(first token, one after the last, bool [n] where no other window has more context)] of a passage."""
    step = min(stride, room)  # no token is left out
    starts = np.arange(1 + max(0, -(-(tokens - room) // step))) * step
    ends, spots = np.minimum(starts + room, tokens), np.arange(tokens)
    context = np.minimum(spots - starts[:, None], ends[:, None] - 1 - spots)
    context = np.where(context < 0, -1, context + 0.01 * (ends - starts)[:, None])
    owner = context.argmax(axis=0)  # the first of equals
    return [
        (int(s), int(e), owner[s:e] == w) for w, (s, e) in enumerate(zip(starts, ends, strict=True))
    ]
