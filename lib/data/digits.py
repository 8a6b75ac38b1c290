"""Handwritten digits: MNIST's idx files in a folder, or scikit-learn's own.

    <root>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]    some archives have "." for the
    second "-"

The files may be plain or gzipped. scikit-learn has 1,797 digits of 8 x 8 pixels; their split is
fixed.
"""

import gzip
import hashlib
import math
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from lib.data import check
from lib.data.lines import malformed
from lib.runs.spec import known, stream

KINDS = ("files", "bundled")
_STEMS = {"train": "train", "test": "t10k"}
_BUNDLED_TEST = 360  # a fifth of scikit-learn's


@cache
def load(root, kind="files"):
    """{"train", "test": (images uint8 [N, height, width] from 0 to 255, labels int64 [N])}.

    Raises FileNotFoundError where a file is missing, ValueError where one is cut off or no idx
    file.
    """
    known("kind of digits", kind, KINDS)
    if kind == "bundled":
        return _bundled()
    return {split: _pair(Path(root), stem) for split, stem in _STEMS.items()}


def describe(root, kind):
    """Descriptor for a Spec: {"kind", "digest"}, the digest being of images and labels."""
    body = hashlib.sha256()
    for images, labels in load(root, kind).values():
        body.update(str(images.shape).encode() + images.tobytes() + labels.tobytes())
    return {"kind": kind, "digest": body.hexdigest()[:16]}


def described(root, descriptor):
    """What `load` gives, of a descriptor. Raises ValueError where the digits at hand are others."""
    kind, what = descriptor["kind"], f"the set of digits in {root}"
    check(what, describe(root, kind)["digest"], descriptor["digest"])
    return load(root, kind)


def _pair(root, stem):
    _, images = _read(root, f"{stem}-images", 3)
    path, labels = _read(root, f"{stem}-labels", 1)
    if len(images) != len(labels):
        raise malformed(path, f"{len(labels)} labels", f"{len(images)}, one for each image")
    if labels.max() > 9:
        raise malformed(path, f"label {labels.max()} in row {labels.argmax()}", "0 to 9")
    return images, labels.astype(np.int64)


def _read(root, name, dimensions):
    """(path, values) of an idx file: magic number of unsigned bytes in so many dimensions, one
    length each, big-endian; then the bytes."""
    path = next(iter(sorted(root.glob(f"{name}[-.]idx{dimensions}-ubyte*"))), None)
    if path is None:
        wanted = f"{name}-idx{dimensions}-ubyte is missing in {root}"
        raise FileNotFoundError(f"{wanted}; fix: put MNIST's four idx files there")
    body, head = path.read_bytes(), 4 + 4 * dimensions
    if body[:2] == b"\x1f\x8b":  # gzip, whatever the name says
        try:
            body = gzip.decompress(body)
        except (EOFError, OSError, zlib.error) as error:
            found = f"a gzip file that cannot be unpacked ({error})"
            raise malformed(path, found, "a whole one") from None
    magic, *shape = np.frombuffer(body[:head].ljust(head, b"\0"), ">u4").tolist()
    if magic != 2048 + dimensions:
        raise malformed(path, f"magic number {magic}", f"{2048 + dimensions}, of an idx file")
    size = head + math.prod(shape)
    if len(body) != size or size == head:
        found = f"{len(body):,} bytes for a shape of {' x '.join(map(str, shape))}"
        raise malformed(path, found, f"{size:,} bytes, more than {head}")
    return path, np.frombuffer(body, np.uint8, offset=head).reshape(shape).copy()


def _bundled():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(stream(0, "digits")).permutation(len(images))
    rows = {"train": np.sort(order[_BUNDLED_TEST:]), "test": np.sort(order[:_BUNDLED_TEST])}
    return {
        split: (images[each], digits.target[each].astype(np.int64)) for split, each in rows.items()
    }
