"""Printed settings beside those of the Specs: one comparison for the pages of all papers."""

import pandas as pd

PRINTED, NONE = "published", "–"


def text(value):
    """Return numbers in one form, so that 3e-5 and 0.00003 are alike, and yes and no; others as
    they are.
    """
    try:
        return "NY"[value] if isinstance(value, bool) else f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def beside(printed, ours):
    """Return a table of text. Its columns are (source, column), those of `printed` first.

    printed: a frame, one row a setting. ours: {(source, column of `printed`): {row: value}}; a dash
    stands where there is none.
    """
    columns = {(PRINTED, column): printed[column].map(text) for column in printed}
    for key, told in ours.items():
        columns[key] = [text(told.get(row, NONE)) for row in printed.index]
    return pd.DataFrame(columns, printed.index)


def bold(table):
    """Return marks of a frame of `beside`: bold where a source has something else than the paper
    (`lib.page.artefact.Page.table`)."""
    differs = table.apply(lambda c: (c != table[PRINTED, c.name[1]]) & (c != NONE))
    return differs.map({True: "font-weight: bold", False: ""}.get)
