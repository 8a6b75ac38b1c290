"""Differentiable NAS pruning of BERT: parts of its pages' tables, and its claims. Free of torch."""

from dataclasses import replace
from math import log10, nan

import numpy as np
import scipy

from lib import pd, published
from lib.measure import compare, gated, stats, verdict
from lib.papers import claims, grids
from lib.papers.nas import AGAINST_IMP, COLUMNS, NOISE, RATIOS, START, WINNING, label

# ---- TABLES: parts as lib.measure.compare.table takes them, out of collected frames

MNIST = {"3 layers": "table08b_mnist_3layer", "11 layers": "table10b_mnist_11layer"}


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


def tested(table, model, rival, runs, searches):
    """One of Tables 6 to 9 as a DataFrame: `rival`, 30 % of `model` and their change in print,
    beside what was measured."""
    names = (rival, f"30 % {model}", "change in %, printed")
    shown = dict(zip(names, printed(table).values(), strict=True))
    return compare.table(shown, *measured(runs, searches))


def turned(table, rename):
    """The same of a published table whose columns are models; columns of changes are left out."""
    rows = published.lines("nas", table)
    models = [column for column in list(rows[0])[2:] if not column.endswith("change")]
    return {
        rename(model): {("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows}
        for model in models
    }


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
    return verdict.judge_equal("Sizes in GFLOPs:", computed, told)


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
    return verdict.judge_equal("Table 12, SST-2:", computed, told)


# ---- CLAIMS


@claims.each_task
def claim_random(frame, profile_name):
    """Verdict on N1 at 10 and 30 %; the printed gaps are means over the table's four rows."""
    table = published.table("nas", "table05_nas_vs_random")
    gaps = {r: float((table[f"{r}% NAS"] - table[f"{r}% Random"]).mean()) for r in (10, 30)}
    cells = {f"{r}%": (frame, f"{r} % NAS", f"{r} % Random", gap) for r, gap in gaps.items()}
    return claims.compared("N1", frame, profile_name, cells, COLUMNS)


# N2: prediction distillation is above each of RIVALS. The report says of two stages that they are
# comparable (7.3.4), so they are no rival.
RIVALS = ("Cross-entropy", "Intermediate distillation")
claim_objective = claims.best("N2", "Prediction distillation", dict.fromkeys(RIVALS, 0.0), COLUMNS)
# N5: a network cut out of the original weights is above one that keeps the searched ones.
claim_start = claims.delta("N5", *START, 0.0, COLUMNS)
# N6: gates on Q, K, V and FFN are better without gates on embedding inputs.
claim_space = claims.delta("N6", "QKV and FFN", "QKV, FFN and embedding", 0.0, COLUMNS)


def claim_control(frame, found, profile_name):
    """Verdict on N4: to move a tenth of the gates is better than to move all, at equal FLOPs.

    It is judged in searches as reported, which a trim brings to their target, and in searches that
    land without a schedule. The note counts those that missed their target before the trim.
    """
    ways = {"as reported": "as reported", "without a schedule": "no schedule"}
    cells = {said: (frame, f"Top 10 %, {way}", f"All, {way}", 0.0) for said, way in ways.items()}
    judged = claims.compared("N4", frame, profile_name, cells, COLUMNS, word="in searches")
    told = [f"{name}: {off(part)}" for name, part in misses(found).items() if "reported" in name]
    about = "searches that missed their target by over 1 % before the trim"
    return claims.noted(judged, *[f"{about}: {', '.join(told)}"] * bool(told))


def variance_ratio(scores, others):
    """Estimate of the variance of some replicates over that of others (F distribution).

    It is None where one of them has fewer than two values, or the others do not vary.
    """
    a, b = (np.asarray(x, float)[np.isfinite(x)] for x in (scores, others))
    least = min(len(a), len(b))
    if least < 2 or not b.var():
        return None
    ratio, free = a.var(ddof=1) / b.var(ddof=1), (len(a) - 1, len(b) - 1)
    low, high = (ratio / scipy.stats.f.ppf(q, *free) for q in (0.975, 0.025))
    p = min(1.0, 2 * min(scipy.stats.f.cdf(ratio, *free), scipy.stats.f.sf(ratio, *free)))
    return stats.Estimate(ratio, low, high, (), least, 1, nan, p, least)


def claim_schedule(frame, profile_name):
    """Verdict on N3 on each task: the additive schedule varies less than the multiplicative one."""
    scored = compare.points(frame, grids.metrics(profile_name, COLUMNS))
    limits = dict(failed=compare.lost(frame), unit="times the variance")
    parts = []
    for task, part in scored.groupby("column", sort=False):
        by = {model: rows["score"] for model, rows in part.groupby("model")}
        found = variance_ratio(by.get("Additive", ()), by.get("Multiplicative", ()))
        judged = verdict.judge_within("N3", found, 0.0, 1.0, profile_name, **limits)
        parts.append(claims.about(task, judged))
    if not parts:
        return verdict.judge_within("N3", None, 0.0, 1.0, profile_name, **limits)
    return claims.together(parts)


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


def straighter(log_ratios):
    """Weights of scores at these sizes, for what a line over log10 FLOPs explains beyond one over
    FLOPs, in points (lib.measure.stats.straighter_weights)."""
    return stats.straighter_weights(log_ratios, 10 ** np.asarray(log_ratios))


def claim_log(frame, profile_name):
    """Verdict on N7: the score rises with the size, and is straighter over log10 FLOPs.

    "Straighter" means smaller residuals than from a line over FLOPs. For rising scores that is a
    contrast of the sizes, whose interval draws seeds and examples jointly. Both must hold, for
    three sizes at least: one of the two alone proves nothing.
    """
    pairs = {
        log10(r): claims.pairs(frame, profile_name, label(r), "Whole", COLUMNS) for r in RATIOS
    }
    table = published.table("nas", "table04_dev_size_sweep")
    means = table[[f"{100 * r:.0f}%" for r in RATIOS]].mean().to_numpy()
    units = {
        straighter: "points that the line over log FLOPs explains beyond that over FLOPs",
        stats.slope_weights: "points per decade of FLOPs",
    }
    parts = []
    for weights, unit in units.items():
        printed = float(weights(np.log10(RATIOS)) @ means)
        more = {"weights": weights, "least": 3}
        parts.append(claims.trend("N7", frame, profile_name, pairs, printed, unit, **more))
    judged = claims.together(parts)
    return replace(judged, verdict="INCONCLUSIVE") if judged.verdict == "PARTIAL" else judged


def claim_noise(frame, profile_name, target=0.1):
    """Verdict on N8 for each network: at most NOISE of the kept inputs are noise."""
    parts, at = [], frame[frame["target"] == target]
    for network, table in MNIST.items():
        there = at[at["network"] == network].reindex(columns=["noise", "pixels"])
        there = there.dropna().astype(float)
        shown = published.table("nas", table).set_index("Target Input Size Ratio").loc[target]
        noise, pixels = shown["Noise dims kept"], shown["Image dims kept"]
        judged = verdict.judge_within(
            "N8",
            stats.replicates(there["noise"] / there.sum(axis=1)) if len(there) else None,
            float("-inf"),  # the interval of a share near 0 may reach below 0
            NOISE,
            profile_name,
            failed=compare.lost(frame),
            unit="of the inputs kept",
            published=float(noise / (noise + pixels)),
        )
        parts.append(claims.about(network, judged))
    return claims.together(parts)


def claim_magnitude(frame, profile_name):
    """Verdict on N9: the network of 30 % is above magnitude pruning, at both of two sparsities.

    One is the share of weights that Table 10 prints for each task, the other is 30 %.
    """
    at = {task: label(share, "IMP") for task, share in WINNING.items()}
    chosen = (frame["model"] == "30 % NAS") | (frame["model"] == frame["task"].map(at))
    stated = frame[chosen].replace({"model": r".* IMP"}, "IMP", regex=True)
    cells = {
        "the printed sparsity": (stated, "30 % NAS", "IMP", 1.8),
        "30 % of the weights": (frame, "30 % NAS", "30 % IMP", None),
    }
    return claims.compared("N9", frame, profile_name, cells, AGAINST_IMP)
