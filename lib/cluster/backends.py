"""This module opens the executor that makes runs: on this machine, on a Ray cluster, or
on Slurm."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from lib.cluster import remote
from lib.cluster.executors import Local, Need, measure_free_memory
from lib.core import paths
from lib.core.names import Refused, check_name

BACKENDS = ("local", "ray", "slurm")


def open_executor(
    backend: str,
    needs: Sequence[Need],
    workers: int | None = None,
    folder: Path | None = None,
) -> Local | remote.Ray | remote.Slurm:
    """Return the executor of a backend for runs with these Needs.

    Raises Refused for an unknown backend, and where its package is not installed.

    backend: a name of BACKENDS; an address (Ray) or parameters (Slurm) may follow after
    a colon.
    workers: the number of runs at once; by default as many as cores and memory allow,
    and one on a GPU.
    folder: the folder for the logs of Slurm's jobs."""
    name, _, parameters = backend.partition(":")
    check_name("backend", name, BACKENDS)
    if name != "local":
        try:
            most = max(1, min(workers or 100, len(needs)))
            return getattr(remote, name.capitalize())(parameters, most, folder)
        except ModuleNotFoundError as error:
            how = "pip install -r requirements-cluster.txt"
            raise Refused(f"{error.name} is absent: {how}") from None
    widest = Need(*map(max, zip(*map(astuple, needs), strict=True)))
    fit = (
        1
        if widest.card
        else min(
            paths.count_cores() // widest.cores, measure_free_memory() // widest.memory
        )
    )
    return Local(max(1, min(workers or int(fit), len(needs))), widest.card)
