"""SQuAD's layout: official JSON, and the JSON lines that the hub's rows become.

Blanks around a question are dropped; a passage stays as it is, since answers are offsets into it.
"""

import numpy as np

from lib.data import Split
from lib.data.lines import HALF, MEND, malformed, parsed

_NAMES = ("id", "question", "context")
_TREE = "SQuAD's layout, data[].paragraphs[].qas[]"


def split(task, paths):
    """The Split of a task's files, one after another. `a` are questions, `b` passages; `answers` is
    [] where a passage has none. Raises ValueError with file and question."""
    rows = []
    for path in paths:
        for row in _questions(path):
            place = f"{path}: question {row.get('id')!r:.40}"
            texts = _, question, passage = [row.get(key) for key in _NAMES]
            if any(type(text) is not str or HALF.search(text) for text in texts):
                found = ", ".join(f"{text!r:.60}" for text in texts)
                raise malformed(place, found, f"{', '.join(_NAMES)}, each of them text", MEND)
            rows.append((question.strip(), passage, _answers(task, row, passage, place)))
    if not rows:
        raise malformed(paths[0], "no questions", f"some in {_TREE}", MEND)
    a, b, answers = map(list, zip(*rows, strict=True))
    y = [(each[0][1], each[0][1] + len(each[0][0])) if each else (-1, -1) for each in answers]
    accepted = [[text for text, _ in each] for each in answers]
    return Split(a, b, np.array(y, np.int64), np.arange(len(a)), accepted)


def _questions(path):
    """Each question of a file as an object, with its passage as `context`."""
    for place, whole in parsed(path):
        try:
            if path.suffix == ".jsonl":  # the hub has a list of texts and one of places
                columns = whole["answers"]["text"], whole["answers"]["answer_start"]
                pairs = zip(*columns, strict=True)
                yield whole | {"answers": [{"text": t, "answer_start": n} for t, n in pairs]}
                continue
            for article in whole["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        yield {"context": paragraph["context"], **question}
        except (KeyError, TypeError, ValueError) as error:
            found = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise malformed(place, found, _TREE, MEND) from None


def _answers(task, row, passage, place):
    """[(text, first character), ...] of a question. Raises ValueError where they do not fit."""
    try:
        answers = [(each["text"], each["answer_start"]) for each in row["answers"]]
        right = all(type(text) is str and type(start) is int for text, start in answers)
    except (KeyError, TypeError):
        right = False
    if not right:
        found = f"answers {row.get('answers')!r:.80}"
        raise malformed(place, found, "a list of text and answer_start, a whole number", MEND)
    for text, start in answers:
        if not text or start < 0 or not passage.startswith(text, start):
            found = f"answer {text!r:.60} is not at character {start} of the passage"
            raise malformed(place, found, "an answer at its offset", "mend or drop the question")
    if (task == "SQuAD2" and row.get("is_impossible", not answers)) is not (not answers):
        expected = "none where is_impossible is true, else and in v1.1 at least one"
        raise malformed(place, f"{len(answers)} answers", expected, MEND)
    return answers
