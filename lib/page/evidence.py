"""This module makes the missing runs of the central claims at mini, and records each at once.

A claim rests on the rows of its pages' grids that its cells name, at its planned seeds
(`lib.page.claims`). Runs are made in rounds. A round is all claims at one more planned seed, in the
order of `data/published/plan.csv`; claims that are not in the plan come last. Weights that no
missing run of any claim needs are deleted, so that a round fits on a small disk.
"""

import shutil
from collections import Counter
from itertools import chain, zip_longest

from lib.measure.claims import seeds
from lib.page import checks
from lib.page.claims import SCALE, recorded, rows
from lib.papers import grids
from lib.runs import processor, sweep
from lib.runs.spec import ancestry
from lib.runs.store import Store
from lib.steps import STEPS

# Pages show the runs of these steps beside the networks that they found.
BESIDE = ("search", "nas_search", "random_architecture")


def chosen(names=()):
    """Return the rows of claims.csv with these ids, or all central claims and our own questions.

    Raises ValueError for an unknown claim, with the nearest one.
    """
    there = {id: c for id, c in checks.claims().items() if c["role"] in ("central", "own")}
    return list(grids.picked("claim", there, names).values())


def cells(claim, store=None):
    """Return {planned seed: the Specs of a claim at this seed, each once}.

    A seed counts if all its runs have one dtype. So one that has no whole set of runs is float32
    throughout where the processor has no instructions for bfloat16 (`Spec.twin`).
    """
    store, there, found = store or Store(), rows(claim), {}
    for seed in seeds(claim["seeds"]):
        own = list(dict.fromkeys(row["spec"] for row in there if row.get("seed", seed) == seed))
        twins = [spec.twin for spec in own]
        here = twins if not processor.has_bfloat16() else own
        found[seed] = next((s for s in (own, twins) if all(map(store.find, s))), here)
    return found


def rounds(claims, store=None):
    """Return the Specs of the claims in the order in which they are made, each once."""
    plan = [row["claim"] for row in checks.lines("plan")]
    order = sorted(claims, key=lambda c: plan.index(c["id"]) if c["id"] in plan else len(plan))
    by_round = zip_longest(*(cells(claim, store).values() for claim in order), fillvalue=())
    return list(dict.fromkeys(chain(*chain(*by_round))))


def gather(claims, store, workers=None, backend="local"):
    """Make and record what is missing (`sweep.make`); return {Spec: why it is lost, in a line}."""
    wanted = rounds(claims, store)
    results = {*wanted, *found_by(wanted)}
    keep(results, store)
    missing = store.missing(rounds(chosen(), store), exact=True)
    needed = Counter(parent for spec in missing for parent in spec.parents.values())

    def done(spec):
        keep([spec] if spec in results else [], store)
        for name, parent in spec.parents.items():
            needed[parent] -= 1
            pinned = spec.inputs[name].seed is not None  # A pinned input is for all seeds.
            if needed[parent] <= 0 and not pinned and STEPS[parent.step].weights:
                shutil.rmtree(store.runs / parent.name / "model", ignore_errors=True)

    how = {"checkpoint_seconds": 60.0, "backend": backend, "exact": True}
    return sweep.make(wanted, store, workers, done=done, **how)


def found_by(specs):
    """Return the searches among the inputs of some Specs."""
    return {spec for spec in ancestry(specs) if spec.step in BESIDE}


def keep(specs, store):
    """Record the finished runs of some Specs that have no record yet."""
    for run in map(store.find, specs):
        if run and run.origin == "run":
            store.record(run)


def listed(claims, store):
    """Yield a line for each claim: its finished seeds, its missing runs, the words on its cells.

    `verify --write` commits the words that the records give.
    """
    clock, words = sweep.Clock(store), {}
    for row in recorded():
        if row["profile"] == SCALE and row["family"]:
            words.setdefault(row["claim"], []).append(row["word"])
    for claim in claims:
        by_seed = cells(claim, store).values()
        done = sum(all(map(store.find, specs)) for specs in by_seed)
        missing = store.missing(chain(*by_seed), exact=True)
        left = f"{len(missing)} runs left, {clock.about(missing)}"
        counts = Counter(words.get(claim["id"], ["not measured"]))
        told = ", ".join(f"{n} {word}" for word, n in counts.items())
        yield f"{claim['id']:5} {done} of {len(by_seed)} seeds, {left}, {told}"
    left = store.missing(rounds(claims, store), exact=True)
    yield f"together left on one core: {clock.about(left)}"
