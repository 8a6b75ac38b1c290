"""Printed settings beside those of the Specs: one comparison for the pages of all papers."""

import pandas as pd

from lib.measure.printed import check

PRINTED, NONE = "published", "–"


def text(value):
    """Numbers in one form, so that 3e-5 and 0.00003 are alike, and yes and no; others as they
    are.
    """
    try:
        return "NY"[value] if isinstance(value, bool) else f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def beside(printed, ours):
    """A table of text. Its columns are (source, column), those of `printed` first.

    printed: a frame, one row a setting. ours: {(source, column of `printed`): {row: value}}; a dash
    stands where there is none.
    """
    columns = {(PRINTED, column): printed[column].map(text) for column in printed}
    for key, told in ours.items():
        columns[key] = [text(told.get(row, NONE)) for row in printed.index]
    return pd.DataFrame(columns, printed.index)


def differs(table):
    """A frame of `beside` as bool: where a source has something else than the paper."""
    return table.apply(lambda c: (c != table[PRINTED, c.name[1]]) & (c != NONE))


def bold(table):
    """Marks of what differs (`lib.page.artefact.Page.table`)."""
    return differs(table).map({True: "font-weight: bold", False: ""}.get)


def is_number(value):
    """Whether a text of `text` is a number."""
    return value.lstrip("-").replace("e-", "").replace(".", "").isdigit()


def judged(name, table):
    """The verdict on the printed numbers of a table: whether each is the one that Specs have."""
    ours, printed = {}, {}
    for source, column in table.drop(columns=PRINTED, level=0):
        pairs = zip(table[PRINTED, column], table[source, column], strict=True)
        for row, pair in zip(table.index, pairs, strict=True):
            if all(map(is_number, pair)):
                key = ", ".join([*([row] if isinstance(row, str) else row), column])
                printed[key], ours[key] = pair[0], float(pair[1])
    return check(f"{name}: settings in Specs", ours, printed)
