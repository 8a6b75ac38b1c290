"""Parts of the tables of the pages on differentiable NAS pruning. Free of torch."""

from math import nan

import numpy as np
import pandas as pd

from lib import published
from lib.measure import compare, gated
from lib.measure.printed import check
from lib.papers import grids
from lib.papers.nas import AGAINST_IMP, COLUMNS, WINNING, label

# ---- TABLES: parts as lib.measure.compare.table takes them, out of collected frames


def landed(frame, source):
    """Of searches and draws: share of the FLOPs before and after the trim, and trimmed gates."""
    columns = {
        "before trim, %": ("before_trim", 100),
        "FLOPs, %": ("ratio", 100),
        "gates trimmed": ("trimmed", 1),
    }
    return {
        model: {
            (source, name): compare.spread(scale * part[key]) if key in part else "–"
            for name, (key, scale) in columns.items()
        }
        for model, part in frame.groupby("model", sort=False)
    }


def measured(runs, searches, more=(), columns=COLUMNS):
    """Scores of runs, and what `landed` and the functions `more` tell of searches.

    runs, searches: what `Page.runs` gives of a grid and of its `architectures`.
    """
    parts = []
    for (source, _, at), scores in zip(runs.frames, runs.by_task(columns), strict=True):
        found = searches.at(at)
        parts += [scores, *(told(found, source) for told in (landed, *more) if len(found))]
    return parts


def printed(table, index="Models", rename=str):
    """A published table as `lib.published.rows` gives it."""
    return published.rows("nas", table, index, rename=rename)


def changes(runs, whole):
    """[{model: {(source, column): text}}] by source: change of each mean score in % of that of the
    model `whole`. A score without one, or of 0, has none."""
    found = []
    for source, frame, at in runs.frames:
        scored = compare.points(frame, grids.metrics(at, COLUMNS)).dropna(subset=["score"])
        means = scored.groupby(["column", "model"], sort=False)["score"].mean()
        part = {}
        for (column, model), score in means.items():
            if model != whole and means.get((column, whole)):
                change = 100 * (score / means[column, whole] - 1)
                part.setdefault(model, {})[source, column] = f"{change:+.2f}"
        found.append(part)
    return found


def cost(frame, source, model):
    """Of searches in a model: the least and the most GFLOPs of what they leave, and how many times
    fewer than the whole model's these are, as Tables 6 to 9 print them."""
    there = frame.dropna(subset=["flops"]) if "flops" in frame else frame[:0]
    found = {}
    for name, flops in {f"30 % {model}": "flops", model: "whole_flops"}.items():
        ends = [(there[flops].min(), "low", "high"), (there[flops].max(), "high", "low")]
        for value, end, other in ends if len(there) else ():
            speed = there["whole_flops"].max() / value
            row = {(source, f"FLOPS (B) {end}"): f"{value / 1e9:.3f}"}
            row |= {(source, f"Speedup {other}"): f"{speed:.1f}"}
            found[name] = found.get(name, {}) | row
    return found


def tested(table, model, rival, runs, searches):
    """One of Tables 6 to 9 as a DataFrame: `rival`, 30 % of `model` and their change in %, as
    printed and as measured."""
    network, change = f"30 % {model}", "change in %"
    names = rival, network, change
    parts = [dict(zip(names, printed(table).values(), strict=True)), *measured(runs, searches)]
    parts += [cost(searches.at(at), source, model) for source, _, at in runs.frames]
    parts += [{change: part[network]} for part in changes(runs, rival) if network in part]
    return compare.table(*parts)


def turned(table, rename, end=""):
    """A published table whose columns are models, as such a part. end: " change" takes the columns
    of changes instead."""
    rows = published.lines("nas", table)
    models = [c for c in list(rows[0])[2:] if c.endswith(end) and bool(end) == ("change" in c)]
    return {
        rename(model.removesuffix(end)): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in models
    }


STATED = "IMP, printed sparsity"  # a row of Table 10


def stated(runs):
    """Parts of Table 10: magnitude pruning at the share that it prints for each task, and by how
    much the network of 30 % is above it, in mean scores."""
    at_share, parts = {task: label(share, "IMP") for task, share in WINNING.items()}, []
    for source, frame, at in runs.frames:
        own = frame[frame["model"] == frame["task"].map(at_share)].assign(model=STATED)
        columns = grids.metrics(at, AGAINST_IMP)
        scored = compare.points(pd.concat([frame[frame["model"] == "30 % NAS"], own]), columns)
        means = scored.groupby(["column", "model"], sort=False)["score"].mean().unstack()
        both = means.reindex(columns=["30 % NAS", STATED]).dropna()
        gaps = both["30 % NAS"] - both[STATED]
        told = {(source, column): f"{gap:+.1f}" for column, gap in gaps.items()}
        if len(told) > 1:
            told[source, "average"] = f"{gaps.mean():+.1f}"
        parts += [compare.by_task(own, columns, source), {"difference": told}]
    return parts


def spreads(rows, label, mean, deviation, runs):
    """The same of rows with means and standard deviations over `runs`: text in points."""
    found = {}
    for row in rows:
        text = f"{row[mean].points()} ± {row[deviation].points()} ({runs})"
        found.setdefault(str(row[label]), {})["published", row["Task"]] = text
    return found


def sized(frame, found, profile_name):
    """DataFrame [task, seed, score in points, ratio of the whole FLOPs] of networks.

    frame: of networks and the whole model. found: of their searches. task: title of a column.
    """
    keys = ["task", "model", "seed"]
    scored = compare.points(frame, grids.metrics(profile_name, COLUMNS))
    ratios = found.reindex(columns=[*keys, "ratio"])
    whole = frame.loc[frame["model"] == "Whole", keys].assign(ratio=1.0)
    lines = scored[[*keys, "column", "score"]].merge(pd.concat([ratios, whole]), on=keys)
    lines = lines[["column", "seed", "score", "ratio"]].rename(columns={"column": "task"})
    return lines.astype({"ratio": float}).dropna()


def curves(frame):
    """DataFrame of the course of searches, one line for each step.

    Columns: model, seed, step as a share of all, target and actual ratio of the FLOPs, gates
    switched off and on again so far.
    """
    parts = [pd.DataFrame(columns=["model", "seed", "step", "target", "actual", "off", "on"])]
    for row in compare.there(frame).itertuples():
        target, actual, off, on = row.run.arrays("search")["curve"].astype(float).T
        told = {"model": row.model, "seed": row.seed, "step": np.linspace(0, 1, len(target))}
        told |= {"target": target, "actual": actual, "off": off.cumsum(), "on": on.cumsum()}
        parts.append(pd.DataFrame(told))
    return pd.concat(parts[1:] or parts)


def timed(times, ratios):
    """DataFrame of a collected run of step latency; ratios: {model: share of the whole FLOPs}."""
    lines = {}
    for name, ratio in ratios.items():
        middle, low, high = (times[f"{name}.cpu_ms{end}"] for end in ("", "_p5", "_p95"))
        speed = times[f"{name}.cpu_speedup"]
        lines[name] = {
            "FLOPs, %": f"{100 * ratio:.1f}",
            "ms, CPU": f"{middle:.1f} ({low:.1f} to {high:.1f})",
            "times as fast": f"{speed:.2f}",
            "whole / FLOPs": f"{1 / ratio:.2f}",
            "share of that": f"{100 * speed * ratio:.0f} %",
            "M parameters": f"{times[f'{name}.parameters'] / 1e6:.2f}",
        }
    return pd.DataFrame(lines).T.rename_axis("network")


def swept(times, found, source):
    """`timed` of a collected run of `nas.clocked`, with the FLOPs that its searches ended on.

    found: collected searches; a network without its search is left out.
    """
    own = found[(found["task"] == times["task"]) & (found["seed"] == times["seed"])]
    ratios = own.reindex(columns=["model", "ratio"]).set_index("model")["ratio"].dropna()
    return pd.concat({source: timed(times, {"Whole": 1.0} | ratios.to_dict())}, names=["source"])


def misses(frame):
    """{model: how far its searches are off their targets before the trim, as shares of these}."""
    there = frame.dropna(subset=["before_trim"]) if "before_trim" in frame else frame[:0]
    return {
        model: part["before_trim"] / part["target"] - 1
        for model, part in there.groupby("model", sort=False)
    }


def off(part):
    """How many of some `misses` are above 1 %, as text."""
    return f"{(part.abs() > 0.01).sum()} of {len(part)}"


def missed(frame, source):
    """Of searches: how many are off their target before the trim, and the largest miss."""
    return {
        model: {
            (source, "off by over 1 %"): off(part),
            (source, "largest miss, %"): f"{100 * part.loc[part.abs().idxmax()]:+.1f}",
        }
        for model, part in misses(frame).items()
    }


def check_digits(frame, source):
    """{target: ...} of runs of one network of the digits check: the columns of 7.1's tables."""
    table, form = {}, {"accuracy": ".3f", "ratio": ".3f", "pixels": ".0f", "noise": ".0f"}
    heads = "Accuracy", "Resulting Input Size Ratio", "Image dims kept", "Noise dims kept"
    titles = dict(zip(form, heads, strict=True))
    for target, part in frame.groupby("target", sort=False):
        means = part.reindex(columns=form).dropna().astype(float).mean()
        table[f"{target:g}"] = {
            (source, titles[name]): "–" if np.isnan(means[name]) else f"{means[name]:{digits}}"
            for name, digits in form.items()
        }
    return table


# ---- PRINTED NUMBERS THAT FOLLOW FROM OTHERS


def check_sizes():
    """Verdict on the GFLOPs of 7.2 and Table 9; soft masks at alpha = 5 if there was a search."""
    computed = {name: gated.masked(*of[:2]) / 1e9 for name, of in gated.REPORTED.items()}
    told = {name: f"{shown:.3f}" for name, (_, _, shown) in gated.REPORTED.items()}
    return check("Sizes in GFLOPs:", computed, told)


def check_weights(runs=3, rows=872):
    """Verdict on the means and deviations of Table 12's SST-2, whose development set has 872 rows.

    Each must be one that three runs can have; the divisor of a deviation is 2.
    """
    table = published.table("nas", "table12_flops_weight").query("Task == 'SST-2'")
    table = table.set_index("Statistic").drop(columns="Task")
    computed, told = {}, {}
    for weight, (mean, deviation) in table.loc[["AVG (3 runs)", "STD. DEV"]].items():
        right = round(mean * runs * rows)  # answers of the three runs
        near = range(right // runs - 20, right // runs + 21)
        apart = np.array([np.std([a, b, right - a - b], ddof=1) / rows for a in near for b in near])
        nearest = apart[np.abs(apart - deviation).argmin()]
        told[f"AVG (3 runs), weight {weight}"] = f"{mean:.6f}"
        told[f"STD. DEV, weight {weight}"] = f"{deviation:.5f}"
        computed[f"AVG (3 runs), weight {weight}"] = round(right / (runs * rows), 9)
        computed[f"STD. DEV, weight {weight}"] = round(nearest, 9)
    return check("Table 12, SST-2:", computed, told)


def fit(ratios, scores):
    """Straight lines through scores over log10 FLOPs and over FLOPs.

    Returns {"slope, log": per decade, "residual, log": the largest, "R², log": ..., and the same
    with "linear"}.
    """
    y, ratios, found = np.asarray(scores, float), np.asarray(ratios, float), {}
    for name, x in (("log", np.log10(ratios)), ("linear", ratios)):
        slope, at = np.polyfit(x, y, 1)
        left = y - slope * x - at
        found[f"slope, {name}"] = slope
        found[f"residual, {name}"] = np.abs(left).max()
        found[f"R², {name}"] = 1 - left.var() / y.var() if y.var() else nan
    return found
