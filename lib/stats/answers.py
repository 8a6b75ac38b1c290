"""This module has SQuAD's exact match and F1 in float64, from 0 to 1. It is free of
torch.

They are those of the official script of version 2.0. The script of version 1.1 differs
on answers of which normalisation leaves nothing, such as ".": it takes them as they
are. Version 2.0 drops them, and reads a question without any other answer as one whose
answer is "". It gives F1 1 where both sides are empty, and 0 where one is."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lib.core.names import Refused

_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Return a text in lower case without punctuation, English articles and extra
    blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def exact(prediction: str, golds: Sequence[str]) -> float:
    """Return 1.0 where the prediction equals one of the accepted texts, else 0.0.

    golds: the accepted texts; [] for a question without an answer.
    """
    return float(normalise(prediction) in _golds(golds))


def span_f1(prediction: str, golds: Sequence[str]) -> float:
    """Return the F1 of the words against the accepted text for which it is largest."""
    words = normalise(prediction).split()
    return max(_f1(words, gold.split()) for gold in _golds(golds))


def score(
    predictions: Sequence[str], answers: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the means over the questions: {"exact", "span_f1"}.

    Where some question has no answer, both names stand once more after "has_answer_"
    and "no_answer_". predictions: N texts, "" for no answer. answers: N lists of
    accepted texts (Split.answers)."""
    if not len(predictions):
        raise Refused("no questions to score")
    cases = list(zip(predictions, answers, strict=True))
    has = np.array([bool(golds) for golds in answers])
    parts = {"": np.ones_like(has)}
    if not has.all():
        parts |= {"has_answer_": has, "no_answer_": ~has}
    scores = {}
    for function in (exact, span_f1):
        values = np.array([function(*case) for case in cases])
        for part, rows in parts.items():
            if rows.any():
                scores[f"{part}{function.__name__}"] = float(values[rows].mean())
    return scores


def _golds(golds: Sequence[str]) -> list[str]:
    return [text for text in map(normalise, golds) if text] or [""]


def _f1(words: list[str], gold: list[str]) -> float:
    if not (words and gold):
        return float(words == gold)
    same = sum((Counter(words) & Counter(gold)).values())
    return 2 * same / (len(words) + len(gold)) if same else 0.0
