"""This module caches the token ids of data sets on disk. They are computed once, then
read as memory-mapped arrays, so that memory does not grow with the number of rows.

    <runs>/.tokens/ids/<key>/    has <key>.ids, ends.npy and a manifest (digests)

<key>.ids is int32 [tokens of all rows, model inputs]; ends.npy [N + 1] says where each
of the N rows begins and ends. The key is a digest of all that the ids depend on: texts,
tokenizer, length. A folder that is damaged, or has the file of another key, is made
again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from lib.core import disk, paths
from lib.core.types import ModelInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

T = TypeVar("T")
# A value for each token of a row, such as its id.
ValuesOfTokens: TypeAlias = list[int]


def digest_tokenizer(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return a digest of a tokenizer's vocabulary and rules: 16 hex digits.

    The digest is part of the key under which token ids are cached on disk, so that the
    cached ids of one tokenizer are never taken for those of another."""
    return disk.digest_bytes(tokenizer.backend_tokenizer.to_str().encode())[:16]


class TokenRows:
    """TokenRows are the token ids of N rows of different lengths, stored as one flat
    array.

    `rows[i]` returns the ids of row i. The array may be mapped from a file, so that
    memory does not grow with N.

    token_ids: the ids of all rows, concatenated, int32.
    row_ends: offsets [N + 1], the first of them 0: row i is token_ids[row_ends[i] :
    row_ends[i + 1]]."""

    def __init__(self, token_ids: np.ndarray, row_ends: np.ndarray) -> None:
        self.ids, self.ends = token_ids, row_ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.ends[row] : self.ends[row + 1]]

    def compute_row_lengths(self) -> np.ndarray:
        return np.diff(self.ends)

    def list_distinct_token_ids(self) -> np.ndarray:
        """Return the different token ids that occur in these rows of text, sorted.

        Only the embeddings of such tokens get gradients in a training on the rows, so
        the training can leave out all other embeddings."""
        return np.unique(self.ids)


def load_or_compute_token_rows(
    cache_key: str,
    iterate_rows: Callable[[], Iterable[dict[ModelInput, ValuesOfTokens]]],
    input_names: Sequence[ModelInput],
) -> dict[ModelInput, TokenRows]:
    """Return the tokenised rows of a data set from a cache on disk.

    The result is {model input, such as "input_ids": TokenRows of its values}. Where the
    cache is missing or damaged, the rows are computed and written first. So a data set
    is tokenised once. The arrays are mapped from the file, so memory does not grow with
    the number of rows.

    cache_key: a digest of all that the values depend on (texts, tokenizer, length).
    iterate_rows: function that yields {model input: list of values} for each row; the
    lists of a row have one length. It is called only where the cache is missing or
    damaged.
    input_names: the names of the model inputs, such as "input_ids"."""
    folder = paths.runs_root() / ".tokens" / "ids" / cache_key
    file = folder / f"{cache_key}.ids"
    if disk.describe_folder_damage(folder) or not file.exists():
        disk.remove_path(folder)
        _write_token_rows(folder, file.name, iterate_rows, input_names)
    ids = np.asarray(np.memmap(file, np.int32, "r")).reshape(-1, len(input_names))
    ends = np.asarray(np.load(folder / "ends.npy", "r"))
    return {name: TokenRows(ids[:, i], ends) for i, name in enumerate(input_names)}


def _write_token_rows(
    folder: Path,
    file_name: str,
    iterate_rows: Callable[[], Iterable[dict[ModelInput, ValuesOfTokens]]],
    input_names: Sequence[ModelInput],
) -> None:
    ends = array("q", [0])
    with disk.write_atomically(folder, accepts_existing_folder=True) as place:
        place.mkdir()
        with open(place / file_name, "wb") as file:
            for row in iterate_rows():
                ids = np.array([row[name] for name in input_names], np.int32)
                file.write(ids.T.tobytes())
                ends.append(ends[-1] + ids.shape[1])
        np.save(place / "ends.npy", ends)
        disk.write_manifest(place)


def split_into_chunks(rows: Iterable[T], chunk_size: int = 1000) -> Iterator[list[T]]:
    """Yield the items of an iterable in lists of up to `chunk_size` items."""
    rows = iter(rows)
    while part := list(islice(rows, chunk_size)):
        yield part
