"""Verdicts out of collected frames (columns task, model, seed, perhaps m): what the claims of several papers share."""

from dataclasses import replace
from functools import wraps

from lib.measure import compare, stats, verdict
from lib.papers.grids import metrics


def estimate(frame, profile_name, method, baseline, m=None, columns=()):
    """Paired difference of two models in points, at one width or over all; None where nothing pairs. columns: those that
    the table averages, as `lib.papers.grids.metrics` takes them; at mini each of its two tasks counts once, by its first
    column."""
    rows, of = frame if m is None else frame[frame["m"] == m], metrics(profile_name, columns)
    if profile_name == "mini":
        of = {task: there[:1] for task, there in of.items()}
    pairs = compare.pairs(rows, method, baseline, of)
    return stats.paired_difference(pairs) if pairs else None


def each_task(judge):
    """The function f(frame, profile, ...) -> Verdict or list of them, whose notes at mini also tell what it says of each task
    alone, where there are several."""

    @wraps(judge)
    def judged(frame, profile_name, *more):
        whole, tasks = (
            judge(frame, profile_name, *more),
            list(dict.fromkeys(frame["task"].dropna())),
        )
        if profile_name != "mini" or len(tasks) < 2:
            return whole
        parts = {task: judge(frame[frame["task"] == task], profile_name, *more) for task in tasks}
        if isinstance(whole, list):
            return [
                told(each, {task: part[i] for task, part in parts.items()})
                for i, each in enumerate(whole)
            ]
        return told(whole, parts)

    return judged


def told(whole, parts):
    """A verdict with those of {task: verdict} in its note."""
    lines = [
        f"on {task} alone {part.verdict.lower().replace('_', ' ')}: {part.measured}"
        for task, part in parts.items()
    ]
    return replace(whole, note="; ".join(filter(None, (whole.note, *lines))))


def delta(name, frame, profile_name, method, baseline, printed, columns=()):
    """Verdict by `difference`, at mini with those of each task in its note."""
    return each_task(
        lambda rows, scale: difference(name, rows, scale, method, baseline, printed, columns)
    )(frame, profile_name)


def difference(name, frame, profile_name, method, baseline, printed, columns=()):
    """Verdict on `method` above `baseline`. printed: points, or {m: points} for a claim on each width; columns as in
    `estimate`."""
    widths = (
        {f"{m}/12": (m, value) for m, value in printed.items()}
        if isinstance(printed, dict)
        else {"": (None, printed)}
    )
    cells = {
        cell: estimate(frame, profile_name, method, baseline, m, columns)
        for cell, (m, _) in widths.items()
    }
    return verdict.judge_delta(
        name,
        cells,
        {cell: value for cell, (_, value) in widths.items()},
        profile_name,
        failed=compare.lost(frame),
    )


def best(name, frame, profile_name, method, printed, columns=()):
    """Verdict on `method` above each rival. printed: {rival or (rival, m): points}; columns as in `estimate`."""
    rivals = {
        key if isinstance(key, str) else f"{key[0]} at {key[1]}/12": (key, value)
        for key, value in printed.items()
    }
    cells = {
        cell: estimate(
            frame, profile_name, method, *([key] if isinstance(key, str) else key), columns=columns
        )
        for cell, (key, _) in rivals.items()
    }
    return verdict.judge_ordering(
        name,
        cells,
        {cell: value for cell, (_, value) in rivals.items()},
        profile_name,
        failed=compare.lost(frame),
    )


def together(parts):
    """One verdict of a claim that asks for all its parts: theirs where they agree, contradicted where one is. As one part is
    enough for that, and for PARTIAL, what parts that differ have proven is read after Holm."""
    words, ends = (
        [part.verdict for part in parts],
        [end for part in parts for end in part.interval or ()],
    )
    p = [1.0 if part.p is None else part.p for part in parts]
    if len(set(words)) > 1:
        proven = [adjusted < verdict.ALPHA for adjusted in stats.holm(p)]
        words = [
            word if sure or word not in ("CONFIRMED", "CONTRADICTED") else "INCONCLUSIVE"
            for word, sure in zip(words, proven, strict=True)
        ]
    word = (
        words[0]
        if len(set(words)) == 1
        else "CONTRADICTED"
        if "CONTRADICTED" in words
        else "PARTIAL"
        if {"CONFIRMED", "PARTIAL"} & set(words)
        else "INCONCLUSIVE"
    )
    against = [part.verdict == "CONTRADICTED" for part in parts]
    cells = tuple(cell for part in parts for cell in part.cells)
    return replace(
        parts[0],
        verdict=word,
        measured="; ".join(part.measured for part in parts),
        cells=cells,
        interval=(min(ends), max(ends)) if ends else None,
        runs=sum(part.runs for part in parts),
        p=verdict.whole(
            [1.0 if no else x for no, x in zip(against, p, strict=True)],
            [x if no else 1.0 for no, x in zip(against, p, strict=True)],
        )
        if cells
        else None,
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )
