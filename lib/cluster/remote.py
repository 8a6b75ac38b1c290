"""This module has the executors for many machines: a Ray cluster, and Slurm.

These executors have the methods `submit`, `wait_for_any_finished_call` and `close` of
`lib.cluster.executors.Local`. The folders of runs, data and code must be shared, with
the same paths on all machines. A lock file for each run keeps it from being executed
twice at once. So a run whose machine is lost is simply submitted again, and resumes
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

from lib.cluster.executors import LAST, Resources
from lib.core import paths
from lib.core.names import Refused, format_error_in_one_line
from lib.core.store import print_once

if TYPE_CHECKING:
    from submitit import Job
    from submitit.helpers import DelayedSubmission
    from submitit.slurm.slurm import SlurmInfoWatcher

# {resource of a machine, as Ray calls it: the option by which a task reserves it}.
RAY_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
# How often Slurm may start a job again after its time ran out. A run goes on from its
# last checkpoint, so only a run that makes no progress would need a limit.
MAX_TIMEOUTS = 1000
# How often Ray restarts a run after its worker process or machine was lost.
RETRIES = 5


def call_with_data_folder(
    data_root: str, function: Callable[..., Any], *args: Any
) -> Any:
    """Set the environment variable DATA_ROOT, and return function(*args).

    `Ray` executes it in a worker on any machine, where the function then finds the data
    sets. Such workers do not inherit the variable from the process that submits calls.

    data_root: the folder of data sets that the submitting process uses."""
    os.environ["DATA_ROOT"] = data_root
    return function(*args)


class Ray:
    """A Ray is an executor on a Ray cluster: each call is a Ray task.

    It has the methods `submit`, `wait_for_any_finished_call` and `close` of the
    executor on this machine, so that runs can be moved to a cluster. When a machine is
    lost, Ray starts its calls again on other machines. Raises Refused where no cluster
    answers.

    address: the cluster's address ("auto", "host:port"). Where it is empty, the
    environment variable RAY_ADDRESS is taken; without that variable a cluster of this
    machine alone is started.
    max_parallel_calls: the largest number of calls at once.
    log_folder: ignored, as Ray has a log folder already."""

    def __init__(
        self, address: str, max_parallel_calls: int, log_folder: Path | None = None
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray, self.slots = ray, max_parallel_calls
        self.running: dict[futures.Future[Any], Any] = {}
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        here = (
            {"num_cpus": paths.count_cores(), "include_dashboard": False}
            if address == "local"
            else {}
        )
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
        except Exception as error:  # Ray raises errors of many classes.
            raise Refused(
                f"no Ray cluster at {address}: {format_error_in_one_line(error)}"
            ) from None
        self.task = ray.remote(call_with_data_folder)

    def submit(
        self, function: Callable[..., Any], *args: Any, resources: Resources
    ) -> futures.Future[Any]:
        """Submit a call function(*args) as a Ray task, and return its future.

        A call that is larger than each machine of the cluster waits until a machine
        joins on which it fits. A line says so, as Ray itself would wait in silence.

        resources: what Ray reserves for the call: its cores, and a GPU or, without a
        GPU, the memory."""
        memory = int(resources.memory_bytes)
        reserved = {"CPU": resources.cores}
        reserved |= {"GPU": 1} if resources.uses_gpu else {"memory": memory}
        options = {RAY_OPTIONS[kind]: amount for kind, amount in reserved.items()}
        task = self.task.options(max_retries=RETRIES, **options)
        if not any(
            all(
                node["Resources"].get(kind, 0) >= amount
                for kind, amount in reserved.items()
            )
            for node in self.ray.nodes()
            if node["Alive"]
        ):
            demands = ", ".join(f"{kind} {n:,}" for kind, n in reserved.items())
            print_once(
                "waiting  no machine of the Ray cluster is large enough for a run "
                f"({demands}); it starts when one joins"
            )
        reference = task.remote(str(paths.data_root().absolute()), function, *args)
        future = reference.future()
        self.running[future] = reference
        return future

    def wait_for_any_finished_call(
        self, max_seconds: float | None = None
    ) -> set[futures.Future[Any]]:
        """Wait until a call ends, and return the futures of calls that ended by then.

        max_seconds: the longest wait in seconds; None waits without limit."""
        done = futures.wait(self.running, max_seconds, futures.FIRST_COMPLETED).done
        for future in done:
            del self.running[future]
        return done

    def close(self) -> None:
        """Cancel the running calls and disconnect from Ray.

        Calls that have not ended 20 seconds (LAST) later are killed."""
        for reference in self.running.values():
            self.ray.cancel(reference)
        futures.wait(self.running, LAST)
        self.ray.shutdown()


class ResubmittedCall:
    """A ResubmittedCall wraps a function for submitit, so that Slurm calls it again
    with the same arguments after a job was preempted or its time ran out."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def checkpoint(self, *args: Any) -> DelayedSubmission:
        """Return the submission that replaces a preempted job: the same call once more.

        submitit calls this method, by its name, when Slurm preempts a job, and shortly
        before the time of a job runs out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *args)


def make_job_watcher() -> SlurmInfoWatcher:
    """Return the object by which submitit asks Slurm for the state of jobs.

    It reads Slurm's `squeue` instead of submitit's `sacct`, as small clusters have no
    accounting. A job that `squeue` no longer lists has ended: finished, cancelled or
    lost."""
    from submitit.slurm.slurm import SlurmInfoWatcher

    class Queue(SlurmInfoWatcher):
        def update(self) -> None:
            self._last_status_check = time.time()
            try:
                listing = subprocess.check_output(
                    ["squeue", "--me", "--noheader", "--format=%A"]
                )
            except (OSError, subprocess.CalledProcessError):
                return print_once(
                    "waiting  squeue does not answer: how the jobs are is not known"
                )
            ended = self._registered - set(listing.decode().split())
            self._info_dict = {job: {"State": "ENDED"} for job in ended}

    return Queue(delay_s=60)


class Slurm:
    """A Slurm is an executor on a Slurm cluster: each call is a job.

    It has the methods `submit`, `wait_for_any_finished_call` and `close` of the
    executor on this machine, so that runs can be moved to a cluster.

    comma_separated_settings: parameters of submitit (the library that submits jobs),
    such as "slurm_partition=gpu,timeout_min=240"; "cluster=local" starts processes on
    this machine instead.
    max_parallel_calls: the largest number of jobs at once, queued jobs included.
    log_folder: the folder for the logs of jobs."""

    def __init__(
        self, comma_separated_settings: str, max_parallel_calls: int, log_folder: Path
    ) -> None:
        settings: dict[str, str] = {}
        for part in filter(None, comma_separated_settings.split(",")):
            name, is_pair, value = part.partition("=")
            if is_pair and name not in settings:
                settings[name] = value
            elif settings and not is_pair:  # A value with a comma, such as gpu,long.
                settings[list(settings)[-1]] += f",{part}"
            else:
                fault = "is named twice" if is_pair else "is no setting"
                fix = f"such as slurm_partition={value or part}"
                raise Refused(
                    f"Slurm: {name!r} {fault}; expected NAME=VALUE,..., {fix}"
                )
        import submitit

        try:
            self.jobs = submitit.AutoExecutor(
                log_folder,
                settings.pop("cluster", "slurm"),
                slurm_max_num_timeout=MAX_TIMEOUTS,
            )
        except (RuntimeError, ValueError) as error:
            fix = "start the command where Slurm's commands are"
            raise Refused(f"Slurm: {error}; fix: {fix}") from None
        values = {
            name: int(text) if text.isdigit() else text
            for name, text in settings.items()
        }
        try:
            self.jobs.update_parameters(
                **({"name": "lib", "timeout_min": 24 * 60} | values)
            )
        except (NameError, AssertionError, TypeError, ValueError) as error:
            fix = "names such as slurm_partition, whole numbers for timeout_min"
            reason = format_error_in_one_line(error)
            raise Refused(f"Slurm: {reason}; fix: {fix}") from None
        self.user_settings = {name.removeprefix("slurm_") for name in settings}
        submitit.SlurmJob.watcher = make_job_watcher()
        self.slots = max_parallel_calls
        self.running: set[Job[Any]] = set()

    def submit(
        self, function: Callable[..., Any], *args: Any, resources: Resources
    ) -> Job[Any]:
        """Submit a call function(*args) as a Slurm job, and return the job.

        Raises RuntimeError where Slurm refuses it.

        resources: the cores, GPU and memory that the job asks for, where the user's
        settings do not name them."""
        gigabytes = (resources.host_memory_bytes or resources.memory_bytes) / 1e9
        needs = {
            "cpus_per_task": resources.cores,
            "mem_gb": ceil(gigabytes),
            "slurm_gpus_per_node": int(resources.uses_gpu) or None,
        }
        if {"mem", "mem_per_cpu", "mem_per_gpu"} & self.user_settings:
            del needs["mem_gb"]
        self.jobs.update_parameters(
            **{
                name: value
                for name, value in needs.items()
                if name.removeprefix("slurm_") not in self.user_settings
            }
        )
        job = self.jobs.submit(ResubmittedCall(function), *args)
        self.running.add(job)
        return job

    def wait_for_any_finished_call(
        self, max_seconds: float | None = None
    ) -> set[Job[Any]]:
        """Wait for one second, and return the jobs that have ended.

        max_seconds: ignored; the other executors have this argument."""
        time.sleep(1)
        done = {job for job in self.running if job.done()}
        self.running -= done
        return done

    def close(self) -> None:
        """Cancel the jobs that are still queued or running."""
        for job in self.running:
            job.cancel()
