"""A teacher's hidden states on disk, computed once for all students of that teacher.

Shapes: N rows, T tokens of a row, H hidden, S = 2 L + 1 states: the embedding, then the attention
and the layer output of each layer. The rows lie one after another, in one array [sum of T, S * H]
with N + 1 offsets.
"""

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from lib.model.parts import base
from lib.model.taps import taps
from lib.train import loop
from lib.train.batches import collate
from lib.train.lean import lean


def order_of(seen):
    """Return the S states of a taps dict in the order of the file."""
    pairs = zip(seen["attention"], seen["ffn"], strict=True)
    return [seen["embedding"], *(state for pair in pairs for state in pair)]


@torch.no_grad()
def compute(model, encoded, numerics, path, batch=32, progress=lambda fraction: None):
    """Write the states of every row to `path`, in the run's dtype. Returns {"bytes", "tokens"}."""
    model.to(loop.device()).eval()
    lengths = encoded.lengths()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows, table = np.argsort(lengths, kind="stable"), None
    with taps(model) as seen, lean(model, numerics), loop.autocast(numerics):
        for start in range(0, len(rows), batch):
            chosen = rows[start : start + batch]
            base(model)(**collate(encoded, chosen, device=loop.device()))
            states = torch.cat(order_of(seen), -1).to(getattr(torch, numerics.dtype)).cpu()
            if table is None:
                table = torch.empty(int(offsets[-1]), states.shape[-1], dtype=states.dtype)
            for line, row in enumerate(chosen):
                table[offsets[row] : offsets[row + 1]] = states[line, : lengths[row]]
            progress((start + batch) / len(rows))
    save_file({"states": table, "offsets": torch.from_numpy(offsets)}, path)
    return {"bytes": table.numel() * table.element_size(), "tokens": int(offsets[-1])}


def cached(path, layers):
    """Return f(batch, rows) -> (taps dict, None), as `teaching` of lib.train.matching does.

    The states of these row numbers come from disk, padded with zeros to the tokens of the batch.
    """
    there = load_file(path)
    offsets, states = there["offsets"].tolist(), there["states"]

    def teach(batch, rows):
        pieces = [states[offsets[i] : offsets[i + 1]] for i in rows]
        table = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)
        missing = batch["input_ids"].shape[1] - table.shape[1]
        table = torch.nn.functional.pad(table, (0, 0, 0, missing)).to(loop.device())
        parts = table.chunk(2 * layers + 1, -1)
        return {"embedding": parts[0], "attention": parts[1::2], "ffn": parts[2::2]}, None

    return teach
