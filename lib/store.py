"""Store: where runs are kept, made once, and found again.

    data/runs/<step>-<identity>/<seed>/      a finished run
                               <seed>.part/  one being made, or what is left of a failed, stopped
                                             or killed one
                               <seed>.lock   held by the process that is making it
              .damaged/<step>-<identity>/<seed>-<time>/   a run that was found damaged
    data/records/<step>-<identity>/<seed>/   a record: a run without weights, small enough to
                                             commit (lib.record)

A run folder holds `spec.json`, `status.json` (our own ledger), `metrics.json`, `env.json`,
`events.jsonl`, arrays such as `predictions.safetensors`, and `model/` where another Spec needs the
weights. A folder without `.part` is complete: it gets its name by one rename at the end. Its
manifest (lib.files) has a digest of each file. What is found damaged is set aside and made again.
Runs of earlier code have no manifest: they count where their JSON is whole and says finished.
"""

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load, save_file

from lib import files, paths, record
from lib.files import Damaged, read_json, write_json

MIN_FREE = 300 << 20  # bytes of disk without which nothing is started


@cache
def say(line):
    """Print a line to the terminal, once in a process."""
    print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Run:
    """A finished run, read only: a folder of files, or a record."""

    folder: Path
    origin: str  # "run": made here; "record": committed evidence

    @cached_property
    def _record(self):
        return record.read(self.folder) if record.there(self.folder) else None

    @cached_property
    def _digests(self):
        return (files.manifest(self.folder) or {"files": {}})["files"]

    def _bytes(self, name):
        """What a file of the run holds. Raises Damaged where its manifest says otherwise."""
        data = (self.folder / name).read_bytes()
        digest = files.sha(data)
        if self._digests.get(name, digest) != digest:
            shown = paths.shown(self.folder / name)
            raise Damaged(f"{shown} is damaged (it has another digest): the run is made again")
        return data

    def _json(self, name):
        if self._record is None:
            return read_json(self.folder / f"{name}.json", self._bytes(f"{name}.json"))
        return self._record[name]

    @cached_property
    def spec(self):
        return self._json("spec")

    @cached_property
    def status(self):
        return self._json("status")

    @cached_property
    def metrics(self):
        return self._json("metrics")

    @property
    def cost(self):
        """Core seconds on a CPU, which other work beside it does not stretch; seconds on a card."""
        on_card = (self.spec["args"].get("numerics") or {}).get("device")
        seconds = self.status["seconds"]
        return seconds if on_card else self.status.get("core_seconds", seconds)

    @cached_property
    def env(self):
        return self._json("env")

    @property
    def name(self):
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def model(self):
        """Folder of the weights; see lib.model.backbone.load."""
        return self.folder / "model"

    def arrays(self, name):
        """Arrays that the step saved under this name."""
        if self._record is None:
            return load(self._bytes(f"{name}.safetensors"))
        return record.arrays(self.folder, self._record, name)

    def lines(self, name):
        """JSON lines that the step wrote under this name; none where the file is absent."""
        if self._record is None:
            text = self._bytes(name).decode() if (self.folder / name).exists() else ""
        else:
            text = record.text(self.folder, self._record, name)
        return [json.loads(line) for line in text.splitlines()]

    def events(self):
        return self.lines("events.jsonl")


class Held(Exception):
    """Another live process is making this run."""


@contextmanager
def locked(path, patience=0.2):
    """Hold the exclusive right to make a run; path: of its lock file. Raises Held after so many
    seconds of patience.

    The lock is the file system's (filelock). It ends with the process that holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(patience)
    except Timeout:
        raise Held from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def alive(path):
    """Whether a process holds the lock at a path."""
    if not path.exists():
        return False
    try:
        with locked(path, 0):
            return False
    except (Held, PermissionError):
        return True


@dataclass(frozen=True)
class Store:
    """Committed records first, so that pages are the same wherever runs were made; then runs."""

    runs: Path = None
    records: Path | None = None
    fresh: bool = False  # ignore the records

    def __post_init__(self):
        object.__setattr__(self, "runs", Path(self.runs or paths.runs_root()))
        object.__setattr__(self, "records", Path(self.records or paths.records_root()))

    def find(self, spec, weights=False):
        """The finished run of a Spec, or None. With `weights`, one that still has its model.

        A run that is damaged is set aside, and a damaged record is left alone; a line says so.
        """
        places = ({} if self.fresh else {"record": self.records}) | {"run": self.runs}
        for origin, root in places.items():
            folder = root / spec.name
            if not folder.exists() or (weights and not (folder / "model").exists()):
                continue
            why = wrong(folder, weights)
            if not why:
                return Run(folder, origin)
            if origin == "run":
                self._doubt(spec, weights)
            else:
                say(f"not used  {why}")
        return None

    def _doubt(self, spec, weights):
        """Set a run aside where it is still damaged once nobody else is at it."""
        folder = self.runs / spec.name
        try:
            with locked(self.lock(spec)):
                if folder.exists() and (why := wrong(folder, weights)):
                    self.set_aside(folder, why)
        except (Held, OSError):
            say(f"damaged  {spec.name}; it is not used")

    def set_aside(self, folder, why):
        """Move a damaged folder below `.damaged`, where it is found by its name and the time."""
        name, at = folder.relative_to(self.runs), time.strftime("%Y%m%dT%H%M%S")
        target = self.runs / ".damaged" / f"{name}-{at}-{time.time_ns() % 10**6}"
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
        say(f"set aside  {name} as {paths.shown(target)}: {why}; the run is made again")

    def place(self, spec):
        """Give a run that is made its name. A kill leaves the run before or the new one, whole."""
        part, final = self.part(spec), self.runs / spec.name
        shutil.rmtree(part / "before", ignore_errors=True)
        if final.exists():  # there where its weights were removed
            final.rename(part / "before")
        part.rename(final)
        shutil.rmtree(final / "before", ignore_errors=True)
        return Run(final, "run")

    def part(self, spec):
        return (self.runs / spec.name).with_suffix(".part")

    def lock(self, spec):
        return (self.runs / spec.name).with_suffix(".lock")

    def state(self, spec):
        """What the ledger of a Spec says.

        Its `state` is finished, running, failed, stopped, died or missing.
        """
        if run := self.find(spec):
            return run.status | {"origin": run.origin}
        if not self.part(spec).exists():
            return {"state": "missing"}
        status = ledger(self.part(spec))
        if status["state"] not in ("failed", "stopped"):
            status["state"] = "running" if alive(self.lock(spec)) else "died"
        return status

    def names(self):
        """Folders of runs and records, step-identity, sorted."""
        roots = [root for root in (self.runs, self.records) if root.exists()]
        return sorted({name for root in roots for name in os.listdir(root) if name[0] != "."})

    def folders(self, name="[!.]*"):
        """Every finished run made here; name: those of one folder."""
        paths = sorted(self.runs.glob(f"{name}/*/status.json"))
        return [Run(path.parent, "run") for path in paths if path.parent.suffix != ".part"]

    def parts(self):
        """Folders of runs being made or left unfinished."""
        return sorted(self.runs.glob("*/*.part"))

    def recorded(self, name="[!.]*"):
        """Every record; name: those of one folder."""
        paths = sorted(self.records.glob(f"{name}/[!.]*/{record.NAME}"))
        return [Run(path.parent, "record") for path in paths]

    def record(self, run):
        """Write a finished run to the records, without weights and events. Returns the folder."""
        target = self.records / run.name
        with files.whole(target) as folder:
            record.write(run, folder)
            shutil.rmtree(target, ignore_errors=True)
        return target


def wrong(folder, weights=False):
    """What is wrong with a finished run or a record, in words that name a file; "" without any.

    weights: those of a run are looked at as well.
    """
    try:
        if record.there(folder):
            told = record.read(folder).get("arrays")
            if told and files.digest(folder / record.ARRAYS) != told:
                raise record.damaged(folder / record.ARRAYS, "its content has another digest")
            return ""
        if (folder / files.NAME).exists():
            return files.wrong(folder, spared=() if weights else ("model/",))
        told = {part: read_json(folder / f"{part}.json") for part in record.PARTS}
    except (ValueError, OSError) as error:
        return str(error)
    if told["status"].get("manifest") or told["status"].get("state") != "finished":
        return f"{files.NAME} is missing"
    return "" if told["metrics"] else "metrics.json is empty"


def ledger(part):
    """What the ledger of an unfinished run says; what is damaged says that it died."""
    told = {"state": "died", "seconds": 0.0, "core_seconds": 0.0, "attempts": 0}
    try:
        return told | read_json(part / "status.json")
    except (OSError, Damaged):
        return told


class Scratch:
    """What a training asks of a run.

    This one writes nothing but checkpoints; what is logged and saved stays in memory.

    A `Draft` is the run of a Spec. This one serves the candidates of a search and the bench.
    """

    def __init__(self, folder, seed, checkpoint_seconds=1e9):
        self.folder, self.seed, self.checkpoint_seconds = Path(folder), seed, checkpoint_seconds
        self.lines, self.arrays = [], {}

    @property
    def resume(self):
        """Folder of the checkpoints."""
        return self.folder / "resume"

    def log(self, step, **values):
        """Note what happened at a step. Checkpoints hold the lines."""
        self.lines.append(json.loads(json.dumps({"step": step, **values}, default=float)))

    def save_arrays(self, name, **arrays):
        """Keep arrays under a name."""
        self.arrays[name] = arrays

    def logged(self, name):
        """Arrays of what was logged under a name, {"step": [n], ...}; a step's last note counts."""
        found = {line["step"]: line[name] for line in self.lines if name in line}
        steps = sorted(found)
        columns = {key: np.array([found[step][key] for step in steps]) for key in found[steps[0]]}
        return {"step": np.array(steps)} | columns

    def progress(self, fraction, **now):
        """Say how far the run is."""


class Draft(Scratch):
    """The folder of a run being made, as its step sees it."""

    def __init__(self, store, spec, inputs, keep, checkpoint_seconds=30.0):
        super().__init__(store.part(spec), spec.seed, checkpoint_seconds)
        self.store, self.spec, self.inputs, self.keep = store, spec, inputs, keep
        self.folder.mkdir(parents=True, exist_ok=True)
        before = ledger(self.folder)
        self.attempts = before["attempts"] + 1
        # of earlier attempts, so that a resumed run tells its whole cost
        self.spent = before["seconds"]
        self.worked = before["core_seconds"] - time.process_time()
        self.began = self.told = time.monotonic()
        (self.folder / files.NAME).unlink(missing_ok=True)
        write_json(self.folder / "spec.json", spec.to_json())
        self.tell("started")

    def tell(self, state, **more):
        """Write the ledger."""
        status = {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        status |= {"seconds": round(self.spent + time.monotonic() - self.began, 2)}
        status |= {"core_seconds": round(self.worked + time.process_time(), 2)}
        write_json(self.folder / "status.json", status | {"attempts": self.attempts} | more)

    def progress(self, fraction, **now):
        """Say how far the run is; written at most once a second."""
        if time.monotonic() - self.told > 1:
            self.told = time.monotonic()
            self.tell("started", progress=round(fraction, 4), **now)

    def save_arrays(self, name, **arrays):
        save_file(arrays, self.folder / f"{name}.safetensors")

    @property
    def model(self):
        """Folder to save the weights in; None where nobody needs them."""
        return self.folder / "model" if self.keep else None

    def seal(self, metrics, env):
        """Write what is left of a run; it only wants its name now (`Store.place`)."""
        write_json(self.folder / "metrics.json", metrics)
        write_json(self.folder / "env.json", env)
        files.write_lines(self.folder / "events.jsonl", self.lines)
        shutil.rmtree(self.resume, ignore_errors=True)
        self.tell("finished", manifest=True)
        files.seal(self.folder)

    def finish(self, metrics, env):
        self.seal(metrics, env)
        return self.store.place(self.spec)
