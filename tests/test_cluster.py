"""Sweeps on a Ray cluster of two nodes, one of which is killed, and as jobs of Slurm:
by stand-ins for its commands, and on a Slurm of this machine where its packages are
installed."""

import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from conftest import holder, put, same_run
from test_sweep import BACKBONE, checkpointed, importance, long, teacher, until

from lib.cluster import backends, remote, sweep
from lib.cluster.executors import Resources
from lib.core.store import Store

ABSENT = "absent: pip install -r requirements-cluster.txt"
make = sweep.execute_specs


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Workers elsewhere find the functions of this file."""
    here = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(here))


def equal_to_a_serial_sweep(store, specs, tmp_path):
    serial = Store(tmp_path / "serial", tmp_path / "records")
    assert make(specs, serial, workers=1, keep_weights=True) == {}
    for spec in specs:
        same_run(store.find_run(spec), serial.find_run(spec))
    names = [
        sorted(run.name for run in each.iterate_finished_runs())
        for each in (store, serial)
    ]
    assert names[0] == names[1]
    assert not [*store.list_unfinished_folders(), *store.runs.glob("*/*.lock")]


def visible():
    time.sleep(1)
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("DATA_ROOT")


@pytest.fixture
def nodes():
    """f(**options): a Ray cluster with a node, and one with these options. Returns (it,
    that)."""
    pytest.importorskip("ray", reason=ABSENT)
    from ray.cluster_utils import Cluster

    made = []

    def start(**options):
        made.append(Cluster(initialize_head=True, head_node_args={"num_cpus": 1}))
        return made[0], made[0].add_node(num_cpus=1, **options)

    yield start
    for each in made:
        each.shutdown()


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_node_killed_in_mid_sweep_costs_no_run_and_no_bit(nodes, store, tmp_path):
    ray, second = nodes()
    tuned = [teacher(rows=320, epochs=2).with_seed(seed) for seed in range(4)]
    specs = [
        *tuned,
        *(importance(teacher(rows=320, epochs=2)).with_seed(seed) for seed in range(2)),
    ]
    hit = []

    def on_second():
        for spec in tuned:
            worker = checkpointed(store, spec) and holder(store.get_lock_path(spec))
            if worker and parent(worker) == raylet(second):
                return spec

    def kill():
        hit.append(until(on_second))
        ray.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    lost = make(
        specs,
        store,
        keep_weights=True,
        backend=f"ray:{ray.address}",
        checkpoint_interval_seconds=0.0,
    )
    killer.join()
    assert lost == {}
    attempts = {spec: store.find_run(spec).status["attempts"] for spec in specs}
    assert attempts == {spec: 1 + (spec in hit) for spec in specs}
    equal_to_a_serial_sweep(store, specs, tmp_path)


@pytest.mark.slow
def test_ray_gives_each_run_its_gpu_and_our_data(nodes, monkeypatch, tmp_path):
    ray, _ = nodes(num_gpus=1)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    with closing(
        backends.open_executor(f"ray:{ray.address}", [Resources(1, True)] * 4, 1)
    ) as executor:
        future = executor.submit(visible, resources=Resources(1, True))
        assert future.result() == ("0", str(tmp_path))
        assert executor.wait_for_any_finished_call() == {future} and executor.slots == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resources", "size"),
    [(Resources(1, True), "CPU 1, GPU 1"), (Resources(64), "CPU 64, memory 1")],
)
def test_a_run_that_fits_no_node_of_ray_says_so(nodes, resources, size, capsys):
    ray, _ = nodes()
    with closing(
        backends.open_executor(f"ray:{ray.address}", [resources], 1)
    ) as executor:
        executor.submit(visible, resources=Resources())
        assert "waiting" not in capsys.readouterr().err
        executor.submit(visible, resources=resources)
        assert f"large enough for a run ({size})" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_on_a_ray_that_is_stopped_says_so_and_is_resumed(store):
    pytest.importorskip("ray", reason=ABSENT)
    make([BACKBONE], store, keep_weights=True)
    spec = long()

    def stop():
        until(lambda: checkpointed(store, spec))
        os.kill(os.getpid(), signal.SIGINT)

    watch = threading.Thread(target=stop)
    watch.start()
    with pytest.raises(KeyboardInterrupt):
        make([spec], store, checkpoint_interval_seconds=0.0, backend="ray")
    watch.join()
    until(lambda: store.find_run_with_state(spec)["state"] != "running")
    assert store.find_run_with_state(spec)["state"] == "stopped" and checkpointed(
        store, spec
    )


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Folder of stand-ins for Slurm's commands; `sbatch` keeps the scripts that it is
    given."""
    pytest.importorskip("submitit", reason=ABSENT)
    keep = f'cp "$1" {tmp_path}/$$.script; echo "Submitted batch job $$"'
    for name, does in {
        "sbatch": keep,
        "srun": ":",
        "sacct": ":",
        "scancel": ":",
    }.items():
        put(tmp_path, f"bin/{name}", f"#!/bin/sh\n{does}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def test_a_job_asks_for_what_its_run_needs(slurm):
    few, many = Resources(1, False, 1.2e9), Resources(4, True, 28e9, 5e9)
    told = "slurm:slurm_partition=night,late,timeout_min=90"
    with closing(
        backends.open_executor(told, [few, many], 20, slurm / "logs")
    ) as executor:
        for need in (few, many):
            executor.submit(visible, resources=need)
        assert executor.slots == 2
    single, wide = sorted(
        (p.read_text() for p in slurm.glob("*.script")), key=lambda t: "gpus" in t
    )
    for line in ("cpus-per-task=1", "mem=2GB", "partition=night,late", "time=90"):
        assert f"#SBATCH --{line}\n" in single, single
    for line in ("cpus-per-task=4", "mem=5GB", "gpus-per-node=1"):
        assert f"#SBATCH --{line}\n" in wide, wide
    assert "gpus" not in single


def test_what_slurm_refuses_is_told(slurm, store):
    put(slurm, "bin/sbatch", "#!/bin/sh\necho invalid partition >&2\nexit 1\n").chmod(
        0o755
    )
    with pytest.raises(RuntimeError, match="invalid partition"):
        make([BACKBONE], store, backend="slurm:slurm_partition=nigth")


def test_jobs_make_a_sweep_in_order_with_the_same_bits(store, tmp_path):
    pytest.importorskip("submitit", reason=ABSENT)
    bad, good = teacher(lr=1e9).with_seed(0), importance(teacher()).with_seed(0)
    lost = make(
        [bad, good, teacher().with_seed(1)],
        store,
        2,
        True,
        backend="slurm:cluster=local",
    )
    assert list(lost) == [bad] and lost[bad].startswith("FloatingPointError")
    assert list((store.runs / ".jobs").glob("*_log.out"))
    assert not make([bad], store, 1, backend="slurm:cluster=local") == {}
    for path in store.list_unfinished_folders():
        path.rename(tmp_path / "failed")
    equal_to_a_serial_sweep(store, [good, teacher().with_seed(1)], tmp_path)


def test_a_killed_job_is_told_and_a_preempted_one_is_submitted_as_it_was(store):
    pytest.importorskip("submitit", reason=ABSENT)
    needs = [Resources()] * 2
    with closing(
        backends.open_executor("slurm:cluster=local", needs, 2, store.runs)
    ) as executor:
        killed = executor.submit(os._exit, 1, resources=Resources())
        made = executor.submit(visible, resources=Resources())
        ended = set()
        while len(ended) < 2:
            ended |= executor.wait_for_any_finished_call()
        assert killed.exception() and made.result()[0] in (None, "")
    again = remote.ResubmittedCall(visible).checkpoint("an argument")
    assert isinstance(again.function, remote.ResubmittedCall) and again.args == (
        "an argument",
    )


CONFIG = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthInfo=socket={at}/munge.socket,cred_expire=5
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000
PartitionName=low Nodes={host} Default=YES PriorityTier=1 State=UP
PartitionName=high Nodes={host} PriorityTier=2 PreemptMode=off State=UP
"""


def ask(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def small_cluster(monkeypatch):
    """A Slurm of this machine alone, without accounting: partitions low and high, of
    two cores."""
    pytest.importorskip("submitit", reason=ABSENT)
    daemons = ["munged", "slurmctld", "slurmd"]
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    if absent := [
        name
        for name in [*daemons, "sbatch", "squeue"]
        if not shutil.which(name, path=path)
    ]:
        pytest.skip(
            f"absent: {', '.join(absent)} (packages slurmd, slurmctld, slurm-client, munge)"
        )
    if os.getuid():
        pytest.skip("slurmd starts as root alone")
    monkeypatch.setenv("PATH", path)
    at, ports = (
        Path(tempfile.mkdtemp(prefix="slurm-")),
        [],
    )  # a short path, as sockets need it
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    at.chmod(0o755)
    for name in ("state", "spool"):
        (at / name).mkdir()
    (at / "key").write_bytes(os.urandom(1024))
    (at / "key").chmod(0o400)
    told = {
        "host": platform.node().partition(".")[0],
        "user": "root",
        "ports": ports,
        "at": at,
    }
    monkeypatch.setenv("SLURM_CONF", str(put(at, "slurm.conf", CONFIG.format(**told))))
    files = {
        "key": "key",
        "socket": "munge.socket",
        "pid": "munged.pid",
        "log": "munged.log",
    }
    words = [
        f"--{name}-file={at}/{file}"
        for name, file in (files | {"seed": "seed"}).items()
    ]
    words = [word.replace("--socket-file", "--socket") for word in words]
    try:
        ask("munged", "--force", *words)
        ask("slurmctld")
        ask("slurmd")
        until(
            lambda: (
                "idle"
                in subprocess.run(["sinfo"], capture_output=True, text=True).stdout
            ),
            60,
        )
        yield at
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], capture_output=True)
        for name in reversed(daemons):
            with suppress(OSError, ValueError):
                pid = int((at / f"{name}.pid").read_text())
                os.kill(pid, signal.SIGTERM)
                until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 20)
        shutil.rmtree(at, ignore_errors=True)


@pytest.mark.slow
def test_a_small_cluster_without_accounting(small_cluster, store, tmp_path, capfd):
    """One job is cancelled, which is told, and one is preempted, which begins again by
    itself; the next command makes what was cancelled. Nothing floods the terminal."""
    assert subprocess.run(
        ["sacct"], capture_output=True
    ).returncode  # there is no accounting
    make([BACKBONE], store, keep_weights=True)
    slow, other = (teacher(rows=1280, epochs=6).with_seed(seed) for seed in (0, 1))
    backend = "slurm:slurm_partition=low,timeout_min=30"
    seen = []

    def disturb():
        for spec in (slow, other):
            until(lambda spec=spec: checkpointed(store, spec) or store.find_run(spec))
        jobs = {}
        for number in ask("squeue", "--noheader", "--format=%A").split():
            (log,) = (store.runs / ".jobs").glob(f"{number}_submitted.pkl")
            jobs[number] = log
        seen.append(len(jobs))
        ask("scancel", min(jobs, key=int))  # the first, which is `slow`
        ask(
            "sbatch",
            "--partition=high",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 5",
        )

    watch = threading.Thread(target=disturb)
    watch.start()
    lost = make(
        [slow, other], store, 2, True, backend=backend, checkpoint_interval_seconds=0.0
    )
    watch.join()
    assert seen == [2] and list(lost) == [slow], lost
    assert "the next command resumes it" in lost[slow] and "ENDED" in lost[slow]
    assert (
        store.find_run_with_state(slow)["state"] == "died"
        and store.find_run(other).status["attempts"] == 2
    )
    assert make([slow, other], store, 2, True, backend=backend) == {}
    assert capfd.readouterr().err.count("\n") <= 3
    equal_to_a_serial_sweep(store, [slow, other], tmp_path)


def test_a_queue_that_does_not_answer_is_told_once(slurm, store, capsys):
    put(slurm, "bin/squeue", "#!/bin/sh\nexit 1\n").chmod(0o755)
    watcher = remote.make_job_watcher()
    for _ in range(3):
        assert not watcher.is_done("7", mode="force")
    assert capsys.readouterr().err.count("\n") == 1
    put(slurm, "bin/squeue", "#!/bin/sh\necho 7\n").chmod(0o755)
    assert not watcher.is_done("7", mode="force") and watcher.is_done("8", mode="force")
