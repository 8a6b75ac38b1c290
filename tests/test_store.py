"""The store: whole or not at all, made once, found again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import finish, stop_at
from filelock import Timeout

from lib.runs import execute, paths
from lib.runs.paths import read_json, write_json
from lib.runs.spec import Spec
from lib.runs.store import Draft, Store, alive, cost, locked
from lib.steps import checkpoint

SPEC = Spec("checkpoint", {"name": "x", "digest": "y"}, seed=0)


def finished(store, spec=SPEC, metrics=None):
    return finish(Draft(store, spec, {}, keep=True), metrics or {"accuracy": 1.0})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def elsewhere(store):
    """A store with the same records and no runs."""
    return Store(store.runs / "empty", store.records)


def test_a_run_is_there_only_when_it_is_whole(store):
    assert store.state(SPEC)["state"] == "missing"
    with locked(store.lock(SPEC)):
        draft = Draft(store, SPEC, {}, keep=True)
        assert store.state(SPEC)["state"] == "running"
    assert store.find(SPEC) is None and store.state(SPEC)["state"] == "died"  # nobody is at it
    run = finish(draft, {"accuracy": 0.5}, {"python": "3"})
    assert store.find(SPEC).metrics == {"accuracy": 0.5} and run.status["state"] == "finished"
    assert not store.part(SPEC).exists()


def with_arrays(store, spec=SPEC, rows=872):
    """A finished run with predictions of two classes, and a history."""
    rng, draft = np.random.default_rng(0), Draft(store, spec, {}, keep=True)
    logits, labels = rng.normal(size=(rows, 2)).astype(np.float32), rng.integers(0, 2, rows)
    draft.save_arrays("predictions", logits=logits, labels=labels, index=np.arange(rows))
    draft.save_arrays("curve", loss=rng.random(20, dtype=np.float32), bits=np.zeros(4, np.uint8))
    (draft.folder / "history.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    draft.log(step=1)
    return finish(draft, {"accuracy": 0.5, "loss": float("nan")}, {"commit": "abc"})


def test_a_record_is_the_run_without_weights_and_events(store):
    run = with_arrays(store)
    (run.folder / "model").mkdir()
    for _ in range(2):  # the second one replaces the first
        store.record(run)
    found = elsewhere(store).find(SPEC)
    left = {"model", "events.jsonl"}
    assert {p.name for p in found.folder.iterdir()} == {p.name for p in run.folder.iterdir()} - left
    for part in ("spec", "status", "env", "name"):
        assert getattr(found, part) == getattr(run, part)
    assert found.metrics["accuracy"] == 0.5 and np.isnan(found.metrics["loss"])
    assert found.lines("events.jsonl") == run.lines("none") == []
    assert found.lines("history.jsonl") == [{"a": 1}, {"b": 2}] == run.lines("history.jsonl")
    for name in ("predictions", "curve"):
        mine, theirs = run.arrays(name), found.arrays(name)
        assert mine.keys() == theirs.keys() and all(mine[k].dtype == theirs[k].dtype for k in mine)
        assert all(np.array_equal(mine[k], theirs[k]) for k in mine)
    with pytest.raises(FileNotFoundError, match="none.safetensors"):
        found.arrays("none")
    assert [r.name for r in store.recorded()] == [SPEC.name] and found.origin == "record"


@pytest.mark.parametrize("name", ["spec.json", "metrics.json", "predictions.safetensors"])
def test_a_flipped_byte_of_a_record_is_found_and_its_file_named(store, name):
    path = store.record(with_arrays(store)) / name
    whole = path.read_bytes()
    for place in np.linspace(12, len(whole) - 12, 40).astype(int):
        torn = bytearray(whole)
        torn[place] ^= 1
        path.write_bytes(bytes(torn))
        with pytest.raises(ValueError, match=f"{name} has another digest"):
            run = store.recorded()[0]
            _ = run.metrics, run.arrays("predictions")
        assert elsewhere(store).find(SPEC) is None


def test_a_folder_is_held_to_its_spec(store, capsys):
    """What is of another Spec is not used."""
    other = SPEC.at(1)
    for spec in (SPEC, other):
        store.record(finished(store, spec, {"accuracy": float(spec.seed)}))
    for root in (store.records, store.runs):
        first, second = root / SPEC.name, root / other.name
        first.rename(root / "aside")
        second.rename(first)
        (root / "aside").rename(second)
    assert store.find(SPEC) is None is store.find(other)
    told = capsys.readouterr().err
    assert told.count("holds the run of another Spec") == 4 and SPEC.name in told


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_what_cannot_be_read_is_left_where_it_is(store, monkeypatch, error):
    run = finished(store)
    with monkeypatch.context() as patch:
        stop_at(patch, Path, "read_bytes", 1, error(5, "Input/output error"))
        with pytest.raises(OSError, match="Input/output error"):
            store.find(SPEC)
    assert run.folder.exists() and store.find(SPEC).metrics == {"accuracy": 1.0}


def test_files_of_a_run_are_readable_for_whom_the_umask_says(store):
    before = os.umask(0o027)
    try:
        folder = with_arrays(store).folder
    finally:
        os.umask(before)
    assert (folder / "predictions.safetensors").stat().st_mode & 0o777 == 0o640


def test_the_roots_are_told_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "a"))
    monkeypatch.setenv("RECORDS_ROOT", str(tmp_path / "b"))
    assert (Store().runs, Store().records) == (tmp_path / "a", tmp_path / "b")
    monkeypatch.delenv("RECORDS_ROOT")
    assert Store().records == paths.DATA / "records"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    stop_at(monkeypatch, os, "replace", 1, OSError(28, "No space left on device"))
    with pytest.raises(OSError):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


HOLD = """
import sys, time
from pathlib import Path
from lib.runs.store import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_excludes_other_processes_and_dies_with_its_owner(tmp_path):
    path = tmp_path / "a.lock"
    words = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Timeout), locked(path, 0.2):
        pass
    assert alive(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not alive(path) and not path.exists()
    path.touch()  # of a process that was killed
    with locked(path):
        assert alive(path)
    assert not path.exists()


def test_a_disk_that_fills_up_is_told_in_one_line_and_resumed(store, monkeypatch):
    stop_at(monkeypatch, checkpoint, "checkpoint", 1, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left on device"):
        execute.execute(SPEC, store)
    assert store.state(SPEC)["state"] == "failed"
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"fine": 1})
    assert execute.execute(SPEC, store).status["attempts"] == 2


def test_a_run_tells_what_it_cost_whatever_ran_beside_it(store):
    run = finished(store)
    assert 0 <= run.status["core_seconds"] <= run.status["seconds"] + 1
    assert cost(run.status) == run.status.pop("core_seconds")
    assert cost(run.status) == run.status["seconds"]  # of a time without core seconds
