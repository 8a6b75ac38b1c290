"""Computed values against the digits that a paper prints."""

from decimal import Decimal
from math import isfinite

from lib.measure.claims import Verdict


def rounds_to(number, printed):
    """Whether a Decimal rounds to the printed digits, a half away from zero: 80.35 to 80.4."""
    value = Decimal(str(printed).replace(",", ""))
    half = Decimal(1).scaleb(value.as_tuple().exponent) / 2
    low, high = value - half, value + half  # "14.5" is from 14.45 to 14.55
    return low < number < high or number == (low if low > 0 else high if high < 0 else None)


def check(claim, computed, printed):
    """The Verdict on computed values against the printed digits, at any profile, also toy.

    computed and printed are {name: value}, or one value each. Printed values are text, to keep the
    digits of "14.50". None computed is NOT_RUN, all equal CONFIRMED, some equal PARTIAL, none equal
    CONTRADICTED.
    """
    printed = printed if isinstance(printed, dict) else {"": printed}
    computed = computed if isinstance(computed, dict) else {"": computed}
    states = {"equal": [], "differs": [], "missing": []}
    for name, text in printed.items():
        value = computed.get(name)
        if value is None or not isfinite(value):
            states["missing"].append(name or "value")
            continue
        number = Decimal(str(value))
        line = f"{name} {number} computed, {text} printed".strip()
        states["equal" if rounds_to(number, text) else "differs"].append(line)
    same, lost = len(states["equal"]), len(states["missing"])
    word = "PARTIAL" if same else "NOT_RUN" if lost == len(printed) else "CONTRADICTED"
    if same == len(printed):
        word = "CONFIRMED"
    single = states["equal"] + states["differs"] if len(printed) == 1 else []
    measured = "; ".join(single) or f"{same} of {len(printed)} equal to the printed digits"
    note = [f"{k}: {', '.join(names)}" for k, names in states.items() if names and k != "equal"]
    return Verdict(claim, word, measured, "; ".join(note))
