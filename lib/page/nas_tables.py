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
    frame = frame.assign(**(100 * frame.filter(["before_trim", "ratio"])))
    columns = {"before trim, %": "before_trim", "FLOPs, %": "ratio", "gates trimmed": "trimmed"}
    return {
        model: {
            (source, name): compare.spread(part[key]) if key in part else "–"
            for name, key in columns.items()
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
        runs.caption(more="; share of the FLOPs before and after the final trim")
        + "; searches off their target before it" * bool(more),
    )


def changes(runs, whole):
    """Return [{model: {(source, column): text}}] by source: change of each mean score in % of that
    of the model `whole`. A score without one, or of 0, has none.
    """
    found = []
    for source, frame, at in runs.frames:
        scored = compare.points(frame, grids.metrics(at, COLUMNS))
        means = scored.pivot_table("score", "column", "model", sort=False).replace(0, np.nan)
        moved = 100 * (means.div(means.get(whole, np.nan), axis=0) - 1)
        texts = {model: each.dropna().map("{:+.2f}".format) for model, each in moved.items()}
        rows = {model: {(source, c): v for c, v in each.items()} for model, each in texts.items()}
        found.append({model: row for model, row in rows.items() if row and model != whole})
    return found


def cost(frame, source, network):
    """Of searches in a model: the least and the most GFLOPs of what they leave, and how many times
    fewer than the whole model's these are, as Tables 6 to 9 print them."""
    there, found = frame.dropna(subset=["flops"]) if "flops" in frame else frame[:0], {}
    columns = {network: "flops", network.removeprefix("30 % "): "whole_flops"}
    for name, flops in columns.items() if len(there) else ():
        low, high, whole = there[flops].min(), there[flops].max(), there["whole_flops"].max()
        found[name] = {
            (source, "FLOPS (B) low"): f"{low / 1e9:.3f}",
            (source, "Speedup high"): f"{whole / low:.1f}",
            (source, "FLOPS (B) high"): f"{high / 1e9:.3f}",
            (source, "Speedup low"): f"{whole / high:.1f}",
        }
    return found


def gains(page, runs, base, printed=(), columns=COLUMNS, than="the row"):
    """Draw how much the model `base` scores above each other one, and what is printed of it."""
    from lib.page import plot  # grids are read without it

    label = f"{base} above {than} (points)"
    page.figure(*plot.dots(runs.above(base, columns), printed, label), name="gains")


def show_tested(page, table, models, runs, searches):
    """Show one of Tables 6 to 9, and its corrections.

    models: names of a whole model and of a network of 30 %.
    """
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
    gains(page, runs, models[0], lost, than="the network")


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

    names = ["model", "seed", "step", "target", "actual", "off", "on"]
    parts = [pd.DataFrame(columns=names)]
    for row in compare.there(frame).itertuples():
        target, actual, off, on = row.run.arrays("search")["curve"].astype(float).T
        step = np.linspace(0, 1, len(target))
        columns = row.model, row.seed, step, target, actual, off.cumsum(), on.cumsum()
        parts.append(pd.DataFrame(dict(zip(names, columns, strict=True))))
    return pd.concat(parts[1:] or parts)
