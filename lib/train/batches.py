"""This module makes batches of tokenised rows, in a random order that is drawn from
seed and epoch, so that training can be repeated and resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lib.core.names import derive_seed
from lib.core.types import ModelInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from lib.data import Split
    from lib.data.tokens import TokenRows

    # Token ids of rows: a list of arrays or lists of integers, or rows on disk.
    Ids = list[Any] | TokenRows

# Number of batches whose rows are sorted by length together, which saves padding.
POOL = 50


@dataclass(frozen=True)
class EncodedRows:
    """An EncodedRows holds N tokenised rows with their labels, unpadded: `make_batch`
    pads.

    Padding batch by batch is cheaper than padding all N rows to one length.

    columns: {model input, such as "input_ids": N integer arrays, each as long as its
    row}. The N arrays are a list, or on disk (lib.data.tokens).
    labels: int64 classes or float32 scores [N], or int64 token positions [N, 2] of
    answer spans; None for rows without labels.
    padding_id: the id of the padding token."""

    columns: Mapping[ModelInput, Ids]
    labels: torch.Tensor | None
    padding_id: int

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def compute_row_lengths(self) -> np.ndarray:
        ids = self.columns["input_ids"]
        return (
            np.array([*map(len, ids)])
            if isinstance(ids, list)
            else ids.compute_row_lengths()
        )

    def list_distinct_token_ids(self) -> np.ndarray:
        """Return the distinct token ids of the rows and the padding token, sorted.

        They are int64. Other tokens get no gradient, so only the embeddings of these
        need to be trained (lib.train.lean)."""
        ids = self.columns["input_ids"]
        seen = (
            np.concatenate(ids)
            if isinstance(ids, list)
            else ids.list_distinct_token_ids()
        )
        return np.unique(np.append(seen, self.padding_id)).astype(np.int64)


def encode_split(
    tokenizer: PreTrainedTokenizerFast, split: Split, max_length: int
) -> EncodedRows:
    """Tokenise the rows of a Split, such as the training rows of a task.

    A Split has one or two texts and a label for each row. Returns tokenised rows with
    their labels, not yet padded.

    max_length: the number of tokens to which longer rows are cut."""
    cut = {"truncation": True, "max_length": max_length, "return_attention_mask": False}
    columns = {
        name: [np.asarray(row, dtype=np.int64) for row in rows]
        for name, rows in tokenizer(*split.list_text_columns(), **cut).items()
    }
    return EncodedRows(columns, torch.as_tensor(split.y), tokenizer.pad_token_id)


def shuffle_row_numbers_into_batches(
    row_lengths: np.ndarray,
    batch_size: int,
    seed: int,
    epoch: int,
    groups_similar_lengths: bool = True,
) -> list[np.ndarray]:
    """Return the row numbers of each batch of one epoch, in the order of training.

    The order is pseudo-random: equal arguments give equal batches, so that a training
    can be repeated and resumed.

    row_lengths: the number of tokens of each row [N].
    batch_size: rows of a batch; one batch may have fewer.
    groups_similar_lengths: whether rows of similar length share a batch, which saves
    padding. Then shuffled rows are sorted by length within pools of 50 batches (POOL),
    and the batches are shuffled."""
    generator = np.random.default_rng(derive_seed(seed, f"order:{epoch}"))
    rows = generator.permutation(len(row_lengths))
    if not groups_similar_lengths:
        return [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    batches = []
    for start in range(0, len(rows), POOL * batch_size):
        pool = rows[start : start + POOL * batch_size]
        pool = pool[np.argsort(row_lengths[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def make_batch(
    encoded: EncodedRows,
    row_numbers: Sequence[int] | np.ndarray,
    min_token_count: int = 0,
    device: torch.device | str = "cpu",
) -> dict[ModelInput, torch.Tensor]:
    """Pad some tokenised rows to one length, and return them as a batch for a model.

    The batch is {model input, such as "input_ids": int64 tensor [B, T]}, with
    `attention_mask` (1 for real tokens). T is the length of the longest row, or
    `min_token_count` where that is more.

    row_numbers: the numbers of the rows in `encoded`.
    device: where the tensors are put."""
    lengths = np.array([len(encoded.columns["input_ids"][i]) for i in row_numbers])
    real = np.arange(max(min_token_count, lengths.max())) < lengths[:, None]
    batch = {"attention_mask": real.astype(np.int64)}
    for name, values in encoded.columns.items():
        batch[name] = np.full(
            real.shape, encoded.padding_id * (name == "input_ids"), dtype=np.int64
        )
        batch[name][real] = np.concatenate([values[i] for i in row_numbers])
    return {name: torch.from_numpy(table).to(device) for name, table in batch.items()}
