"""The mini protocol: what every central claim rests on, by planned seeds. Free of torch.

`python -m lib evidence` makes the runs that this table names, and the pages of the claims ask for the very same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from lib import published
from lib.measure.verdict import SCALES
from lib.papers import bermo, bermo_claims, claims, efficientbert, ghostbert, mini, nas, nas_claims
from lib.papers import efficientbert_search as search
from lib.spec import known

SCALE = "mini"


@dataclass(frozen=True)
class Claim:
    """grid: f(seeds) -> rows, as those of a notebook. judge: f(collected frame) -> Verdict."""

    id: str
    grid: Callable
    judge: Callable
    seeds: tuple = mini.THREE
    headline: bool = False


def only(rows, **columns):
    """The rows whose columns have one of these values. Raises ValueError for a value that no row has."""
    for name, values in columns.items():
        for value in values:
            known(name, value, {row.get(name) for row in rows})
    return [row for row in rows if all(row.get(name) in values for name, values in columns.items())]


# ---- GHOSTBERT


def pruned_vs_ghost(seeds):
    return ghostbert.pruned_vs_ghost(SCALE, mini.BOTH, ghostbert.WIDTHS, seeds)


def unpruned(seeds):
    return ghostbert.backbones(SCALE, mini.BOTH, (), seeds)


def varied(options, widths=(3, 1)):
    """Grid of a table over ghost modules, {label: what differs from the paper's}."""
    return lambda seeds: ghostbert.sweep(
        SCALE, mini.ONE, widths, seeds, ghostbert.variants(SCALE, options)
    )


def without_distillation(seeds):
    return only(ghostbert.ablated(SCALE, mini.ONE, (3, 1), seeds), model=("+ DA", "- DA & KD"))


def delta(claim, method, row, printed):
    return lambda frame: claims.delta(claim, frame, SCALE, method, row, printed)


def best_kernel(frame):
    gaps = published.gaps("ghostbert", "table9", "Kernel Size", "k = 3", (3, 1), "k = {}".format)
    return claims.best("G4", frame, SCALE, "k = 3", gaps)


ABLATIONS, FEATURES = ghostbert.ABLATIONS, ghostbert.FEATURES
CHEAP = {
    name: told for name, told in ghostbert.POSITIONS.items() if name != "After QK"
}  # it is printed above ours

# ---- EFFICIENTBERT


def networks(*names, task_names=mini.BOTH):
    return lambda seeds: [
        {"kind": "student"} | row for row in efficientbert.compared(SCALE, task_names, seeds, names)
    ]


def warmed_up(seeds):
    return networks("EfficientBERT", efficientbert.COLD)(seeds) + efficientbert.steepness(
        SCALE, seeds
    )


def warm_up(frame):
    steep = frame["model"].isin(("inherits", "from scratch"))
    printed = efficientbert.printed("table02_glue_test")
    gain = (
        printed["EfficientBERT"]["published", "average"]
        - printed[efficientbert.COLD]["published", "average"]
    )
    return claims.together(
        [
            claims.delta(
                "E2",
                frame[~steep],
                SCALE,
                "EfficientBERT",
                efficientbert.COLD,
                round(gain, 1),
                efficientbert.COLUMNS,
            ),
            efficientbert.claim_steps(frame[steep], SCALE),
        ]
    )


def coarse_to_fine(seeds):
    wanted = [search.SINGLE, "stage1", "stage2", search.ENDS[search.SINGLE], search.ENDS["stage2"]]
    return only(search.costed(SCALE, mini.ONE, seeds), model=wanted)


def other_base(frame):
    base, searched = efficientbert.OTHER_BASE
    printed = efficientbert.printed("table07_base_models")
    gain = printed["EfficientBERT"]["published", "average"] - printed[base]["published", "average"]
    return claims.delta("E6", frame, SCALE, searched, base, round(gain, 1), efficientbert.COLUMNS)


def ranked(seeds):
    return search.ranked(SCALE, mini.ONE) if seeds else []


def latency(seeds):
    batch = efficientbert.CLAIMED
    return [
        {
            "batch": batch,
            "seed": seed,
            "spec": efficientbert.latency(batch, efficientbert.TURNS[SCALE][batch], seed=seed),
        }
        for seed in seeds
    ]


# ---- BERMO


def probing(seeds):
    return only(bermo.probing(SCALE, bermo.SEMANTIC, seeds), model=bermo.MODELS)


def penalties(seeds):
    steered = [name for name, kind in bermo.METHODS.items() if kind in bermo.PENALTIES]
    return only(bermo.methods(SCALE, mini.ONE, seeds), method=steered)


def taught(seeds):
    return [row for row in bermo.distillation(SCALE, mini.ONE, seeds) if row["teacher"] != "none"]


# ---- NAS


def cells(made, names=None, task_names=mini.ONE):
    """Grid of networks, {label: f}, or of those with these names."""
    chosen = {name: made[name] for name in names or made}
    return lambda seeds: nas.cells(SCALE, task_names, seeds, chosen)


def rivals(seeds):
    return only(
        nas.rivals(SCALE, mini.ONE, seeds),
        model=("30 % NAS", "30 % IMP", nas.label(nas.WINNING[mini.FIRST], "IMP")),
    )


def controlled(seeds):
    rows = cells(
        nas.changed(nas.CONTROL),
        [
            f"{name}, {way}"
            for name in ("Top 10 %", "All")
            for way in ("no schedule", "as reported")
        ],
    )(seeds)
    return [
        {"kind": kind} | row
        for kind, part in (("network", rows), ("search", nas.architectures(rows)))
        for row in part
    ]


def control(frame):
    return nas_claims.claim_control(
        *(frame[frame["kind"] == kind] for kind in ("network", "search")), SCALE
    )


CLAIMS = {
    claim.id: claim
    for claim in (
        Claim(
            "G1",
            pruned_vs_ghost,
            lambda frame: ghostbert.claims_of_table_3(frame, SCALE)[0],
            mini.FIVE,
            True,
        ),
        Claim(
            "G2", unpruned, lambda frame: ghostbert.claim_unpruned(frame, SCALE), mini.FIVE, True
        ),
        Claim(
            "G3",
            pruned_vs_ghost,
            lambda frame: ghostbert.claims_of_table_3(frame, SCALE)[1],
            mini.FIVE,
            True,
        ),
        Claim("G4", varied(ghostbert.KERNELS), best_kernel),
        Claim(
            "G5",
            varied({name: ABLATIONS[name] for name in ("GhostBERT", "- Softmax")}),
            delta("G5", "GhostBERT", "- Softmax", {3: 0.8, 1: 0.9}),
        ),
        Claim(
            "G6",
            varied({name: ABLATIONS[name] for name in ("GhostBERT", "- ReLU")}),
            delta("G6", "GhostBERT", "- ReLU", {3: 1.6, 1: 2.2}),
        ),
        Claim("G7", without_distillation, delta("G7", "+ DA", "- DA & KD", {3: 3.5, 1: 6.4})),
        Claim(
            "G8",
            varied(ghostbert.convolutions(SCALE)),
            lambda frame: ghostbert.claim_convolution(frame, SCALE, (3, 1)),
        ),
        Claim("G9", varied(CHEAP, (1,)), lambda frame: ghostbert.claim_position(frame, SCALE)),
        Claim(
            "G10",
            varied({name: FEATURES[name] for name in ("F = 1", "F = 4", "F = 12")}, (1,)),
            lambda frame: ghostbert.claim_features(frame, SCALE),
        ),
        Claim(
            "E1",
            networks("EfficientBERT", "Base Model"),
            lambda frame: search.claim_searched(frame, SCALE),
            mini.FIVE,
            True,
        ),
        Claim("E2", warmed_up, warm_up, mini.FIVE, True),
        Claim("E3", coarse_to_fine, lambda frame: search.claim_coarse_to_fine(frame, SCALE)),
        Claim(
            "E4",
            ranked,
            lambda frame: search.claim_ranking(search.scores(frame, SCALE), SCALE),
            mini.THREE[:1],
        ),
        Claim("E5", latency, efficientbert.claim_speed, (0,)),
        Claim("E6", networks(*efficientbert.OTHER_BASE, task_names=mini.ONE), other_base),
        Claim(
            "B1", probing, lambda frame: bermo_claims.claim_probing(frame, SCALE), mini.FIVE, True
        ),
        Claim(
            "B2",
            lambda seeds: bermo.stability(SCALE, mini.BOTH, seeds),
            lambda frame: bermo_claims.claim_stability(frame, SCALE),
            mini.TEN,
            True,
        ),
        Claim(
            "B3",
            lambda seeds: bermo.convergence(SCALE, mini.ONE, seeds),
            lambda frame: bermo_claims.claim_convergence(frame, SCALE),
        ),
        Claim("B4", penalties, lambda frame: bermo_claims.claim_penalties(frame, SCALE)),
        Claim("B5", taught, lambda frame: bermo_claims.claim_distillation(frame, SCALE)),
        Claim(
            "N1",
            cells(
                {
                    name: make
                    for name, make in nas.sizes((0.1, 0.3), ("NAS", "Random")).items()
                    if name != "Whole"
                },
                None,
                mini.BOTH,
            ),
            lambda frame: nas_claims.claim_random(frame, SCALE),
            mini.FIVE,
            True,
        ),
        Claim(
            "N2",
            cells(nas.objectives(SCALE), ("Prediction distillation", *nas_claims.RIVALS)),
            lambda frame: nas_claims.claim_objective(frame, SCALE),
        ),
        Claim(
            "N3",
            cells(nas.changed(nas.SCHEDULES), ("Additive", "Multiplicative")),
            lambda frame: nas_claims.claim_schedule(frame, SCALE),
            mini.FIVE,
        ),  # a variance needs more seeds than a mean
        Claim("N4", controlled, control),
        Claim(
            "N5",
            cells(nas.changed(nas.START)),
            delta("N5", "Original weights", "Searched weights", 0.0),
        ),
        Claim(
            "N6",
            cells(nas.changed(nas.SPACES), ("QKV and FFN", "QKV, FFN and embedding")),
            lambda frame: nas_claims.claim_space(frame, SCALE),
        ),
        Claim(
            "N7",
            cells(nas.sizes()),
            lambda frame: nas_claims.claim_log(frame, SCALE),
            mini.FIVE,
            True,
        ),
        Claim(
            "N8",
            lambda seeds: nas.digits(SCALE, seeds, (0.1,)),
            lambda frame: nas_claims.claim_noise(frame, SCALE),
        ),
        Claim(
            "N9", rivals, lambda frame: nas_claims.claim_magnitude(frame, SCALE), mini.FIVE, True
        ),
    )
}


def chosen(names=()):
    """Claims by name, all without one. Raises ValueError naming the nearest."""
    for name in names:
        known("claim", name, CLAIMS)
    return [CLAIMS[name] for name in names or CLAIMS]


def planned_table():
    """One row for each claim: its tasks, cells, planned seeds, and whether it is a headline."""
    lines = {}
    for claim in CLAIMS.values():
        rows = claim.grid(claim.seeds[:1])
        names = dict.fromkeys(row["task"] for row in rows if "task" in row)
        ends = dict.fromkeys(map(str, (claim.seeds[0], claim.seeds[-1])))
        lines[claim.id] = {
            "headline": "yes" * claim.headline,
            "tasks": ", ".join(names),
            "cells": len(rows),
            "seeds": f"{len(claim.seeds)}: {' to '.join(ends)}",
        }
    return pd.DataFrame(lines).T.rename_axis("claim")


def with_plan(verdict):
    """The verdict with the seeds that are planned for its claim, where it is of a central claim at mini."""
    here = verdict.claim in CLAIMS and verdict.kind == "finding" and verdict.scale == SCALES[SCALE]
    return replace(verdict, planned=len(CLAIMS[verdict.claim].seeds)) if here else verdict
