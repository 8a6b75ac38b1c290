"""This module makes many Specs as one graph, under one progress bar.

The inputs of a run are made before it. Runs are made by an executor
(lib.cluster.executors)."""

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

    todo: what `Store.missing_specs` returned.
    """
    about = Clock(store or Store()).describe_time(todo, workers or paths.count_cores())
    return f"{len(todo)} runs to make, {about}"


class Clock:
    """A Clock forecasts the seconds of runs: the median over runs of the same step and
    profile.

    They are runs of the store and those that this process noted; where there are none,
    they are records, which other machines made. If a step has very many runs, only the
    first ones are read; as their names are hashes, these are a fair sample. Their
    arrays are not looked at."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.took: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self.read: set[str] = set()

    def note(self, step: str, args: Json, seconds: float, origin: str = "run") -> None:
        """Note how many seconds a run of a step took.

        Its rows and numerics tell the profiles apart, but not those of records of
        digits and of latencies, so these are not noted."""
        if origin == "run" or step not in ("digits", "latency"):
            self.took[origin, step, *run_kind(args)].append(seconds)

    def median(self, spec: Spec) -> float | None:
        """Return the median seconds of runs like that of a Spec, or None where none is
        known."""
        if spec.step not in self.read:
            self.read.add(spec.step)
            for run in list(self.store.list_runs(f"{spec.step}-*"))[:300]:
                with suppress(ValueError, KeyError, OSError):  # It may be damaged.
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
        """Return [expected seconds] of Specs, or None where most of them are unknown.

        An unknown one takes the mean of the others, which would be that of few if most
        were unknown."""
        medians = [self.median(spec) for spec in specs]
        known = [seconds for seconds in medians if seconds is not None]
        if 2 * len(known) < len(medians):
            return None
        mean = sum(known) / max(1, len(known))
        return [mean if seconds is None else seconds for seconds in medians]

    def describe_time(self, specs: Iterable[Spec], workers: int = 1) -> str:
        """Return the expected time of runs as text."""
        if (forecasts := self.forecast(specs)) is None:
            return "time unknown"
        return f"about {format_seconds(sum(forecasts) / workers)}"


def run_kind(args: Json) -> tuple[Any, ...]:
    """Return what runs of one step must have in common, for one to tell how long
    another takes."""
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
    """Make what is missing, in the order of the Specs. Returns {Spec: one line} of lost
    Specs.

    A Spec is lost where its run failed, its worker died, or an input of it is lost.
    exact: whether these Specs themselves are made, also where a twin could stand for
    one (`Store.look`). workers, backend: as `lib.cluster.backends.open_executor` takes
    them. keep: whether the weights of the Specs themselves are saved. done: f(spec),
    called when a run was made."""
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
    for spec in todo:  # Inputs come first.
        for parent in graph[spec] & lost.keys():
            lost[spec] = why_lost(parent, lost[parent])
    return lost


class Bar:
    """The Bar shows the progress of a sweep in one line: runs that ended, and the time
    to go."""

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
        # A log file should have few lines.
        self.interval = 0.5 if paths.in_lab() or sys.stderr.isatty() else 20.0

    def draw(self, ended: Collection[Spec], running: Iterable[Spec]) -> None:
        """Draw the line anew if it is time, or if all runs have ended."""
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
        """Return the seconds until all runs are made.

        It is the geometric mean of two: by the pace so far, and by that of workers that
        nothing slows. What slows them now, such as pages that are made beside them, may
        end before the runs do. The result stays between 0.6 and 1 times that of the
        pace so far, as the clock may be far off.

        shares: the share of each run that is done. It is None where most runs are
        unknown to the clock."""
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
