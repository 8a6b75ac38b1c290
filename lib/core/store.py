"""This module has the store of runs: each Spec (description of a run) is executed once,
and its run is found again.

    data/runs/<step>-<identity>/<seed>/      is a finished run.
                               <seed>.part/  is a run that is being made, or what is left of one
                                             that failed, was stopped or was killed.
                               <seed>.lock   is held by the process that is making it.
    data/records/<step>-<identity>/<seed>/   is a record: a run without weights and events, small
                                             enough to commit.

A run folder holds `spec.json`, `status.json` (state, times, attempts),
`metrics.json`, `env.json` (versions and processor), `events.jsonl` (the log of the
training), arrays such as `predictions.safetensors`, and `model/` where another Spec
needs the weights. A folder without `.part` is complete: it gets its name by one rename
at the end. Its manifest has a digest of each file (lib.core.disk). A run that is
damaged, or belongs to another Spec, is reported, not used, and replaced by a new run. A
run that cannot be read stays where it is, and raises OSError."""

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
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load_file, save_file

from lib.core import disk, paths, processor
from lib.core.disk import Damaged, read_json, write_json
from lib.core.names import Absent
from lib.core.spec import Spec, from_json, remove_absolute_paths
from lib.core.steps import STEPS
from lib.core.types import Arrays, Json

JSON_FILES = ("spec", "status", "metrics", "env")  # Stems of the JSON files of a run.
# "run" for a run of this machine, "record" for a committed one.
Origin: TypeAlias = Literal["run", "record"]
RunStatus: TypeAlias = Json  # Content of `status.json`: state, times, attempts.
# {Spec of a missing run: whether its weights are needed}.
NeedsWeightsBySpec: TypeAlias = dict[Spec, bool]
# Files that are not copied when a run is committed as a record: weights and log are
# large, and the manifest is written anew.
NOT_RECORDED = ("model", "events.jsonl", disk.MANIFEST)


@cache
def print_once(line: str) -> None:
    """Print a line to stderr, unless this process has printed the same line before."""
    print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def make_json_property(file_stem: str) -> property:
    """Return a property for the class Run that has the content of one JSON file of a
    run, read on first use.

    file_stem: "spec", "status", "metrics" or "env"."""
    return property(lambda run: run.content_by_json_file[file_stem])


@dataclass(frozen=True)
class Run:
    """A Run is the folder of a finished run (a training or a measurement), for reading.

    Its files are checked when they are first read; Damaged is raised where one differs
    from its digest in the manifest."""

    folder: Path
    origin: Origin

    spec, status, metrics, env = map(make_json_property, JSON_FILES)

    @cached_property
    def content_by_json_file(self) -> dict[str, Json]:
        """Return {"spec", "status", "metrics", "env": content of that JSON file}, after
        a check of the digests of all files but the weights.

        Raises Damaged where a file is missing or differs from its digest."""
        disk.check_manifest(self.folder, ("model/",))
        for name in JSON_FILES:
            if not (self.folder / f"{name}.json").exists():
                raise Damaged(f"{paths.format_path(self.folder)} has no {name}.json")
        return {name: read_json(self.folder / f"{name}.json") for name in JSON_FILES}

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def model_folder(self) -> Path:
        """Return the path of the folder of the weights, which lib.model.backbone.load
        reads; it may be missing."""
        return self.folder / "model"

    def read_arrays(self, file_name: str) -> Arrays:
        """Return {name: array} of the run's file `file_name`.safetensors, such as its
        predictions. Raises FileNotFoundError where it is missing."""
        return load_file(self.folder / f"{file_name}.safetensors")

    def read_json_lines(self, file_name: str) -> list[Json]:
        """Return the values in a file of the run that has a JSON value on each line,
        such as the log of a training; an empty list where the file is missing."""
        path = self.folder / file_name
        text = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def float32_run(self) -> Run | None:
        """Return the run that is equal to this one but computed in float32 instead of
        bfloat16, from the same folder of runs, or None."""
        spec, root = from_json(self.spec), self.folder.parent.parent
        return (
            None
            if spec.float32_spec == spec
            else open_run(spec.float32_spec, {self.origin: root})
        )

    def check_files(self, spec: Spec, check_weights: bool = False) -> None:
        """Raise Damaged where a file of this run is damaged, or the run belongs to
        another Spec (description of a run).

        Raises OSError for a file that cannot be read.

        spec: the Spec whose run this should be.
        check_weights: whether the digests of the weights are checked too, which takes
        time."""
        stored, asked = self.spec, spec.to_json()
        if stored != asked and remove_absolute_paths(stored) != remove_absolute_paths(
            asked
        ):
            raise Damaged(
                f"{paths.format_path(self.folder)} holds the run of another Spec"
            )
        if check_weights:
            disk.check_manifest(self.folder)


class RunState(TypedDict):
    run: Run | None
    state: str


class SpecAndRun(NamedTuple):
    spec: Spec
    run: Run | None


@contextmanager
def hold_lock(lock_path: Path, max_wait_seconds: float = -1) -> Iterator[None]:
    """Hold the lock of a run during a `with` block, so that no other process makes the
    run at the same time.

    While another process holds the lock, wait. It is a lock of the file system
    (filelock), so it ends with the process that holds it.

    lock_path: the lock file of the run.
    max_wait_seconds: seconds after which Timeout is raised; below 0 there is no
    limit."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk.translate_full_disk_errors(lock_path.parent),
        FileLock(lock_path, max_wait_seconds, thread_local=False),
    ):
        try:
            yield
        finally:
            lock_path.unlink(missing_ok=True)


def is_locked(lock_path: Path) -> bool:
    """Return whether a process holds the lock of a run, and so is making that run.

    lock_path: the lock file of the run."""
    if not lock_path.exists():
        return False
    try:
        with hold_lock(lock_path, 0):
            return False
    except (Timeout, PermissionError):
        return True
    except OSError as error:
        # In a read-only file system nobody can make a run, so nothing is locked.
        if error.errno != errno.EROFS:
            raise
        return False


def read_run_index() -> list[dict[str, str]]:
    """Return the lines of the committed index `runs.csv` as {column: cell}; an empty
    list where there is no such file.

    The index says by which run each line of each published table was computed."""
    path = paths.records_root() / "runs.csv"
    return disk.read_csv(path) if path.exists() else []


def open_run(
    spec: Spec, folder_by_origin: Mapping[Origin, Path], needs_weights: bool = False
) -> Run | None:
    """Return the finished run of a Spec (description of a run) from the first of
    several folders that has it, or None.

    A run that is damaged or belongs to another Spec is not used, and a line is printed
    that says why.

    folder_by_origin: {"record" or "run": folder of committed runs, or of this
    machine's runs}.
    needs_weights: whether the run must have its weights."""
    for origin, root in folder_by_origin.items():
        run = Run(root / spec.name, origin)
        if run.folder.exists() and (run.model_folder.exists() or not needs_weights):
            try:
                run.check_files(spec, needs_weights)
                return run
            except Damaged as error:
                print_once(f"not used  {error}")
    return None


class Store:
    """A Store finds and writes runs in two folders: committed runs without weights
    ("records"), and the runs of this machine.

    Records are looked up first, so that tables are the same on every machine.

    runs, records: the two folders; by default those of the project."""

    def __init__(
        self, runs: str | Path | None = None, records: str | Path | None = None
    ) -> None:
        self.runs = Path(runs or paths.runs_root())
        self.records = Path(records or paths.records_root())

    def find_run(self, spec: Spec, needs_weights: bool = False) -> Run | None:
        """Return the finished run of a Spec (description of a run), from the records or
        from this machine's runs, or None.

        A run that is damaged, or belongs to another Spec, is reported and not used.
        Raises OSError for a run that cannot be read.

        needs_weights: whether the run must have its weights."""
        return open_run(spec, {"record": self.records, "run": self.runs}, needs_weights)

    def find_run_or_float32_run(
        self, spec: Spec, needs_weights: bool = False
    ) -> SpecAndRun:
        """Return the Spec and its finished run or None, where the Spec may be replaced
        by the same Spec in float32 instead of bfloat16.

        If the Spec has a run, that is returned; else that in float32, if there is one.
        Where neither has a run, it is the one to execute: in float32 on a processor
        without bfloat16 instructions, and else the Spec itself.

        needs_weights: whether the run must have its weights."""
        needs_weights = needs_weights and STEPS[spec.step].weights
        run = self.find_run(spec, needs_weights)
        if run or spec.float32_spec is spec:
            return SpecAndRun(spec, run)
        run = self.find_run(spec.float32_spec, needs_weights)
        in_float32 = run or not processor.has_bfloat16()
        return SpecAndRun(spec.float32_spec if in_float32 else spec, run)

    def rename_finished_run_folder(self, spec: Spec) -> Run:
        """Rename the folder of a run that has just finished from `<seed>.part` to its
        final name, and return the run.

        An older run there, which is damaged or has no weights, is deleted. If the
        process is killed or the power is lost meanwhile, the new run is complete under
        one of the two names."""
        final = self.runs / spec.name
        disk.fsync_tree(self.unfinished_folder(spec))
        disk.remove_path(final)
        self.unfinished_folder(spec).rename(final)
        disk.fsync_path(final.parent)
        return Run(final, "run")

    def unfinished_folder(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".part")

    def lock_path(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".lock")

    def look_up_state(self, spec: Spec) -> RunState:
        """Return {"run": finished run of a Spec (description of a run) or None,
        "state": text}.

        The state is "finished", "running", "failed", "stopped", "died" or "missing". A
        run in float32 stands for a Spec in bfloat16."""
        spec, run = self.find_run_or_float32_run(spec)
        status, part = {"state": "missing"}, self.unfinished_folder(spec)
        if run:
            status = run.status
        elif part.exists():
            status = self.read_status_with_current_state(part)
        return {"run": run, "state": status["state"]}

    def list_missing_specs(
        self,
        specs: Iterable[Spec],
        keep_weights: bool = False,
        ignore_float32_runs: bool = False,
    ) -> NeedsWeightsBySpec:
        """Return {Spec: whether its weights are needed} of all runs that are still to
        be made for some Specs (descriptions of runs), inputs before the Specs that need
        them.

        A Spec in bfloat16 is replaced by the same Spec in float32 where that has a run,
        or where this processor has no bfloat16 instructions. The inputs of a finished
        run are left out, since its result does not need them any more.

        keep_weights: whether the weights of the Specs themselves are needed.
        ignore_float32_runs: whether Specs are never replaced by their float32
        version."""
        looked: NeedsWeightsBySpec = {}
        todo: NeedsWeightsBySpec = {}

        def add_missing(spec: Spec, needs_weights: bool) -> None:
            needs_weights = bool(needs_weights and STEPS[spec.step].weights)
            if looked.get(spec, -1) >= needs_weights:
                return
            looked[spec] = needs_weights
            if self.find_run(spec, needs_weights):
                return
            for parent in spec.input_specs_with_seeds.values():
                add_missing(parent, True)
            todo[spec] = needs_weights

        for spec in specs:
            stands, run = (
                (spec, None)
                if ignore_float32_runs
                else self.find_run_or_float32_run(spec, keep_weights)
            )
            if not run:
                add_missing(stands, keep_weights)
        return todo

    def explain_missing_run(self, spec: Spec) -> str:
        """Return in one line why a Spec (description of a run) has no finished run: the
        error of the last attempt, or that of an input. It is "" where there was no
        attempt."""
        # Inputs come before the Specs that need them, so the first error is the cause
        # of those that follow.
        for missing_spec in self.list_missing_specs([spec]):
            if error := read_run_status(self.unfinished_folder(missing_spec)).get(
                "error"
            ):
                return (
                    error
                    if missing_spec == self.find_run_or_float32_run(spec)[0]
                    else explain_failed_input(missing_spec, error)
                )
        return ""

    def read_status_with_current_state(self, unfinished_folder: Path) -> RunStatus:
        """Return the `status.json` of an unfinished run (state, times,
        attempts), where the state "started" is replaced by a truer one.

        It becomes "running" where a process holds the lock of the run, and "died" where
        none does: a killed process cannot correct its `status.json`.

        unfinished_folder: the folder `<seed>.part` of the run."""
        status = read_run_status(unfinished_folder)
        if status["state"] not in ("failed", "stopped"):
            status["state"] = (
                "running"
                if is_locked(unfinished_folder.with_suffix(".lock"))
                else "died"
            )
        return status

    def list_runs(self, folder_pattern: str = "[!.]*") -> Iterator[Run]:
        """Yield all committed runs (records), then all finished runs of this machine,
        damaged ones too.

        folder_pattern: a glob pattern of folder names, which are "<step>-<identity>",
        such as "finetune-*"; by default all that do not begin with a dot."""
        folders: dict[Origin, Path] = {"record": self.records, "run": self.runs}
        for origin, root in folders.items():
            files = root.glob(f"{folder_pattern}/[!.]*/*.json")
            for folder in sorted({path.parent for path in files}):
                if folder.suffix != ".part":
                    yield Run(folder, origin)

    def list_records(self) -> list[Run]:
        """Return all records: committed runs without weights."""
        return [run for run in self.list_runs() if run.origin == "record"]

    def list_unfinished_folders(self) -> list[Path]:
        """Return the folders (`<seed>.part`) of runs that are being made, or that
        failed, were stopped or were killed."""
        return sorted(self.runs.glob("*/*.part"))

    def copy_run_to_records(self, run: Run) -> Path:
        """Copy a finished run to the folder of committed runs, without its weights and
        its log, and return the new folder."""
        target = self.records / run.name
        with disk.write_atomically(target) as folder:
            shutil.copytree(
                run.folder, folder, ignore=shutil.ignore_patterns(*NOT_RECORDED, ".*")
            )
            disk.write_manifest(folder)
            disk.fsync_tree(folder)
            shutil.rmtree(target, ignore_errors=True)
        return target


def count_core_seconds(run_status: RunStatus) -> float:
    """Return the CPU seconds that a run took, summed over all its cores.

    Unlike wall-clock seconds, they hardly grow with other work on the machine. Old runs
    have no CPU seconds; then the wall-clock seconds are returned.

    run_status: the content of the run's `status.json`."""
    return run_status.get("core_seconds") or run_status["seconds"]


def read_run_status(unfinished_folder: Path) -> RunStatus:
    """Return the `status.json` of an unfinished run (state, times, number
    of attempts).

    Where it is damaged or missing, the state is "died", with no time and no attempts.

    unfinished_folder: the folder `<seed>.part` of the run."""
    status: RunStatus = {
        "state": "died",
        "seconds": 0.0,
        "core_seconds": 0.0,
        "attempts": 0,
    }
    try:
        return status | read_json(unfinished_folder / "status.json")
    except (OSError, Damaged):
        return status


def explain_failed_input(spec: Spec, input_error: str) -> str:
    """Return in one line why a run cannot be made: the input that failed, and its
    error.

    spec: the Spec of that input.
    input_error: the error of that input. If it already names an earlier input that
    failed, it is returned unchanged."""
    root = f"needs {spec.name}, which could not be made: {input_error}"
    return input_error if input_error.startswith("needs ") else root


class Scratch:
    """A Scratch takes the log and the arrays of a training that is not saved as a run.

    They stay in memory; only checkpoints are written to its folder. It serves the many
    short trainings of an architecture search, and benchmarks. Its subclass `RunWriter`
    writes a run to disk.

    seed: the seed of the training."""

    result: Json  # Return value of `lib.train.learn.Trainer.fit`.

    # Seconds between checkpoints: by default so many that none is written.
    checkpoint_interval_seconds = 1e9

    def __init__(self, folder: str | Path, seed: int) -> None:
        self.folder, self.seed = Path(folder), seed
        self.lines: list[Json] = []
        self.arrays: dict[str, Arrays] = {}

    @property
    def checkpoint_folder(self) -> Path:
        """Return the folder to which checkpoints are written, and from which a stopped
        training resumes."""
        return self.folder / "resume"

    def log_step(self, step: int, **values: Any) -> None:
        """Append named values of a training step, such as its loss, to the log, which
        checkpoints save too.

        step: the number of the training step."""
        self.lines.append(
            json.loads(json.dumps({"step": step, **values}, default=float))
        )

    def save_arrays(self, file_stem: str, **arrays: np.ndarray) -> None:
        """Keep named arrays in memory; a subclass writes them to one file.

        file_stem: the name of the file without its ending."""
        self.arrays[file_stem] = arrays

    def read_log(self, logged_name: str) -> Arrays:
        """Return what `log_step` logged as `logged_name`, as {key: array [n]} for the n
        training steps that logged a dict {key: number} under this name.

        "step" has the numbers of these steps. If a step logged twice, the last values
        count."""
        notes = {
            line["step"]: line[logged_name]
            for line in self.lines
            if logged_name in line
        }
        steps = sorted(notes)
        columns = {
            key: np.array([notes[step][key] for step in steps])
            for key in notes[steps[0]]
        }
        return {"step": np.array(steps)} | columns

    def report_progress(self, fraction: float, **values: Any) -> None:
        """Do nothing with the share of the training that is done; the subclass
        `RunWriter` writes it to the run's `status.json`.

        fraction: the share that is done, 0 to 1."""


class FolderStamp(NamedTuple):
    folder_inode: int
    spec_inode: int  # Of the file `spec.json`.
    spec_modified_ns: int


class RunWriter(Scratch):
    """A RunWriter is the folder of a run that is being made, for writing.

    The function that does a run's work gets it, to log, to save arrays and weights, and
    to read the runs that are its inputs.

    inputs: {name, such as "teacher": finished run}.
    keep_weights: whether the model's weights are saved.
    checkpoint_interval_seconds: seconds between two checkpoints."""

    def __init__(
        self,
        store: Store,
        spec: Spec,
        inputs: dict[str, Run],
        keep_weights: bool,
        checkpoint_interval_seconds: float = 30.0,
    ) -> None:
        folder = store.unfinished_folder(spec)
        # For the type checker: unfinished_folder raises Refused for a Spec without
        # seed.
        assert spec.seed is not None
        super().__init__(folder, spec.seed)
        self.checkpoint_interval_seconds = checkpoint_interval_seconds
        self.store, self.spec, self.inputs, self.keep = (
            store,
            spec,
            inputs,
            keep_weights,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        before = read_run_status(self.folder)
        self.attempts = before["attempts"] + 1
        # Add the time of earlier attempts, so that a resumed run reports all its time.
        self.spent = before["seconds"]
        self.worked = before["core_seconds"] - time.process_time()
        self.began = self.reported = time.monotonic()
        (self.folder / disk.MANIFEST).unlink(missing_ok=True)
        # An attempt that was killed may have left temporary files.
        for path in list(self.folder.rglob(".*")):
            disk.remove_path(path)
        write_json(self.folder / "spec.json", spec.to_json())
        self.made_as = self.folder_stamp()
        self.write_status("started")

    def folder_stamp(self) -> FolderStamp:
        """Return inodes and a modification time of this folder, by which it is noticed
        if another process has deleted the folder and made it again."""
        spec = (self.folder / "spec.json").stat()
        return FolderStamp(self.folder.stat().st_ino, spec.st_ino, spec.st_mtime_ns)

    def check_folder_exists(self) -> None:
        """Raise Absent where somebody has deleted this folder while the run is made.

        Otherwise later writes would complete a run that lacks its first files."""
        with suppress(FileNotFoundError):
            if self.folder_stamp() == self.made_as:
                return
        where = f"{paths.format_path(self.folder)} was deleted while the run was made"
        raise Absent(f"{where}: the same command makes it anew")

    def write_status(
        self, state: str, overwrite_bytes: bool = False, **values: Any
    ) -> None:
        """Write the run's `status.json`: state, date, seconds, CPU
        seconds, number of attempts, and further `values`.

        state: "started", "finished", "failed" or "stopped".
        overwrite_bytes: whether to overwrite the old bytes, which works on a full disk
        too."""
        self.check_folder_exists()
        status = {
            "state": state,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(self.spent + time.monotonic() - self.began, 2),
            "core_seconds": round(self.worked + time.process_time(), 2),
            "attempts": self.attempts,
            **values,
        }
        if overwrite_bytes:
            with open(self.folder / "status.json", "r+b") as file:
                file.write(json.dumps(status).encode())
                file.truncate()
        else:
            write_json(self.folder / "status.json", status)

    def report_progress(self, fraction: float, **values: Any) -> None:
        """Write the share of the run that is done to its `status.json`, at most once a
        second, so that progress bars can read it.

        fraction: the share that is done, 0 to 1."""
        if time.monotonic() - self.reported > 1:
            self.reported = time.monotonic()
            self.write_status("started", progress=round(fraction, 4), **values)

    def save_arrays(self, file_stem: str, **arrays: np.ndarray) -> None:
        self.check_folder_exists()
        # Copy arrays of another memory layout: safetensors writes their bytes in the
        # order of memory, but reads them in C order.
        arrays = {key: np.asarray(values, order="C") for key, values in arrays.items()}
        save_file(arrays, self.folder / f"{file_stem}.safetensors")

    @property
    def model_folder(self) -> Path | None:
        """Return the path of the folder to which weights are saved, or None where they
        are not to be saved."""
        return self.folder / "model" if self.keep else None

    def write_final_files(self, metrics: Json, environment: Json) -> None:
        """Write the last files of a run, and its manifest with a digest of each file.

        Then `Store.rename_finished_run_folder` gives the folder its final name.

        metrics: the result of the run, for `metrics.json`.
        environment: versions, processor and commit, for `env.json`."""
        self.check_folder_exists()
        write_json(self.folder / "metrics.json", metrics)
        write_json(self.folder / "env.json", environment)
        body = "".join(json.dumps(line) + "\n" for line in self.lines)
        disk.write_text_file(self.folder / "events.jsonl", body, sync_to_disk=False)
        shutil.rmtree(self.checkpoint_folder, ignore_errors=True)
        self.write_status("finished")
        disk.write_manifest(self.folder)
