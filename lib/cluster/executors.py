"""This module has the executor of this machine, which makes runs in worker processes.

An executor makes at most `slots` runs at once. Its `submit` begins a run, and its
`wait_for_finished` returns the runs that ended. `lib.cluster.remote` has executors for
many machines."""

from __future__ import annotations

import concurrent.futures as futures
import gc
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from lib.core import paths
from lib.core.spec import Spec, uses_generated_tasks

# Modules that the server imports from which workers and kernels are forked, so that
# those start fast. None is a module of lib: each process imports lib's current code.
WARM = "torch transformers.models.bert.modeling_bert sklearn.metrics scipy.stats pandas seaborn"
WARM += " safetensors.torch ipykernel.kernelapp papermill nbconvert"
LAST = 20.0  # Seconds that a stopped worker has to save its state before it is killed.
# Peak memory of one worker, in bytes, for generated data, other data, and a GPU. The
# first two are measured at toy and mini (tests/test_scale.py); the last is computed for
# the largest model and batch of the profile paper.
PEAK = {"toy": 0.9e9, "": 2.2e9, "cuda": 28e9}
# Peak memory of one worker on a CPU for encoders of BERT-base's shape, in bytes. It is
# an estimate, which the trials of base measure (data/published/protocol_base.md).
PEAK_OF = {"all-mpnet-base-v2": 8e9, "bert-base-uncased": 8e9}


# Files of a Linux control group, version 2 and version 1: its limit of memory, the
# memory in use, and statistics with the cached files, whose memory can be freed.
GROUPS = (
    ("memory.max", "memory.current", "memory.stat"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
    ),
)


@dataclass(frozen=True)
class Need:
    """A Need has the resources of a run: CPU cores, whether it takes a GPU (`card`),
    and bytes of memory, of the GPU if it takes one."""

    cores: int = 1
    card: bool = False
    memory: float = 1.0


def find_need(spec: Spec) -> Need:
    """Return the cores, GPU and memory that the run of a Spec needs."""
    numerics = spec.args.get("numerics") or {}
    device = numerics.get("device", "")
    small = "data" not in spec.args or uses_generated_tasks(spec.args)
    memory = PEAK[device or "toy" * small]
    memory = memory if device else max(memory, estimate_peak_memory(spec))
    return Need(numerics.get("threads", 1), bool(device), memory)


def estimate_peak_memory(spec: Spec) -> float:
    """Return the bytes of memory for the largest checkpoint of PEAK_OF among the inputs
    behind a Spec, or 0."""
    name = spec.args.get("name", "") if spec.step == "checkpoint" else ""
    return max(
        [PEAK_OF.get(name, 0.0), *map(estimate_peak_memory, spec.inputs.values())]
    )


def measure_free_memory(system_root: Path = Path("/")) -> int:
    """Return the free bytes of memory: the smaller of the machine's and the control
    group's.

    system_root: the root of the file system with `proc` and `sys`; tests give
    another."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        text = (system_root / "proc/meminfo").read_text()
        free = int(re.findall(r"MemAvailable: *(\d+)", text)[0]) << 10
    for names in GROUPS:
        # A group without a limit has the text "max" instead of a number.
        with suppress(OSError, ValueError):
            limit, used, state = (
                (system_root / "sys/fs/cgroup" / name).read_text() for name in names
            )
            cached = int(re.findall(r"inactive_file (\d+)", state)[-1])
            free = min(free, int(limit) - int(used) + cached)
    return free


def make_process_context(uses_gpu: bool = False) -> BaseContext:
    """Return the multiprocessing context for new processes, which starts them fast.

    They are forked from a server process that has the imports WARM and runs nothing
    else. A process that was itself forked from such a server uses the same one.
    Processes are spawned where a fork is unsafe: on other systems than Linux, and on a
    GPU.

    uses_gpu: whether the processes use the GPU."""
    if uses_gpu or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    server: Any = forkserver._forkserver
    if server._forkserver_address and not server._forkserver_pid:
        server.ensure_running = lambda: (
            None
        )  # Otherwise it would start a second server.
    server.set_forkserver_preload(WARM.split())
    # Let multiprocessing make its folder for sockets in a place with a short path: that
    # of the temporary folder may be too long for a socket.
    usual, tempfile.tempdir = tempfile.gettempdir(), paths.find_socket_folder()
    util.get_temp_dir()
    tempfile.tempdir = usual
    # Start the resource tracker first: its start would unblock the signal below.
    resource_tracker.ensure_running()
    # Block interrupts while the server starts: it and its children inherit the mask, so
    # that Ctrl-C reaches this process alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


def kill_fork_server() -> None:
    """Kill the fork server, if this process started it.

    Otherwise, after a command was stopped, a server that is still importing would fork
    processes that nobody waits for."""
    server: Any = forkserver._forkserver
    if pid := server._forkserver_pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Local:
    """Local is the executor on this machine: worker processes that stay alive between
    runs.

    Each worker is a separate process, so one that is killed costs only its current run.

    max_running: the number of workers.
    uses_gpu: whether workers use the GPU, the first one that this process may use."""

    def __init__(self, max_running: int, uses_gpu: bool = False) -> None:
        self.slots, self.card = max_running, uses_gpu
        # Each pool has one worker. A new pool is opened when no worker is idle.
        self.running: dict[futures.Future[Any], futures.ProcessPoolExecutor] = {}
        self.idle: list[futures.ProcessPoolExecutor] = []

    def submit(
        self, function: Callable[..., Any], *args: Any, need: Need | None = None
    ) -> futures.Future[Any]:
        """Begin a call in an idle worker, or in a new one, and return its future.

        The caller sees to it that at most `slots` calls run."""
        if self.idle:
            pool = self.idle.pop()
        else:
            about = (
                make_process_context(self.card),
                _prepare_worker,
                (dict(os.environ),),
            )
            pool = futures.ProcessPoolExecutor(1, *about)
        future = pool.submit(_call_in_worker, function, *args)
        self.running[future] = pool
        return future

    def wait_for_finished(
        self, max_seconds: float | None = None
    ) -> set[futures.Future[Any]]:
        """Wait until a call ends, and return the futures of all that ended.

        Their workers are idle again, unless they died.

        max_seconds: the longest wait; None is without limit."""
        done = futures.wait(self.running, max_seconds, futures.FIRST_COMPLETED).done
        for future in done:
            pool = self.running.pop(future)
            if not isinstance(future.exception(), futures.BrokenExecutor):
                self.idle.append(pool)
        return done

    def yield_completed(
        self, function: Callable[..., Any], argument_tuples: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[Any, ...], futures.Future[Any]]]:
        """Yield (job, its future) as calls of a function end.

        argument_tuples: a tuple of arguments for each call."""
        left = list(argument_tuples)
        running: dict[futures.Future[Any], tuple[Any, ...]] = {}
        while left or running:
            while left and len(running) < self.slots:
                job = left.pop(0)
                running[self.submit(function, *job)] = job
            for future in self.wait_for_finished():
                yield running.pop(future), future

    def close(self) -> None:
        """End the workers.

        Idle workers end by themselves. A worker that is making a run is interrupted,
        and saves the state "stopped" first. One that has not ended within LAST seconds
        is killed."""
        busy = list(self.running.values())
        left = [
            process for pool in busy for process in (pool._processes or {}).values()
        ]
        for process in left:
            process.terminate()
        for pool in (*self.idle, *busy):
            pool.shutdown(wait=pool not in busy, cancel_futures=True)
        end = time.monotonic() + LAST
        for process in left:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()  # No effect on a process that has ended.


def _prepare_worker(variables: Mapping[str, str]) -> None:
    """Prepare a new worker: it ignores Ctrl-C, which its parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_worker)
    attach_to_parent(variables)


_at_work = False  # Whether this worker is running a call.


def _call_in_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Return function(*args), with _at_work set while it runs."""
    global _at_work
    _at_work = True
    try:
        return function(*args)
    finally:
        _at_work = False


def _end_worker(*_: Any) -> None:
    """End a worker on SIGTERM; a call that is running is interrupted, so that it can
    save its state."""
    if _at_work:
        raise KeyboardInterrupt
    os._exit(130)


def attach_to_parent(variables: Mapping[str, str]) -> None:
    """Give a new process the environment variables of its parent, and end it when its
    parent ends.

    A process of the fork server otherwise has the variables of the server's start."""
    os.environ.clear()
    os.environ.update(variables)
    # Exempt all objects of the imports from garbage collection, which would otherwise
    # take 0.3 s after each run.
    gc.freeze()

    def exit_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
