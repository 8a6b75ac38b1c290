"""SQuAD's exact match and F1 in float64, 0 to 1, equal to the official scripts. Free of torch.

The scripts of the two versions differ only on answers of which normalisation leaves nothing, such
as ".", which official development sets hold. Version 1.1 takes them as they are and gives no F1 for
them. Version 2.0 drops them, and reads a question without any other answer as one whose answer is
"". It gives F1 1 where both sides are empty, and 0 where one is.
"""

import re
import string
from collections import Counter

import numpy as np

_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text):
    """Lower case, without ASCII punctuation, English articles and superfluous blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def exact(prediction, golds, version=2):
    """1.0 where the prediction equals one of the accepted texts, else 0.0.

    golds: [] for a question without an answer.
    """
    return float(normalise(prediction) in _golds(golds, version))


def span_f1(prediction, golds, version=2):
    """Return F1 of the words against the accepted text where it is largest."""
    words = normalise(prediction).split()
    return max(_f1(words, gold.split(), version) for gold in _golds(golds, version))


def score(predictions, answers, version=None):
    """Means over the questions: {"exact", "span_f1"}.

    For version 2, "has_answer_" and "no_answer_" stand before both names too. predictions: N texts,
    "" for no answer. answers: N lists of accepted texts (Split.answers). version: 1 or 2, the rules
    of v1.1 or v2.0; by default 2 where some question has no answer.
    """
    if not len(predictions):
        raise ValueError("no questions to score")
    version = version or (1 if all(answers) else 2)
    cases, has = list(zip(predictions, answers, strict=True)), np.array(list(map(bool, answers)))
    parts = {"": np.ones_like(has)}
    if version == 2:
        parts |= {"has_answer_": has, "no_answer_": ~has}
    values = {f.__name__: np.array([f(*case, version) for case in cases]) for f in (exact, span_f1)}
    return {
        f"{part}{name}": float(value[rows].mean())
        for part, rows in parts.items()
        if rows.any()
        for name, value in values.items()
    }


def _golds(golds, version):
    if version == 1:
        if not golds:
            raise ValueError("the rules of v1.1 score no question without answer: take version 2")
        return [normalise(gold) for gold in golds]
    return [text for text in map(normalise, golds) if text] or [""]


def _f1(words, gold, version):
    if version == 2 and not (words and gold):
        return float(words == gold)
    same = sum((Counter(words) & Counter(gold)).values())
    return 2 * same / (len(words) + len(gold)) if same else 0.0
