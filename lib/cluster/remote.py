"""This module has the executors for many machines: a Ray cluster, and Slurm.

See `lib.cluster.executors`. Workers see the store, the data and this code at the same
paths as here: on a shared folder. The locks of the store keep a run from being made
twice, so a run whose worker or machine is lost is simply asked for again. It goes on
from its last checkpoint."""

from __future__ import annotations

import concurrent.futures as futures
import os
import subprocess
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib.cluster.executors import LAST, Need
from lib.core import paths
from lib.core.names import Refused, error_in_one_line
from lib.core.store import say

if TYPE_CHECKING:
    from submitit import Job
    from submitit.helpers import DelayedSubmission
    from submitit.slurm.slurm import SlurmInfoWatcher

RETRIES = 5  # Ray begins a run whose worker is lost so many times again.


def call(data_root: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return function(*args), called on another machine with the data folder of this
    process."""
    os.environ["DATA_ROOT"] = data_root
    return function(*args)


class Ray:
    """Ray is an executor on a Ray cluster: one task for each run.

    Ray begins a run anew elsewhere when it loses it. address: the cluster's address
    ("auto", "host:port"). Without one it is RAY_ADDRESS, else a cluster of this machine
    alone is started. Raises RuntimeError where there is no cluster."""

    def __init__(self, address: str, slots: int, folder: Path | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray, self.slots = ray, slots
        self.running: dict[futures.Future[Any], Any] = {}
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        here = (
            {"num_cpus": paths.count_cores(), "include_dashboard": False}
            if address == "local"
            else {}
        )
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
        except Exception as error:  # Ray raises exceptions of many kinds.
            raise Refused(
                f"no Ray cluster at {address}: {error_in_one_line(error)}"
            ) from None
        self.task = ray.remote(call)

    def submit(
        self, function: Callable[..., Any], *args: Any, need: Need
    ) -> futures.Future[Any]:
        """Ask for a call with the cores, and the GPU or memory, of a Need. Returns its
        future."""
        how = {"num_gpus": 1} if need.card else {"memory": int(need.memory)}
        task = self.task.options(num_cpus=need.cores, max_retries=RETRIES, **how)
        reference = task.remote(str(paths.data_root().absolute()), function, *args)
        future = reference.future()
        self.running[future] = reference
        return future

    def finished(self, seconds: float | None = None) -> set[futures.Future[Any]]:
        """Return the futures that ended, waiting at most so many seconds for one."""
        done = futures.wait(self.running, seconds, futures.FIRST_COMPLETED).done
        for future in done:
            del self.running[future]
        return done

    def close(self) -> None:
        """Stop the calls at work; those that have not ended within LAST seconds are
        killed."""
        for reference in self.running.values():
            self.ray.cancel(reference)
        futures.wait(self.running, LAST)
        self.ray.shutdown()


class Resumed:
    """Resumed wraps a function that Slurm calls again after a preemption, as it was."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def checkpoint(self, *args: Any) -> DelayedSubmission:
        """Return what submitit asks for before a job ends early: the same call
        again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *args)


def watcher() -> SlurmInfoWatcher:
    """Return the object that tells submitit the state of jobs.

    It asks `squeue`, as small clusters have no accounting. A job that is no longer
    listed has ended, whether it was made, cancelled or lost."""
    from submitit.slurm.slurm import SlurmInfoWatcher

    class Queue(SlurmInfoWatcher):
        def update(self) -> None:
            self._last_status_check = time.time()
            try:
                listing = subprocess.check_output(
                    ["squeue", "--me", "--noheader", "--format=%A"]
                )
            except (OSError, subprocess.CalledProcessError):
                return say(
                    "waiting  squeue does not answer: how the jobs are is not known"
                )
            ended = self._registered - set(listing.decode().split())
            self._info_dict = {job: {"State": "ENDED"} for job in ended}

    return Queue(delay_s=60)


class Slurm:
    """Slurm is an executor on a Slurm cluster: one job for each run.

    parameters: those of submitit, such as "slurm_partition=gpu,timeout_min=240";
    "cluster=local" makes processes on this machine instead. folder: the folder of the
    logs."""

    def __init__(self, parameters: str, slots: int, folder: Path) -> None:
        import submitit

        settings = dict(pair.split("=", 1) for pair in parameters.split(",") if pair)
        self.jobs = submitit.AutoExecutor(folder, settings.pop("cluster", "slurm"))
        values = {
            name: int(text) if text.isdigit() else text
            for name, text in settings.items()
        }
        self.jobs.update_parameters(
            **({"name": "lib", "timeout_min": 24 * 60} | values)
        )
        submitit.SlurmJob.watcher = watcher()
        self.slots = slots
        self.running: set[Job[Any]] = set()

    def submit(self, function: Callable[..., Any], *args: Any, need: Need) -> Job[Any]:
        """Submit a call with the cores, the GPU and the memory of a Need. Returns its
        job.

        Raises RuntimeError where Slurm refuses it.
        """
        asked = {"cpus_per_task": need.cores, "mem_gb": ceil(need.memory / 1e9)}
        self.jobs.update_parameters(**asked, slurm_gpus_per_node=int(need.card) or None)
        job = self.jobs.submit(Resumed(function), *args)
        self.running.add(job)
        return job

    def finished(self, seconds: float | None = None) -> set[Job[Any]]:
        """Return the jobs that ended, after a second."""
        time.sleep(1)
        done = {job for job in self.running if job.done()}
        self.running -= done
        return done

    def close(self) -> None:
        """Cancel the jobs that are still at work."""
        for job in self.running:
            job.cancel()
