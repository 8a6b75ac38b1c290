"""Faults: damaged files, full disks, kills, absurd parameters.

Each ends in the right files or in one clear line. The counts of `make test-faults` are
those of the tests marked slow; the others are a small share of them."""

import html
import json
import locale
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from conftest import finetuned, made, of_papers, same_run, stop_at, untrained
from filelock import FileLock
from test_efficientbert_search import shrunk

from lib import __main__, data
from lib.claims import evidence, notebook
from lib.cluster import executors, sweep
from lib.core import disk, execute, paths, store
from lib.core.names import Refused
from lib.core.options import Train
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Store
from lib.data import lines, models, own
from lib.papers import grids
from lib.report import builder, site, tables
from lib.train import loop

pytestmark = pytest.mark.usefixtures("few_rows")
KINDS = ("flip", "cut", "delete", "empty")
TRAIN = Train(epochs=2, batch=16, lr=1e-3, max_length=32, dropout=0.1, select="best")
TEACHER = finetuned(
    data.make_data_descriptor("toy", "CoLA", 48, 16),
    TRAIN,
    {"start": untrained(hidden=24, ffn=48)},
).with_seed(0)


@pytest.fixture(autouse=True)
def _said_anew():
    store.print_once.cache_clear()


def damage(path, kind, dice):
    """Damage one file, at a place that `dice` (random.Random) tells."""
    body = bytearray(path.read_bytes())
    if kind == "delete" or not body:
        return path.unlink()
    place = dice.randrange(len(body))
    if kind == "flip":
        body[place] ^= 1 << dice.randrange(8)
    path.write_bytes(
        {"flip": bytes(body), "cut": bytes(body[:place]), "empty": b"{}"}[kind]
    )


def every_file(folder):
    return sorted(
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store with a fine-tuned run, its input, and weights; and the same of a run that
    was killed at a checkpoint."""
    folder = tmp_path_factory.mktemp("faults")
    there = Store(folder / "runs", folder / "none")
    cut = Store(folder / "cut", folder / "none")
    made(there, TEACHER)
    shutil.copytree(there.runs, cut.runs)
    shutil.rmtree(cut.runs / TEACHER.name)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, loop, "write_checkpoint", 4, RuntimeError("stop"))
        with pytest.raises(RuntimeError):
            execute.execute(TEACHER, cut, True, checkpoint_interval_seconds=0.0)
    return there, cut


@pytest.fixture
def copied(whole, tmp_path):
    """f(): a fresh copy of the store of finished runs; f(True): of the one of the
    killed run."""

    def copy(killed=False):
        folder = tmp_path / str(time.monotonic_ns())
        shutil.copytree(whole[killed].runs, folder)
        return Store(folder, folder / "none")

    return copy


def again(there):
    """The run, after the command that makes what is missing; and that nothing was
    lost."""
    run = execute.execute(TEACHER, there, keep_weights=True)
    assert (
        not disk.describe_folder_damage(run.folder)
        and not there.get_unfinished_folder_path(TEACHER).exists()
    )
    assert not there.get_lock_path(TEACHER).exists()
    return run


def test_every_damaged_file_of_a_finished_run_is_found(copied, whole, capsys):
    """Each file, each kind of damage: never a number of it."""
    there, dice, count = copied(), random.Random(0), 0
    whole = whole[0].runs / TEACHER.name
    folder = there.runs / TEACHER.name
    for name in every_file(whole):
        for kind in KINDS:
            run = store.Run(folder, "run")
            damage(folder / name, kind, dice)
            weights = name.parts[0] == "model"
            assert there.find_run(TEACHER, needs_weights=True) is None, (name, kind)
            told = capsys.readouterr().err
            assert told.count("\n") == 1 and TEACHER.name in told
            assert name.name in told or name.name == disk.MANIFEST
            if name.suffix == ".json" and not weights and name.name != disk.MANIFEST:
                with pytest.raises((disk.Damaged, FileNotFoundError)):
                    getattr(run, name.stem)
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
            store.print_once.cache_clear()
            count += 1
    assert count >= 40 and there.find_run(TEACHER, needs_weights=True)


def test_a_run_with_damaged_weights_is_made_again_before_a_child_starts(copied, whole):
    there, first = copied(), whole[0].find_run(TEACHER)
    (there.runs / TEACHER.name / "model" / "tokenizer.json").unlink()
    assert there.find_run(TEACHER)  # its numbers are as they were
    child = finetuned(TEACHER.args["data"], TRAIN, {"start": TEACHER}).with_seed(0)
    assert list(there.plan_missing_runs([child])) == [TEACHER, child]
    same_run(made(there, TEACHER), first)
    assert made(there, child)


def test_a_damaged_run_stops_no_command_on_others(copied):
    there = copied()
    other = there.runs / "finetune-000000000000" / "0"
    shutil.copytree(there.runs / TEACHER.name, other)
    for name in ("spec.json", "status.json", "metrics.json"):
        (other / name).write_text("{")
    (there.runs / "distil-000000000000" / "0.part").mkdir(parents=True)
    assert (
        sweep.TimeForecast(there).forecast_run_core_seconds(TEACHER) > 0
        and len(list(there.iterate_finished_runs())) == 3
    )
    assert there.find_run(TEACHER)


def counts(few, many):
    """A test's share in `make test`, and its count in `make test-faults`."""
    return pytest.mark.parametrize(
        "count", [few, pytest.param(many, marks=pytest.mark.slow)]
    )


def alike(a, b):
    """Asserts that two runs are the same; of a search its history, line by line."""
    if list(b.folder.rglob("*.safetensors")):
        return same_run(a, b)
    one, two = (
        [line["digest"] for line in run.read_json_lines("history.jsonl")]
        for run in (a, b)
    )
    assert one == two and a.metrics["net"] == b.metrics["net"]


def searching():
    """The Spec of a tiny first stage of EfficientBERT's search."""
    with shrunk() as last:
        return last.inputs["before"].inputs["before"].with_seed(1)


def searched(folder, stop=0):
    """A store with a tiny search, or with one that was killed in the step `stop`."""
    there, spec = Store(folder, folder / "none"), searching()
    for parent in spec.input_specs_with_seeds.values():
        made(there, parent)
    with pytest.MonkeyPatch.context() as patch, suppress(RuntimeError):
        if stop:
            stop_at(patch, loop, "make_batch", stop, RuntimeError("stop"))
        execute.execute(spec, there, True, checkpoint_interval_seconds=0.0)
    return there


@counts(4, 100)
def test_damage_costs_time_alone(count, whole, tmp_path):
    """Of a finished run, of its input's weights, of an unfinished run, of a record, and
    of a search that was killed in a candidate: the same bits again."""
    began, dice, found = time.monotonic(), random.Random(count), Counter()
    start = TEACHER.input_specs_with_seeds["start"]
    recorded = tmp_path / "recorded"
    shutil.copytree(whole[1].runs, recorded)
    Store(recorded, recorded / "records").copy_run_to_records(
        whole[0].find_run(TEACHER)
    )
    cases = {  # what: store, Spec, its sound run, the folder that is damaged below the store
        "run": (whole[0].runs, TEACHER, TEACHER.name),
        "unfinished run": (whole[1].runs, TEACHER, f"{TEACHER.name}.part"),
        "input": (whole[1].runs, TEACHER, f"{start.name}/model"),
        "record": (recorded, TEACHER, f"records/{TEACHER.name}"),
    }
    sound = {TEACHER: whole[0].find_run(TEACHER)}
    if count >= 100:
        search = searching()
        searches = [searched(tmp_path / f"search-{n}", n) for n in (0, 9)]
        cases["search"] = (searches[0].runs, search, search.name)
        cases["unfinished search"] = (searches[1].runs, search, f"{search.name}.part")
        sound[search] = searches[0].find_run(search)
    for number in range(count):
        what = list(cases)[number % 4 if number % 9 else number // 9 % len(cases)]
        place, spec, damaged = cases[what]
        shutil.copytree(place, folder := tmp_path / "copy")
        there = Store(folder, folder / "records")
        name, kind = dice.choice(every_file(folder / damaged)), dice.choice(KINDS)
        damage(folder / damaged / name, kind, dice)
        assert what != "record" or there.find_run(spec) is None
        store.print_once.cache_clear()
        run = made(there, spec)
        alike(run, sound[spec])
        assert (
            not disk.describe_folder_damage(run.folder)
            and not there.get_unfinished_folder_path(spec).exists()
        )
        assert not there.get_lock_path(spec).exists()
        found.update([what, kind])
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    print(f"\n{count} damaged files, all made right: {dict(found)} ({seconds:.0f} s)")


def test_a_resumed_run_has_the_log_of_its_checkpoint(copied, whole):
    there = copied(killed=True)
    run, first = again(there), whole[0].find_run(TEACHER)
    same_run(run, first)
    resumed = [
        line for line in run.read_json_lines("events.jsonl") if line.get("resumed")
    ]
    assert len(resumed) == 1 and run.status["attempts"] == 2
    assert [
        line for line in run.read_json_lines("events.jsonl") if "resumed" not in line
    ] == first.read_json_lines("events.jsonl")


def test_a_checkpoint_that_was_lost_costs_the_steps_since_the_one_before(
    copied, whole, capsys
):
    """A loss of power may leave the last one empty; the one before was on the disk."""
    there = copied(killed=True)
    before, last = sorted(
        there.get_unfinished_folder_path(TEACHER).glob("resume/step-*")
    )
    (last / loop.STATE).write_bytes(b"")
    run = again(there)
    same_run(run, whole[0].find_run(TEACHER))
    (line,) = [
        line for line in run.read_json_lines("events.jsonl") if line.get("resumed")
    ]
    assert f"step-{line['step']:08d}" == before.name
    assert f"{last.name}/{loop.STATE} has another digest" in capsys.readouterr().err


def test_what_is_told_as_done_is_on_the_disk_before_it_has_its_name(
    copied, tmp_path, monkeypatch
):
    """Of a run, of its weights, of a checkpoint, of a record: each file, and the
    names."""
    synced, open_files, there = set(), {}, copied()
    shutil.rmtree(there.runs / TEACHER.name)
    opened, sync, replace, rename = os.open, os.fsync, os.replace, Path.rename

    def held(path, *how, **more):
        number = opened(path, *how, **more)
        open_files[number] = os.stat(number).st_ino
        return number

    def moved(source):
        if {"resume", "records"} & {*Path(source).parts} or Path(
            source
        ).suffix == ".part":
            files = [path for path in Path(source).rglob("*") if path.is_file()]
            assert all(path.stat().st_ino in synced for path in files), source
            moves.append(Path(source).name)

    moves = []
    monkeypatch.setattr(os, "open", held)
    monkeypatch.setattr(os, "fsync", lambda n: (synced.add(open_files[n]), sync(n)))
    monkeypatch.setattr(os, "replace", lambda a, b: (moved(a), replace(a, b)))
    monkeypatch.setattr(Path, "rename", lambda a, b: (moved(a), rename(a, b))[1])
    run = execute.execute(TEACHER, there, True, checkpoint_interval_seconds=0.0)
    Store(there.runs, tmp_path / "records").copy_run_to_records(run)
    assert (
        "0.part" in moves
        and "0" in moves
        and any(name[:5] == "step-" for name in moves)
    )
    for folder in (run.folder.parent, tmp_path / "records" / run.folder.parent.name):
        assert folder.stat().st_ino in synced


@contextmanager
def small_disk(folder, kib):
    """A file system of so many KiB at a folder; a test that may not mount one is
    skipped."""
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(words, capture_output=True).returncode
    ):
        pytest.skip("a file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("free", [8, 60, 300])
def test_a_full_disk_is_told_with_its_place_and_its_variable(
    free, whole, tmp_path, monkeypatch
):
    """A real one. With room again the run has the same bits, and nothing is left beside
    it."""
    place, start = tmp_path / "disk", TEACHER.input_specs_with_seeds["start"].name
    there = Store(place, tmp_path / "none")
    monkeypatch.setenv("RUNS_ROOT", str(place))
    used = (
        sum(-(-p.stat().st_size // 4096) for p in (whole[0].runs / start).rglob("*"))
        * 4
    )
    with small_disk(place, used + free):
        shutil.copytree(whole[0].runs / start, place / start)
        with pytest.raises(OSError) as told:
            execute.execute(TEACHER, there, True, checkpoint_interval_seconds=0.0)
        for each in (
            "No space left on device",
            "free some, or set RUNS_ROOT",
            str(place),
        ):
            assert each in str(told.value)
        assert there.find_run(TEACHER) is None and not list(place.rglob("*/.*"))
        state = there.find_run_with_state(TEACHER)["state"]
        assert state in ("failed", "died", "missing")
        assert state != "failed" or "No space left" in there.explain_missing_run(
            TEACHER
        )
        subprocess.run(["mount", "-o", "remount,size=100m", str(place)], check=True)
        same_run(again(there), whole[0].find_run(TEACHER))


def test_errors_of_a_full_disk_are_told_apart_from_others(tmp_path, monkeypatch):
    """torch says the same of a file that was cut: it is a full disk only where one
    is."""
    torch_says = (
        "[enforce fail at inline_container.cc:672] . unexpected pos 301568 vs 301520"
    )
    free = shutil.disk_usage(tmp_path)
    for text, left, full in (
        (torch_says, 0, True),
        (torch_says, 10**9, False),
        ("No space left on device (os error 28)", 10**9, True),
        ("loss nan", 0, False),
    ):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda _, left=left: free._replace(free=left)
        )
        with (
            pytest.raises(OSError if full else RuntimeError),
            disk.raise_full_disk_as_oserror(tmp_path),
        ):
            raise RuntimeError(text)
    with (
        pytest.raises(OSError, match="free some"),
        disk.raise_full_disk_as_oserror(tmp_path),
    ):
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a'")])


def test_a_full_disk_of_pages_or_of_temporary_files_is_told_with_its_variable(
    workbook, tmp_path, monkeypatch, capsys
):
    """Also where an error of the system names no place."""
    place = tmp_path / "disk"

    def fill(args):
        (place / "more").write_bytes(bytes(10**7))

    monkeypatch.setitem(__main__.COMMANDS, "tidy", (fill, ()))
    with small_disk(place, 8):
        monkeypatch.setattr(paths, "FIGURES", place)
        for words in (["tidy"], ["report"], ["report"]):
            assert __main__.main(words) == 2
            told = capsys.readouterr().err.splitlines()[0]
            assert told.startswith("error: ") and str(place) in told
            assert "free some, or set FIGURES_ROOT to another folder" in told
        subprocess.run(["mount", "-o", "remount,size=9m", str(place)], check=True)
        site.write_page_index_of_profile("toy")
        pages = list(place.glob("toy/*.html"))
        assert len(pages) == 3 and all("</html>" in p.read_text() for p in pages)
        assert not list(place.glob("toy/.*"))
        monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        assert __main__.main(["tidy"]) == 2
        assert f"set TMPDIR to another folder: '{place}'" in capsys.readouterr().err


# Every process of a command begins with it.
NOBODY = """
import pwd

def getpwuid(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")

pwd.getpwuid = getpwuid
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["no home", "long TMPDIR"])
def test_pages_and_workers_need_neither_a_home_nor_a_short_tmpdir(how):
    """As in a container whose user has no entry; as on clusters and other systems."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        words = [sys.executable, "-m", "lib", "report", "ghostbert_t07"]
        env = os.environ | {"PYTHONPATH": str(paths.ROOT), "TQDM_DISABLE": "1"}
        env |= {"RUNS_ROOT": f"{root}/runs", "FIGURES_ROOT": f"{root}/figures"}
        env["TMPDIR"] = str(root / ("tmp" if how == "no home" else "x" * 100))
        os.mkdir(env["TMPDIR"])
        if how == "no home":
            (root / "sitecustomize.py").write_text(NOBODY)
            env = {
                k: v
                for k, v in env.items()
                if k not in ("HOME", "USER", "LOGNAME", "LNAME")
            }
            env["PYTHONPATH"] += f":{root}"
        done = subprocess.run(
            words, env=env, cwd=paths.ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "made " in done.stdout and "Traceback" not in done.stderr
        left = ("home-", "kernel-", "pymp-")
        assert not [path for path in root.rglob("*") if path.name.startswith(left)]


def test_a_command_leaves_no_home_and_user_behind(monkeypatch):
    def find_nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    found = []

    def look(args):
        found.append((Path.home().is_dir(), os.environ["USER"]))

    monkeypatch.setattr(pwd, "getpwuid", find_nobody)
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(__main__.COMMANDS, "tidy", (look, ()))
    assert __main__.main(["tidy"]) == 0
    assert found == [(True, str(os.getuid()))]
    assert not {"HOME", "USER"} & set(os.environ)


def test_a_folder_too_long_for_sockets_is_told_with_its_variable(monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + "x" * 100)
    assert paths.find_folder_for_unix_sockets() == "/tmp"
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OSError, match="too long a path for a socket; fix: set TMPDIR"):
        paths.find_folder_for_unix_sockets()


OTHERS = {  # what other code may have left in a checkpoint: f(what it holds)
    "weights": lambda body: body["model"].popitem(),
    "moments": lambda body: body["optimiser"]["param_groups"].append({"params": []}),
    "a name": lambda body: body.pop("best"),
}


def other_json(path, change, *gone):
    told = change(json.loads(path.read_text()))
    path.write_text(
        json.dumps({key: value for key, value in told.items() if key not in gone})
    )


@pytest.mark.parametrize("what", [*OTHERS, "file"])
def test_a_checkpoint_of_other_code_is_refused_in_one_line(what, copied, whole):
    there = copied(killed=True)
    folder = max(there.get_unfinished_folder_path(TEACHER).glob("resume/step-*"))
    path = folder / loop.STATE
    if what == "file":
        path.rename(folder / "state.json")
    else:
        OTHERS[what](body := torch.load(path))
        torch.save(body, path)
    disk.write_manifest(folder)
    with pytest.raises(Refused, match=f"other code wrote .*{folder.name}: delete it"):
        again(there)
    shutil.rmtree(folder)
    same_run(again(there), whole[0].find_run(TEACHER))


def test_a_kill_while_a_record_is_replaced_leaves_no_half_of_it(copied, monkeypatch):
    there = copied()
    there = Store(there.runs, there.runs / "records")
    run = there.find_run(TEACHER)
    there.copy_run_to_records(run)
    for name in ("rmtree", "replace"):
        with monkeypatch.context() as patch:
            stop_at(patch, {"rmtree": shutil, "replace": os}[name], name, 1)
            patch.setattr(
                disk, "remove_path", lambda path: None
            )  # nobody clears up after a kill
            with pytest.raises(KeyboardInterrupt):
                there.copy_run_to_records(run)
        assert [r.name for r in there.list_recorded_runs()] in ([], [TEACHER.name])
        there.copy_run_to_records(run)
        assert [r.name for r in there.list_recorded_runs()] == [TEACHER.name]


def test_a_record_that_another_process_has_made_meanwhile_stays(copied, monkeypatch):
    there = copied()
    there = Store(there.runs, there.runs / "records")
    run = there.find_run(TEACHER)
    there.copy_run_to_records(run)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    there.copy_run_to_records(run)
    assert [r.name for r in there.list_recorded_runs()] == [TEACHER.name]


@pytest.mark.parametrize("error", [OSError(5, "no input"), MemoryError()])
def test_a_checkpoint_that_cannot_be_read_now_is_not_called_bad(
    error, copied, monkeypatch
):
    there = copied(killed=True)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(type(error)):
        again(there)


RUN = """
import signal, sys
from lib import __main__
from lib.cluster import sweep
from lib.core.spec import make_spec_from_json
from lib.core.store import Store
import json

@__main__.register_command("long")
def long(args):
    "a run that is still at work when it is stopped"
    spec = make_spec_from_json(json.load(open(sys.argv[2])))
    sweep.execute_specs([spec], Store(sys.argv[1], sys.argv[1] + "/none"), workers=1)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    sys.exit(__main__.main(["long"]))
"""


STOPS = [[signal.SIGINT], pytest.param([signal.SIGTERM], marks=pytest.mark.slow)]


@pytest.mark.parametrize("signs", STOPS)
def test_a_stopped_command_ends_in_one_line_and_leaves_no_lock(signs, copied, tmp_path):
    there = copied()
    spec = finetuned(
        data.make_data_descriptor("toy", "CoLA", 2000, 16),
        Train(epochs=200, batch=16, lr=1e-3, max_length=32),
        {"start": untrained(hidden=24, ffn=48)},
    ).with_seed(0)
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_json()))
    words = [
        sys.executable,
        str(tmp_path / "run.py"),
        str(there.runs),
        str(tmp_path / "spec.json"),
    ]
    how = {
        "text": True,
        "start_new_session": True,
        "env": os.environ | {"TQDM_DISABLE": "1"},
    }
    command = subprocess.Popen(words, stderr=subprocess.PIPE, **how)
    deadline = time.monotonic() + 200
    while (
        not store.read_run_status(there.get_unfinished_folder_path(spec)).get(
            "progress"
        )
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    for sign in signs:  # Ctrl-C reaches every process of the terminal
        (os.killpg if sign == signal.SIGINT else os.kill)(command.pid, sign)
    told = command.communicate(timeout=100)[1]
    assert told == "stopped; the same command goes on from the last checkpoints\n"
    assert (
        command.returncode == 130
        and there.find_run_with_state(spec)["state"] == "stopped"
    )
    assert not there.get_lock_path(spec).exists()


@pytest.mark.papers("ghostbert")
@counts(1, 6)
def test_a_signal_ends_a_command_in_one_line_at_any_moment(count, tmp_path):
    """Also while servers and workers import what they need, and when every process gets
    it."""
    dice, env = random.Random(count), os.environ | {"TQDM_DISABLE": "1"}
    code = "import signal as s, sys; s.signal(s.SIGINT, s.default_int_handler)\n"
    code += "from lib.__main__ import main; sys.exit(main(['run', 'ghostbert_t03']))"
    env["PYTHONPATH"] = str(paths.ROOT)
    for number in range(count):
        env |= {
            name: str(tmp_path / f"{name}-{number}")
            for name in ("RUNS_ROOT", "FIGURES_ROOT")
        }
        sign = (signal.SIGINT, signal.SIGTERM)[number % 2]
        words = [sys.executable, "-c", code]
        how = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "cwd": paths.ROOT,
        }
        command = subprocess.Popen(words, env=env, start_new_session=True, **how)
        assert "shows how far it is" in command.stdout.readline()
        time.sleep(dice.uniform(0.5, 6.0))
        os.killpg(command.pid, sign)
        told = command.communicate(timeout=60)[1]
        assert (
            told == "stopped; the same command goes on from the last checkpoints\n"
        ), told
        assert command.returncode == 130


def test_an_idle_worker_that_is_stopped_says_nothing(capfd):
    """One at work lets the run note that it was stopped."""
    for function in (os.getpid, signal.pause):
        executor = executors.Local(1)
        future = executor.submit(function)
        if function is os.getpid:
            executor.wait_for_any_finished_call()
        else:
            time.sleep(1.0)
        (pool,) = executor.idle or executor.running.values()
        (process,) = pool._processes.values()
        os.kill(process.pid, signal.SIGTERM)
        if function is os.getpid:
            # The pool's own thread reads the exit code, and it can be read once.
            pool._executor_manager_thread.join(20)
            assert process.exitcode == 130
        else:
            assert isinstance(future.exception(60), KeyboardInterrupt)
        executor.close()
    assert capfd.readouterr().err == ""


def pause(page, _):
    (page.folder / "begun").touch()
    time.sleep(100)


def test_a_page_at_work_says_nothing_when_its_command_is_stopped(
    workbook, monkeypatch, capfd
):
    monkeypatch.setattr(site, "render_page", pause)
    (path,) = workbook.glob("data_t02*")
    pages = site.Report("toy", {"profile": "toy"}, {path: {}}, {}, Store())
    begun = pages.builders[0].folder / "begun"
    with pytest.raises(KeyboardInterrupt), pages.render_pages_during_runs():
        while not begun.exists():
            time.sleep(0.1)
        raise KeyboardInterrupt
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join()
    assert capfd.readouterr().out == "" and not pages.builders[0].failure_reason


def test_a_run_that_is_noted_outside_of_the_block_starts_no_page(workbook):
    (path,) = workbook.glob("data_t02*")
    made_of = {"name": "a", "digest": "0" * 64}
    runs = [Spec("checkpoint", made_of).with_seed(seed) for seed in (0, 1)]
    grid = {path: {"grid": [Row(run) for run in runs]}}
    pages = site.Report("toy", {"profile": "toy"}, grid, {}, Store())
    pages.mark_run_finished(runs[0])
    with pages.render_pages_during_runs():
        pass
    pages.mark_run_finished(runs[1])
    (page,) = pages.builders
    assert not (page.unfinished_specs or page.failure_reason or page.last_tried_digest)
    pages = site.Report("toy", {"profile": "toy"}, grid, {}, Store())
    for run in runs:
        pages.mark_run_finished(run)
    assert not (
        pages.builders[0].unfinished_specs or pages.builders[0].last_tried_digest
    )


STANDS = """
import lib
from lib import __main__ as command
from lib.cluster import executors
from lib.core import paths
print(paths.ROOT, lib.__file__, command.__file__, lib.rows.__module__, sep="\\n")
"""
WORKS = """
executor = executors.Local(1)
future = executor.submit(paths.data_root)
executor.wait_for_any_finished_call()
print(future.result())
executor.close()
"""


@pytest.mark.parametrize(
    "inside", ["notebooks", pytest.param(".", marks=pytest.mark.slow)]
)
def test_what_stands_in_a_checkout_uses_its_code(inside, tmp_path):
    """Commands, kernels, which stand in its notebooks, and workers, in another's
    environment."""
    other = tmp_path / "other"
    shutil.copytree(
        paths.ROOT / "lib", other / "lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    (other / "notebooks").mkdir()
    env = {k: v for k, v in os.environ.items() if k not in paths.ROOTS}
    env |= {"PYTHONPATH": str(paths.ROOT)}
    how = {"env": env, "cwd": other / inside, "text": True}
    # The first entry of its path is not the folder in which it stands, as in kernels.
    code = STANDS + WORKS * (inside == ".")
    told = subprocess.check_output(
        [sys.executable, "-P", "-c", code], **how
    ).splitlines()
    there = [str(other), f"{other}/lib/__init__.py", f"{other}/lib/__main__.py", "lib"]
    assert told == there + [f"{other}/data"] * (inside == ".")


def test_code_without_a_checkout_is_refused_in_one_line(tmp_path):
    shutil.copytree(paths.ROOT / "lib", tmp_path / "x" / "lib")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "x"), "NOTEBOOKS_ROOT": ""}
    how = {"env": env, "cwd": tmp_path, "text": True, "capture_output": True}
    done = subprocess.run([sys.executable, "-m", "lib", "plan"], **how)
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.startswith("error: no checkout has")
        and done.stderr.count("\n") == 1
    )


BODY = {
    "id": "94_inconsistencies",
    "profile": "toy",
    "differs": ["x"],
    "answer": [],
}
BODY |= {"counted": "none", "files": []}


@pytest.fixture
def workbook(tmp_path, monkeypatch):
    """A folder of notebooks with two of the committed ones, and their digests."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for path in notebook.find_notebooks(["data_t02", "94_inconsistencies"]):
        shutil.copy(path, folder / f"{notebook.make_notebook_id(path)}.ipynb")
    monkeypatch.setattr(paths, "NOTEBOOKS", folder)
    monkeypatch.setattr(paths, "COMMITTED", folder / "committed.json")
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    notebook.rewrite_notebooks_in_committed_form()
    return folder


TITLE = {"metadata": {"tags": ["title"]}, "cell_type": "markdown"}
BROKEN = {  # a notebook's file, of its bytes
    "deleted": None,
    "empty": b"",
    "cut": b'{"cells": [',
    "a list": b"[]",
    "a number": b"5",
    "no cells": b'{"cells": null}',
    "a table of cells": b'{"cells": {}}',
    "not UTF-8": b'{"cells": "\xe9"}',
    "a number for text": json.dumps({"cells": [TITLE | {"source": 5}]}).encode(),
    "no text": json.dumps({"cells": [TITLE | {"source": []}]}).encode(),
    "no metadata": b'{"cells": [{"metadata": null, "source": [], "cell_type": "code"}]}',
    "deep": b"[" * 100_000,
}


@pytest.mark.papers()
@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_notebook_stops_its_page_alone(what, workbook, capsys):
    """A line names it and its fix; the index has the other pages."""
    one, other = sorted(workbook.glob("*.ipynb"))
    one.unlink()
    if BROKEN[what] is not None:
        one.write_bytes(BROKEN[what])
    site.write_page_index_of_profile("toy")
    index = (paths.FIGURES / "toy" / "index.html").read_text()
    name = one.name if what != "deleted" else notebook.find_notebook_path(one.stem).name
    assert index.count("<li data-words=") == 2 and name in index
    assert "not a notebook" in index or "no heading in a cell" in index
    assert __main__.main(["plan"]) == (what != "deleted")
    told = capsys.readouterr()
    assert told.err == "" and other.stem in told.out
    assert (
        what == "deleted"
        or f"cannot   {one.stem}" in told.out
        and "fix: take it" in told.out
    )
    with pytest.raises(
        ValueError, match=f"{one.stem}.* fix: take it from git, or delete it"
    ):
        notebook.read_notebook_title(one)


@pytest.mark.papers("ghostbert")
def test_a_plan_lists_the_unfinished_runs_of_its_notebooks_alone(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path))
    spec = grids.teacher_spec("toy", "CoLA").with_seed(0)
    (needed,) = [
        each for each in Store().plan_missing_runs([spec]) if each.step == spec.step
    ]
    other = needed.with_seed(77)
    for each in (needed, other):
        Store().get_unfinished_folder_path(each).mkdir(parents=True)
    assert __main__.main(["plan", "ghostbert_t03"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in told if line.startswith("died")] == [
        needed.name
    ]


def test_a_cell_of_parameters_that_is_no_code_is_told_with_its_file(workbook, capsys):
    one = sorted(workbook.glob("*.ipynb"))[0]
    body = json.loads(one.read_text())
    for cell in body["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            cell["source"] = ["profile: str = (\n"]
    one.write_text(json.dumps(body))
    assert __main__.main(["plan"]) == 1
    told = capsys.readouterr().out
    assert f"{one.name}, its cell tagged 'parameters': SyntaxError" in told
    page = paths.FIGURES / "toy" / f"{one.stem}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("the page of the standard notebook")
    error = ValueError("its cell tagged 'parameters': SyntaxError")
    site.Report("toy", {}, {}, {one: error}, Store())
    # Where the page of this notebook belongs is not known.
    assert page.read_text() == "the page of the standard notebook"
    assert "SyntaxError" in (page.parent / "index.html").read_text()


@pytest.mark.parametrize(
    "what", ["{", "[]", "5", '{"a": 5}', '{"../x": {"parameters": {}, "cells": ""}}']
)
def test_damaged_digests_of_notebooks_name_no_folder_of_the_reader(
    what, workbook, capsys
):
    paths.COMMITTED.write_text(what)
    for words in (["report"], ["run", "94_inconsistencies"]):
        assert __main__.main(words) == 2
        told = capsys.readouterr().err
        assert "committed.json" in told and "take it from git, or write it with" in told
        assert told.count("\n") == 1 and "folder" not in told
    notebook.rewrite_notebooks_in_committed_form()
    assert notebook.read_committed_notebook_digests()


@pytest.mark.parametrize("place", ["toy", "scratch/94_inconsistencies/toy-by-hand-abc"])
def test_a_page_of_another_version_is_told_as_such(place, workbook, capsys):
    """What another version of the code wrote beside a page stops no command."""
    path = paths.FIGURES / place / "94_inconsistencies.json"
    path.parent.mkdir(parents=True)
    others = [
        {key: BODY[key] for key in BODY if key != gone} for gone in notebook.HOLDS
    ]
    others += [BODY | {key: 5} for key in notebook.HOLDS] + [
        BODY | {"files": [5]},
        {},
        [],
        5,
        "x",
    ]
    for other in others:
        path.write_text(json.dumps(other))
        store.print_once.cache_clear()
        site.write_page_index_of_profile("toy")
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "another version of this code wrote" in told
        assert path.name in told and "makes its page again" in told
    for half in (
        b"",
        b'{"id": ',
        b"\xff",
        b"[" * 100_000,
    ):  # it is being written, or a kill cut it
        path.write_bytes(half)
        site.write_page_index_of_profile("toy")
    path.write_text(json.dumps(BODY))
    site.write_page_index_of_profile("toy")
    assert capsys.readouterr().err == ""
    index = (paths.FIGURES / "toy" / "index.html").read_text()
    assert re.search(r'<a href="[^"]*94_inconsistencies[^"]*"', index)


def test_a_page_with_a_changed_digit_in_any_file_is_made_again(
    workbook, tmp_path, monkeypatch
):
    """In its table, its data, its HTML and what its last cell wrote."""
    monkeypatch.setenv(notebook.BATCH, "")  # A page that is made sets it.
    (path,) = workbook.glob("94_*")
    page = builder.PageBuilder(path, tmp_path / "page", notebook_text=path.read_text())
    page.parameter_values = notebook.check_and_complete_parameter_values(path, {})
    page.folder.mkdir()
    former = [page.folder / f"{path.stem}.former.{end}" for end in ("png", "csv")]
    for place in former:
        place.touch()
    builder.render_page(page, "digest")
    assert [place.exists() for place in former] == [False, True]
    former[1].unlink()
    files = [place for place in page.folder.iterdir() if place.suffix != ".lock"]
    assert {".csv", ".html", ".ipynb", ".json"} <= {place.suffix for place in files}
    for place in files:
        sound = place.read_bytes()
        digits = [n for n, byte in enumerate(sound) if chr(byte).isdigit()]
        for n in (digits[0], digits[len(digits) // 2], digits[-1]):
            digit = b"4" if sound[n : n + 1] != b"4" else b"5"
            place.write_bytes(sound[:n] + digit + sound[n + 1 :])
            assert not builder.is_page_up_to_date(page, "digest"), (place, n)
        place.write_bytes(sound)
        assert builder.is_page_up_to_date(page, "digest")


def test_a_damaged_table_of_settings_is_named(tmp_path):
    for body in (b"[", b"\xff", b"a = 1\na = 2\n"):
        path = tmp_path / f"{len(body)}.toml"
        path.write_bytes(body)
        with pytest.raises(
            disk.Damaged, match=f"{path.name} is damaged .*; fix: take it from git"
        ):
            disk.read_toml(path)


def test_a_damaged_table_is_named(tmp_path):
    path = tmp_path / "plan.csv"
    path.write_text('claim,seeds\nA1,"3, 4"\n\n')
    assert disk.read_csv(path) == [{"claim": "A1", "seeds": "3, 4"}]
    for body in (
        b"",
        b"a,b\n1\n",
        b"a,b\n1,2,3\n",
        b'a,b\n"1,2\n',
        b"a,a\n1,2\n",
        b"\xff",
    ):
        path.write_bytes(body)
        with pytest.raises(disk.Damaged, match=r"plan.csv is damaged .*from git"):
            disk.read_csv(path)


def test_a_pipe_is_waited_for_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    pipe = tmp_path / "x.json"
    os.mkfifo(pipe)
    for read in (
        disk.read_json,
        disk.read_csv,
        disk.read_toml,
        disk.digest_file,
        notebook.read_cell_sources_by_tag,
    ):
        with pytest.raises(Refused, match="x.json.* is no regular file"):
            read(pipe)
    assert notebook.read_notebook_page_json(tmp_path, "x") is None
    note = paths.runs_root() / ".tokens" / "digests" / f"{disk.digest_values('x')}.json"
    note.parent.mkdir(parents=True)
    os.mkfifo(note)
    assert disk.read_disk_cache_or_compute("x", [], lambda: 5) == 5
    (tmp_path / "x.html").symlink_to(pipe)
    assert builder.read_page_html_and_digest(tmp_path / "x.html") == ("", "")


@pytest.mark.parametrize(
    "name",
    ["..", ".", "/", "/etc", "../x", "a/../../b", "a/..", "", "a//b", "a/b/c/d", "a b"],
)
def test_a_data_set_of_the_hub_lies_in_its_folder(name, monkeypatch):
    """It is refused before anything is asked of the hub, or looked for in a folder."""
    monkeypatch.setattr(lines, "download_dataset", lambda _: pytest.fail("asked"))
    with pytest.raises(
        ValueError, match="no data set 'hub:.*: name one as hub:OWNER/NAME"
    ):
        own.infer_task(f"hub:{name}")


def test_a_checkpoint_that_the_hub_does_not_give_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models_root", lambda: tmp_path)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "none"))

    def nothing(name, folder):
        raise OSError("the hub did not give it")

    monkeypatch.setattr(models, "_download_checkpoint", nothing)
    with pytest.raises(OSError, match="did not give"):
        models.fetch_checkpoint("a/b")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_another_process_makes_is_waited_for_and_told(tmp_path, capsys):
    """Then what a kill left of its files is gone, and that of other pages is not."""
    held = threading.Event()

    def hold():
        with FileLock(tmp_path / ".x.lock"):
            held.set()
            time.sleep(1.0)

    (other := threading.Thread(target=hold)).start()
    held.wait()
    for name in (".x.png.abcd1234", ".xy.png.abcd1234"):
        (tmp_path / name).mkdir()
    with builder.hold_page_lock(tmp_path, "x"):
        other.join()
        names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".x.lock", ".xy.png.abcd1234"]
    assert capsys.readouterr().err == "waiting  x: another process is making its page\n"


def test_weights_that_somebody_else_keeps_or_reads_stay(copied, whole):
    """The queue deletes what it saved itself, and not while another run reads it."""
    there, start = copied(), TEACHER.input_specs_with_seeds["start"]
    mine = evidence.DeletableWeights(there)
    assert start not in mine
    mine.add_finished_run(start)
    assert start in evidence.DeletableWeights(
        there
    )  # also after a command that was stopped
    shutil.rmtree(there.runs / start.name)
    made(there, start)  # somebody makes it again, and keeps its weights
    assert start not in mine
    shutil.rmtree(there.runs / TEACHER.name)
    disk.write_json(
        there.get_unfinished_folder_path(TEACHER) / "spec.json", TEACHER.to_json()
    )
    with store.hold_lock(there.get_lock_path(TEACHER)):
        mine.delete_weights_unless_read(start)
        (there.get_unfinished_folder_path(TEACHER) / "spec.json").write_text("{")
        mine.delete_weights_unless_read(start)
        assert there.find_run(start, needs_weights=True)
    mine.delete_weights_unless_read(start)
    assert there.find_run(start) and not there.find_run(start, needs_weights=True)
    same_run(again(there), whole[0].find_run(TEACHER))  # its input is made again


TEXTS = [
    "![x](http://e/p.gif)",
    "[c](javascript:alert(1))",
    "[c]: http://evil",
    "<http://a.b>",
]
TEXTS += [
    "http://auto.link/x",
    "www.auto.link",
    "# head",
    "__init__ _em_ a_b_c",
    "~~s~~",
    "``` x",
]
TEXTS += ["- x", "+ x", "---", "> q", "[a\\](b)", "`[c](x:y)", "[a][b]", "*x* | **y**"]
TEXTS += [
    "<img src=x onerror=alert(1)>",
    "[![a](b)](c)",
    "[a [b]](c)",
    "x\\",
    "``` [a](b) ``",
    "`` [a](b) `",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_from_data_is_shown_as_it_is(text):
    """Names of classes and files, and errors with them: no link, no picture, no
    mark."""
    from nbconvert.filters import markdown2html

    for shape in ("- {}\n", "*{}*\n", "| a |\n| --- |\n| {} |\n"):
        shown = markdown2html(
            shape.format(
                (tables.escape_markdown_line, tables.escape_markdown_cell)[
                    shape[0] == "|"
                ](text)
            )
        )
        told = html.unescape(re.sub("<.*?>", "", shown)).strip()
        assert told.removeprefix("a\n").strip() == " ".join(text.split()), shown
        assert not re.search(r"<(a|img|strong|del|h1|hr|pre|script)\b", shown)
        assert shown.count("<em>") == (shape[0] == "*") and shown.count("<li>") <= 1


def test_code_in_a_text_stays_code():
    """Pages tell commands so."""
    from nbconvert.filters import markdown2html

    told = "not made yet: `python -m lib run x --data 'a_b_ [c](d)'` makes it"
    assert tables.escape_markdown_line(told) == told
    code = "a <b> & *c* &lt;"
    for shape, escape in (
        ("- {}\n", tables.escape_markdown_line),
        ("| a |\n| --- |\n| {} |\n", tables.escape_markdown_cell),
    ):
        shown = markdown2html(shape.format(escape(f"x `{code}` <b>")))
        assert f"x <code>{html.escape(code)}</code> &lt;b&gt;" in shown
    assert tables.escape_markdown_line("`a | b`") == "`a | b`"
    assert tables.escape_markdown_cell("`a | b` | c") == r"`a \| b` \| c"


WRONG = [
    ("ghostbert_t03_pruned_vs_ghost", {"seeds": [0, 0, 0]}, "0 stands in it twice"),
    ("ghostbert_t03_pruned_vs_ghost", {"seeds": [-1]}, "-1 must be from 0 to"),
    ("ghostbert_t03_pruned_vs_ghost", {"seeds": [{}]}, "it must be int"),
    ("ghostbert_t03_pruned_vs_ghost", {"seeds": [True]}, "it must be int"),
    (
        "ghostbert_t03_pruned_vs_ghost",
        {"tasks": ["CoLA", "CoLA"]},
        "'CoLA' stands in it twice",
    ),
    ("ghostbert_t03_pruned_vs_ghost", {"widths": ["3"]}, "it must be int"),
    (
        "ghostbert_t03_pruned_vs_ghost",
        {"widths": "[1,3]"},
        "papermill takes it as -y '{widths",
    ),
    ("ghostbert_t01_glue_dev", {"tasks": ["x"]}, "unknown task of this page: 'x'"),
    (
        "ghostbert_t01_glue_dev",
        {"profile": "mini", "tasks": ["cola"]},
        "did you mean 'CoLA'?",
    ),
    ("ghostbert_t01_glue_dev", {"tasks": ["SQuAD1"]}, "(allowed: CoLA, SST-2, MRPC"),
    ("bermo_t01_probing", {"tasks": ["CoLA"]}, "(allowed: Length, WordContent"),
    ("efficientbert_t04_squad", {"tasks": ["CoLA"]}, "(allowed: SQuAD1, SQuAD2)"),
    ("data_t01_tasks", {"profile": "mini", "tasks": ["x"]}, "unknown task: 'x'"),
    (
        "92_your_task",
        {"profile": "toy", "data": "x.tsv", "length": "64"},
        "it must be int",
    ),
    ("92_your_task", {"profile": "toy", "data": 5}, "it must be str"),
    ("91_frontier", {"budgets": [{}]}, "it must be int"),
    ("91_frontier", {"methods": [{}]}, "it must be str"),
    ("92_your_task", {"cost": "byte"}, "did you mean 'bytes'?"),
    ("92_your_task", {"share": 50}, "50 must be from 0 to 1"),
    ("efficientbert_f06_architectures", {"tokens": -1}, "must be from 1 to"),
    ("efficientbert_f07_attention_maps", {"sentence": 10**12}, "must be from 0 to 3"),
    ("nas_t04_size_sweep", {"turns": -1}, "must be from 0 to"),
    ("nas_s71_digits", {"targets": [float("nan")]}, "must be from 0 to"),
]


@pytest.mark.parametrize("name, values, told", [of_papers(*case) for case in WRONG])
def test_what_cannot_be_is_refused_before_anything_runs(name, values, told):
    with pytest.raises((ValueError, TypeError)) as caught:
        notebook.execute_grid_cell_and_list_rows_by_variable(
            notebook.find_notebook_path(name), values
        )
    assert told in str(caught.value) and name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_told_with_its_variable(
    monkeypatch, tmp_path, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "file")
    assert __main__.main(["report", "94_inconsistencies"]) == 2
    told = capsys.readouterr().err
    assert "set FIGURES_ROOT to another folder" in told and told.count("\n") == 1


def test_a_root_that_is_no_folder_is_told_with_its_variable(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "loop").symlink_to("loop")
    for place in ("/etc/passwd", "/dev/null", str(tmp_path / "loop")):
        monkeypatch.setenv("RECORDS_ROOT", place)
        assert __main__.main(["plan", "94_inconsistencies"]) == 2
        told = capsys.readouterr().err
        assert told == (
            f"error: {place} is no folder; fix: set RECORDS_ROOT to another folder\n"
        )


def test_an_encoding_that_cannot_be_is_told_before_a_file_is_read(monkeypatch, capsys):
    monkeypatch.setattr(locale, "getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    assert __main__.main(["plan"]) == 2
    assert (
        capsys.readouterr().err
        == "error: files are UTF-8; fix: set PYTHONUTF8=1, or a UTF-8 locale\n"
    )


@pytest.mark.parametrize(
    "words", [["plan", "--workers", "-1"], ["evidence", "--workers", "0"]]
)
def test_a_command_takes_no_negative_number(words, capsys):
    with pytest.raises(SystemExit):
        __main__.main(words)
    assert "must be above 0" in capsys.readouterr().err


POOL = [
    0,
    1,
    -1,
    3,
    10**12,
    0.5,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "CoLA",
    "x",
    "3",
    None,
]
POOL += [
    True,
    {},
    [],
    [0],
    [0, 0],
    [-1],
    ["CoLA"],
    ["CoLA", "CoLA"],
    ["x"],
    [3, 1],
    [13],
]
POOL += [
    [0.1, 0.3],
    [1.7],
    [None],
    [[]],
    [True],
    "[1, 3]",
    "<script>",
    "a\nb",
    [10**12],
    "soft",
]


@counts(30, 200)
def test_generated_parameters_are_refused_in_one_line_or_make_a_grid(count):
    """Specs are checked when they are made, so that a grid that is made can be run."""
    dice, found, names = random.Random(count), Counter(), {}
    for path in notebook.find_notebooks():
        if declared := [
            name
            for name in notebook.read_parameter_declarations(path)
            if name != "profile"
        ]:
            names[path] = declared
    for trial in range(count):
        path = dice.choice(list(names))
        values = {name: dice.choice(POOL) for name in dice.sample(names[path], 1)}
        # The first trial has the defaults, which make a grid whatever notebooks exist.
        values = values if trial else {}
        try:
            rows = notebook.execute_grid_cell_and_list_rows_by_variable(path, values)
        except (ValueError, TypeError, FileNotFoundError) as error:
            named = notebook.make_notebook_id(path) in str(error) or isinstance(
                error, FileNotFoundError
            )
            assert named and len(str(error).splitlines()) == 1, (values, error)
            found["refused"] += 1
            continue
        for spec in notebook.list_specs_of_grid_variables(rows):
            assert spec.name and spec.seed >= 0
        found["make a grid"] += 1
    print(f"\n{count} generated parameters of notebooks: {dict(found)}")
    assert found["refused"] and found["make a grid"]


def test_a_picture_pasted_into_a_text_stays(workbook):
    path = workbook / "94_inconsistencies.ipynb"
    book = json.loads(path.read_text())
    picture = {"x.png": {"image/png": "aGVsbG8="}}
    book["cells"][0] |= {"attachments": picture}
    path.write_text(json.dumps(book))
    notebook.rewrite_notebooks_in_committed_form()
    assert json.loads(path.read_text())["cells"][0]["attachments"] == picture


@pytest.mark.parametrize("words", [["plan", "--help"], ["plan", "ghostbert_t03"]])
def test_a_device_that_is_none_is_told_by_its_variable(words):
    """The module reads the variable once, so it takes a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "lib", *words],
        env=os.environ | {"DEVICE": "gpu"},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert "--help" in words or "DEVICE is 'gpu'" in done.stderr
