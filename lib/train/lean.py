"""Cheaper passes of an encoder on a CPU: the same function up to rounding."""

import ctypes
import platform
from contextlib import contextmanager, nullcontext
from functools import cache

import torch
from torch import nn

from lib.model import scores
from lib.model.parts import embedding_output, layers


@cache
def keep_memory():
    """Let the C library keep what a step frees for the next one: else it hands large tensors back
    to the system, and each step pays for some 5,000 fresh pages. Elsewhere than with glibc nothing
    happens.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
        ctypes.CDLL(None).mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at most so many bytes


def frozen(model, numerics):
    """A model that no longer learns, the weights of its plain linear layers cast once instead of in
    every pass.
    """
    if numerics.dtype == "bfloat16":
        for part in layers(model).modules():
            if type(part) is nn.Linear:
                part.bfloat16()
    return model


@contextmanager
def lean(model, numerics):
    """Within, on a CPU, a model's attention is the plain one of lib.model.scores, two to three
    times as fast on short rows as the framework's fused one, and in bfloat16 the hidden states are
    of that type from the embedding on: nothing between two matrix products is then cast to and fro.
    Weights, gates and masks stay in float32. An attention that surgery put in stays. Does nothing
    on other devices.
    """
    on_cpu, cast = next(model.parameters()).device.type == "cpu", nullcontext()
    if on_cpu and numerics.dtype == "bfloat16":
        # first of all hooks, so that those who read along see what the layers see
        cast = embedding_output(model).register_forward_hook(
            lambda _, __, output: output.to(torch.bfloat16), prepend=True
        )
    with cast, scores.eager(model, on_cpu):
        yield
