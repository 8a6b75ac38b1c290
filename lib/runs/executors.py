"""Executors: who makes the runs of a sweep.

An executor makes `slots` runs at once. `submit` begins one; `finished` gives those that ended.
`Local` has worker processes on this machine; `lib.runs.cluster` has executors for many machines.
"""

import concurrent.futures as futures
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import astuple, dataclass
from multiprocessing import forkserver
from pathlib import Path

from lib.runs import paths
from lib.runs.spec import known

# What workers and kernels are forked with. Of this package nothing: each imports it as it is then.
WARM = "torch transformers.models.bert.modeling_bert sklearn.metrics scipy.stats pandas seaborn"
WARM += " safetensors.torch ipykernel.kernelapp papermill nbconvert"
LAST = 20.0  # seconds that stopped workers are given to say so
BACKENDS = ("local", "ray", "slurm")
# Bytes of memory that a worker takes at its peak, by the type of its numbers: measured at toy and
# mini (tests/test_scale.py), counted from the largest model and batch of paper on a GPU.
PEAK = {"float32": 0.9e9, "bfloat16": 2.2e9, "cuda": 28e9}


@dataclass(frozen=True)
class Need:
    """The place that a run asks for: cores, a GPU or not, and bytes of memory there."""

    cores: int = 1
    card: bool = False
    memory: float = 1.0


def need(spec):
    """Return the Need of a run."""
    numerics = spec.args.get("numerics") or {}
    dtype, device = numerics.get("dtype", "float32"), numerics.get("device", "")
    return Need(numerics.get("threads", 1), bool(device), PEAK[device or dtype])


def opened(backend, needs, workers=None, folder=None):
    """Return the executor of a backend for runs with these Needs.

    backend: its name, and after a colon its address or its parameters. workers: runs at once; as
    many as fit by default, on a GPU one. folder: where a backend leaves its logs. Raises ValueError
    for an unknown backend, RuntimeError where its package is absent.
    """
    name, _, told = backend.partition(":")
    known("backend", name, BACKENDS)
    if name != "local":
        from lib.runs import cluster

        try:
            most = max(1, min(workers or 100, len(needs)))
            return getattr(cluster, name.capitalize())(told, most, folder)
        except ModuleNotFoundError as error:
            how = "pip install -r requirements-cluster.txt"
            raise RuntimeError(f"{error.name} is absent: {how}") from None
    widest = Need(*map(max, zip(*map(astuple, needs), strict=True)))
    fit = 1 if widest.card else min(paths.cores() // widest.cores, memory() // widest.memory)
    return Local(max(1, min(workers or int(fit), len(needs))), widest.card)


def memory():
    """Return the free bytes of memory, as the machine and its control group have them."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        free = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free


def context(card=False):
    """Return how processes are started: forked from a server that has imports and ran nothing.

    It is that of this process, or the one that this process was itself forked from. Processes are
    spawned where a fork is unsafe: off Linux, and on a GPU.
    """
    if card or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    server = forkserver._forkserver
    if server._forkserver_address and not server._forkserver_pid:
        server.ensure_running = lambda: None  # else it starts one of its own
    server.set_forkserver_preload(WARM.split())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # in all that it forks
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


class Local:
    """Executor on this machine: `slots` worker processes that stay alive between runs.

    A worker is a process of its own, so that one that is killed costs only its own run. card: they
    work on the GPU, the first one that this process may use.
    """

    def __init__(self, slots, card=False):
        self.slots, self.card, self.running = slots, card, {}
        self.pools = [None] * slots  # opened by the first call
        self.free = list(reversed(range(slots)))

    def submit(self, function, *args, need=None):
        """Begin a call in a free worker. Returns its future."""
        slot = self.free.pop()
        if not self.pools[slot]:
            about = context(self.card), _tend, (dict(os.environ),)
            self.pools[slot] = futures.ProcessPoolExecutor(1, *about)
        future = self.pools[slot].submit(function, *args)
        self.running[future] = slot
        return future

    def finished(self, seconds=None):
        """Return the futures that ended, within so many seconds; their workers are free again."""
        done = futures.wait(self.running, seconds, futures.FIRST_COMPLETED).done
        for future in done:
            slot = self.running.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                self.pools[slot] = None
            self.free.append(slot)
        return done

    def each(self, function, jobs):
        """Yield (job, its future) as they finish; a job is a tuple of arguments."""
        left, running = list(jobs), {}
        while left or running:
            while left and self.free:
                job = left.pop(0)
                running[self.submit(function, *job)] = job
            for future in self.finished():
                yield running.pop(future), future

    def close(self):
        """End the workers: idle ones by themselves, those at work once they have said that they
        stopped. Who has not within LAST seconds is killed.
        """
        busy = [self.pools[slot] for slot in self.running.values()]
        left = [process for pool in busy for process in (pool._processes or {}).values()]
        for process in left:
            process.terminate()
        for pool in filter(None, self.pools):
            pool.shutdown(wait=pool not in busy, cancel_futures=True)
        end = time.monotonic() + LAST
        for process in left:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()  # does nothing to one that has ended


def _tend(env):
    """A worker's first act: leave interrupts to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is stopped says so
    attach(env)


def attach(env):
    """Give a new process the environment of its parent, and let it end when its parent does."""
    os.environ.clear()
    os.environ.update(env)

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
