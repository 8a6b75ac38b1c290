"""This module reads the model and the instruction sets of this machine's processor."""

import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

# Instruction sets of x86 and ARM, by Linux's names, that are noted with each run. They
# change the rounding of floating-point sums.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "neon", "bf16")
# Instruction sets that multiply numbers of bfloat16. A run in bfloat16 on a CPU needs
# one of them.
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")


def read_cpuinfo_field(field_pattern: str) -> str:
    """Return a field of Linux's /proc/cpuinfo, such as "model name", as text.

    It is that of the first processor, and "" where the file or the field is missing.

    field_pattern: a regular expression for the whole name of the field."""
    with suppress(OSError):
        match = re.search(
            rf"(?m)^(?:{field_pattern})\s*: (.*)$", Path("/proc/cpuinfo").read_text()
        )
        return match[1] if match else ""
    return ""


def read_processor_name() -> str:
    """Return the name of this machine's processor, such as "Intel(R) Xeon(R) CPU".

    It is noted with each result, because processors differ in how they round sums."""
    return read_cpuinfo_field("model name") or platform.processor()


@cache
def list_processor_features() -> list[str]:
    """Return the instruction sets of this processor that can change how it rounds sums.

    They are noted with each result. Each has the name that Linux gives it, such as
    "avx2", "avx512f" or "neon". The list is empty on other systems."""
    flags = read_cpuinfo_field("flags|Features").split()
    return [feature for feature in FEATURES if feature in flags]


def has_bfloat16_instructions() -> bool:
    """Return whether the processor has instructions for bfloat16 matrix products.

    Without them PyTorch's matrix products in bfloat16 take 5 to 50 times as long, so
    experiments are run in float32 instead. It is False outside of Linux."""
    return not {*BFLOAT16}.isdisjoint(list_processor_features())
