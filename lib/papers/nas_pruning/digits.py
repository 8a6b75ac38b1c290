"""This module reads handwritten digits: MNIST's four idx files, or scikit-learn's
digits.

    <root>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]

The files may be plain or gzipped. Some archives have "." in place of the "-" before
"idx". scikit-learn has 1,797 digits of 8 x 8 pixels, with a fixed split here."""

import gzip
import hashlib
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lib.core.names import Absent, stream
from lib.core.types import Json
from lib.data import check
from lib.data.lines import refuse_content

Digits = dict[str, tuple[np.ndarray, np.ndarray]]  # {split: (images, labels)}

# Test images among scikit-learn's digits: a fifth.
_BUNDLED_TEST = 360


@cache
def load(root: Path | str, kind: str = "files") -> Digits:
    """Return {"train", "test": (images uint8 [N, height, width] from 0 to 255, labels
    int64 [N])}.

    kind: "files" reads the folder `root`, "bundled" takes scikit-learn's digits. Raises
    FileNotFoundError where a file is missing, ValueError where one is cut off or is no
    idx file."""
    if kind == "bundled":
        return _bundled()
    digits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = _read(Path(root), f"{stem}-images", 3)
        digits[split] = images, _read(Path(root), f"{stem}-labels", 1).astype(np.int64)
    return digits


def describe(root: Path | str, kind: str) -> Json:
    """Return the descriptor of digits for a Spec: {"kind", "digest"}.

    The digest covers images and labels."""
    body = hashlib.sha256()
    for images, labels in load(root, kind).values():
        body.update(str(images.shape).encode() + images.tobytes() + labels.tobytes())
    return {"kind": kind, "digest": body.hexdigest()[:16]}


def load_descriptor(root: Path | str, descriptor: Json) -> Digits:
    """Return the digits of a descriptor, as `load` does.

    Raises Refused where the local digits have another digest."""
    kind, what = descriptor["kind"], f"the set of digits in {root}"
    check(what, describe(root, kind)["digest"], descriptor["digest"])
    return load(root, kind)


def _read(root: Path, name: str, dimensions: int) -> np.ndarray:
    """Return the values of an idx file as an array with this number of dimensions.

    Such a file has a magic number and the length of each dimension, big-endian, then
    one byte for each value. Raises Absent where it is missing, and Refused where it is
    cut off."""
    path = next(iter(sorted(root.glob(f"{name}[-.]idx{dimensions}-ubyte*"))), None)
    if path is None:
        reason = f"{name}-idx{dimensions}-ubyte is missing in {root}"
        raise Absent(f"{reason}; fix: put MNIST's four idx files there")
    body = path.read_bytes()
    try:
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        _, *shape = np.frombuffer(body, ">u4", 1 + dimensions).tolist()
        return (
            np.frombuffer(body, np.uint8, offset=4 + 4 * dimensions)
            .reshape(shape)
            .copy()
        )
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise refuse_content(
            path, error, f"a whole idx file of {dimensions} dimension(s)"
        ) from None


def _bundled() -> Digits:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()  # A Bunch, for which scikit-learn has no types.
    images, labels = np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target
    order = np.random.default_rng(stream(0, "digits")).permutation(len(images))
    rows = {
        "train": np.sort(order[_BUNDLED_TEST:]),
        "test": np.sort(order[:_BUNDLED_TEST]),
    }
    return {
        name: (images[indices], labels[indices].astype(np.int64))
        for name, indices in rows.items()
    }
