"""Parts of the tables of the pages on BERMo. Free of torch."""

import pandas as pd

from lib import published
from lib.data.read import SQUAD
from lib.measure import compare
from lib.measure.measures import diverged
from lib.measure.printed import check
from lib.page.runs import difference
from lib.papers.bermo import COLUMNS, PROBES


def repaired(table, short, rows):
    """A printed table of probing scores as text, with our names of the tasks.

    rows: the columns that name its rows. A cell that arithmetic corrects is put right and marked †;
    `short` is the table's name in corrections.csv.
    """
    frame = published.printed("bermo", table)
    names = frame[rows].fillna("").agg(lambda each: " ".join(filter(None, each)), axis=1)
    mended = published.table("bermo", "corrections").query("table == @short").itertuples()
    meant = {
        (cell.row, cell.column): f"{float(cell.read_as):.2f} †"
        for cell in mended
        if cell.column in PROBES
    }
    found = {
        task: [
            meant.get((name, column), str(v)) for name, v in zip(names, frame[column], strict=True)
        ]
        for column, task in PROBES.items()
    }
    return pd.DataFrame(found, index=names)


def check_trials():
    """Verdict on the means and standard deviations (divisor n - 1) of Table 12, from its trials as
    repaired."""
    trials = repaired("table12_probing_trials", "table12", ["Block", "Model"])
    told = published.table("bermo", "table12_probing_trials").set_index(["Block", "Model"])
    computed, printed = {}, {}
    for model in ("BERT_BASE", "BERMo_BASE"):
        own = trials[trials.index.str.match(f"Trial . {model}")]
        own = own.map(lambda text: pd.to_numeric(text.removesuffix(" †"), errors="coerce"))
        blocks = {"Mean": (own.mean(), 2), "Standard Deviation": (own.std(), 4)}
        for block, (values, digits) in blocks.items():
            for column, task in PROBES.items():
                name = f"{model}, {task}, {block.lower()}"
                computed[name] = round(float(values[task]), 6)
                printed[name] = f"{float(told.loc[(block, model), column]):.{digits}f}"
    return check("Table 12, means and deviations of the trials:", computed, printed)


def printed(table, by=("Model",), rename=()):
    """Table 2, 4 or 5 as a part of a page's table, see `lib.published.rows`."""
    return published.rows(
        "bermo", table, list(by), rename=lambda name: name.replace("_BASE", ""), columns=rename
    )


def measured(frame, source, by=("model",)):
    """A collected frame as a part of Table 2, 4 or 5, its rows named by the columns `by`."""
    columns = {task: [c for c in COLUMNS if c.task == task] for task in set(frame["task"])}
    return compare.by_task(frame, columns, source, by)


def classed(frame):
    """The rows that can be paired by example: of tasks with classes, and not diverged, as Table 1
    leaves those out."""
    return frame[~frame["task"].isin(SQUAD) & ~diverged(frame)]


def gaps(runs, method="BERMo", baseline="BERT", by="task"):
    """{(source, task): Estimate} of how much `method` scores above `baseline` on a page's runs.

    by: the column that parts the rows, tasks unless told.
    """
    found = {
        (source, key): difference(rows, at, method, baseline)
        for source, frame, at in runs.frames
        for key, rows in classed(frame).groupby(by, sort=False)
    }
    return {key: estimate for key, estimate in found.items() if estimate}
