"""This module has executors, which make the runs of a sweep.

An executor makes at most `slots` runs at once. `submit` begins one; `finished` returns
those that ended. `Local` has worker processes on this machine; `lib.cluster.remote` has
executors for many machines."""

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

# Workers and kernels are forked with these imports. None is of this package, so that
# each process imports the code as it then is.
WARM = "torch transformers.models.bert.modeling_bert sklearn.metrics scipy.stats pandas seaborn"
WARM += " safetensors.torch ipykernel.kernelapp papermill nbconvert"
LAST = 20.0  # Stopped workers have so many seconds to note that they stopped.
# A worker takes so many bytes of memory at its peak. They are measured at toy and at
# mini (tests/test_scale.py), and counted for paper's largest model and batch on a GPU.
PEAK = {"toy": 0.9e9, "": 2.2e9, "cuda": 28e9}
# Runs on a CPU of encoders of BERT-base's shape take so many: expected, and to be
# measured by the trials of base (data/published/protocol_base.md).
PEAK_OF = {"all-mpnet-base-v2": 8e9, "bert-base-uncased": 8e9}


# A control group tells its limit of memory, what it uses, and of that the cached files,
# which it gives up: in version 2, and in version 1.
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
    """A Need is what a run asks for: cores, whether it takes a GPU, and bytes of memory
    there."""

    cores: int = 1
    card: bool = False
    memory: float = 1.0


def find_need(spec: Spec) -> Need:
    """Return the Need of the run of a Spec."""
    numerics = spec.args.get("numerics") or {}
    device = numerics.get("device", "")
    small = "data" not in spec.args or uses_generated_tasks(spec.args)
    memory = PEAK[device or "toy" * small]
    memory = memory if device else max(memory, memory_of_largest(spec))
    return Need(numerics.get("threads", 1), bool(device), memory)


def memory_of_largest(spec: Spec) -> float:
    """Return the bytes of memory of the largest encoder of PEAK_OF that a Spec rests
    on, or 0."""
    name = spec.args.get("name", "") if spec.step == "checkpoint" else ""
    return max([PEAK_OF.get(name, 0.0), *map(memory_of_largest, spec.inputs.values())])


def free_memory(system: Path = Path("/")) -> int:
    """Return the free bytes of memory, as the machine and its control group report
    them.

    system: the root of the file system that tells them."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        text = (system / "proc/meminfo").read_text()
        free = int(re.findall(r"MemAvailable: *(\d+)", text)[0]) << 10
    for names in GROUPS:
        with suppress(OSError, ValueError):  # A group without a limit says "max".
            limit, used, state = (
                (system / "sys/fs/cgroup" / name).read_text() for name in names
            )
            cached = int(re.findall(r"inactive_file (\d+)", state)[-1])
            free = min(free, int(limit) - int(used) + cached)
    return free


def process_context(card: bool = False) -> BaseContext:
    """Return the multiprocessing context in which processes are started.

    They are forked from a server that has imports and ran nothing. It is the server of
    this process, or the one that this process was itself forked from. Processes are
    spawned where a fork is unsafe: off Linux, and on a GPU."""
    if card or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    server: Any = forkserver._forkserver
    if server._forkserver_address and not server._forkserver_pid:
        server.ensure_running = lambda: None  # Else it starts another server.
    server.set_forkserver_preload(WARM.split())
    # Sockets lie in a folder that the first call makes among temporary files, whose path
    # may be too long for them.
    usual, tempfile.tempdir = tempfile.gettempdir(), paths.socket_folder()
    util.get_temp_dir()
    tempfile.tempdir = usual
    resource_tracker.ensure_running()  # If it were to start below, it would end the block.
    # All that it forks inherits this.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


def end_server() -> None:
    """End the server of processes that this one started, if it did.

    A server that still imports would fork, for a command that was stopped, what finds
    nothing."""
    server: Any = forkserver._forkserver
    if pid := server._forkserver_pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Local:
    """Local is the executor on this machine: worker processes that stay alive between
    runs.

    Each worker is a separate process, so one that is killed costs only its current run.
    slots: the number of workers. card: whether they use the GPU, the first one that
    this process may use."""

    def __init__(self, slots: int, card: bool = False) -> None:
        self.slots, self.card = slots, card
        # A pool is one worker. It is opened when a call finds none idle.
        self.running: dict[futures.Future[Any], futures.ProcessPoolExecutor] = {}
        self.idle: list[futures.ProcessPoolExecutor] = []

    def submit(
        self, function: Callable[..., Any], *args: Any, need: Need | None = None
    ) -> futures.Future[Any]:
        """Begin a call in an idle worker, or in a new one. Callers keep to `slots`."""
        if self.idle:
            pool = self.idle.pop()
        else:
            about = process_context(self.card), _prepare_worker, (dict(os.environ),)
            pool = futures.ProcessPoolExecutor(1, *about)
        future = pool.submit(_call_in_worker, function, *args)
        self.running[future] = pool
        return future

    def finished(self, seconds: float | None = None) -> set[futures.Future[Any]]:
        """Return the futures that ended, waiting at most so many seconds for one.

        Their workers are idle again, but those that died.
        """
        done = futures.wait(self.running, seconds, futures.FIRST_COMPLETED).done
        for future in done:
            pool = self.running.pop(future)
            if not isinstance(future.exception(), futures.BrokenExecutor):
                self.idle.append(pool)
        return done

    def as_completed(
        self, function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[Any, ...], futures.Future[Any]]]:
        """Yield (job, its future) as jobs finish; a job is a tuple of arguments."""
        left = list(jobs)
        running: dict[futures.Future[Any], tuple[Any, ...]] = {}
        while left or running:
            while left and len(running) < self.slots:
                job = left.pop(0)
                running[self.submit(function, *job)] = job
            for future in self.finished():
                yield running.pop(future), future

    def close(self) -> None:
        """End the workers.

        Idle workers end by themselves, those at work when they have noted that they
        stopped. A worker that has not ended within LAST seconds is killed."""
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
            process.kill()  # It does nothing to a process that has ended.


def _prepare_worker(env: Mapping[str, str]) -> None:
    """Prepare a new worker. It leaves interrupts to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_worker)
    attach_to_parent(env)


_at_work = False  # A call of this worker is at work.


def _call_in_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns, in a worker."""
    global _at_work
    _at_work = True
    try:
        return function(*args)
    finally:
        _at_work = False


def _end_worker(*_: Any) -> None:
    """End a worker: a call at work notes that it was stopped, all else has nothing to
    say."""
    if _at_work:
        raise KeyboardInterrupt
    os._exit(130)


def attach_to_parent(env: Mapping[str, str]) -> None:
    """Give a new process the environment of its parent, and let it end when its parent
    does."""
    os.environ.clear()
    os.environ.update(env)
    gc.freeze()  # The imports stay; to look through them after each run would take 0.3 s.

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
