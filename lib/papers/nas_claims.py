"""Differentiable NAS pruning of BERT: what its pages show beside the runs, and its claims N1 to N9. Free of torch."""

from dataclasses import replace
from math import isfinite, log10, nan

import numpy as np
import pandas as pd
from scipy.stats import f as fisher

from lib import published
from lib.measure import compare, gated, stats, verdict
from lib.papers import claims, grids
from lib.papers.nas import AGAINST_IMP, COLUMNS, NOISE, RATIOS, WINNING, label

# ---- TABLES

INPUTS = 2 * 28**2  # pixels of MNIST and as many noise values
DIGITS = {
    "accuracy": ".3f",
    "ratio": ".3f",
    "pixels": ".0f",
    "noise": ".0f",
}  # columns of Tables 8 and 10 of 7.1


def check_sizes():
    """Verdict on the GFLOPs of section 7.2 and Table 9, soft masks at alpha = 5 where a model was searched in."""
    return verdict.judge_equal(
        "Sizes in GFLOPs:",
        {
            name: gated.masked(shape, mask) / 1e9
            for name, (shape, mask, _) in gated.REPORTED.items()
        },
        {name: f"{shown:.3f}" for name, (_, _, shown) in gated.REPORTED.items()},
    )


def landed(frame, source):
    """{model: {(source, ...): text}} of collected searches and draws: share of the FLOPs before and after the final trim, in
    %, and gates that it switched."""
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
    """Parts of a table: development scores, and of searches and draws what `landed` tells and other functions of `more`."""
    parts = []
    for (source, _, at), scores in zip(runs.frames, runs.by_task(columns), strict=True):
        found = searches.at(at)
        parts += [scores, *(told(found, source) for told in (landed, *more) if len(found))]
    return parts


def printed(table, index="Models", rename=lambda text: text):
    """A published table as {row: {("published", column): value}}."""
    return {
        rename(row.pop(index)): {("published", column): value for column, value in row.items()}
        for row in published.lines("nas", table)
    }


def tested(table, model, rival, runs, searches):
    """One of Tables 6 to 9 as a DataFrame: `rival`, 30 % of `model` and their change in print,
    beside what was measured."""
    names = (rival, f"30 % {model}", "change in %, printed")
    shown = dict(zip(names, printed(table).values(), strict=True))
    return compare.table(shown, *measured(runs, searches))


def turned(table, rename):
    """A published table whose columns are models: {rename(column): {("published", task): value}}, columns of changes left out."""
    rows = published.lines("nas", table)
    return {
        rename(column): {
            ("published", f"{row['Task']} {row['Metric']}"): row[column] for row in rows
        }
        for column in list(rows[0])[2:]
        if not column.endswith("change")
    }


def check_changes(name, table):
    """Verdict on the percentage changes of a test table: of its second row against the first; speed-ups too."""
    base, other, change = published.table("nas", table).to_dict("records")
    tasks = [c for c, v in change.items() if isinstance(v, float) and isfinite(v)]
    computed = {c: round(gated.change(other[c], base[c]), 6) for c in tasks}
    told = {c: f"{change[c]:.2f}" for c in tasks}
    for end, against in (("low", "high"), ("high", "low")):
        if f"Speedup {end}" in other:
            computed[f"speed-up, {end}"] = round(
                base["FLOPS (B) low"] / other[f"FLOPS (B) {against}"], 6
            )
            told[f"speed-up, {end}"] = f"{other[f'Speedup {end}']:.1f}"
    return verdict.judge_equal(f"{name}, changes and speed-ups:", computed, told)


def sized(frame, found, profile_name):
    """DataFrame [task, seed, ratio of the whole FLOPs, score in points] of collected networks and the whole model; task is the
    title of a column."""
    there = found.to_dict("records") if "ratio" in found else ()
    ratio = {(row["task"], row["model"], row["seed"]): row["ratio"] for row in there}
    scored = compare.points(frame, grids.metrics(profile_name, COLUMNS)).to_dict("records")
    lines = [
        {
            "task": row["column"],
            "seed": row["seed"],
            "score": row["score"],
            "ratio": 1.0
            if row["model"] == "Whole"
            else ratio.get((row["task"], row["model"], row["seed"])),
        }
        for row in scored
    ]
    return (
        pd.DataFrame(lines, columns=["task", "seed", "ratio", "score"])
        .astype({"ratio": float})
        .dropna()
    )


def curves(frame):
    """DataFrame [model, seed, step as a share, target, actual, off, on] of collected searches: ratios of the FLOPs, gates
    switched so far."""
    parts = []
    for row in frame.to_dict("records"):
        if row["run"] is not None:
            curve = row["run"].arrays("search")["curve"].astype(float)
            parts.append(
                pd.DataFrame(
                    {
                        "model": row["model"],
                        "seed": row["seed"],
                        "step": np.linspace(0, 1, len(curve)),
                        "target": curve[:, 0],
                        "actual": curve[:, 1],
                        "off": curve[:, 2].cumsum(),
                        "on": curve[:, 3].cumsum(),
                    }
                )
            )
    columns = ["model", "seed", "step", "target", "actual", "off", "on"]
    return pd.concat(parts) if parts else pd.DataFrame(columns=columns)


def timed(times, ratios):
    """DataFrame of a collected run of step latency. ratios: {model: its share of the whole model's FLOPs}."""
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
    """`timed` of a collected run of `nas.swept_latency`, FLOPs as its searches, among those collected, ended; networks whose
    search is not there are left out."""
    own = found[(found["task"] == times["task"]) & (found["seed"] == times["seed"])].set_index(
        "model"
    )
    ratios = own["ratio"].dropna().to_dict() if "ratio" in own else {}
    return pd.concat({source: timed(times, {"Whole": 1.0} | ratios)}, names=["source"])


def missed(frame, source):
    """{model: {(source, ...): text}} of collected searches: how many end more than 1 % off their target before the final trim,
    and the largest miss."""
    return {
        model: {
            (source, "off by over 1 %"): f"{(part.abs() > 0.01).sum()} of {len(part)}",
            (source, "largest miss, %"): f"{100 * part.loc[part.abs().idxmax()]:+.1f}",
        }
        for model, part in misses(frame).items()
    }


def misses(frame):
    """{model: by how much each of its collected searches is off its target before the final trim, as a share of it}."""
    there = frame.dropna(subset=["before_trim"]) if "before_trim" in frame else frame[:0]
    return {
        model: part["before_trim"] / part["target"] - 1
        for model, part in there.groupby("model", sort=False)
    }


def spreads(rows, label, mean, deviation, runs):
    """Rows of `published.lines` with means and standard deviations as {row: {("published", task): text in points}}."""
    found = {}
    for row in rows:
        found.setdefault(str(row[label]), {})["published", row["Task"]] = (
            f"{row[mean].points()} ± {row[deviation].points()} ({runs})"
        )
    return found


def check_ratios(table):
    """Verdict on the ratios of a table of 7.1: kept pixels and noise inputs over all inputs."""
    rows = published.table("nas", table).to_dict("records")
    kept = {
        f"{row['Target Input Size Ratio']:g}": row["Image dims kept"] + row["Noise dims kept"]
        for row in rows
    }
    told = {
        f"{row['Target Input Size Ratio']:g}": f"{row['Resulting Input Size Ratio']:.3f}"
        for row in rows
    }
    return verdict.judge_equal(
        f"Table {table[5:7].lstrip('0')} of 7.1, share of the inputs kept at each target:",
        {target: round(number / INPUTS, 6) for target, number in kept.items()},
        told,
    )


def check_weights(runs=3, rows=872):
    """Verdict on Table 12's SST-2, whose development set has 872 rows: each mean and each deviation, with divisor 2, is one
    that three runs can have."""
    table = (
        published.table("nas", "table12_flops_weight")
        .query("Task == 'SST-2'")
        .set_index("Statistic")
        .drop(columns="Task")
    )
    computed, told = {}, {}
    for weight in table.columns:
        for name, digits in (("AVG (3 runs)", 6), ("STD. DEV", 5)):
            told[f"{name}, weight {weight}"] = f"{table[weight][name]:.{digits}f}"
        right = round(table[weight]["AVG (3 runs)"] * runs * rows)
        computed[f"AVG (3 runs), weight {weight}"] = right / (runs * rows)
        near = range(right // runs - 20, right // runs + 21)
        apart = np.array([np.std([a, b, right - a - b], ddof=1) / rows for a in near for b in near])
        computed[f"STD. DEV, weight {weight}"] = apart[
            np.abs(apart - table[weight]["STD. DEV"]).argmin()
        ]
    return verdict.judge_equal(
        "Table 12, SST-2:", {name: round(value, 9) for name, value in computed.items()}, told
    )


def check_digits(frame, source):
    """{target: {(source, ...): text}} of collected runs of one network of the digits check."""
    table = {}
    for target, part in frame.groupby("target", sort=False):
        there = part.dropna(subset=["noise"]) if "noise" in part else part[:0]
        table[f"{target:g}"] = {
            (source, name): f"{there[name].mean():{form}}" if len(there) else "–"
            for name, form in DIGITS.items()
        }
    return table


# ---- CLAIMS


@claims.each_task
def claim_random(frame, profile_name):
    """Verdict on N1, at 10 and 30 %; the printed gaps are means over the table's four rows."""
    table = published.table("nas", "table05_nas_vs_random")
    gap = {f"{r}%": float((table[f"{r}% NAS"] - table[f"{r}% Random"]).mean()) for r in (10, 30)}
    found = {
        f"{r}%": claims.estimate(
            frame, profile_name, f"{r} % NAS", f"{r} % Random", columns=COLUMNS
        )
        for r in (10, 30)
    }
    return verdict.judge_delta("N1", found, gap, profile_name, failed=compare.lost(frame))


RIVALS = ("Cross-entropy", "Intermediate distillation")


def claim_objective(frame, profile_name):
    """Verdict on N2: prediction distillation above each of RIVALS. Two stages, of which 7.3.4 says that they are comparable,
    are no rival."""
    return claims.best(
        "N2", frame, profile_name, "Prediction distillation", dict.fromkeys(RIVALS, 0.0), COLUMNS
    )


def claim_control(frame, found, profile_name):
    """Verdict on N4 at equal FLOPs: a tenth of the gates may move against all, in searches as reported, which a final trim
    brings to their target, and in searches that land without a schedule. The note counts those that missed the target."""
    cells = {
        said: claims.estimate(
            frame, profile_name, f"Top 10 %, {way}", f"All, {way}", columns=COLUMNS
        )
        for said, way in (("as reported", "as reported"), ("without a schedule", "no schedule"))
    }
    judged = verdict.judge_delta(
        "N4",
        cells,
        dict.fromkeys(cells, 0.0),
        profile_name,
        failed=compare.lost(frame),
        word="in searches",
    )
    told = [
        f"{name}: {(part.abs() > 0.01).sum()} of {len(part)}"
        for name, part in misses(found).items()
        if "reported" in name
    ]
    return replace(
        judged,
        note="; ".join(
            filter(
                None,
                (
                    judged.note,
                    told
                    and f"searches that missed their target by over 1 % before the trim: {', '.join(told)}",
                ),
            )
        ),
    )


def claim_space(frame, profile_name):
    """Verdict on N6: without gates on embedding inputs above with them, dimensions of Q, K and V and FFN neurons in both."""
    return claims.delta(
        "N6", frame, profile_name, "QKV and FFN", "QKV, FFN and embedding", 0.0, COLUMNS
    )


def variance_ratio(scores, others):
    """Estimate of the variance of some replicates over that of others, with the interval of the F distribution."""
    a, b = (np.asarray(x, float)[np.isfinite(x)] for x in (scores, others))
    if min(len(a), len(b)) < 2 or not b.var():
        return None
    ratio, free = a.var(ddof=1) / b.var(ddof=1), (len(a) - 1, len(b) - 1)
    low, high = (ratio / fisher.ppf(q, *free) for q in (0.975, 0.025))
    p = min(1.0, 2 * min(fisher.cdf(ratio, *free), fisher.sf(ratio, *free)))
    return stats.Estimate(ratio, low, high, (), min(len(a), len(b)), 1, nan, p, min(len(a), len(b)))


def claim_schedule(frame, profile_name):
    """Verdict on N3 for each task: the additive schedule's variance over the multiplicative one's is below 1."""
    scored, parts = compare.points(frame, grids.metrics(profile_name, COLUMNS)), []
    for task, part in scored.groupby("column", sort=False):
        by = {model: rows["score"] for model, rows in part.groupby("model")}
        found = variance_ratio(by.get("Additive", ()), by.get("Multiplicative", ()))
        judged = verdict.judge_within(
            "N3",
            found,
            0.0,
            1.0,
            profile_name,
            failed=compare.lost(frame),
            unit="times the variance",
        )
        parts.append(replace(judged, measured=f"{task}: {judged.measured}"))
    return (
        claims.together(parts)
        if parts
        else verdict.judge_within("N3", None, 0.0, 1.0, profile_name)
    )


def fit(ratios, scores):
    """Straight lines through scores over log10 FLOPs and over FLOPs: slope per decade, largest residual, R² of both."""
    y, ratios, found = np.asarray(scores, float), np.asarray(ratios, float), {}
    for name, x in (("log", np.log10(ratios)), ("linear", ratios)):
        slope, at = np.polyfit(x, y, 1)
        left = y - slope * x - at
        found |= {
            f"slope, {name}": slope,
            f"residual, {name}": np.abs(left).max(),
            f"R², {name}": 1 - (left**2).sum() / ((y - y.mean()) ** 2).sum() if y.var() else nan,
        }
    return found


def straighter(log_ratios):
    """Weights of scores at these sizes: how much more of them a line over log10 FLOPs explains than one over FLOPs, in
    points (root of the sum of squares)."""
    return stats.straighter_weights(log_ratios, 10 ** np.asarray(log_ratios))


def claim_log(frame, profile_name):
    """Verdict on N7: the score rises, and its residuals from a line over log10 FLOPs are smaller than from one over FLOPs.
    For rising scores that is a contrast of the four sizes (lib.measure.stats.straighter_weights); its interval draws seeds
    and examples jointly for all sizes and must lie above 0. It is read from three sizes on; one of the two alone, rise or
    line, proves nothing."""
    pairs = {
        log10(r): compare.pairs(frame, label(r), "Whole", grids.metrics(profile_name, COLUMNS))
        for r in RATIOS
    }
    pairs = {x: found for x, found in pairs.items() if found}
    sizes, there = np.log10(RATIOS), len(pairs) > 2
    table = (
        published.table("nas", "table04_dev_size_sweep")[[f"{100 * r:.0f}%" for r in RATIOS]]
        .to_numpy()
        .mean(0)
    )
    parts = [
        verdict.judge_trend(
            "N7",
            stats.trend(pairs, weights=weights) if there else None,
            1,
            profile_name,
            float(weights(sizes) @ table),
            unit=unit,
            failed=compare.lost(frame),
        )
        for weights, unit in (
            (straighter, "points that the line over log FLOPs explains beyond that over FLOPs"),
            (stats.slope_weights, "points per decade of FLOPs"),
        )
    ]
    judged = claims.together(parts)
    return replace(
        judged, verdict="INCONCLUSIVE" if judged.verdict == "PARTIAL" else judged.verdict
    )


MNIST = {
    "3 layers": "table08b_mnist_3layer",
    "11 layers": "table10b_mnist_11layer",
}  # tables of the digits check


def claim_noise(frame, profile_name, target=0.1):
    """Verdict on N8 for each network: at most NOISE of the kept inputs are noise."""
    parts, least = [], float("-inf")  # the interval of a share near 0 may reach below it
    for network, part in frame[frame["target"] == target].groupby("network", sort=False):
        there = part.dropna(subset=["noise"]) if "noise" in part else part[:0]
        found = (
            stats.replicates(there["noise"] / (there["noise"] + there["pixels"]))
            if len(there)
            else None
        )
        shown = (
            published.table("nas", MNIST[network]).set_index("Target Input Size Ratio").loc[target]
        )
        judged = verdict.judge_within(
            "N8",
            found,
            least,
            NOISE,
            profile_name,
            failed=compare.lost(frame),
            unit="of the inputs kept",
            published=float(
                shown["Noise dims kept"] / (shown["Noise dims kept"] + shown["Image dims kept"])
            ),
        )
        parts.append(replace(judged, measured=f"{network}: {judged.measured}"))
    return (
        claims.together(parts)
        if parts
        else verdict.judge_within("N8", None, least, NOISE, profile_name)
    )


def claim_magnitude(frame, profile_name):
    """Verdict on N9: the 30 % network above magnitude pruning, at the share of weights printed for each task and at 30 %."""
    chosen = [
        row.model in ("30 % NAS", label(WINNING.get(row.task, 0), "IMP"))
        for row in frame.itertuples()
    ]
    stated = frame[np.array(chosen, bool)].replace({"model": r".* IMP"}, "IMP", regex=True)
    found = {
        "the printed sparsity": claims.estimate(
            stated, profile_name, "30 % NAS", "IMP", columns=AGAINST_IMP
        ),
        "30 % of the weights": claims.estimate(
            frame, profile_name, "30 % NAS", "30 % IMP", columns=AGAINST_IMP
        ),
    }
    return verdict.judge_delta(
        "N9", found, {"the printed sparsity": 1.8}, profile_name, failed=compare.lost(frame)
    )
