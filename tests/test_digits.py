"""Digits from idx files, and scikit-learn's."""

import gzip
import struct

import numpy as np
import pytest
from conftest import REAL

from lib.papers.nas_pruning import digits

NAMES = {
    "train-images": "train-images-idx3-ubyte",
    "train-labels": "train-labels-idx1-ubyte",
    "test-images": "t10k-images-idx3-ubyte",
    "test-labels": "t10k-labels-idx1-ubyte",
}


def idx(values):
    """The bytes of an idx file of these values."""
    head = struct.pack(f">{1 + values.ndim}I", 2048 + values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


def put(root, mark="-", end="", packed=False):
    rng, made = np.random.default_rng(0), {}
    for key, name in NAMES.items():
        rows = 7 if "train" in key else 3
        made[key] = (
            rng.integers(0, 256, (rows, 28, 28)) if "im" in key else np.arange(rows)
        )
        body = gzip.compress(idx(made[key])) if packed else idx(made[key])
        (root / (name.replace("-idx", f"{mark}idx") + end)).write_bytes(body)
    return made


@pytest.mark.parametrize(
    "mark, end, packed", [("-", "", 0), ("-", ".gz", 1), (".", "", 1)]
)
def test_files_plain_and_gzipped(tmp_path, mark, end, packed):
    made, found = put(tmp_path, mark, end, packed), digits.load_digit_images(tmp_path)
    assert list(found) == ["train", "test"]
    for split, (images, labels) in found.items():
        assert (images == made[f"{split}-images"]).all()
        assert (labels == made[f"{split}-labels"]).all()
        assert (
            images.dtype == np.uint8
            and labels.dtype == np.int64
            and images.flags.writeable
        )


def test_missing_files_are_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="train-images-idx3-ubyte is missing .* four idx"
    ):
        digits.load_digit_images(tmp_path / "elsewhere")


def test_the_bundled_digits(tmp_path):
    found = digits.load_digit_images(tmp_path, "bundled")
    assert found["train"][0].shape == (1437, 8, 8) and found["test"][0].shape == (
        360,
        8,
        8,
    )
    assert found["train"][0].dtype == np.uint8 and found["train"][0].max() == 255
    assert set(found["test"][1]) == set(range(10))


def test_mnist():
    if not (root := REAL / "mnist").is_dir():
        pytest.skip("MNIST's idx files are not under DATA_ROOT")
    found = digits.load_digit_images(root)
    assert found["train"][0].shape == (60000, 28, 28) and found["test"][0].shape == (
        10000,
        28,
        28,
    )
    counts = {"train": "5923 6742 5958 6131 5842 5421 5918 6265 5851 5949"}
    counts["test"] = "980 1135 1032 1010 982 892 958 1028 974 1009"
    for split, told in counts.items():
        assert np.bincount(found[split][1]).tolist() == list(map(int, told.split()))
