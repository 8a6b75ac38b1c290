"""Sweep: many Specs as one graph, run in topological order by worker processes under one progress bar.

    rows = [{"width": m, "spec": student(m).at(seed)} for m in (9, 6, 3, 1) for seed in (0, 1)]
    frame = collect(rows)        # one line a row, its metrics beside it; makes what is missing

Local workers are single processes of their own, so that one that is killed costs only its own run.
"""

import concurrent.futures as futures
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import pandas as pd
from tqdm.auto import tqdm

from lib.execute import need_disk, work
from lib.steps import STEPS
from lib.store import Store


@dataclass(frozen=True)
class Plan:
    """What a set of Specs comes to: `there` and `missing` map each Spec to whether its weights are needed;
    `missing` is in topological order."""
    there: dict
    missing: dict

    def weights(self):
        return {spec for spec, keep in self.missing.items() if keep}


def plan(specs, store=None, keep=False):
    """Which runs are there and which must be made, inputs included. The inputs of a run that is there are not
    looked at: its result stands on its own. `keep` wants the weights of the Specs themselves as well."""
    store = store or Store()
    there, missing = {}, {}
    wanted = defaultdict(bool)

    def need(spec, weights):
        weights = weights and STEPS[spec.step].weights
        if wanted[spec] >= weights and (spec in there or spec in missing):
            return
        wanted[spec] |= weights
        if store.find(spec, weights=wanted[spec]):
            there[spec] = wanted[spec]
            return
        there.pop(spec, None)
        for parent in spec.parents.values():
            need(parent, True)
        missing[spec] = wanted[spec]

    for spec in specs:
        need(spec, keep)
    return Plan(there, missing)


class Clock:
    """Expected seconds of a run, from runs that the store has: of another seed of the same Spec, else of the same
    step on the same task, else of the same step."""

    def __init__(self, store):
        seen = defaultdict(list)
        for run in store.folders():
            body, seconds = run.spec, run.status["seconds"]
            for key in keys(run.folder.parent.name, body["step"], body["args"]):
                seen[key].append(seconds)
        self.seconds = {key: statistics.median(values) for key, values in seen.items()}

    def __call__(self, spec):
        for key in keys(f"{spec.step}-{spec.id}", spec.step, spec.args):
            if key in self.seconds:
                return self.seconds[key]
        return 10.0  # nothing known yet

    def note(self, spec, seconds):
        for key in keys(f"{spec.step}-{spec.id}", spec.step, spec.args):
            self.seconds[key] = seconds


def keys(name, step, args):
    data = args.get("data") or {}
    return [name, (step, data.get("source"), data.get("task"), data.get("rows")), (step, data.get("source")), step]


class Local:
    """Executor on this machine: `slots` worker processes that stay alive between runs."""

    def __init__(self, slots):
        self.pools = [self._pool() for _ in range(slots)]
        self.free = list(range(slots))

    def _pool(self):
        context = multiprocessing.get_context("spawn")  # a forked torch may hang, a forked CUDA fails
        return futures.ProcessPoolExecutor(1, mp_context=context, initializer=_tend, initargs=(os.getpid(),))

    def submit(self, function, *args):
        slot = self.free.pop()
        future = self.pools[slot].submit(function, *args)
        future.slot = slot
        return future

    def release(self, future):
        if isinstance(future.exception(), BrokenProcessPool):
            self.pools[future.slot] = self._pool()
        self.free.append(future.slot)

    def each(self, function, jobs):
        """Yield (job, its future) as they finish; a job is a tuple of arguments. A worker that is killed costs its own job."""
        left, running = list(jobs), {}
        while left or running:
            while left and self.free:
                job = left.pop(0)
                running[self.submit(function, *job)] = job
            for future in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                self.release(future)
                yield running.pop(future), future

    def close(self):
        """End the workers: idle ones by themselves, those at work (after an error or an interrupt) at once."""
        for slot, pool in enumerate(self.pools):
            idle = slot in self.free
            for process in [] if idle else list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=idle, cancel_futures=True)


def _tend(parent):
    """A worker's first act: leave the terminal's interrupt to the parent, and go when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make(specs, store=None, workers=None, keep=False, checkpoint_seconds=30.0, progress=True):
    """Make what is missing. Returns {Spec: one line} of what could not be made: it failed, its worker died, or an
    input of it is missing. `workers` defaults to cores / threads of the widest run."""
    store = store or Store()
    todo = plan(specs, store, keep).missing
    if not todo:
        return {}
    need_disk(store.runs)
    clock = Clock(store)
    threads = max((spec.args.get("numerics") or {}).get("threads", 1) for spec in todo)
    executor = Local(max(1, min(workers or cores() // threads, len(todo))))
    waiting, running, failed = dict(todo), {}, {}
    bar = tqdm(total=sum(map(clock, todo)), disable=not progress, leave=False, dynamic_ncols=True,
               bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed, {remaining} to go{postfix}")
    spent, told = 0.0, 0.0
    interval = 0.0 if sys.stderr.isatty() or type(bar).__name__ == "tqdm_notebook" else 20.0  # a log file wants few lines
    try:
        while waiting or running:
            for spec in list(waiting):
                parents = spec.parents.values()
                lost = [p for p in parents if p in failed]
                if lost:
                    failed[spec] = f"needs {lost[0].name}, which could not be made"
                    del waiting[spec]
                elif executor.free and not any(p in waiting or p in running.values() for p in parents):
                    future = executor.submit(work, spec.to_json(), store.runs, store.records, store.fresh,
                                             waiting.pop(spec), checkpoint_seconds)
                    running[future] = spec
            done, _ = futures.wait(running, timeout=0.5, return_when=futures.FIRST_COMPLETED)
            for future in done:
                spec = running.pop(future)
                executor.release(future)
                try:
                    clock.note(spec, future.result())
                except BrokenProcessPool:
                    failed[spec] = "its worker was killed (died); the next command resumes it"
                except Exception as error:
                    failed[spec] = str(error)
                spent += clock(spec)
            half = sum(clock(s) * store.state(s).get("progress", 0.0) for s in running.values())
            bar.total = max(spent + sum(map(clock, waiting)) + sum(map(clock, running.values())), 1e-9)
            bar.n = min(spent + half, bar.total)
            bar.set_description_str(f"{len(todo) - len(waiting) - len(running)}/{len(todo)} runs", refresh=False)
            if time.time() - told >= interval:
                told = time.time()
                bar.refresh()
    finally:
        executor.close()
        bar.close()
    return failed


def collect(rows, store=None, on_missing="run", workers=None, progress=True):
    """A grid's rows with the results of their Specs: a DataFrame with the rows' own columns, `state`, `error`,
    `run` (a Run or None) and one column a metric.

    `on_missing`: "run" makes what is missing, "skip" leaves it out of the metrics and says so in `state`.
    """
    store = store or Store()
    failed = {}
    if on_missing == "run":
        failed = make([row["spec"] for row in rows], store, workers, progress=progress)
    lines = []
    for row in rows:
        run = store.find(row["spec"])
        status = store.state(row["spec"])
        line = {k: v for k, v in row.items() if k != "spec"} | {"spec": row["spec"], "run": run,
                "state": status["state"], "error": failed.get(row["spec"], status.get("error", ""))}
        lines.append(line | {k: v for k, v in (run.metrics if run else {}).items() if k not in line})
    return pd.DataFrame(lines)
