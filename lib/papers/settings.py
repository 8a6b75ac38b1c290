"""This module compares printed settings with those of our Specs, for the pages of all
papers."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

PRINTED, NONE = "published", "–"


def text(value: Any) -> str:
    """Return a setting as text in one form, so that equal settings have equal text.

    3e-5 and 0.00003 are alike, and True is Y."""
    try:
        return "NY"[value] if isinstance(value, bool) else f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def join_settings(
    printed: pd.DataFrame, ours: Mapping[tuple[str, str], Mapping[str, Any]]
) -> pd.DataFrame:
    """Return a table of text: printed settings, then ours, in columns (source, column).

    printed: a frame with one row for each setting. ours: {(source, column of
    `printed`): {row: value}}; a missing value is a dash."""
    columns: dict[tuple[str, Hashable], pd.Series | list[str]]
    columns = {(PRINTED, column): printed[column].map(text) for column in printed}
    for key, values in ours.items():
        columns[key] = [text(values.get(row, NONE)) for row in printed.index]
    return pd.DataFrame(columns, printed.index)


def find_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return a bool frame: where a cell of `join_settings` differs from the print."""
    return table.apply(lambda c: (c != table[PRINTED, c.name[1]]) & (c != NONE))


def mark_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `join_settings` with the mark ≠ behind each differing cell."""
    return table.mask(find_differences(table), table + " ≠")
