"""This module tells what the processor of this machine can do. It is free of torch, as
grids ask it."""

import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

# A run notes which of these its processor has, in the words of Linux: on x86 and on
# ARM.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "neon", "bf16")
# Each of these multiplies numbers of bfloat16.
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")


def read_cpuinfo(head: str) -> str:
    """Return what Linux tells of its first processor behind one of some words, or
    ""."""
    with suppress(OSError):
        match = re.search(
            rf"(?m)^(?:{head})\s*: (.*)$", Path("/proc/cpuinfo").read_text()
        )
        return match[1] if match else ""
    return ""


def name() -> str:
    """Return the model name of the processor, which decides the last bits of a
    training."""
    return read_cpuinfo("model name") or platform.processor()


@cache
def features() -> list[str]:
    """Return which of FEATURES the processor has. None are known where the system is
    not Linux."""
    flags = read_cpuinfo("flags|Features").split()
    return [feature for feature in FEATURES if feature in flags]


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for bfloat16.

    PyTorch needs 5 to 50 times as long for a matrix product of bfloat16 where it has
    none."""
    return not {*BFLOAT16}.isdisjoint(features())
