"""Digits from idx files, the hub by a stand-in, and scikit-learn."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from lib.data import digits

NAMES = {
    "train-images": "train-images-idx3-ubyte",
    "train-labels": "train-labels-idx1-ubyte",
    "test-images": "t10k-images-idx3-ubyte",
    "test-labels": "t10k-labels-idx1-ubyte",
}


def idx(values):
    return (
        struct.pack(f">{1 + values.ndim}I", 2048 + values.ndim, *values.shape)
        + values.astype(np.uint8).tobytes()
    )


def put(root, end="", **changed):
    rng = np.random.default_rng(0)
    made = {}
    for split, rows in (("train", 7), ("test", 3)):
        made[f"{split}-images"] = rng.integers(0, 256, (rows, 28, 28))
        made[f"{split}-labels"] = rng.integers(0, 10, rows)
    for key, name in NAMES.items():
        body = changed.get(key.replace("-", "_"), idx(made[key]))
        if body is not None:
            (root / (name + end)).write_bytes(gzip.compress(body) if end else body)
    return made


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_plain_and_gzipped(tmp_path, end):
    made = put(tmp_path, end)
    found = digits.load(tmp_path)
    assert digits.source(tmp_path) == "files" and list(found) == ["train", "test"]
    for split, (images, labels) in found.items():
        assert (images == made[f"{split}-images"]).all() and (
            labels == made[f"{split}-labels"]
        ).all()
        assert images.dtype == np.uint8 and labels.dtype == np.int64 and images.flags.writeable


def test_names_with_a_dot_and_a_gzip_file_without_its_ending(tmp_path):
    made = put(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(path.name.replace("-idx", ".idx")).write_bytes(
            gzip.compress(path.read_bytes())
        )
        path.unlink()
    assert (digits.load(tmp_path)["test"][0] == made["test-images"]).all()


def test_the_hub_where_there_are_no_files(tmp_path):
    rows = {"image": [np.full((28, 28), i) for i in range(4)], "label": [3, 1, 2, 9]}
    asked = []

    def loader(name):
        asked.append(name)
        return {"train": rows, "test": {key: each[:2] for key, each in rows.items()}}

    found = digits.load(tmp_path, loader=loader)
    assert asked == ["ylecun/mnist"] and digits.source(tmp_path, loader=loader) == "hub"
    assert found["train"][0].shape == (4, 28, 28) and found["train"][0].dtype == np.uint8
    assert found["test"][1].tolist() == [3, 1] and found["test"][1].dtype == np.int64


def test_the_bundled_digits_where_there_is_no_hub(tmp_path):
    def loader(name):
        raise OSError("no network")

    assert digits.source(tmp_path, loader=loader) == "bundled"
    found = digits.load(tmp_path, loader=loader)
    assert found["train"][0].shape == (1437, 8, 8) and found["test"][0].shape == (360, 8, 8)
    assert found["train"][0].dtype == np.uint8 and found["train"][0].max() == 255
    assert set(found["test"][1]) == set(range(10))
    again = digits.load(tmp_path / "elsewhere", ("bundled",))
    assert all((found[split][0] == again[split][0]).all() for split in found)
    with pytest.raises(FileNotFoundError, match="put MNIST's four idx files into"):
        digits.load(tmp_path, ("files",))
    with pytest.raises(ValueError, match="did you mean 'bundled'"):
        digits.load(tmp_path, ("bundle",))


def test_mnist():
    root = (
        Path(os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data"))
        / "mnist"
    )
    if not root.is_dir():
        pytest.skip("MNIST's idx files are not under DATA_ROOT")
    found = digits.load(root, ("files",))
    assert found["train"][0].shape == (60000, 28, 28) and found["test"][0].shape == (10000, 28, 28)
    assert np.bincount(found["test"][1]).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert np.bincount(found["train"][1]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
