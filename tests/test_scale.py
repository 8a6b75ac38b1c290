"""Figures of large stores and of several workers, printed: `make test-scale`."""

import os
import shutil
import time
from contextlib import closing
from dataclasses import replace
from itertools import product

import pytest
from conftest import finish, same_run
from test_sweep import BACKBONE, importance, teacher

from lib import data
from lib.cluster import executors, sweep
from lib.cluster.executors import estimate_resources
from lib.core import disk, paths
from lib.core.disk import read_json, write_json
from lib.core.spec import Spec
from lib.core.store import RunWriter, Store
from lib.papers import grids

pytestmark = pytest.mark.slow
RUNS, SEEDS, PLAIN = 100_000, 5, teacher().args


def told(line):
    print(f"\n  {line}", end="", flush=True)


def spec(number, seed=0):
    """One of many Specs of one step, each of another learning rate."""
    train = PLAIN["train"] | {"lr": 1e-6 * (number + 1)}
    return Spec("finetune", PLAIN | {"train": train}, {"start": BACKBONE}, seed)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store of RUNS finished runs: RUNS / SEEDS Specs; later seeds are links."""
    root = tmp_path_factory.mktemp("many")
    store = Store(root / "runs", root / "records")
    writer = RunWriter(store, spec(0), {}, keep_weights=False)
    writer.worked += 60
    first = finish(writer, {"accuracy": 0.5, "mean_tokens": 9.0})
    digests = read_json(first.folder / disk.MANIFEST)["files"]
    for number, seed in product(range(RUNS // SEEDS), range(SEEDS)):
        folder = store.runs / spec(number, seed).name
        if not seed and number:
            shutil.copytree(first.folder, folder)
        elif seed:
            shutil.copytree(folder.with_name("0"), folder, copy_function=os.link)
        write_json(folder / "spec.json", spec(number, seed).to_json())
        written = {"spec.json": disk.digest_file(folder / "spec.json")}
        write_json(folder / disk.MANIFEST, {"version": 1, "files": digests | written})
    return store


def test_a_look_up_among_100_000_runs_takes_less_than_10_ms(many):
    wanted = [spec(number, number % SEEDS) for number in range(0, RUNS // SEEDS, 97)]
    slowest = []
    for each in wanted:
        began = time.perf_counter()
        assert many.find_run(each)
        slowest.append(time.perf_counter() - began)
    mean = sum(slowest) / len(slowest)
    told(
        f"look-ups among {RUNS:,} runs: {1e3 * mean:.2f} ms in the mean of {len(wanted)}"
    )
    assert mean < 0.01


def test_a_plan_among_100_000_runs_takes_less_than_10_s(many):
    there = [spec(number, number % SEEDS) for number in range(1000)]
    missing = [spec(number, SEEDS) for number in range(1000)]
    missing += [
        importance(teacher(rows=96)).with_seed(0),
        teacher(epochs=7).with_seed(0),
    ]
    began = time.perf_counter()
    todo = many.plan_missing_runs([*there, *missing])
    expected = sweep.describe_missing_runs(todo, sweep.TimeForecast(many))
    seconds = time.perf_counter() - began
    assert len(todo) == 1004
    told(f"plan of 2,002 Specs among {RUNS:,} runs: {seconds:.1f} s ({expected})")
    assert seconds < 10


def work():
    """Four runs of about half a minute on one core, of equal work."""
    return [teacher(rows=2000, epochs=60).with_seed(seed) for seed in range(4)]


def timed(store, specs, **how):
    """Seconds that a sweep takes once its inputs are there."""
    sweep.execute_specs([BACKBONE], store, keep_weights=True)
    began = time.perf_counter()
    assert sweep.execute_specs(specs, store, **how) == {}
    return time.perf_counter() - began


def test_two_workers_are_nearly_twice_as_fast(tmp_path):
    if paths.count_cores() < 2:
        pytest.skip("two cores are needed")
    stores = [Store(tmp_path / f"{count}", tmp_path / "records") for count in (1, 2)]
    one, two = (timed(store, work(), workers=n) for n, store in enumerate(stores, 1))
    told(f"4 runs: {one:.0f} s by one worker, {two:.0f} s by two")
    for each in work():
        same_run(*(store.find_run(each) for store in stores))
    assert one / two >= 1.5  # the rest is room for what else the machine does


def peak(pid):
    """The most memory that a process has had, in bytes."""
    lines = dict(
        line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line
    )
    return int(lines["VmHWM"].split()[0]) << 10


def taken(store, *specs):
    """Peak memory of a worker that makes Specs one after the other."""
    with closing(executors.Local(1)) as executor:
        for each in specs:
            place = (store.runs, store.records)
            job = (sweep.execute_in_worker, each.to_json(), *place, True, 30.0)
            future = executor.submit(*job)
            assert future.result()[1] == "" and executor.wait_for_any_finished_call()
        return peak(executor.submit(os.getpid).result())


@pytest.mark.parametrize("profile, task", [("toy", "CoLA"), ("mini", "RTE")])
def test_a_worker_takes_about_the_memory_of_its_profile(profile, task, tmp_path):
    """RTE has the longest rows of the tasks at mini. Few rows suffice: a batch
    decides."""
    try:
        spec = grids.teacher_spec(profile, task).with_seed(0)
        source = spec.args["data"]["source"]
        wanted = replace(
            spec,
            args=spec.args | {"data": data.make_data_descriptor(source, task, 512, 64)},
        )
    except FileNotFoundError as error:
        pytest.skip(str(error))
    store = Store(tmp_path / "runs", tmp_path / "records")
    made = list(store.plan_missing_runs([wanted]))
    measured, noted = taken(store, *made), estimate_resources(wanted).memory_bytes
    told(
        f"a worker at {profile}: {measured / 1e9:.2f} GB at its peak, {noted / 1e9:.2f} noted"
    )
    assert measured / 1.2 < noted < 1.2 * measured
