"""Parts of the tables of the pages on BERMo. Free of torch."""

from lib.measure import compare
from lib.papers import bermo, published


def repaired(table, rows):
    """Return a printed table of probing scores as text, with our names of the tasks.

    rows: the columns that name its rows. A cell that arithmetic corrects is put right and marked †.
    """
    frame = published.printed("bermo", table)
    frame.index = frame[rows].fillna("").agg(" ".join, axis=1).str.strip()
    found = frame[[*bermo.PROBES]].map(str)
    for cell in published.table("bermo", "corrections").itertuples():
        if table.startswith(f"{cell.table}_") and cell.column in bermo.PROBES:
            found.loc[cell.row, cell.column] = f"{float(cell.read_as):.2f} †"
    return found.rename(columns=bermo.PROBES)


def printed(table, by=("Model",), rename=()):
    """Table 2, 4 or 5 as a part of a page's table, see `lib.papers.published.rows`."""
    rows = published.rows("bermo", table, list(by), columns=rename)
    return {name.replace("_BASE", ""): row for name, row in rows.items()}


def measured(frame, source, by=("model",)):
    """Return a collected frame as a part of Table 2, 4 or 5, its rows named by the columns `by`."""
    columns = {task: [c for c in bermo.COLUMNS if c.task == task] for task in set(frame["task"])}
    return compare.by_task(frame, columns, source, by)


def gains(part, label="{}"):
    """Return {task: points} by which a printed part has BERMo above BERT, by the first metric of
    each task. label: of its rows.
    """
    first = {column.task: ("published", column.title) for column in reversed(bermo.COLUMNS)}
    ours, theirs = (part[label.format(name)] for name in ("BERMo", "BERT"))
    return {t: float(ours[key] - theirs[key]) for t, key in reversed(first.items()) if key in ours}
