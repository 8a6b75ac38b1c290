"""Executors: what a run needs, where it is put, what is refused; a stand-in tells the GPUs."""

import asyncio
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from conftest import put, untrained
from test_sweep import teacher, until

from lib.papers import grids
from lib.runs import executors
from lib.runs.executors import Need, need
from lib.runs.spec import Spec
from lib.train.options import Numerics

GB = 1 << 30
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """f(lines): nvidia-smi tells these (identity, free MB)."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def tell(*lines):
        told = "\\n".join(", ".join(map(str, line)) for line in lines)
        put(tmp_path, "nvidia-smi", f'#!/bin/sh\nprintf "{told}\\n"\n').chmod(0o755)

    return tell


def devices(needs, workers=None):
    """The GPUs of the workers that runs with these needs get, sorted."""
    with closing(executors.opened("local", needs, workers)) as executor:
        assert executor.slots == len(executor.devices)
        return sorted(executor.devices)


def test_a_gpu_has_as_many_workers_as_its_memory_holds_runs_and_one_at_least():
    two = {"a": 10 * GB, "b": 5 * GB}
    assert executors.places(two, 2 * GB) == ["a", "b", "a", "b", "a", "a", "a"]
    assert executors.places(two, 6 * GB) == ["a", "b"]
    assert executors.places(two, 20 * GB) == ["a", "b"]
    assert executors.places(two, 20 * GB, each=2) == ["a", "b", "a", "b"]


def test_gpus_are_those_that_this_process_may_use(tmp_path, smi, monkeypatch):
    smi(("GPU-a", 1000), ("GPU-b", 2000), ("GPU-c", "[N/A]"))
    assert executors.cards() == {"GPU-a": 1000 << 20, "GPU-b": 2000 << 20}
    put(tmp_path, "nvidia-smi", '#!/bin/sh\n[ "$3" = --id=1 ] && echo GPU-b, 2000\n')
    for allowed, found in {"1": {"GPU-b": 2000 << 20}, "": {}}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
        assert executors.cards() == found
    smi()
    assert executors.cards() == {}


def test_workers_are_spread_over_gpus_by_memory_and_cores(smi, monkeypatch):
    smi(("GPU-a", 4000), ("GPU-b", 9000))
    monkeypatch.setattr(executors, "cores", lambda: 16)
    run = Need(1, True, 4e9)
    assert devices([run] * 9) == ["GPU-a", "GPU-b", "GPU-b"]
    assert devices([run] * 9, 2) == ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]
    assert devices([run] * 2) == ["GPU-a", "GPU-b"]
    monkeypatch.setattr(executors, "cores", lambda: 2)
    assert devices([run] * 9) == ["GPU-a", "GPU-b"]


def test_a_worker_sees_its_gpu_alone_also_one_that_takes_the_place_of_another():
    with closing(executors.Local(2, devices=["GPU-a", "GPU-b"])) as executor:
        for gpu in ("GPU-a", "GPU-b"):
            there = executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES")
            assert there.result() == gpu
        executor.finished()
        executor.free.sort(key=lambda slot: slot != 0)  # the worker of GPU-b is the next one
        executor.submit(os._exit, 1)
        (lost,) = executor.finished()
        with pytest.raises(executors.BrokenProcessPool):
            lost.result()
        assert executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result() == "GPU-b"


def seen():
    """What a worker begins with: threads, what it has imported, its variable and its server."""
    threads, had = (psutil.Process().num_threads(), {"torch", "seaborn"} & {*sys.modules})
    return threads, had, os.environ.get("TOLD"), os.getppid()


@linux
def test_workers_are_forked_with_their_imports_and_without_a_thread_but_their_own(monkeypatch):
    """Each has the environment as it is when it begins."""
    found = []
    for told in "ab":
        monkeypatch.setenv("TOLD", told)
        with closing(executors.Local(1)) as executor:
            found.append(executor.submit(seen).result())
            executor.finished()
    server = found[0][-1]  # the other thread looks whether the parent is there
    assert found == [(2, {"torch", "seaborn"}, told, server) for told in "ab"]
    assert server != os.getpid()


def kernel(folder):
    """Start a kernel as a page does. Returns (its process, its parent, the one that asked)."""
    from lib.page.kernel import Manager

    where = {"transport": "ipc", "ip": f"{folder}/s", "connection_file": f"{folder}/kernel.json"}
    manager = Manager(**where)
    asyncio.run(manager.start_kernel())
    pid = manager.provisioner.pid
    return pid, psutil.Process(pid).ppid(), os.getpid()


@linux
def test_a_kernel_is_forked_as_workers_are_and_ends_with_the_process_that_asked(tmp_path):
    with closing(executors.Local(1)) as executor:
        *_, server = executor.submit(seen).result()
        executor.finished()
        pid, parent, asked = executor.submit(kernel, tmp_path).result()
        assert parent == server == psutil.Process(asked).ppid()
        os.kill(asked, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), 20)


def test_without_a_gpu_workers_are_as_many_as_cores_threads_and_memory_allow(smi, monkeypatch):
    smi()
    monkeypatch.setattr(executors, "cores", lambda: 8)
    monkeypatch.setattr(executors, "memory", lambda: 5e9)
    slots = [
        ([Need(1, False, 1e9)] * 20, None, 5),
        ([Need(1, False, 1e8)] * 20, None, 8),
        ([Need(1, False, 1e8), Need(4, False, 1e8)] * 20, None, 2),
        ([Need(1, False, 9e9)] * 20, None, 1),
        ([Need(1, False, 9e9)] * 20, 3, 3),
        ([Need(1, False, 1e8)] * 2, None, 2),
        ([Need(1, True, 1e9)] * 20, None, 5),  # the runs say themselves that no GPU is there
    ]
    for needs, workers, count in slots:
        with closing(executors.opened("local", needs, workers)) as executor:
            assert executor.slots == count, (needs[0], workers)


def test_what_a_run_needs_goes_by_its_profile_threads_and_device(anywhere):
    teachers = [need(grids.teacher(profile, "RTE")) for profile in ("toy", "mini")]
    assert teachers == [Need(1, False, 0.9e9), Need(1, False, 2.2e9)]
    spec = teacher()
    args = {"data": spec.args["data"], "numerics": Numerics("float32", 4, "cuda")}
    on_card = need(replace(spec, args=spec.args | args))
    assert on_card.cores == 4 and on_card.card and on_card.memory > 10e9
    assert need(untrained()) == Need(1, False, 0.9e9) == need(Spec("count", {}))


def test_an_unknown_backend_is_refused_and_an_absent_package_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown backend: 'rya'; did you mean 'ray'"):
        executors.opened("rya", [Need()])
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(RuntimeError, match="submitit is absent: pip install -r requirements-clus"):
        executors.opened("slurm", [Need()], folder=tmp_path)
