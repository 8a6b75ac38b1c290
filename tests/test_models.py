"""Checkpoints: converted from a pickle once, safely, and found as safetensors ever
after."""

import json
import os
import pickle
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file

from lib import data
from lib.__main__ import main
from lib.core import paths
from lib.core.names import Refused
from lib.data import models
from lib.model import backbone


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models_root", lambda: tmp_path / "models")
    monkeypatch.setattr(paths, "DIGESTS", tmp_path / "digests.json")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "data"))
    yield tmp_path


def pickled(folder, tiny, tokenizer, weights=None):
    """A checkpoint folder with pytorch_model.bin alone; returns the model."""
    model = tiny(masked_lm=True)
    model.config.architectures = [type(model).__name__]
    folder.mkdir(parents=True)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    torch.save(
        model.state_dict() if weights is None else weights, folder / models.PICKLE
    )
    return model


def test_a_pickle_becomes_safetensors_once(root, tiny, tokenizer, capsys):
    model = pickled(root / "data" / "models" / "mine", tiny, tokenizer)
    with pytest.raises(FileNotFoundError, match="python -m lib fetch mine"):
        data.require_checkpoint_folder("mine")
    assert not main(["fetch", "mine"])
    assert capsys.readouterr().out.strip().endswith("models/mine")
    assert data.require_checkpoint_folder("mine") == root / "models" / "mine"
    found, words = backbone.load(data.require_checkpoint_folder("mine"))
    assert isinstance(found, transformers.BertForMaskedLM) and len(words) == len(
        tokenizer
    )
    assert all(
        torch.equal(v, found.state_dict()[k]) for k, v in model.state_dict().items()
    )
    assert (root / "data" / "models" / "mine" / models.PICKLE).exists()
    assert not (root / "models" / "mine" / models.PICKLE).exists()
    first = data.find_checkpoint_digest("mine")
    shutil.rmtree(root / "models" / "mine")
    models.fetch_checkpoint("mine")
    assert data.find_checkpoint_digest("mine") == first, (
        "the same pickle gives the same bytes"
    )
    models.copy_checkpoint("mine", first, root / "run")
    assert (root / "run" / "model.safetensors").exists()
    assert not (root / "run" / models.PICKLE).exists()


def test_weights_beside_a_pickle_stay_as_they_are(root, tiny, tokenizer):
    pickled(root / "mine", tiny, tokenizer)
    (root / "mine" / models.WEIGHTS).write_bytes(b"those of a later training")
    assert models.fetch_checkpoint(str(root / "mine")) == root / "mine"
    held = (root / "mine" / models.WEIGHTS).read_bytes()
    assert held == b"those of a later training"


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "vocab.txt"])
def test_a_file_that_is_not_as_it_was_fetched_is_refused(file, root, tiny, tokenizer):
    """Runs are of the weights by their digest; the files beside them are held to the
    manifest."""
    pickled(root / "data" / "models" / "mine", tiny, tokenizer)
    (place := root / "data" / "models" / "mine" / "vocab.txt").write_text("a\nb\n")
    path = models.fetch_checkpoint("mine") / file
    models.copy_checkpoint("mine", data.digest_local_checkpoint("mine"), root / "sound")
    assert place.exists() and (root / "sound" / file).read_bytes() == path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"a", b"e", 1))
    with pytest.raises(
        ValueError, match=f"{file} has another digest .*: move .* away, and"
    ):
        models.copy_checkpoint(
            "mine", data.digest_local_checkpoint("mine"), root / "damaged"
        )
    assert not (root / "damaged").exists()


@pytest.mark.parametrize(
    "name", ["../x", "a/b/../x", "/etc", "$(touch x)", "<b>a</b>", "", "a b"]
)
def test_a_name_that_cannot_be_is_refused_and_leaves_no_folder(name, root, capsys):
    assert main(["fetch", name]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: unknown checkpoint: ") and told.count("\n") == 1
    assert list(root.iterdir()) == []


def test_a_known_digest_is_checked(root, tiny, tokenizer):
    pickled(root / "data" / "models" / "mine", tiny, tokenizer)
    paths.DIGESTS.write_text(json.dumps({"models/mine": "0" * 64}))
    message = "mine have sha256 .*expected 0000000000000000.*nothing was stored"
    with pytest.raises(ValueError, match=message):
        models.fetch_checkpoint("mine")
    assert not (root / "models" / "mine" / "model.safetensors").exists()


def test_a_pickle_in_its_place_is_converted_there(root, tiny, tokenizer, capsys):
    folder = root / "models" / "mine"
    model = pickled(folder, tiny, tokenizer)
    paths.DIGESTS.write_text(json.dumps({"models/mine": "0" * 64}))
    assert main(["fetch", "mine"]) == 2
    assert "expected 0000000000000000" in capsys.readouterr().err
    assert not (folder / "model.safetensors").exists()
    paths.DIGESTS.unlink()
    assert not main(["fetch", "mine"])
    found, _ = backbone.load(data.require_checkpoint_folder("mine"))
    assert all(
        torch.equal(v, found.state_dict()[k]) for k, v in model.state_dict().items()
    )
    assert (folder / models.PICKLE).exists()


def test_a_folder_without_weights_is_not_replaced(root, tiny, tokenizer):
    pickled(root / "data" / "models" / "mine", tiny, tokenizer)
    (root / "models" / "mine").mkdir(parents=True)
    (root / "models" / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match="models/mine has files but no weights: move"):
        models.fetch_checkpoint("mine")
    assert [p.name for p in (root / "models" / "mine").iterdir()] == ["notes.txt"]


class Harm:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_not_run(
    zipped, root, tiny, tokenizer, capsys
):
    folder, harm = root / "data" / "models" / "mine", Harm(root / "harm")
    pickled(folder, tiny, tokenizer, {"weight": harm})
    if not zipped:
        (folder / models.PICKLE).write_bytes(pickle.dumps({"weight": harm}))
    assert main(["fetch", "mine"]) == 2
    told = capsys.readouterr().err.strip()
    assert "is no plain table of tensors" in told and "\n" not in told
    assert not (root / "harm").exists() and list((root / "models").iterdir()) == []


@pytest.mark.parametrize(
    "weights", [{"epoch": 3, "w": torch.zeros(1)}, [torch.zeros(1)], None]
)
def test_other_and_damaged_contents_are_refused(weights, root, tiny, tokenizer):
    pickled(root / "data" / "models" / "mine", tiny, tokenizer, weights)
    if weights is None:
        path = root / "data" / "models" / "mine" / models.PICKLE
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(
        ValueError, match="is no plain table of tensors .*: it may be damaged"
    ):
        models.fetch_checkpoint("mine")


def test_tied_weights_are_stored_apart(root, tmp_path):
    table = torch.arange(6.0).reshape(2, 3)
    torch.save({"b": table, "a": table.T}, tmp_path / "in")
    models.convert_pickle_to_safetensors(tmp_path / "in", tmp_path / "out")
    found = load_file(tmp_path / "out")
    assert torch.equal(found["b"], table) and torch.equal(found["a"], table.T)


def test_a_checkpoint_of_the_hub_is_stored_as_safetensors(
    root, tiny, tokenizer, monkeypatch
):
    import huggingface_hub

    pickled(root / "hub", tiny, tokenizer)
    asked = []

    def snapshot_download(name, local_dir, allow_patterns):
        asked.append((name, allow_patterns))
        local_dir.mkdir(parents=True, exist_ok=True)
        for pattern in allow_patterns:
            for path in (root / "hub").glob(pattern):
                (local_dir / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    folder = models.fetch_checkpoint("someone/mine")
    assert (
        folder == root / "models" / "someone/mine" and (folder / "config.json").exists()
    )
    assert not (folder / models.PICKLE).exists()
    assert asked == [("someone/mine", [*data.PATTERNS, models.PICKLE])]
    (root / "hub" / models.PICKLE).unlink()
    with pytest.raises(
        ValueError, match="is no plain table of tensors .FileNotFoundError"
    ):
        models.fetch_checkpoint("someone/other")


def test_the_digests_name_their_subsets():
    known = json.loads((paths.DATA / "digests.json").read_text())
    assert {"glue/QQP", "squad/SQuAD1"} == set(known["subsets"]) <= set(known)
