"""Sweep: many Specs as one graph, made under one progress bar.

    rows = [{"width": m, "spec": student(m).at(seed)} for m in (9, 6, 3, 1) for seed in (0, 1)]
    make([row["spec"] for row in rows])
    frame = collect(rows)        # one line a row, its metrics beside it

The inputs of a run are made before it. Who makes it is an executor (lib.runs.executors).
"""

import statistics
import sys
import time
from collections import defaultdict
from contextlib import suppress
from itertools import islice

from lib.runs import executors, paths
from lib.runs.execute import one_line, work
from lib.runs.store import Store, ledger
from lib.steps import STEPS


def missing(specs, store=None, keep=False):
    """Return {Spec: whether its weights are needed} of the runs that must be made for some Specs,
    inputs first; keep: the weights of the Specs are wanted as well.

    The inputs of a run that is there are not looked at: its result stands on its own.
    """
    store = store or Store()
    looked, todo = {}, {}

    def need(spec, weights):
        weights = bool(weights and STEPS[spec.step].weights)
        if looked.get(spec, -1) >= weights:
            return
        looked[spec] = weights
        if store.find(spec, weights):
            return
        for parent in spec.parents.values():
            need(parent, True)
        todo[spec] = weights

    for spec in specs:
        need(spec, keep)
    return todo


def expected(todo, store=None, workers=None):
    """Return what missing runs (`missing`) take, as text: "29 runs to make, about 3 min"."""
    about = Clock(store or Store()).about(todo, workers or paths.cores())
    return f"{len(todo)} runs to make, {about}"


class Clock:
    """Expected seconds of runs: the median over runs of the same step and profile.

    They are runs and records of the store, and those that this process noted. Of a step with very
    many runs the first ones are read: their names are hashes.
    """

    def __init__(self, store):
        self.store, self.took, self.read = store, defaultdict(list), set()

    def note(self, step, args, seconds):
        """Note what a run of a step took. Numerics tell the profiles apart."""
        self.took[step, *(args.get("numerics") or {}).values()].append(seconds)

    def median(self, spec):
        """Seconds of runs like that of a Spec; None where nothing is known of any."""
        if spec.step not in self.read:
            self.read.add(spec.step)
            for run in islice(self.store.every(f"{spec.step}-*"), SAMPLE):
                with suppress(ValueError, KeyError, OSError):  # damaged: who wants it is told
                    self.note(spec.step, run.spec["args"], run.cost)
        took = self.took[spec.step, *(spec.args.get("numerics") or {}).values()]
        return statistics.median(took) if took else None

    def forecast(self, specs):
        """Return [expected seconds] of Specs, the mean of the others where nothing is known of a
        run's like; None where nothing is known of most: the others' mean would be that of few.
        """
        found = [self.median(spec) for spec in specs]
        known = [seconds for seconds in found if seconds is not None]
        if 2 * len(known) < len(found):
            return None
        mean = sum(known) / max(1, len(known))
        return [mean if seconds is None else seconds for seconds in found]

    def about(self, specs, workers=1):
        """Expected time of runs as text."""
        if (found := self.forecast(specs)) is None:
            return "time unknown"
        return f"about {clocked(sum(found) / workers)}"


SAMPLE = 300  # runs that are read of a step


def make(
    specs, store=None, workers=None, keep=False, checkpoint_seconds=30.0, done=None, backend="local"
):
    """Make what is missing, in the order of the Specs. Returns {Spec: one line} of what is lost.

    A Spec is lost where its run failed, its worker died, or an input of it is lost.
    workers, backend: `lib.runs.executors.opened`. keep: save the weights of the Specs
    themselves.
    done: f(spec), called when a run is there.
    """
    store = store or Store()
    todo = missing(specs, store, keep)
    if not todo:
        return {}
    graph = {spec: {p for p in spec.parents.values() if p in todo} for spec in todo}
    waiting, running, ended, lost = dict(todo), {}, set(), {}
    needed = [executors.need(spec) for spec in todo]
    executor = executors.opened(backend, needed, workers, store.runs / ".jobs")
    bar = Bar(todo, store, executor)
    try:
        while True:
            ready = [spec for spec in waiting if graph[spec] <= ended]
            for spec in ready[: executor.slots - len(running)]:
                place = (store.runs.absolute(), store.records.absolute())
                job = (work, spec.to_json(), *place, waiting.pop(spec), checkpoint_seconds)
                running[executor.submit(*job, need=executors.need(spec))] = spec
            if not running:
                break
            for future in executor.finished(0.5):
                spec = running.pop(future)
                try:
                    cost, error = future.result()
                except Exception as death:
                    error = f"its worker died; the next command resumes it ({one_line(death)})"
                if error:
                    lost[spec] = error
                    continue
                bar.clock.note(spec.step, spec.args, cost)
                ended.add(spec)
                if done:
                    done(spec)
            bar.draw(ended, running.values())
    finally:
        executor.close()
        bar.bar.close()
    for spec in todo:  # inputs first
        for parent in graph[spec] & lost.keys():
            lost[spec] = needs(parent, lost[parent])
    return lost


def needs(spec, error):
    """Why a run is lost that an input, or one of its inputs, is missing for."""
    root = f"needs {spec.name}, which could not be made: {error}"
    return error if error.startswith("needs ") else root


class Bar:
    """The progress of a sweep in one line: runs that ended, and the time to go."""

    def __init__(self, todo, store, executor):
        from tqdm import std

        self.todo, self.store, self.slots = list(todo), store, executor.slots
        self.clock, self.began, self.drawn = Clock(store), time.monotonic(), 0.0
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}"
        how = {"leave": False, "dynamic_ncols": True, "bar_format": form}
        self.bar = std.tqdm(total=len(todo), desc="starting workers", **how)
        # a log file wants few lines
        self.interval = 0.5 if paths.in_lab() or sys.stderr.isatty() else 20.0

    def draw(self, ended, running):
        """Draw it anew where it is time, or all runs have ended."""
        if time.monotonic() - self.drawn < self.interval and len(ended) < len(self.todo):
            return
        self.drawn = time.monotonic()
        shares = {spec: ledger(self.store.part(spec)).get("progress", 0.0) for spec in running}
        shares |= dict.fromkeys(ended, 1.0)
        self.bar.n = max(self.bar.n, sum(shares.values()))
        self.bar.set_description_str(f"{len(ended)}/{len(self.todo)} runs", refresh=False)
        left = self.left([shares.get(spec, 0.0) for spec in self.todo])
        to_go = "time unknown" if left is None else f"about {clocked(left)} to go"
        self.bar.set_postfix_str(to_go, refresh=False)
        self.bar.refresh()

    def left(self, shares):
        """Seconds of the clock until all runs are made, by the pace so far; shares: what is made of
        each. None where nothing is known of most."""
        if (found := self.clock.forecast(self.todo)) is None:
            return None
        made = sum(share * seconds for share, seconds in zip(shares, found, strict=True))
        pace = (self.drawn - self.began) / made if 1.0 in shares else 1 / self.slots
        return (sum(found) - made) * pace


def clocked(seconds):
    """Seconds as text: "12 s", "34 min", "5.6 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def why(spec, store):
    """Why a run is missing, in one line: the error of the input at the bottom of it; "" where
    nobody has tried to make it."""
    for each in missing([spec], store):  # inputs first
        if error := ledger(store.part(each)).get("error"):
            return error if each == spec else needs(each, error)
    return ""


def collect(rows, store=None, lost=None):
    """Return a grid's rows with the results of their Specs, as a DataFrame.

    It has the rows' own columns, `state`, `error`, `run` (a Run or None) and one column a metric.
    lost: what `make` returned, where it was asked before. `error` tells the root: of an input,
    where that is what could not be made.
    """
    import pandas as pd

    store = store or Store()
    lines = []
    for row in rows:
        spec = row["spec"]
        run, state = found(spec, store)
        error = "" if run else (lost or {}).get(spec) or why(spec, store)
        lines.append(joined(row | {"run": run, "state": state, "error": error}))
    return pd.DataFrame(lines)


def found(spec, store):
    """Return (the Run of a Spec or None, the state that it is in)."""
    run = store.find(spec)
    return run, (run.status if run else store.state(spec))["state"]


def joined(row):
    """Return a row with the metrics of its run behind its own columns."""
    metrics = row["run"].metrics if row["run"] else {}
    return row | {name: value for name, value in metrics.items() if name not in row}
