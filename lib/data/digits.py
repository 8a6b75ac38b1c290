"""Handwritten digits: MNIST's idx files in a folder, or MNIST from the hub; or scikit-learn's own.

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
from lib.spec import known, stream

KINDS = ("files", "bundled")
_MAGIC = {"images": 2051, "labels": 2049}  # unsigned bytes in 3 dimensions and in 1
_STEMS = {"train": "train", "test": "t10k"}
_BUNDLED_TEST = 360  # a fifth of scikit-learn's


@cache
def load(root, kind="files"):
    """{"train", "test": (images uint8 [N, height, width] from 0 to 255, labels int64 [N])}.

    "files" are those in the folder, the hub's where it has none. Raises ValueError naming the file
    where one is missing beside the others, cut off or no idx file.
    """
    known("kind of digits", kind, KINDS)
    found = _bundled() if kind == "bundled" else _files(Path(root)) or _hub()
    if not found:
        raise FileNotFoundError(f"no digits; fix: put MNIST's four idx files into {root}")
    return found


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


def _files(root):
    parts = [(stem, what) for stem in _STEMS.values() for what in _MAGIC]
    paths = {part: path for part in parts if (path := _path(root, *part))}
    lacking = ["-".join(part) for part in parts if part not in paths]
    if paths and lacking:
        found = f"{', '.join(path.name for path in paths.values())} alone"
        fix = "add these idx files, or move the others away"
        raise malformed(root, found, f"also {', '.join(lacking)}", fix)
    return paths and {
        split: _pair(paths[stem, "images"], paths[stem, "labels"]) for split, stem in _STEMS.items()
    }


def _hub():
    try:
        from datasets import load_dataset

        found = load_dataset("ylecun/mnist")
    except Exception:  # the hub's client raises many kinds, by version and by failure
        return None
    made = {}
    for split in _STEMS:
        images = np.stack([np.asarray(image, np.uint8) for image in found[split]["image"]])
        made[split] = images, np.asarray(found[split]["label"], np.int64)
    return made


def _path(root, stem, kind):
    """The file of a part, whatever its name's second mark and ending; None where there is none."""
    end = "idx3-ubyte" if kind == "images" else "idx1-ubyte"
    paths = [root / f"{stem}-{kind}{mark}{end}{packed}" for mark in "-." for packed in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None)


def _pair(images, labels):
    pair = _read(images, "images"), _read(labels, "labels").astype(np.int64)
    if len(pair[0]) != len(pair[1]):
        raise malformed(labels, f"{len(pair[1])} labels", f"{len(pair[0])}, as in {images.name}")
    if pair[1].max(initial=0) > 9:
        raise malformed(labels, f"label {pair[1].max()} in row {pair[1].argmax()}", "0 to 9")
    return pair


def _read(path, kind):
    """An idx file: magic number, one length a dimension, big-endian; then the bytes."""
    body = path.read_bytes()
    if body[:2] == b"\x1f\x8b":  # gzip, whatever the name says
        try:
            body = gzip.decompress(body)
        except (EOFError, OSError, zlib.error) as error:
            found = f"a gzip file that cannot be unpacked ({error})"
            raise malformed(path, found, "a whole one") from None
    elif path.suffix == ".gz":
        expected = "1f8b of a gzip file, or a name without .gz"
        raise malformed(path, f"first bytes {body[:2].hex() or 'none'}", expected)
    head = 16 if kind == "images" else 8
    magic, *shape = np.frombuffer(body[:head].ljust(head, b"\0"), ">u4").tolist()
    if magic != _MAGIC[kind]:
        raise malformed(path, f"magic number {magic}", f"{_MAGIC[kind]} of {kind}")
    size = head + math.prod(shape)
    if len(body) != size or size == head:
        sides = " x ".join(map(str, shape))
        raise malformed(path, f"{len(body):,} bytes", f"{size:,} for {sides} {kind}")
    return np.frombuffer(body, np.uint8, offset=head).reshape(shape).copy()


def _bundled():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(stream(0, "digits")).permutation(len(images))
    rows = {"train": np.sort(order[_BUNDLED_TEST:]), "test": np.sort(order[:_BUNDLED_TEST])}
    return {
        split: (images[each], digits.target[each].astype(np.int64)) for split, each in rows.items()
    }
