"""This module makes training steps faster.

On a CPU, attention is computed by the eager function of lib.model.scores, hidden states
stay in bfloat16 between two matrix products, and freed memory is reused in the next
step. Only those rows of the word embeddings are trained that the data use. All this
changes results only by rounding. Dropout masks may be drawn from random bytes, which is
three to five times cheaper than a Bernoulli draw for each element. The masks then
differ from PyTorch's, and dropout rates are rounded to multiples of 1 / 256."""

import ctypes
import platform
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from lib.core.options import Numerics
from lib.core.types import ContextYield
from lib.model import scores
from lib.model.parts import get_encoder, get_last_embedding_module
from lib.train.batches import EncodedRows


@cache
def configure_malloc_to_keep_memory() -> None:
    """Let the C library keep the memory that a training step frees, for the next step.

    Otherwise it returns large tensors to the system, and each step has some 5,000 page
    faults, which cost time. It changes the whole process. Without glibc nothing
    happens."""
    if platform.libc_ver()[0] == "glibc":
        # -1 is the option M_TRIM_THRESHOLD: up to 1 GiB of free memory stays with the
        # process.
        ctypes.CDLL(None).mallopt(-1, 1 << 30)
        # -3 is the option M_MMAP_THRESHOLD, here with its largest value, 32 MiB:
        # smaller tensors are allocated from the memory that stayed with the process.
        ctypes.CDLL(None).mallopt(-3, 32 << 20)


@contextmanager
def speed_up_passes_on_cpu(
    model: PreTrainedModel, numerics: Numerics
) -> ContextYield[None]:
    """Make the passes of a model on a CPU faster during a `with` block.

    The model's attention is computed by separate matrix products ("eager"), which on
    short rows is two to three times as fast as PyTorch's fused attention. With the
    dtype bfloat16, hidden states have it from the embedding on, so that no casts are
    needed between matrix products; weights stay in float32. On every device, the
    process keeps freed memory for the next step (`configure_malloc_to_keep_memory`).

    numerics: says the dtype of the passes."""
    configure_malloc_to_keep_memory()
    on_cpu, cast = next(model.parameters()).device.type == "cpu", nullcontext()
    if on_cpu and numerics.dtype == "bfloat16":
        # This hook runs before all other hooks of the module, so that they get the same
        # bfloat16 states as the layers.
        cast = get_last_embedding_module(model).register_forward_hook(
            lambda _, __, output: output.to(torch.bfloat16), prepend=True
        )
    with cast, scores.use_eager_attention(model, on_cpu):
        yield


def apply_dropout_by_random_bytes(
    activations: Tensor, drop_probability: float
) -> Tensor:
    """Apply dropout to a tensor with a mask of random bytes, which is cheap to draw.

    Each element is set to 0 with probability level / 256, where level = round(256 *
    drop_probability); so 0.1 becomes 26 / 256 = 0.1016. The other elements are divided
    by their probability of staying, so that the mean does not change. Where level is
    256, all are 0. One 64-bit draw serves eight elements."""
    level = round(256 * drop_probability)
    if level == 256:
        return activations * 0
    draws = torch.empty(
        (activations.numel() + 7) // 8, dtype=torch.int64, device=activations.device
    )
    draws = (
        draws.random_(-(2**63), None)
        .view(torch.uint8)[: activations.numel()]
        .view(activations.shape)
    )
    # An element is kept where its random byte is at least `level`. Clamp and
    # subtraction turn such a byte into 1 and any other into 0, ten times as fast as a
    # comparison.
    stays = draws.clamp_(max(level - 1, 0), level).sub_(level - 1).to(activations.dtype)
    # The scale is multiplied in as a Python float, at the end. As a factor of the
    # bfloat16 mask it would be rounded.
    return (activations * stays).mul_(256 / (256 - level))


class ByteDropout(nn.Dropout):
    # pyrefly: ignore[bad-override-param-name]  # Torch calls modules by position.
    def forward(self, x: Tensor) -> Tensor:
        return (
            apply_dropout_by_random_bytes(x, self.p) if self.training and self.p else x
        )


@contextmanager
def use_dropout_by_random_bytes(
    model: PreTrainedModel, is_enabled: bool = True
) -> ContextYield[None]:
    """Let a model draw its dropout masks from random bytes during a `with` block.

    This is faster than PyTorch's dropout. Rates become multiples of 1 / 256. Attention
    is computed without a fused kernel, because PyTorch's fused kernel draws its own
    mask element by element.

    is_enabled: False leaves the model unchanged."""
    layers = [
        part for part in model.modules() if is_enabled and type(part) is nn.Dropout
    ]
    for part in layers:
        part.__class__ = ByteDropout
    try:
        with scores.use_eager_attention(model, is_enabled):
            yield
    finally:
        for part in layers:
            part.__class__ = nn.Dropout


class TrainableEmbeddingRows(nn.Module):
    """A TrainableEmbeddingRows is an embedding that trains only some rows of a larger
    one.

    A small task uses few tokens, so the optimiser has much less to update. Token ids
    are those of the larger embedding. In training they are looked up among the used
    rows. In eval mode they are looked up in the full table, into which the trained rows
    are copied first.

    embedding: the larger embedding, which has the full table.
    used_token_ids: the token ids whose rows are trained; all training rows must be made
    of them."""

    def __init__(self, embedding: nn.Embedding, used_token_ids: Tensor) -> None:
        super().__init__()
        # torch does not look for submodules in lists. So the embedding with the full
        # table is no submodule, and is neither trained nor saved with this module.
        self.full = [embedding]
        self.used = used_token_ids
        self.place = torch.full(
            (embedding.num_embeddings,), -1, device=used_token_ids.device
        )
        self.place[used_token_ids] = torch.arange(
            len(used_token_ids), device=used_token_ids.device
        )
        self.padding_idx = None
        if embedding.padding_idx is not None and self.place[embedding.padding_idx] >= 0:
            self.padding_idx = int(self.place[embedding.padding_idx])
        rows = embedding.weight.detach()[used_token_ids].clone()
        self.weight = nn.Parameter(rows, embedding.weight.requires_grad)
        self.train(embedding.training)

    def restore_full_embedding(self) -> nn.Embedding:
        """Copy the trained rows into the embedding that has the full table; return it.

        After training, the caller puts this embedding back into the model."""
        with torch.no_grad():
            self.full[0].weight[self.used] = self.weight
        return self.full[0]

    def forward(self, token_ids: Tensor) -> Tensor:
        if self.training:
            return functional.embedding(
                self.place[token_ids], self.weight, self.padding_idx
            )
        return self.restore_full_embedding()(token_ids)


@contextmanager
def train_only_embedding_rows_in_data(
    model: PreTrainedModel, encoded: EncodedRows, weight_decay: float
) -> ContextYield[None]:
    """Train only the word embeddings of tokens that occur in the training rows.

    This holds during a `with` block; afterwards the model has its full table again.
    Adam without weight decay does not change a row that never has a gradient. So
    leaving it out of the optimiser saves time and changes no result: a small task uses
    a few thousand rows of 30,522. With weight decay, or where the output layer shares
    the table (masked-LM heads), the full table is trained.

    encoded: the tokenised training rows."""
    if weight_decay or model.get_output_embeddings() is not None:
        yield
        return
    owner: Any = get_encoder(model).embeddings
    table = owner.word_embeddings
    # In EfficientBERT's network this attribute is a module `TrigramEmbedding`
    # (lib.model.stack). The table is an attribute of the same name inside it.
    if hasattr(table, "word_embeddings"):
        owner, table = table, table.word_embeddings
    used = torch.from_numpy(encoded.list_distinct_token_ids())
    owner.word_embeddings = TrainableEmbeddingRows(table, used.to(table.weight.device))
    try:
        yield
    finally:
        owner.word_embeddings = owner.word_embeddings.restore_full_embedding()
