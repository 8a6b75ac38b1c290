"""Runs elsewhere: what travels, and what comes back."""

import gzip
import json
import subprocess
import sys
import tarfile

import pytest
from test_models import pickled
from test_store import SPEC, with_arrays
from test_sweep import BACKBONE, teacher

from lib import data
from lib.data import models
from lib.page import checks
from lib.runs import pack, paths, record
from lib.runs.spec import Spec
from lib.runs.store import Store


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models_root", lambda: tmp_path / "models")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def checkpoint(root, tiny, tokenizer):
    pickled(root / "models" / "mine", tiny, tokenizer)
    models.fetch("mine")
    return "mine"


def test_an_archive_has_code_rows_and_weights(root, checkpoint):
    for split, text in {
        "train": "sentence\tlabel\na b\t1\nc d\t0\n",
        "dev": "sentence\tlabel\ne f\t1\n",
        "test": "index\tsentence\n0\tg h\n",
    }.items():
        path = root / "data" / "glue" / "SST-2" / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    told = data.describe("glue", "SST-2", 1)
    spec = Spec("finetune", teacher().args | {"data": told}, {"start": BACKBONE}).at(10)
    claim = checks.claims()["G1"]
    size = pack.pack(root / "out.tgz", [claim], [spec], checkpoint)
    assert size == (root / "out.tgz").stat().st_size
    with tarfile.open(root / "out.tgz") as archive:
        names = set(archive.getnames())
        assert {
            "evidence/lib/page/evidence.py",
            "evidence/data/published/central.csv",
            "evidence/data/glue/SST-2/train.tsv",
            "evidence/data/glue/SST-2/dev.tsv",
            "evidence/data/models/mine/model.safetensors",
        } <= names
        assert not any("records" in name for name in names)
        run = archive.extractfile("evidence/run.sh").read().decode()
        assert "evidence --device cuda --claims G1" in run
        archive.extractall(root, filter="data")
    asked = (
        "import json; from lib.runs.execute import commit; "
        "from lib.papers.profiles import PROFILES; "
        "print(json.dumps([commit(), PROFILES['mini'].numerics.device]))"
    )
    where = {"cwd": root / "evidence", "env": {"DEVICE": "cuda"}}
    found = json.loads(subprocess.check_output([sys.executable, "-c", asked], **where))
    commit = json.loads((root / "evidence" / "COMMIT").read_text())
    assert found == [commit, "cuda"]


def test_records_come_back_whole_or_not_at_all(root):
    there = Store(root / "a", root / "b")
    folder = there.record(with_arrays(there))

    def unpacked(target):
        with tarfile.open(root / "records.tgz", "w:gz") as archive:
            archive.add(root / "b", "records")
        return pack.unpack(root / "records.tgz", root / target)

    assert (unpacked("c"), unpacked("c")) == (1, 0)
    found = Store(root / "none", root / "c").find(SPEC).arrays("predictions")
    assert found["logits"].shape == (872, 2) and len(list((root / "c").iterdir())) == 1
    (folder / record.ARRAYS).write_bytes(gzip.compress(b"other"))
    with pytest.raises(ValueError, match="arrays.safetensors.gz is damaged"):
        unpacked("d")
    assert not list((root / "d").iterdir())
