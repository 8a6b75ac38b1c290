"""This module computes SQuAD's exact match and F1 in float64, from 0 to 1, without
torch.

They follow the official script of SQuAD 2.0. The script of SQuAD 1.1 differs for
accepted answers that are empty after normalisation, such as ".": it keeps them. Version
2.0 drops them, and a question without any other answer gets the answer "". Its F1 is 1
where prediction and answer are both empty, and 0 where one is."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lib.core.names import Refused
from lib.core.types import MetricName

_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(answer: str) -> str:
    """Return an answer in lower case, without punctuation, articles and extra blanks.

    SQuAD's scores compare answers in this form, so that "The Alps." equals "alps"."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_MARKS)).split())


def score_exact_match(prediction: str, accepted_answers: Sequence[str]) -> float:
    """Return SQuAD's exact match: 1 where a prediction is an accepted answer, else 0.

    Case, punctuation and English articles do not count.

    accepted_answers: the accepted texts; [] for a question without an answer, where
    only an empty prediction is right."""
    return float(normalise_answer(prediction) in _normalise_answers(accepted_answers))


def score_word_f1(prediction: str, accepted_answers: Sequence[str]) -> float:
    """Return SQuAD's F1 of a predicted answer, from 0 to 1: the overlap of its words.

    Of several accepted texts the best one counts. Case, punctuation and English
    articles do not count.

    accepted_answers: the accepted texts; [] for a question without an answer, where an
    empty prediction scores 1 and any other 0."""
    words = normalise_answer(prediction).split()
    return max(
        _compute_word_f1(words, gold.split())
        for gold in _normalise_answers(accepted_answers)
    )


# The scores of one answer, by the names of their metrics.
SCORES_BY_NAME = {"exact": score_exact_match, "span_f1": score_word_f1}


def compute_mean_exact_match_and_f1(
    predictions: Sequence[str], accepted_answers: Sequence[Sequence[str]]
) -> dict[MetricName, float]:
    """Return the means of SQuAD's two scores over N questions, from 0 to 1.

    The keys are "exact" (exact match) and "span_f1" (overlap of words). Where some
    questions have no answer, the means over questions with and over questions without
    an answer are added, as "has_answer_exact", "no_answer_exact" and so on. Raises
    Refused without questions.

    predictions: N texts, "" for no answer.
    accepted_answers: N lists of accepted texts, [] for a question without an answer."""
    if not len(predictions):
        raise Refused("no questions to score")
    cases = list(zip(predictions, accepted_answers, strict=True))
    has = np.array([bool(golds) for golds in accepted_answers])
    parts = {"": np.ones_like(has)}
    if not has.all():
        parts |= {"has_answer_": has, "no_answer_": ~has}
    scores = {}
    for name, score_answer in SCORES_BY_NAME.items():
        values = np.array([score_answer(*case) for case in cases])
        for part, rows in parts.items():
            if rows.any():
                scores[f"{part}{name}"] = float(values[rows].mean())
    return scores


def _normalise_answers(accepted_answers: Sequence[str]) -> list[str]:
    return [text for text in map(normalise_answer, accepted_answers) if text] or [""]


def _compute_word_f1(predicted_words: list[str], accepted_words: list[str]) -> float:
    if not (predicted_words and accepted_words):
        return float(predicted_words == accepted_words)
    same = sum((Counter(predicted_words) & Counter(accepted_words)).values())
    return 2 * same / (len(predicted_words) + len(accepted_words)) if same else 0.0
