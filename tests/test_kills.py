"""Kills at random moments, of runs of every kind and of whole reports: all end in the
right files. The counts are those of `make test-faults`."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing import forkserver

import psutil
import pytest
import test_imp
import test_nas_search
import test_report
import torch
from conftest import made
from test_digits_search import NETWORK
from test_digits_search import spec as digits
from test_faults import TEACHER, alike, searching

from lib.core import execute, paths
from lib.core.spec import make_spec_from_json
from lib.core.steps import STEPS
from lib.core.store import Store
from lib.report import builder


def at_work(body, runs):
    """What a process that will be killed does: make a run, with a checkpoint after each
    step."""
    torch.set_num_threads(1)
    execute.execute(
        make_spec_from_json(body),
        Store(runs, runs / "none"),
        True,
        checkpoint_interval_seconds=0.0,
    )


@pytest.fixture(scope="module", autouse=True)
def own_server():
    """The server of this module's processes has other imports than that of workers.

    It finds this file by PYTHONPATH: Python 3.11 hands it no other search path, and
    leaves out in silence what it cannot import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield
    forkserver._forkserver._stop()
    forkserver._forkserver._preload_modules = ["__main__"]


def killed_runs(spec, kills, folder, dice):
    """Kill the making of a run at random moments, again and again, until so many kills
    are done. Returns how many runs came to their end, each with the same bits."""
    context, runs = multiprocessing.get_context("forkserver"), 0
    context.set_forkserver_preload(["test_kills"])  # a process is there at once
    inputs = Store(folder / "inputs", folder / "none")
    inputs.runs.mkdir()
    for parent in spec.input_specs_with_seeds.values():
        made(inputs, parent)

    def begun(there):
        process = context.Process(target=at_work, args=(spec.to_json(), there.runs))
        process.start()
        return process

    def fresh(name):
        shutil.copytree(inputs.runs, folder / name)
        return Store(folder / name, folder / "none")

    weights = STEPS[spec.step].saves_weights
    begun(whole := fresh("whole")).join()
    began = time.monotonic()
    begun(again := fresh("again")).join()
    seconds, whole = time.monotonic() - began, whole.find_run(spec, weights)
    alike(again.find_run(spec), whole)
    while kills:
        there = fresh(f"{spec.step}-{runs}")
        while not there.find_run(spec, weights):
            process = begun(there)
            process.join(dice.uniform(0.0, seconds) if kills else None)
            if process.is_alive():
                process.kill()
                process.join()
                kills -= 1
            else:
                assert process.exitcode == 0
                seconds *= 0.8  # the machine is less busy than when it was measured
        alike(there.find_run(spec), whole)
        assert (
            not list(there.runs.glob("*/*.part"))
            and not there.get_lock_path(spec).exists()
        )
        runs += 1
    return runs


LEARNERS = {
    "fine-tuning": lambda: TEACHER,
    "IMP": lambda: test_imp.chain()[2].with_seed(0),
    "NAS search": lambda: test_nas_search.search(memory=0.9).with_seed(0),
    "digits": lambda: digits(replace(NETWORK, epochs=2)),
    "EfficientBERT search": searching,
}


@pytest.mark.parametrize(
    "name, count",
    [
        ("digits", 2),
        *(pytest.param(name, 12, marks=pytest.mark.slow) for name in LEARNERS),
    ],
)
def test_kills_at_random_moments_change_no_bit(name, count, tmp_path):
    """Each ends a process at once; the next one goes on."""
    began = time.monotonic()
    runs = killed_runs(LEARNERS[name](), count, tmp_path, random.Random(count))
    seconds = time.monotonic() - began
    print(
        f"\n{count} kills in {runs} runs of {name}, the same bits each time ({seconds:.0f} s)"
    )


def relatives(root):
    """Processes that a workbook's commands started, as their environment tells."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("RUNS_ROOT") == str(root / "runs"):
                found.append(process)
    return found


@pytest.mark.slow
def test_a_report_that_is_killed_ends_in_the_right_pages(tmp_path_factory, count=5):
    """The whole command, or one of its workers and kernels, while runs and pages are
    made."""
    tmp_path = tmp_path_factory.mktemp("k")  # A socket's path has at most 107 bytes.
    began, dice, kills, commands = time.monotonic(), random.Random(count), 0, 0
    (tmp_path / "notebooks").mkdir()
    table = "page.show_table(runs[['seed', 'matthews']], 'Scores')"
    for name in ("ghostbert_t98_fine", "bermo_t99_fine"):
        test_report.write(tmp_path / "notebooks", name, table)
    wanted, seconds = None, 60.0

    def begun(root, word):
        env = os.environ | {
            "NOTEBOOKS_ROOT": str(tmp_path / "notebooks"),
            "TMPDIR": str(root),
        }
        places = {
            "FIGURES_ROOT": "figures",
            "RUNS_ROOT": "runs",
            "RECORDS_ROOT": "records",
        }
        env |= {variable: str(root / folder) for variable, folder in places.items()}
        words = [sys.executable, "-m", "lib", word]
        out = open(root / "out", "w")
        options = {"stdout": out, "stderr": out, "cwd": paths.ROOT, "env": env}
        return subprocess.Popen(words, start_new_session=True, **options)

    def tables(root):
        return {
            path.name: path.read_text()
            for path in sorted((root / "figures").rglob("*.csv"))
        }

    def right(root):
        folder = root / "figures" / "toy"
        assert tables(root) == wanted
        assert not list(root.glob("runs/*/*.part")) and not list(
            root.glob("runs/*/*.lock")
        )
        for path in folder.glob("*_fine.html"):
            assert builder.read_page_html_and_digest(path)[1]

    (root := tmp_path / "whole").mkdir()
    assert begun(root, "tidy").wait() == 0
    start = time.monotonic()
    assert begun(root, "run").wait() == 0, (root / "out").read_text()
    wanted, seconds = tables(root), time.monotonic() - start
    right(root)
    while kills < count:
        commands += 1
        (root := tmp_path / f"kills-{commands}").mkdir()
        done = None
        while done != 0:
            command = begun(root, "run")
            with suppress(subprocess.TimeoutExpired):
                done = command.wait(
                    dice.uniform(0.0, seconds) if kills < count else None
                )
                seconds *= 0.8  # the machine is less busy than when it was measured
                continue
            others = [each for each in relatives(root) if each.pid != command.pid]
            with suppress(psutil.NoSuchProcess):
                if others and dice.random() < 0.4:
                    dice.choice(others).kill()
                    command.wait()
                else:
                    os.killpg(command.pid, signal.SIGKILL)
                    command.wait()
            kills += 1
        right(root)
    deadline = time.monotonic() + 60
    while (left := relatives(root)) and time.monotonic() < deadline:
        time.sleep(1)
    assert not left
    seconds = time.monotonic() - began
    print(f"\n{kills} kills in {commands} reports ({seconds:.0f} s)")
