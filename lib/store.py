"""Store: where runs are kept, made once, and found again.

    data/runs/<step>-<identity>/<seed>/      a finished run
                               <seed>.part/  one being made, or what is left of a failed, stopped
                                             or killed one
                               <seed>.lock   who is making it
    data/records/<step>-<identity>/<seed>/   a record: a run without weights, small enough to
                                             commit (lib.record)

A run folder holds `spec.json`, `status.json` (our own ledger), `metrics.json`, `env.json`,
`events.jsonl`, arrays such as `predictions.safetensors`, and `model/` where another Spec needs the
weights. A folder without `.part` is complete: it gets its name by one rename at the end.
"""

import json
import os
import shutil
import socket
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load_file, save_file

from lib import paths, record

HEARTBEAT = 5.0  # seconds between signs of life of a run
STALE = 60.0  # seconds without one after which its owner is taken for dead
MIN_FREE = 300 << 20  # bytes of disk without which nothing is started


def write(path, text):
    """Whole or not at all: a reader never sees half a file, and a full disk leaves the old one."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path, value):
    """Write a value as JSON (`write`)."""
    write(path, json.dumps(value, indent=1, allow_nan=True) + "\n")


def read_json(path):
    """Raises ValueError naming the file where it is damaged."""
    try:
        return json.loads(Path(path).read_text())
    except json.JSONDecodeError as error:
        fix = "delete its folder, the run is made again"
        raise ValueError(f"{paths.shown(path)} is damaged ({error}): {fix}") from None


@dataclass(frozen=True)
class Run:
    """A finished run, read only: a folder of files, or a record."""

    folder: Path
    origin: str  # "run": made here; "record": committed evidence

    @cached_property
    def _record(self):
        return record.read(self.folder) if record.there(self.folder) else None

    def _json(self, name):
        if self._record is None:
            return read_json(self.folder / f"{name}.json")
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
            return load_file(self.folder / f"{name}.safetensors")
        return record.arrays(self.folder, self._record, name)

    def lines(self, name):
        """JSON lines that the step wrote under this name; none where the file is absent."""
        if self._record is None:
            text = (self.folder / name).read_text() if (self.folder / name).exists() else ""
        else:
            text = record.text(self.folder, self._record, name)
        return [json.loads(line) for line in text.splitlines()]

    def events(self):
        return self.lines("events.jsonl")


class Held(Exception):
    """Another live process is making this run."""


class Lock:
    """Exclusive right to make a run.

    The lock of the kernel (filelock) frees it when its owner dies. The file tells readers who owns
    it. Its time is a heartbeat, which keeps hosts apart where a shared disk ignores kernel locks.
    """

    def __init__(self, path):
        self.path, self.stop = Path(path), threading.Event()

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(self.path, thread_local=False)
        try:
            self.lock.acquire(blocking=False)
        except Timeout:
            raise Held(owner(self.path)) from None
        there = owner(self.path)
        if there and there["host"] != socket.gethostname() and there["age"] < STALE:
            self.lock.release()
            raise Held(there)
        self.path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def _beat(self):
        while not self.stop.wait(HEARTBEAT):
            try:
                os.utime(self.path)
            except OSError:
                return

    def __exit__(self, *_):
        self.stop.set()
        self.path.unlink(missing_ok=True)
        self.lock.release()


def owner(path):
    """Who holds a lock, and seconds since the last sign of life; None where nobody says."""
    try:
        return json.loads(path.read_text()) | {"age": time.time() - path.stat().st_mtime}
    except (OSError, ValueError):
        return None


def alive(path):
    """Whether the owner of a lock lives.

    On this host its process is there; on another host its heartbeat is fresh.
    """
    who = owner(path)
    if who is None:
        return False
    if who["host"] != socket.gethostname():
        return who["age"] < STALE
    try:
        os.kill(who["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@dataclass(frozen=True)
class Store:
    """Local runs first, then committed records."""

    runs: Path = None
    records: Path | None = None
    fresh: bool = False  # ignore the records

    def __post_init__(self):
        object.__setattr__(self, "runs", Path(self.runs or paths.runs_root()))
        object.__setattr__(self, "records", Path(self.records or paths.records_root()))

    def find(self, spec, weights=False):
        """The finished run of a Spec, or None. With `weights`, one that still has its model."""
        places = {"run": self.runs} | ({} if self.fresh else {"record": self.records})
        for origin, root in places.items():
            folder = root / spec.name
            there = (folder / "status.json").exists() or record.there(folder)
            if there and (not weights or (folder / "model").exists()):
                return Run(folder, origin)
        return None

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
        part = self.part(spec) / "status.json"
        if not part.exists():
            return {"state": "missing"}
        status = read_json(part)
        if status["state"] == "started":
            status["state"] = "running" if alive(self.lock(spec)) else "died"
        return status

    def folders(self):
        """Every finished run made here."""
        paths = sorted(self.runs.glob("*/*/status.json"))
        return [Run(path.parent, "run") for path in paths if path.parent.suffix != ".part"]

    def parts(self):
        """Folders of runs being made or left unfinished."""
        return sorted(self.runs.glob("*/*.part"))

    def recorded(self):
        """Every record."""
        paths = sorted(self.records.glob(f"*/*/{record.NAME}"))
        return [Run(path.parent, "record") for path in paths]

    def record(self, run):
        """Write a finished run to the records, without weights and events. Returns the folder."""
        target = self.records / run.name
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        record.write(run, temporary)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        return target


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
        """Note what happened at a step."""
        self.lines.append({"step": step, **values})

    def save_arrays(self, name, **arrays):
        """Keep arrays under a name."""
        self.arrays[name] = arrays

    def logged(self, name):
        """Arrays of what was logged under a name, {"step": [n], ...}.

        The last note of a step counts: a resumed run repeats the steps after its checkpoint.
        """
        found = {line["step"]: line[name] for line in self.lines if name in line}
        steps = sorted(found)
        columns = {key: np.array([found[step][key] for step in steps]) for key in found[steps[0]]}
        return {"step": np.array(steps)} | columns

    def progress(self, fraction, **now):
        """Say how far the run is."""


class Draft(Scratch):
    """The folder of a run being made, as its step sees it."""

    def __init__(self, store, spec, inputs, keep, checkpoint_seconds=30.0):
        self.store, self.spec, self.inputs, self.keep = store, spec, inputs, keep
        self.seed = spec.seed
        self.folder = store.part(spec)
        self.checkpoint_seconds = checkpoint_seconds
        self.folder.mkdir(parents=True, exist_ok=True)
        before = self.folder / "status.json"
        before = read_json(before) if before.exists() else {}
        self.attempts = before.get("attempts", 0) + 1
        # of earlier attempts, so that a resumed run tells its whole cost
        self.spent = before.get("seconds", 0.0)
        self.worked = before.get("core_seconds", 0.0) - time.process_time()
        self.began = self.told = time.time()
        write_json(self.folder / "spec.json", spec.to_json())
        self.tell("started")

    def tell(self, state, **more):
        """Write the ledger."""
        status = {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        status |= {"seconds": round(self.spent + time.time() - self.began, 2)}
        status |= {"core_seconds": round(self.worked + time.process_time(), 2)}
        write_json(self.folder / "status.json", status | {"attempts": self.attempts} | more)

    def log(self, step, **values):
        """Append one line to the event log, which outlives a kill."""
        with open(self.folder / "events.jsonl", "a") as file:
            file.write(json.dumps({"step": step, **values}, default=float) + "\n")

    @property
    def lines(self):
        return Run(self.folder, "run").events()

    def progress(self, fraction, **now):
        """Say how far the run is; written at most once a second."""
        if time.time() - self.told > 1:
            self.told = time.time()
            self.tell("started", progress=round(fraction, 4), **now)

    def save_arrays(self, name, **arrays):
        save_file(arrays, self.folder / f"{name}.safetensors")

    @property
    def model(self):
        """Folder to save the weights in; None where nobody needs them."""
        return self.folder / "model" if self.keep else None

    def finish(self, metrics, env):
        write_json(self.folder / "metrics.json", metrics)
        write_json(self.folder / "env.json", env)
        shutil.rmtree(self.resume, ignore_errors=True)
        self.tell("finished")
        final = self.store.runs / self.spec.name
        shutil.rmtree(final, ignore_errors=True)  # there where its weights were removed
        self.folder.rename(final)
        return Run(final, "run")
