"""This module makes batches of encoded rows, in an order that seed and epoch alone
decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lib.core.names import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from lib.data import Split
    from lib.data.tokens import Rows

    Ids = list[Any] | Rows  # A row is an array or a list of integers.

POOL = 50  # Rows of so many batches are sorted by length together.


@dataclass(frozen=True)
class Encoded:
    """An Encoded holds N rows as token ids.

    columns: {name: N integer arrays, each as long as its row}, a list or rows on disk
    (lib.data.tokens). labels: [N], int64 codes or float32 scores. pad: the id of the
    padding token."""

    columns: Mapping[str, Ids]
    labels: torch.Tensor | None
    pad: int

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def lengths(self) -> np.ndarray:
        ids = self.columns["input_ids"]
        return np.array([*map(len, ids)]) if isinstance(ids, list) else ids.lengths()

    def used(self) -> np.ndarray:
        """Return each token id that occurs, once, and that of padding."""
        ids = self.columns["input_ids"]
        seen = np.concatenate(ids) if isinstance(ids, list) else ids.used()
        return np.unique(np.append(seen, self.pad)).astype(np.int64)


def encode(
    tokenizer: PreTrainedTokenizerFast, split: Split, max_length: int
) -> Encoded:
    """Return the rows of a Split, cut to at most `max_length` tokens."""
    texts = (split.a,) if split.b is None else (split.a, split.b)
    cut = {"truncation": True, "max_length": max_length, "return_attention_mask": False}
    columns = {
        name: [np.asarray(row, dtype=np.int64) for row in rows]
        for name, rows in tokenizer(*texts, **cut).items()
    }
    return Encoded(columns, torch.as_tensor(split.y), tokenizer.pad_token_id)


def order_batches(
    lengths: np.ndarray, batch: int, seed: int, epoch: int, bucket: bool = True
) -> list[np.ndarray]:
    """Return the batches of one epoch, as row numbers.

    With `bucket`, rows of similar length share a batch: the shuffled rows are sorted by
    length within pools of 50 batches, then the batches are shuffled."""
    generator = np.random.default_rng(stream(seed, f"order:{epoch}"))
    rows = generator.permutation(len(lengths))
    if not bucket:
        return [rows[i : i + batch] for i in range(0, len(rows), batch)]
    batches = []
    for start in range(0, len(rows), POOL * batch):
        pool = rows[start : start + POOL * batch]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [batches[i] for i in generator.permutation(len(batches))]


def collate(
    encoded: Encoded,
    rows: Sequence[int] | np.ndarray,
    pad_to: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, torch.Tensor]:
    """Return the rows as padded tensors [B, T] with their `attention_mask`.

    T is the length of the longest row, or `pad_to` where that is more.
    """
    lengths = np.array([len(encoded.columns["input_ids"][i]) for i in rows])
    real = np.arange(max(pad_to, lengths.max())) < lengths[:, None]
    batch = {"attention_mask": real.astype(np.int64)}
    for name, values in encoded.columns.items():
        batch[name] = np.full(
            real.shape, encoded.pad * (name == "input_ids"), dtype=np.int64
        )
        batch[name][real] = np.concatenate([values[i] for i in rows])
    return {name: torch.from_numpy(table).to(device) for name, table in batch.items()}
