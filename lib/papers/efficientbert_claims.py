"""EfficientBERT: verdicts on its claims E1 to E6.

Claims are judged from collected frames of the grids of `lib.papers.efficientbert` and
`lib.papers.efficientbert_search`. Free of torch.
"""

from dataclasses import replace

import numpy as np

from lib import pd, published
from lib.measure import compare, stats, verdict
from lib.papers import claims
from lib.papers.efficientbert import CLAIMED, COLD, COLUMNS, OTHER_BASE, TEACHER_ROW, TIMED
from lib.papers.efficientbert_search import ALONE, ENDS, ENOUGH, LAST, SINGLE

OURS = "EfficientBERT"
FIFTH = 0.2  # share of the steps that claim E2 allows


def above(name, table, rival, method=OURS):
    """Judge of a network above a rival, by the points that a table prints OURS above it."""
    gaps = published.gaps("efficientbert", table, "Model", OURS)
    return claims.delta(name, method, rival, gaps[rival], COLUMNS)


def claim_searched(frame, profile_name):
    """Verdict on E1: the published network above the base shape, trained alike."""
    judge = above("E1", "table05_search_stages", "Base Model")
    return judge(frame[frame["kind"] == "student"], profile_name)


# The first half of E2: with warm-up distillation the network scores higher.
claim_warm_up = above("E2", "table02_glue_test", COLD)
# E6: the searched layers on another base score higher than that base.
claim_base = above("E6", "table07_base_models", *OTHER_BASE)


def claim_score_and_steps(frame, profile_name):
    """Verdict on both halves of E2."""
    steep = frame["model"].isin(("inherits", "from scratch"))
    return claims.together(
        [claim_warm_up(frame[~steep], profile_name), claim_steps(frame[steep], profile_name)]
    )


def smoothed(loss, share=0.05):
    """Trailing mean of a loss [N] over that share of its points, over fewer at the start."""
    wide = max(1, round(share * len(loss)))
    return pd.Series(loss, dtype=float).rolling(wide, min_periods=1).mean().to_numpy()


def share_of_steps(inherits, scratch, part="loss"):
    """How soon one run reaches the smoothed loss that another run ends on.

    Returns a share of the other run's steps, 1 where the loss is never reached. inherits, scratch:
    what step warmup keeps as `curve`.
    """
    there = np.flatnonzero(smoothed(inherits[part]) <= smoothed(scratch[part])[-1])
    if not len(there):
        return 1.0
    return min(1.0, float((inherits["step"][there[0]] + 1) / (scratch["step"][-1] + 1)))


def shares(frame, part="loss"):
    """{seed: share of steps} of a collected frame of `steepness`, where both runs are there."""
    curves = {
        (row.model, row.seed): row.run.arrays("curve") for row in compare.there(frame).itertuples()
    }
    return {
        seed: share_of_steps(curve, curves["from scratch", seed], part)
        for (model, seed), curve in curves.items()
        if model == "inherits" and ("from scratch", seed) in curves
    }


def claim_steps(frame, profile_name):
    """Verdict on the second half of E2: at most a fifth of the steps."""
    found = list(shares(frame).values())
    return verdict.judge_within(
        "E2",
        stats.replicates(found) if found else None,
        float("-inf"),  # the interval of a share near 0 may reach below 0
        FIFTH,
        profile_name,
        failed=compare.lost(frame),
        unit="of the steps to the loss that training from scratch ends on",
    )


def speedups(run, kind="wall"):
    """{model: Estimate} of BERT-base's time over a model's, turn by turn, of a run of `latency`."""
    names = run.spec["args"]["models"]  # in the order of the times: a Spec sorts names
    times = dict(zip(names, run.arrays("times")[kind], strict=True))
    return {name: stats.ratio(times[TIMED[0]], times[name]) for name in TIMED[1:]}


def printed_speedups():
    """{model: BERT-base's printed latency over the model's}, with one digit as in the paper."""
    told = published.table("efficientbert", "table02_glue_test").set_index("Model")["Latency (ms)"]
    return {name: f"{told[TEACHER_ROW] / told[name]:.1f}" for name in TIMED[1:]}


def claim_speed(*frames):
    """Verdict on E5 by the first run at the claim's batch in collected frames, at any profile."""
    rows = [row for frame in frames for row in frame.itertuples() if row.batch == CLAIMED]
    runs = [row.run for row in rows if row.run is not None][:1]
    found = verdict.judge_reached(
        "E5",
        speedups(runs[0]) if runs else {},
        printed_speedups(),
        f"at full size, batch {CLAIMED}",
        "times BERT-base",
        len(runs),
    )
    return found if runs else replace(found, note=f"not timed at the paper's batch of {CLAIMED}")


def claim_coarse_to_fine(frame, profile_name):
    """Verdict on E3: winners of two stages, and of all three, above the single stage's."""
    table = published.table("efficientbert", "table06_search_cost")
    printed, single = table.set_index("Method")["Best Score"], ENDS[SINGLE]
    students = frame[frame["kind"] == "student"]
    if profile_name in ALONE:  # its stage 3 belongs to no chain
        students = students[students["model"] != ENDS[LAST]]
    cells = {
        name: (students, name, single, round(float(printed[name] - printed[single]), 1))
        for name in (ENDS["stage2"], ENDS[LAST])
    }
    return claims.compared("E3", frame, profile_name, cells, COLUMNS, word="for")


def claim_ranking(points, profile_name, least=ENOUGH):
    """Verdict on E4 out of `scores`: Kendall's tau is proven positive on most tasks.

    A task with fewer than `least` candidates proves nothing.
    """
    ranks = {
        task: stats.rank_correlation(*frame.to_numpy().T)
        for task, frame in points.items()
        if len(frame) > 2
    }
    enough = [rank for rank in ranks.values() if rank.n >= least]
    above, below = sum(rank.low > 0 for rank in enough), sum(rank.high < 0 for rank in enough)
    word, note, p = "INCONCLUSIVE", "", None
    if profile_name == "toy" or not ranks:
        word = "NOT_RUN"
    elif above:
        word = "CONFIRMED" if above > len(points) / 2 and not below else "PARTIAL"
    elif below > len(points) / 2:
        word = "CONTRADICTED"
    if profile_name == "toy":
        note = "toy scale judges deterministic claims only"
    else:
        note = f"fewer than {least} candidates" * (len(enough) < len(ranks))
        # Two-sided p of "on most tasks": the middle one, where a task without a proof has 1.
        p = [rank.p if rank.tau > 0 else 1.0 for rank in enough]
        p = sorted(p + [1.0] * (len(points) - len(p)))[len(points) // 2] if enough else None
    measured = "; ".join(
        f"tau {r.tau:+.2f} on {task} [{r.low:.2f}, {r.high:.2f}], p = {r.p:.2f}, "
        f"n = {r.n} candidates"
        for task, r in ranks.items()
    )
    ends = [end for rank in ranks.values() for end in (rank.low, rank.high)]
    return verdict.Verdict(
        "E4",
        word,
        measured or "not measured",
        (min(ends), max(ends)) if ends else None,
        note,
        sum(2 * rank.n for rank in ranks.values()),
        verdict.SCALES[profile_name],
        p=p,
    )
