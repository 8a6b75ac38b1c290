"""This module reads handwritten digits: MNIST's four idx files, or scikit-learn's
digits. The NAS report checks its pruning search on them (section 7.1,
`digits_check.py`).

    <data folder>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]

The files may be plain or gzipped. Some archives have "." in place of the "-" before
"idx". scikit-learn has 1,797 digits of 8 x 8 pixels, without a split; here the same 360
of them are always the test images."""

import gzip
import hashlib
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from lib.core.names import Absent, derive_seed
from lib.core.types import Json, SplitName
from lib.data import check_digest
from lib.data.lines import make_file_content_error

# {"kind", "digest"}, which identifies a data set; `make_digits_descriptor` explains it.
DigitsDescriptor: TypeAlias = Json
# {"train", "test": (images uint8 [N, height, width], labels int64 [N])}.
ImagesAndLabels: TypeAlias = tuple[np.ndarray, np.ndarray]
ImagesAndLabelsBySplit = dict[SplitName, ImagesAndLabels]

# Number of scikit-learn's 1,797 digits that are test images: a fifth.
_BUNDLED_TEST = 360


@cache
def load_digit_images(
    data_folder: Path | str, source_kind: Literal["files", "bundled"] = "files"
) -> ImagesAndLabelsBySplit:
    """Return images and labels of handwritten digits, for training and for test.

    The result is {"train", "test": (images uint8 [N, height, width] from 0 to 255,
    labels int64 [N])}. Raises Absent where a file is missing, and Refused where one is
    damaged.

    data_folder: folder of MNIST's four idx files; not used for "bundled".
    source_kind: "files" reads MNIST from `data_folder`; "bundled" takes scikit-learn's
    8 x 8 digits, which need no download; the same 360 are always the test images."""
    if source_kind == "bundled":
        return _load_bundled_digits()
    digits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = _read_idx_file(Path(data_folder), f"{stem}-images", 3)
        labels = _read_idx_file(Path(data_folder), f"{stem}-labels", 1)
        digits[split] = (images, labels.astype(np.int64))
    return digits


def make_digits_descriptor(
    data_folder: Path | str, source_kind: Literal["files", "bundled"]
) -> DigitsDescriptor:
    """Return the dict {"kind", "digest"} that identifies a data set of handwritten
    digits.

    The description of a run has it, so that the run is only repeated on the same data.
    "kind" is `source_kind`; "digest" is a hash of all images and labels.

    source_kind: "files" for MNIST in `data_folder`, "bundled" for scikit-learn's
    digits."""
    body = hashlib.sha256()
    for images, labels in load_digit_images(data_folder, source_kind).values():
        body.update(str(images.shape).encode() + images.tobytes() + labels.tobytes())
    return {"kind": source_kind, "digest": body.hexdigest()[:16]}


def load_digits_of_descriptor(
    data_folder: Path | str, descriptor: DigitsDescriptor
) -> ImagesAndLabelsBySplit:
    """Return the handwritten digits that the description of a run asks for.

    The result is {"train", "test": (images uint8 [N, height, width], labels int64
    [N])}. Raises Refused where the local digits have another digest, as the run would
    then have other data than its description says.

    data_folder: folder of MNIST's idx files.
    descriptor: {"kind", "digest"}. "kind" is "files" (MNIST) or "bundled"
    (scikit-learn's digits), and "digest" is a hash of all images and labels."""
    kind = descriptor["kind"]
    what = f"the set of digits in {data_folder}"
    check_digest(
        what, make_digits_descriptor(data_folder, kind)["digest"], descriptor["digest"]
    )
    return load_digit_images(data_folder, kind)


def _read_idx_file(folder: Path, file_name: str, dimension_count: int) -> np.ndarray:
    """Return the values of an idx file, the format of MNIST, as a uint8 array.

    The file has a magic number, the length of each dimension as big-endian uint32, then
    one byte for each value. It may be gzipped. Raises Absent where it is missing, and
    Refused where it is damaged.

    file_name: without its ending, such as "train-images".
    dimension_count: number of dimensions, 3 for images and 1 for labels."""
    path = min(folder.glob(f"{file_name}[-.]idx{dimension_count}-ubyte*"), default=None)
    if path is None:
        reason = f"{file_name}-idx{dimension_count}-ubyte is missing in {folder}"
        raise Absent(f"{reason}; fix: put MNIST's four idx files there")
    body = path.read_bytes()
    try:
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        _, *shape = np.frombuffer(body, ">u4", 1 + dimension_count).tolist()
        return (
            np.frombuffer(body, np.uint8, offset=4 + 4 * dimension_count)
            .reshape(shape)
            .copy()
        )
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise make_file_content_error(
            path, error, f"a whole idx file of {dimension_count} dimension(s)"
        ) from None


def _load_bundled_digits() -> ImagesAndLabelsBySplit:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()  # Any: scikit-learn does not type its attributes.
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target
    order = np.random.default_rng(derive_seed(0, "digits")).permutation(len(images))
    rows = {
        "train": np.sort(order[_BUNDLED_TEST:]),
        "test": np.sort(order[:_BUNDLED_TEST]),
    }
    return {
        name: (images[indices], labels[indices].astype(np.int64))
        for name, indices in rows.items()
    }
