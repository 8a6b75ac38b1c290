"""This module compares printed settings with those of the Specs, for the pages of all
papers."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

PRINTED, NONE = "published", "–"


def text(value: Any) -> str:
    """Return a value as text in one form.

    So 3e-5 and 0.00003 are alike, and True is Y.
    """
    try:
        return "NY"[value] if isinstance(value, bool) else f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def join_settings(
    printed: pd.DataFrame, ours: Mapping[tuple[str, str], Mapping[str, Any]]
) -> pd.DataFrame:
    """Return a table of text with columns (source, column), those of `printed` first.

    printed: a frame with one row for each setting. ours: {(source, column of
    `printed`): {row: value}}; a dash stands where there is none."""
    columns: dict[tuple[str, Hashable], pd.Series | list[str]]
    columns = {(PRINTED, column): printed[column].map(text) for column in printed}
    for key, values in ours.items():
        columns[key] = [text(values.get(row, NONE)) for row in printed.index]
    return pd.DataFrame(columns, printed.index)


def find_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of `join_settings` as bool: where a source has another value than the
    paper."""
    return table.apply(lambda c: (c != table[PRINTED, c.name[1]]) & (c != NONE))


def mark_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `join_settings` with a mark behind what differs."""
    return table.mask(find_differences(table), table + " ≠")
