"""This module opens the executor that runs trainings: in processes of this machine, on
a Ray cluster, or on Slurm."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from lib.cluster import remote
from lib.cluster.executors import Local, Resources, measure_free_memory_bytes
from lib.core import paths
from lib.core.names import Refused, check_known_name

BACKENDS = ("local", "ray", "slurm")


def open_executor(
    backend_and_options: str,
    resources_of_runs: Sequence[Resources],
    max_parallel_calls: int | None = None,
    log_folder: Path | None = None,
) -> Local | remote.Ray | remote.Slurm:
    """Return an executor, by which the caller executes some runs in parallel.

    A run is a training or a measurement. Raises Refused for an unknown backend, where
    its package is not installed, and where no Ray cluster answers.

    backend_and_options: "local" (this machine), "ray" or "slurm". After a colon may
    follow the address of a Ray cluster, or parameters for Slurm, such as
    "slurm:slurm_partition=gpu".
    resources_of_runs: the cores, GPU and memory of each run that is planned. On this
    machine the largest demands decide how many runs fit at once.
    max_parallel_calls: the largest number of runs at once. By default it is as many as
    cores and memory of this machine allow, or 1 if a run needs the GPU, and 100 on a
    cluster. It is never more than the number of runs.
    log_folder: the folder for the logs of Slurm's jobs, which need one."""
    name, _, parameters = backend_and_options.partition(":")
    check_known_name("backend", name, BACKENDS)
    if name != "local":
        try:
            most = max(1, min(max_parallel_calls or 100, len(resources_of_runs)))
            return getattr(remote, name.capitalize())(parameters, most, log_folder)
        except ModuleNotFoundError as error:
            how = "pip install -r requirements-cluster.txt"
            raise Refused(f"{error.name} is absent: {how}") from None
    fit = max_parallel_calls or count_runs_that_fit(resources_of_runs)
    return Local(
        max(1, min(fit, len(resources_of_runs))),
        any(needed.uses_gpu for needed in resources_of_runs),
    )


def count_runs_that_fit(resources_of_runs: Sequence[Resources]) -> int:
    """Return how many runs this machine can make at once, which is at least one.

    It is as many as its cores and free memory allow if all runs need what the largest
    needs, and 1 if a run needs the GPU.

    resources_of_runs: the cores, GPU and memory of each run; at least one."""
    widest = Resources(*map(max, zip(*map(astuple, resources_of_runs), strict=True)))
    if widest.uses_gpu:
        return 1
    by_memory = int(measure_free_memory_bytes() // widest.memory_bytes)
    return max(1, min(paths.count_cores() // widest.cores, by_memory))
