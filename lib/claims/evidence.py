"""This module makes the runs that the claims still lack, and records each as soon
as it is finished.

At the profile mini a claim rests on the rows of notebooks' grids that its comparisons
use, at the planned seeds (`lib.claims.judging`). Runs are made in rounds. A round adds
one planned seed to every claim, in the order of `data/published/plan.csv` and then of
`plan_fair.csv`; other claims come last. So all claims gain seeds evenly if time runs
out.

A larger profile such as base has a plan of lines (`lib.claims.planned`). All runs of a
step of the plan are queued before those of the next step. Within a step, all runs of a
seed are queued before those of the next seed. So a teacher and its students are made
one after the other.

The runs must fit on a small disk. Weights that these commands saved are therefore
deleted when no missing run of the profile needs them. Weights that a reader or another
command saved stay, and so do those of an input that runs of all seeds share."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, zip_longest
from typing import Any

from lib.claims import lists, notebook, planned
from lib.claims.cells import parse_seeds
from lib.claims.judging import SCALE, list_grid_rows_of_claim, read_verdicts_csv
from lib.claims.notebook import list_notebook_runs_to_execute
from lib.cluster import sweep
from lib.core import disk, processor
from lib.core.names import check_known_name
from lib.core.spec import Spec, find_transitive_input_specs, make_spec_from_json
from lib.core.steps import STEPS
from lib.core.store import Store
from lib.papers import grids

# Steps (kinds of run) that search for an architecture or draw one at random. Notebooks
# show such a run beside the run that trains the chosen network, so the committed
# records need both.
BESIDE = ("search", "nas_search", "random_architecture")


def select_claims_to_run(
    claim_ids: Sequence[str] | None = None,
) -> list[lists.ClaimsCsvRow]:
    """Return the claims with these ids, each as its row of `claims.csv`.

    With None they are all claims whose runs are made here: the central claims (the
    main conclusions of the papers) and the repository's own questions. Raises Refused,
    with the nearest id, for any other id.

    claim_ids: such as ["G1", "N1"]."""
    by_id = {
        id: c
        for id, c in lists.read_claims().items()
        if c["role"] in ("central", "own")
    }
    return list(grids.select_values_by_label("claim", by_id, claim_ids or ()).values())


def list_claim_specs_by_seed(
    claim: lists.ClaimsCsvRow, store_of_finished_runs: Store
) -> dict[int, list[Spec]]:
    """Return {seed: the Specs of the runs that test a claim at this seed, each once}.

    A Spec is the description of a run, and the seeds are the planned ones. The runs of
    a seed are compared, so they have one dtype (`choose_specs_of_one_dtype`).

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    store_of_finished_runs: where finished runs are looked up."""
    grid_rows = list_grid_rows_of_claim(claim)
    return {
        seed: choose_specs_of_one_dtype(
            (row.spec for row in grid_rows if row.get("seed", seed) == seed),
            store_of_finished_runs,
        )
        for seed in parse_seeds(claim["seeds"])
    }


def choose_specs_of_one_dtype(
    specs: Iterable[Spec], store_of_finished_runs: Store
) -> list[Spec]:
    """Return Specs (descriptions of runs) that are compared, each once, in one dtype.

    If all of them were made in the planned dtype, or all in float32, these are taken.
    Otherwise the dtype is float32 on a processor without instructions for bfloat16, and
    else the planned one.

    specs: of one seed, in the planned dtype.
    store_of_finished_runs: where finished runs are looked up."""
    planned_specs = [*dict.fromkeys(specs)]
    twins = [spec.float32_spec for spec in planned_specs]
    here = planned_specs if processor.has_bfloat16_instructions() else twins
    for made in (planned_specs, twins):
        if all(map(store_of_finished_runs.find_run, made)):
            return made
    return here


def list_claim_specs_in_run_order(
    claims: Sequence[lists.ClaimsCsvRow], store_of_finished_runs: Store
) -> list[Spec]:
    """Return the Specs (descriptions of runs) that claims need, in order of execution.

    Each Spec occurs once. The runs are made in rounds, and each round adds one seed to
    every claim, so that all claims gain seeds evenly if time runs out. Within a round,
    claims with a line in a plan (a table of seeds, written before the runs) come first,
    in the order of these lines; the others follow as given.

    claims: statements of the papers that runs test, as rows of `claims.csv`.
    store_of_finished_runs: where finished runs are looked up."""
    plan = [
        row["claim"]
        for name in ("plan", "plan_fair")
        for row in lists.read_csv_in_published_folder(name)
    ]
    order = sorted(
        claims, key=lambda c: plan.index(c["id"]) if c["id"] in plan else len(plan)
    )
    by_round = zip_longest(
        *(
            list_claim_specs_by_seed(claim, store_of_finished_runs).values()
            for claim in order
        ),
        fillvalue=(),
    )
    return list(dict.fromkeys(chain(*chain(*by_round))))


def select_plan_lines(
    profile: str, claim_ids: Sequence[str] | None = None
) -> list[planned.RunPlanLine]:
    """Return the lines of a profile's plan: those of all claims, or of some.

    A plan was written before the runs. Its lines say which runs to make and which
    comparisons to test on them. Raises Refused for a profile without a plan and for a
    claim that the plan lacks, with the nearest name.

    profile: the size of the experiments, such as "base".
    claim_ids: such as ["G1"]; None for all."""
    with_plan = [n for n in grids.PROFILES if planned.read_run_plan(n)]
    check_known_name(f"profile with a plan, beside {SCALE}", profile, with_plan)
    every = planned.read_run_plan(profile)
    ids = grids.select_values_by_label(
        "claim of the plan",
        dict.fromkeys(line.claim_id for line in every),
        claim_ids or (),
    )
    return [line for line in every if line.claim_id in ids]


def list_notebook_specs(
    notebook_patterns: Sequence[str],
    profile: str,
    store_of_finished_runs: Store,
) -> list[Spec]:
    """Return the Specs (descriptions of runs) that notebooks list, ordered by seed.

    Each Spec occurs once. `execute_and_record_missing_runs` takes these Specs to make
    runs that a notebook shows but that no claim compares. The runs of a seed on a task
    are compared, so they have one dtype (`choose_specs_of_one_dtype`). Raises Refused
    for a pattern that fits no notebook.

    notebook_patterns: parts of notebooks' ids or paths, or globs (`find_notebooks`).
    profile: the size of the experiments, such as "mini".
    store_of_finished_runs: where finished runs are looked up."""
    grid_rows = []
    for path in notebook.find_notebooks(notebook_patterns):
        page = notebook.make_notebook_id(path)
        grid_rows += list_notebook_runs_to_execute(profile, page)
    compared: dict[tuple[int, str], list[Spec]] = {}
    for row in sorted(grid_rows, key=lambda row: row.get("seed", 0)):
        pair = row.get("seed", 0), row.get("task", "")
        compared.setdefault(pair, []).append(row.spec)
    in_one_dtype = [
        choose_specs_of_one_dtype(specs, store_of_finished_runs)
        for specs in compared.values()
    ]
    return list(dict.fromkeys(chain(*in_one_dtype)))


def list_plan_line_specs_by_seed(
    plan_line: planned.RunPlanLine,
    profile: str,
    store_of_finished_runs: Store,
) -> dict[int, list[Spec]]:
    """Return {seed: Specs (descriptions of runs), each once} of a line of a plan.

    A plan lists, before anything is run, the runs of a large profile. A line of it
    selects runs of one notebook, by model, labels, task and seed. The runs of a seed
    are compared, so they have one dtype (`choose_specs_of_one_dtype`).

    profile: the size of the experiments, such as "base".
    store_of_finished_runs: where finished runs are looked up."""
    grid_rows = plan_line.select_rows(
        list_notebook_runs_to_execute(profile, plan_line.notebook_id)
    )
    return {
        seed: choose_specs_of_one_dtype(
            (row.spec for row in grid_rows if row.seed == seed), store_of_finished_runs
        )
        for seed in plan_line.seeds
    }


def list_plan_specs_in_run_order(
    plan_lines: list[planned.RunPlanLine],
    profile: str,
    store_of_finished_runs: Store,
) -> list[Spec]:
    """Return the Specs (descriptions of runs) of a plan's lines in order of execution.

    Each Spec occurs once. The lines are grouped into steps. All runs of a step come
    before those of the next one; within a step they are ordered by seed, then by line.
    So all models that are compared at one seed are made before the next seed.

    profile: the size of the experiments, such as "base".
    store_of_finished_runs: where finished runs are looked up."""
    ordered = []
    for _, part in groupby(plan_lines, lambda line: line.step):
        by_line = [
            list_plan_line_specs_by_seed(line, profile, store_of_finished_runs)
            for line in part
        ]
        seeds_of_step = sorted({seed for specs in by_line for seed in specs})
        ordered += [
            spec
            for seed in seeds_of_step
            for specs in by_line
            for spec in specs.get(seed, ())
        ]
    return list(dict.fromkeys(ordered))


def execute_and_record_missing_runs(
    claims_or_plan_lines: list[lists.ClaimsCsvRow] | list[planned.RunPlanLine],
    store: Store,
    workers: int | None = None,
    backend: str = "local",
    profile: str = SCALE,
    notebook_patterns_instead_of_claims: Sequence[str] = (),
) -> sweep.ErrorBySpec:
    """Make the runs that claims still need, and record each one when it is finished.

    Return {Spec (description of a run): why its run failed, in one line}. A record is a
    copy of a run without its weights, small enough to be committed. Of the inputs of
    these runs, such as a teacher, only architecture searches are recorded. Weights that
    this or an earlier call saved are deleted when no missing run needs them any more,
    since the disk is small.

    claims_or_plan_lines: rows of `claims.csv` (`select_claims_to_run`) at
    profile mini, lines of the plan (`select_plan_lines`) at another profile.
    workers: the number of processes; None for as many as cores and memory allow.
    backend: where they run: "local", "ray" or "slurm".
    profile: the size of the experiments, such as "mini" or "base".
    notebook_patterns_instead_of_claims: parts of notebook names. Where given, the runs
    that these notebooks list are made instead."""

    def list_specs(claims_or_lines: list[Any]) -> list[Spec]:
        if profile == SCALE:
            return list_claim_specs_in_run_order(claims_or_lines, store)
        return list_plan_specs_in_run_order(claims_or_lines, profile, store)

    every = list_specs(
        select_claims_to_run() if profile == SCALE else select_plan_lines(profile)
    )
    if notebook_patterns_instead_of_claims:
        requested = list_notebook_specs(
            notebook_patterns_instead_of_claims, profile, store
        )
    else:
        requested = list_specs(claims_or_plan_lines)
    results = {*requested, *find_searches_and_random_draws_among_inputs(requested)}
    copy_finished_runs_to_records(results, store)
    left = set(
        store.plan_missing_runs([*every, *requested], forbid_float32_replacement=True)
    )
    saved = DeletableWeights(store)

    def delete_unneeded_input_weights(finished_specs: Iterable[Spec]) -> None:
        needed = {
            parent for other in left for parent in other.input_specs_with_seeds.values()
        }
        for spec in finished_specs:
            for name, parent in spec.input_specs_with_seeds.items():
                # An input run with a fixed seed is shared by the runs of all seeds, so
                # its weights stay.
                is_pinned = spec.inputs[name].seed is not None
                if not (is_pinned or parent in needed) and parent in saved:
                    saved.delete_weights_unless_read(parent)

    def record_run_and_free_disk(spec: Spec) -> None:
        if spec in results:
            copy_finished_runs_to_records([spec], store)
        saved.add_finished_run(spec)
        left.discard(spec)
        delete_unneeded_input_weights([spec])

    # An earlier command that was killed may have left weights that are no longer
    # needed.
    delete_unneeded_input_weights({*every} - left)
    return sweep.execute_specs(
        requested,
        store,
        workers,
        call_after_run=record_run_and_free_disk,
        checkpoint_interval_seconds=60.0,
        backend=backend,
        forbid_float32_replacement=True,
    )


class DeletableWeights:
    """A DeletableWeights is the set of runs whose weights may be deleted.

    `execute_and_record_missing_runs` adds each run whose weights it saved, and deletes
    them when no missing run needs them. Weights that a user saved are not in it. The
    set is a file of digests, one of each run's manifest (list of files), so it outlives
    a command that is stopped."""

    def __init__(self, store: Store) -> None:
        self.store, self.path = store, store.runs / ".evidence"

    def digest_run_manifest(self, spec: Spec) -> str:
        """Return the digest of a run's manifest (list of files), or "" without one.

        The set of runs whose weights may be deleted is a file of these digests. The
        digest changes if the run is made again.

        spec: the description of the run."""
        manifest = self.store.runs / spec.name / disk.MANIFEST
        return disk.digest_file(manifest) if manifest.exists() else ""

    def __contains__(self, spec: Spec) -> bool:
        notes = self.path.read_text().splitlines() if self.path.exists() else []
        return self.digest_run_manifest(spec) in notes

    def add_finished_run(self, spec: Spec) -> None:
        """Add a finished run to the set of runs whose weights may be deleted later.

        A run whose step (kind of work) saves no weights is not added.

        spec: the description of the run."""
        if STEPS[spec.step].saves_weights:
            with open(self.path, "a") as file:
                file.write(f"{self.digest_run_manifest(spec)}\n")

    def is_any_process_reading_weights(self, spec: Spec) -> bool:
        """Return whether a running process reads the weights of a run.

        The process may start a training from them, so they must not be deleted. If the
        description of any running run is unreadable, the result is True, since the
        answer is then unknown.

        spec: the description of the run whose weights are meant."""
        for part in self.store.list_unfinished_folders():
            if self.store.read_status_and_check_lock(part)["state"] == "running":
                try:
                    reader = make_spec_from_json(disk.read_json(part / "spec.json"))
                except (OSError, ValueError, KeyError, TypeError):
                    return True
                if spec in reader.input_specs_with_seeds.values():
                    return True
        return False

    def delete_weights_unless_read(self, spec: Spec) -> None:
        """Delete the weights of a run to free disk space.

        Nothing is deleted while a running process reads them.

        spec: the description of the run."""
        if not self.is_any_process_reading_weights(spec):
            shutil.rmtree(self.store.runs / spec.name / "model", ignore_errors=True)


def find_searches_and_random_draws_among_inputs(specs: Iterable[Spec]) -> set[Spec]:
    """Return the Specs of the architecture searches on which some Specs depend.

    A Spec is the description of a run. A searched network is trained in one run and was
    found in an earlier one. Notebooks show the earlier one too, so it is recorded.
    Random draws of an architecture count as searches."""
    return {spec for spec in find_transitive_input_specs(specs) if spec.step in BESIDE}


def copy_finished_runs_to_records(specs: Iterable[Spec], store: Store) -> None:
    """Copy finished runs into the folder of committed records.

    A record is a run without weights and log, from which others can compute the
    published results again. Runs that have a record, or are not finished, are skipped.

    specs: the descriptions of the runs."""
    for run in map(store.find_run, specs):
        if run and run.origin == "run":
            store.copy_run_to_records(run)


def describe_claim_progress(
    claims: Sequence[lists.ClaimsCsvRow], store: Store
) -> Iterator[str]:
    """Yield a line of text for each claim: finished seeds, missing runs and their time.

    The line ends with the outcomes of the claim's measured comparisons, such as "2
    agrees", from the committed results; it is "1 not measured" where none is measured.
    A last line has the time of all missing runs together. The user sees what the
    command `evidence` has still to do.

    claims: statements of the papers that runs test, as rows of `claims.csv`.
    store: where finished runs are looked up."""
    clock, words = sweep.TimeForecast(store), {}
    for row in read_verdicts_csv():
        is_counted_elsewhere = row["beside"] or row["same_as"]
        if row["profile"] == SCALE and row["low"] and not is_counted_elsewhere:
            words.setdefault(row["claim"], []).append(row["word"])
    for claim in claims:
        by_seed = list_claim_specs_by_seed(claim, store).values()
        done = sum(all(map(store.find_run, specs)) for specs in by_seed)
        missing = store.plan_missing_runs(
            chain(*by_seed), forbid_float32_replacement=True
        )
        left = f"{len(missing)} runs left, {clock.describe_expected_time(missing)}"
        counts = Counter(words.get(claim["id"], ["not measured"]))
        tally = ", ".join(f"{n} {word}" for word, n in counts.items())
        yield f"{claim['id']:5} {done} of {len(by_seed)} seeds, {left}, {tally}"
    left = store.plan_missing_runs(
        list_claim_specs_in_run_order(claims, store), forbid_float32_replacement=True
    )
    yield f"together left: {clock.describe_expected_time(left)}"


def describe_plan_progress(
    plan_lines: list[planned.RunPlanLine], store: Store, profile: str
) -> Iterator[str]:
    """Yield a line of text for each line of a plan: finished seeds, missing runs, cost.

    The cost is the planned core-hours, for bfloat16. A last line has their sum and the
    number of all missing runs, each counted once. The user sees what the command
    `evidence` has still to do at this profile.

    plan_lines: lines that each ask for runs of one notebook (`select_plan_lines`).
    store: where finished runs are looked up.
    profile: the size of the experiments, such as "base"."""
    for line in plan_lines:
        specs = list_plan_line_specs_by_seed(line, profile, store).values()
        done = sum(bool(group) and all(map(store.find_run, group)) for group in specs)
        missing = store.plan_missing_runs(
            chain(*specs), forbid_float32_replacement=True
        )
        left = f"{len(missing)} runs left"
        about = f"{done} of {len(line.seeds)} seeds, {left}, {line.core_hours:.1f} core-hours"
        place = f"{line.line_number:3} step {line.step:6} {line.claim_id:7}"
        yield f"{place} {line.notebook_id}: {about}"
    total = sum(line.core_hours for line in plan_lines)
    left = len(
        store.plan_missing_runs(
            list_plan_specs_in_run_order(plan_lines, profile, store),
            forbid_float32_replacement=True,
        )
    )
    yield f"together {total:.1f} core-hours planned, {left} runs left"
