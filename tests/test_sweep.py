"""Sweeps: what is missing is made, once, whatever is killed on the way."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from lib import data, sweep
from lib.data import models
from lib.options import Distil, Importance, MaskedLM, Numerics, Targets, Train
from lib.spec import Spec
from lib.store import Draft, Lock, Store

NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32, clip=1.0, dropout=0.1)
BACKBONE = Spec(
    "pretrain",
    {
        "corpus": {"sentences": 40, "seed": 0},
        "train": replace(TRAIN, batch=20),
        "numerics": NUMERICS,
        "model": {
            "family": "bert",
            "layers": 1,
            "hidden": 24,
            "heads": 12,
            "ffn": 48,
            "init": 0.02,
        },
        "objective": MaskedLM(0.15, 0.8, 0.1),
    },
    seed=0,
)


def teacher(rows=64, **train):
    return Spec(
        "finetune",
        {
            "data": data.describe("toy", "CoLA", rows, 32),
            "train": replace(TRAIN, **train),
            "targets": Targets("hard"),
            "numerics": NUMERICS,
        },
        {"start": BACKBONE},
    )


def importance(start, batch=8):
    return Spec(
        "importance",
        {
            "data": start.args["data"],
            "numerics": NUMERICS,
            "importance": Importance("held_out", batch=batch, max_length=32),
        },
        {"teacher": start},
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def done(store, spec, weights=True):
    draft = Draft(store, spec, {}, keep=True)
    if weights:
        (draft.folder / "model").mkdir()
    return draft.finish({}, {})


def test_a_plan_holds_the_inputs_of_what_is_missing_in_order(store):
    ranks = importance(teacher()).at(0)
    assert [s.step for s in sweep.plan([ranks], store).missing] == [
        "pretrain",
        "finetune",
        "importance",
    ]


def test_inputs_of_a_run_that_is_there_are_not_looked_at(store):
    ranks = importance(teacher()).at(0)
    done(store, ranks)
    assert not sweep.plan([ranks], store).missing


def test_weights_that_are_gone_are_made_again_only_for_who_needs_them(store):
    first = teacher().at(0)
    done(store, BACKBONE)
    done(store, first, weights=False)
    assert not sweep.plan([first], store).missing
    again = sweep.plan([first, importance(teacher()).at(0)], store)
    assert [s.step for s in again.missing] == ["finetune", "importance"] and again.missing[
        first
    ] is True


def test_shared_inputs_are_planned_once(store):
    rows = [
        importance(teacher()).at(0),
        Spec("distil", {}, {"teacher": teacher()}).at(0),
        teacher().at(0),
    ]
    assert [s.step for s in sweep.plan(rows, store).missing] == [
        "pretrain",
        "finetune",
        "importance",
        "distil",
    ]


def test_a_chain_is_made_and_found_again(store):
    start = teacher()
    surgery = [
        {"op": "cut", "heads": 3},
        {
            "op": "ghost",
            "kind": "dwconv",
            "positions": ["o", "ffn2"],
            "kernel": 3,
            "softmax": True,
            "relu": True,
        },
    ]
    distilled = Spec(
        "distil",
        {
            "data": start.args["data"],
            "train": TRAIN,
            "surgery": surgery,
            "numerics": NUMERICS,
            "distil": Distil(mask=True),
        },
        {"teacher": start, "importance": importance(start)},
    )
    student = Spec("finetune", dict(start.args), {"start": distilled})
    rows = [{"model": "student", "spec": student.at(0)}, {"model": "plain", "spec": start.at(0)}]
    frame = sweep.collect(rows, store, workers=2, progress=False)
    assert (
        list(frame["state"]) == ["finished", "finished"] and frame["matthews"].between(-1, 1).all()
    )
    assert frame["parameters"][0] < frame["parameters"][1]
    began = [run.status["at"] for run in frame["run"]]
    again = sweep.collect(rows, store, progress=False)
    assert [run.status["at"] for run in again["run"]] == began
    logits = frame["run"][0].arrays("predictions")["logits"]
    assert logits.shape == (500, 2) and np.isfinite(logits).all()
    assert (
        not frame["run"][0].model.exists() and store.find(start.at(0)).model.exists()
    )  # kept where it is needed


def test_a_failed_run_costs_only_what_needs_it(store):
    bad, good = teacher(lr=1e30), teacher()
    lost = sweep.make([importance(bad).at(0), good.at(0)], store, workers=1, progress=False)
    assert set(lost) == {bad.at(0), importance(bad).at(0)}
    assert (
        "FloatingPointError" in lost[bad.at(0)]
        and "could not be made" in lost[importance(bad).at(0)]
    )
    assert store.find(good.at(0)) and store.state(bad.at(0))["state"] == "failed"
    frame = sweep.collect([{"spec": bad.at(0)}], store, on_missing="skip")
    assert frame["state"][0] == "failed" and "FloatingPointError" in frame["error"][0]


def test_the_root_of_what_is_missing_is_named_not_a_dependant(store):
    """Also two inputs away, and by a later page that makes nothing."""
    bad = teacher(lr=1e30)
    top = Spec(
        "distil",
        {
            "data": bad.args["data"],
            "surgery": None,
            "train": TRAIN,
            "distil": Distil(),
            "numerics": NUMERICS,
        },
        {"teacher": bad, "importance": importance(bad)},
    ).at(0)
    wanted = f"needs {bad.at(0).name}, which could not be made: FloatingPointError"
    assert sweep.make([top], store, workers=1, progress=False)[top].startswith(wanted)
    assert sweep.collect([{"spec": top}], store, on_missing="skip")["error"][0].startswith(wanted)


def test_what_is_not_at_hand_is_told_with_its_fix_before_anybody_tried(
    store, monkeypatch, tmp_path
):
    monkeypatch.setattr(models, "roots", lambda: [tmp_path])
    start = Spec("checkpoint", {"name": "all-MiniLM-L6-v2", "digest": "0" * 64}, seed=0)
    spec = replace(teacher(), inputs={"start": start}).at(0)
    found = sweep.collect([{"spec": spec}, {"spec": teacher().at(0)}], store, on_missing="skip")
    assert list(found["state"]) == ["missing", "missing"]
    assert (
        "no checkpoint 'all-MiniLM-L6-v2'" in found["error"][0]
        and "make offline-models" in found["error"][0]
    )
    assert found["error"][1] == ""


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

    monkeypatch.setattr(sweep, "tqdm", Bar)
    state = Store.state
    monkeypatch.setattr(
        Store, "state", lambda self, spec: state(self, spec) if Bar.drawn else {"state": "missing"}
    )  # no worker
    sweep.make([importance(teacher()).at(0)], store, workers=1)  # is quicker than the first drawing
    shares, totals, texts = zip(*Bar.drawn, strict=True)
    assert set(totals) == {3} and list(shares) == sorted(shares) and Bar.last.n == 3
    assert Bar.first == texts[0] == "starting workers" and Bar.last.text == "3/3 runs"


def make_in_process(spec, runs, records):
    sweep.make(
        [spec], Store(runs, records), workers=1, keep=True, checkpoint_seconds=0.0, progress=False
    )


def worker_of(store, spec):
    """The process that makes a run, once it has written a checkpoint."""
    from lib.store import owner

    deadline = time.time() + 300  # a loaded machine is slow to checkpoint
    while time.time() < deadline:
        who = owner(store.lock(spec))
        if who and list((store.part(spec) / "resume").glob("step-*")):
            return who["pid"]
        time.sleep(0.02)
    raise AssertionError("no checkpoint within five minutes")


def test_a_killed_worker_is_told_resumed_and_changes_no_bit(store, tmp_path):
    long, other = teacher(rows=640, epochs=3).at(0), teacher().at(1)
    sweep.make([BACKBONE], store, keep=True, progress=False)
    killer = threading.Thread(target=lambda: os.kill(worker_of(store, long), signal.SIGKILL))
    killer.start()
    lost = sweep.make(
        [long, other], store, workers=1, keep=True, checkpoint_seconds=0.0, progress=False
    )
    killer.join()
    assert list(lost) == [long] and "died" in lost[long] and store.state(long)["state"] == "died"
    assert store.find(other)
    assert not sweep.make([long], store, workers=1, keep=True, progress=False)
    resumed = store.find(long)
    assert resumed.status["attempts"] == 2 and any(e.get("resumed") for e in resumed.events())
    whole = Store(tmp_path / "whole", tmp_path / "records")
    sweep.make([long], whole, workers=1, keep=True, progress=False)
    assert whole.find(long).status["attempts"] == 1
    first, second = (load_file(s.find(long).model / "model.safetensors") for s in (store, whole))
    assert first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)
    differing = {k for k in resumed.metrics if resumed.metrics[k] != whole.find(long).metrics[k]}
    assert differing <= {"examples_per_second"}


def test_two_processes_that_ask_for_the_same_run_make_it_once(store):
    sweep.make([BACKBONE], store, keep=True, progress=False)
    spec, context = teacher(rows=320).at(0), multiprocessing.get_context("spawn")
    both = [
        context.Process(target=make_in_process, args=(spec, store.runs, store.records))
        for _ in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [p.exitcode for p in both] == [0, 0] and store.find(spec).status["attempts"] == 1
    assert len([e for e in store.find(spec).events() if "epoch" in e]) == 1


def test_what_another_process_made_meanwhile_is_not_made_again(store):
    """Not even an input whose weights that one has deleted, as nothing needs them any more."""
    first, ranks = teacher().at(1), importance(teacher(rows=96)).at(0)

    def meanwhile(spec):
        if spec == first:
            done(store, ranks)

    assert not sweep.make([first, ranks], store, workers=1, progress=False, done=meanwhile)
    assert store.find(ranks) and store.state(teacher(rows=96).at(0))["state"] == "missing"


def test_a_run_that_another_process_is_at_is_left_to_it_while_there_is_other_work(store):
    sweep.make([BACKBONE], store, keep=True, progress=False)
    held, free, seen = teacher().at(0), teacher().at(1), []
    lock = Lock(store.lock(held)).__enter__()

    def made(spec):
        seen.append(spec)
        if spec == free:
            lock.__exit__()

    assert not sweep.make([held, free], store, workers=1, progress=False, done=made)
    assert seen == [free, held] and store.find(held)


def test_a_killed_parent_leaves_no_worker_behind(store):
    sweep.make([BACKBONE], store, keep=True, progress=False)
    spec, context = teacher(rows=2000, epochs=50).at(0), multiprocessing.get_context("spawn")
    parent = context.Process(target=make_in_process, args=(spec, store.runs, store.records))
    parent.start()
    worker = worker_of(store, spec)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    deadline = time.time() + 20
    while os.path.exists(f"/proc/{worker}") and time.time() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{worker}")
    assert store.state(spec)["state"] == "died"


def test_expected_seconds_come_from_like_runs_and_records(store):
    clock = sweep.Clock(store)
    assert clock(teacher().at(0)) is None and clock.total([teacher().at(0)]) == (0, 1)
    clock.note(teacher().at(0), 3.0)
    assert clock(teacher().at(5)) == 3.0 and clock(importance(teacher()).at(0)) is None
    assert clock.total([teacher().at(0), importance(teacher()).at(0)]) == (3.0, 1)
    assert (
        clock(teacher(rows=128).at(0)) == 6.0 and clock(teacher(epochs=3).at(0)) == 9.0
    )  # scaled by what it does
    assert clock(teacher(max_length=64).at(0)) == 6.0  # nothing else is known of its tokens
    other = Spec(
        "finetune", teacher().args | {"numerics": Numerics("bfloat16", 1)}, {"start": BACKBONE}
    ).at(0)
    assert clock(other) is None  # another profile's


def test_tokens_that_were_counted_scale_the_estimate(store):
    """Half the sentence at most is half the tokens on average only where rows are padded."""
    draft = Draft(store, teacher(max_length=32).at(0), {}, keep=False)
    draft.spent = 100.0
    store.record(draft.finish({"mean_tokens": 9.0}, {}))
    clock = sweep.Clock(Store(store.runs / "none", store.records))
    took = clock(teacher(max_length=32).at(1))
    assert clock(teacher(max_length=64).at(0)) == took  # rows have 9 tokens either way
    assert clock(teacher(max_length=64, pad_to=64).at(0)) == pytest.approx(took * 64 / 9)


def test_nothing_is_started_after_the_time_and_what_runs_is_stopped(store, monkeypatch):
    monkeypatch.setattr(sweep, "GRACE", 0.0)
    sweep.make([BACKBONE], store, keep=True, progress=False)
    long, seen = teacher(rows=2000, epochs=50).at(0), []
    assert sweep.make([long], store, workers=1, progress=False, until=time.time() - 1) == {}
    assert store.state(long)["state"] == "missing"

    def stop():  # the time is over when the run is at work
        worker_of(store, long)
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 1e6)

    watch = threading.Thread(target=stop)
    watch.start()
    left = sweep.make(
        [long, teacher().at(1)],
        store,
        workers=1,
        progress=False,
        checkpoint_seconds=0.0,
        until=time.time() + 1e5,
        done=seen.append,
    )
    watch.join()
    monkeypatch.undo()
    assert left == {} and seen == [] and store.state(teacher().at(1))["state"] == "missing"
    deadline = time.time() + 300  # a loaded machine is slow to checkpoint
    while store.state(long)["state"] == "running" and time.time() < deadline:
        time.sleep(0.1)
    assert store.state(long)["state"] == "stopped" and list(
        (store.part(long) / "resume").glob("step-*")
    )
