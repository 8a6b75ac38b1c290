"""The store: whole or not at all, made once, found again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import finish, stop_at
from filelock import Timeout

from lib.core import disk, execute, paths
from lib.core.disk import read_json, write_json
from lib.core.spec import Spec
from lib.core.store import (
    RunWriter,
    Store,
    count_core_seconds,
    hold_lock,
    is_locked,
    print_once,
)
from lib.train.steps import checkpoint

SPEC = Spec("checkpoint", {"name": "x", "digest": "y"}, seed=0)


def finished(store, spec=SPEC, metrics=None):
    return finish(
        RunWriter(store, spec, {}, keep_weights=True), metrics or {"accuracy": 1.0}
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def elsewhere(store):
    """A store with the same records and no runs."""
    return Store(store.runs / "empty", store.records)


def test_a_run_is_there_only_when_it_is_whole(store):
    assert store.find_run_with_state(SPEC)["state"] == "missing"
    with hold_lock(store.get_lock_path(SPEC)):
        writer = RunWriter(store, SPEC, {}, keep_weights=True)
        assert store.find_run_with_state(SPEC)["state"] == "running"
    assert (
        store.find_run(SPEC) is None
        and store.find_run_with_state(SPEC)["state"] == "died"
    )  # nobody is at it
    run = finish(writer, {"accuracy": 0.5}, {"python": "3"})
    assert (
        store.find_run(SPEC).metrics == {"accuracy": 0.5}
        and run.status["state"] == "finished"
    )
    assert not store.get_unfinished_folder_path(SPEC).exists()


def with_arrays(store, spec=SPEC, rows=872):
    """A finished run with predictions of two classes, and a history."""
    rng = np.random.default_rng(0)
    writer = RunWriter(store, spec, {}, keep_weights=True)
    logits = rng.normal(size=(rows, 2)).astype(np.float32)
    labels = rng.integers(0, 2, rows)
    writer.save_arrays(
        "predictions", logits=logits, labels=labels, index=np.arange(rows)
    )
    writer.save_arrays(
        "curve", loss=rng.random(20, dtype=np.float32), bits=np.zeros(4, np.uint8)
    )
    (writer.folder / "history.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    writer.log_step(step=1)
    return finish(writer, {"accuracy": 0.5, "loss": float("nan")}, {"commit": "abc"})


def test_a_record_is_the_run_without_weights_and_events(store):
    run = with_arrays(store)
    (run.folder / "model").mkdir()
    for _ in range(2):  # the second one replaces the first
        store.copy_run_to_records(run)
    found = elsewhere(store).find_run(SPEC)
    left = {"model", "events.jsonl"}
    assert {p.name for p in found.folder.iterdir()} == {
        p.name for p in run.folder.iterdir()
    } - left
    for part in ("spec", "status", "env", "name"):
        assert getattr(found, part) == getattr(run, part)
    assert found.metrics["accuracy"] == 0.5 and np.isnan(found.metrics["loss"])
    assert found.read_json_lines("events.jsonl") == run.read_json_lines("none") == []
    assert (
        found.read_json_lines("history.jsonl")
        == [{"a": 1}, {"b": 2}]
        == run.read_json_lines("history.jsonl")
    )
    for name in ("predictions", "curve"):
        mine, theirs = run.read_arrays(name), found.read_arrays(name)
        assert mine.keys() == theirs.keys() and all(
            mine[k].dtype == theirs[k].dtype for k in mine
        )
        assert all(np.array_equal(mine[k], theirs[k]) for k in mine)
    with pytest.raises(FileNotFoundError, match="none.safetensors"):
        found.read_arrays("none")
    assert [r.name for r in store.list_recorded_runs()] == [
        SPEC.name
    ] and found.origin == "record"


@pytest.mark.parametrize(
    "name", ["spec.json", "metrics.json", "predictions.safetensors"]
)
def test_a_flipped_byte_of_a_record_is_found_and_its_file_named(store, name):
    path = store.copy_run_to_records(with_arrays(store)) / name
    whole = path.read_bytes()
    for place in np.linspace(12, len(whole) - 12, 40).astype(int):
        torn = bytearray(whole)
        torn[place] ^= 1
        path.write_bytes(bytes(torn))
        with pytest.raises(ValueError, match=f"{name} has another digest"):
            run = store.list_recorded_runs()[0]
            _ = run.metrics, run.read_arrays("predictions")
        assert elsewhere(store).find_run(SPEC) is None


def test_a_folder_is_held_to_its_spec(store, capsys):
    """What is of another Spec is not used."""
    other = SPEC.with_seed(1)
    for spec in (SPEC, other):
        store.copy_run_to_records(finished(store, spec, {"accuracy": float(spec.seed)}))
    for root in (store.records, store.runs):
        first, second = root / SPEC.name, root / other.name
        first.rename(root / "aside")
        second.rename(first)
        (root / "aside").rename(second)
    assert store.find_run(SPEC) is None is store.find_run(other)
    told = capsys.readouterr().err
    assert told.count("holds the run of another Spec") == 4 and SPEC.name in told


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_what_cannot_be_read_is_left_where_it_is(store, monkeypatch, error):
    run = finished(store)
    with monkeypatch.context() as patch:
        stop_at(patch, Path, "read_bytes", 1, error(5, "Input/output error"))
        with pytest.raises(OSError, match="Input/output error"):
            store.find_run(SPEC)
    assert run.folder.exists() and store.find_run(SPEC).metrics == {"accuracy": 1.0}


MORE = {  # what may lie in a folder beside what was written: f(folder)
    "a file": lambda folder: (folder / "more.json").write_text("{}"),
    "a folder": lambda folder: (folder / "more").mkdir(),
    "a link": lambda folder: (folder / "more.json").symlink_to(folder / "spec.json"),
    "a link to its content": lambda folder: linked(folder / "metrics.json"),
    "a link to itself": lambda folder: looped(folder / "metrics.json"),
    "a pipe": lambda folder: (
        (folder / "metrics.json").unlink(),
        os.mkfifo(folder / "metrics.json"),
    ),
    "a pipe more": lambda folder: os.mkfifo(folder / "more.json"),
    "a pipe for a manifest": lambda folder: (
        (folder / disk.MANIFEST).unlink(),
        os.mkfifo(folder / disk.MANIFEST),
    ),
    "a folder for a file": lambda folder: (
        (folder / "env.json").unlink(),
        (folder / "env.json").mkdir(),
    ),
    "fewer listed": lambda folder: listed(
        folder, lambda files: files.pop("metrics.json")
    ),
    "none listed": lambda folder: listed(folder, dict.clear),
}


def linked(path):
    path.rename(path.parent.parent / "aside")
    path.symlink_to(path.parent.parent / "aside")


def looped(path):
    path.unlink()
    path.symlink_to(path)


def listed(folder, change):
    told = read_json(folder / disk.MANIFEST)
    change(told["files"])
    write_json(folder / disk.MANIFEST, told)


@pytest.mark.parametrize("what", MORE)
def test_a_manifest_is_the_set_of_regular_files(store, what, monkeypatch):
    """What else lies in a run is damage: the run is not used, and made again."""
    run = finished(store)
    MORE[what](run.folder)
    assert store.find_run(SPEC) is None
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"accuracy": 1.0})
    again = execute.execute(SPEC, store)
    assert store.find_run(SPEC).metrics == {
        "accuracy": 1.0
    } and not disk.describe_folder_damage(again.folder)
    assert not {p.name for p in again.folder.iterdir()} & {"more", "more.json"}


def test_what_a_kill_left_enters_neither_a_run_nor_a_record(store):
    """Names with a dot are not read; a draft, and what is written whole, remove
    them."""
    part = store.get_unfinished_folder_path(SPEC)
    part.mkdir(parents=True)
    (part / ".env.json.4711").write_text("{")
    (part / "model").mkdir()
    (part / "model" / ".weights.x").mkdir()
    run = finished(store)
    assert not list(run.folder.rglob(".*"))
    (run.folder / ".status.json.12").write_text("{")
    assert not list(store.copy_run_to_records(run).rglob(".*")) and store.find_run(SPEC)


def test_a_complete_run_that_a_kill_kept_from_its_name_is_adopted(store, monkeypatch):
    """Its training is not made again; a damaged one is."""
    writer = RunWriter(store, SPEC, {}, keep_weights=True)
    (writer.folder / "model").mkdir()
    (writer.folder / "model" / "config.json").write_text("{}")
    writer.write_final_files({"accuracy": 0.5}, {})
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"accuracy": 1.0})
    assert store.find_run(SPEC) is None
    assert execute.execute(SPEC, store).metrics == {"accuracy": 0.5}
    folder = store.find_run(SPEC).folder
    folder.rename(store.get_unfinished_folder_path(SPEC))
    (store.get_unfinished_folder_path(SPEC) / "metrics.json").write_text("{}")
    assert execute.execute(SPEC, store).metrics == {"accuracy": 1.0}


def test_what_a_kill_left_beside_a_file_is_removed_when_it_is_old(tmp_path):
    """A young one may be at work, also of a process with the same number elsewhere."""
    names = (
        ".x.json.old8char",
        ".x.json.4711",
        ".x.json.young_8c",
        ".x.json.lock",
        ".y.json.1",
    )
    for name in names:
        if name in names[::2][:2]:  # as tempfile.mkdtemp makes them
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text("")
        if name != names[2]:
            os.utime(tmp_path / name, (1, 1))
    with (
        disk.write_atomically(tmp_path / "x.json") as one,
        disk.write_atomically(tmp_path / "x.json") as two,
    ):
        one.write_text("1")
        two.write_text("2")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"x.json", *names[1:]} and (tmp_path / "x.json").read_text() == "1"


@pytest.mark.parametrize("anew", [False, True])
def test_a_run_whose_folder_is_deleted_stops(store, anew):
    """Nothing is written to a folder that was made anew by the next command."""
    writer = RunWriter(store, SPEC, {}, keep_weights=True)
    shutil.rmtree(writer.folder)
    if anew:
        RunWriter(store, SPEC, {}, keep_weights=True)
    for write in (
        lambda: writer.write_status("started"),
        lambda: writer.save_arrays("x", y=np.zeros(1)),
        lambda: writer.write_final_files({}, {}),
    ):
        with pytest.raises(
            FileNotFoundError, match="was deleted while the run was made"
        ):
            write()
    assert writer.folder.exists() == anew and store.find_run(SPEC) is None


def test_a_run_without_one_of_its_parts_is_damaged(store):
    run = finished(store)
    (run.folder / "spec.json").unlink()
    disk.write_manifest(run.folder)
    assert store.find_run(SPEC) is None and SPEC in store.plan_missing_runs([SPEC])


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


ROOTED = """
import json, os, sys
from pathlib import Path
from lib.core import paths
os.chdir("/")  # as kernels stand in another folder
text = json.dumps({"data": 1, "runs": {"5 of 8 runs": "data / runs . figures"}})
hide, roots = paths.hide_local_paths, paths.list_configurable_folders().values()
print(json.dumps([hide(text) == text, [str(p) for p in roots],
                  [os.environ.get(name) for name in paths.ROOTS], hide(sys.argv[1])]))
"""


@pytest.mark.parametrize(
    "root", ["", ".", "data", "runs", "/", "somewhere/runs", "~/runs", "./x/../y"]
)
def test_roots_of_any_kind_are_absolute_and_rewrite_no_text(root, tmp_path):
    """A child, which stands elsewhere, has the same ones; words of a page stay."""
    env = (
        os.environ
        | dict.fromkeys(paths.ROOTS, root)
        | {"HOME": "/", "PYTHONPATH": paths.ROOT}
    )
    words = [sys.executable, "-c", ROOTED, f"{tmp_path}/somewhere/runs"]
    how = {"env": env | {"TMPDIR": str(tmp_path)}, "cwd": tmp_path, "text": True}
    told = json.loads(subprocess.check_output(words, **how))
    same, roots, children, named = told
    assert same and all(Path(place).is_absolute() for place in roots)
    if root:
        assert children == roots == [str(Path(tmp_path, root.replace("~", "")))] * 5
    ends = {"somewhere/runs": "$NOTEBOOKS_ROOT", ".": "$NOTEBOOKS_ROOT/somewhere/runs"}
    assert named == ends.get(root, "$TMPDIR/somewhere/runs")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    stop_at(monkeypatch, os, "replace", 1, OSError(28, "No space left on device"))
    with pytest.raises(OSError):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == [
        "x.json"
    ]


HOLD = """
import sys, time
from pathlib import Path
from lib.core.store import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_excludes_other_processes_and_dies_with_its_owner(tmp_path):
    path = tmp_path / "a.lock"
    words = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Timeout), hold_lock(path, 0.2):
        pass
    assert is_locked(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_locked(path) and not path.exists()
    path.touch()  # of a process that was killed
    with hold_lock(path):
        assert is_locked(path)
    assert not path.exists()


def test_a_run_that_another_process_makes_is_waited_for_and_told(
    store, monkeypatch, capsys
):
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"fine": 1})
    held = threading.Event()

    def hold():
        with hold_lock(store.get_lock_path(SPEC)):
            held.set()
            time.sleep(0.5)

    (other := threading.Thread(target=hold)).start()
    held.wait()
    print_once.cache_clear()
    assert execute.execute(SPEC, store).metrics == {"fine": 1}
    other.join()
    line = f"waiting  {SPEC.name}: another process is making it\n"
    assert capsys.readouterr().err == line


def test_a_disk_that_fills_up_is_told_in_one_line_and_resumed(store, monkeypatch):
    stop_at(
        monkeypatch, checkpoint, "checkpoint", 1, OSError(28, "No space left on device")
    )
    with pytest.raises(OSError, match="No space left on device"):
        execute.execute(SPEC, store)
    assert store.find_run_with_state(SPEC)["state"] == "failed"
    monkeypatch.setattr(checkpoint, "checkpoint", lambda run, **_: {"fine": 1})
    assert execute.execute(SPEC, store).status["attempts"] == 2


def test_a_run_tells_what_it_cost_whatever_ran_beside_it(store):
    run = finished(store)
    assert 0 <= run.status["core_seconds"] <= run.status["seconds"] + 1
    assert count_core_seconds(run.status | {"core_seconds": 0.25}) == 0.25
    run.status.pop("core_seconds")
    assert (
        count_core_seconds(run.status) == run.status["seconds"]
    )  # of a time without core seconds


def test_weights_that_an_attempt_left_half_written_are_not_those_of_the_run(store):
    """Such an attempt met a full disk; the next one need not keep weights."""
    writer = RunWriter(store, SPEC, {}, keep_weights=True)
    (half := writer.folder / "model" / "model.safetensors").parent.mkdir()
    half.write_bytes(b"half")
    RunWriter(store, SPEC, {}, keep_weights=False)
    assert not half.parent.exists()


def test_the_swap_file_of_an_editor_is_no_leftover_of_ours(tmp_path):
    swap, ours = tmp_path / ".notes.md.swp", tmp_path / ".notes.md.abcd1234"
    swap.write_text("not saved yet")
    ours.mkdir()
    for path in (swap, ours):
        os.utime(path, (0, 0))
    disk.write_text_file(tmp_path / "notes.md", "saved")
    assert swap.read_text() == "not saved yet" and not ours.exists()


def test_no_variable_is_named_that_does_not_move_a_folder():
    for name in ("models", "hub", "export"):
        found = paths.find_environment_variable_of_path(paths.DATA / name / "x")
        assert found != "DATA_ROOT"
    assert paths.find_environment_variable_of_path(paths.data_root() / "glue") != ""
