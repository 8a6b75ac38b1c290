"""This module has the store, where runs are kept, made once, and found again.

    data/runs/<step>-<identity>/<seed>/      is a finished run.
                               <seed>.part/  is a run that is being made, or what is left of one
                                             that failed, was stopped or was killed.
                               <seed>.lock   is held by the process that is making it.
    data/records/<step>-<identity>/<seed>/   is a record: a run without weights and events, small
                                             enough to commit.

A run folder holds `spec.json`, `status.json` (the ledger), `metrics.json`, `env.json`,
`events.jsonl`, arrays such as `predictions.safetensors`, and `model/` where another
Spec needs the weights. A folder without `.part` is complete: it gets its name by one
rename at the end. Its manifest (lib.core.paths) has a digest of each file. A run that
is found damaged, or belongs to another Spec, is not used; a line says so, and the run
that is made again takes its place. What cannot be read is left where it is, and raises
an error."""

from __future__ import annotations

import errno
import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load_file, save_file

from lib.core import disk, paths, processor
from lib.core.disk import Damaged, read_json, write_json
from lib.core.names import Absent
from lib.core.spec import Spec, drop_full_paths, from_json
from lib.core.steps import STEPS
from lib.core.types import Arrays, Json

PARTS = ("spec", "status", "metrics", "env")  # These parts of a run are JSON.
# A record does not copy these from its run. It gets a manifest of its own.
LEFT = ("model", "events.jsonl", disk.MANIFEST)


@cache
def say(line: str) -> None:
    """Print a line to the terminal, once in a process."""
    print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def read_part(name: str) -> property:
    """Return a property that reads a part of a run (PARTS) when it is asked for."""
    return property(lambda run: run.body[name])


@dataclass(frozen=True)
class Run:
    """A Run is a finished run, read only.

    Raises Damaged where it is read and its files are not what was written.
    """

    folder: Path
    origin: str  # A "run" was made here; a "record" is committed.

    spec, status, metrics, env = map(read_part, PARTS)

    @cached_property
    def body(self) -> dict[str, Json]:
        """Return all PARTS, after a check of the digests of all files but the
        weights."""
        disk.check_folder(self.folder, ("model/",))
        for name in PARTS:
            if not (self.folder / f"{name}.json").exists():
                raise Damaged(f"{paths.show_path(self.folder)} has no {name}.json")
        return {name: read_json(self.folder / f"{name}.json") for name in PARTS}

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def model(self) -> Path:
        """Return the folder of the weights; see lib.model.backbone.load."""
        return self.folder / "model"

    def arrays(self, name: str) -> Arrays:
        """Return the arrays saved under a name. Raises FileNotFoundError without
        any."""
        return load_file(self.folder / f"{name}.safetensors")

    def lines(self, name: str) -> list[Json]:
        """Return the JSON lines in a file that the step wrote; none where it is
        absent."""
        path = self.folder / name
        text = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def twin(self) -> Run | None:
        """Return the run beside this one that has float32 in place of bfloat16, or
        None."""
        spec, root = from_json(self.spec), self.folder.parent.parent
        return None if spec.twin == spec else open_run(spec.twin, {self.origin: root})

    def check(self, spec: Spec, weights: bool = False) -> None:
        """Raise Damaged where this is not the whole run of a Spec, OSError where it
        cannot be read.

        weights: whether they are checked as well.
        """
        stored, asked = self.spec, spec.to_json()
        if stored != asked and drop_full_paths(stored) != drop_full_paths(asked):
            raise Damaged(
                f"{paths.show_path(self.folder)} holds the run of another Spec"
            )
        if weights:
            disk.check_folder(self.folder)


@contextmanager
def hold_lock(path: Path, patience: float = -1) -> Iterator[None]:
    """Hold the exclusive right to make a run. While another process holds it, wait.

    path: the lock file of the run. patience: the seconds after which this raises
    Timeout; below 0 it waits without an end. The lock is the file system's (filelock).
    It ends with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk.explain_full_disk(path.parent),
        FileLock(path, patience, thread_local=False),
    ):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at a path."""
    if not path.exists():
        return False
    try:
        with hold_lock(path, 0):
            return False
    except (Timeout, PermissionError):
        return True
    except OSError as error:
        # Nobody makes a run in a store that is mounted to be read.
        if error.errno != errno.EROFS:
            raise
        return False


def run_lines() -> list[dict[str, str]]:
    """Return the lines of `runs.csv`: which run each row of each page has. None without
    a file."""
    path = paths.records_root() / "runs.csv"
    return disk.read_csv(path) if path.exists() else []


def open_run(
    spec: Spec, roots: Mapping[str, Path], weights: bool = False
) -> Run | None:
    """Return the run of a Spec in the first of some folders {origin: folder}, or None.

    Of a run that is not used a line says why. weights: as in `Store.find`.
    """
    for origin, root in roots.items():
        run = Run(root / spec.name, origin)
        if run.folder.exists() and (run.model.exists() or not weights):
            try:
                run.check(spec, weights)
                return run
            except Damaged as error:
                say(f"not used  {error}")
    return None


class Store:
    """A Store is two folders: committed records, and runs.

    Records are looked up first, so that pages are the same wherever runs were made.
    """

    def __init__(
        self, runs: str | Path | None = None, records: str | Path | None = None
    ) -> None:
        self.runs = Path(runs or paths.runs_root())
        self.records = Path(records or paths.records_root())

    def find(self, spec: Spec, weights: bool = False) -> Run | None:
        """Return the finished run of a Spec, or None.

        weights: whether it must still have its model. A run that is damaged, or belongs
        to another Spec, is not used, and a line says so. Raises OSError for a run that
        cannot be read."""
        return open_run(spec, {"record": self.records, "run": self.runs}, weights)

    def look(self, spec: Spec, weights: bool = False) -> tuple[Spec, Run | None]:
        """Return (the Spec whose run stands for a Spec: itself or its twin, the run or
        None).

        A run that is there stands for it, that of the Spec itself first. Where neither
        is there, it is the one that this processor can make. weights: as in `find`."""
        weights = weights and STEPS[spec.step].weights
        run = self.find(spec, weights)
        if run or spec.twin is spec:
            return spec, run
        run = self.find(spec.twin, weights)
        return (spec.twin if run or not processor.has_bfloat16() else spec), run

    def place(self, spec: Spec) -> Run:
        """Rename the folder of a run that is made to its final name.

        It replaces a run that is damaged or has no weights. If it is killed, or the
        power is lost, the new run is whole under either name."""
        final = self.runs / spec.name
        disk.flush_to_disk(self.part(spec))
        disk.remove(final)
        self.part(spec).rename(final)
        disk.sync_path(final.parent)
        return Run(final, "run")

    def part(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".part")

    def lock(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".lock")

    def lookup(self, spec: Spec) -> dict[str, Any]:
        """Return {"run": the Run that stands for a Spec or None, "state": its
        state}.

        It is finished, running, failed, stopped, died or missing.
        """
        spec, run = self.look(spec)
        status, part = {"state": "missing"}, self.part(spec)
        if run:
            status = run.status
        elif part.exists():
            status = self.unfinished(part)
        return {"run": run, "state": status["state"]}

    def missing_specs(
        self, specs: Iterable[Spec], keep: bool = False, exact: bool = False
    ) -> dict[Spec, bool]:
        """Return {Spec: whether its weights are needed} of the runs that must be made
        for Specs.

        Inputs come first. A Spec that this processor cannot make has its twin in its
        place (`look`). The inputs of a run that exists are not looked at: its result
        stands by itself.

        keep: whether the weights of the Specs themselves are needed. exact: whether
        these Specs themselves must be made, also where a twin could stand for one."""
        looked: dict[Spec, bool] = {}
        todo: dict[Spec, bool] = {}

        def need(spec: Spec, weights: bool) -> None:
            weights = bool(weights and STEPS[spec.step].weights)
            if looked.get(spec, -1) >= weights:
                return
            looked[spec] = weights
            if self.find(spec, weights):
                return
            for parent in spec.parents.values():
                need(parent, True)
            todo[spec] = weights

        for spec in specs:
            stands, run = (spec, None) if exact else self.look(spec, keep)
            if not run:
                need(stands, keep)
        return todo

    def why(self, spec: Spec) -> str:
        """Return in one line why a run is missing, or "" where nobody has tried to make
        it.

        It is the error of the input at the root of it.
        """
        for missing_spec in self.missing_specs([spec]):  # Inputs come first.
            if error := read_ledger(self.part(missing_spec)).get("error"):
                return (
                    error
                    if missing_spec == self.look(spec)[0]
                    else why_lost(missing_spec, error)
                )
        return ""

    def unfinished(self, part: Path) -> Json:
        """Return what the ledger of one of `parts` says."""
        status = read_ledger(part)
        if status["state"] not in ("failed", "stopped"):
            status["state"] = (
                "running" if is_locked(part.with_suffix(".lock")) else "died"
            )
        return status

    def list_runs(self, pattern: str = "[!.]*") -> Iterator[Run]:
        """Yield the records, then the finished runs, damaged ones too.

        pattern: a pattern of folder names, step-identity.
        """
        for origin, root in {"record": self.records, "run": self.runs}.items():
            files = root.glob(f"{pattern}/[!.]*/*.json")
            for folder in sorted({path.parent for path in files}):
                if folder.suffix != ".part":
                    yield Run(folder, origin)

    def list_records(self) -> list[Run]:
        """Return every record."""
        return [run for run in self.list_runs() if run.origin == "record"]

    def parts(self) -> list[Path]:
        """Return the folders of runs that are being made or were left unfinished."""
        return sorted(self.runs.glob("*/*.part"))

    def record(self, run: Run) -> Path:
        """Write a finished run to the records, without weights and events. Returns the
        folder."""
        target = self.records / run.name
        with disk.atomic_path(target) as folder:
            shutil.copytree(
                run.folder, folder, ignore=shutil.ignore_patterns(*LEFT, ".*")
            )
            disk.seal_folder(folder)
            disk.flush_to_disk(folder)
            shutil.rmtree(target, ignore_errors=True)
        return target


def core_seconds(status: Json) -> float:
    """Return the core seconds of a run, which other work on the machine does not
    stretch.

    status: what its ledger says. A ledger of before these were noted has the seconds
    alone."""
    return status.get("core_seconds") or status["seconds"]


def read_ledger(part: Path) -> Json:
    """Return what the ledger of an unfinished run says.

    A ledger that is damaged or absent says that the run died.
    """
    status: Json = {"state": "died", "seconds": 0.0, "core_seconds": 0.0, "attempts": 0}
    try:
        return status | read_json(part / "status.json")
    except (OSError, Damaged):
        return status


def why_lost(spec: Spec, error: str) -> str:
    """Return in one line why a run is lost whose input, or an input of that, is
    missing."""
    root = f"needs {spec.name}, which could not be made: {error}"
    return error if error.startswith("needs ") else root


class Scratch:
    """A Scratch has what a training asks of a run, and writes nothing but checkpoints.

    What is logged and saved stays in memory. It serves the candidates of a search and
    the bench. Its subclass `RunWriter` is the run of a Spec."""

    result: Json  # This is what `lib.train.learn.Trainer.fit` returns.

    checkpoint_seconds = 1e9  # None is written but those that are asked for.

    def __init__(self, folder: str | Path, seed: int) -> None:
        self.folder, self.seed = Path(folder), seed
        self.lines: list[Json] = []
        self.arrays: dict[str, Arrays] = {}

    @property
    def resume(self) -> Path:
        """Return the folder of the checkpoints."""
        return self.folder / "resume"

    def log(self, step: int, **values: Any) -> None:
        """Note what happened at a step. Checkpoints hold the lines."""
        self.lines.append(
            json.loads(json.dumps({"step": step, **values}, default=float))
        )

    def save_arrays(self, name: str, **arrays: np.ndarray) -> None:
        """Keep arrays under a name."""
        self.arrays[name] = arrays

    def read_log(self, name: str) -> Arrays:
        """Return the arrays of what was logged under a name: {"step": [n], ...}.

        If a step has several notes, the last one counts.
        """
        notes = {line["step"]: line[name] for line in self.lines if name in line}
        steps = sorted(notes)
        columns = {
            key: np.array([notes[step][key] for step in steps])
            for key in notes[steps[0]]
        }
        return {"step": np.array(steps)} | columns

    def progress(self, fraction: float, **now: Any) -> None:
        """Note the share of the run that is done."""


class RunWriter(Scratch):
    """A RunWriter is the folder of a run that is being made, as its step sees it."""

    def __init__(
        self,
        store: Store,
        spec: Spec,
        inputs: dict[str, Run],
        keep: bool,
        checkpoint_seconds: float = 30.0,
    ) -> None:
        folder = store.part(spec)
        assert spec.seed is not None  # Otherwise it has no folder.
        super().__init__(folder, spec.seed)
        self.checkpoint_seconds = checkpoint_seconds
        self.store, self.spec, self.inputs, self.keep = store, spec, inputs, keep
        self.folder.mkdir(parents=True, exist_ok=True)
        before = read_ledger(self.folder)
        self.attempts = before["attempts"] + 1
        # The costs of earlier attempts count, so that a resumed run tells its whole
        # cost.
        self.spent = before["seconds"]
        self.worked = before["core_seconds"] - time.process_time()
        self.began = self.reported = time.monotonic()
        (self.folder / disk.MANIFEST).unlink(missing_ok=True)
        # An attempt that was killed may have left it.
        for path in list(self.folder.rglob(".*")):
            disk.remove(path)
        write_json(self.folder / "spec.json", spec.to_json())
        self.made_as = self.stamp()
        self.write_state("started")

    def stamp(self) -> tuple[int, int, int]:
        """Return what tells this folder from one that was made anew in its place."""
        spec = (self.folder / "spec.json").stat()
        return self.folder.stat().st_ino, spec.st_ino, spec.st_mtime_ns

    def check_folder_stands(self) -> None:
        """Raise FileNotFoundError where somebody has deleted the folder while the run
        is made.

        What would be written from then on would be a run without its first files.
        """
        with suppress(FileNotFoundError):
            if self.stamp() == self.made_as:
                return
        where = f"{paths.show_path(self.folder)} was deleted while the run was made"
        raise Absent(f"{where}: the same command makes it anew")

    def write_state(self, state: str, in_place: bool = False, **more: Any) -> None:
        """Write the ledger. in_place: over the bytes that it has, which takes no room
        on a disk."""
        self.check_folder_stands()
        status = {
            "state": state,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(self.spent + time.monotonic() - self.began, 2),
            "core_seconds": round(self.worked + time.process_time(), 2),
            "attempts": self.attempts,
            **more,
        }
        if in_place:
            with open(self.folder / "status.json", "r+b") as file:
                file.write(json.dumps(status).encode())
                file.truncate()
        else:
            write_json(self.folder / "status.json", status)

    def progress(self, fraction: float, **now: Any) -> None:
        """Write the share of the run that is done to the ledger, at most once a
        second."""
        if time.monotonic() - self.reported > 1:
            self.reported = time.monotonic()
            self.write_state("started", progress=round(fraction, 4), **now)

    def save_arrays(self, name: str, **arrays: np.ndarray) -> None:
        self.check_folder_stands()
        # The format takes the bytes of an array as they lie.
        arrays = {key: np.asarray(values, order="C") for key, values in arrays.items()}
        save_file(arrays, self.folder / f"{name}.safetensors")

    @property
    def model(self) -> Path | None:
        """Return the folder to save the weights in; None where nobody needs them."""
        return self.folder / "model" if self.keep else None

    def seal(self, metrics: Json, env: Json) -> None:
        """Write the last files of a run. Only its rename is left then
        (`Store.place`)."""
        self.check_folder_stands()
        write_json(self.folder / "metrics.json", metrics)
        write_json(self.folder / "env.json", env)
        body = "".join(json.dumps(line) + "\n" for line in self.lines)
        disk.write(self.folder / "events.jsonl", body, durable=False)
        shutil.rmtree(self.resume, ignore_errors=True)
        self.write_state("finished")
        disk.seal_folder(self.folder)
