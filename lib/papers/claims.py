"""Verdicts out of collected frames: what the claims of several papers share.

A collected frame has one row for each run, with the columns task, model, seed and perhaps m (kept
heads of 12). Free of torch.
"""

from dataclasses import replace
from functools import wraps

from lib.measure import compare, stats, verdict
from lib.papers.grids import metrics


def estimate(frame, profile_name, method, baseline, m=None, columns=()):
    """The paired difference of two models in points; None where no two runs make a pair.

    m: one width alone. columns: those that the paper's table averages, as in
    `lib.papers.grids.metrics`. At mini each task counts once, by its first column.
    """
    rows, of = frame if m is None else frame[frame["m"] == m], metrics(profile_name, columns)
    if profile_name == "mini":
        of = {task: there[:1] for task, there in of.items()}
    pairs = compare.pairs(rows, method, baseline, of)
    return stats.paired_difference(pairs) if pairs else None


def each_task(judge):
    """The function f(frame, profile, ...) -> Verdict or list of Verdicts, with more in its notes.

    At mini, where a frame has several tasks, the note also tells the verdict on each task alone.
    """

    @wraps(judge)
    def judged(frame, profile_name, *more):
        whole, tasks = judge(frame, profile_name, *more), frame["task"].dropna().unique()
        if profile_name != "mini" or len(tasks) < 2:
            return whole
        parts = {task: judge(frame[frame["task"] == task], profile_name, *more) for task in tasks}
        if not isinstance(whole, list):
            return told(whole, parts)
        return [
            told(v, {task: part[i] for task, part in parts.items()}) for i, v in enumerate(whole)
        ]

    return judged


def told(whole, parts):
    """A verdict with those of {task: Verdict} in its note."""
    lines = (
        f"on {task} alone {part.verdict.lower().replace('_', ' ')}: {part.measured}"
        for task, part in parts.items()
    )
    return noted(whole, *lines)


def noted(judged, *notes):
    """A verdict with further notes; an empty one is left out."""
    return replace(judged, note="; ".join(filter(None, (judged.note, *notes))))


def about(what, judged):
    """A verdict whose measured line begins with what it is about."""
    return replace(judged, measured=f"{what}: {judged.measured}")


def compared(name, frame, profile_name, cells, columns=(), judge=verdict.judge_delta, **options):
    """Verdict on a claim of several comparisons: {cell: (method, baseline, m or None, printed)}.

    Each cell is the `estimate` of its two models; printed: the points of the paper, 0.0 where it
    prints a direction alone, None where it prints nothing. judge and options: see
    `lib.measure.verdict`.
    """
    return judge(
        name,
        {
            cell: estimate(frame, profile_name, method, baseline, m, columns)
            for cell, (method, baseline, m, _) in cells.items()
        },
        {cell: printed for cell, (*_, printed) in cells.items() if printed is not None},
        profile_name,
        failed=compare.lost(frame),
        **options,
    )


def delta(name, frame, profile_name, method, baseline, printed, columns=()):
    """Verdict on `method` above `baseline`; at mini the note tells each task alone.

    printed: points, or {m: points} for a claim on each width. columns: as in `estimate`.
    """
    widths = printed if isinstance(printed, dict) else {None: printed}
    cells = {f"{m}/12" if m else "": (method, baseline, m, v) for m, v in widths.items()}
    judge = each_task(lambda rows, scale: compared(name, rows, scale, cells, columns))
    return judge(frame, profile_name)


def best(name, frame, profile_name, method, printed, columns=()):
    """Verdict on `method` above each rival. printed: {rival or (rival, m): points}."""
    rivals = {key if isinstance(key, tuple) else (key, None): v for key, v in printed.items()}
    cells = {
        f"{rival} at {m}/12" if m else rival: (method, rival, m, value)
        for (rival, m), value in rivals.items()
    }
    return compared(name, frame, profile_name, cells, columns, verdict.judge_ordering)


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
        measured="; ".join(part.measured for part in parts),
        cells=cells,
        interval=(min(ends), max(ends)) if ends else None,
        runs=sum(part.runs for part in parts),
        p=verdict.whole(toward, against) if cells else None,
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )
