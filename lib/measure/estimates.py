"""From the collected rows of a cell to its estimate: paired contrasts and means of measures.

Free of torch.
"""

from dataclasses import replace
from itertools import combinations

from lib.measure import compare, stats
from lib.measure.cells import scored
from lib.measure.measures import FUNCTIONS, MEASURES, valued


def parts_of(one, frame):
    """((label, where), rows of a frame) of each model of a Cell, in its order."""
    forms = [form for _, form in one.terms]
    return [each for f in forms for each in zip(f.models, f.parts(frame), strict=True)]


def rows_of(one, frame):
    """The rows of a frame that a Cell names. Raises LookupError for a model without any."""
    if not one.measure:
        frame = frame[[scored(spec) for spec in frame["spec"]]]
    parts = parts_of(one, frame)
    for (label, where), part in parts:
        if part.empty:
            place = ", ".join(f"{key} {value}" for key, value in where)
            raise LookupError(" at ".join(filter(None, [label, place])))
    return frame.loc[sorted({i for _, part in parts for i in part.index})]


def thinnest(one, frame, ended):
    """Seeds of the model and task that have fewest; ended: only those whose runs were all made or
    have failed."""
    found = []
    for _, part in parts_of(one, frame):
        for _, rows in part.groupby("task", dropna=False) if "task" in part else [("", part)]:
            made = rows["run"].notna() | (rows["state"] == "failed")
            lack = {*rows["seed"][~made]} if ended else {*()}
            found.append({*rows["seed"]} - lack)
    return min(found, key=len)


def estimate(one, frame, metric_of):
    """The Estimate of a Cell; None where a part of it was not run."""
    if one.measure and (whole := MEASURES[one.measure].whole):
        parts = [part for _, part in parts_of(one, frame)]
        return FUNCTIONS[whole](parts, metric_of, one.about)
    if one.measure:
        return of_measure(one, frame, metric_of)
    groups, weights = groups_of(one, frame, metric_of)
    tasks = [{pair.task for pair in group} for group in groups]
    if any(not a.isdisjoint(b) for a, b in combinations(tasks, 2)):
        groups = stats.common(groups)
    return stats.contrast(groups, weights) if all(groups) else None


def groups_of(one, frame, metric_of):
    """(lists of Pairs, their weights) of a Cell; runs that diverged are no replicates."""
    import pandas as pd

    frame = frame[~compare.diverged(frame)]
    alone = [(weight, form) for weight, form in one.terms if len(form.models) == 1]
    told = [(weight, *form.parts(frame)) for weight, form in one.terms if len(form.models) == 2]
    told += [(w, *form.parts(frame), *alone[-1][1].parts(frame)) for w, form in alone[:-1]]
    groups = [
        compare.pairs(
            pd.concat([a.assign(model="method"), b.assign(model="baseline")]),
            *("method", "baseline", metric_of),
        )
        for _, a, b in told
    ]
    return groups, [weight for weight, *_ in told]


def of_measure(one, frame, metric_of):
    """The Estimate of a measure: its mean over seeds, or the share of runs where it is yes."""
    frame = valued(one.measure, frame, metric_of)
    parts = [(weight, form.parts(frame)) for weight, form in one.terms]
    if not all(len(part) for _, own in parts for part in own):
        return None
    if frame["value"].dtype == bool:
        own = [part for _, each in parts for part in each]
        fewest = min(part["seed"].nunique() for part in own)
        return replace(stats.share_gap(*(part["value"] for part in own)), n_seeds=fewest)
    by_seed = [(w, [part.groupby("seed")["value"].mean() for part in own]) for w, own in parts]
    total = sum(w * (own[0] - own[1] if len(own) > 1 else own[0]) for w, own in by_seed).dropna()
    return stats.replicates(total, MEASURES[one.measure].resolution) if len(total) else None
