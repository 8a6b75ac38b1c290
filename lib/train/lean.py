"""Cheaper steps of a training: the same function up to rounding.

On a CPU attention is the plain one of lib.model.scores, hidden states of bfloat16 stay so between
two matrix products, and memory is kept from step to step. Dropout masks may be drawn from random
bytes, three to five times cheaper than a Bernoulli draw for each element. Of the word embeddings
those that the data use are trained alone.
"""

import ctypes
import platform
from contextlib import contextmanager, nullcontext
from functools import cache

import torch
from torch import nn
from torch.nn import functional

from lib.model import scores
from lib.model.parts import base, embedding_output


@cache
def keep_memory():
    """Let the C library keep what a step frees for the next one: else it hands large tensors back
    to the system, and each step pays for some 5,000 fresh pages. Elsewhere than with glibc nothing
    happens.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
        ctypes.CDLL(None).mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at most so many bytes


@contextmanager
def lean(model, numerics):
    """Within, on a CPU, a model's attention is the plain one of lib.model.scores, two to three
    times as fast on short rows as the framework's fused one, and in bfloat16 the hidden states are
    of that type from the embedding on: nothing between two matrix products is then cast to and fro.
    Weights, gates and masks stay in float32. An attention that surgery put in stays. On other
    devices nothing changes but that memory is kept (`keep_memory`).
    """
    keep_memory()
    on_cpu, cast = next(model.parameters()).device.type == "cpu", nullcontext()
    if on_cpu and numerics.dtype == "bfloat16":
        # first of all hooks, so that those who read along see what the layers see
        cast = embedding_output(model).register_forward_hook(
            lambda _, __, output: output.to(torch.bfloat16), prepend=True
        )
    with cast, scores.eager(model, on_cpu):
        yield


def dropped(x, rate):
    """Return `x` with each element 0 with probability round(256 rate) / 256, the others over their
    probability of staying: the mean is kept exactly.

    One 64-bit draw serves eight elements, so the rate is a multiple of 1 / 256 (0.1 becomes
    26 / 256 = 0.1016). A byte of at least `level` keeps its element. Subtraction and clamp say so
    in 0 and 1 several times faster than a comparison would. The scale is a factor of its own, so
    that bfloat16 does not round it.
    """
    level = round(256 * rate)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
    draws = draws.random_(-(2**63), None).view(torch.uint8)[: x.numel()].view(x.shape)
    stays = draws.to(x.dtype).sub_(level - 1).clamp_(0, 1)
    return (x * stays).mul_(256 / (256 - level))


class ByteDropout(nn.Dropout):
    def forward(self, x):
        return dropped(x, self.p) if self.training and self.p else x


@contextmanager
def byte_dropout(model, wanted=True):
    """Within, a model's dropout layers and its attention draw their masks from bytes; does nothing
    unless `wanted`. An attention that surgery put in stays, with the dropout of its own. Attention
    goes through lib.model.scores, as the framework's fused one draws its mask element by element.
    """
    layers = [part for part in model.modules() if wanted and type(part) is nn.Dropout]
    for part in layers:
        part.__class__ = ByteDropout
    try:
        with scores.eager(model, wanted):
            yield
    finally:
        for part in layers:
            part.__class__ = nn.Dropout


class UsedRows(nn.Module):
    """An embedding whose trained weight holds only the rows `used` of the whole table.

    Token ids stay what they are. In training they are looked up among the used rows, in eval mode
    in the whole table, which is brought up to date first.
    """

    def __init__(self, embedding, used):
        super().__init__()
        # In a list, so that it is no submodule: its table is neither trained nor saved twice.
        self.full = [embedding]
        self.used = used
        self.place = torch.full((embedding.num_embeddings,), -1, device=used.device)
        self.place[used] = torch.arange(len(used), device=used.device)
        self.padding_idx = None
        if embedding.padding_idx is not None and self.place[embedding.padding_idx] >= 0:
            self.padding_idx = int(self.place[embedding.padding_idx])
        own = embedding.weight.detach()[used].clone()
        self.weight = nn.Parameter(own, embedding.weight.requires_grad)
        self.train(embedding.training)

    def whole(self):
        """Return the embedding with the trained rows written back."""
        with torch.no_grad():
            self.full[0].weight[self.used] = self.weight
        return self.full[0]

    def forward(self, ids):
        if self.training:
            return functional.embedding(self.place[ids], self.weight, self.padding_idx)
        return self.whole()(ids)


@contextmanager
def used_rows(model, encoded, weight_decay):
    """Within, the model's word embeddings are those of `encoded`; afterwards they are whole again.

    Under Adam without weight decay, a row of the table without a gradient stays as it is. Leaving
    it out of the optimiser changes nothing but the time: a small task uses a few thousand of
    30,522. Does nothing under weight decay, or where the output layer shares the table (masked-LM
    heads).
    """
    if weight_decay or model.get_output_embeddings() is not None:
        yield
        return
    owner = base(model).embeddings
    table = owner.word_embeddings
    if hasattr(table, "word_embeddings"):  # a module around a table
        owner, table = table, table.word_embeddings
    used = torch.from_numpy(encoded.used())
    owner.word_embeddings = UsedRows(table, used.to(table.weight.device))
    try:
        yield
    finally:
        owner.word_embeddings = owner.word_embeddings.whole()
