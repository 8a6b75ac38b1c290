"""This module compares the settings that a paper prints with those of our runs, in
tables for the pages."""

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

import pandas as pd

SourceAndPrintedColumn: TypeAlias = tuple[str, str]
SettingName: TypeAlias = str
PRINTED = "published"
NONE = "–"


def format_setting(setting: Any) -> str:
    """Return a setting as text, in one form for equal values.

    So settings of a paper and of a run can be compared as text. 3e-5 and 0.00003 are
    both "3e-05", True is "Y" and False is "N"."""
    try:
        return "NY"[setting] if isinstance(setting, bool) else f"{float(setting):g}"
    except (TypeError, ValueError):
        return str(setting)


def join_printed_and_our_settings(
    printed_settings: pd.DataFrame,
    our_settings_by_column: Mapping[SourceAndPrintedColumn, Mapping[SettingName, Any]],
) -> pd.DataFrame:
    """Return a table of text with a paper's settings and those of our runs beside them.

    Its columns are ("published", column) for each printed column, then the keys of
    `our_settings_by_column`. A setting that our runs lack is a dash.

    printed_settings: a line for each setting, which the index names.
    our_settings_by_column: {(source, column of `printed_settings`): {setting: value}},
    where the source is a heading such as the size of the experiment."""
    columns: dict[tuple[str, Hashable], pd.Series | list[str]]
    columns = {
        (PRINTED, column): printed_settings[column].map(format_setting)
        for column in printed_settings
    }
    for key, values in our_settings_by_column.items():
        columns[key] = [
            format_setting(values.get(row, NONE)) for row in printed_settings.index
        ]
    return pd.DataFrame(columns, printed_settings.index)


def mark_cells_that_differ_from_paper(joined_settings: pd.DataFrame) -> pd.DataFrame:
    """Return a bool frame that says which settings of our runs differ from the paper's.

    It has the shape of `joined_settings`, and pages mark the settings by it. Printed
    settings and dashes are False.

    joined_settings: table with the paper's settings and ours beside them, made by
    `join_printed_and_our_settings`."""
    return joined_settings.apply(
        lambda c: (c != joined_settings[PRINTED, c.name[1]]) & (c != NONE)
    )


def mark_settings_differing_from_paper(
    printed_and_our_settings: pd.DataFrame,
) -> pd.DataFrame:
    """Return a table of settings with ≠ behind each that differs from the paper's.

    Only settings of our runs are marked, so that deviations are seen at once.

    printed_and_our_settings: table with the paper's settings and ours beside them, made
    by `join_printed_and_our_settings`."""
    return printed_and_our_settings.mask(
        mark_cells_that_differ_from_paper(printed_and_our_settings),
        printed_and_our_settings + " ≠",
    )
