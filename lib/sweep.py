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
from math import inf

import pandas as pd
from tqdm.auto import tqdm

from lib import data
from lib.data import models, texts
from lib.execute import need_disk, work
from lib.steps import STEPS
from lib.store import Store, alive, read_json


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
    """Expected seconds of a run, from runs and records that the store has: those of another seed, else of a like run, scaled
    by rows, epochs and tokens. None where nothing is known."""

    def __init__(self, store):
        self.seconds, self.tokens, self.told = defaultdict(list), defaultdict(list), {}
        for run in store.recorded() + store.folders():
            body = run.spec
            if tokens := run.metrics.get("mean_tokens"):
                self.tokens[task_of(body["args"])].append(tokens)
            self._note(run.folder.parent.name, body["step"], body["args"], run.cost)

    def _note(self, name, step, args, seconds):
        self.seconds[name].append(seconds)
        for key in like(step, args):
            self.seconds[key].append((seconds, args))

    def __call__(self, spec):
        if spec.id not in self.told:
            self.told[spec.id] = self._look(spec)
        return self.told[spec.id]

    def _look(self, spec):
        if own := self.seconds.get(f"{spec.step}-{spec.id}"):
            return statistics.median(own)
        for key in like(spec.step, spec.args):
            if found := self.seconds.get(key):
                return statistics.median(
                    seconds * self.ratio(spec.args, args) for seconds, args in found
                )
        return None

    def ratio(self, args, others):
        """How many times the work of a run with `others` one with `args` is."""
        (rows, length, tokens), (rows_2, length_2, tokens_2) = (
            self.work(each) for each in (args, others)
        )
        if rows is None or rows_2 is None:
            return 1.0
        return rows / rows_2 * (tokens / tokens_2 if tokens and tokens_2 else length / length_2)

    def work(self, args):
        """(rows times epochs, most tokens of a row, mean tokens where they were counted); rows are None where not told."""
        data, train, corpus = (args.get(name) or {} for name in ("data", "train", "corpus"))
        rows, length = (
            data.get("rows") or corpus.get("documents") or corpus.get("sentences"),
            train.get("max_length", 1),
        )
        counted = train.get("pad_to") or statistics.median(self.tokens.get(task_of(args)) or [0])
        times = train.get("epochs", 1) * (args.get("search") or {}).get("budget", 1)
        return rows and rows * times, length, min(counted, length)

    def note(self, spec, seconds):
        self.told.clear()
        self._note(f"{spec.step}-{spec.id}", spec.step, spec.args, seconds)

    def total(self, specs):
        """(seconds of what is known, how many are not known)."""
        found = [self(spec) for spec in specs]
        return sum(seconds for seconds in found if seconds is not None), found.count(None)

    def about(self, specs, workers=1):
        """Expected time of runs as text, with how many of them nothing is known of."""
        seconds, unknown = self.total(specs)
        if unknown and not seconds:
            return "unknown"
        about = "at least" if unknown else "about"
        return f"{about} {clocked(seconds / workers)}" + f" ({unknown} unknown)" * bool(unknown)


def task_of(args):
    data = args.get("data") or {}
    return data.get("source"), data.get("task")


def like(step, args):
    """What runs are alike by: step, numerics (which tell the profiles apart) and task; then whatever the task."""
    source, task = task_of(args)
    numerics = tuple((args.get("numerics") or {}).values())
    return [(step, numerics, source, task), (step, numerics, source == "toy")]


class Local:
    """Executor on this machine: `slots` worker processes that stay alive between runs."""

    def __init__(self, slots, nice=0):
        self.nice = nice
        self.pools = [self._pool() for _ in range(slots)]
        self.free = list(range(slots))

    def _pool(self):
        context = multiprocessing.get_context(
            "spawn"
        )  # a forked torch may hang, a forked CUDA fails
        return futures.ProcessPoolExecutor(
            1, mp_context=context, initializer=_tend, initargs=(os.getpid(), self.nice)
        )

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


def _tend(parent, nice=0):
    """A worker's first act: leave the terminal's interrupt to the parent, and go when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is stopped says so
    os.nice(nice)

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


GRACE = 60.0  # seconds that runs at work are given when the time is over


def make(
    specs,
    store=None,
    workers=None,
    keep=False,
    checkpoint_seconds=30.0,
    progress=True,
    until=inf,
    nice=0,
    done=None,
):
    """Make what is missing, in the order of the Specs. Returns {Spec: one line} of what could not be made: it failed, its
    worker died, or an input of it is missing. `workers` defaults to cores / threads of the widest run.

    until: time after which nothing is started; what is still at work after GRACE is stopped, to be resumed from its checkpoint.
    nice: of the workers. done: f(spec), called when a run is there."""
    store = store or Store()
    todo = plan(specs, store, keep).missing
    if not todo:
        return {}
    need_disk(store.runs)
    clock = Clock(store)
    threads = max((spec.args.get("numerics") or {}).get("threads", 1) for spec in todo)
    executor = Local(max(1, min(workers or cores() // threads, len(todo))), nice)
    waiting, running, failed = dict(todo), {}, {}
    missing = {spec: {p for p in spec.parents.values() if p in todo} for spec in todo}
    children, results = defaultdict(list), set(specs)
    for child, inputs in missing.items():
        for spec in inputs:
            children[spec].append(child)
    expected = {spec: clock(spec) for spec in todo}
    bar = tqdm(
        total=len(todo),
        desc="starting workers",
        disable=not progress,
        leave=False,
        dynamic_ncols=True,
        bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}",
    )
    told, counted = 0.0, 0
    interval = (
        0.0 if sys.stderr.isatty() or type(bar).__name__ == "tqdm_notebook" else 20.0
    )  # a log file wants few lines

    def there(spec):
        """Whether nothing is left to make of it, as another process may have made it, or all that it was for."""
        used = all(map(there, children[spec]))
        return (spec not in results or store.find(spec, weights=keep and todo[spec])) and (
            used or store.find(spec, weights=todo[spec])
        )

    def over(spec):
        for child in children[spec]:
            missing[child].discard(spec)
        if done:
            done(spec)

    def lose(spec, why, root=None):
        failed[spec] = needs(root, why) if root else why
        for child in children[spec]:
            if waiting.pop(child, None) is not None:
                lose(child, why, root or spec)

    try:
        while (waiting or running) and time.time() < until + GRACE:
            while executor.free and time.time() < until:
                ready = [s for s in waiting if not missing[s]]
                spec = next(
                    (s for s in ready if not alive(store.lock(s))),
                    None if running else next(iter(ready), None),
                )
                if spec is None:  # nothing is ready, or another process is at it
                    break
                if there(spec):
                    del waiting[spec]
                    over(spec)
                    continue
                future = executor.submit(
                    work,
                    spec.to_json(),
                    store.runs,
                    store.records,
                    store.fresh,
                    waiting.pop(spec),
                    checkpoint_seconds,
                )
                running[future] = spec
            if not running:
                break
            finished, _ = futures.wait(running, timeout=0.5, return_when=futures.FIRST_COMPLETED)
            for future in finished:
                spec = running.pop(future)
                executor.release(future)
                try:
                    clock.note(spec, future.result())
                except BrokenProcessPool:
                    lose(spec, "its worker was killed (died); the next command resumes it")
                except Exception as error:
                    lose(spec, str(error))
                else:
                    over(spec)
            if finished or not counted:
                counted += 1
                expected = {spec: clock(spec) for spec in [*waiting, *running.values()]}
            states = {s: store.state(s) for s in running.values()}
            at = sum(
                (expected[s] or 0.0) * state.get("progress", 0.0) for s, state in states.items()
            )
            left = sum(filter(None, expected.values())) - at
            unknown = list(expected.values()).count(None)
            ended = len(todo) - len(waiting) - len(running)
            bar.n = max(bar.n, ended + sum(state.get("progress", 0.0) for state in states.values()))
            if ended or any(state["state"] != "missing" for state in states.values()):
                bar.set_description_str(f"{ended}/{len(todo)} runs", refresh=False)
            to_go = clocked(left / len(executor.pools)) if left or not unknown else "unknown"
            bar.set_postfix_str(
                f"{'at least ' * bool(unknown and left)}{to_go} to go", refresh=False
            )
            if time.time() - told >= interval:
                told = time.time()
                bar.refresh()
    finally:
        executor.close()
        bar.close()
    return failed


def clocked(seconds):
    """Seconds as text: "12 s", "34 min", "5.6 h"."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def needs(root, error):
    return f"needs {root.name}, which could not be made: {error}"


def why(spec, store, seen):
    """Why a run is missing, in one line: the error of the input at the bottom of it, or what is not at hand; "" where nobody
    has tried to make it. seen: what earlier calls found out."""
    root, error = _root(spec, store, seen)
    return error if root in (None, spec) else needs(root, error)


def _root(spec, store, seen):
    """(the failed run without which a Spec cannot be made, its error); (None, text) where data or weights are absent."""
    if spec not in seen:
        part = store.part(spec) / "status.json"
        error = read_json(part).get("error") if part.exists() else None
        below = (
            _root(p, store, seen)
            for p in spec.parents.values()
            if not store.find(p, weights=STEPS[p.step].weights)
        )
        seen[spec] = (
            (spec, error)
            if error
            else next((each for each in below if each[1]), (None, absent(spec)))
        )
    return seen[spec]


def absent(spec):
    """What a Spec itself wants that is not at hand, with its fix; "" where all is there."""
    try:
        if spec.step == "checkpoint":
            models.locate(spec.args["name"])
        for name in ("data", "corpus"):
            described = spec.args.get(name)
            if isinstance(described, dict) and "task" in described:
                data.digest_of(described["source"], described["task"])
            if isinstance(described, dict) and "text" in described:
                list(map(texts.files, described["text"].split("+")))
    except FileNotFoundError as error:
        return str(error)
    return ""


def collect(rows, store=None, on_missing="run", workers=None, progress=True):
    """A grid's rows with the results of their Specs: a DataFrame with the rows' own columns, `state`, `error`,
    `run` (a Run or None) and one column a metric.

    `on_missing`: "run" makes what is missing, "skip" leaves it out of the metrics and says so in `state`. `error` is the
    root of it: of an input, where that is what could not be made.
    """
    store = store or Store()
    failed, seen = {}, {}
    if on_missing == "run":
        failed = make([row["spec"] for row in rows], store, workers, progress=progress)
    lines = []
    for row in rows:
        run = store.find(row["spec"])
        status = store.state(row["spec"])
        line = {k: v for k, v in row.items() if k != "spec"} | {
            "spec": row["spec"],
            "run": run,
            "state": status["state"],
            "error": "" if run else failed.get(row["spec"]) or why(row["spec"], store, seen),
        }
        lines.append(
            line | {k: v for k, v in (run.metrics if run else {}).items() if k not in line}
        )
    return pd.DataFrame(lines)
