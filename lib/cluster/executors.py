"""This module has the executor of this machine, which runs calls in worker processes.

An executor's `slots` is the largest number of calls at once, which its caller keeps to.
Its `submit` begins a call, and its `wait_for_any_finished_call` returns the calls that ended.
`lib.cluster.remote` has executors for many machines."""

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
from itertools import product
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib.core import paths
from lib.core.spec import Spec, uses_toy_data

if TYPE_CHECKING:
    # Arguments of a call, and its future.
    ArgumentsAndFuture = tuple[tuple[Any, ...], futures.Future[Any]]

# Modules that the fork server imports once. Workers and notebook kernels are forked
# from it, so they start without these slow imports. No module of lib is among them:
# each process imports lib's current code.
WARM = "torch transformers.models.bert.modeling_bert sklearn.metrics scipy.stats pandas seaborn"
WARM += " safetensors.torch ipykernel.kernelapp papermill nbconvert"
LAST = 20.0  # Seconds in which a stopped worker may save its state before it is killed.
# Peak memory in bytes of one worker process. "toy": a run on generated data with a
# model of 2 layers, or a run without data; "": any other run on a CPU; "cuda": a run on
# a GPU. The first two were measured. The last was computed for the largest model and
# batch of the papers.
PEAK = {"toy": 0.9e9, "": 2.2e9, "cuda": 28e9}
# Main memory in bytes that a run on a GPU may take: an estimate for CUDA's libraries,
# the data, and the weights on their way to the GPU.
HOST = 8e9
# {pretrained checkpoint: peak memory in bytes of one worker on a CPU}, for encoders of
# BERT-base's size, which need more than PEAK has. These are estimates.
PEAK_OF = {"all-mpnet-base-v2": 8e9, "bert-base-uncased": 8e9}
# The peak memory for a user's own encoder, as a multiple of the bytes of its weights.
# It is that of the large checkpoints above.
PEAK_OVER_WEIGHTS = 18


# Files of a Linux control group, by which a container or batch job has limited memory:
# the limit, the memory in use, and statistics on cached files, whose memory can be
# freed. The first three are of version 2 of control groups, the others of version 1.
GROUPS = (
    ("memory.max", "memory.current", "memory.stat"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
    ),
)


@dataclass(frozen=True)
class Resources:
    """A Resources says what a run (a training or a measurement) needs of a machine.

    An executor uses it to start no more runs at once than fit.

    cores: the number of CPU cores.
    uses_gpu: whether the run needs a GPU.
    memory_bytes: the peak memory: GPU memory for a run on a GPU, else main memory.
    host_memory_bytes: main memory that a run on a GPU needs in addition to the GPU's
    memory; 0 for a run on a CPU."""

    cores: int = 1
    uses_gpu: bool = False
    memory_bytes: float = 1.0
    host_memory_bytes: float = 0.0


def estimate_resources(spec: Spec) -> Resources:
    """Return the CPU cores, the GPU and the memory that a training run needs.

    An executor uses it to start no more runs at once than fit. The number of cores is
    that of the threads in the Spec. The memory is an estimate from the table PEAK. It
    has one for runs on toy data or without data, one for other runs on a CPU, and one
    for runs on a GPU. On a CPU, a run from a large checkpoint has a larger estimate.

    spec: the description of the run."""
    numerics = spec.args.get("numerics") or {}
    cores = numerics.get("threads", 1)
    if device := numerics.get("device"):
        return Resources(cores, True, PEAK[device], HOST)
    small = "data" not in spec.args or uses_toy_data(spec.args)
    memory = max(PEAK["toy" * small], estimate_peak_memory_by_checkpoint(spec))
    return Resources(cores, False, memory)


def estimate_peak_memory_by_checkpoint(spec: Spec) -> float:
    """Return the peak memory in bytes of a training run, by its pretrained checkpoint.

    The result is the estimate for the checkpoint's name in the table PEAK_OF, which has
    the large checkpoints, or 0 without an entry. For a user's own encoder it follows
    from the size of its file of weights.

    spec: the description of the run. Its inputs (the runs that it needs), and theirs,
    are searched for checkpoints too; the largest estimate counts."""
    name = spec.args.get("name", "") if spec.step == "checkpoint" else ""
    peak = PEAK_OF.get(name, 0.0)
    if os.path.isabs(name):  # The folder of a user's own encoder.
        with suppress(OSError):
            weights = Path(name, "model.safetensors").stat().st_size
            peak = float(PEAK_OVER_WEIGHTS * weights)
    return max([peak, *map(estimate_peak_memory_by_checkpoint, spec.inputs.values())])


def measure_free_memory_bytes(filesystem_root: Path = Path("/")) -> int:
    """Return the bytes of memory that new processes can use on this machine.

    It decides how many training runs start at once. It is the smaller of what is free
    on the machine and what is left under the limit of a Linux control group, which
    containers and batch jobs have.

    filesystem_root: the folder that has `proc` and `sys`, by default that of this
    machine."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        text = (filesystem_root / "proc/meminfo").read_text()
        free = int(re.findall(r"MemAvailable: *(\d+)", text)[0]) << 10
    # A container has its limit in the root group, a batch job in its group or above it.
    groups = [""]
    with suppress(OSError):
        for line in (filesystem_root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers in ("", "memory"):
                groups += [
                    str(p).strip("/") for p in (Path(place), *Path(place).parents)
                ]
    for names, group in product(GROUPS, dict.fromkeys(groups)):
        # Skip a group without a limit: it has the text "max", which int() refuses.
        with suppress(OSError, ValueError):
            limit, used, state = (
                (
                    filesystem_root / "sys/fs/cgroup" / hierarchy / group / file
                ).read_text()
                for hierarchy, _, file in (name.rpartition("/") for name in names)
            )
            cached = int(re.findall(r"inactive_file (\d+)", state)[-1])
            free = min(free, int(limit) - int(used) + cached)
    return free


def make_multiprocessing_context(uses_gpu: bool = False) -> BaseContext:
    """Return the multiprocessing context for worker processes, so that they start fast.

    On Linux they are forked from a server process, which has imported torch and other
    slow packages (WARM) and runs nothing else. A process that was itself forked from
    such a server uses the same one. On other systems and with a GPU, where a fork is
    unsafe, processes are spawned.

    uses_gpu: whether the processes use the GPU."""
    if uses_gpu or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    server: Any = forkserver._forkserver
    if server._forkserver_address and not server._forkserver_pid:
        # This process was forked from the fork server, so it must not start another.
        server.ensure_running = lambda: None
    server.set_forkserver_preload(WARM.split())
    # Let multiprocessing create its folder for Unix sockets now, in a folder with a
    # short path, because the path of a socket may have at most 107 bytes.
    usual = tempfile.gettempdir()
    tempfile.tempdir = paths.find_folder_for_unix_sockets()
    util.get_temp_dir()
    tempfile.tempdir = usual
    # Start the resource tracker of multiprocessing before SIGINT is blocked below: its
    # start would unblock SIGINT again.
    resource_tracker.ensure_running()
    # Block SIGINT while the server starts. The server and its children inherit the
    # signal mask, so that Ctrl-C reaches this process alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


def kill_fork_server() -> None:
    """Kill the server process from which workers are forked, if this process started
    it.

    A command that is stopped calls this. Otherwise a server that is still importing
    would fork workers afterwards, and nobody would wait for them."""
    server: Any = forkserver._forkserver
    if pid := server._forkserver_pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Local:
    """A Local is the executor of this machine: worker processes that execute calls.

    Workers stay alive between calls, which saves their start. Each worker is a separate
    process, so a worker that is killed loses only its current call. `slots` is the
    largest number of calls at once.

    max_parallel_calls: the largest number of workers.
    uses_gpu: whether workers use the GPU. They all use the first GPU that this process
    may use."""

    def __init__(self, max_parallel_calls: int, uses_gpu: bool = False) -> None:
        self.slots, self.uses_gpu = max_parallel_calls, uses_gpu
        # {future of a running call: its pool}. Each pool has one worker; a new pool is
        # opened when no worker is idle.
        self.running: dict[futures.Future[Any], futures.ProcessPoolExecutor] = {}
        self.idle: list[futures.ProcessPoolExecutor] = []

    def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        resources: Resources | None = None,
    ) -> futures.Future[Any]:
        """Begin a call function(*args) in an idle worker, or in a new one.

        Returns the future of the call. The caller must not have more than `slots` (the
        largest number of workers) calls running at once, as no limit is checked here.

        resources: ignored here; executors of clusters reserve these cores and
        memory."""
        if self.idle:
            pool = self.idle.pop()
        else:
            context = make_multiprocessing_context(self.uses_gpu)
            pool = futures.ProcessPoolExecutor(
                1, context, _prepare_worker, (dict(os.environ),)
            )
        future = pool.submit(_call_in_worker, function, *args)
        self.running[future] = pool
        return future

    def wait_for_any_finished_call(
        self, max_seconds: float | None = None
    ) -> set[futures.Future[Any]]:
        """Wait until a submitted call ends, and return the futures of all ended calls.

        Futures that were returned earlier are left out. The set is empty where no call
        ended in time. For each ended call a new one can then be submitted. The result
        or the error of a call is in its future.

        max_seconds: the longest wait in seconds; None waits without limit."""
        done = futures.wait(self.running, max_seconds, futures.FIRST_COMPLETED).done
        for future in done:
            pool = self.running.pop(future)
            if not isinstance(future.exception(), futures.BrokenExecutor):
                self.idle.append(pool)
        return done

    def iterate_completed_calls(
        self,
        function: Callable[..., Any],
        argument_tuples_of_calls: Iterable[tuple[Any, ...]],
    ) -> Iterator[ArgumentsAndFuture]:
        """Call a function once for each tuple of arguments, and yield the ended calls.

        A call is yielded as (its tuple of arguments, its future) when it ends, whatever
        its place. At most `slots` calls run at once.

        argument_tuples_of_calls: a tuple of positional arguments for each call."""
        left = list(argument_tuples_of_calls)
        running: dict[futures.Future[Any], tuple[Any, ...]] = {}
        while left or running:
            while left and len(running) < self.slots:
                job = left.pop(0)
                running[self.submit(function, *job)] = job
            for future in self.wait_for_any_finished_call():
                yield running.pop(future), future

    def close(self) -> None:
        """End the workers.

        Idle workers end by themselves. A worker with a running call is interrupted, so
        that its run can note that it was stopped. A worker that has not ended 20
        seconds later (LAST) is killed."""
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


def _prepare_worker(parent_environment_variables: Mapping[str, str]) -> None:
    """Prepare a new worker process; the process pool calls this in it.

    The worker then ignores Ctrl-C, which its parent handles, has the parent's
    environment variables, and ends when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_worker_on_sigterm)
    follow_parent_process(parent_environment_variables)


# Whether this worker process is executing a function that was submitted to it.
_at_work = False


def _call_in_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in this worker process and return its result.

    The flag _at_work is set meanwhile. The handler of SIGTERM reads it, to know whether
    there is a call to interrupt."""
    global _at_work
    _at_work = True
    try:
        return function(*args)
    finally:
        _at_work = False


def _end_worker_on_sigterm(*signal_arguments: Any) -> None:
    """End a worker process when it gets SIGTERM (signal handler).

    A running call is interrupted by KeyboardInterrupt, so that it can save its state
    first."""
    if _at_work:
        raise KeyboardInterrupt
    os._exit(130)


def follow_parent_process(
    parent_environment_variables: Mapping[str, str],
) -> None:
    """Give this new process its parent's environment, and end it with the parent.

    A process that is forked from a server otherwise has the environment variables of
    the time when the server started, and would run on after its parent was killed.

    parent_environment_variables: those of the parent, which replace all others."""
    os.environ.clear()
    os.environ.update(parent_environment_variables)
    # Exempt from garbage collection all objects that the imports made. Otherwise a
    # collection after each run would take 0.3 s.
    gc.freeze()

    def exit_after_parent_ends() -> None:
        parent = multiprocessing.parent_process()
        assert parent
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_after_parent_ends, daemon=True).start()
