"""This module executes one Spec, the description of a run, in this process.

It locks the run's folder, resumes an earlier attempt from its checkpoint, calls the
function of the step (such as "finetune"), and saves the result. No other module does
this; `lib.cluster.sweep` calls it in worker processes."""

from __future__ import annotations

import ctypes
import gc
import platform
import subprocess
import traceback
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from lib.core import disk, paths, processor
from lib.core.names import Refused, format_error_in_one_line
from lib.core.spec import Spec, make_spec_from_json, uses_toy_data
from lib.core.steps import STEPS, find_step_function
from lib.core.store import (
    Run,
    RunWriter,
    Store,
    count_core_seconds,
    hold_lock,
    is_locked,
    print_once,
)
from lib.core.types import Json

# Packages, besides torch, whose versions are noted with each run, as they can change
# results.
PACKAGES = ("transformers", "tokenizers", "datasets", "numpy", "scipy", "scikit-learn")


def execute(
    spec: Spec,
    store: Store | None = None,
    keep_weights: bool = False,
    checkpoint_interval_seconds: float = 30.0,
) -> Run:
    """Return the finished run of a Spec; train or measure first if it has no run yet.

    A run is the stored result of one training or measurement. A Spec is its
    description: step (kind of work), arguments, inputs and seed. Where another process
    is executing the same Spec, this process waits. The inputs are other Specs, such as
    that of the teacher. An input that has no run, or whose run has lost its weights, is
    executed first. An error is written to the run's `status.json`, and raised.

    store: finds and writes the folders of runs; by default those of this project.
    keep_weights: whether the model's weights are saved; a run that lacks them is then
    made again. Weights of runs on toy data are always saved. A measurement has none.
    checkpoint_interval_seconds: seconds between two checkpoints of a training."""
    store = store or Store()
    keep_weights = keep_weights and STEPS[spec.step].saves_weights
    if run := store.find_run(spec, needs_weights=keep_weights):
        return run
    if is_locked(store.get_lock_path(spec)):
        print_once(f"waiting  {spec.name}: another process is making it")
    with hold_lock(store.get_lock_path(spec)):
        return store.find_run(spec, needs_weights=keep_weights) or _execute_and_save(
            spec, store, keep_weights, checkpoint_interval_seconds
        )


def _execute_and_save(
    spec: Spec, store: Store, keep_weights: bool, checkpoint_interval_seconds: float
) -> Run:
    keep_weights = (keep_weights or uses_toy_data(spec.args)) and STEPS[
        spec.step
    ].saves_weights
    # A process that was killed after its last write left a complete run, which lacks
    # only its final name.
    left = Run(store.get_unfinished_folder_path(spec), "run")
    with suppress(disk.Damaged, OSError):
        left.check_files_and_spec(spec, check_weights=True)
        has_model = left.model_folder.exists() or not keep_weights
        if has_model and left.status["state"] == "finished":
            return store.rename_finished_run_folder(spec)
    # `execute` returns the finished run of an input. It makes the run again if another
    # process has deleted its weights since the present run was planned.
    inputs = {
        name: execute(
            parent, store, STEPS[parent.step].saves_weights, checkpoint_interval_seconds
        )
        for name, parent in spec.input_specs_with_seeds.items()
    }
    # Read the hash of the git commit now, and cache it. It is saved after the run, when
    # another commit may be checked out.
    read_commit_hash_as_dict()
    writer = RunWriter(store, spec, inputs, keep_weights, checkpoint_interval_seconds)
    try:
        args = spec.resolve_step_arguments(
            {name: run.metrics for name, run in inputs.items()}
        )
        with disk.raise_full_disk_as_oserror(writer.folder):
            writer.write_final_files(
                find_step_function(spec.step)(writer, **args),
                describe_run_environment(spec),
            )
    except KeyboardInterrupt:
        with suppress(OSError):
            writer.write_status("stopped")
        raise
    except Exception as error:
        place = find_place_in_method_file(error)
        failure = {"error": format_error_in_one_line(error) + place}
        try:
            writer.write_status("failed", **failure, traceback=traceback.format_exc())
        except OSError:  # On a full disk an existing file can still be overwritten.
            with suppress(OSError):
                writer.write_status("failed", overwrite_in_place=True, **failure)
        raise
    return store.rename_finished_run_folder(spec)


def find_place_in_method_file(error: Exception) -> str:
    """Return " (lib/methods/NAME.py:LINE)" where a method of `lib/methods` failed.

    A user may have written this method, so the line of progress names the place. It is
    "" where no such file took part, and for Refused, which explains itself."""
    own_files = [
        f" ({paths.format_project_path(frame.filename)}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == paths.ROOT / "lib" / "methods"
        and Path(frame.filename).name != "__init__.py"
    ]
    return "" if isinstance(error, Refused) or not own_files else own_files[-1]


def describe_run_environment(spec: Spec) -> Json:
    """Return on what machine and with what software a training or measurement is done.

    The dict is stored beside the result as `env.json`, by which differences between
    machines can be explained later. It has "python", "system", "processor", "features"
    (instruction sets), "dtype", the version of "torch" and of other packages by name,
    "threads", "device" and, inside of a git checkout, "commit". "dtype" is None where
    the work has no setting of a dtype. Host and user names are left out, since these
    files are published.

    spec: the description of the work, which has its dtype and device."""
    import torch

    numerics = spec.args.get("numerics") or {}
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor.read_processor_name(),
        "features": processor.list_processor_features(),
        "dtype": numerics.get("dtype"),
        "torch": torch.__version__,
        **{name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if numerics.get("device") else "cpu",
        **read_commit_hash_as_dict(),
    }


@cache
def read_commit_hash_as_dict() -> dict[str, str]:
    """Return {"commit": abbreviated hash} of this repository, to note it with results.

    It is cached by the first call, since another commit may be checked out while a
    training goes on. "-dirty" is appended to the hash where files differ from the
    commit. Outside of a git checkout the dict is empty."""
    words = "git --no-optional-locks describe --always --dirty --exclude=* --abbrev=10"
    how = {"cwd": paths.ROOT, "text": True, "stderr": subprocess.DEVNULL}
    try:
        return {"commit": subprocess.check_output(words.split(), **how).strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


class WorkerResult(NamedTuple):
    core_seconds: float | None  # CPU seconds over all cores; None after an error.
    error: str  # Error message in one line; "" after success.
    clock_seconds: float = 0.0  # Like `core_seconds` over all attempts of the run.


def execute_in_worker(
    spec_json: Json,
    runs_folder: Path,
    records_folder: Path,
    keep_weights: bool,
    checkpoint_interval_seconds: float,
) -> WorkerResult:
    """Execute the training or measurement that a Spec describes, in a worker process.

    Return (CPU core seconds that it took, "") after success, and (None, error in one
    line) after a failure. The error is text, because exceptions reach the caller in
    different forms from a process, from Ray and from Slurm. Raises Refused where
    `spec_json` is of another version of the code.

    spec_json: the Spec (step, arguments, inputs, seed) as JSON (`Spec.to_json`).
    runs_folder: the folder of this machine's results, to which new results go.
    records_folder: the folder of the results committed to git without weights.
    keep_weights: whether the model's weights are saved; those of runs on toy data
    always are.
    checkpoint_interval_seconds: seconds between two checkpoints of a training."""
    spec = make_spec_from_json(spec_json)
    try:
        store = Store(runs_folder, records_folder)
        run = execute(spec, store, keep_weights, checkpoint_interval_seconds)
        seconds = count_core_seconds(run.status)
        return WorkerResult(seconds, "", run.status["seconds"])
    except Exception as error:
        return WorkerResult(None, format_error_in_one_line(error))
    finally:
        release_memory()


def release_memory() -> None:
    """Return freed memory to the operating system, before a worker's next training.

    Otherwise glibc's allocator would keep it, and the memory of a worker process would
    grow with each training that it executes."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
