"""This module makes the missing runs of the central claims, and records each at once.

At mini a claim rests on those rows of its pages' grids that its cells compare, at the
planned seeds (`lib.claims.judging`). Runs are made in rounds. A round adds one planned
seed to every claim, in the order of `data/published/plan.csv` and then of
`plan_fair.csv`; other claims come last.

A profile such as base has a plan of lines (`lib.claims.planned`). Each step of the plan
is finished before the next begins, and within a step each seed. So a teacher and its
students are made in one go.

A round must fit on a small disk. So weights that these commands saved are deleted when
no missing run of the profile needs them. Weights that a reader or another command saved
stay."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, zip_longest
from typing import Any

from lib.claims import lists, notebook, planned
from lib.claims.cells import parse_seeds
from lib.claims.judging import SCALE, make_rows_of_claim, read_verdicts
from lib.cluster import sweep
from lib.core import disk, processor
from lib.core.names import check_name
from lib.core.rows import Row
from lib.core.spec import Spec, find_ancestors, from_json
from lib.core.steps import STEPS
from lib.core.store import Store
from lib.papers import grids

# Steps whose runs pages show beside the networks that these steps chose.
BESIDE = ("search", "nas_search", "random_architecture")


def select_claims(claim_ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of claims.csv with these ids; without ids, those of all central
    claims and of our own questions.

    Raises Refused for an unknown claim, with the nearest one."""
    by_id = {
        id: c
        for id, c in lists.read_claims().items()
        if c["role"] in ("central", "own")
    }
    return list(grids.pick_values("claim", by_id, claim_ids).values())


def find_specs_by_seed(
    claim: Mapping[str, Any], store: Store | None = None
) -> dict[int, list[Spec]]:
    """Return {planned seed: the Specs of a claim at this seed, each once}.

    All runs of a seed must have one dtype. A seed whose runs are all there in bfloat16
    or in float32 keeps that dtype. Another seed takes float32 (`Spec.float32_twin`)
    where the processor has no instructions for bfloat16."""
    store, grid_rows, specs = store or Store(), make_rows_of_claim(claim), {}
    for seed in parse_seeds(claim["seeds"]):
        originals = list(
            dict.fromkeys(
                row.spec for row in grid_rows if row.get("seed", seed) == seed
            )
        )
        twins = [spec.float32_twin for spec in originals]
        here = twins if not processor.has_bfloat16() else originals
        specs[seed] = next(
            (s for s in (originals, twins) if all(map(store.find_run, s))), here
        )
    return specs


def order_specs(
    claims: Sequence[Mapping[str, Any]], store: Store | None = None
) -> list[Spec]:
    """Return the Specs of the claims in the order in which they are made, each once."""
    plan = [
        row["claim"]
        for name in ("plan", "plan_fair")
        for row in lists.read_published_csv(name)
    ]
    order = sorted(
        claims, key=lambda c: plan.index(c["id"]) if c["id"] in plan else len(plan)
    )
    by_round = zip_longest(
        *(find_specs_by_seed(claim, store).values() for claim in order), fillvalue=()
    )
    return list(dict.fromkeys(chain(*chain(*by_round))))


def select_plan_lines(
    profile: str, claim_ids: Sequence[str] = ()
) -> list[planned.Line]:
    """Return the Lines of a profile's plan, of all claims or of those with these ids.

    Raises Refused for a profile without a plan, and for an id that its plan lacks, with
    the nearest one."""
    check_name(
        "profile with a plan",
        profile,
        [n for n in grids.PROFILES if planned.read_plan(n)],
    )
    every = planned.read_plan(profile)
    ids = grids.pick_values(
        "claim of the plan", dict.fromkeys(line.claim for line in every), claim_ids
    )
    return [line for line in every if line.claim in ids]


def make_grid_rows(profile: str, page: str) -> list[Row]:
    """Return the rows of the variable `grid` of a page's notebook, at a profile."""
    (path,) = notebook.find_notebooks([page])
    return notebook.make_grids(path, {"profile": profile}, with_recorded=False).get(
        "grid", []
    )


def list_page_specs(page_patterns: Sequence[str], profile: str) -> list[Spec]:
    """Return the Specs in the grids of some pages, each once, seed by seed.

    They serve pages whose rows no claim compares. `page_patterns` are parts of names.
    Raises Refused for a part that no name has."""
    grid_rows = list(
        chain(
            *(
                make_grid_rows(profile, notebook.make_notebook_id(path))
                for path in notebook.find_notebooks(page_patterns)
            )
        )
    )
    ordered = sorted(grid_rows, key=lambda row: row.get("seed", 0))
    return list(dict.fromkeys(row.spec for row in ordered))


def list_line_specs_by_seed(line: planned.Line, profile: str) -> dict[int, list[Spec]]:
    """Return {planned seed: the Specs of a Line at this seed, each once}."""
    grid_rows = line.select_rows(make_grid_rows(profile, line.page))
    return {
        seed: list(dict.fromkeys(row.spec for row in grid_rows if row.seed == seed))
        for seed in line.seeds
    }


def queue_specs(lines: list[planned.Line], profile: str) -> list[Spec]:
    """Return the Specs of Lines in the order in which they are made, each once."""
    ordered = []
    for _, part in groupby(lines, lambda line: line.step):
        by_line = [list_line_specs_by_seed(line, profile) for line in part]
        seeds_of_step = sorted({seed for specs in by_line for seed in specs})
        ordered += [
            spec
            for seed in seeds_of_step
            for specs in by_line
            for spec in specs.get(seed, ())
        ]
    return list(dict.fromkeys(ordered))


def gather_evidence(
    claims: list[Any],
    store: Store,
    workers: int | None = None,
    backend: str = "local",
    profile: str = SCALE,
    page_patterns: Sequence[str] = (),
) -> dict[Spec, str]:
    """Make and record the missing runs. Return {Spec: why its run is lost, in a line}.

    claims: what `select_claims` returns or, at a profile with a plan, what
    `select_plan_lines` returns. page_patterns: parts of the names of pages; where
    given, their rows are made in place of the claims'. Runs are made by
    `sweep.execute_specs`."""
    every = (
        order_specs(select_claims(), store)
        if profile == SCALE
        else queue_specs(select_plan_lines(profile), profile)
    )
    if page_patterns:
        requested = list_page_specs(page_patterns, profile)
    elif profile == SCALE:
        requested = order_specs(claims, store)
    else:
        requested = queue_specs(claims, profile)
    results = {*requested, *find_searches_behind(requested)}
    record_runs(results, store)
    left = set(
        store.list_missing_specs([*every, *requested], ignore_float32_twins=True)
    )
    saved = SavedWeights(store)

    def delete_unneeded_weights(specs: Iterable[Spec]) -> None:
        needed = {
            parent for other in left for parent in other.inputs_with_seeds.values()
        }
        for spec in specs:
            for name, parent in spec.inputs_with_seeds.items():
                # An input with a seed of its own is shared by all seeds, so it stays.
                is_pinned = spec.inputs[name].seed is not None
                if not (is_pinned or parent in needed) and parent in saved:
                    saved.delete_weights(parent)

    def finish_run(spec: Spec) -> None:
        record_runs([spec] if spec in results else [], store)
        saved.note_run(spec)
        left.discard(spec)
        delete_unneeded_weights([spec])

    delete_unneeded_weights(
        {*every} - left
    )  # A killed command may have left such weights.
    how = {"checkpoint_seconds": 60.0, "backend": backend, "ignore_float32_twins": True}
    return sweep.execute_specs(
        requested, store, workers, call_after_run=finish_run, **how
    )


class SavedWeights:
    """The set of runs whose weights `gather_evidence` saved, and may delete.

    A gathering may be stopped and go on, so the set is a file in the store: a digest of
    the manifest of each run. A run that a reader makes again has another manifest, so
    its weights are safe."""

    def __init__(self, store: Store) -> None:
        self.store, self.path = store, store.runs / ".evidence"

    def digest_manifest(self, spec: Spec) -> str:
        """Return the digest of the manifest of a run, "" where there is none."""
        manifest = self.store.runs / spec.name / disk.MANIFEST
        return disk.digest_file(manifest) if manifest.exists() else ""

    def __contains__(self, spec: Spec) -> bool:
        notes = self.path.read_text().splitlines() if self.path.exists() else []
        return self.digest_manifest(spec) in notes

    def note_run(self, spec: Spec) -> None:
        """Add the run of a Spec to the set, if its step saves weights."""
        if STEPS[spec.step].weights:
            with open(self.path, "a") as file:
                file.write(f"{self.digest_manifest(spec)}\n")

    def is_in_use(self, spec: Spec) -> bool:
        """Return whether a running process reads the weights of a Spec's run.

        It is True where the process's Spec cannot be read."""
        for part in self.store.list_unfinished_folders():
            if self.store.read_ledger_with_true_state(part)["state"] == "running":
                try:
                    reader = from_json(disk.read_json(part / "spec.json"))
                except (OSError, ValueError, KeyError, TypeError):
                    return True
                if spec in reader.inputs_with_seeds.values():
                    return True
        return False

    def delete_weights(self, spec: Spec) -> None:
        """Delete the weights of a run, unless another run reads them."""
        if not self.is_in_use(spec):
            shutil.rmtree(self.store.runs / spec.name / "model", ignore_errors=True)


def find_searches_behind(specs: Iterable[Spec]) -> set[Spec]:
    """Return the Specs of searches that some Specs rest on: pages show these as
    well."""
    return {spec for spec in find_ancestors(specs) if spec.step in BESIDE}


def record_runs(specs: Iterable[Spec], store: Store) -> None:
    """Record the finished runs of some Specs that have no record yet."""
    for run in map(store.find_run, specs):
        if run and run.origin == "run":
            store.copy_to_records(run)


def describe_claims(claims: Sequence[Mapping[str, Any]], store: Store) -> Iterator[str]:
    """Yield a line for each claim: finished seeds, missing runs, words of its cells.

    The words are the committed ones, which `verify --write` renews."""
    clock, words = sweep.TimeForecast(store), {}
    for row in read_verdicts():
        if row["profile"] == SCALE and row["family"]:
            words.setdefault(row["claim"], []).append(row["word"])
    for claim in claims:
        by_seed = find_specs_by_seed(claim, store).values()
        done = sum(all(map(store.find_run, specs)) for specs in by_seed)
        missing = store.list_missing_specs(chain(*by_seed), ignore_float32_twins=True)
        left = f"{len(missing)} runs left, {clock.describe_time(missing)}"
        counts = Counter(words.get(claim["id"], ["not measured"]))
        tally = ", ".join(f"{n} {word}" for word, n in counts.items())
        yield f"{claim['id']:5} {done} of {len(by_seed)} seeds, {left}, {tally}"
    left = store.list_missing_specs(
        order_specs(claims, store), ignore_float32_twins=True
    )
    yield f"together left: {clock.describe_time(left)}"


def describe_plan_lines(
    lines: list[planned.Line], store: Store, profile: str
) -> Iterator[str]:
    """Yield a line for each Line of a plan: finished seeds, missing runs, cost.

    The core-hours are those of the plan, for bfloat16."""
    for line in lines:
        specs = list_line_specs_by_seed(line, profile).values()
        done = sum(bool(group) and all(map(store.find_run, group)) for group in specs)
        left = f"{len(store.list_missing_specs(chain(*specs)))} runs left"
        about = f"{done} of {len(line.seeds)} seeds, {left}, {line.core_hours:.1f} core-hours"
        why = ", waits for the rule of the second task" * line.waits
        yield f"{line.order:3} step {line.step:6} {line.claim:7} {line.page}: {about}{why}"
    total = sum(line.core_hours for line in lines)
    left = len(store.list_missing_specs(queue_specs(lines, profile)))
    yield f"together {total:.1f} core-hours planned, {left} runs left"
