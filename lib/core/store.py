"""This module has the store of runs: each Spec (description of a run) is executed once,
and its run is found again.

    data/runs/<step>-<identity>/<seed>/      is a finished run.
                               <seed>.part/  is a run that is being made, or what is
                               left of one
                                             that failed, was stopped or was killed.
                               <seed>.lock   is held by the process that is making it.
    data/records/<step>-<identity>/<seed>/   is a record: a run without weights and
    events, small
                                             enough to commit.

A run folder holds `spec.json`, `status.json` (state, times, attempts),
`metrics.json`, `env.json` (versions and processor), `events.jsonl` (the log of the
training), arrays such as `predictions.safetensors`, and `model/` where the weights are
kept. A folder without `.part` is complete: it gets its name by one rename at the end.
Its manifest has a digest of each file (lib.core.disk). A run that is damaged, or
belongs to another Spec, is reported, not used, and replaced by a new run. A run that
cannot be read stays where it is, and raises OSError."""

from __future__ import annotations

import errno
import json
import os
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
from lib.core.spec import Spec, make_spec_from_json, remove_absolute_paths
from lib.core.steps import STEPS
from lib.core.types import Arrays, CsvRow, Json

# Names, without ".json", of the JSON files of each run.
JSON_FILES = ("spec", "status", "metrics", "env")
# Where a finished run comes from: "run" was made on this machine, "record" is a
# committed result in the repository.
Origin: TypeAlias = Literal["run", "record"]
RunStatusJson: TypeAlias = Json  # Content of `status.json`: state, times, attempts.
# {Spec of a missing run: whether its weights are needed}.
NeedsWeightsBySpec: TypeAlias = dict[Spec, bool]
# Files that are not copied when a run is committed as a record: weights and log are
# large, and the manifest is written anew.
NOT_RECORDED = ("model", "events.jsonl", disk.MANIFEST)


@cache
def print_once(line: str) -> None:
    """Print a line to stderr, unless this process has printed the same line before.

    So a warning about a file that is read many times is shown once."""
    print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def make_json_property(file_stem: str) -> property:
    """Return a property for the class Run that gives the content of one JSON file.

    The file is read on first use. Run is the folder of a finished training or
    measurement.

    file_stem: "spec", "status", "metrics" or "env", for the file of this name."""
    return property(lambda run: run.content_by_json_file[file_stem])


@dataclass(frozen=True)
class Run:
    """A Run is the stored result of a training or measurement, for reading.

    `spec` (its description as JSON), `status` (state and times), `metrics` and `env`
    (versions, processor) are dicts. They are read on first use, and Damaged is raised
    where a file differs from its digest in the folder's manifest.

    folder: the folder of the result, "<step>-<identity>/<seed>". The step is the kind
    of work, such as "finetune", and the identity a hash of the description.
    origin: "run" for one that this machine made, "record" for one that is committed to
    git, without its weights."""

    folder: Path
    origin: Origin

    spec, status, metrics, env = map(make_json_property, JSON_FILES)

    @cached_property
    def content_by_json_file(self) -> dict[str, Json]:
        """Return {"spec", "status", "metrics", "env": content of that JSON file}.

        The SHA-256 digests of all files of the folder but the weights are checked
        first. Raises Damaged where a file is missing or differs from its digest."""
        disk.check_manifest(self.folder, ("model/",))
        for name in JSON_FILES:
            if not os.path.exists(f"{self.folder}/{name}.json"):
                raise Damaged(
                    f"{paths.format_project_path(self.folder)} has no {name}.json"
                )
        return {name: read_json(f"{self.folder}/{name}.json") for name in JSON_FILES}

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def model_folder(self) -> Path:
        """Return the path of the folder with the model's weights and tokenizer.

        The folder is missing where the weights were not saved.
        `lib.model.backbone.load` opens the model. Some steps, such as "augment", make
        no model, and have other large files in this folder."""
        return self.folder / "model"

    def read_arrays(self, file_stem: str) -> Arrays:
        """Return {name: array} of one file of this stored result.

        Such a file has the predictions, for example. Raises FileNotFoundError where the
        file is missing.

        file_stem: the name of the file without its ending `.safetensors`."""
        return load_file(self.folder / f"{file_stem}.safetensors")

    def read_json_lines(self, file_name: str) -> list[Json]:
        """Return the JSON values of a file of this stored result, one for each line.

        The log of a training and the history of a search are such files. The list is
        empty where the file is missing.

        file_name: the name with its ending, such as "events.jsonl"."""
        path = self.folder / file_name
        text = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def float32_run(self) -> Run | None:
        """Return the run that differs from this one only in computing in float32.

        A comparison takes it where the other model was computed in float32, so that
        rounding does not add to the difference. It is None where this run is not in
        bfloat16, or where no such run is stored beside it."""
        spec, root = make_spec_from_json(self.spec), self.folder.parent.parent
        return (
            None
            if spec.float32_spec == spec
            else find_run_in_folders(spec.float32_spec, {self.origin: root})
        )

    def check_files_and_spec(
        self, expected_spec: Spec, check_weights: bool = False
    ) -> None:
        """Raise Damaged where this stored result is not a sound one of the given Spec.

        That is so where a file is damaged, or where the result was made by another
        Spec. Such a result is not used, and is computed again. Raises OSError for a
        file that cannot be read.

        expected_spec: the Spec (step, arguments, inputs, seed) whose result this should
        be.
        check_weights: whether the digests of the weights are checked too, which takes
        time."""
        asked = remove_absolute_paths(expected_spec.to_json())
        if remove_absolute_paths(self.spec) != asked:
            raise Damaged(
                f"{paths.format_project_path(self.folder)} holds the run of another Spec"
            )
        if check_weights:
            disk.check_manifest(self.folder)


# A line of a published table, with the name of the run that it was computed by: the
# columns page, profile, labels, seed and run of `runs.csv`.
TableLineAndRunName: TypeAlias = CsvRow


class RunAndState(TypedDict):
    run: Run | None
    state: Literal["finished", "running", "failed", "stopped", "died", "missing"]


class SpecAndRun(NamedTuple):
    spec: Spec
    run: Run | None


@contextmanager
def hold_lock(lock_path: Path, max_wait_seconds: float = -1) -> Iterator[None]:
    """Hold the lock of a run during a `with` block.

    So no other process does the same training or measurement at the same time. While
    another process holds the lock, this one waits. It is a lock of the file system
    (filelock), so it ends with the process that holds it.

    lock_path: the lock file of the run.
    max_wait_seconds: seconds after which Timeout is raised; -1 waits without limit."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk.raise_full_disk_as_oserror(lock_path.parent),
        FileLock(lock_path, max_wait_seconds, thread_local=False),
    ):
        try:
            yield
        finally:
            lock_path.unlink(missing_ok=True)


def is_locked(lock_path: Path) -> bool:
    """Return whether a process is doing a training or measurement, by its lock file.

    The state of an unfinished run is "running" where it is locked, and "died" where it
    is not. A lock that belongs to another user counts as held.

    lock_path: the lock file of the run, as `hold_lock` takes it."""
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


def read_runs_csv() -> list[TableLineAndRunName]:
    """Return the lines of the table `runs.csv` of the repository as {column: cell}.

    The table says by which run (training or measurement) a line of a published table
    was computed. Its columns are page (name of a notebook, or id of a paper's claim),
    profile (size of the experiments), labels (such as "model=BERT; task=SST-2"), seed
    and run (name of the run's folder). The list is empty where the file is missing."""
    path = paths.records_root() / "runs.csv"
    return disk.read_csv(path) if path.exists() else []


def find_run_in_folders(
    spec: Spec, folder_by_origin: Mapping[Origin, Path], needs_weights: bool = False
) -> Run | None:
    """Return the stored result of a Spec from the first of several folders, or None.

    A Spec is the description of a run. A result that is damaged, or was made by another
    Spec, is not used, and a line on stderr says why. Raises OSError for a result that
    cannot be read.

    folder_by_origin: the folders in the order of the search, {"record": folder of
    results committed to git, "run": folder of this machine's results}.
    needs_weights: whether only a result with its weights is taken; their digests are
    then checked too."""
    for origin, root in folder_by_origin.items():
        run = Run(root / spec.name, origin)
        if run.folder.exists() and (run.model_folder.exists() or not needs_weights):
            try:
                run.check_files_and_spec(spec, needs_weights)
                return run
            except Damaged as error:
                print_once(f"not used  {error}")
    return None


class Store:
    """A Store finds and writes the results of trainings and measurements ("runs").

    It has two folders, that of runs committed to git without weights ("records") and
    that of this machine's runs. Records are looked up first, so that tables are the
    same on every machine.

    runs_folder, records_folder: the two folders; by default those of the project."""

    def __init__(
        self,
        runs_folder: str | Path | None = None,
        records_folder: str | Path | None = None,
    ) -> None:
        self.runs = Path(runs_folder or paths.runs_root())
        self.records = Path(records_folder or paths.records_root())

    def find_run(self, spec: Spec, needs_weights: bool = False) -> Run | None:
        """Return the stored result of a Spec, the description of a run, or None.

        Runs committed to git (records) are looked up first, then those of this machine.
        A run that is damaged, or was made by another Spec, is not used, and a line on
        stderr says why. Raises OSError for a run that cannot be read.

        needs_weights: whether only a run with its weights is taken."""
        return find_run_in_folders(
            spec, {"record": self.records, "run": self.runs}, needs_weights
        )

    def find_run_or_float32_run(
        self, spec: Spec, needs_weights: bool = False
    ) -> SpecAndRun:
        """Return (Spec, its result or None), where float32 may replace bfloat16.

        A Spec is the description of a run. Some processors have no bfloat16, so a
        result in float32 may stand for a Spec in bfloat16. If the Spec has a result,
        both are returned. Otherwise the same Spec in float32 is returned with its
        result. If there is no result either, the Spec to execute is returned with None;
        on a processor without bfloat16 instructions this is the Spec in float32.

        needs_weights: whether only a result with its weights counts, if this kind of
        work saves weights."""
        needs_weights = needs_weights and STEPS[spec.step].saves_weights
        run = self.find_run(spec, needs_weights)
        if run or spec.float32_spec is spec:
            return SpecAndRun(spec, run)
        run = self.find_run(spec.float32_spec, needs_weights)
        in_float32 = run or not processor.has_bfloat16_instructions()
        return SpecAndRun(spec.float32_spec if in_float32 else spec, run)

    def rename_finished_run_folder(self, spec: Spec) -> Run:
        """Rename the folder of a run that has just finished, and return the run.

        The folder was called `<seed>.part` and becomes `<seed>`, so that an unfinished
        run is never taken for a finished one. An older run with the final name, which
        is damaged or has no weights, is deleted. If the process is killed or the power
        is lost meanwhile, the new run is complete under one of the two names.

        spec: the description of the run."""
        final = self.runs / spec.name
        disk.fsync_tree(self.get_unfinished_folder_path(spec))
        disk.remove_path(final)
        self.get_unfinished_folder_path(spec).rename(final)
        disk.fsync_path(final.parent)
        return Run(final, "run")

    def get_unfinished_folder_path(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".part")

    def get_lock_path(self, spec: Spec) -> Path:
        return (self.runs / spec.name).with_suffix(".lock")

    def find_run_with_state(self, spec: Spec) -> RunAndState:
        """Return {"run": stored result or None, "state": text} of a Spec.

        A Spec is the description of a run (training or measurement). The state is
        "finished", "running", "failed", "stopped", "died" (its process was killed) or
        "missing" (no attempt). For a Spec in bfloat16 a result in float32 counts too.
        Tables show the state of an experiment without a result."""
        spec, run = self.find_run_or_float32_run(spec)
        status: RunStatusJson = {"state": "missing"}
        part = self.get_unfinished_folder_path(spec)
        if run:
            status = run.status
        elif part.exists():
            status = self.read_status_and_check_lock(part)
        return {"run": run, "state": status["state"]}

    def plan_missing_runs(
        self,
        specs: Iterable[Spec],
        keep_weights: bool = False,
        forbid_float32_replacement: bool = False,
    ) -> NeedsWeightsBySpec:
        """Return {Spec: whether its weights are needed} of all runs still to be made.

        A Spec is the description of a run (training or measurement). Inputs, such as a
        teacher, come before the Specs that need them, so the runs can be made in this
        order. The inputs of a finished run are left out, since its result does not need
        them any more. A Spec in bfloat16 is left out where the same Spec in float32 has
        a run, and is replaced by that Spec where this processor has no bfloat16
        instructions.

        specs: the Specs whose results are wanted.
        keep_weights: whether the weights of these Specs are needed too, besides their
        metrics.
        forbid_float32_replacement: whether Specs are never left out for, or replaced
        by, their float32 version."""
        looked: NeedsWeightsBySpec = {}
        todo: NeedsWeightsBySpec = {}

        def add_missing_spec_and_inputs(spec: Spec, needs_weights: bool) -> None:
            needs_weights = bool(needs_weights and STEPS[spec.step].saves_weights)
            if looked.get(spec, -1) >= needs_weights:
                return
            looked[spec] = needs_weights
            if self.find_run(spec, needs_weights):
                return
            for parent in spec.input_specs_with_seeds.values():
                add_missing_spec_and_inputs(parent, True)
            todo[spec] = needs_weights

        for spec in specs:
            stands, run = (
                (spec, None)
                if forbid_float32_replacement
                else self.find_run_or_float32_run(spec, keep_weights)
            )
            if not run:
                add_missing_spec_and_inputs(stands, keep_weights)
        return todo

    def explain_missing_run(self, spec: Spec) -> str:
        """Return in one line why a training or measurement has no result yet.

        It is the error of the last attempt, or that of an input, such as the teacher,
        which failed before it. It is "" where no attempt failed.

        spec: the description of the training or measurement."""
        # In this list inputs stand before the Specs that need them. So the first error
        # is the cause of those that follow.
        for missing_spec in self.plan_missing_runs([spec]):
            status = read_run_status(self.get_unfinished_folder_path(missing_spec))
            if error := status.get("error"):
                if missing_spec == self.find_run_or_float32_run(spec)[0]:
                    return error
                return format_error_of_failed_input(missing_spec, error)
        return ""

    def read_status_and_check_lock(self, unfinished_folder: Path) -> RunStatusJson:
        """Return the status of an unfinished training or measurement, corrected.

        The dict is the content of its `status.json`: "state", "seconds" (of a clock),
        "core_seconds" (of CPU), "attempts" (their number) and, where the work wrote
        them, entries such as "progress" or "error". A killed process cannot correct
        this file. So a state other than "failed" or "stopped" becomes "running" where a
        process holds the lock of the run, and "died" where none does.

        unfinished_folder: the folder `<seed>.part` of the run."""
        status = read_run_status(unfinished_folder)
        if status["state"] not in ("failed", "stopped"):
            status["state"] = (
                "running"
                if is_locked(unfinished_folder.with_suffix(".lock"))
                else "died"
            )
        return status

    def iterate_finished_runs(self, folder_pattern: str = "[!.]*") -> Iterator[Run]:
        """Yield all finished runs: those committed to git first, then this machine's.

        A run is the stored result of a training or measurement. Damaged ones are
        yielded too. Their files are checked only when they are read.

        folder_pattern: a glob pattern of folder names, which are "<kind of
        work>-<hash>", such as "finetune-*"; by default all that do not begin with a
        dot."""
        folders: dict[Origin, Path] = {"record": self.records, "run": self.runs}
        for origin, root in folders.items():
            files = root.glob(f"{folder_pattern}/[!.]*/*.json")
            for folder in sorted({path.parent for path in files}):
                if folder.suffix != ".part":
                    yield Run(folder, origin)

    def list_recorded_runs(self) -> list[Run]:
        """Return all records, the finished runs committed to git without weights.

        The command `verify` checks that none of them is damaged."""
        return [run for run in self.iterate_finished_runs() if run.origin == "record"]

    def list_unfinished_folders(self) -> list[Path]:
        """Return the folders of all runs on this machine that have not finished.

        A folder is called `<seed>.part`. Its run is being made, or has failed, or was
        stopped or killed."""
        return sorted(self.runs.glob("*/*.part"))

    def copy_run_to_records(self, run: Run) -> Path:
        """Copy a finished run to the folder of runs in git; return the copy's folder.

        A run is the stored result of a training or measurement. Weights and log are
        left out, so that the copy is small enough to commit. An older copy is
        replaced."""
        target = self.records / run.name
        not_copied = shutil.ignore_patterns(*NOT_RECORDED, ".*")
        with disk.write_atomically(target, accepts_existing_folder=True) as folder:
            shutil.copytree(run.folder, folder, ignore=not_copied)
            disk.write_manifest(folder)
            disk.fsync_tree(folder)
            shutil.rmtree(target, ignore_errors=True)
        return target


def count_core_seconds(run_status: RunStatusJson) -> float:
    """Return the CPU seconds that a run took, summed over all its cores.

    Forecasts of other runs use them, as they hardly grow with other work on the
    machine, unlike wall-clock seconds. Old runs have no CPU seconds; for these the
    wall-clock seconds are returned.

    run_status: the content of the run's `status.json`, with "core_seconds" or
    "seconds"."""
    return run_status.get("core_seconds") or run_status["seconds"]


def read_run_status(unfinished_folder: Path) -> RunStatusJson:
    """Return the content of a run's `status.json`, with defaults for what it lacks.

    It has "state", "seconds" (of a clock) and "core_seconds" (of CPU) over all
    attempts, "attempts", and further entries such as "progress" or "error". Where the
    file is damaged or missing, the state is "died" and the numbers are 0.

    unfinished_folder: the folder of the run, usually `<seed>.part`."""
    status: RunStatusJson = {
        "state": "died",
        "seconds": 0.0,
        "core_seconds": 0.0,
        "attempts": 0,
    }
    try:
        return status | read_json(unfinished_folder / "status.json")
    except (OSError, Damaged):
        return status


def format_error_of_failed_input(input_spec: Spec, input_error: str) -> str:
    """Return in one line that a run cannot be made because one of its inputs failed.

    An input is an earlier run, such as the training of the teacher. The line has the
    name of the input and its error. Where the input failed because of its own input,
    its error says so already, and is returned unchanged. So the line names the first
    cause.

    input_spec: the description of the input.
    input_error: the error of the input."""
    root = f"needs {input_spec.name}, which could not be made: {input_error}"
    return input_error if input_error.startswith("needs ") else root


class TrainingOutput:
    """A TrainingOutput takes the log and the arrays of a training that is not stored.

    They stay in memory; the subclass `RunWriter` writes them to disk instead. A
    TrainingOutput serves benchmarks and the many short trainings of an architecture
    search.

    folder: the folder for checkpoints, if any are written.
    seed: the seed of the training.
    result: the metrics that the training loop (`lib.train.loop.fit`) returned.
    checkpoint_interval_seconds: seconds between checkpoints, by default so many that
    none is written."""

    result: Json

    checkpoint_interval_seconds = 1e9

    def __init__(self, folder: str | Path, seed: int) -> None:
        self.folder, self.seed = Path(folder), seed
        self.lines: list[Json] = []
        self.arrays: dict[str, Arrays] = {}

    @property
    def checkpoint_folder(self) -> Path:
        """Return the folder to which checkpoints of the training are written.

        A training that was stopped resumes from the last checkpoint in it."""
        return self.folder / "resume"

    def log_step(self, step: int, **log_entries: Any) -> None:
        """Append values of a training step, such as its loss, to the log.

        Checkpoints save the log too, so a training that resumes has the whole log.

        step: the number of the training step, from 0; for a score of the model the
        number of steps done.
        log_entries: {name: JSON value, or a number that can be turned into a float}."""
        self.lines.append(
            json.loads(json.dumps({"step": step, **log_entries}, default=float))
        )

    def save_arrays(self, file_stem: str, **arrays: np.ndarray) -> None:
        """Keep named arrays, such as predictions, in memory.

        The subclass `RunWriter` writes them to `<file_stem>.safetensors` instead.

        file_stem: a name for these arrays together.
        arrays: {name: array}."""
        self.arrays[file_stem] = arrays

    def read_log(self, entry_name: str) -> Arrays:
        """Return one entry of the training's log over all steps as arrays.

        For example, each step logs a dict of losses as the entry "curve". The result is
        {"step": [n], key of the logged dict: [n, ...]} for the n training steps that
        logged the entry, in rising order. "step" has their numbers. Logged numbers
        become arrays [n], and logged lists of k numbers [n, k]. If a step logged twice,
        the last values count. Raises IndexError where no step logged the entry.

        entry_name: the name of the entry, whose values are dicts with the same
        keys."""
        notes = {
            line["step"]: line[entry_name] for line in self.lines if entry_name in line
        }
        steps = sorted(notes)
        columns = {
            key: np.array([notes[step][key] for step in steps])
            for key in notes[steps[0]]
        }
        return {"step": np.array(steps)} | columns

    def report_progress(
        self, finished_share: float, **further_status_entries: Any
    ) -> None:
        """Do nothing: a training that is not stored shows no progress.

        The training loop calls this method. The subclass `RunWriter` writes the
        fraction to a file, from which progress bars read it.

        finished_share: the share of the training that is done, 0 to 1."""


class RunWriter(TrainingOutput):
    """A RunWriter is the folder of a training or measurement in progress, for writing.

    The function that does the work logs and saves arrays and weights by it, and reads
    the results of earlier runs, the inputs.

    store: has the folder of this machine's runs.
    spec: the description of the run, which has a seed.
    run_by_input_name: {name, such as "teacher": finished run}.
    keep_weights: whether the model's weights are saved.
    checkpoint_interval_seconds: seconds between two checkpoints."""

    def __init__(
        self,
        store: Store,
        spec: Spec,
        run_by_input_name: dict[str, Run],
        keep_weights: bool,
        checkpoint_interval_seconds: float = 30.0,
    ) -> None:
        folder = store.get_unfinished_folder_path(spec)
        # For the type checker: the seed is not None here, as `unfinished_folder` raises
        # Refused for a Spec without seed.
        assert spec.seed is not None
        super().__init__(folder, spec.seed)
        self.checkpoint_interval_seconds = checkpoint_interval_seconds
        self.store = store
        self.spec = spec
        self.inputs = run_by_input_name
        self.keep = keep_weights
        self.folder.mkdir(parents=True, exist_ok=True)
        before = read_run_status(self.folder)
        self.attempts = before["attempts"] + 1
        # Seconds of earlier attempts are counted too, so that a resumed run reports the
        # time of all its attempts.
        self.spent = before["seconds"]
        self.worked = before["core_seconds"] - time.process_time()
        self.began = self.reported = time.monotonic()
        (self.folder / disk.MANIFEST).unlink(missing_ok=True)
        # An attempt that was killed may have left temporary files.
        for path in list(self.folder.rglob(".*")):
            disk.remove_path(path)
        # So may one whose disk was full: weights that are half written. A checkpoint to
        # resume from lies elsewhere.
        disk.remove_path(self.folder / "model")
        write_json(self.folder / "spec.json", spec.to_json())
        self.made_as = self.read_folder_fingerprint()
        self.write_status("started")

    def read_folder_fingerprint(self) -> tuple[int, int]:
        """Return the inode and the modification time in nanoseconds of `spec.json`.

        They change if another process deletes this folder and makes it again."""
        state = (self.folder / "spec.json").stat()
        return state.st_ino, state.st_mtime_ns

    def check_folder_exists(self) -> None:
        """Raise Absent where this folder was deleted while its run is in progress.

        Methods that write call it first. Otherwise later writes would complete a run
        that lacks its first files."""
        with suppress(FileNotFoundError):
            if self.read_folder_fingerprint() == self.made_as:
                return
        where = f"{paths.format_project_path(self.folder)} was deleted while the run was made"
        raise Absent(f"{where}: the same command makes it anew")

    def write_status(
        self,
        state: Literal["started", "finished", "failed", "stopped"],
        overwrite_in_place: bool = False,
        **further_status_entries: Any,
    ) -> None:
        """Write the run's `status.json`, by which commands show what a run does.

        It has "state", "at" (UTC time), "seconds" (of a clock) and "core_seconds" (of
        CPU) over all attempts, "attempts" (their number), and `further_status_entries`.
        Raises Absent where the folder was deleted.

        state: "started", "finished", "failed" or "stopped".
        overwrite_in_place: whether to overwrite the old file in place, which works on a
        full disk too; by default a new file replaces it.
        further_status_entries: further entries, such as "error" or "progress"."""
        self.check_folder_exists()
        status = {
            "state": state,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(self.spent + time.monotonic() - self.began, 2),
            "core_seconds": round(self.worked + time.process_time(), 2),
            "attempts": self.attempts,
            **further_status_entries,
        }
        if overwrite_in_place:
            with open(self.folder / "status.json", "r+b") as file:
                file.write(json.dumps(status).encode())
                file.truncate()
        else:
            write_json(self.folder / "status.json", status)

    def report_progress(
        self, finished_share: float, **further_status_entries: Any
    ) -> None:
        """Write the share of the work that is done to `status.json`, for progress bars.

        It is written at most once a second.

        finished_share: the share that is done, 0 to 1.
        further_status_entries: further entries of the file."""
        if time.monotonic() - self.reported > 1:
            self.reported = time.monotonic()
            self.write_status(
                "started", progress=round(finished_share, 4), **further_status_entries
            )

    def save_arrays(self, file_stem: str, **arrays: np.ndarray) -> None:
        self.check_folder_exists()
        # Copy arrays of another memory layout: safetensors writes their bytes in the
        # order of memory, but reads them in C order.
        arrays = {key: np.asarray(values, order="C") for key, values in arrays.items()}
        save_file(arrays, self.folder / f"{file_stem}.safetensors")

    @property
    def model_folder(self) -> Path | None:
        """Return the folder to which the work saves the model's weights.

        It is None where the weights of this run are not kept, and then nothing is
        saved."""
        return self.folder / "model" if self.keep else None

    def write_final_files(self, metrics: Json, environment: Json) -> None:
        """Write the last files of a finished run, and the manifest with their digests.

        They are the metrics, the environment, the log and the state "finished".
        Checkpoints are deleted. After this `Store.rename_finished_run_folder` gives the
        folder its final name.

        metrics: {metric: value}, the result of the run, for `metrics.json`.
        environment: versions, processor and commit, for `env.json`
        (`describe_run_environment`)."""
        self.check_folder_exists()
        write_json(self.folder / "metrics.json", metrics)
        write_json(self.folder / "env.json", environment)
        body = "".join(json.dumps(line) + "\n" for line in self.lines)
        disk.write_text_file(self.folder / "events.jsonl", body, sync_to_disk=False)
        shutil.rmtree(self.checkpoint_folder, ignore_errors=True)
        self.write_status("finished")
        disk.write_manifest(self.folder)
