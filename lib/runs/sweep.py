"""Sweep: many Specs as one graph, made under one progress bar.

    rows = [{"width": m, "spec": student(m).at(seed)} for m in (9, 6, 3, 1) for seed in (0, 1)]
    frame = collect(rows)        # one line a row, its metrics beside it; makes what is missing

The inputs of a run are made before it. Who makes it is an executor (lib.runs.executors).
"""

import concurrent.futures as futures
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import islice
from math import inf

from lib import data
from lib.data import models, texts
from lib.runs import executors
from lib.runs.execute import need_disk, one_line, work
from lib.runs.store import Store, alive, ledger
from lib.steps import STEPS


@dataclass(frozen=True)
class Plan:
    """What a set of Specs comes to: the runs that are there, and those that must be made.

    Each maps Specs to whether their weights are needed. `missing` has inputs first.
    """

    there: dict
    missing: dict


def plan(specs, store=None, keep=False):
    """The Plan of some Specs and their inputs; keep: the weights of the Specs are wanted as well.

    The inputs of a run that is there are not looked at: its result stands on its own.
    """
    store = store or Store()
    there, missing, wanted = {}, {}, defaultdict(bool)

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


def expected(todo, store=None, workers=None):
    """What missing runs (Plan.missing) take, as text: "29 runs to make, about 3 min"."""
    about = Clock(store or Store()).about(todo, workers or executors.cores())
    return f"{len(todo)} runs to make, {about}"


class Clock:
    """Expected seconds of a run: the rows that it sees, at the median pace of runs like it.

    Like it are runs of the same step and numerics (which tell the profiles apart) on the same task,
    else on any task. Runs that this process noted count before runs and records of the store, which
    may be of a quicker machine. None where nothing is known. Of a step with very many runs the
    first ones are read: their names are hashes.
    """

    def __init__(self, store):
        self.store, self.noted, self.stored, self.spent = store, defaultdict(list), {}, 0.0

    def __call__(self, spec):
        if spec.step not in self.stored:
            paces = self.stored[spec.step] = defaultdict(list)
            for run in islice(self.store.every(f"{spec.step}-*"), SAMPLE):
                with suppress(ValueError, KeyError, OSError):  # damaged: who wants it is told
                    add(paces, spec.step, run.spec["args"], run.cost)
        for key in likeness(spec.step, spec.args):
            if paces := self.noted.get(key) or self.stored[spec.step].get(key):
                return statistics.median(paces) * rows_seen(spec.args)
        return None

    def note(self, spec, seconds):
        """Note what a run of this process took."""
        add(self.noted, spec.step, spec.args, seconds)
        self.spent += seconds

    def forecast(self, specs):
        """{Spec: expected seconds}, the mean of the others where nothing is known of a run's like;
        None where nothing is known of any."""
        found = {spec: self(spec) for spec in specs}
        known = [seconds for seconds in found.values() if seconds is not None]
        if found and not known:
            return None
        mean = sum(known) / max(1, len(known))
        return {spec: mean if seconds is None else seconds for spec, seconds in found.items()}

    def about(self, specs, workers=1):
        """Expected time of runs as text."""
        if (found := self.forecast(specs)) is None:
            return "time unknown"
        return f"about {clocked(sum(found.values()) / workers)}"

    def left(self, shares, elapsed, slots):
        """Seconds of the clock until some runs are made, {Spec: the share that is made}.

        The pace is that of the runs noted so far, in `elapsed` seconds. None where nothing is known
        of most of the runs: their mean would be that of the few slow ones that come first.
        """
        if 2 * sum(self(spec) is None for spec in shares) > len(shares):
            return None
        found = self.forecast(shares)
        begun = sum(seconds * shares[spec] for spec, seconds in found.items())
        pace = elapsed / (self.spent + begun) if self.spent else 1 / slots
        return (sum(found.values()) - begun) * pace


def likeness(step, args):
    """What a run shares with others whose rows take as long, the nearest likeness first."""
    data, numerics = args.get("data") or {}, tuple((args.get("numerics") or {}).values())
    return (step, numerics, data.get("source"), data.get("task")), (step, numerics)


def add(paces, step, args, seconds):
    for key in likeness(step, args):
        paces[key].append(seconds / rows_seen(args))


def rows_seen(args):
    """Rows that a training with these arguments sees, about, in all of its epochs."""
    data, train, corpus = (args.get(name) or {} for name in ("data", "train", "corpus"))
    rows = data.get("rows") or corpus.get("documents") or corpus.get("sentences") or 4000
    return rows * train.get("epochs", 1) * (args.get("search") or {}).get("budget", 1)


SAMPLE = 300  # runs that are read of a step
KILLED = "its worker was killed (died); the next command resumes it"
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
    backend="local",
):
    """Make what is missing, in the order of the Specs. Returns {Spec: one line} of what is lost.

    A Spec is lost where its run failed, its worker died, or an input of it is lost.
    workers, nice, backend: `lib.runs.executors.opened`. keep: save the weights of the Specs
    themselves.
    until: the time (of `time.monotonic`) after which nothing is started; what is still at work
    after GRACE is stopped, to be resumed from its checkpoint. done: f(spec), called when a run is
    there.
    """
    store = store or Store()
    todo = plan(specs, store, keep).missing
    if not todo:
        return {}
    need_disk(store.runs)
    graph = {spec: {p for p in spec.parents.values() if p in todo} for spec in todo}
    rank, children, results = {s: i for i, s in enumerate(todo)}, defaultdict(list), set(specs)
    for child, inputs in graph.items():
        for spec in inputs:
            children[spec].append(child)
    asked = {spec: executors.need(spec) for spec in todo}
    executor = executors.opened(backend, asked.values(), workers, nice, store.runs / ".jobs")
    order, ready, running, ended, failed = TopologicalSorter(graph), [], {}, set(), {}
    order.prepare()
    bar = Bar(todo, store, executor, progress)

    def there(spec):
        """Whether another process has made it meanwhile, or all that it is for."""
        if spec in results and not store.find(spec, weights=keep and todo[spec]):
            return False
        return all(map(there, children[spec])) or store.find(spec, weights=todo[spec])

    def over(spec):
        order.done(spec)
        ended.add(spec)
        if done:
            done(spec)

    try:
        while time.monotonic() < until + GRACE:
            while executor.free and time.monotonic() < until:
                ready += [spec for spec in order.get_ready() if spec not in failed]
                ready.sort(key=rank.get)
                free = [spec for spec in ready if not alive(store.lock(spec))]
                if not free and (running or not ready):
                    break  # nothing is ready, or another process is at it
                spec = (free or ready)[0]
                ready.remove(spec)
                if there(spec):
                    over(spec)
                    continue
                place = (store.runs.absolute(), store.records.absolute())
                job = (work, spec.to_json(), *place, todo[spec], checkpoint_seconds)
                running[executor.submit(*job, need=asked[spec])] = spec
            if not running:
                break
            finished, _ = futures.wait(running, timeout=0.5, return_when=futures.FIRST_COMPLETED)
            for future in finished:
                spec = running.pop(future)
                executor.release(future)
                try:
                    cost, error = future.result()
                except BrokenProcessPool:
                    error = KILLED
                except Exception as lost:
                    error = f"{KILLED} ({one_line(lost)})"
                if error:
                    failed[spec] = error
                else:
                    bar.clock.note(spec, cost)
                    over(spec)
            bar.draw(ended | roots(graph, failed).keys(), set(running.values()))
    finally:
        executor.close()
        bar.close()
    lost = roots(graph, failed)
    return {s: failed[r] if r is s else needs(r, failed[r]) for s, r in lost.items()}


def roots(graph, failed):
    """{Spec that is lost: the failed one without which it cannot be made}; graph: inputs first."""
    found = {spec: spec for spec in failed}
    for spec, inputs in graph.items():
        if lost := [found[p] for p in inputs if p in found]:
            found.setdefault(spec, lost[0])
    return found


class Bar:
    """The progress of a sweep in one line: runs that ended, and the time to go."""

    def __init__(self, todo, store, executor, progress):
        from tqdm.auto import tqdm

        self.todo, self.store, self.slots = list(todo), store, executor.slots
        self.clock, self.began, self.drawn = Clock(store), time.monotonic(), 0.0
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} elapsed{postfix}"
        how = {"leave": False, "dynamic_ncols": True, "bar_format": form, "disable": not progress}
        self.bar = tqdm(total=len(todo), desc="starting workers", **how)
        live = sys.stderr.isatty() or type(self.bar).__name__ == "tqdm_notebook"
        self.interval = 0.5 if live else 20.0  # a log file wants few lines

    def draw(self, ended, running):
        """Draw it anew where it is time, or all runs have ended."""
        if time.monotonic() - self.drawn < self.interval and len(ended) < len(self.todo):
            return
        self.drawn = time.monotonic()
        states = {spec: self.store.state(spec) for spec in running}
        at = {spec: state.get("progress", 0.0) for spec, state in states.items()}
        self.bar.n = max(self.bar.n, len(ended) + sum(at.values()))
        if ended or any(state["state"] != "missing" for state in states.values()):
            self.bar.set_description_str(f"{len(ended)}/{len(self.todo)} runs", refresh=False)
        shares = {spec: at.get(spec, 0.0) for spec in self.todo if spec not in ended}
        left = self.clock.left(shares, self.drawn - self.began, self.slots)
        to_go = "time unknown" if left is None else f"about {clocked(left)} to go"
        self.bar.set_postfix_str(to_go, refresh=False)
        self.bar.refresh()

    def close(self):
        self.bar.close()


def clocked(seconds):
    """Seconds as text: "12 s", "34 min", "5.6 h"."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def needs(root, error):
    return f"needs {root.name}, which could not be made: {error}"


def why(spec, store):
    """Why a run is missing, in one line; "" where nobody has tried to make it.

    It is the error of the input at the bottom of it, or what is not at hand.
    """
    for each in plan([spec], store).missing:  # inputs first
        if error := ledger(store.part(each)).get("error"):
            return error if each == spec else needs(each, error)
        if error := absent(each):
            return error
    return ""


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
                texts.files(described["text"])
    except FileNotFoundError as error:
        return str(error)
    return ""


def collect(rows, store=None, on_missing="run", workers=None, progress=True):
    """A grid's rows with the results of their Specs, as a DataFrame.

    It has the rows' own columns, `state`, `error`, `run` (a Run or None) and one column a metric.
    on_missing: "run" makes what is missing, "skip" leaves it out and says so in `state`. `error`
    tells the root: of an input, where that is what could not be made.
    """
    import pandas as pd

    store = store or Store()
    failed, lines = {}, []
    if on_missing == "run":
        failed = make([row["spec"] for row in rows], store, workers, progress=progress)
    for row in rows:
        spec = row["spec"]
        run, line = store.find(spec), dict(row)
        line |= {"run": run, "state": store.state(spec)["state"]}
        line["error"] = "" if run else failed.get(spec) or why(spec, store)
        metrics = run.metrics if run else {}
        lines.append(line | {name: v for name, v in metrics.items() if name not in line})
    return pd.DataFrame(lines)
