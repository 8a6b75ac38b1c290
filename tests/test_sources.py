"""One interface to every source: what it names, a reader's own files, what is
remembered."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import REAL, forget, put

from lib import data
from lib.core import paths
from lib.core.names import Refused

LINES = [
    f"{i}\t{word}\t{word}\tNOUN\t_\t_\t{i - 1}\t{'root' if i == 1 else 'dep'}\t_\t_\n"
    for i, word in enumerate("one two three four five six".split(), 1)
]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A reader's own data in each layout."""
    answers = [{"text": "The cat", "answer_start": 0}]
    question = {"id": "q", "question": "Who slept?", "answers": answers}
    passage = {"context": "The cat slept.", "qas": [question]}
    for split in ("train", "dev"):
        lines = "sentence\tlabel\nmine is good\t1\nyours is bad\t0\n"
        put(tmp_path, f"glue/SST-2/{split}.tsv", lines)
        put(tmp_path, f"squad/{split}-v1.1.json", {"data": [{"paragraphs": [passage]}]})
    cells = [
        (part, word) for part in ("tr", "va", "te") for word in ("fire", "water", "air")
    ]
    rows = [f"{part}\t{word}\ta line of {word}\n" for part, word in cells]
    put(tmp_path, "probing/word_content.txt", "".join(rows))
    for split in ("train", "dev", "test"):
        put(tmp_path, f"ud_english_ewt/my-ud-{split}.conllu", "".join(LINES))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    forget()
    yield tmp_path
    forget()


def test_neither_torch_nor_the_hub_is_imported():
    """Pages and plans read data in seconds."""
    modules = sorted(path.stem for path in Path(data.__file__).parent.glob("[a-z]*.py"))
    heavy = "{'torch', 'transformers', 'datasets'} & set(sys.modules)"
    code = (
        f"import sys\nfrom lib.data import {', '.join(modules)}\nsys.exit({heavy} or 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)


def test_every_source_has_tasks():
    for name in data.FOLDERS.keys() - {"own"}:
        module = data.import_data_source_module(name)
        assert callable(module.load) and data.list_tasks(name)
        for each, task in data.list_tasks(name).items():
            assert data.find_task_by_name(name, each) is task and task.name == each
    with pytest.raises(
        ValueError, match="unknown data source: 'gleu'; did you mean 'glue'"
    ):
        data.import_data_source_module("gleu")
    with pytest.raises(
        Refused, match="'own' has no list of tasks: name one by its file"
    ):
        data.list_tasks("own")


@pytest.mark.parametrize(
    "source, task, first",
    [
        ("glue", "SST-2", ("mine is good", None, 1)),
        ("squad", "SQuAD1", ("Who slept?", "The cat slept.", [0, 7])),
        ("senteval", "WordContent", ("a line of fire", None, 1)),
    ],
)
def test_a_readers_own_data(root, source, task, first):
    described = data.make_data_descriptor(source, task)
    train = data.load(described)["train"]
    assert (train.a[0], train.b and train.b[0], train.y[0].tolist()) == first
    assert described["source"] == source and len(described["digest"]) == 16
    again = data.load(described | {"rows": 1})["train"]
    assert len(again) == 1 and again.a[0] in train.a


def test_a_readers_own_treebank_is_looked_for_and_told_when_too_small(root):
    with pytest.raises(ValueError, match="no train rows of every class of Length"):
        data.make_data_descriptor("treebank", "Length")


ABSENT = [
    ("squad", "SQuAD2", "train-v2.0.json"),
    ("senteval", "Depth", "tree_depth.txt"),
    ("glue", "QNLI", "train.tsv"),
]


@pytest.mark.parametrize("source, task, missing", ABSENT)
def test_absent_files_are_named(root, source, task, missing):
    with pytest.raises(FileNotFoundError, match=missing):
        data.make_data_descriptor(source, task)


def test_answers_are_part_of_the_digest_where_there_are_any(root):
    splits = data.read_splits("squad", "SQuAD1")
    other = {
        name: replace(s, answers=[["The cat", "cat"]]) for name, s in splits.items()
    }
    assert data.digest_splits(splits) != data.digest_splits(other)
    plain = {"train": data.Split(["a"], None, np.array([1]), np.array([0]))}
    assert data.digest_splits(plain) == "acd61542bc5b74e5"


def test_digests_are_noted_until_a_file_changes(root, monkeypatch):
    """A command that plans reads no rows twice; a run reads them and checks them
    itself."""
    monkeypatch.setenv("RUNS_ROOT", str(root / "runs"))
    folder = root / "glue" / "SST-2"

    def told():
        forget()
        return data.digest_task_rows_cached("glue", "SST-2")

    digest, names = told()
    assert digest == data.digest_splits(
        data.read_splits("glue", "SST-2")
    ) and names == [
        "train",
        "dev",
    ]
    reads = data.import_data_source_module("glue").load
    monkeypatch.setattr(
        data.import_data_source_module("glue"),
        "load",
        lambda *_: pytest.fail("read again"),
    )
    assert told() == (digest, names)
    monkeypatch.setattr(data.import_data_source_module("glue"), "load", reads)
    (folder / "train.tsv").write_text("sentence\tlabel\na b\t1\ne f\t0\n")
    assert told()[0] != digest
    (folder / "train.tsv").unlink(), (folder / "dev.tsv").unlink()
    with pytest.raises(FileNotFoundError):
        told()


def test_a_grid_looks_for_no_file_where_the_folder_of_the_data_is_not_there(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    monkeypatch.setattr(
        data, "digest_task_rows_cached", lambda *_: pytest.fail("looked for")
    )
    official = data.read_committed_data_digests()["glue/SST-2"]
    assert data.make_data_descriptor("glue", "SST-2", 20)["digest"] == official
    (tmp_path / "glue").mkdir()
    with pytest.raises(pytest.fail.Exception, match="looked for"):
        data.make_data_descriptor("glue", "SST-2", 20)


OFFICIAL = [
    key
    for key in data.read_committed_data_digests()
    if key.partition("/")[0] in data.FOLDERS
]


@pytest.mark.parametrize("key", [key for key in OFFICIAL if key.count("/") == 1])
def test_rows_at_hand_have_the_official_digest(key, monkeypatch):
    """The reading of real files is pinned: columns, labels, order, splits."""
    monkeypatch.setenv("DATA_ROOT", str(REAL))
    forget()
    try:
        assert (
            data.digest_task_rows_cached(*key.split("/"))[0]
            == data.read_committed_data_digests()[key]
        )
    except FileNotFoundError as error:
        pytest.skip(str(error))
    finally:
        forget()
