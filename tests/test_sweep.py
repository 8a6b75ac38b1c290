"""Sweeps: what is missing is made, once, whatever is killed on the way."""

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import finish, holder, losses_of, same_run, small_backbone

from lib import data
from lib.cluster import executors, sweep
from lib.core import disk, paths
from lib.core.options import Distil, Importance, Numerics, Targets, Train
from lib.core.rows import Row
from lib.core.spec import Spec, make_spec_from_json
from lib.core.store import RunWriter, Store, count_core_seconds, read_runs_csv
from lib.report.tables import collect_results

NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32, clip=1.0, dropout=0.1)
BACKBONE = small_backbone(TRAIN, 40, layers=1, hidden=24, ffn=48)


def teacher(rows=64, **train):
    args = {
        "data": data.make_data_descriptor("toy", "CoLA", rows, 32),
        "train": replace(TRAIN, **train),
    }
    args |= {"targets": Targets("hard"), "numerics": NUMERICS}
    return Spec("finetune", args, {"start": BACKBONE})


def importance(start, batch=8):
    args = {"data": start.args["data"], "numerics": NUMERICS}
    args |= {"importance": Importance("held_out", batch=batch, max_length=32)}
    return Spec("importance", args, {"teacher": start})


def distilled(start, surgery=None):
    args = {"data": start.args["data"], "train": TRAIN, "numerics": NUMERICS}
    args |= {"surgery": surgery, "distil": Distil(mask=True)}
    return Spec("distil", args, {"teacher": start, "importance": importance(start)})


def long(seed=0):
    """A run that is still at work when a test stops it."""
    return teacher(rows=2000, epochs=50).with_seed(seed)


make = partial(sweep.execute_specs, workers=1)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def done(store, spec, weights=True):
    writer = RunWriter(store, spec, {}, keep_weights=True)
    if weights:
        (writer.folder / "model").mkdir()
        (writer.folder / "model" / "config.json").write_text("{}")
    return finish(writer)


def planned(specs, store):
    return [spec.step for spec in store.plan_missing_runs(specs)]


def test_a_plan_holds_the_inputs_of_what_is_missing_in_order_and_once(store):
    first, ranks = teacher().with_seed(0), importance(teacher()).with_seed(0)
    assert planned([ranks], store) == ["pretrain", "finetune", "importance"]
    both = [ranks, Spec("distil", {}, {"teacher": teacher()}).with_seed(0), first]
    assert planned(both, store) == ["pretrain", "finetune", "importance", "distil"]
    done(store, ranks)  # its inputs are not looked at
    assert planned([ranks], store) == []


def test_weights_that_are_gone_are_made_again_only_for_who_needs_them(store):
    first = teacher().with_seed(0)
    done(store, BACKBONE)
    done(store, first, weights=False)
    assert planned([first], store) == []
    again = store.plan_missing_runs([first, importance(teacher()).with_seed(0)])
    assert [s.step for s in again] == ["finetune", "importance"] and again[
        first
    ] is True


def test_a_chain_is_made_and_found_again(store):
    start = teacher()
    ghost = {"op": "ghost", "kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3}
    surgery = [{"op": "cut", "heads": 3}, ghost | {"softmax": True, "relu": True}]
    student = Spec("finetune", dict(start.args), {"start": distilled(start, surgery)})
    rows = [
        Row(student.with_seed(0), model="student"),
        Row(start.with_seed(0), model="plain"),
    ]
    assert not make([row["spec"] for row in rows], store, workers=2)
    frame = collect_results(rows, store)
    assert (
        list(frame["state"]) == ["finished"] * 2
        and frame["matthews"].between(-1, 1).all()
    )
    assert frame["parameters"][0] < frame["parameters"][1]
    began = [run.status["at"] for run in frame["run"]]
    assert not make([row["spec"] for row in rows], store)
    again = collect_results(rows, store)
    assert [run.status["at"] for run in again["run"]] == began
    logits = frame["run"][0].read_arrays("predictions")["logits"]
    assert logits.shape == (2000, 2) and np.isfinite(logits).all()
    assert all(
        run.model_folder.exists() for run in frame["run"]
    )  # generated tasks' are small


def test_a_failed_run_costs_only_what_needs_it(store):
    bad, good = teacher(lr=1e9), teacher()
    lost = make([importance(bad).with_seed(0), good.with_seed(0)], store)
    assert set(lost) == {bad.with_seed(0), importance(bad).with_seed(0)}
    assert "FloatingPointError" in lost[bad.with_seed(0)]
    assert "could not be made" in lost[importance(bad).with_seed(0)]
    assert (
        store.find_run(good.with_seed(0))
        and store.find_run_with_state(bad.with_seed(0))["state"] == "failed"
    )
    frame = collect_results([Row(bad.with_seed(0))], store)
    assert frame["state"][0] == "failed" and "FloatingPointError" in frame["error"][0]


def test_the_root_of_what_is_missing_is_named_not_a_dependant(store):
    """Also two inputs away, and by a later page that makes nothing."""
    bad = teacher(lr=1e9)
    top = distilled(bad).with_seed(0)
    wanted = (
        f"needs {bad.with_seed(0).name}, which could not be made: FloatingPointError"
    )
    assert make([top], store)[top].startswith(wanted)
    assert collect_results([Row(top)], store)["error"][0].startswith(wanted)


def test_the_bar_keeps_its_end(store, monkeypatch):
    drawn = []

    class ProgressBar(SimpleNamespace):
        def set_description_str(self, text, refresh):
            self.desc = text

        def set_postfix_str(self, text, refresh):
            assert text == "time unknown" or text.endswith(" to go")

        def refresh(self):
            drawn.append((self.n, self.total, self.desc))

        def close(self):
            pass

    monkeypatch.setattr("tqdm.std.tqdm", lambda **told: ProgressBar(n=0.0, **told))
    sweep.execute_specs([importance(teacher()).with_seed(0)], store, workers=1)
    shares, totals, texts = zip(*drawn, strict=True)
    assert set(totals) == {3} and list(shares) == sorted(shares) and shares[-1] == 3
    assert texts[-1] == "3/3 runs" and {*texts} <= {f"{n}/3 runs" for n in range(4)}


def make_in_process(spec, runs, records):
    make(
        [spec], Store(runs, records), keep_weights=True, checkpoint_interval_seconds=0.0
    )


def process(spec, store):
    """A started process that makes a run."""
    about = {"target": make_in_process, "args": (spec, store.runs, store.records)}
    made = executors.make_multiprocessing_context().Process(**about)
    made.start()
    return made


def until(there, seconds=300):  # a loaded machine is slow to checkpoint
    """What `there` gives, once it gives something."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        if found := there():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


def checkpointed(store, spec):
    return list((store.get_unfinished_folder_path(spec) / "resume").glob("step-*"))


def worker_of(store, spec):
    """The process that makes a run, once it has written a checkpoint."""
    return until(
        lambda: checkpointed(store, spec) and holder(store.get_lock_path(spec))
    )


def test_a_killed_worker_is_told_resumed_and_changes_no_bit(store, tmp_path):
    slow, other = teacher(rows=640, epochs=3).with_seed(0), teacher().with_seed(1)
    make([BACKBONE], store, keep_weights=True)
    killer = threading.Thread(
        target=lambda: os.kill(worker_of(store, slow), signal.SIGKILL)
    )
    killer.start()
    lost = make(
        [slow, other], store, keep_weights=True, checkpoint_interval_seconds=0.0
    )
    killer.join()
    assert (
        list(lost) == [slow]
        and "died" in lost[slow]
        and store.find_run_with_state(slow)["state"] == "died"
    )
    assert store.find_run(other)
    assert not make([slow], store, keep_weights=True)
    resumed = store.find_run(slow)
    assert resumed.status["attempts"] == 2 and any(
        e.get("resumed") for e in resumed.read_json_lines("events.jsonl")
    )
    whole = Store(tmp_path / "whole", tmp_path / "records")
    make([slow], whole, keep_weights=True)
    assert whole.find_run(slow).status["attempts"] == 1
    same_run(resumed, whole.find_run(slow))


def test_two_processes_that_ask_for_the_same_run_make_it_once(store):
    make([BACKBONE], store, keep_weights=True)
    spec = teacher(rows=320).with_seed(0)
    both = [process(spec, store) for _ in range(2)]
    for each in both:
        each.join()
    assert [p.exitcode for p in both] == [0, 0] and store.find_run(spec).status[
        "attempts"
    ] == 1
    assert len(losses_of(run := store.find_run(spec))) == run.metrics["steps"]


def test_a_killed_parent_leaves_no_worker_behind(store):
    make([BACKBONE], store, keep_weights=True)
    parent = process(long(), store)
    worker = worker_of(store, long())
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    until(lambda: not os.path.exists(f"/proc/{worker}"), 20)
    assert store.find_run_with_state(long())["state"] == "died"


def noted(clock, spec, seconds):
    clock.add_finished_run(spec, seconds)


def test_expected_seconds_are_the_median_of_runs_of_the_kind(store):
    clock = sweep.TimeForecast(store)
    one = teacher().with_seed(0)
    ranks = importance(teacher()).with_seed(0)
    assert (
        clock.describe_expected_time([one]) == "time unknown"
        and clock.describe_expected_time([]) == "about 0 s of a core"
    )
    for seconds in (3.0, 2.0, 40.0):
        noted(clock, one, seconds)
    assert (
        clock.describe_expected_time([teacher(rows=96).with_seed(5)])
        == "about 3 s of a core"
        and clock.forecast_run_core_seconds(ranks) is None
    )
    assert clock.describe_expected_time([one, ranks]) == "about 6 s of a core"
    two = [one, teacher(rows=96).with_seed(5)]
    assert clock.describe_expected_time(two, 2) == "about 3 s on 2 workers"
    assert (
        clock.describe_expected_time([one, ranks, ranks.with_seed(1)]) == "time unknown"
    )  # of most nothing is known
    other = teacher().args | {"numerics": Numerics("bfloat16", 1)}
    assert (
        clock.forecast_run_core_seconds(
            Spec("finetune", other, {"start": BACKBONE}).with_seed(0)
        )
        is None
    )
    done(store, one)
    assert sweep.TimeForecast(store).forecast_run_core_seconds(
        one.with_seed(3)
    ) == count_core_seconds(store.find_run(one).status)


def test_runs_of_this_machine_are_read_before_many_records(store, monkeypatch):
    own = SimpleNamespace(
        origin="run", folder=done(store, teacher().with_seed(0)).folder
    )
    many = [SimpleNamespace(origin="record", folder=store.runs)] * 301
    monkeypatch.setattr(store, "iterate_finished_runs", lambda _: iter([*many, own]))
    spec = teacher().with_seed(7)
    assert sweep.TimeForecast(store).forecast_run_core_seconds(spec) is not None


def test_a_chain_keeps_one_worker_busy_alone():
    """A teacher of 5 s, then four students of 3 s on two workers: 5 + 6."""
    first = teacher().with_seed(0)
    students = [distilled(first, [{"op": "cut", "heads": n}]) for n in (1, 2, 3, 4)]
    todo = [first, *(student.with_seed(0) for student in students)]
    assert sweep.estimate_schedule_seconds(todo, [5, 3, 3, 3, 3], 2) == 11
    assert sweep.estimate_schedule_seconds(todo, [5, 3, 3, 3, 3], 1) == 17
    assert (
        sweep.estimate_schedule_seconds(todo[:1], [5], 4) == 5
        and sweep.estimate_schedule_seconds([], [], 2) == 0
    )


def test_work_scales_what_other_runs_took_and_stands_alone_before_any(store):
    def rows_read(spec, metrics):
        return spec.args["data"]["rows"] * metrics.get("mean_tokens", 10)

    clock, many = sweep.TimeForecast(store, rows_read), teacher(rows=128).with_seed(1)
    assert clock.forecast_run_core_seconds(many) == 1280
    clock.add_finished_run(teacher(rows=64), 32.0, "record", {"mean_tokens": 5})
    # A tenth of a second for a row and token.
    assert clock.forecast_run_core_seconds(many) == 128
    # This machine takes twice as long.
    clock.add_finished_run(teacher(rows=256), 512.0)
    assert (
        clock.slowdown_against_recorded_runs == 2
        and clock.forecast_run_core_seconds(many) == 256
    )


def test_the_time_left_follows_the_pace_of_this_machine(store):
    """Whatever records say of other machines: 40 runs of two steps, on two busy
    workers."""
    dice = np.random.default_rng(0)
    specs = [
        spec.with_seed(seed)
        for seed in range(20)
        for spec in (teacher(), importance(teacher()))
    ]
    took = [
        dice.uniform(2, 4) * (2 if spec.step == "finetune" else 1) for spec in specs
    ]
    bar = sweep.ProgressBar(specs, sweep.TimeForecast(store), SimpleNamespace(slots=2))
    assert bar.estimate_seconds_left([0.0] * 40) is None
    for spec, seconds in zip(specs[:2], took, strict=False):
        bar.clock.add_finished_run(spec, 30 * seconds, "record")
    # Before any run has ended, it is the estimate of the plan.
    (about,) = {bar.clock.describe_expected_time(specs, 2)}
    assert (
        about
        == f"about {sweep.format_seconds(bar.estimate_seconds_left([0.0] * 40))} on 2 workers"
    )
    # Each core second takes 1.5 of the clock.
    for count, (spec, seconds) in enumerate(zip(specs, took, strict=True), 1):
        bar.add_finished_run(spec, seconds, 1.5 * seconds)
        left = bar.estimate_seconds_left([1.0] * count + [0.0] * (40 - count))
        if 8 <= count < 38:
            assert 1 / 1.5 < left / (0.75 * sum(took[count:])) < 1.5


def test_the_time_left_expects_that_what_slows_the_first_runs_ends(store):
    """The first 20 of 40 runs take 2.4 times their time, as pages are made beside
    them."""
    specs = [teacher().with_seed(seed) for seed in range(40)]
    bar = sweep.ProgressBar(specs, sweep.TimeForecast(store), SimpleNamespace(slots=2))
    noted(bar.clock, specs[0], 10.0)
    walls = [24.0] * 20 + [10.0] * 20
    for count, (spec, wall) in enumerate(zip(specs, walls, strict=True), 1):
        bar.add_finished_run(spec, 10.0, wall)
        left = bar.estimate_seconds_left([1.0] * count + [0.0] * (40 - count))
        if 4 <= count < 40:
            assert 0.5 < left / sum(walls[count:][::2]) < 2


def test_no_first_seconds_decide_a_forecast(store):
    """A run of 0.1 core seconds waited for the workers to start."""
    specs = [teacher().with_seed(seed) for seed in range(12)]
    bar = sweep.ProgressBar(specs, sweep.TimeForecast(store), SimpleNamespace(slots=2))
    bar.clock.add_finished_run(specs[0], 100.0, "record")
    plan = bar.estimate_seconds_left([0.0] * 12)
    bar.add_finished_run(importance(teacher()), 0.1, 100.0)
    assert plan == 600 and plan < bar.estimate_seconds_left([0.0] * 12) < 1.5 * plan
    # An unfinished run on a busy machine counts, by what it has done.
    slow = {"seconds": 600.0, "core_seconds": 60.0}
    assert 1.5 * plan < bar.estimate_seconds_left([0.6] + [0.0] * 11, [slow]) < 3 * plan


def replay(runs, clock, slots=2):
    """Yield (share of the work that is done, forecast, seconds that are left) at the
    end of each run, of runs on some workers.

    runs: {Spec: (core seconds, seconds of the clock)}."""
    bar = sweep.ProgressBar([*runs], clock, SimpleNamespace(slots=slots))
    now, busy, waiting, ended, points = 0.0, [], [*runs], [], []
    while busy or waiting:
        while waiting and len(busy) < slots:
            spec = waiting.pop(0)
            busy.append((now + runs[spec][1], spec))
        now, spec = min(busy, key=lambda pair: pair[0])
        busy.remove((now, spec))
        ended.append(spec)
        bar.add_finished_run(spec, *runs[spec])
        shares = dict.fromkeys(ended, 1.0)
        shares |= {other: 1 - (end - now) / runs[other][1] for end, other in busy}
        made = sum(share * runs[spec][0] for spec, share in shares.items())
        left = bar.estimate_seconds_left([shares.get(spec, 0.0) for spec in runs])
        points.append((made, left, now))
    for made, left, at in points:
        yield made / points[-1][0], left, now - at


@pytest.mark.papers
@pytest.mark.parametrize("load, draw", [(1.0, 0), (1.0, 1), (1.5, 2), (1.5, 3)])
def test_recorded_timings_are_forecast_within_a_factor_of_1_5(store, load, draw):
    """Seeds 11 and 12 of page 91 by the records of seed 10, from a fifth of the work
    on."""
    records = Store(store.runs, paths.records_root())
    names = {
        line["run"]: records.records / line["run"]
        for line in read_runs_csv()
        if line["page"] == "91_frontier" and line["profile"] == "mini"
    }
    clock, runs = sweep.TimeForecast(store), {}
    for folder in filter(Path.exists, names.values()):
        status = disk.read_json(folder / "status.json")
        spec = make_spec_from_json(disk.read_json(folder / "spec.json"))
        took = status.get("core_seconds", 0)
        if took and spec.seed == 10:
            clock.add_finished_run(spec, took, "record")
        elif took:
            runs[spec] = 1.7 * took, 1.7 * load * took  # On a slower machine.
    order = np.random.default_rng(draw).permutation(len(runs))
    runs = {[*runs][i]: [*runs.values()][i] for i in order}
    points = [point for point in replay(runs, clock) if point[0] >= 0.2]
    total = sum(wall for _, wall in runs.values()) / 2
    assert len(points) > 20
    for made, left, rest in points:
        assert 1 / 1.3 < (total - rest + left) / total < 1.3
        # The last runs alone may take twice what others of their kind took.
        assert made > 0.65 or 1 / 1.5 < left / rest < 1.5
