"""This module reads SQuAD's official JSON, and the JSON lines that are written of the
hub's rows.

Blanks around a question are dropped. A passage stays as it is, since answers are places
in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lib.core.types import Json
from lib.data import Split
from lib.data.lines import malformed, parsed


def split(task: str, paths: Sequence[Path]) -> Split:
    """Return the Split of a task's files, which are read one after another.

    `a` has the questions and `b` the passages; `answers` is [] where a passage has no
    answer. Raises Refused with the file where its layout is another. Raises it with the
    question where an answer does not stand at its place in the passage, or where SQuAD1
    has no answer."""
    rows = []
    for path in paths:
        try:
            for question in _questions(path):
                text, passage = question["question"].strip(), question["context"]
                answers = _answers(question["answers"])
                right = all(
                    said and passage.find(said, start) == start
                    for said, start in answers
                )
                if not right or (task == "SQuAD1" and not answers):
                    fault = (
                        f"question {question['id']!r} has the answers {answers!r:.80}"
                    )
                    raise malformed(
                        path, fault, "text that begins there in the passage"
                    )
                rows.append((text, passage, answers))
        except (AttributeError, KeyError, TypeError) as error:
            layout = "SQuAD's layout, data[].paragraphs[].qas[]"
            raise malformed(path, repr(error), layout) from None
    if not rows:
        raise malformed(paths[0], "no questions", "some")
    a, b, answers = map(list, zip(*rows, strict=True))
    y = [
        (pairs[0][1], pairs[0][1] + len(pairs[0][0])) if pairs else (-1, -1)
        for pairs in answers
    ]
    accepted = [[text for text, _ in pairs] for pairs in answers]
    return Split(a, b, np.array(y, np.int64), np.arange(len(a)), accepted)


def _questions(path: Path) -> Iterator[Json]:
    """Yield each question of a file, with its passage under "context"."""
    content = parsed(path)
    if path.suffix == ".jsonl":
        yield from content
        return
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield {"context": paragraph["context"], **question}


def _answers(cell: Json | list[Json]) -> list[tuple[str, int]]:
    """Return the answers in a cell, each a text and its first character.

    A cell of the hub is a dict with a list of texts and a list of places.
    """
    if isinstance(cell, dict):
        return list(zip(cell["text"], cell["answer_start"], strict=True))
    return [(answer["text"], answer["answer_start"]) for answer in cell]
