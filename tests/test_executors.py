"""Executors: what a run needs, where it is put, what is refused."""

import asyncio
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from conftest import untrained
from test_sweep import teacher, until

from lib.cluster import backends, executors, remote, sweep
from lib.cluster.executors import Resources, estimate_resources
from lib.core import paths
from lib.core.names import Refused
from lib.core.options import Numerics
from lib.core.spec import Spec
from lib.papers import grids

GB = 1 << 30
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are forked on Linux alone"
)


def seen():
    """What a worker begins with: threads, what it has imported, its variable and its
    server."""
    threads = psutil.Process().num_threads()
    had = {"torch", "seaborn"} & {*sys.modules}
    return threads, had, os.environ.get("TOLD"), os.getppid()


@linux
def test_workers_are_forked_with_their_imports_and_without_a_thread_but_their_own(
    monkeypatch,
):
    """Each has the environment as it is when it begins."""
    found = []
    for told in "ab":
        monkeypatch.setenv("TOLD", told)
        with closing(executors.Local(1)) as executor:
            found.append(executor.submit(seen).result())
            executor.wait_for_any_finished_call()
    server = found[0][-1]  # the other thread looks whether the parent is there
    assert found == [(2, {"torch", "seaborn"}, told, server) for told in "ab"]
    assert server != os.getpid()


def kernel(folder):
    """Start a kernel as a page does. Returns (its process, its parent, the one that
    asked)."""
    from lib.report.kernel import ForkingKernelManager

    where = {
        "transport": "ipc",
        "ip": f"{folder}/s",
        "connection_file": f"{folder}/kernel.json",
    }
    manager = ForkingKernelManager(**where)
    asyncio.run(manager.start_kernel())
    pid = manager.provisioner.pid
    return pid, psutil.Process(pid).ppid(), os.getpid()


@linux
def test_a_kernel_is_forked_as_workers_are_and_ends_with_the_process_that_asked(
    tmp_path,
):
    with closing(executors.Local(1)) as executor:
        *_, server = executor.submit(seen).result()
        executor.wait_for_any_finished_call()
        pid, parent, asked = executor.submit(kernel, tmp_path).result()
        assert parent == server == psutil.Process(asked).ppid()
        os.kill(asked, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), 20)


def test_workers_are_as_many_as_cores_threads_and_memory_allow_and_one_on_a_gpu(
    monkeypatch,
):
    monkeypatch.setattr(paths, "count_cores", lambda: 8)
    monkeypatch.setattr(backends, "measure_free_memory_bytes", lambda: 5e9)
    slots = [
        ([Resources(1, False, 1e9)] * 20, None, 5),
        ([Resources(1, False, 1e8)] * 20, None, 8),
        ([Resources(1, False, 1e8), Resources(4, False, 1e8)] * 20, None, 2),
        ([Resources(1, False, 9e9)] * 20, None, 1),
        ([Resources(1, False, 9e9)] * 20, 3, 3),
        ([Resources(1, False, 1e8)] * 2, None, 2),
        ([Resources(1, True, 1e9)] * 20, None, 1),
        ([Resources(1, True, 1e9)] * 20, 4, 4),
    ]
    for needs, workers, count in slots:
        with closing(backends.open_executor("local", needs, workers)) as executor:
            assert executor.slots == count, (needs[0], workers)


def test_what_a_run_needs_goes_by_its_profile_threads_and_device(anywhere):
    teachers = [
        estimate_resources(grids.teacher_spec(profile, "RTE"))
        for profile in ("toy", "mini")
    ]
    assert teachers == [Resources(1, False, 0.9e9), Resources(1, False, 2.2e9)]
    spec = teacher()
    args = {"data": spec.args["data"], "numerics": Numerics("float32", 4, "cuda")}
    on_card = estimate_resources(replace(spec, args=spec.args | args))
    assert on_card.cores == 4 and on_card.uses_gpu and on_card.memory_bytes > 10e9
    assert on_card.host_memory_bytes < 10e9  # A job of 28 GB would fit few nodes.
    assert (
        estimate_resources(untrained())
        == Resources(1, False, 0.9e9)
        == estimate_resources(Spec("count", {}))
    )


def test_memory_for_an_encoder_of_one_s_own_follows_from_its_weights(tmp_path):
    """A folder may hold a model of any size, whatever it is called."""
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(438_000_000)  # BERT-base in float32.
    large = Spec("checkpoint", {"name": str(tmp_path), "digest": "0"})
    spec = Spec("finetune", {"data": {"source": "own"}}, {"start": large})
    needed = estimate_resources(spec).memory_bytes
    named = replace(large, args={"name": "bert-base-uncased", "digest": "0"})
    by_name = estimate_resources(replace(spec, inputs={"start": named})).memory_bytes
    assert abs(needed / by_name - 1) < 0.1
    (tmp_path / "model.safetensors").unlink()
    assert estimate_resources(spec).memory_bytes == executors.PEAK[""]


def test_a_first_forecast_counts_the_workers_that_there_will_be(monkeypatch, store):
    monkeypatch.setattr(paths, "count_cores", lambda: 8)
    monkeypatch.setattr(backends, "measure_free_memory_bytes", lambda: 5e9)
    on_cpu = [teacher().with_seed(seed) for seed in range(20)]
    card = {"numerics": Numerics("float32", 1, "cuda")}
    on_card = [replace(spec, args=spec.args | card) for spec in on_cpu]
    for specs, where in ((on_cpu, "on 5 workers"), (on_card, "of a core")):
        clock = sweep.TimeForecast(store)
        clock.add_finished_run(specs[0], 60.0)
        assert sweep.describe_missing_runs(specs[1:], clock).endswith(where)


def test_an_unknown_backend_is_refused_and_an_absent_package_is_named(
    tmp_path, monkeypatch
):
    with pytest.raises(ValueError, match="unknown backend: 'rya'; did you mean 'ray'"):
        backends.open_executor("rya", [Resources()])
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(
        Refused, match="submitit is absent: pip install -r requirements-clus"
    ):
        backends.open_executor("slurm", [Resources()], log_folder=tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_is_what_the_control_group_leaves(tmp_path, version):
    """Cached files do not count as used; a group without a limit limits nothing."""
    assert (
        0
        < executors.measure_free_memory_bytes(tmp_path)
        <= psutil.virtual_memory().total
    )
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 90 kB\nMemAvailable:  64 kB\n")
    assert executors.measure_free_memory_bytes(tmp_path) == 64 << 10
    limit, used, state = executors.GROUPS[2 - version]
    group = tmp_path / "sys/fs/cgroup"
    (group / limit).parent.mkdir(parents=True)
    (group / used).write_text("40000\n")
    own, below = ("inactive_file 1\ntotal_", "inactive_file 5000\n")
    (group / state).write_text(below if version == 2 else own + below)
    for text, free in (("50000", 15000), ("max", 64 << 10), (f"{1 << 60}", 64 << 10)):
        (group / limit).write_text(text)
        assert executors.measure_free_memory_bytes(tmp_path) == free


def test_free_memory_is_what_the_group_of_a_batch_job_leaves(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 90 kB\nMemAvailable:  64 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/slurm/job_7/step_0\n")
    group = tmp_path / "sys/fs/cgroup/slurm/job_7"
    (group / "step_0").mkdir(parents=True)
    for name, text in zip(executors.GROUPS[0], ("50000", "40000", ""), strict=True):
        (group / name).write_text(f"{text or 'inactive_file 5000'}\n")
    assert executors.measure_free_memory_bytes(tmp_path) == 15000


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ("gpu", "'gpu' is no setting; .* such as slurm_partition=gpu"),
        ("slurm_partition=a,slurm_partition=b", "'slurm_partition' is named twice"),
    ],
)
def test_a_setting_of_slurm_that_is_not_clear_is_told_with_its_form(
    settings, error, tmp_path
):
    with pytest.raises(Refused, match=error):
        remote.Slurm(settings, 1, tmp_path)
