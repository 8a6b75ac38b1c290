"""Verdicts out of collected frames: what the claims of several papers share.

A collected frame has one row for each run, with the columns task, model, seed and perhaps m (kept
heads of 12). A judge is a function f(frame, profile) -> Verdict. Free of torch.
"""

from dataclasses import replace
from functools import wraps

from lib.measure import compare, stats, verdict
from lib.papers.grids import metrics


def pairs(frame, profile_name, method, baseline, columns=()):
    """Pairs of the runs of two models (lib.measure.compare.pairs).

    columns: those that the paper's table averages, as in `lib.papers.grids.metrics`.
    """
    return compare.pairs(frame, method, baseline, metrics(profile_name, columns))


def estimate(frame, profile_name, method, baseline, columns=()):
    """The paired difference of two models in points; None where no two runs make a pair."""
    found = pairs(frame, profile_name, method, baseline, columns)
    return stats.paired_difference(found) if found else None


def each_task(judge):
    """The judge with more in its note: at mini, where a frame has several tasks, the verdict on
    each task alone."""

    @wraps(judge)
    def judged(frame, profile_name):
        whole, tasks = judge(frame, profile_name), frame["task"].dropna().unique()
        if profile_name != "mini" or len(tasks) < 2:
            return whole
        parts = {task: judge(frame[frame["task"] == task], profile_name) for task in tasks}
        lines = (
            f"on {task} alone {part.verdict.lower().replace('_', ' ')}: {part.measured}"
            for task, part in parts.items()
        )
        return replace(noted(whole, *lines), alone=parts)

    return judged


def noted(judged, *notes):
    """A verdict with further notes; an empty one is left out."""
    return replace(judged, note="; ".join(filter(None, (judged.note, *notes))))


def about(what, judged):
    """A verdict whose measured line begins with what it is about."""
    return replace(judged, measured=f"{what}: {judged.measured}")


def compared(name, frame, profile_name, cells, columns=(), judge=verdict.judge_delta, **options):
    """Verdict on several comparisons: {cell: (rows of the frame, method, baseline, printed)}.

    Each cell is the `estimate` of its two models. printed: the points of the paper, 0.0 where it
    prints a direction alone, None where it prints nothing. judge and options: see
    `lib.measure.verdict`.
    """
    found = {
        cell: estimate(rows, profile_name, method, baseline, columns)
        for cell, (rows, method, baseline, _) in cells.items()
    }
    shown = {cell: printed for cell, (*_, printed) in cells.items() if printed is not None}
    return judge(name, found, shown, profile_name, failed=compare.lost(frame), **options)


def delta(name, method, baseline, printed, columns=()):
    """Judge of `method` above `baseline`; at mini the note tells each task alone.

    printed: points, or {m: points} for a claim on each width. columns: as in `pairs`.
    """

    @each_task
    def judged(frame, profile_name):
        cells = {"": (frame, method, baseline, printed)}
        if isinstance(printed, dict):
            cells = {
                f"{m}/12": (frame[frame["m"] == m], method, baseline, points)
                for m, points in printed.items()
            }
        return compared(name, frame, profile_name, cells, columns)

    return judged


def best(name, method, printed, columns=()):
    """Judge of `method` above each rival. printed: {rival or (rival, m): points}."""

    def judged(frame, profile_name):
        cells = {}
        for key, points in printed.items():
            rival, m = key if isinstance(key, tuple) else (key, None)
            rows = frame[frame["m"] == m] if m else frame
            cells[f"{rival} at {m}/12" if m else rival] = rows, method, rival, points
        return compared(name, frame, profile_name, cells, columns, verdict.judge_ordering)

    return judged


def within(name, frame, profile_name, models, low, high, **options):
    """Verdict on the `estimate` of two models (method, baseline) within a margin."""
    found = estimate(frame, profile_name, *models)
    return verdict.judge_within(name, found, low, high, profile_name, **options)


def trend(name, frame, profile_name, pairs_by_x, printed, unit, weights=None, least=2):
    """Verdict on a slope of the printed one's sign (lib.measure.stats.trend), over `least` x.

    A task counts once it has a pair at every x that has any.
    """
    there = {x: found for x, found in pairs_by_x.items() if found}
    there = dict(zip(there, stats.common(there.values()), strict=True)) if there else {}
    enough = len(there) >= least and all(there.values())
    slope = stats.trend(there, weights=weights) if enough else None
    sign, failed = (1 if printed > 0 else -1), compare.lost(frame)
    return verdict.judge_trend(name, slope, sign, profile_name, printed, unit=unit, failed=failed)


def together(parts):
    """One verdict of a claim that asks for all of its parts.

    It is that of the parts where they agree, and CONTRADICTED where one part is. One part is enough
    for that, and for PARTIAL; so where the parts differ, what each has proven is read after Holm.
    """
    p = [1.0 if part.p is None else part.p for part in parts]
    words, proven = [part.verdict for part in parts], [x < verdict.ALPHA for x in stats.holm(p)]
    if len(set(words)) > 1:
        words = [
            word if sure or word not in ("CONFIRMED", "CONTRADICTED") else "INCONCLUSIVE"
            for word, sure in zip(words, proven, strict=True)
        ]
    if len(set(words)) == 1:
        word = words[0]
    elif "CONTRADICTED" in words:
        word = "CONTRADICTED"
    else:
        word = "PARTIAL" if {"CONFIRMED", "PARTIAL"} & set(words) else "INCONCLUSIVE"
    toward, against = ([1.0] * len(parts) for _ in range(2))
    for i, part in enumerate(parts):
        (against if part.verdict == "CONTRADICTED" else toward)[i] = p[i]
    cells = tuple(cell for part in parts for cell in part.cells)
    ends = [end for part in parts for end in part.interval or ()]
    return replace(
        parts[0],
        verdict=word,
        measured="; ".join(dict.fromkeys(part.measured for part in parts)),
        cells=cells,
        interval=(min(ends), max(ends)) if ends else None,
        runs=sum(part.runs for part in parts),
        p=verdict.whole(toward, against) if cells else None,
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )
