"""This module executes one Spec in this process.

It locks the run, resumes what was left of it, calls the step and keeps the result. This
is the only place that turns a Spec into a run. `lib.cluster.sweep` calls it in worker
processes."""

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
from lib.core.steps import STEPS, function_of_step
from lib.core.store import (
    Run,
    RunWriter,
    Store,
    core_seconds,
    hold_lock,
    is_locked,
    say,
)
from lib.core.types import Json

# These packages decide results, beside torch.
PACKAGES = ("transformers", "tokenizers", "datasets", "numpy", "scipy", "scikit-learn")


def execute(
    spec: Spec,
    store: Store | None = None,
    keep: bool = False,
    checkpoint_seconds: float = 30.0,
) -> Run:
    """Return the run of a Spec, and make it if it is missing.

    Where another process is making it, wait. An input that is missing, or has no
    weights, is made too. keep: whether the weights are saved. Raises what the step
    raises, after writing it to the ledger."""
    store = store or Store()
    if run := store.find(spec, weights=keep):
        return run
    if is_locked(store.lock(spec)):
        say(f"waiting  {spec.name}: another process is making it")
    with hold_lock(store.lock(spec)):
        return store.find(spec, weights=keep) or _make(
            spec, store, keep, checkpoint_seconds
        )


def _make(spec: Spec, store: Store, keep: bool, checkpoint_seconds: float) -> Run:
    # Another process may have deleted weights since this run was planned.
    inputs = {
        name: execute(parent, store, STEPS[parent.step].weights, checkpoint_seconds)
        for name, parent in spec.parents.items()
    }
    read_commit()  # It is cached now: a later checkout is not the code that runs here.
    keep = (keep or uses_generated_tasks(spec.args)) and STEPS[spec.step].weights
    writer = RunWriter(store, spec, inputs, keep, checkpoint_seconds)
    try:
        args = spec.resolve_outputs({name: run.metrics for name, run in inputs.items()})
        with disk.explain_full_disk(writer.folder):
            writer.seal(
                function_of_step(spec.step)(writer, **args), describe_environment(spec)
            )
    except KeyboardInterrupt:
        with suppress(OSError):
            writer.write_state("stopped")
        raise
    except Exception as error:
        failure = {"error": error_in_one_line(error)}
        try:
            writer.write_state("failed", **failure, traceback=traceback.format_exc())
        except OSError:  # The disk may be full.
            with suppress(OSError):
                writer.write_state("failed", in_place=True, **failure)
        raise
    return store.place(spec)


def describe_environment(spec: Spec) -> Json:
    """Return what a run was made with: names and versions, and its arithmetic.

    "dtype" is that of its numerics, None for a step without. Machines and people are
    not named."""
    import torch

    numerics = spec.args.get("numerics") or {}
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor.name(),
        "features": processor.features(),
        "dtype": numerics.get("dtype"),
        "torch": torch.__version__,
        **{name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if numerics.get("device") else "cpu",
        **read_commit(),
    }


@cache
def read_commit() -> dict[str, str]:
    """Return {"commit"} of the code as this process first saw it.

    "-dirty" follows where a committed file had been changed. Outside a checkout the
    dict is empty."""
    words = ["git", "--no-optional-locks", "describe", "--always", "--dirty"]
    words += ["--exclude=*", "--abbrev=10"]
    how = {"cwd": paths.ROOT, "text": True, "stderr": subprocess.DEVNULL}
    try:
        return {"commit": subprocess.check_output(words, **how).strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def work_on_run(
    body: Json, runs: Path, records: Path, keep: bool, checkpoint_seconds: float
) -> tuple[float | None, str]:
    """Make the run that a worker is asked for. Returns (what it cost, the error in a
    line).

    body: its Spec as JSON. The cost is None or the error is "", so errors of all
    executors travel alike."""
    spec = from_json(body)
    try:
        return core_seconds(
            execute(spec, Store(runs, records), keep, checkpoint_seconds).status
        ), ""
    except Exception as error:
        return None, error_in_one_line(error)
    finally:
        give_back_memory()


def give_back_memory() -> None:
    """Return memory that a run no longer needs to the system, before the worker's next
    run.

    The C library would keep it, and a worker's memory would grow from run to run
    (lib.train.lean)."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
