"""Sweeps: what is missing is made, once, whatever is killed on the way."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from conftest import holder, same_run, small_backbone

from lib import data
from lib.data import models
from lib.runs import sweep
from lib.runs.spec import Spec
from lib.runs.store import Draft, Store, locked
from lib.train.options import Distil, Importance, Numerics, Targets, Train

NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32, clip=1.0, dropout=0.1)
BACKBONE = small_backbone(TRAIN, 40, layers=1, hidden=24, ffn=48)


def teacher(rows=64, **train):
    args = {"data": data.describe("toy", "CoLA", rows, 32), "train": replace(TRAIN, **train)}
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
    return teacher(rows=2000, epochs=50).at(seed)


make = partial(sweep.make, workers=1, progress=False)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def done(store, spec, weights=True):
    draft = Draft(store, spec, {}, keep=True)
    if weights:
        (draft.folder / "model").mkdir()
    return draft.finish({}, {})


def planned(specs, store):
    return [spec.step for spec in sweep.plan(specs, store).missing]


def test_a_plan_holds_the_inputs_of_what_is_missing_in_order_and_once(store):
    first, ranks = teacher().at(0), importance(teacher()).at(0)
    assert planned([ranks], store) == ["pretrain", "finetune", "importance"]
    both = [ranks, Spec("distil", {}, {"teacher": teacher()}).at(0), first]
    assert planned(both, store) == ["pretrain", "finetune", "importance", "distil"]
    done(store, ranks)  # its inputs are not looked at
    assert planned([ranks], store) == []


def test_weights_that_are_gone_are_made_again_only_for_who_needs_them(store):
    first = teacher().at(0)
    done(store, BACKBONE)
    done(store, first, weights=False)
    assert planned([first], store) == []
    again = sweep.plan([first, importance(teacher()).at(0)], store)
    assert [s.step for s in again.missing] == ["finetune", "importance"]
    assert again.missing[first] is True


def test_a_chain_is_made_and_found_again(store):
    start = teacher()
    ghost = {"op": "ghost", "kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3}
    surgery = [{"op": "cut", "heads": 3}, ghost | {"softmax": True, "relu": True}]
    student = Spec("finetune", dict(start.args), {"start": distilled(start, surgery)})
    rows = [{"model": "student", "spec": student.at(0)}, {"model": "plain", "spec": start.at(0)}]
    frame = sweep.collect(rows, store, workers=2, progress=False)
    assert list(frame["state"]) == ["finished"] * 2 and frame["matthews"].between(-1, 1).all()
    assert frame["parameters"][0] < frame["parameters"][1]
    began = [run.status["at"] for run in frame["run"]]
    again = sweep.collect(rows, store, progress=False)
    assert [run.status["at"] for run in again["run"]] == began
    logits = frame["run"][0].arrays("predictions")["logits"]
    assert logits.shape == (4000, 2) and np.isfinite(logits).all()
    assert all(run.model.exists() for run in frame["run"])  # generated tasks' are small


def test_a_failed_run_costs_only_what_needs_it(store):
    bad, good = teacher(lr=1e9), teacher()
    lost = make([importance(bad).at(0), good.at(0)], store)
    assert set(lost) == {bad.at(0), importance(bad).at(0)}
    assert "FloatingPointError" in lost[bad.at(0)]
    assert "could not be made" in lost[importance(bad).at(0)]
    assert store.find(good.at(0)) and store.state(bad.at(0))["state"] == "failed"
    frame = sweep.collect([{"spec": bad.at(0)}], store, on_missing="skip")
    assert frame["state"][0] == "failed" and "FloatingPointError" in frame["error"][0]


def test_the_root_of_what_is_missing_is_named_not_a_dependant(store):
    """Also two inputs away, and by a later page that makes nothing."""
    bad = teacher(lr=1e9)
    top = distilled(bad).at(0)
    wanted = f"needs {bad.at(0).name}, which could not be made: FloatingPointError"
    assert make([top], store)[top].startswith(wanted)
    assert sweep.collect([{"spec": top}], store, on_missing="skip")["error"][0].startswith(wanted)


def test_what_is_absent_is_told_with_its_fix_before_anybody_tried(store, monkeypatch, tmp_path):
    monkeypatch.setattr(models, "roots", lambda: [tmp_path])
    start = Spec("checkpoint", {"name": "all-MiniLM-L6-v2", "digest": "0" * 64}, seed=0)
    spec = replace(teacher(), inputs={"start": start}).at(0)
    found = sweep.collect([{"spec": spec}, {"spec": teacher().at(0)}], store, on_missing="skip")
    assert list(found["state"]) == ["missing", "missing"]
    told, nothing = found["error"]
    assert "no checkpoint 'all-MiniLM-L6-v2'" in told and "make offline-models" in told
    assert nothing == ""


def test_the_bar_keeps_its_end_and_says_that_workers_start(store, monkeypatch):
    class Bar:
        n, drawn = 0.0, []

        def __init__(self, total, desc, **_):
            self.total, self.text = total, desc
            Bar.first, Bar.last = desc, self

        def set_description_str(self, text, refresh):
            self.text = text

        def set_postfix_str(self, text, refresh):
            pass

        def refresh(self):
            self.drawn.append((self.n, self.total, self.text))

        def close(self):
            pass

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    state = Store.state
    monkeypatch.setattr(
        Store, "state", lambda self, spec: state(self, spec) if Bar.drawn else {"state": "missing"}
    )  # no worker
    sweep.make([importance(teacher()).at(0)], store, workers=1)  # is quicker than the first drawing
    shares, totals, texts = zip(*Bar.drawn, strict=True)
    assert set(totals) == {3} and list(shares) == sorted(shares) and Bar.last.n == 3
    assert Bar.first == texts[0] == "starting workers" and Bar.last.text == "3/3 runs"


def make_in_process(spec, runs, records):
    make([spec], Store(runs, records), keep=True, checkpoint_seconds=0.0)


def process(spec, store):
    """A started process that makes a run."""
    spawn = multiprocessing.get_context("spawn")
    made = spawn.Process(target=make_in_process, args=(spec, store.runs, store.records))
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
    return list((store.part(spec) / "resume").glob("step-*"))


def worker_of(store, spec):
    """The process that makes a run, once it has written a checkpoint."""
    return until(lambda: checkpointed(store, spec) and holder(store.lock(spec)))


def test_a_killed_worker_is_told_resumed_and_changes_no_bit(store, tmp_path):
    slow, other = teacher(rows=640, epochs=3).at(0), teacher().at(1)
    make([BACKBONE], store, keep=True)
    killer = threading.Thread(target=lambda: os.kill(worker_of(store, slow), signal.SIGKILL))
    killer.start()
    lost = make([slow, other], store, keep=True, checkpoint_seconds=0.0)
    killer.join()
    assert list(lost) == [slow] and "died" in lost[slow] and store.state(slow)["state"] == "died"
    assert store.find(other)
    assert not make([slow], store, keep=True)
    resumed = store.find(slow)
    assert resumed.status["attempts"] == 2 and any(e.get("resumed") for e in resumed.events())
    whole = Store(tmp_path / "whole", tmp_path / "records")
    make([slow], whole, keep=True)
    assert whole.find(slow).status["attempts"] == 1
    same_run(resumed, whole.find(slow))


def test_two_processes_that_ask_for_the_same_run_make_it_once(store):
    make([BACKBONE], store, keep=True)
    spec = teacher(rows=320).at(0)
    both = [process(spec, store) for _ in range(2)]
    for each in both:
        each.join()
    assert [p.exitcode for p in both] == [0, 0] and store.find(spec).status["attempts"] == 1
    assert len([e for e in store.find(spec).events() if "epoch" in e]) == 1


def test_what_another_process_made_meanwhile_is_not_made_again(store):
    """Not even an input whose weights that one has deleted, as nothing needs them any more."""
    first, ranks = teacher().at(1), importance(teacher(rows=96)).at(0)

    def meanwhile(spec):
        if spec == first:
            done(store, ranks)

    assert not make([first, ranks], store, done=meanwhile)
    assert store.find(ranks) and store.state(teacher(rows=96).at(0))["state"] == "missing"


def test_a_run_that_another_process_is_at_is_left_to_it_while_there_is_other_work(store):
    make([BACKBONE], store, keep=True)
    held, free, seen = teacher().at(0), teacher().at(1), []
    lock = locked(store.lock(held))
    lock.__enter__()

    def made(spec):
        seen.append(spec)
        if spec == free:
            lock.__exit__(None, None, None)

    assert not make([held, free], store, done=made)
    assert seen == [free, held] and store.find(held)


def test_a_killed_parent_leaves_no_worker_behind(store):
    make([BACKBONE], store, keep=True)
    parent = process(long(), store)
    worker = worker_of(store, long())
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    until(lambda: not os.path.exists(f"/proc/{worker}"), 20)
    assert store.state(long())["state"] == "died"


def test_expected_seconds_come_from_like_runs_and_records(store):
    clock = sweep.Clock(store)
    assert clock(teacher().at(0)) is None and clock.about([teacher().at(0)]) == "time unknown"
    clock.note(teacher().at(0), 3.0)
    assert clock(teacher().at(5)) == 3.0 and clock(importance(teacher()).at(0)) is None
    assert clock.about([teacher().at(0), importance(teacher()).at(0)]) == "about 6 s"
    assert clock.about([]) == "about 0 s"
    # scaled by what it does
    assert clock(teacher(rows=128).at(0)) == 6.0 and clock(teacher(epochs=3).at(0)) == 9.0
    other = teacher().args | {"numerics": Numerics("bfloat16", 1)}
    assert clock(Spec("finetune", other, {"start": BACKBONE}).at(0)) is None  # another profile's


@pytest.mark.parametrize("stored", [None, 0.1, 30.0])
def test_the_time_left_is_told_within_a_factor_of_two_after_a_tenth_of_the_runs(store, stored):
    """Whatever the store says of other machines: 40 runs of two steps, on two busy workers."""
    clock, dice = sweep.Clock(store), np.random.default_rng(0)
    specs = [spec.at(seed) for seed in range(20) for spec in (teacher(), importance(teacher()))]
    took = {spec: dice.uniform(2, 4) * (2 if spec.step == "finetune" else 1) for spec in specs}
    clock.stored = {"finetune": {}, "importance": {}}
    for spec in specs[:2] if stored else ():
        key = sweep.likeness(spec.step, spec.args)[1]
        clock.stored[spec.step] = {key: [stored * took[spec] / sweep.rows_seen(spec.args)]}
    for count, spec in enumerate(specs, 1):
        clock.note(spec, took[spec])
        left = {other: 0.0 for other in specs[count:]}
        true, elapsed = sum(took[other] for other in left), sum(map(took.get, specs[:count]))
        if 4 <= count < len(specs):  # each core second takes 1.5 of the clock, on two workers
            told = clock.left(left, 0.75 * elapsed, 2)
            assert 0.5 < told / (0.75 * true) < 2
    assert sweep.Clock(store).left(left or {specs[0]: 0.0}, 1.0, 2) is None


def test_nothing_is_started_after_the_time_and_what_runs_is_stopped(store, monkeypatch):
    monkeypatch.setattr(sweep, "GRACE", 0.0)
    make([BACKBONE], store, keep=True)
    first, other, seen = long(), teacher().at(1), []
    assert make([first], store, until=time.monotonic() - 1) == {}
    assert store.state(first)["state"] == "missing"

    def stop():  # the time is over when the run is at work
        worker_of(store, first)
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 1e6)

    watch, how = threading.Thread(target=stop), {"checkpoint_seconds": 0.0, "done": seen.append}
    watch.start()
    left = make([first, other], store, until=time.monotonic() + 1e5, **how)
    watch.join()
    monkeypatch.undo()
    assert left == {} and seen == [] and store.state(other)["state"] == "missing"
    until(lambda: store.state(first)["state"] != "running")
    assert store.state(first)["state"] == "stopped" and checkpointed(store, first)
