"""This module has the class for rows of a task: `lib.data` reads them, and
`lib.data.unseen` compares their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

FirstText: TypeAlias = str
SecondText: TypeAlias = str
AcceptedAnswer: TypeAlias = str
ClassCodesScoresOrSpans: TypeAlias = np.ndarray
RowNumbers: TypeAlias = np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """A Split has N rows of a task, such as its training rows. Two Splits are equal
    only if they are the same object, so that results of functions can be cached by
    Split.

    a: the first text of each row.
    b: the second text of each row; None where a row has one text.
    y: class codes, int64 [N], or scores, float32 [N]. For spans int64 [N, 2]: start and
    end (exclusive) of the first answer in `b`, in characters; -1 and -1 where there is
    no answer.
    index: a number for each row, which it keeps when rows are selected, int64 [N].
    Predictions of two runs are matched by it.
    answers: for spans, the accepted answer texts of each row; None for other tasks."""

    a: list[FirstText]
    b: list[SecondText] | None
    y: ClassCodesScoresOrSpans
    index: RowNumbers
    answers: list[list[AcceptedAnswer]] | None = None

    def __len__(self) -> int:
        return len(self.a)

    def list_text_columns(self) -> list[list[str]]:
        """Return the first texts of all rows and, where a row has two texts, the
        second."""
        return [self.a] if self.b is None else [self.a, self.b]

    def select_rows(self, row_positions: Sequence[int] | np.ndarray) -> Split:
        """Return a new Split with only the rows at some positions, in the order of
        these positions."""

        def select_values(values: list[Any] | None) -> Any:
            return values and [values[i] for i in row_positions]

        return Split(
            select_values(self.a),
            select_values(self.b),
            self.y[row_positions],
            self.index[row_positions],
            select_values(self.answers),
        )
