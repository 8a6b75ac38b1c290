"""Parts of the tables of the pages on differentiable NAS pruning. Free of torch."""

from itertools import product

import numpy as np

from lib.measure import compare
from lib.papers import grids, nas, published
from lib.papers.nas import COLUMNS


def rows(profile, models, tasks, seeds, ratios):
    """Return the rows of one of Tables 6 to 9: the scores of two models, of the second at other
    `ratios` of the FLOPs too. BERT-Mini has no stand-in at mini."""
    base, others = models[1].removeprefix("30 % "), ratios and nas.reachable(profile, ratios)
    models = dict.fromkeys([*models, *(nas.label(ratio, base) for ratio in others)])
    models = [m for m in models if (m, str(profile)) != ("BERT-Mini", "mini")]
    tasks, seeds = nas.tasks(profile, tasks, own=nas.TEST), nas.seeds(profile, seeds)
    return [
        {"kind": "score", "task": task, "model": model, "seed": seed}
        | {"spec": nas.named(profile, task, model).at(seed)}
        for task, model, seed in product(tasks, models, seeds)
    ]


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


def missed(frame, source):
    """Of searches: how many are off their target before the trim, and the largest miss."""
    there, told = frame.dropna(subset=["before_trim"]) if "before_trim" in frame else frame[:0], {}
    for model, part in there.groupby("model", sort=False):
        miss = part["before_trim"] / part["target"] - 1
        told[model] = {
            (source, "off by over 1 %"): f"{(miss.abs() > 0.01).sum()} of {len(miss)}",
            (source, "largest miss, %"): f"{100 * miss.loc[miss.abs().idxmax()]:+.1f}",
        }
    return told


def measured(runs, searches, more=(), columns=COLUMNS):
    """Scores of runs, and what `landed` and the functions `more` tell of the searches behind them,
    as parts of a table (lib.measure.compare.table)."""
    parts = []
    for (source, _, at), scores in zip(runs.frames, runs.by_task(columns), strict=True):
        found = searches.at(at)
        parts += [scores, *(told(found, source) for told in (landed, *more) if len(found))]
    return parts


def show(page, runs, searches, more=(), printed=()):
    """Show the scores of networks, `measured`, beside what is printed {row: ...}."""
    page.table(
        compare.table(dict(printed), *measured(runs, searches, more)),
        f"Scores in points {runs.rows}, mean ± standard deviation (seeds); share of the FLOPs "
        "before and after the final trim" + "; searches off their target before it" * bool(more),
    )


def changes(runs, whole):
    """Return [{model: {(source, column): text}}] by source: change of each mean score in % of that
    of the model `whole`. A score without one, or of 0, has none.
    """
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


def cost(frame, source, network):
    """Of searches in a model: the least and the most GFLOPs of what they leave, and how many times
    fewer than the whole model's these are, as Tables 6 to 9 print them."""
    there = frame.dropna(subset=["flops"]) if "flops" in frame else frame[:0]
    found = {}
    columns = {network: "flops", network.removeprefix("30 % "): "whole_flops"}
    for name, flops in columns.items() if len(there) else ():
        ends = [(there[flops].min(), "low", "high"), (there[flops].max(), "high", "low")]
        for value, end, other in ends:
            speed = there["whole_flops"].max() / value
            row = {(source, f"FLOPS (B) {end}"): f"{value / 1e9:.3f}"}
            row |= {(source, f"Speedup {other}"): f"{speed:.1f}"}
            found[name] = found.get(name, {}) | row
    return found


def show_tested(page, table, models, runs, searches):
    """Show one of Tables 6 to 9, and its corrections.

    models: names of a whole model and of a network of 30 %.
    """
    from lib.page import plot  # grids are read without it

    page.table(
        tested(table, *models, runs, searches),
        f"Published: test scores in points. Measured: scores {runs.rows}, mean ± standard "
        "deviation (seeds), share of the FLOPs before and after the trim, FLOPs with hard masks",
    )
    page.note(published.corrections("nas", table.split("_")[0]))
    whole, network, *_ = published.rows("nas", table, "Models").values()
    lost = {}
    for task in nas.TEST["paper"]:
        gaps = [whole[c] - network[c] for c in network if c[1].startswith(task)]
        lost[f"{models[1]}, {task}"] = np.nanmean(gaps)
    found = runs.above(models[0], COLUMNS)
    page.figure(*plot.dots(found, lost, f"{models[0]} above the network (points)"), name="gains")


def tested(table, whole, network, runs, searches):
    """Return one of Tables 6 to 9 as a DataFrame: a whole model, a network of 30 % and their change
    in %, as printed and as measured.
    """
    names, printed = (whole, network, "change in %"), published.rows("nas", table, "Models")
    parts = [dict(zip(names, printed.values(), strict=True)), *measured(runs, searches)]
    searched = searches.where(model=network)
    parts += [cost(searched.at(at), source, network) for source, _, at in runs.frames]
    parts += [{names[2]: part[network]} for part in changes(runs, whole) if network in part]
    return compare.table(*parts)


def turned(table, rename, end=""):
    """Return a published table whose columns are models, as a part of a table. end: " change" takes
    the columns of changes instead.
    """
    rows = published.lines("nas", table)
    models = [c for c in list(rows[0])[2:] if c.endswith(end) and bool(end) == ("change" in c)]
    return {
        rename(model.removesuffix(end)): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in models
    }


def curves(frame):
    """DataFrame of the course of searches, one line for each step.

    Columns: model, seed, step as a share of all, target and actual ratio of the FLOPs, gates
    switched off and on again so far.
    """
    import pandas as pd

    parts = [pd.DataFrame(columns=["model", "seed", "step", "target", "actual", "off", "on"])]
    for row in compare.there(frame).itertuples():
        target, actual, off, on = row.run.arrays("search")["curve"].astype(float).T
        told = {"model": row.model, "seed": row.seed, "step": np.linspace(0, 1, len(target))}
        told |= {"target": target, "actual": actual, "off": off.cumsum(), "on": on.cumsum()}
        parts.append(pd.DataFrame(told))
    return pd.concat(parts[1:] or parts)
