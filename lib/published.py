"""The papers' printed numbers, as committed under `data/published/`. Free of torch.

Cells are what the paper prints; `corrections.csv` of a paper lists the few that were mended in transcription,
and the printed averages that do not recompute.
"""

import pandas as pd

from lib.paths import PUBLISHED


def _allowed(kind, value, allowed):
    if value not in allowed:
        raise ValueError(f"no published {kind} {value!r}; allowed: {', '.join(map(repr, allowed))}")


def table(paper, name):
    """One printed table, one row for each of its rows, columns named as printed.

    Numbers are numbers, a dash ("not reported") and an empty cell are NaN, a width such as "3/12" stays text.
    Raises ValueError for a paper or a table that is not there.

    >>> table("ghostbert", "table3").loc[0, "GhostBERT Avg. acc"]
    np.float64(80.3)
    """
    _allowed("paper", paper, sorted(p.name for p in PUBLISHED.iterdir() if p.is_dir()))
    _allowed(f"table of {paper}", name, sorted(p.stem for p in (PUBLISHED / paper).glob("*.csv")))
    return pd.read_csv(PUBLISHED / paper / f"{name}.csv", na_values="-")


def claims():
    """The central claims of all papers: id, paper, locator, claim, published, kind, rule_at_mini_scale."""
    return pd.read_csv(PUBLISHED / "central.csv", keep_default_na=False)


def rows(paper, name, label, widths, rename=str, m="m"):
    """A published table as {(m, model): {("published", column): value}}, for the tables of pages: the rows of these
    widths, their models named by `rename` of the column `label`. A table without a column `m` is all at 1/12."""
    found = {}
    for row in table(paper, name).to_dict("records"):
        width, model = row.pop(m, "1/12"), rename(row.pop(label))
        if int(width.split("/")[0]) in widths:
            found[width, model] = {
                ("published", "average" if column.startswith("Avg.") else column): value for column, value in row.items()}
    return found


def corrections(paper, *places):
    """Lines for a page: what `corrections.csv` says of cells of these places, such as "table03", "eq. 1" or "text 3.1".

    Raises ValueError for a place that has none.
    """
    found = pd.read_csv(PUBLISHED / paper / "corrections.csv", dtype=str, keep_default_na=False)
    named = found["table"].str.split("; ")
    for place in places:
        _allowed(f"correction of {paper} at", place, sorted(set(named.explode())))
    lines = []
    for row in found[[not set(places).isdisjoint(own) for own in named]].to_dict("records"):
        cell = ", ".join(filter(None, (row["row"], row["column"])))
        printed = [f"printed {row['printed']}"] * bool(row["printed"])
        read_as = [f"read as {row['read_as']}"] * (row["read_as"] not in ("", row["printed"], "as printed"))
        lines.append(f"{cell}: {'; '.join(filter(None, [', '.join(printed + read_as), row['reason']]))}.")
    return lines
