"""This module makes the runs of many Specs, inputs first, under one progress bar.

An executor makes the runs (lib.cluster.executors)."""

from __future__ import annotations

import heapq
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from lib.cluster import backends, executors, remote
from lib.core import paths
from lib.core.disk import read_json
from lib.core.execute import make_run_in_worker
from lib.core.names import error_in_one_line
from lib.core.spec import Spec, from_json, uses_generated_tasks
from lib.core.store import Store, count_core_seconds, explain_lost_run, read_ledger
from lib.core.types import Json

# Work at full speed that a forecast takes as seen, as a share of the whole work.
CALM = 0.25


def describe_work(
    missing_specs: Collection[Spec], clock: Clock, workers: int | None = None
) -> str:
    """Return the work for missing runs as text: "29 runs to make, about 3 min on 2
    workers".

    missing_specs: the Specs that `Store.missing_specs` returned."""
    workers = workers or paths.count_cores()
    return f"{len(missing_specs)} runs to make, {clock.describe_time(missing_specs, workers)}"


class Clock:
    """A Clock forecasts the core seconds of a run from finished runs: of the same Spec
    at other seeds, or else of the same kind (`identify_run_kind`).

    It takes the median over these runs of their seconds, divided by their `prior` and
    multiplied by that of the new run. So runs on other rows count. Without any such run
    the prior itself is the forecast. Records, which other machines made, count by the
    pace of this one. Of a step with many runs, the first 300 are read: their names are
    hashes, so these are a random sample.

    prior: f(Spec, metrics of its run, {} before it) -> core seconds by a count of its
    work; without it, runs of a kind are expected to take the same time."""

    def __init__(
        self, store: Store, prior: Callable[[Spec, Json], float] | None = None
    ) -> None:
        self.store, self.prior = store, prior
        self.took: dict[Any, dict[str, list[float]]] = defaultdict(
            lambda: {"run": [], "record": []}
        )  # {Spec's id or kind: {origin: seconds by prior}}
        self.read: set[str] = set()

    def count_work(self, spec: Spec, metrics: Json) -> float:
        """Return the prior of a Spec, or 1 for each where there is no prior."""
        return self.prior(spec, metrics) if self.prior else 1.0

    def note_seconds(
        self,
        spec: Spec,
        seconds: float,
        origin: str = "run",
        metrics: Json | None = None,
    ) -> None:
        """Add the core seconds of the finished run of a Spec.

        Records of the steps `digits` and `latency` are left out, because their
        arguments do not tell the profiles apart (`identify_run_kind`)."""
        if origin == "run" or spec.step not in ("digits", "latency"):
            ratio = seconds / self.count_work(spec, metrics or {})
            for key in (spec.id, identify_run_kind(spec)):
                self.took[key][origin].append(ratio)
            self.__dict__.pop("pace", None)  # It is computed again.

    def median_seconds(self, spec: Spec) -> float | None:
        """Return the expected core seconds of the run of a Spec, or None where there
        are neither runs like it nor a prior.

        Runs of the same Spec at other seeds count before those of its kind."""
        self.read_runs(spec.step)
        for key in (spec.id, identify_run_kind(spec)):
            took = self.took[key]
            ratios = took["run"] + [self.pace * ratio for ratio in took["record"]]
            if ratios:
                return statistics.median(ratios) * self.count_work(spec, {})
        return self.prior(spec, {}) if self.prior else None

    @cached_property
    def pace(self) -> float:
        """Return the seconds that this machine takes for one second of the records, by
        the runs that both have."""
        paces = [
            statistics.median(took["run"]) / statistics.median(took["record"])
            for took in self.took.values()
            if took["run"] and took["record"]
        ]
        return statistics.median(paces) if paces else 1.0

    def read_runs(self, step: str) -> None:
        """Read the finished runs of a step, once."""
        if step in self.read:
            return
        self.read.add(step)
        for run in list(self.store.list_runs(f"{step}-*"))[:300]:
            # Skip damaged runs.
            with suppress(ValueError, KeyError, OSError):
                body, metrics = (
                    read_json(run.folder / f"{name}.json")
                    for name in ("spec", "metrics")
                )
                ledger = read_ledger(run.folder)
                # Old records have the seconds of a busy clock alone.
                if ledger["core_seconds"] or run.origin == "run":
                    seconds = count_core_seconds(ledger)
                    self.note_seconds(from_json(body), seconds, run.origin, metrics)

    def forecast_seconds(self, specs: Iterable[Spec]) -> list[float] | None:
        """Return the expected core seconds of each Spec, or None where more than half
        have no runs like them.

        The others without such runs take the mean of the known ones."""
        medians = [self.median_seconds(spec) for spec in specs]
        known = [seconds for seconds in medians if seconds is not None]
        if 2 * len(known) < len(medians):
            return None
        mean = sum(known) / max(1, len(known))
        return [mean if seconds is None else seconds for seconds in medians]

    def describe_time(self, specs: Collection[Spec], workers: int = 1) -> str:
        """Return the expected time of runs on a number of workers as text: "about 3 min
        of a core", "about 2 min on 2 workers"."""
        if (forecasts := self.forecast_seconds(specs)) is None:
            return "time unknown"
        about = format_seconds(schedule(specs, forecasts, workers))
        return (
            f"about {about} {'of a core' if workers == 1 else f'on {workers} workers'}"
        )


def schedule(todo: Collection[Spec], seconds: Iterable[float], workers: int) -> float:
    """Return the seconds until some workers have made all runs, inputs first, as
    `make_runs` does.

    A chain of runs, each an input of the next, keeps one worker busy alone.

    todo: Specs, inputs before the Specs that need them. seconds: of each of them."""
    took = dict(zip(todo, seconds, strict=True))
    place = {spec: number for number, spec in enumerate(took)}
    heirs: dict[Spec, list[Spec]] = defaultdict(list)
    waits = {spec: {*spec.inputs_with_seeds.values()} & took.keys() for spec in took}
    for spec, inputs in waits.items():
        for parent in inputs:
            heirs[parent].append(spec)
    ready = [place[spec] for spec, inputs in waits.items() if not inputs]
    order, now, busy = list(took), 0.0, []
    while ready or busy:
        while ready and len(busy) < workers:
            number = heapq.heappop(ready)
            heapq.heappush(busy, (now + took[order[number]], number))
        now, number = heapq.heappop(busy)
        for heir in heirs[order[number]]:
            waits[heir].discard(order[number])
            if not waits[heir]:
                heapq.heappush(ready, place[heir])
    return now


def identify_run_kind(spec: Spec) -> tuple[Any, ...]:
    """Return a key that is equal for runs that take about the same time for equal work:
    the step, whether data are generated, the values of the Numerics, and what the run
    starts from and learns from."""
    begin = spec.inputs.get("start")
    numerics = (spec.args.get("numerics") or {}).values()
    is_generated, is_student = uses_generated_tasks(spec.args), "teacher" in spec.inputs
    return spec.step, is_generated, *numerics, begin and begin.step, is_student


def make_runs(
    specs: Iterable[Spec],
    store: Store | None = None,
    workers: int | None = None,
    keep_weights: bool = False,
    checkpoint_seconds: float = 30.0,
    call_after_run: Callable[[Spec], object] | None = None,
    backend: str = "local",
    keep_dtype: bool = False,
    clock: Clock | None = None,
) -> dict[Spec, str]:
    """Make the missing runs of some Specs and of their inputs, and return {Spec: reason
    in one line} of those that could not be made.

    A Spec is among these where its run failed, its worker died, or one of its inputs
    could not be made.

    workers, backend: as in `lib.cluster.backends.open_executor`.
    keep_weights: whether the weights of the Specs themselves are saved.
    checkpoint_seconds: seconds between two checkpoints of a run.
    call_after_run: f(Spec), called after each run.
    keep_dtype: whether Specs are run as they are, even if the run of a float32 twin
    exists (`Store.find_run_or_twin`).
    clock: the Clock that forecast the runs; without it, one of the store."""
    store = store or Store()
    todo = store.missing_specs(specs, keep_weights, keep_dtype)
    if not todo:
        return {}
    graph = {
        spec: {p for p in spec.inputs_with_seeds.values() if p in todo} for spec in todo
    }
    waiting = dict(todo)
    running: dict[Any, Spec] = {}
    began: dict[Spec, float] = {}
    ended: set[Spec] = set()
    lost: dict[Spec, str] = {}
    needed = [executors.find_need(spec) for spec in todo]
    executor = backends.open_executor(backend, needed, workers, store.runs / ".jobs")
    place = store.runs.absolute(), store.records.absolute()
    bar = Bar(todo, clock or Clock(store), executor)
    try:
        while True:
            ready = [spec for spec in waiting if graph[spec] <= ended]
            for spec in ready[: executor.slots - len(running)]:
                job = spec.to_json(), *place, waiting.pop(spec), checkpoint_seconds
                future = executor.submit(
                    make_run_in_worker, *job, need=executors.find_need(spec)
                )
                running[future], began[spec] = spec, time.monotonic()
            if not running:
                break
            for future in executor.wait_for_finished(0.5):
                spec = running.pop(future)
                try:
                    took, error = future.result()
                except Exception as death:
                    why = "its worker died; the next command resumes it"
                    took, error = 0.0, f"{why} ({error_in_one_line(death)})"
                if error:
                    lost[spec] = error
                    continue
                bar.note(spec, took, time.monotonic() - began[spec])
                ended.add(spec)
                if call_after_run:
                    call_after_run(spec)
            bar.draw(ended, running.values())
    finally:
        executor.close()
        bar.bar.close()
    # Mark Specs whose inputs failed; inputs come before the Specs that need them.
    for spec in todo:
        for parent in graph[spec] & lost.keys():
            lost[spec] = explain_lost_run(parent, lost[parent])
    return lost


class Bar:
    """A Bar shows the progress of many runs in one line: how many have ended, and the
    time to go."""

    def __init__(
        self,
        missing_specs: Collection[Spec],
        clock: Clock,
        executor: executors.Local | remote.Ray | remote.Slurm,
    ) -> None:
        from tqdm import std

        self.todo, self.clock, self.slots = list(missing_specs), clock, executor.slots
        self.drawn = self.core = self.wall = 0.0
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}"
        how = {"leave": False, "dynamic_ncols": True, "bar_format": form}
        self.bar = std.tqdm(total=len(missing_specs), desc="starting workers", **how)
        # Seconds between two updates: few in a log file, where each adds a line.
        self.interval = (
            0.5 if paths.is_in_jupyter_lab() or sys.stderr.isatty() else 20.0
        )

    def note(self, spec: Spec, core: float, wall: float) -> None:
        """Note the core seconds of a finished run, and those of a clock that passed
        while it was made."""
        self.clock.note_seconds(spec, core)
        self.core, self.wall = self.core + core, self.wall + wall

    def draw(
        self, ended_specs: Collection[Spec], running_specs: Iterable[Spec]
    ) -> None:
        """Draw the line again if `interval` seconds have passed, or all runs have
        ended."""
        if time.monotonic() - self.drawn < self.interval and len(ended_specs) < len(
            self.todo
        ):
            return
        self.drawn, store = time.monotonic(), self.clock.store
        ledgers = {
            spec: read_ledger(store.unfinished_folder(spec)) for spec in running_specs
        }
        shares = {spec: line.get("progress", 0.0) for spec, line in ledgers.items()}
        shares |= dict.fromkeys(ended_specs, 1.0)
        self.bar.n = max(self.bar.n, sum(shares.values()))
        self.bar.set_description_str(
            f"{len(ended_specs)}/{len(self.todo)} runs", refresh=False
        )
        left = self.estimate_seconds_left(
            [shares.get(spec, 0.0) for spec in self.todo], ledgers.values()
        )
        to_go = (
            "time unknown" if left is None else f"about {format_seconds(left)} to go"
        )
        self.bar.set_postfix_str(to_go, refresh=False)
        self.bar.refresh()

    def estimate_seconds_left(
        self, finished_shares: Sequence[float], ledgers: Collection[Json] = ()
    ) -> float | None:
        """Return the seconds until all runs are made, or None where the Clock has no
        forecast.

        It is the Clock's forecast of what is left, times the seconds that passed for a
        core second of the runs. Other work on the machine, which slows them, may end
        before the runs do. So a number of core seconds at full speed (CALM, a share of
        the whole work) counts beside them, and no first seconds decide.

        finished_shares: the share of each run that is done, in the order of `todo`.
        ledgers: those of unfinished runs."""
        if (forecasts := self.clock.forecast_seconds(self.todo)) is None:
            return None
        rest = [
            (1 - share) * seconds
            for share, seconds in zip(finished_shares, forecasts, strict=True)
        ]
        calm = CALM * sum(forecasts)
        wall = self.wall + calm + sum(ledger["seconds"] for ledger in ledgers)
        core = self.core + calm + sum(map(count_core_seconds, ledgers))
        pace = wall / core if core else 1.0
        return schedule(self.todo, rest, self.slots) * pace


def format_seconds(seconds: float) -> str:
    """Return seconds as text: "12 s", "34 min", "5.6 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
