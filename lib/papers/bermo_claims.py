"""BERMo: what its tables print beside what was measured, and verdicts on its claims. Free of torch."""

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats as tests

from lib import published
from lib.data import squad
from lib.measure import compare, stats, verdict
from lib.papers import claims, grids
from lib.papers.bermo import COLUMNS, METHODS, MODELS, PENALTIES, PROBES, SEMANTIC

MARGIN = 0.2  # points within which two models are on a par (B5; B4's equal score)
MATCHED = {
    "MNLI": (5, 3),
    "QQP": (8, 7),
}  # epochs behind the printed 1.67 and 1.15 times, from the hours told
MATCH = (
    0.5  # points by which a run may fall short of the score it is to match (B3); not said either
)


def repaired(table, short, rows):
    """A printed table of scores as text, indexed by its columns `rows` and with our names of the tasks; a cell that arithmetic
    corrects (corrections.csv) is put right and marked †."""
    frame = published.printed("bermo", table)
    names = frame[rows].fillna("").agg(lambda each: " ".join(filter(None, each)), axis=1)
    lines = published.table("bermo", "corrections").query("table == @short").itertuples()
    meant = {
        (line.row, line.column): f"{float(line.read_as):.2f} †"
        for line in lines
        if line.column in PROBES
    }
    found = {
        task: [
            meant.get((name, column), str(v)) for name, v in zip(names, frame[column], strict=True)
        ]
        for column, task in PROBES.items()
    }
    return pd.DataFrame(found, index=names)


def check_trials():
    """Verdict on the means and standard deviations (divisor n - 1) of Table 12 against its trials, as repaired."""
    trials = repaired("table12_probing_trials", "table12", ["Block", "Model"])
    told = (
        published.table("bermo", "table12_probing_trials")
        .set_index(["Block", "Model"])[list(PROBES)]
        .rename(columns=PROBES)
    )
    computed, shown = {}, {}
    for model in ("BERT_BASE", "BERMo_BASE"):
        own = trials[trials.index.str.match(f"Trial . {model}")].apply(
            lambda column: pd.to_numeric(column.str.removesuffix(" †"), errors="coerce")
        )
        for block, values, digits in (
            ("Mean", own.mean(), 2),
            ("Standard Deviation", own.std(), 4),
        ):
            for task, value in values.items():
                computed[f"{model}, {task}, {block.lower()}"] = round(float(value), 6)
                shown[f"{model}, {task}, {block.lower()}"] = (
                    f"{float(told.loc[(block, model), task]):.{digits}f}"
                )
    return verdict.judge_equal("Table 12, means and deviations of the trials:", computed, shown)


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
    return pd.Series(
        [value is True for value in frame["diverged"]] if "diverged" in frame else False,
        frame.index,
        dtype=bool,
    )


def matched(frame, profile_name, margin=MATCH):
    """One line for each task and seed whose budgets are all there: {"task", "seed", "BERT", "BERMo", "step"}, the least epochs
    with which each model comes within `margin` points of BERT's longest run; one step of the axis more where none does."""
    scored, lines = compare.points(frame, grids.metrics(profile_name)), []
    for (task, seed), rows in scored.groupby(["task", "seed"], sort=False):
        table = rows.pivot(index="epochs", columns="model", values="score").sort_index()
        if len(table) < 2 or table.isna().any(axis=None):
            continue
        step = int(table.index[-1] - table.index[-2])
        wanted = table["BERT"].iloc[-1] - margin
        least = {
            model: min(table.index[table[model] >= wanted], default=table.index[-1] + step)
            for model in MODELS
        }
        lines.append({"task": task, "seed": seed, **least, "step": step})
    return pd.DataFrame(lines, columns=["task", "seed", *MODELS, "step"])


# ---- CLAIMS


def over_seeds(values, resolution=0.0):
    """Estimate of the mean of one value a seed, by Student's t; resolution: the values are multiples of it, which adds a
    twelfth of its square to their variance."""
    x = np.asarray(values, float)
    n, mean = len(x), float(x.mean())
    if n < 2:
        return stats.Estimate(mean, mean, mean, (mean,), 1, 1, np.nan, 1.0, 1)
    spread = float(np.hypot(x.std(ddof=1), resolution / 12**0.5))
    error, law = spread / n**0.5, tests.t(n - 1)
    p = 2 * law.sf(abs(mean) / error) if error else float(mean == 0)
    half = law.ppf(0.975) * error
    return stats.Estimate(mean, mean - half, mean + half, tuple(x), n, 1, spread, float(p), n)


def fraction_gap(more, fewer):
    """Estimate of how much larger the share of True is in `more` than in `fewer`, in points: Newcombe's interval of two
    independent shares (1998, method 10), Fisher's exact p."""
    counts = [(int(np.sum(each)), len(each)) for each in (more, fewer)]
    (a, m), (b, n) = counts
    ends = [tests.binomtest(k, size).proportion_ci(method="wilson") for k, size in counts]
    gap = a / m - b / n
    low = gap - np.hypot(a / m - ends[0].low, ends[1].high - b / n)
    high = gap + np.hypot(ends[0].high - a / m, b / n - ends[1].low)
    spread = np.sqrt(sum(k / size * (1 - k / size) for k, size in counts))
    p = tests.fisher_exact([[a, m - a], [b, n - b]]).pvalue
    return stats.Estimate(
        100 * gap, 100 * low, 100 * high, (), min(m, n), 1, 100 * float(spread), float(p), min(m, n)
    )


def classed(frame):
    """Rows that can be paired by example: with classes, and not diverged, as Table 1 leaves those out."""
    return frame[~frame["task"].isin(squad.TASKS) & ~diverged(frame)]


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
    """Verdict on B1: BERMo above BERT on the semantic tasks, whole models fine-tuned."""
    frame = frame[frame["task"].isin(SEMANTIC) & frame["model"].isin(MODELS)]
    gains = published.table("bermo", "table01_probing_mean").set_index("Model").loc["Improvements"]
    printed = float(np.mean([gains[column] for column, task in PROBES.items() if task in SEMANTIC]))
    return verdict.judge_delta(
        "B1",
        {"": claims.estimate(classed(frame), profile_name, *MODELS[::-1])},
        {"": printed},
        profile_name,
        failed=compare.lost(frame) + int(diverged(frame).sum()),
    )


@claims.each_task
def claim_stability(frame, profile_name):
    """Verdict on B2: fewer of BERMo's seeds diverge than of BERT's."""
    there = frame[[run is not None for run in frame["run"]]]
    by = {model: diverged(there)[there["model"] == model].to_numpy() for model in MODELS}
    printed = (
        published.table("bermo", "table03_sst2_stability")
        .set_index("Model")
        .eq("Diverges")
        .mean(axis=1)
    )
    cells = {"BERMo": fraction_gap(*by.values())} if all(map(len, by.values())) else {}
    return verdict.judge_ordering(
        "B2",
        cells,
        {"BERMo": 100 * (printed["BERT_BASE"] - printed["BERMo_BASE"])},
        profile_name,
        unit="points more of BERT's seeds diverge",
        failed=compare.lost(frame),
    )


def claim_convergence(frame, profile_name):
    """Verdict on B3: epochs that BERMo saves to match BERT's longest run. SQuAD, printed as equal, is not judged."""
    lines = matched(frame[~frame["task"].isin(squad.TASKS)], profile_name)
    cells = {
        task: over_seeds(rows["BERT"] - rows["BERMo"], rows["step"].iloc[0])
        for task, rows in lines.groupby("task")
    }
    printed = {
        task: float(bert - bermo)
        for task, (bert, bermo) in MATCHED.items()
        if task in set(frame["task"])
    }
    return verdict.judge_delta(
        "B3",
        cells,
        printed,
        profile_name,
        unit="epochs saved",
        word="on",
        failed=compare.lost(frame),
    )


def claim_penalties(frame, profile_name):
    """Verdict on B4: with a penalty BERMo keeps fewer weights than BERT, at a score that is not lower by MARGIN."""
    rows = classed(
        frame[frame["method"].isin([name for name, kind in METHODS.items() if kind in PENALTIES])]
    )
    table = published.table("bermo", "table04_pruning_methods").pivot(
        index="Pruning Approach", columns="Model", values="QQP Remaining %"
    )
    shares, scores, printed = {}, {}, {}
    for (task, method), part in rows.groupby(["task", "method"], sort=False):
        name = f"{method}, {task}"
        kept = (
            part.pivot(index="seed", columns="model", values="remaining").dropna()
            if "remaining" in part
            else ()
        )
        if len(kept) and set(kept) == set(MODELS):
            shares[name] = over_seeds(100 * (kept["BERT"] - kept["BERMo"]))
            scores[name] = claims.estimate(part, profile_name, *MODELS[::-1])
        if task == "QQP":
            printed[name] = table.loc[method, "BERT_BASE"] - table.loc[method, "BERMo_BASE"]
    fewer = verdict.judge_delta(
        "B4",
        shares,
        printed,
        profile_name,
        unit="points of weights fewer",
        word="with",
        failed=compare.lost(frame),
    )
    alike = (
        replace(part, measured=f"score with {name}: {part.measured}")
        for name, estimate in scores.items()
        for part in [verdict.judge_within("B4", estimate, -MARGIN, float("inf"), profile_name)]
    )
    return claims.together([fewer, *alike])


def claim_distillation(frame, profile_name):
    """Verdict on B5: with distillation the two models lie within MARGIN, tasks with classes averaged."""
    taught = frame[frame["teacher"] != "none"]
    return verdict.judge_within(
        "B5",
        claims.estimate(classed(taught), profile_name, *MODELS[::-1]),
        -MARGIN,
        MARGIN,
        profile_name,
        failed=compare.lost(taught),
    )
