"""Verify tells every damage to records, ledger and figures in one line, and exits 1."""

import gzip
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load, save

from lib import data, paths, record, verify
from lib.__main__ import main
from lib.files import write_json
from lib.measure import metrics
from lib.store import Run, Store

NAME = "finetune-000000000000/10"


@pytest.fixture
def records(tmp_path, monkeypatch):
    """The folder of two sound records, a figure and their ledger, verdicts by a stand-in."""
    run, described = tmp_path / "run", data.describe("toy", "RTE", 40)
    run.mkdir()
    rng = np.random.default_rng(0)
    told = {"labels": rng.integers(0, 2, 30), "index": np.arange(30)}
    told["logits"] = rng.normal(size=(30, 2)).astype(np.float32)
    (run / "predictions.safetensors").write_bytes(save(told))
    scores = metrics.scores(data.task("toy", "RTE"), told["logits"], told["labels"])
    spec = {"step": "finetune", "args": {"data": described}, "inputs": {}, "seed": 10}
    told = {"spec": spec, "status": {"state": "finished", "seconds": 1.0}, "env": {}}
    for name, value in (told | {"metrics": scores | {"tokens": 7}}).items():
        write_json(run / f"{name}.json", value)
    for name in (NAME, "latency-000000000000/10"):
        record.write(Run(run, "run"), tmp_path / "records" / name)
    figures = tmp_path / "figures" / "bench"
    figures.mkdir(parents=True)
    (figures / "speed.csv").write_text("a,b\n1,2\n")
    monkeypatch.setenv("RECORDS_ROOT", str(tmp_path / "records"))
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setitem(verify.PARTS, "verdicts", lambda store: {"G1": "NOT_RUN: not measured"})
    monkeypatch.setitem(verify.PARTS, "found", lambda store: {"Ghosts?": "not measured yet"})
    assert main(["verify", "--write"]) == 0 and main(["verify"]) == 0
    return tmp_path / "records"


def body(records, change, sign=True):
    """Change the body of the record, and sign it again with its digest."""
    file = records / NAME / record.NAME
    told = json.loads(file.read_text())
    change(told)
    if sign:
        told.pop("digest", None)
        told = {"digest": record.digest(told)} | told
    file.write_text(json.dumps(told))


def arrays(records, change):
    """Change the arrays of the record, and sign all of it again."""
    file = records / NAME / record.ARRAYS
    there = load(gzip.decompress(file.read_bytes()))
    change(there)
    packed = gzip.compress(save(there), 9, mtime=0)
    file.write_bytes(packed)
    digest = verify.hashlib.sha256(packed).hexdigest()
    body(records, lambda told: told.update(arrays=digest))


def flipped(there):
    there["predictions.logits"] = there["predictions.logits"][:, ::-1].copy()


def nudged(there):
    """One logit is changed so little that no class changes."""
    there["predictions.logits"][0] *= 1.5


def short(there):
    for name in there:
        there[name] = there[name][:-1]


def ledger(records, change):
    told = json.loads((records / "ledger.json").read_text())
    change(told)
    write_json(records / "ledger.json", told)


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def bit(path):
    there = bytearray(path.read_bytes())
    there[len(there) // 2] ^= 1
    path.write_bytes(there)


DAMAGE = {
    "record cut": lambda at: cut(at / NAME / record.NAME),
    "record empty": lambda at: (at / NAME / record.NAME).write_text(""),
    "record {}": lambda at: (at / NAME / record.NAME).write_text("{}"),
    "record no text": lambda at: (at / NAME / record.NAME).write_bytes(b"\xff\xfe{"),
    "record a list": lambda at: (at / NAME / record.NAME).write_text("[1]"),
    "record gone": lambda at: shutil.rmtree(at / NAME),
    "record unknown": lambda at: shutil.copytree(at / NAME, at / "finetune-000000000001/10"),
    "metric changed": lambda at: body(at, lambda b: b["metrics"].update(accuracy=0.9), False),
    "metric signed": lambda at: body(at, lambda b: b["metrics"].update(accuracy=0.9)),
    "metric nan": lambda at: body(at, lambda b: b["metrics"].update(accuracy=float("nan"))),
    "other metric signed": lambda at: body(at, lambda b: b["metrics"].update(tokens=8)),
    "no metrics": lambda at: body(at, lambda b: b.update(metrics={})),
    "no spec": lambda at: body(at, lambda b: b.pop("spec")),
    "unknown task": lambda at: body(at, lambda b: b["spec"]["args"]["data"].update(task="R")),
    "failed": lambda at: body(at, lambda b: b["status"].update(state="failed")),
    "arrays gone": lambda at: (at / NAME / record.ARRAYS).unlink(),
    "arrays untold": lambda at: body(at, lambda b: b.pop("arrays")),
    "arrays cut": lambda at: cut(at / NAME / record.ARRAYS),
    "arrays bit": lambda at: bit(at / NAME / record.ARRAYS),
    "arrays no gzip": lambda at: (at / NAME / record.ARRAYS).write_bytes(b"none"),
    "no predictions": lambda at: arrays(at, lambda a: (a.clear(), a.update(x=np.ones(1)))),
    "logits flipped": lambda at: arrays(at, flipped),
    "logit nudged": lambda at: arrays(at, nudged),
    "rows missing": lambda at: arrays(at, short),
    "logits nan": lambda at: arrays(at, lambda a: a["predictions.logits"].fill(np.nan)),
    "ledger gone": lambda at: (at / "ledger.json").unlink(),
    "ledger cut": lambda at: cut(at / "ledger.json"),
    "ledger a list": lambda at: (at / "ledger.json").write_text("[]"),
    "ledger a part": lambda at: ledger(at, lambda told: told.pop("figures")),
    "sentence changed": lambda at: ledger(at, lambda told: told["found"].update(A="+9 points")),
    "verdict changed": lambda at: ledger(at, lambda told: told["verdicts"].update(G1="CONFIRMED")),
    "figure changed": lambda at: (at.parent / "figures/bench/speed.csv").write_text("a,b\n1,3\n"),
    "figure gone": lambda at: (at.parent / "figures/bench/speed.csv").unlink(),
}
PLACES = {"ledger": "ledger.json", "sentence": "found: A", "verdict": "G1", "figure": "speed.csv"}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told_in_one_line(records, kind, capsys):
    DAMAGE[kind](records)
    capsys.readouterr()
    assert main(["verify"]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and err == "", out
    assert PLACES.get(kind.split()[0], "finetune-00000000000") in out


def test_a_ledger_is_written_of_sound_records_alone(records, capsys):
    before = (records / "ledger.json").read_text()
    (records / NAME / record.ARRAYS).unlink()
    assert main(["verify", "--write"]) == 1
    assert (records / "ledger.json").read_text() == before


def test_a_run_without_a_score_has_nothing_to_compute_again():
    for args in ({}, {"data": {"kind": "files"}}, {"data": data.describe("toy", "RTE", 40)}):
        run = SimpleNamespace(spec={"args": args}, metrics={"tokens": 3})
        assert verify.recomputed(run) == {}


@pytest.mark.slow
def test_the_committed_ledger_is_that_of_the_committed_records():
    assert verify.wrong(Store(records=paths.DATA / "records")) == []
