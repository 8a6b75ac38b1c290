"""Faults: damaged files, locks that nobody can read, clocks, full disks, kills, absurd parameters.

Each ends in the right files or in one clear line. The counts of `make test-faults` are those of the
tests marked slow; the others are a small share of them.
"""

import json
import random
import shutil
import time

import pytest
from conftest import finetuned, made, same_run, stop_at, untrained

from lib import data, execute, files, store, sweep
from lib.options import Train
from lib.spec import Spec
from lib.store import Draft, Store
from lib.train import loop

KINDS = ("flip", "cut", "delete", "empty")
TRAIN = Train(epochs=2, batch=16, lr=1e-3, max_length=32, dropout=0.1, select="best")
TEACHER = finetuned(
    data.describe("toy", "CoLA", 48, 16), TRAIN, {"start": untrained(hidden=24, ffn=48)}
).at(0)


def damage(path, kind, dice):
    """Damage one file, at a place that `dice` (random.Random) tells."""
    body = bytearray(path.read_bytes())
    if kind == "delete" or not body:
        return path.unlink()
    place = dice.randrange(len(body))
    if kind == "flip":
        body[place] ^= 1 << dice.randrange(8)
    path.write_bytes({"flip": bytes(body), "cut": bytes(body[:place]), "empty": b"{}"}[kind])


def every_file(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store with a fine-tuned run, its input, and weights; and the same of a run that was killed
    at a checkpoint.
    """
    folder = tmp_path_factory.mktemp("faults")
    there, cut = Store(folder / "runs", folder / "none"), Store(folder / "cut", folder / "none")
    made(there, TEACHER)
    shutil.copytree(there.runs, cut.runs)
    shutil.rmtree(cut.runs / TEACHER.name)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, loop, "checkpoint", 4, RuntimeError("stop"))
        with pytest.raises(RuntimeError):
            execute.execute(TEACHER, cut, True, checkpoint_seconds=0.0)
    return there, cut


@pytest.fixture
def copied(whole, tmp_path):
    """f(): a fresh copy of the store of finished runs; f(True): of the one of the killed run."""

    def copy(killed=False):
        folder = tmp_path / str(time.monotonic_ns())
        shutil.copytree(whole[killed].runs, folder)
        return Store(folder, folder / "none")

    return copy


def again(there):
    """The run, after the command that makes what is missing; and that nothing was lost."""
    run = execute.execute(TEACHER, there, keep=True)
    assert not files.wrong(run.folder) and not there.part(TEACHER).exists()
    assert not there.lock(TEACHER).exists()
    return run


# ---- finished runs ----
def test_every_damaged_file_of_a_finished_run_is_found_and_the_run_set_aside(copied, whole, capsys):
    """Each file, each kind of damage: never a number of it."""
    there, dice, count = copied(), random.Random(0), 0
    whole = whole[0].runs / TEACHER.name
    folder = there.runs / TEACHER.name
    for name in every_file(whole):
        for kind in KINDS:
            run = store.Run(folder, "run")
            damage(folder / name, kind, dice)
            weights = name.parts[0] == "model"
            assert there.find(TEACHER, weights=True) is None, (name, kind)
            assert not folder.exists() and there.state(TEACHER)["state"] == "missing"
            aside = list(there.runs.glob(".damaged/*/*"))
            assert len(aside) == 1 and aside[0].parent.name == TEACHER.name.split("/")[0]
            told = capsys.readouterr().err
            assert told.count("\n") == 1 and TEACHER.name in told and "made again" in told
            assert name.name in told or name.name == files.NAME
            if name.suffix == ".json" and not weights and name.name != files.NAME:
                run.__dict__["folder"] = aside[0]
                with pytest.raises((files.Damaged, FileNotFoundError)):
                    getattr(run, name.stem)
            shutil.rmtree(there.runs / ".damaged")
            shutil.copytree(whole, folder)
            store.say.cache_clear()
            count += 1
    assert count >= 40 and there.find(TEACHER, weights=True)


def test_a_run_with_damaged_weights_is_made_again_before_a_child_starts(copied, whole):
    there, first = copied(), whole[0].find(TEACHER)
    (there.runs / TEACHER.name / "model" / "tokenizer.json").unlink()
    assert there.find(TEACHER)  # its numbers are as they were
    child = finetuned(TEACHER.args["data"], TRAIN, {"start": TEACHER}).at(0)
    assert list(sweep.plan([child], there).missing) == [TEACHER, child]
    same_run(made(there, TEACHER), first)
    assert made(there, child)


@pytest.mark.parametrize(
    "name, value, there",
    [
        ("env", {}, True),
        ("status", {"state": "failed"}, False),
        ("status", {"state": "finished", "manifest": True}, False),
        ("metrics", {}, False),
        ("spec", [], False),
    ],
)
def test_a_run_of_earlier_code_counts_where_its_json_is_whole(name, value, there, tmp_path):
    kept, spec = Store(tmp_path, tmp_path / "none"), Spec("count", {}).at(0)
    folder = Draft(kept, spec, {}, keep=False).finish({"layers": 2}, {}).folder
    (folder / files.NAME).unlink()
    (folder / "status.json").write_text('{"state": "finished", "seconds": 1.0}')
    (folder / f"{name}.json").write_text(json.dumps(value))
    assert bool(kept.find(spec)) == there


def test_a_damaged_run_stops_no_command_on_others(copied):
    there = copied()
    other = there.runs / "finetune-000000000000" / "0"
    shutil.copytree(there.runs / TEACHER.name, other)
    for name in ("spec.json", "status.json", "metrics.json"):
        (other / name).write_text("{")
    (there.runs / "distil-000000000000" / "0.part").mkdir(parents=True)
    assert sweep.Clock(there)(TEACHER) > 0 and len(there.folders()) == 3
    assert there.find(TEACHER)


def test_a_kill_between_the_end_of_a_run_and_its_name_costs_nothing(copied, monkeypatch):
    """Whether it is new, or replaces one whose weights were removed."""
    for number in (1, 2):
        there = copied()
        shutil.rmtree(there.runs / TEACHER.name / "model")
        with monkeypatch.context() as patch:
            stop_at(patch, type(there.runs), "rename", number)
            with pytest.raises(KeyboardInterrupt):
                execute.execute(TEACHER, there, keep=True)
        halves = [there.part(TEACHER), there.runs / TEACHER.name]
        assert any(not files.wrong(half) for half in halves if half.exists())
        assert again(there).status["attempts"] == 1  # it was taken up as it was


# ---- unfinished runs ----
def test_damage_to_an_unfinished_run_costs_time_alone(copied, whole):
    """A small share of the damage that the slow test does."""
    names = [name for name in every_file(whole[1].part(TEACHER)) if name.suffix != ".txt"]
    dice = random.Random(1)
    for name in dice.sample(names, 4):
        there = copied(killed=True)
        damage(there.part(TEACHER) / name, dice.choice(KINDS), dice)
        same_run(again(there), whole[0].find(TEACHER))


def test_a_torn_line_of_the_log_is_cut_off(copied, whole):
    there = copied(killed=True)
    with open(there.part(TEACHER) / "events.jsonl", "a") as file:
        file.write('{"step": 99, "curve": {"lo')
    run = again(there)
    same_run(run, whole[0].find(TEACHER))
    assert any(line.get("resumed") for line in run.events()) and run.status["attempts"] == 2
