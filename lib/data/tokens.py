"""This module keeps token ids on disk. They are made once, then read as memory-mapped
arrays, so that memory does not grow with the rows.

    <runs>/.tokens/ids/<key>/    <key>.ids [all tokens, columns], ends.npy [N + 1] and a manifest

The key is a digest of everything that decides the ids. A folder that does not match its
manifest, or has another key than its name, is made again. The module is free of torch.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lib.core import disk, paths

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

T = TypeVar("T")
Columns = dict[str, list[int]]  # These are the columns of one row.


def vocabulary(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return the digest of a tokenizer, which covers its rules and its words."""
    return disk.sha(tokenizer.backend_tokenizer.to_str().encode())[:16]


class Rows:
    """Rows are N rows of token ids of any length.

    ids: the ids of all rows, one after another. ends: [N + 1], the place where each row
    begins and the one where the last row ends."""

    def __init__(self, ids: np.ndarray, ends: np.ndarray) -> None:
        self.ids, self.ends = ids, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.ends[row] : self.ends[row + 1]]

    def lengths(self) -> np.ndarray:
        return np.diff(self.ends)

    def used(self) -> np.ndarray:
        """Return the different ids in the rows, sorted."""
        return np.unique(self.ids)


def cache_rows(
    key: str, rows: Callable[[], Iterable[Columns]], columns: Sequence[str]
) -> dict[str, Rows]:
    """Return {column: Rows} that are kept on disk under a key, and make them where they
    are missing.

    rows: all lists of a row have one length. Rows are written as they come. A reader
    never sees a part of them."""
    folder = paths.runs_root() / ".tokens" / "ids" / key
    file = folder / f"{key}.ids"
    if disk.damage_of_folder(folder) or not file.exists():
        disk.remove(folder)
        try:
            _write(folder, file.name, rows, columns)
        except OSError:
            # Otherwise another process has written the same rows first.
            if disk.damage_of_folder(folder):
                raise
    ids = np.asarray(np.memmap(file, np.int32, "r")).reshape(-1, len(columns))
    ends = np.asarray(np.load(folder / "ends.npy", "r"))
    return {name: Rows(ids[:, i], ends) for i, name in enumerate(columns)}


def _write(
    folder: Path,
    name: str,
    rows: Callable[[], Iterable[Columns]],
    columns: Sequence[str],
) -> None:
    ends = array("q", [0])
    with disk.atomic_path(folder) as place:
        place.mkdir()
        with open(place / name, "wb") as file:
            for row in rows():
                ids = np.array([row[name] for name in columns], np.int32)
                file.write(ids.T.tobytes())
                ends.append(ends[-1] + ids.shape[1])
        np.save(place / "ends.npy", ends)
        disk.seal_folder(place)


def split_chunks(rows: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    """Yield the rows in parts of up to `size` rows."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part
