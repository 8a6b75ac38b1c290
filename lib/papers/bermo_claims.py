"""BERMo: its printed tables as parts of pages, verdicts on its claims B1 to B5. Free of torch."""

from math import inf

import numpy as np

from lib import pd, published
from lib.data import squad
from lib.measure import compare, stats, verdict
from lib.papers import claims, grids
from lib.papers.bermo import COLUMNS, METHODS, MODELS, PENALTIES, PROBES, SEMANTIC

MARGIN = 0.2  # points within which two models are on a par (B5, and the equal score of B4)
# Epochs of BERT and BERMo behind the printed 1.67 and 1.15 times (B3), from the hours told.
MATCHED = {"MNLI": (5, 3), "QQP": (8, 7)}
# Points by which a run may fall short of the score that it is to match (B3), not said in print.
MATCH = 0.5
BOTH = MODELS[::-1]  # BERMo over BERT

# ---- TABLES


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
    return verdict.judge_equal("Table 12, means and deviations of the trials:", computed, printed)


def printed(table, by=("Model",), rename=()):
    """Table 2, 4 or 5 as a part of a page's table, see `lib.published.rows`."""
    return published.rows(
        "bermo", table, list(by), rename=lambda name: name.replace("_BASE", ""), columns=rename
    )


def measured(frame, source, by=("model",)):
    """A collected frame as a part of Table 2, 4 or 5, its rows named by the columns `by`."""
    columns = {task: [c for c in COLUMNS if c.task == task] for task in set(frame["task"])}
    return compare.by_task(frame, columns, source, by)


def diverged(frame):
    """Which rows of a frame are of runs that were made and diverged."""
    return frame.reindex(columns=["diverged"])["diverged"].eq(True)


def classed(frame):
    """The rows that can be paired by example: of tasks with classes, and not diverged, as Table 1
    leaves those out."""
    return frame[~frame["task"].isin(squad.TASKS) & ~diverged(frame)]


def matched(frame, profile_name, margin=MATCH):
    """The least epochs with which each model comes within `margin` points of BERT's longest run.

    One line for each task and seed whose budgets are all there, with the columns task, seed, BERT,
    BERMo and step, the last step of the axis of epochs. A model that never comes so far counts one
    step more than the longest run.
    """
    scored, lines = compare.points(frame, grids.metrics(profile_name)), []
    for (task, seed), rows in scored.groupby(["task", "seed"], sort=False):
        table = rows.pivot(index="epochs", columns="model", values="score").sort_index()
        if len(table) < 2 or table.isna().any(axis=None):
            continue
        longest, step = table.index[-1], int(table.index[-1] - table.index[-2])
        wanted = table["BERT"].iloc[-1] - margin
        least = {
            model: min(table.index[table[model] >= wanted], default=longest + step)
            for model in MODELS
        }
        lines.append({"task": task, "seed": seed, **least, "step": step})
    return pd.DataFrame(lines, columns=["task", "seed", *MODELS, "step"])


# ---- CLAIMS


def gaps(runs, method="BERMo", baseline="BERT", by="task"):
    """{(source, task): Estimate} of how much `method` scores above `baseline` on a page's runs.

    by: the column that parts the rows, tasks unless told.
    """
    found = {
        (source, key): claims.estimate(rows, at, method, baseline)
        for source, frame, at in runs.frames
        for key, rows in classed(frame).groupby(by, sort=False)
    }
    return {key: estimate for key, estimate in found.items() if estimate}


def claim_probing(frame, profile_name):
    """Verdict on B1: BERMo is above BERT on the semantic tasks, whole models fine-tuned."""
    frame = frame[frame["task"].isin(SEMANTIC) & frame["model"].isin(MODELS)]
    gains = published.table("bermo", "table01_probing_mean").set_index("Model").loc["Improvements"]
    printed = float(np.mean([gains[column] for column, task in PROBES.items() if task in SEMANTIC]))
    return verdict.judge_delta(
        "B1",
        {"": claims.estimate(classed(frame), profile_name, *BOTH)},
        {"": printed},
        profile_name,
        failed=compare.lost(frame) + int(diverged(frame).sum()),
    )


@claims.each_task
def claim_stability(frame, profile_name):
    """Verdict on B2: fewer of BERMo's seeds diverge, on any task, than of BERT's."""
    there = compare.there(frame)
    there = there.assign(off=diverged(there)).groupby(["model", "seed"])["off"].max()
    by = [there[there.index.get_level_values("model") == model].to_numpy() for model in MODELS]
    table = published.table("bermo", "table03_sst2_stability").set_index("Model")
    share = table.eq("Diverges").mean(axis=1)
    return verdict.judge_ordering(
        "B2",
        {"BERMo": stats.share_gap(*by)} if all(map(len, by)) else {},
        {"BERMo": 100 * (share["BERT_BASE"] - share["BERMo_BASE"])},
        profile_name,
        unit="points more of BERT's seeds diverge",
        failed=compare.lost(frame),
    )


def claim_convergence(frame, profile_name):
    """Verdict on B3: BERMo saves epochs to match BERT's longest run.

    SQuAD, where the paper prints both as equal, is not judged.
    """
    lines = matched(frame[~frame["task"].isin(squad.TASKS)], profile_name)
    cells = {
        task: stats.replicates(rows["BERT"] - rows["BERMo"], rows["step"].iloc[0])
        for task, rows in lines.groupby("task")
    }
    ran = set(frame["task"])
    return verdict.judge_delta(
        "B3",
        cells,
        {task: float(bert - bermo) for task, (bert, bermo) in MATCHED.items() if task in ran},
        profile_name,
        unit="epochs saved",
        word="on",
        failed=compare.lost(frame),
    )


def claim_penalties(frame, profile_name):
    """Verdict on B4: with a penalty BERMo keeps fewer weights than BERT, and its score is not lower
    by MARGIN."""
    penalised = [name for name, kind in METHODS.items() if kind in PENALTIES]
    table = published.table("bermo", "table04_pruning_methods").pivot(
        index="Pruning Approach", columns="Model", values="QQP Remaining %"
    )
    shares, alike, printed = {}, [], {}
    rows = classed(frame[frame["method"].isin(penalised)])
    for (task, method), part in rows.groupby(["task", "method"], sort=False):
        name = f"{method}, {task}"
        if task == "QQP":
            printed[name] = table.loc[method, "BERT_BASE"] - table.loc[method, "BERMo_BASE"]
        if "remaining" not in part:
            continue
        kept = part.pivot(index="seed", columns="model", values="remaining").dropna()
        if len(kept) and set(kept) == set(MODELS):
            shares[name] = stats.replicates(100 * (kept["BERT"] - kept["BERMo"]))
            judged = claims.within("B4", part, profile_name, BOTH, -MARGIN, inf)
            alike.append(claims.about(f"score with {name}", judged))
    fewer = verdict.judge_delta(
        "B4",
        shares,
        printed,
        profile_name,
        unit="points of weights fewer",
        word="with",
        failed=compare.lost(frame),
    )
    return claims.together([fewer, *alike])


def claim_distillation(frame, profile_name):
    """Verdict on B5: with distillation the two models lie within MARGIN, mean over the tasks with
    classes."""
    taught = frame[frame["teacher"] != "none"]
    failed = compare.lost(taught)
    return claims.within("B5", classed(taught), profile_name, BOTH, -MARGIN, MARGIN, failed=failed)
