"""This module reads the model and the instruction sets of this machine's processor.

It does not import torch, so that commands which only plan runs start fast."""

import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

# Instruction sets of x86 and ARM, by Linux's names, that are noted with each run. They
# change the rounding of floating-point sums.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "neon", "bf16")
# Instruction sets that multiply numbers of bfloat16.
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")


def read_cpuinfo(field_pattern: str) -> str:
    """Return the value of a field of /proc/cpuinfo for the first processor, or "" where
    there is no such file or field.

    field_pattern: a regular expression for the field's name."""
    with suppress(OSError):
        match = re.search(
            rf"(?m)^(?:{field_pattern})\s*: (.*)$", Path("/proc/cpuinfo").read_text()
        )
        return match[1] if match else ""
    return ""


def read_processor_name() -> str:
    """Return the model name of the processor. It is noted with each run, because models
    round differently."""
    return read_cpuinfo("model name") or platform.processor()


@cache
def list_processor_features() -> list[str]:
    """Return which instruction sets of FEATURES, such as "avx512f", the processor has;
    an empty list outside of Linux."""
    flags = read_cpuinfo("flags|Features").split()
    return [feature for feature in FEATURES if feature in flags]


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for bfloat16.

    Without them PyTorch's matrix products in bfloat16 take 5 to 50 times as long."""
    return not {*BFLOAT16}.isdisjoint(list_processor_features())
