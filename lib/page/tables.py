"""Tables of a page: which columns stand where, digits, the same as HTML and as Markdown; and what
varies between the runs of a grid. Free of torch."""

import re
from math import floor, isfinite, log10

import numpy as np
from pandas.io.formats.style import Styler

from lib.measure import compare
from lib.page.verdicts import escaped

WORDS = "text-align: left; white-space: normal"  # of a column of words or sentences
PRINTED = ("published", "printed")  # sources whose numbers a paper prints
HIDDEN = ("spec", "seed", "run", "state", "error")  # columns of a collected frame that are no label


def joined(names, between):
    """Return the names of rows or columns as text, `between` standing between their levels."""
    return [
        between.join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)
        for name in names
    ]


def seen(frame):
    """Return (a table as a page shows it, whether titles stand above sources in it).

    Columns are (source, title), and the first word of a title is a task. Each measured column
    stands beside the printed ones of its task. Printed columns of other tasks and scores on
    development rows alone are left out, for the file of the table has them. Where no task is
    common, all printed columns stand first.
    """

    def task(column):
        return re.split(r"[\s,(]", str(column[1]))[0]

    if frame.columns.nlevels != 2:
        return frame, False
    printed = [c for c in frame if re.split(r"\W", str(c[0]))[0] in PRINTED]
    measured = [c for c in frame if c not in printed and not str(c[1]).endswith(compare.ALONE)]
    tasks = [task(c) for c in measured]
    common = [c for c in printed if task(c) in tasks]
    if not common:
        return frame[printed + measured], False
    both = sorted(common + measured, key=lambda c: tasks.index(task(c)))
    return frame[both], True


def styled(text, name):
    """Return a table of texts as HTML; name: tells it from the other tables of its page.

    Columns of words or sentences are flush left. Cells of numbers do not wrap.
    """
    shown = Styler(text, na_rep="–", uuid=re.sub(r"\W", "-", name), cell_ids=False, escape="html")
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis).format_index_names(escape="html", axis=axis)
    words = text.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left = [f".col{n}" for n, flush in enumerate(words) if flush]
    return shown.set_table_styles([{"selector": each, "props": WORDS} for each in left]).to_html()


def digits(column):
    """Return f(value) -> text for a column of a table.

    Printed numbers stay as printed. Floats have as many decimals as all of them need, where two
    are enough. Else they have one to four: the smallest keeps two digits. The rest stays as it is.
    """

    def plain(v):
        return isinstance(v, float | np.floating) and not hasattr(v, "text")

    floats = [abs(v) for v in column if plain(v) and isfinite(v) and v]
    most = min(4, max(1, 1 - floor(log10(min(floats, default=1)))))
    least = next((n for n in range(3) if all(abs(round(v, n) - v) < 1e-9 for v in floats)), most)
    return lambda v: f"{v:.{least}f}" if plain(v) else str(v)


def markdown(frame):
    """Return a table of texts as Markdown, the levels of its rows first; those without a name have
    no title.
    """
    names = [name or "" for name in frame.index.names]
    frame = frame.fillna("").reset_index(names=names, allow_duplicates=True)
    rows = [frame.columns, ["---"] * frame.shape[1], *frame.itertuples(index=False, name=None)]
    return "".join(f"| {' | '.join(map(escaped, row))} |\n" for row in rows)


def compared(frame):
    """Return what varies between the rows of a collected frame: its labels, and the seeds whose
    runs are there or missing.
    """
    metrics = {name for run in frame["run"].dropna() for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = frame[labels].astype(object).fillna("")
    table.insert(0, "run", [spec.step for spec in frame["spec"]])
    seeds = ["once" if spec.seed is None else str(spec.seed) for spec in frame["spec"]]
    there = frame["run"].notna()
    table = table.assign(seeds=seeds, there=there.map({True: "seeds there", False: "missing"}))
    by = [*table.columns[:-2], "there"]
    lines = table.groupby(by, sort=False)["seeds"].agg(", ".join)
    return lines.unstack("there", fill_value="").reset_index()
