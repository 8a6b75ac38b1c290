"""Handwritten digits: MNIST's idx files in a folder, or scikit-learn's own.

    <root>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]    some archives have "." for the
    second "-"

The files may be plain or gzipped. scikit-learn has 1,797 digits of 8 x 8 pixels; their split is
fixed.
"""

import gzip
import hashlib
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from lib.data import check
from lib.data.lines import malformed
from lib.runs.spec import stream

_BUNDLED_TEST = 360  # a fifth of scikit-learn's


@cache
def load(root, kind="files"):
    """Return {"train", "test": (images uint8 [N, height, width] from 0 to 255, labels int64 [N])}.

    Raises FileNotFoundError where a file is missing, ValueError where one is cut off or no idx
    file.
    """
    if kind == "bundled":
        return _bundled()
    found = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = _read(Path(root), f"{stem}-images", 3)
        found[split] = images, _read(Path(root), f"{stem}-labels", 1).astype(np.int64)
    return found


def describe(root, kind):
    """Return the descriptor for a Spec: {"kind", "digest"}, the digest being of images and
    labels."""
    body = hashlib.sha256()
    for images, labels in load(root, kind).values():
        body.update(str(images.shape).encode() + images.tobytes() + labels.tobytes())
    return {"kind": kind, "digest": body.hexdigest()[:16]}


def described(root, descriptor):
    """Return what `load` gives, of a descriptor. Raises ValueError where the digits at hand are
    others."""
    kind, what = descriptor["kind"], f"the set of digits in {root}"
    check(what, describe(root, kind)["digest"], descriptor["digest"])
    return load(root, kind)


def _read(root, name, dimensions):
    """Return the values of an idx file: a magic number, the length of each dimension, big-endian,
    then the bytes. Raises FileNotFoundError where there is none, ValueError where it is cut off."""
    path = next(iter(sorted(root.glob(f"{name}[-.]idx{dimensions}-ubyte*"))), None)
    if path is None:
        wanted = f"{name}-idx{dimensions}-ubyte is missing in {root}"
        raise FileNotFoundError(f"{wanted}; fix: put MNIST's four idx files there")
    body = path.read_bytes()
    try:
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body  # whatever its name
        _, *shape = np.frombuffer(body, ">u4", 1 + dimensions).tolist()
        return np.frombuffer(body, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise malformed(path, error, f"a whole idx file of {dimensions} dimension(s)") from None


def _bundled():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target
    order = np.random.default_rng(stream(0, "digits")).permutation(len(images))
    rows = {"train": np.sort(order[_BUNDLED_TEST:]), "test": np.sort(order[:_BUNDLED_TEST])}
    return {name: (images[each], labels[each].astype(np.int64)) for name, each in rows.items()}
