"""The mini protocol: what every central claim rests on, by planned seeds.

`python -m lib evidence` makes the runs that this table names, and the pages of the claims ask for
the very same ones. Free of torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lib import pd
from lib.papers import (
    bermo,
    bermo_claims,
    claims,
    efficientbert,
    efficientbert_claims,
    frontier,
    ghostbert,
    ghostbert_claims,
    mini,
    nas,
    nas_claims,
)
from lib.papers import efficientbert_search as search
from lib.spec import known

SCALE = "mini"


@dataclass(frozen=True)
class Claim:
    """A central claim: the runs that it rests on, and how a verdict is read from them."""

    id: str
    grid: Callable  # f(seeds) -> rows, as those of a notebook
    judge: Callable  # f(collected frame, profile) -> Verdict
    seeds: tuple = mini.THREE
    headline: bool = False
    says: str = ""  # in one sentence, where no paper says it


def only(rows, **columns):
    """The rows whose columns have one of these values.

    Raises ValueError for a value that no row has.
    """
    for name, values in columns.items():
        for value in values:
            known(name, value, {row.get(name) for row in rows})
    return [row for row in rows if all(row.get(name) in values for name, values in columns.items())]


# ---- GHOSTBERT


def varied(options, names=None, widths=(3, 1)):
    """Grid of ghost modules, {label: what differs from the paper's}, or of these names alone."""
    chosen = ghostbert.variants(SCALE, {name: options[name] for name in names or options})
    return lambda seeds: ghostbert.sweep(SCALE, mini.ONE, widths, seeds, chosen)


def taught_by(*names):
    """Grid of Table 4's rows that differ in what they learn from."""
    return lambda seeds: only(ghostbert.ablated(SCALE, mini.ONE, (3, 1), seeds), model=names)


pruned_vs_ghost = partial(ghostbert.pruned_vs_ghost, SCALE, mini.BOTH, ghostbert.WIDTHS)


def augmented(seeds):
    modules = dict(zip(ghostbert.MODELS, (None, ghostbert.ghost(SCALE)), strict=True))
    return ghostbert.sweep(SCALE, mini.ONE, (3, 1), seeds, modules, augmented=True)


# ---- EFFICIENTBERT


def networks(*names, task_names=mini.BOTH):
    """Grid of rows of the paper's tables."""
    return lambda seeds: [
        {"kind": "student"} | row for row in efficientbert.compared(SCALE, task_names, seeds, names)
    ]


def warmed_up(seeds):
    scores = networks("EfficientBERT", efficientbert.COLD)(seeds)
    return scores + efficientbert.steepness(SCALE, seeds)


def coarse_to_fine(seeds):
    wanted = [search.SINGLE, "stage1", "stage2", search.ENDS[search.SINGLE], search.ENDS["stage2"]]
    return only(search.costed(SCALE, mini.ONE, seeds), model=wanted)


def ranked(seeds):
    return search.ranked(SCALE, mini.ONE) if seeds else []


def latency(seeds):
    batch = efficientbert.CLAIMED
    turns = efficientbert.TURNS[SCALE][batch]
    return [
        {"batch": batch, "seed": seed, "spec": efficientbert.latency(batch, turns, seed=seed)}
        for seed in seeds
    ]


# ---- BERMO


def probing(seeds):
    return only(bermo.probing(SCALE, bermo.SEMANTIC, seeds), model=bermo.MODELS)


def penalties(seeds):
    steered = [name for name, kind in bermo.METHODS.items() if kind in bermo.PENALTIES]
    return only(bermo.methods(SCALE, mini.ONE, seeds), method=steered)


def taught(seeds):
    return only(bermo.distillation(SCALE, mini.ONE, seeds), teacher=("dense BERT",))


# ---- NAS


def cells(made, *names, task_names=mini.ONE):
    """Grid of networks, {label: f}, or of those with these names."""
    chosen = {name: made[name] for name in names or made}
    return lambda seeds: nas.cells(SCALE, task_names, seeds, chosen)


def sizes_against_random(seeds):
    made = nas.sizes((0.1, 0.3), ("NAS", "Random"))
    del made["Whole"]
    return nas.cells(SCALE, mini.BOTH, seeds, made)


def searched_longer(seeds):
    made = {
        "10 % NAS": partial(nas.pruned, ratio=0.1, times=LONGER),
        "10 % Random": partial(nas.random, ratio=0.1),
    }
    return nas.cells(SCALE, mini.ONE, seeds, made)


def rivals(seeds):
    wanted = ("30 % NAS", "30 % IMP", nas.label(nas.WINNING[mini.FIRST], "IMP"))
    return only(nas.rivals(SCALE, mini.ONE, seeds), model=wanted)


def controlled(seeds):
    ways = ("no schedule", "as reported")
    names = [f"{name}, {way}" for name in ("Top 10 %", "All") for way in ways]
    rows = cells(nas.changed(nas.CONTROL), *names)(seeds)
    return rows + nas.architectures(rows)


def control(frame, scale):
    searches = frame["spec"].map(lambda spec: spec.step == "nas_search")
    return nas_claims.claim_control(frame[~searches], frame[searches], scale)


# ---- THE TABLE

headline = partial(Claim, seeds=mini.FIVE, headline=True)
ABLATIONS = ghostbert.ABLATIONS
FEATURES = {f"F = {f}": {"features": f} for f in ghostbert.FEATURES}
CLAIMS = {
    claim.id: claim
    for claim in (
        headline("G1", pruned_vs_ghost, ghostbert_claims.claim_gain),
        headline(
            "G2",
            partial(ghostbert.backbones, SCALE, mini.BOTH, ()),
            ghostbert_claims.claim_unpruned,
        ),
        headline("G3", pruned_vs_ghost, ghostbert_claims.claim_trend),
        Claim(
            "G4",
            varied({f"k = {k}": {"kernel": k} for k in ghostbert.KERNELS}),
            ghostbert_claims.claim_kernel,
        ),
        Claim("G5", varied(ABLATIONS, ("GhostBERT", "- Softmax")), ghostbert_claims.claim_softmax),
        Claim("G6", varied(ABLATIONS, ("GhostBERT", "- ReLU")), ghostbert_claims.claim_relu),
        Claim("G7", taught_by("+ DA", "- DA & KD"), ghostbert_claims.claim_distillation),
        Claim("G8", varied(ghostbert.convolutions(SCALE)), ghostbert_claims.claim_convolution),
        Claim(
            "G9",
            varied(ghostbert.POSITIONS, ghostbert.CHEAP, (1,)),
            ghostbert_claims.claim_position,
        ),
        Claim(
            "G10",
            varied(FEATURES, ("F = 1", "F = 4", "F = 12"), (1,)),
            ghostbert_claims.claim_features,
        ),
        headline(
            "E1", networks("EfficientBERT", "Base Model"), efficientbert_claims.claim_searched
        ),
        headline("E2", warmed_up, efficientbert_claims.claim_score_and_steps),
        Claim("E3", coarse_to_fine, efficientbert_claims.claim_coarse_to_fine),
        Claim(
            "E4",
            ranked,
            lambda frame, scale: efficientbert_claims.claim_ranking(
                search.scores(frame, scale), scale
            ),
            mini.THREE[:1],
        ),
        Claim("E5", latency, lambda frame, scale: efficientbert_claims.claim_speed(frame), (0,)),
        Claim(
            "E6",
            networks(*efficientbert.OTHER_BASE, task_names=mini.ONE),
            efficientbert_claims.claim_base,
        ),
        headline("B1", probing, bermo_claims.claim_probing),
        headline(
            "B2",
            partial(bermo.stability, SCALE, mini.BOTH),
            bermo_claims.claim_stability,
            seeds=mini.TEN,
        ),
        Claim("B3", partial(bermo.convergence, SCALE, mini.ONE), bermo_claims.claim_convergence),
        Claim("B4", penalties, bermo_claims.claim_penalties),
        Claim("B5", taught, bermo_claims.claim_distillation),
        headline("N1", sizes_against_random, nas_claims.claim_random),
        Claim(
            "N2",
            cells(nas.objectives(SCALE), "Prediction distillation", *nas_claims.RIVALS),
            nas_claims.claim_objective,
        ),
        Claim(
            "N3",
            cells(nas.changed(nas.SCHEDULES), "Additive", "Multiplicative"),
            nas_claims.claim_schedule,
            mini.FIVE,  # a variance needs more seeds than a mean
        ),
        Claim("N4", controlled, control),
        Claim("N5", cells(nas.changed(nas.START)), nas_claims.claim_start),
        Claim(
            "N6",
            cells(nas.changed(nas.SPACES), "QKV and FFN", "QKV, FFN and embedding"),
            nas_claims.claim_space,
        ),
        headline("N7", cells(nas.sizes()), nas_claims.claim_log),
        Claim("N8", lambda seeds: nas.digits(SCALE, seeds, (0.1,)), nas_claims.claim_noise),
        headline("N9", rivals, nas_claims.claim_magnitude),
    )
}

# Questions of our own, planned as the papers' claims are. F2 and F3 try, once, the likeliest cause
# why G1 and N1 may fail at this scale: the paper augments rows (mini does not), and a search of few
# rows has few steps. Both were planned before any of their pairs was there.
LONGER = 4  # times the epochs of a search
OWN = {
    claim.id: claim
    for claim in (
        Claim(
            "F1",
            partial(frontier.all_runs, SCALE),
            lambda frame, scale: frontier.claim_combined(frame[frame["model"].notna()], scale),
            frontier.SEEDS[SCALE],
            says="Each combination of methods scores above its first method alone.",
        ),
        Claim(
            "F2",
            augmented,
            claims.delta("F2", "Ghost", "Prune", dict.fromkeys((3, 1))),
            says="On augmented rows, ghosts score above width pruning.",
        ),
        Claim(
            "F3",
            searched_longer,
            claims.delta("F3", "10 % NAS", "10 % Random", None),
            says=f"At 10 % of the FLOPs, a network found by a search of {LONGER} times the steps "
            "scores above a random one.",
        ),
        Claim(
            "F4",
            taught_by("GhostBERT", "- DA & KD"),
            claims.delta("F4", "GhostBERT", "- DA & KD", dict.fromkeys((3, 1))),
            says="Distillation without augmented rows, which G7 has both of, scores above labels.",
        ),
    )
}


def chosen(names=()):
    """Claims by name, all without one. Raises ValueError naming the nearest."""
    there = CLAIMS | OWN
    for name in names:
        known("claim", name, there)
    return [there[name] for name in names or there]


def planned_table():
    """A line for each claim: its tasks, cells, planned seeds, and whether it is a headline."""
    lines = {}
    for claim in CLAIMS.values():
        rows = claim.grid(claim.seeds[:1])
        tasks = dict.fromkeys(row["task"] for row in rows if "task" in row)
        ends = dict.fromkeys(map(str, (claim.seeds[0], claim.seeds[-1])))
        lines[claim.id] = {
            "headline": "yes" * claim.headline,
            "tasks": ", ".join(tasks),
            "cells": len(rows),
            "seeds": f"{len(claim.seeds)}: {' to '.join(ends)}",
        }
    return pd.DataFrame(lines).T.rename_axis("claim")
