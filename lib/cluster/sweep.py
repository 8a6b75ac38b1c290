"""This module executes many Specs (descriptions of runs), inputs first, under one
progress bar, and forecasts how long that takes.

An executor (lib.cluster.executors, lib.cluster.remote) executes the runs, in worker
processes or on a cluster."""

from __future__ import annotations

import heapq
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, TypeAlias

from lib.cluster import backends, executors, remote
from lib.core import paths
from lib.core.disk import read_json
from lib.core.execute import execute_in_worker
from lib.core.names import format_error_in_one_line
from lib.core.spec import Spec, make_spec_from_json, uses_toy_data
from lib.core.store import (
    Origin,
    RunStatusJson,
    Store,
    count_core_seconds,
    format_error_of_failed_input,
    read_run_status,
)

if TYPE_CHECKING:
    from lib.core.types import Json

    RunMetrics = Json  # {metric: value} of a run; {} before it has run.
    CoreSeconds = float
    TimeUnknown: TypeAlias = None

ErrorBySpec: TypeAlias = dict[Spec, str]  # {Spec: why it could not be run}
# The time to go is the forecast in CPU seconds, times a ratio of clock seconds to CPU
# seconds that is measured while runs are made. CALM times all forecast CPU seconds is
# added to the numerator and the denominator of this ratio. So the ratio starts near 1,
# and a few slow first seconds hardly change it.
CALM = 0.25


def describe_missing_runs(
    missing_specs: Collection[Spec],
    time_forecast: TimeForecast,
    workers: int | None = None,
) -> str:
    """Return how much work the missing training runs are, as text for the user.

    An example is "29 runs to make, about 3 min on 2 workers".

    missing_specs: the Specs (descriptions of runs) that still have to be run.
    time_forecast: gives the expected time of each run.
    workers: how many runs are made at once; by default as many as this machine can
    make."""
    workers = workers or count_workers(missing_specs)
    about = time_forecast.describe_expected_time(missing_specs, workers)
    return f"{len(missing_specs)} runs to make, {about}"


def count_workers(specs: Collection[Spec]) -> int:
    """Return how many of these runs this machine makes at once: as many as its cores
    and free memory allow, 1 if a run needs the GPU, and 1 for no runs.

    specs: the descriptions of the runs."""
    needed = [executors.estimate_resources(spec) for spec in specs]
    return backends.count_runs_that_fit(needed) if needed else 1


class TimeForecast:
    """A TimeForecast predicts how many CPU core seconds a training run will take.

    It learns from finished runs: those of the same Spec (description of a run) at other
    seeds, or else similar runs, such as other fine-tunings in the same dtype. Progress
    lines and plans show the expected time.

    The function `core_seconds_estimator` estimates seconds by a count of the run's
    work, such as its rows. The prediction is this estimate for the new run, times the
    median over finished runs of (measured seconds / estimate), so that finished runs on
    fewer or more rows count too. Without a finished run the prediction is the estimate
    itself. Committed runs (results of other machines in the repository) are scaled to
    the speed of this machine. At most 300 runs of a step (kind of work) are read.

    store: the folders of finished runs.
    core_seconds_estimator: f(Spec, metrics of its finished run, or {} before it has
    run) -> core seconds. Without this function, similar runs are expected to take the
    same time."""

    def __init__(
        self,
        store: Store,
        core_seconds_estimator: Callable[[Spec, RunMetrics], CoreSeconds] | None = None,
    ) -> None:
        self.store = store
        self.has_estimator = core_seconds_estimator is not None
        # Without an estimator all runs count alike, so their seconds are not divided.
        self.estimate = core_seconds_estimator or (lambda spec, metrics: 1.0)
        # {id of a Spec, or key of similar runs: {origin, "run" or "record": [measured
        # seconds / estimated seconds, for each run]}}.
        self.took: dict[Any, dict[str, list[float]]] = defaultdict(
            lambda: {"run": [], "record": []}
        )
        self.read: set[str] = set()

    def add_finished_run(
        self,
        spec: Spec,
        core_seconds: float,
        origin: Origin = "run",
        run_metrics: RunMetrics | None = None,
    ) -> None:
        """Add the measured time of a finished run, to predict the times of other runs.

        Committed runs of the kinds `digits` (a training on images) and `latency` are
        ignored, because their Specs do not tell how large the runs were.

        spec: the description of the run.
        core_seconds: its CPU seconds over all cores.
        origin: "run" for a run of this machine, "record" for one in the repository (a
        committed run).
        run_metrics: the metrics of the run, for the estimate of its work."""
        if origin == "run" or spec.step not in ("digits", "latency"):
            ratio = core_seconds / self.estimate(spec, run_metrics or {})
            for key in (spec.id, make_key_of_similar_runs(spec)):
                self.took[key][origin].append(ratio)
            # This cached property depends on all finished runs that were added. It is
            # dropped here, so that it is computed again with the new run.
            self.__dict__.pop("slowdown_against_recorded_runs", None)

    def forecast_run_core_seconds(self, spec: Spec) -> float | TimeUnknown:
        """Return the expected CPU core seconds of one training run.

        Finished runs of the same Spec at other seeds are used if there are any, and
        else similar runs. Without such runs the result is the estimate by the run's
        amount of work (`core_seconds_estimator`), or None without this function.

        spec: the description of the run."""
        self.add_finished_runs_of_step(spec.step)
        for key in (spec.id, make_key_of_similar_runs(spec)):
            took = self.took[key]
            ratios = took["run"] + [
                self.slowdown_against_recorded_runs * ratio for ratio in took["record"]
            ]
            if ratios:
                return statistics.median(ratios) * self.estimate(spec, {})
        return self.estimate(spec, {}) if self.has_estimator else None

    @cached_property
    def slowdown_against_recorded_runs(self) -> float:
        """Return how many times slower this machine is than those of committed runs.

        Committed runs, or records, are results of other machines in the repository. The
        factor is the time of a run here divided by its time there: the median over the
        kinds of runs that were made in both places, or 1 where there is no such kind.
        Forecasts multiply the times of committed runs by it."""
        paces = [
            statistics.median(took["run"]) / statistics.median(took["record"])
            for took in self.took.values()
            if took["run"] and took["record"]
        ]
        return statistics.median(paces) if paces else 1.0

    def add_finished_runs_of_step(self, step_name: str) -> None:
        """Read the times of the finished runs of a step into this forecast, once.

        Other runs of the same step (kind of work) are predicted from them. At most 300
        runs are read, those of this machine first; damaged runs are skipped.

        step_name: a kind of work, such as "finetune"."""
        if step_name in self.read:
            return
        self.read.add(step_name)
        runs = self.store.iterate_finished_runs(f"{step_name}-*")
        for run in sorted(runs, key=lambda run: run.origin == "record")[:300]:
            # Skip runs whose files are damaged or lack an entry.
            with suppress(ValueError, KeyError, OSError):
                body = read_json(run.folder / "spec.json")
                metrics = read_json(run.folder / "metrics.json")
                run_status = read_run_status(run.folder)
                # Skip old committed runs without CPU seconds: they have only seconds of
                # a wall clock, on another machine that also did other work. A run of
                # this machine counts by its wall clock, as nothing better is known.
                if run_status["core_seconds"] or run.origin == "run":
                    seconds = count_core_seconds(run_status)
                    self.add_finished_run(
                        make_spec_from_json(body), seconds, run.origin, metrics
                    )

    def forecast_core_seconds_per_run(
        self, specs: Iterable[Spec]
    ) -> list[float] | TimeUnknown:
        """Return the expected CPU core seconds of each of several training runs.

        A run without a forecast counts as the mean of the others. Returns None where
        more than half of the runs have no forecast.

        specs: the descriptions of the runs."""
        medians = [self.forecast_run_core_seconds(spec) for spec in specs]
        known = [seconds for seconds in medians if seconds is not None]
        if 2 * len(known) < len(medians):
            return None
        mean = sum(known) / max(1, len(known))
        return [mean if seconds is None else seconds for seconds in medians]

    def describe_expected_time(self, specs: Collection[Spec], workers: int = 1) -> str:
        """Return the expected time of several training runs as text for the user.

        It is "about 3 min of a core" for one worker, "about 2 min on 2 workers" for
        more, or "time unknown" where too few of the runs have a forecast.

        specs: the descriptions of the runs, each after the runs that it needs.
        workers: how many runs are made at once."""
        if (forecasts := self.forecast_core_seconds_per_run(specs)) is None:
            return "time unknown"
        about = format_seconds(estimate_schedule_seconds(specs, forecasts, workers))
        return (
            f"about {about} {'of a core' if workers == 1 else f'on {workers} workers'}"
        )


def estimate_schedule_seconds(
    specs: Collection[Spec], seconds_per_spec: Iterable[float], workers: int
) -> float:
    """Return the seconds until a number of workers have made all runs, by a simulation.

    A run begins when its inputs are made and a worker is idle, as in `execute_specs`.
    So a chain of runs, each an input of the next, keeps only one worker busy.

    specs: the Specs (descriptions) of the runs, inputs before the Specs that need them.
    seconds_per_spec: the seconds that each run takes."""
    took = dict(zip(specs, seconds_per_spec, strict=True))
    order = list(took)
    place = {spec: number for number, spec in enumerate(order)}
    graph = TopologicalSorter(
        {spec: {*spec.input_specs_with_seeds.values()} & took.keys() for spec in order}
    )
    graph.prepare()
    now = 0.0
    # Two heaps. `ready` has the positions in `order` of runs that can begin. `busy` has
    # (end in seconds, position in `order`) of runs that a worker is making.
    ready: list[int] = []
    busy: list[tuple[float, int]] = []
    while graph.is_active():
        for spec in graph.get_ready():
            heapq.heappush(ready, place[spec])
        while ready and len(busy) < workers:
            number = heapq.heappop(ready)
            heapq.heappush(busy, (now + took[order[number]], number))
        now, number = heapq.heappop(busy)
        graph.done(order[number])
    return now


def make_key_of_similar_runs(spec: Spec) -> tuple[Any, ...]:
    """Return a key that is equal for similar runs, by which their times are forecast.

    The key has the step (kind of work), whether the data are generated toy data, the
    numerics (dtype, threads, device), the step that made the initial model (None
    without one), and whether there is a teacher. Similar runs take about the same time
    for the same number of rows."""
    begin = spec.inputs.get("start")
    numerics = (spec.args.get("numerics") or {}).values()
    is_generated, is_student = uses_toy_data(spec.args), "teacher" in spec.inputs
    return spec.step, is_generated, *numerics, begin and begin.step, is_student


def execute_specs(
    specs: Iterable[Spec],
    store: Store | None = None,
    workers: int | None = None,
    keep_weights: bool = False,
    checkpoint_interval_seconds: float = 30.0,
    call_after_run: Callable[[Spec], object] | None = None,
    backend: str = "local",
    forbid_float32_replacement: bool = False,
    time_forecast: TimeForecast | None = None,
) -> ErrorBySpec:
    """Execute all runs that are still missing, their inputs first, in parallel.

    A Spec is the description of a run (a training or a measurement), and may need other
    runs as inputs, such as a teacher. Specs that have a finished run in the store are
    skipped. Returns {Spec: reason in one line} of those that could not be run, because
    the run failed, its worker died, or one of its inputs could not be run; {} if all is
    well. Raises Refused for an unknown backend.

    store: the folders of runs; by default those of this project.
    workers: the number of runs at once; by default as many as cores and memory allow,
    1 on this machine's GPU, and at most 100 on a cluster.
    keep_weights: whether the weights of the given Specs are saved. Weights of inputs
    and of runs on toy data are saved in any case.
    checkpoint_interval_seconds: seconds between two checkpoints, from which a stopped
    run resumes.
    call_after_run: f(Spec), called after each run that succeeded.
    backend: "local", "ray" or "slurm" (`lib.cluster.backends.open_executor`).
    forbid_float32_replacement: whether a Spec in bfloat16 is run even where the same
    Spec in float32 has a run, or where this processor has no bfloat16 instructions.
    Otherwise the float32 run takes its place.
    time_forecast: predicts the time to go; by default one is made from the store."""
    store = store or Store()
    todo = store.plan_missing_runs(specs, keep_weights, forbid_float32_replacement)
    if not todo:
        return {}
    graph = {
        spec: {p for p in spec.input_specs_with_seeds.values() if p in todo}
        for spec in todo
    }
    waiting = dict(todo)
    running: dict[Any, Spec] = {}
    ended: set[Spec] = set()
    lost: ErrorBySpec = {}
    needed = {spec: executors.estimate_resources(spec) for spec in todo}
    executor = backends.open_executor(
        backend, [*needed.values()], workers, store.runs / ".jobs"
    )
    bar = ProgressBar(todo, time_forecast or TimeForecast(store), executor)
    try:
        while True:
            ready = [spec for spec in waiting if graph[spec] <= ended]
            for spec in ready[: executor.slots - len(running)]:
                future = executor.submit(
                    execute_in_worker,
                    spec.to_json(),
                    store.runs.absolute(),
                    store.records.absolute(),
                    waiting.pop(spec),
                    checkpoint_interval_seconds,
                    resources=needed[spec],
                )
                running[future] = spec
            if not running:
                break
            for future in executor.wait_for_any_finished_call(0.5):
                spec = running.pop(future)
                try:
                    took, error, passed = future.result()
                except Exception as death:
                    why = "its worker died; the next command resumes it"
                    error = f"{why} ({format_error_in_one_line(death)})"
                    took = passed = 0.0
                if error:
                    lost[spec] = error
                    continue
                bar.add_finished_run(spec, took, passed)
                ended.add(spec)
                if call_after_run:
                    call_after_run(spec)
            without_result = {*lost}
            for spec in waiting:  # Inputs come first.
                if graph[spec] & without_result:
                    without_result.add(spec)
            bar.update_progress_line(ended, running.values(), without_result)
    finally:
        executor.close()
        bar.bar.close()
    # Give each Spec whose input failed the reason for that. Inputs come first in
    # `todo`, so a failure reaches all Specs that depend on it, directly or through
    # others.
    for spec in todo:
        for parent in graph[spec] & lost.keys():
            lost[spec] = format_error_of_failed_input(parent, lost[parent])
    return lost


class ProgressBar:
    """A ProgressBar shows the progress of many training runs in one line.

    The line has the number of runs that have ended, and the time to go.

    missing_specs: the Specs (descriptions) of all runs that are to be made, each after
    the runs that it needs.
    time_forecast: predicts the seconds of each run.
    executor: makes the runs; its `slots` is the number of runs at once."""

    def __init__(
        self,
        missing_specs: Collection[Spec],
        time_forecast: TimeForecast,
        executor: executors.Local | remote.Ray | remote.Slurm,
    ) -> None:
        from tqdm import std

        self.todo = list(missing_specs)
        self.clock = time_forecast
        self.slots = executor.slots
        self.drawn = self.core = self.wall = 0.0
        self.bar = std.tqdm(
            total=len(missing_specs),
            desc="starting workers",
            leave=False,
            dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}",
        )
        # Seconds between two updates. In a log file each update adds a line, so there
        # they are rare.
        self.interval = (
            0.5 if paths.is_in_jupyter_lab() or sys.stderr.isatty() else 20.0
        )

    def add_finished_run(
        self, spec: Spec, core_seconds: float, clock_seconds: float
    ) -> None:
        """Add the times of a finished run, from which the time to go is estimated.

        spec: the description of the run.
        core_seconds: its CPU seconds over all cores.
        clock_seconds: the seconds that passed on the clock. Like `core_seconds` they
        are those of all attempts, so that a resumed run does not look fast."""
        self.clock.add_finished_run(spec, core_seconds)
        self.core += core_seconds
        self.wall += clock_seconds

    def update_progress_line(
        self,
        ended_specs: Collection[Spec],
        running_specs: Iterable[Spec],
        lost_specs: Collection[Spec] = (),
    ) -> None:
        """Draw the progress line again, if the last time is long enough ago.

        Nothing happens within `interval` seconds of the last drawing, unless all runs
        have ended. An ended run counts as 1, and a running one as the fraction of its
        work that is done, which it writes to its folder.

        ended_specs, running_specs: the Specs (descriptions) of runs that have ended and
        that are running.
        lost_specs: those that failed, or that need one that failed: nothing of them is
        left to do."""
        if time.monotonic() - self.drawn < self.interval and len(ended_specs) < len(
            self.todo
        ):
            return
        self.drawn, store = time.monotonic(), self.clock.store
        statuses = {
            spec: read_run_status(store.get_unfinished_folder_path(spec))
            for spec in running_specs
        }
        shares = {spec: line.get("progress", 0.0) for spec, line in statuses.items()}
        shares |= dict.fromkeys([*ended_specs, *lost_specs], 1.0)
        self.bar.n = max(self.bar.n, sum(shares.values()))
        self.bar.set_description_str(
            f"{len(ended_specs)}/{len(self.todo)} runs", refresh=False
        )
        left = self.estimate_seconds_left(
            [shares.get(spec, 0.0) for spec in self.todo], statuses.values()
        )
        to_go = (
            "time unknown" if left is None else f"about {format_seconds(left)} to go"
        )
        self.bar.set_postfix_str(to_go, refresh=False)
        self.bar.refresh()

    def estimate_seconds_left(
        self,
        finished_fraction_per_run: Sequence[float],
        unfinished_run_statuses: Collection[RunStatusJson] = (),
    ) -> float | TimeUnknown:
        """Return the clock seconds until all runs are made, or None without a forecast.

        The forecast of the remaining work is multiplied by the clock seconds that each
        CPU second has taken so far, as other work may slow the machine.

        finished_fraction_per_run: the fraction of each run of this progress bar that is
        done, 0 to 1.
        unfinished_run_statuses: the contents of `status.json` of unfinished runs, which
        have the clock and CPU seconds so far."""
        if (forecasts := self.clock.forecast_core_seconds_per_run(self.todo)) is None:
            return None
        rest = [
            (1 - share) * seconds
            for share, seconds in zip(finished_fraction_per_run, forecasts, strict=True)
        ]
        calm = CALM * sum(forecasts)
        wall = (
            self.wall
            + calm
            + sum(status["seconds"] for status in unfinished_run_statuses)
        )
        core = self.core + calm + sum(map(count_core_seconds, unfinished_run_statuses))
        pace = wall / core if core else 1.0
        return estimate_schedule_seconds(self.todo, rest, self.slots) * pace


def format_seconds(seconds: float) -> str:
    """Return a number of seconds as short text: "12 s", "34 min" or "5.6 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
