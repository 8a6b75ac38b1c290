"""This module reads questions about passages from SQuAD's official JSON files, and from
the JSON lines to which the hub's data set is downloaded.

Blanks around a question are removed. A passage is not changed, since answers are
positions in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from lib.core.names import Refused
from lib.core.types import Json
from lib.data import Split
from lib.data.lines import (
    make_file_content_error,
    read_json_or_parquet_file,
    refuse_half_characters,
)

AnswerText: TypeAlias = str
StartCharacter: TypeAlias = int  # Position in the passage.
# What an error message says was expected, where the passage does not have an answer's
# text at the position that the file states.
PLACED = "text that begins there in the passage"
# Keys of a question in the rows of the Hugging Face hub.
ROW_KEYS = {"context", "question", "answers"}


class Question(NamedTuple):
    """A Question is a question of SQuAD with its passage and its accepted answers.

    question_id: the id of the question in the file; its number in the file if it has no
    id.
    text: the question itself.
    passage: the text in which the question has to be answered.
    answers: (text, start in the passage in characters) of each accepted answer; []
    where the passage has no answer.
    has_correct_answer_starts: whether the passage has each answer's text at the given
    start; True for a question without answers. Where it is False, no correct label
    (start and end of the answer) can be made, so the question is not used."""

    question_id: str
    text: str
    passage: str
    answers: list[tuple[AnswerText, StartCharacter]]
    has_correct_answer_starts: bool

    def __str__(self) -> str:
        return f"question {self.question_id!r} has the answers {self.answers!r:.80}"


def read_split(task_name: str, json_paths: Sequence[Path]) -> Split:
    """Return the questions in SQuAD's files as one Split, with all answers checked.

    Raises Refused, with the file, where a file has another layout. Raises it with the
    question where the passage does not have an answer's text at the given start, or
    where a question of SQuAD1 has no answer.

    task_name: "SQuAD1" or "SQuAD2".
    json_paths: files with the questions of one split."""
    rows = []
    for path in json_paths:
        for row in read_questions(path):
            if not row.has_correct_answer_starts or (
                task_name == "SQuAD1" and not row.answers
            ):
                raise make_file_content_error(path, row, PLACED)
            rows.append(row)
    if not rows:
        raise make_file_content_error(json_paths[0], "no questions", "some")
    return build_split(rows)


def build_split(rows: Sequence[Question]) -> Split:
    """Return some Questions as a Split, the form of data that trainings use.

    Questions are in `a`, passages in `b`, accepted answer texts in `answers` ([] for no
    answer). `y` is int64 [N, 2]: start and end (exclusive) of the first answer in the
    passage, in characters, or -1 and -1."""
    y = [
        (row.answers[0][1], row.answers[0][1] + len(row.answers[0][0]))
        if row.answers
        else (-1, -1)
        for row in rows
    ]
    return Split(
        [row.text for row in rows],
        [row.passage for row in rows],
        np.array(y, np.int64),
        np.arange(len(rows)),
        [[text for text, _ in row.answers] for row in rows],
    )


def read_questions(path: Path) -> list[Question]:
    """Return all Questions (question, passage, answers) in a file of SQuAD's layout.

    A question with an answer at a wrong position has `has_correct_answer_starts` False;
    the caller refuses it or leaves it out. Raises Refused where the file has another
    layout.

    path: an official JSON file, or a file with rows of the Hugging Face hub, which has
    one object for each question."""
    return parse_questions(path, read_json_or_parquet_file(path))


def parse_questions(error_location: Path, content: Json | list[Json]) -> list[Question]:
    """Return the Questions in the parsed JSON of a file, as `read_questions` does.

    error_location: the file, for errors.
    content: data[].paragraphs[].qas[] of an official file, or a list of rows."""
    rows = []
    try:
        for number, row in enumerate(_iterate_raw_questions(content), 1):
            text, passage = row["question"].strip(), row["context"]
            refuse_half_characters(f"{text}{passage}", f"{error_location}, {number}")
            answers = _parse_answer_texts_and_starts(row["answers"])
            has_correct_answer_starts = all(
                said and start >= 0 and passage.startswith(said, start)
                for said, start in answers
            )
            rows.append(
                Question(
                    str(row.get("id", number)),
                    text,
                    passage,
                    answers,
                    has_correct_answer_starts,
                )
            )
        return rows
    except Refused:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        layout = "SQuAD's layout, data[].paragraphs[].qas[], or a row for each question"
        raise make_file_content_error(error_location, repr(error), layout) from None


def _iterate_raw_questions(content: Json | list[Json]) -> Iterator[Json]:
    """Yield each question of a file as a dict with "id", "question", "answers", and its
    passage under "context"."""
    if isinstance(content, list):
        yield from content
        return
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield {"context": paragraph["context"], **question}


def _parse_answer_texts_and_starts(
    answer_field: Json | list[Json],
) -> list[tuple[AnswerText, StartCharacter]]:
    """Return the answers of a question as [(text, start in characters)]; [] for none.

    answer_field: the question's entry "answers": a list of answers, or, as the Hugging
    Face hub has it, a dict with a list of texts and a list of starts. A start may be a
    string of digits. An empty text at -1 means that there is no answer."""
    if isinstance(answer_field, dict):
        pairs = zip(answer_field["text"], answer_field["answer_start"], strict=True)
    else:
        pairs = ((answer["text"], answer["answer_start"]) for answer in answer_field)
    placed = ((text, int(start)) for text, start in pairs)
    return [pair for pair in placed if pair != ("", -1)]
