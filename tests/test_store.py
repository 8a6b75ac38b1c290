"""The store: whole or not at all, made once, found again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lib import execute
from lib.spec import Spec
from lib.store import Draft, Held, Lock, Store, alive, owner, read_json, write_json

SPEC = Spec("checkpoint", {"name": "x", "digest": "y"}, seed=0)


def finished(store, spec=SPEC, metrics=None):
    return Draft(store, spec, {}, keep=True).finish(metrics or {"accuracy": 1.0}, {})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def test_a_run_is_there_only_when_it_is_whole(store):
    draft = Draft(store, SPEC, {}, keep=True)
    assert store.find(SPEC) is None and store.state(SPEC)["state"] == "died"  # nobody holds its lock
    run = draft.finish({"accuracy": 0.5}, {"python": "3"})
    assert store.find(SPEC).metrics == {"accuracy": 0.5} and run.status["state"] == "finished"
    assert not store.part(SPEC).exists()


def test_states(store):
    assert store.state(SPEC)["state"] == "missing"
    with Lock(store.lock(SPEC)):
        Draft(store, SPEC, {}, keep=True)
        assert store.state(SPEC)["state"] == "running"
    assert store.state(SPEC)["state"] == "died"


def test_weights_that_were_removed_count_as_missing_for_those_who_need_them(store):
    finished(store)
    assert store.find(SPEC) and store.find(SPEC, weights=True) is None


def test_records_are_found_unless_ignored(store):
    run = finished(store)
    (run.folder / "model").mkdir()
    record = store.record(run)
    assert not (record / "model").exists() and not (record / "events.jsonl").exists()
    elsewhere = Store(store.runs / "empty", store.records)
    assert elsewhere.find(SPEC).origin == "record"
    assert Store(store.runs / "empty", store.records, fresh=True).find(SPEC) is None


def test_recording_twice_replaces(store):
    run = finished(store)
    store.record(run)
    assert store.record(run).exists() and len(list(store.records.glob("*/*"))) == 1


def test_a_damaged_file_is_named(store):
    run = finished(store)
    (run.folder / "metrics.json").write_text('{"accu')
    with pytest.raises(ValueError, match=r"metrics.json is damaged .* delete its folder"):
        _ = store.find(SPEC).metrics


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


HOLD = "import sys, time; from lib.store import Lock\nwith Lock(sys.argv[1]): print('held', flush=True); time.sleep(60)"


def test_a_lock_excludes_other_processes_and_dies_with_its_owner(tmp_path):
    path = tmp_path / "a.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Held), Lock(path):
        pass
    assert alive(path) and owner(path)["pid"] == process.pid
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not alive(path)
    with Lock(path):
        assert owner(path)["pid"] == os.getpid()
    assert not path.exists()


def test_another_host_with_a_fresh_heartbeat_is_believed(tmp_path):
    path = tmp_path / "a.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with pytest.raises(Held), Lock(path):
        pass
    os.utime(path, (time.time() - 3600,) * 2)
    with Lock(path):
        pass


def test_a_full_disk_stops_before_anything_starts(store, monkeypatch):
    monkeypatch.setattr(execute.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 5 << 20}))
    with pytest.raises(OSError, match="5 MB free under .* set RUNS_ROOT"):
        execute.execute(SPEC, store)
    assert store.state(SPEC)["state"] == "missing"


def test_a_disk_that_fills_up_is_told_in_one_line_and_resumed(store, monkeypatch):
    from lib.steps import checkpoint

    def full(run, **_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(checkpoint, "checkpoint", full)
    with pytest.raises(OSError, match="disk full .* resumes from its last checkpoint"):
        execute.execute(SPEC, store)
    assert store.state(SPEC)["state"] == "failed"
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"fine": 1})
    assert execute.execute(SPEC, store).status["attempts"] == 2
