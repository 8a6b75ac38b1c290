"""Tables of a page: which columns stand where, digits, the same as HTML and as Markdown; and what
varies between the runs of a grid. Free of torch."""

import re
from math import floor, isfinite, log10

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.measure import compare
from lib.page.verdicts import escaped
from lib.runs.spec import ancestry, plain

WORDS = "text-align: left; white-space: normal"  # of a column of words or sentences
PRINTED = ("published", "printed")  # sources whose numbers a paper prints
HIDDEN = ("spec", "seed", "run", "state", "error")  # columns of a collected frame that are no label


def joined(names, between):
    """Return the names of rows or columns as text, `between` standing between their levels."""
    return [
        between.join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)
        for name in names
    ]


def beside(frame):
    """Return columns of a table: (those to be seen, those to be folded, whether titles stand on
    top).

    Columns are (source, title). Each measured one stands beside the printed ones whose title has
    the same first word, which is a task, first beside that of the very title. Folded are printed
    columns of other tasks, and scores on development rows alone. Where no task is common, the
    columns stay in their order.
    """

    def task(column):
        return re.split(r"[\s,(]", str(column[1]))[0]

    whole, two = list(frame.columns), frame.columns.nlevels == 2
    printed = [c for c in whole if two and re.split(r"\W", str(c[0]))[0] in PRINTED]
    alone = [c for c in whole if two and str(c[1]).endswith(compare.ALONE)]
    measured = [c for c in whole if c not in printed + alone]
    common = [c for c in printed if task(c) in set(map(task, measured))] if two else []
    if not common:
        return printed + measured, alone, False
    seen = common + measured
    tasks, titles = list(map(task, seen)), [c[1] for c in seen]
    seen.sort(key=lambda c: (tasks.index(task(c)), titles.index(c[1])))
    return seen, [c for c in printed + alone if c not in seen], True


def styled(text, css, columns, turn, name):
    """Return some columns of a table of texts as HTML; turn: titles stand above sources.

    name: tells it from the other tables of its page. Columns of words or sentences are flush left.
    Cells of numbers do not wrap.
    """
    parts = [part if part is None else part[list(columns)] for part in (text, css)]
    text, css = (part.swaplevel(axis=1) if turn and part is not None else part for part in parts)
    shown = Styler(text, na_rep="–", uuid=re.sub(r"\W", "-", name), cell_ids=False, escape="html")
    for axis in (0, 1):
        shown.format_index(escape="html", axis=axis).format_index_names(escape="html", axis=axis)
    words = text.apply(
        lambda column: column.dropna().str.match(r"(?![+-]?\d)\w|.{30}|$").mean() > 0.5
    )
    left = [f".col{n}" for n, flush in enumerate(words) if flush]
    shown.set_table_styles([{"selector": each, "props": WORDS} for each in left])
    return (shown if css is None else shown.apply(lambda _: css, axis=None)).to_html()


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


def flat(value, name=""):
    """Return {dotted name: value} of nested dicts and lists."""
    if not isinstance(value, dict | list):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    parts = (flat(v, f"{name}.{k}" if name else str(k)) for k, v in items)
    return {key: each for part in parts for key, each in part.items()}


def trained(spec):
    """Return {"step setting": values} of the trainings that a run rests on, its own among them."""
    found = {}
    for each in [spec, *sorted(ancestry([spec]), key=lambda each: each.name)]:
        for name, value in plain(each.args.get("train") or {}).items():
            found.setdefault(f"{each.step} {name}", {})[str(value)] = None
    return {name: " or ".join(values) for name, values in found.items()}


def compared(frame):
    """Return (a line on what all rows share, DataFrame of what varies) of a collected frame.

    The line has the settings of trainings that are the same in all rows. The table has the labels
    of the rows, the settings that differ, and the seeds whose runs are there.
    """
    if not len(frame):
        return "", pd.DataFrame()
    by_row = pd.DataFrame([trained(spec) for spec in frame["spec"]], index=frame.index)
    same = by_row.nunique(dropna=False) == 1
    shared = by_row.iloc[0][same].sort_index()
    metrics = {name for run in frame["run"].dropna() for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = pd.concat([frame[labels], by_row.loc[:, ~same]], axis=1).astype(object)
    table = table.where(table.notna(), "")
    table.insert(0, "run", [spec.step for spec in frame["spec"]])
    seeds = frame["spec"].map(lambda spec: "once" if spec.seed is None else str(spec.seed))
    there = frame["run"].notna()
    seen = {"seeds there": seeds.where(there, ""), "missing": seeds.where(~there, "")}
    groups = table.assign(**seen).groupby(list(table), sort=False)[list(seen)]
    lines = groups.agg(lambda part: ", ".join(filter(None, part))).reset_index()
    return ", ".join(f"{name} {value}" for name, value in shared.items()), lines
