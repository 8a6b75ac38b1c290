"""Executors for many machines: a Ray cluster, and Slurm.

Workers see the store, the data and this code at the same paths as here: on a shared folder. The
locks of the store keep a run from being made twice, so a run whose worker or machine is lost is
just asked for again. It goes on from its last checkpoint.
"""

import concurrent.futures as futures
import os
import signal
import socket
import threading
from collections import defaultdict
from contextlib import suppress
from math import ceil

from lib.runs import paths
from lib.runs.execute import one_line
from lib.runs.executors import LAST, cores

RETRIES = 5  # of a run whose worker is lost
QUEUED = 100  # runs that Slurm is given at once, by default


class There:
    """A function as another machine calls it: niced, with the data that this process has."""

    def __init__(self, function, nice):
        self.function, self.nice, self.data = function, nice, str(paths.data_root().absolute())

    def __call__(self, *args):
        os.environ["DATA_ROOT"] = self.data
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        return self.function(*args)

    def checkpoint(self, *args):
        """What Slurm asks for before it preempts a job: the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *args)


def call(there, *args):
    return there(*args)


class Ray:
    """Executor on a Ray cluster, a task a run; Ray begins a run anew elsewhere when it loses it.

    address: of a cluster ("auto", "host:port"). Without one it is RAY_ADDRESS, else a cluster of
    this machine alone is started. workers: runs at once; on each GPU, where they are of one.
    """

    def __init__(self, address, needs, workers, nice, folder=None):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray, self.nice, self.workers, self.running = ray, nice, workers, set()
        self.cores = max(need.cores for need in needs)
        self.on_card = any(need.card for need in needs)
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        here = {"num_cpus": cores(), "include_dashboard": False} if address == "local" else {}
        before = signal.getsignal(signal.SIGTERM)
        try:
            host, colon, port = address.partition(":")
            if colon and port.isdigit():  # Ray itself tries for minutes
                socket.create_connection((host, int(port)), 10).close()
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
        except Exception as error:  # Ray raises bare ones
            raise RuntimeError(f"no Ray cluster at {address}: {one_line(error)}") from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray puts its own there
        self.task = ray.remote(call)

    @property
    def slots(self):
        """How many runs the cluster makes at once, as large as it is now."""
        there = self.ray.cluster_resources()
        most = int(there.get("CPU", 0)) // self.cores
        if self.on_card:
            return max(1, min(most, int(there.get("GPU", 0)) * (self.workers or 1)))
        return max(1, min(most, self.workers or most))

    @property
    def free(self):
        return len(self.running) < self.slots

    def submit(self, function, *args, need):
        how = {"num_cpus": need.cores, "max_retries": RETRIES}
        how |= {"num_gpus": 1 / (self.workers or 1)} if need.card else {"memory": int(need.memory)}
        reference = self.task.options(**how).remote(There(function, self.nice), *args)
        future = reference.future()
        future.reference = reference
        self.running.add(future)
        return future

    def release(self, future):
        self.running.discard(future)

    def close(self):
        """Stop what is still at work; who does not say so within LAST seconds is killed."""
        for future in self.running:
            self.ray.cancel(future.reference)
        futures.wait(self.running, LAST)
        self.ray.shutdown()


class Slurm:
    """Executor of Slurm: runs that are ready together and need the same are one array.

    told: parameters of submitit, such as "slurm_partition=gpu,timeout_min=240"; "cluster=local"
    makes processes here instead. workers: runs that Slurm is given at once. folder: of the logs.
    """

    def __init__(self, told, needs, workers, nice, folder):
        import submitit

        told = dict(each.split("=", 1) for each in told.split(",") if each)
        self.jobs = submitit.AutoExecutor(folder, told.pop("cluster", "slurm"))
        values = {name: int(text) if text.isdigit() else text for name, text in told.items()}
        self.jobs.update_parameters(**({"name": "lib", "timeout_min": 24 * 60} | values))
        self.slots, self.nice = min(workers or QUEUED, len(needs)), nice
        self.waiting, self.running, self.over = [], {}, threading.Event()
        self.thread = threading.Thread(target=self._tend, daemon=True)
        self.thread.start()

    @property
    def free(self):
        return len(self.running) < self.slots

    def submit(self, function, *args, need):
        future = futures.Future()
        self.running[future] = None
        self.waiting.append((future, need, There(function, self.nice), *args))
        return future

    def release(self, future):
        del self.running[future]

    def _tend(self):
        """Each second: submit what waits as arrays, and hand over what is done."""
        while not self.over.wait(1):
            arrays = defaultdict(list)
            while self.waiting:
                future, need, *call = self.waiting.pop(0)
                arrays[need.cores, need.card, ceil(need.memory / 1e9)].append((future, call))
            for asked, array in arrays.items():
                try:
                    self._submit(array, *asked)
                except Exception as error:  # of sbatch, say: no such partition
                    for future, _ in array:
                        future.set_exception(error)
            for future, job in list(self.running.items()):
                if job and not future.done() and job.done():
                    if error := job.exception():
                        future.set_exception(error)
                    else:
                        future.set_result(job.result())

    def _submit(self, array, count, card, size):
        asked = {"cpus_per_task": count, "mem_gb": size, "slurm_gpus_per_node": int(card) or None}
        self.jobs.update_parameters(slurm_array_parallelism=self.slots, **asked)
        with self.jobs.batch():
            made = [self.jobs.submit(*call) for _, call in array]
        self.running |= {future: job for (future, _), job in zip(array, made, strict=True)}

    def close(self):
        """Cancel what is still at work."""
        self.over.set()
        self.thread.join()
        for job in filter(None, self.running.values()):
            job.cancel()
