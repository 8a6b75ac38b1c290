"""This module executes one Spec in this process.

It locks the run, resumes an earlier attempt from its checkpoint, calls the step's
function and saves the result. No other module turns a Spec into a run.
`lib.cluster.sweep` calls it in worker processes."""

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

from lib.core import disk, paths, processor
from lib.core.names import error_in_one_line
from lib.core.spec import Spec, from_json, uses_generated_tasks
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

# Packages whose versions can change results, beside torch.
PACKAGES = ("transformers", "tokenizers", "datasets", "numpy", "scipy", "scikit-learn")


def execute(
    spec: Spec,
    store: Store | None = None,
    keep_weights: bool = False,
    checkpoint_seconds: float = 30.0,
) -> Run:
    """Return the run of a Spec, and make it if it is missing.

    Where another process is making it, wait. An input that is missing, or has lost its
    weights, is made too. An error of the step is written to the run's `status.json`,
    and raised.

    keep_weights: whether the weights are saved."""
    store = store or Store()
    if run := store.find_run(spec, needs_weights=keep_weights):
        return run
    if is_locked(store.lock_path(spec)):
        print_once(f"waiting  {spec.name}: another process is making it")
    with hold_lock(store.lock_path(spec)):
        return store.find_run(spec, needs_weights=keep_weights) or _execute_and_save(
            spec, store, keep_weights, checkpoint_seconds
        )


def _execute_and_save(
    spec: Spec, store: Store, keep_weights: bool, checkpoint_seconds: float
) -> Run:
    # Another process may have deleted weights since this run was planned.
    inputs = {
        name: execute(parent, store, STEPS[parent.step].weights, checkpoint_seconds)
        for name, parent in spec.inputs_with_seeds.items()
    }
    # Cache the commit now: somebody may check out another one while this code runs.
    read_commit()
    keep_weights = (keep_weights or uses_generated_tasks(spec.args)) and STEPS[
        spec.step
    ].weights
    writer = RunWriter(store, spec, inputs, keep_weights, checkpoint_seconds)
    try:
        args = spec.resolve_outputs({name: run.metrics for name, run in inputs.items()})
        with disk.explain_full_disk(writer.folder):
            writer.write_final_files(
                find_step_function(spec.step)(writer, **args),
                describe_environment(spec),
            )
    except KeyboardInterrupt:
        with suppress(OSError):
            writer.write_ledger("stopped")
        raise
    except Exception as error:
        failure = {"error": error_in_one_line(error)}
        try:
            writer.write_ledger("failed", **failure, traceback=traceback.format_exc())
        except OSError:  # On a full disk, overwrite the file in place.
            with suppress(OSError):
                writer.write_ledger("failed", in_place=True, **failure)
        raise
    return store.move_finished_run(spec)


def describe_environment(spec: Spec) -> Json:
    """Return the versions, the processor, the device and the commit that made a run.

    "dtype" is None for a step that has no Numerics. Host and user names are left out,
    since records are published."""
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
        **read_commit(),
    }


@cache
def read_commit() -> dict[str, str]:
    """Return {"commit": abbreviated hash} of this code in git, as of the first call.

    "-dirty" follows where files differ from the commit. Outside a git checkout the dict
    is empty."""
    words = ["git", "--no-optional-locks", "describe", "--always", "--dirty"]
    words += ["--exclude=*", "--abbrev=10"]
    how = {"cwd": paths.ROOT, "text": True, "stderr": subprocess.DEVNULL}
    try:
        return {"commit": subprocess.check_output(words, **how).strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def execute_in_worker(
    spec_json: Json,
    runs_folder: Path,
    records_folder: Path,
    keep_weights: bool,
    checkpoint_seconds: float,
) -> tuple[float | None, str]:
    """Make a run in a worker process, and return (its core seconds, its error in one
    line).

    The core seconds are None after an error, and the error is "" after success. A line
    of text, unlike an exception, reaches the caller alike from every executor.

    spec_json: the Spec of the run as JSON."""
    spec = from_json(spec_json)
    try:
        return count_core_seconds(
            execute(
                spec,
                Store(runs_folder, records_folder),
                keep_weights,
                checkpoint_seconds,
            ).status
        ), ""
    except Exception as error:
        return None, error_in_one_line(error)
    finally:
        release_memory()


def release_memory() -> None:
    """Return freed memory to the operating system, before the worker's next run.

    The C library would keep it, and a worker's memory would grow from run to run
    (lib.train.lean)."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
