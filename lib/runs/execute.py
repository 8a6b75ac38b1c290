"""Execute one Spec in this process: lock it, resume what was left, call its step, keep the run.

This is the only place that turns a Spec into a run. `lib.runs.sweep` calls it in worker processes.
"""

import ctypes
import gc
import platform
import re
import shutil
import subprocess
import time
import traceback
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from filelock import Timeout

from lib.runs import paths
from lib.runs.paths import Damaged
from lib.runs.spec import from_json
from lib.runs.store import MIN_FREE, Draft, Store, locked, say
from lib.steps import STEPS

# packages that decide results beside torch
PACKAGES = ("transformers", "tokenizers", "datasets", "numpy", "scipy", "scikit-learn")
LEAST_FREE = 1 << 20  # bytes of disk below which a failure is the disk's
FREE = "free some space (runs that no page needs any more may be deleted)"


def execute(spec, store=None, keep=False, checkpoint_seconds=30.0):
    """Return the run of `spec`, made if it is missing. Where another process is making it, wait.

    keep: save the weights. Raises what the step raises, after writing it to the ledger, and
    RuntimeError where an input is missing.
    """
    store = store or Store()
    again = False
    while True:
        if run := store.find(spec, weights=keep):
            return run
        try:
            with locked(store.lock(spec)):
                if not paths.wrong(store.part(spec)):
                    store.place(spec)  # a kill came between its end and its name
                if run := store.find(spec, weights=keep):
                    return run
                store.mend(spec, keep)
                return _make(spec, store, keep, checkpoint_seconds)
        except Damaged as error:
            if again:
                raise
            store.set_aside(store.part(spec), error)
            again = True
        except Timeout:
            say(f"waiting  {spec.name}: another process is making it")
            time.sleep(0.3)


def _make(spec, store, keep, checkpoint_seconds):
    inputs = {}
    for name, parent in spec.parents.items():
        inputs[name] = store.find(parent, weights=STEPS[parent.step].weights)
        if inputs[name] is None:
            state = store.state(parent)["state"]
            raise RuntimeError(f"{spec.step} needs {name} ({parent.name}), which is {state}")
    need_disk(store.runs)
    commit()  # of the code that is about to run, not of a checkout made meanwhile
    keep = (keep or small(spec)) and STEPS[spec.step].weights
    draft = Draft(store, spec, inputs, keep, checkpoint_seconds)
    try:
        args = spec.resolved({name: run.metrics for name, run in inputs.items()})
        draft.seal(STEPS[spec.step].function(draft, **args), environment(spec))
    except KeyboardInterrupt:
        draft.tell("stopped")
        raise
    except Exception as caught:
        error, trace = caught, traceback.format_exc()
        if shutil.disk_usage(store.runs).free < LEAST_FREE:
            there = f"the disk is full under {paths.shown(store.runs)}"
            error = OSError(f"{there}: {FREE}; the run goes on from its last checkpoint")
    else:
        return store.place(spec)
    with suppress(OSError):  # behind the block above: a file that it held open takes no more room
        draft.tell("failed", error=one_line(error), traceback=trace)
    raise error


def small(spec):
    """Whether a run keeps its weights also where no other needs them: it learned generated tasks,
    and its model is of some megabytes."""
    told = spec.args.get("data") or {}
    return "toy" in (
        each.get("source") for each in (told, *told.values()) if isinstance(each, dict)
    )


def need_disk(folder):
    """Raises OSError before anything starts on a disk that is nearly full."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE:
        there = f"{free >> 20} MB free under {paths.shown(folder)}; {MIN_FREE >> 20} MB are needed"
        raise OSError(f"{there}: {FREE}, or set RUNS_ROOT to another disk")


def one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def environment(spec):
    """Return what a run was made with: an allow-list, no names of machines or people."""
    import torch

    on_card = (spec.args.get("numerics") or {}).get("device")
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": processor(),
        "torch": torch.__version__,
        **{name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if on_card else "cpu",
        **commit(),
    }


def processor():
    place = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", place.read_text() if place.exists() else "")
    return names[0].strip() if names else platform.processor()


@cache
def commit():
    """Return the commit of the code as this process first saw it, and whether `lib` differed from
    it; empty outside a checkout.
    """
    git = ["git", "-C", str(paths.ROOT)]
    words = [*git, "rev-parse", "--short=10", "HEAD"], [*git, "status", "--porcelain", "--", "lib"]
    try:
        head, changed = (
            subprocess.check_output(each, text=True, stderr=subprocess.DEVNULL) for each in words
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": head.strip(), "changed": bool(changed.strip())}


def work(body, runs, records, keep, checkpoint_seconds):
    """Make what a worker is asked for, a Spec as JSON. Returns (what it cost, the error in a
    line).

    One of both is there: errors of all executors travel alike.
    """
    spec = from_json(body)
    try:
        return execute(spec, Store(runs, records), keep, checkpoint_seconds).cost, ""
    except Exception as error:
        return None, one_line(error)
    finally:
        give_back()


def give_back():
    """Hand memory that a run no longer needs back to the system, before the worker's next one.

    The C library keeps it (lib.train.lean), and a worker's memory would grow from run to run.
    """
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
