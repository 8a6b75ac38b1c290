"""Dropout from random bytes: on a CPU three to five times cheaper than a Bernoulli draw for each
element.

One 64-bit draw serves eight elements, so the rate is a multiple of 1 / 256 (0.1 becomes 26 / 256 =
0.1016); the scale is that of the true rate, so the mean is kept exactly. Attention goes through
lib.model.scores, because the framework's fused attention draws its mask element by element.
"""

from contextlib import contextmanager

import torch
from torch import nn

from lib.model import scores


def dropped(x, rate):
    """`x` with each element 0 with probability round(256 rate) / 256, the others over their
    probability of staying.

    A byte of at least `level` keeps its element. Subtraction and clamp say so in 0 and 1 several
    times faster than a comparison would. The scale is a factor of its own, so that bfloat16 does
    not round it.
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
    unless `wanted`. An attention that surgery put in stays, with the dropout of its own.
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
