"""Evidence: the missing runs of the central claims at mini, in rounds over the planned seeds, each recorded as it finishes.

What a claim rests on is in `lib.papers.protocol`. A round is all cells of all claims at one more seed, headlines first, then
the cheapest; weights that no missing run of any claim needs are deleted, so that a round fits on a small disk.
"""

import shutil
import time
from collections import Counter

from lib import record, sweep
from lib.measure.verdict import holm_paper
from lib.papers import mini, protocol
from lib.steps import STEPS
from lib.store import Store

NICE = 10  # of the workers
BESIDE = (
    "search",
    "nas_search",
    "random_architecture",
)  # steps whose runs pages show beside the networks found
UNKNOWN = 60.0  # seconds that a run of unknown cost counts for in the order of claims


def cells(claim, seeds):
    """The Specs of a claim at some seeds, each once."""
    return list(dict.fromkeys(row["spec"] for row in claim.grid(seeds))) if seeds else []


def rounds(claims, store):
    """Specs of the claims in the order in which they are made, each once."""
    clock, found = sweep.Clock(store), {}
    for number in range(max(len(claim.seeds) for claim in claims)):
        there = {claim: cells(claim, claim.seeds[number : number + 1]) for claim in claims}
        cost = {}
        for claim, specs in there.items():
            seconds, unknown = clock.total(sweep.plan(specs, store).missing)
            cost[claim] = seconds + UNKNOWN * unknown
        order = sorted(there, key=lambda claim: (not claim.headline, cost[claim]))
        for second in (
            False,
            True,
        ):  # the second task's runs cost more, and no claim is without the first one's
            found |= dict.fromkeys(
                spec for claim in order for spec in there[claim] if on_second(spec) == second
            )
    return list(found)


def on_second(spec):
    return (spec.args.get("data") or {}).get("task") == mini.SECOND


def gather(claims, store=None, minutes=None, workers=None, progress=True):
    """Make and record what is missing. Returns {Spec: one line} of what could not be made."""
    store, every = store or Store(), protocol.chosen()
    wanted = rounds(claims, store)
    results = set(wanted) | found_by(wanted)
    keep(results, store)
    all_missing = sweep.plan(
        [spec for claim in every for spec in cells(claim, claim.seeds)], store
    ).missing
    needed = Counter(parent for spec in all_missing for parent in spec.parents.values())

    def done(spec):
        keep([spec] if spec in results else [], store)
        for name, parent in spec.parents.items():  # a pinned one is for all seeds
            needed[parent] -= 1
            if (
                needed[parent] <= 0
                and spec.inputs[name].seed is None
                and STEPS[parent.step].weights
            ):
                shutil.rmtree(store.runs / parent.name / "model", ignore_errors=True)

    until = time.time() + 60 * minutes if minutes else float("inf")
    return sweep.make(
        wanted,
        store,
        workers,
        checkpoint_seconds=60.0,
        progress=progress,
        until=until,
        nice=NICE,
        done=done,
    )


def found_by(specs):
    """The searches among the inputs of some Specs."""
    inputs = {parent for spec in specs for parent in spec.parents.values()}
    return {spec for spec in inputs if spec.step in BESIDE} | (
        found_by(inputs) if inputs else set()
    )


def keep(specs, store):
    """Record the finished runs among some Specs that have no record."""
    for spec in specs:
        if (
            not record.there(store.records / spec.name)
            and (run := store.find(spec))
            and run.origin == "run"
        ):
            store.record(run)


def board(claims, store=None):
    """One line a claim: cells at a seed, seeds done of those planned, seconds left and runs of which nothing is known,
    verdict so far, and its p after Holm over those of its paper on the board that have one."""
    store, lines = store or Store(), []
    clock = sweep.Clock(store)
    for claim in claims:
        by_seed = {seed: cells(claim, (seed,)) for seed in claim.seeds}
        done = sum(all(store.find(spec) for spec in specs) for specs in by_seed.values())
        missing = sweep.plan([spec for specs in by_seed.values() for spec in specs], store).missing
        seconds, unknown = clock.total(missing)
        frame = sweep.collect(claim.grid(claim.seeds), store, on_missing="skip")
        lines.append(
            {
                "claim": claim.id + "*" * claim.headline,
                "cells": len(by_seed[claim.seeds[0]]),
                "seeds": f"{done} of {len(claim.seeds)}",
                "runs": len(missing),
                "seconds": seconds,
                "unknown": unknown,
                "verdict": protocol.with_plan(claim.judge(frame)),
            }
        )
    adjusted = {}
    for paper in {claim.id[0] for claim in claims}:
        adjusted |= holm_paper(
            [line["verdict"] for line in lines if line["claim"].startswith(paper)]
        )
    return [line | {"p": adjusted.get(line["verdict"].claim)} for line in lines]
