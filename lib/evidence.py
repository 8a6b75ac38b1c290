"""Evidence: the missing runs of the central claims at mini, each recorded as it finishes.

What a claim rests on is in `lib.papers.protocol`. Runs are made in rounds. A round is all cells of
all claims at one more planned seed: headlines first, then the cheapest claims. Weights that no
missing run of any claim needs are deleted, so that a round fits on a small disk.
"""

import shutil
import time
from collections import Counter
from math import inf

from lib import record, sweep, verdicts
from lib.measure.verdict import holm_paper
from lib.papers import mini, protocol
from lib.spec import ancestry
from lib.steps import STEPS

NICE = 10  # of the workers
# steps whose runs pages show beside the networks that they found
BESIDE = ("search", "nas_search", "random_architecture")
UNKNOWN = 60.0  # seconds that a run of unknown cost counts for in the order of claims


def cells(claim, seeds):
    """The Specs of a claim at some seeds, each once."""
    return list(dict.fromkeys(row["spec"] for row in claim.grid(seeds))) if seeds else []


def rounds(claims, store):
    """Specs of the claims in the order in which they are made, each once."""
    clock, found = sweep.Clock(store), {}

    def cost(specs):
        seconds, unknown = clock.total(sweep.plan(specs, store).missing)
        return seconds + UNKNOWN * unknown

    for number in range(max(len(claim.seeds) for claim in claims)):
        there = {claim: cells(claim, claim.seeds[number : number + 1]) for claim in claims}
        costs = {claim: cost(specs) for claim, specs in there.items()}
        order = sorted(there, key=lambda claim: (not claim.headline, costs[claim]))
        specs = [spec for claim in order for spec in there[claim]]
        # the second task costs more, and no claim is without the first one's runs
        found |= dict.fromkeys(sorted(specs, key=on_second))
    return list(found)


def on_second(spec):
    return (spec.args.get("data") or {}).get("task") == mini.SECOND


def gather(claims, store, minutes=None, workers=None, progress=True, backend="local"):
    """Make and record what is missing (`sweep.make`). Returns {Spec: one line} of what is lost."""
    every, wanted = protocol.chosen(), rounds(claims, store)
    results = set(wanted) | found_by(wanted)
    keep(results, store)
    specs = [spec for claim in every for spec in cells(claim, claim.seeds)]
    missing = sweep.plan(specs, store).missing
    needed = Counter(parent for spec in missing for parent in spec.parents.values())

    def done(spec):
        keep([spec] if spec in results else [], store)
        for name, parent in spec.parents.items():
            needed[parent] -= 1
            pinned = spec.inputs[name].seed is not None  # it is for all seeds
            if needed[parent] <= 0 and not pinned and STEPS[parent.step].weights:
                shutil.rmtree(store.runs / parent.name / "model", ignore_errors=True)

    until = time.monotonic() + 60 * minutes if minutes else inf
    how = {"checkpoint_seconds": 60.0, "progress": progress, "nice": NICE, "backend": backend}
    return sweep.make(wanted, store, workers, until=until, done=done, **how)


def found_by(specs):
    """The searches among the inputs of some Specs."""
    return {spec for spec in ancestry(specs) if spec.step in BESIDE}


def keep(specs, store):
    """Record the finished runs among some Specs that have no record."""
    for spec in specs:
        if not record.there(store.records / spec.name):
            run = store.find(spec)
            if run and run.origin == "run":
                store.record(run)


def board(claims, store):
    """One dict a claim: cells at a seed, seeds done of those planned, runs left and their seconds.

    Further how many of the runs left have an unknown cost, the verdict so far, and its p after Holm
    over the claims of its paper on this board that have a p.
    """
    clock, lines = sweep.Clock(store), []
    for claim in claims:
        by_seed = {seed: cells(claim, (seed,)) for seed in claim.seeds}
        done = sum(all(map(store.find, specs)) for specs in by_seed.values())
        missing = sweep.plan([spec for specs in by_seed.values() for spec in specs], store).missing
        seconds, unknown = clock.total(missing)
        line = {"claim": claim.id + "*" * claim.headline, "runs": len(missing), "seconds": seconds}
        line |= {"cells": len(by_seed[claim.seeds[0]]), "seeds": f"{done} of {len(claim.seeds)}"}
        lines.append(line | {"unknown": unknown, "verdict": verdicts.judge(claim.id, store)})
    adjusted = {}
    for paper in {claim.id[0] for claim in claims}:
        own = [line["verdict"] for line in lines if line["claim"].startswith(paper)]
        adjusted |= holm_paper(own)
    return [line | {"p": adjusted.get(line["verdict"].claim)} for line in lines]


def listed(claims, store):
    """The board as lines of text."""

    def left(seconds, unknown):
        return f"{seconds / 3600:.1f} h" + f", {unknown} runs unknown" * bool(unknown)

    for row in board(claims, store):
        verdict, p = row["verdict"], row["p"]
        words = [verdict.verdict, verdict.provisional, p is not None and f"p = {p:.2g} after Holm"]
        yield (
            f"{row['claim']:5} {row['cells']:3} cells  {row['seeds']:>8} seeds  "
            f"{row['runs']:4} runs left, {left(row['seconds'], row['unknown']):>8}  "
            + ", ".join(filter(None, words))
        )
    missing = sweep.plan(rounds(claims, store), store).missing
    yield f"together left on one core: {left(*sweep.Clock(store).total(missing))}"
