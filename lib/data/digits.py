"""Handwritten digits: MNIST's idx files in a folder, else MNIST from the hub, else scikit-learn's
own.

    <root>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]    some archives have "." for the
    second "-"

The files may be plain or gzipped. scikit-learn has 1,797 digits of 8 x 8 pixels; their split is
fixed. `source` says which kind is taken; a run that must not depend on the network names its kind.
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

KINDS = ("files", "hub", "bundled")  # without a network the hub takes half a minute to give up
_MAGIC = {"images": 2051, "labels": 2049}  # unsigned bytes in 3 dimensions and in 1
_STEMS = {"train": "train", "test": "t10k"}
_BUNDLED_TEST = 360  # a fifth of scikit-learn's


def load(root, kinds=KINDS, loader=None):
    """{"train", "test": (images uint8 [N, height, width] from 0 to 255, labels int64 [N])} of the
    first kind that can be had.

    Raises ValueError naming the file where one is missing beside the others, cut off or no idx
    file. `loader(name)` stands in for `datasets.load_dataset`.
    """
    return dict(_load(Path(root), tuple(kinds), loader)[1])


def source(root, kinds=KINDS, loader=None):
    """The kind that `load` takes: "files", "hub" or "bundled"."""
    return _load(Path(root), tuple(kinds), loader)[0]


def describe(root, kinds=KINDS):
    """Descriptor for a Spec: {"kind", "digest"}, the digest being of the images and labels
    themselves."""
    kind, found = _load(Path(root), tuple(kinds), None)
    body = hashlib.sha256()
    for images, labels in found.values():
        body.update(str(images.shape).encode() + images.tobytes() + labels.tobytes())
    return {"kind": kind, "digest": body.hexdigest()[:16]}


def described(root, descriptor):
    """What `load` gives, of a descriptor. Raises ValueError where the digits at hand are others."""
    kinds = (descriptor["kind"],)
    check(f"the set of digits in {root}", describe(root, kinds)["digest"], descriptor["digest"])
    return load(root, kinds)


@cache
def _load(root, kinds, loader):
    for kind in kinds:
        known("kind of digits", kind, KINDS)
        found = _bundled() if kind == "bundled" else _hub(loader) if kind == "hub" else _files(root)
        if found:
            return kind, found
    tried = " or ".join(kinds)
    raise FileNotFoundError(f"no digits from {tried}; fix: put MNIST's four idx files into {root}")


def _files(root):
    paths = {
        (split, what): _path(root, stem, what) for split, stem in _STEMS.items() for what in _MAGIC
    }
    there = [path.name for path in paths.values() if path]
    lacking = [f"{_STEMS[split]}-{what}" for (split, what), path in paths.items() if not path]
    if there and lacking:
        fix = "add these idx files, or move the others away"
        raise malformed(root, f"{', '.join(there)} alone", f"also {', '.join(lacking)}", fix)
    return there and {
        split: _pair(paths[split, "images"], paths[split, "labels"]) for split in _STEMS
    }


def _hub(loader):
    try:
        if loader is None:
            from datasets import load_dataset as loader
        found = loader("ylecun/mnist")
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
