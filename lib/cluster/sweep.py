"""This module makes the runs of many Specs, inputs first, under one progress bar.

An executor makes the runs (lib.cluster.executors)."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from lib.cluster import backends, executors, remote
from lib.core import paths
from lib.core.disk import read_json
from lib.core.execute import work_on_run
from lib.core.names import error_in_one_line
from lib.core.spec import Spec, uses_generated_tasks
from lib.core.store import Store, core_seconds, read_ledger, why_lost
from lib.core.types import Json


def describe_work(
    todo: Collection[Spec], store: Store | None = None, workers: int | None = None
) -> str:
    """Return the work for missing runs as text: "29 runs to make, about 3 min".

    todo: the Specs that `Store.missing_specs` returned."""
    about = Clock(store or Store()).describe_time(todo, workers or paths.count_cores())
    return f"{len(todo)} runs to make, {about}"


class Clock:
    """A Clock forecasts the core seconds of a run: the median over finished runs of the
    same step and profile.

    Runs of this machine count; records, which other machines made, count only where
    there are no such runs. Of a step with many runs, the first 300 are read: their
    names are hashes, so these are a random sample."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.took: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self.read: set[str] = set()

    def note(self, step: str, args: Json, seconds: float, origin: str = "run") -> None:
        """Add the core seconds of a finished run of a step.

        Records of the steps `digits` and `latency` are left out, because their
        arguments do not tell the profiles apart (`run_kind`)."""
        if origin == "run" or step not in ("digits", "latency"):
            self.took[origin, step, *run_kind(args)].append(seconds)

    def median(self, spec: Spec) -> float | None:
        """Return the median core seconds of finished runs like the run of a Spec, or
        None where there are none."""
        if spec.step not in self.read:
            self.read.add(spec.step)
            for run in list(self.store.list_runs(f"{spec.step}-*"))[:300]:
                # Skip damaged runs.
                with suppress(ValueError, KeyError, OSError):
                    args = read_json(run.folder / "spec.json")["args"]
                    self.note(
                        spec.step,
                        args,
                        core_seconds(read_ledger(run.folder)),
                        run.origin,
                    )
        key = spec.step, *run_kind(spec.args)
        took = self.took["run", *key] or self.took["record", *key]
        return statistics.median(took) if took else None

    def forecast(self, specs: Iterable[Spec]) -> list[float] | None:
        """Return the expected core seconds of each Spec, or None where more than half
        have no runs like them.

        The others without such runs take the mean of the known ones."""
        medians = [self.median(spec) for spec in specs]
        known = [seconds for seconds in medians if seconds is not None]
        if 2 * len(known) < len(medians):
            return None
        mean = sum(known) / max(1, len(known))
        return [mean if seconds is None else seconds for seconds in medians]

    def describe_time(self, specs: Iterable[Spec], workers: int = 1) -> str:
        """Return the expected time of runs on a number of workers as text: "about 3
        min"."""
        if (forecasts := self.forecast(specs)) is None:
            return "time unknown"
        return f"about {format_seconds(sum(forecasts) / workers)}"


def run_kind(args: Json) -> tuple[Any, ...]:
    """Return a key that is equal for runs of one step which take about the same time:
    whether data are generated, and the values of the Numerics."""
    return uses_generated_tasks(args), *(args.get("numerics") or {}).values()


def make_runs(
    specs: Iterable[Spec],
    store: Store | None = None,
    workers: int | None = None,
    keep: bool = False,
    checkpoint_seconds: float = 30.0,
    done: Callable[[Spec], object] | None = None,
    backend: str = "local",
    exact: bool = False,
) -> dict[Spec, str]:
    """Make the missing runs of some Specs and of their inputs, and return {Spec: reason
    in one line} of those that could not be made.

    A Spec is among these where its run failed, its worker died, or one of its inputs
    could not be made.

    workers, backend: as in `lib.cluster.backends.open_executor`.
    keep: whether the weights of the Specs themselves are saved.
    checkpoint_seconds: seconds between two checkpoints of a run.
    done: f(Spec), called after each run.
    exact: whether Specs are run as they are, even if the run of a float32 twin exists
    (`Store.look`)."""
    store = store or Store()
    todo = store.missing_specs(specs, keep, exact)
    if not todo:
        return {}
    graph = {spec: {p for p in spec.parents.values() if p in todo} for spec in todo}
    waiting = dict(todo)
    running: dict[Any, Spec] = {}
    ended: set[Spec] = set()
    lost: dict[Spec, str] = {}
    needed = [executors.find_need(spec) for spec in todo]
    executor = backends.open_executor(backend, needed, workers, store.runs / ".jobs")
    place = store.runs.absolute(), store.records.absolute()
    bar = Bar(todo, store, executor)
    try:
        while True:
            ready = [spec for spec in waiting if graph[spec] <= ended]
            for spec in ready[: executor.slots - len(running)]:
                job = spec.to_json(), *place, waiting.pop(spec), checkpoint_seconds
                future = executor.submit(
                    work_on_run, *job, need=executors.find_need(spec)
                )
                running[future] = spec
            if not running:
                break
            for future in executor.finished(0.5):
                spec = running.pop(future)
                try:
                    took, error = future.result()
                except Exception as death:
                    why = "its worker died; the next command resumes it"
                    took, error = 0.0, f"{why} ({error_in_one_line(death)})"
                if error:
                    lost[spec] = error
                    continue
                bar.clock.note(spec.step, spec.args, took)
                ended.add(spec)
                if done:
                    done(spec)
            bar.draw(ended, running.values())
    finally:
        executor.close()
        bar.bar.close()
    # Mark Specs whose inputs failed; inputs come before the Specs that need them.
    for spec in todo:
        for parent in graph[spec] & lost.keys():
            lost[spec] = why_lost(parent, lost[parent])
    return lost


class Bar:
    """A Bar shows the progress of many runs in one line: how many have ended, and the
    time to go."""

    def __init__(
        self,
        todo: Collection[Spec],
        store: Store,
        executor: executors.Local | remote.Ray | remote.Slurm,
    ) -> None:
        from tqdm import std

        self.todo, self.store, self.slots = list(todo), store, executor.slots
        self.clock, self.began, self.drawn = Clock(store), time.monotonic(), 0.0
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}"
        how = {"leave": False, "dynamic_ncols": True, "bar_format": form}
        self.bar = std.tqdm(total=len(todo), desc="starting workers", **how)
        # Seconds between two updates: few in a log file, where each adds a line.
        self.interval = 0.5 if paths.in_lab() or sys.stderr.isatty() else 20.0

    def draw(self, ended: Collection[Spec], running: Iterable[Spec]) -> None:
        """Draw the line again if `interval` seconds have passed, or all runs have
        ended."""
        if time.monotonic() - self.drawn < self.interval and len(ended) < len(
            self.todo
        ):
            return
        self.drawn = time.monotonic()
        shares = {
            spec: read_ledger(self.store.part(spec)).get("progress", 0.0)
            for spec in running
        }
        shares |= dict.fromkeys(ended, 1.0)
        self.bar.n = max(self.bar.n, sum(shares.values()))
        self.bar.set_description_str(
            f"{len(ended)}/{len(self.todo)} runs", refresh=False
        )
        left = self.left([shares.get(spec, 0.0) for spec in self.todo])
        to_go = (
            "time unknown" if left is None else f"about {format_seconds(left)} to go"
        )
        self.bar.set_postfix_str(to_go, refresh=False)
        self.bar.refresh()

    def left(self, shares: Iterable[float]) -> float | None:
        """Return the seconds until all runs are made, or None where the Clock has no
        forecast.

        It is the geometric mean of two estimates: by the pace so far, and by the
        Clock's forecast with all workers at full speed. Other work on the machine,
        which slows the pace, may end before the runs do. The result is between 0.6 and
        1 times the estimate by pace, as the forecast may be far off.

        shares: the share of each run that is done, in the order of `todo`."""
        if (forecasts := self.clock.forecast(self.todo)) is None:
            return None
        made = sum(
            share * seconds for share, seconds in zip(shares, forecasts, strict=True)
        )
        alone = (sum(forecasts) - made) / self.slots
        so_far = (
            alone * self.slots * (self.drawn - self.began) / made
            if 1.0 in shares
            else alone
        )
        return statistics.median([0.6 * so_far, (alone * so_far) ** 0.5, so_far])


def format_seconds(seconds: float) -> str:
    """Return seconds as text: "12 s", "34 min", "5.6 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
