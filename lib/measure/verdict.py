"""From estimates to verdicts: total functions, so that no verdict is ever typed.

| word | meaning |
|---|---|
| CONFIRMED | the claim is proven at this scale, in each of its cells |
| CONSISTENT | not proven, but the interval holds the published value and is narrower than that effect |
| PARTIAL | proven in some cells only |
| CONTRADICTED | the opposite is proven |
| INCONCLUSIVE | neither: too few seeds, or below the smallest detectable effect |
| NOT_RUN | not measured, or measured at toy scale, which judges deterministic claims only |
| PAPER_INCONSISTENT | the paper prints values that exclude each other |

A *cell* is one comparison of a claim: a width, a rival. With the published effect turned upwards it is
- `missing`: no estimate, or one that is not finite;
- `few`: fewer than `minimum_seeds` seeds, nothing is read from it;
- `above` (`below`): its 95 % interval lies above (below) 0, its Holm-adjusted p is under 0.05, and its mean
  is at least the smallest effect that its seeds can detect;
- `near`: none of these, yet the interval holds the published value and is narrower than it (so excludes 0);
- `open`: the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import copysign, isfinite

from lib.measure.stats import Estimate, detectable, holm

WORDS = ("CONFIRMED", "CONSISTENT", "PARTIAL", "CONTRADICTED", "INCONCLUSIVE", "NOT_RUN",
         "PAPER_INCONSISTENT")
SCALES = {"toy": "at toy scale", "mini": "at mini scale", "paper": "at the paper's scale"}
ALPHA = 0.05


@dataclass(frozen=True)
class Verdict:
    claim: str
    verdict: str                          # one of WORDS
    measured: str                         # one readable line
    interval: tuple[float, float] | None  # 95 %, in the unit of `measured`; envelope of several cells
    note: str
    runs: int                             # as given, else two a pair, where a shared baseline counts again
    scale: str


def _usable(e):
    return e is not None and e.n_seeds > 0 and isfinite(e.mean) and isfinite(e.low) and isfinite(e.high)


def holm_over(estimates: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict[str, float]]:
    """Adjusted p-values over every cell of a family of claims, {claim: {cell: p}}: the judges' `p_values`."""
    keys = [(claim, name) for claim, cells in estimates.items() for name, e in cells.items() if _usable(e)]
    family = {claim: {} for claim in estimates}
    for (claim, name), p in zip(keys, holm([estimates[c][n].p for c, n in keys]), strict=True):
        family[claim][name] = float(p)
    return family


def _state(e, published, p, minimum_seeds):
    """The state of one cell, as the module describes it."""
    if not _usable(e):
        return "missing"
    if e.n_seeds < minimum_seeds:
        return "few"
    low, high = (e.low, e.high) if copysign(1, published) > 0 else (-e.high, -e.low)
    if p < ALPHA and abs(e.mean) >= detectable(e.spread, e.n_seeds) and (low > 0 or high < 0):
        return "above" if low > 0 else "below"
    return "near" if low <= abs(published) <= high and high - low < abs(published) else "open"


def _word(states, mixed):
    if states <= {"missing"}:
        return "NOT_RUN"
    if "below" in states:
        return mixed if "above" in states else "CONTRADICTED"
    if "above" in states:
        return "CONFIRMED" if states == {"above"} else "PARTIAL"
    return "CONSISTENT" if states == {"near"} else "INCONCLUSIVE"


def _line(name, e, unit):
    if not _usable(e):
        return f"not measured {name}".strip()
    digits = 1 if unit == "points" else 3
    return (f"{e.mean:+.{digits}f} {unit} {name}".strip() + f" [{e.low:.{digits}f}, {e.high:.{digits}f}], "
            f"n = {e.n_seeds} seed" + "s" * (e.n_seeds != 1))


def _verdict(claim, word, estimates, notes, profile, failed, runs, unit):
    """Puts a verdict together; toy scale overrules the word, failed runs enter the note."""
    usable = [e for e in estimates.values() if _usable(e)]
    if profile == "toy":
        word, notes = "NOT_RUN", ["toy scale judges deterministic claims only", *notes]
    elif word == "NOT_RUN" and failed:
        word = "INCONCLUSIVE"  # it was run, and nothing came of it
    if failed:
        notes = [*notes, f"{failed} failed or diverged run{'s' * (failed != 1)} left out"]
    measured = "; ".join(_line(name, e, unit) for name, e in estimates.items()) or "not measured"
    interval = (min(e.low for e in usable), max(e.high for e in usable)) if usable else None
    runs = 2 * sum(e.n_pairs for e in usable) if runs is None else runs
    return Verdict(claim, word, measured, interval, "; ".join(filter(None, notes)), runs, SCALES[profile])


def judge_delta(claim_id: str, estimates: Mapping[str, Estimate], published: Mapping[str, float],
                profile: str, minimum_seeds: int = 3, p_values: Mapping[str, float] | None = None,
                failed: int = 0, runs: int | None = None, unit: str = "points", mixed: str = "PARTIAL",
                word: str = "at") -> Verdict:
    """A difference with the sign of its published value, at each cell such as a width.

    | cells | verdict |
    |---|---|
    | none, or all missing | NOT_RUN (INCONCLUSIVE if runs failed) |
    | all above | CONFIRMED |
    | some above, none below | PARTIAL |
    | some above, some below | `mixed`: PARTIAL |
    | some below, none above | CONTRADICTED |
    | all near | CONSISTENT |
    | else | INCONCLUSIVE |

    Cells are those published and those estimated; without a published value a cell is judged for > 0.
    `p_values` are adjusted over a wider family (`holm_over`), by default over these cells; `failed` runs are
    counted in the note; `word` stands before a cell's name in the text.
    """
    cells = {name: estimates.get(name) for name in (*published, *estimates)}
    size = {name: float(published.get(name, 0.0)) for name in cells}
    size = {name: v if isfinite(v) else copysign(0.0, v) for name, v in size.items()}  # 0: only a direction
    p = holm_over({"": cells})[""] if p_values is None else p_values
    state = {n: _state(e, size[n], p.get(n, 1.0), minimum_seeds) for n, e in cells.items()}
    outside = [n for n, e in cells.items() if state[n] not in ("missing", "few") and size[n]
               and not e.low <= size[n] <= e.high]
    notes = [f"{text}: {', '.join(names)}" if any(names) else text for text, names in (
        ("missing", [n for n in cells if state[n] == "missing"]),
        (f"fewer than {minimum_seeds} seeds", [n for n in cells if state[n] == "few"]),
        ("opposite to the claim", [n for n in cells if state[n] == "below"]),
        ("not proven to differ from 0", [n for n in cells if state[n] in ("near", "open")]),
        ("published size outside the interval", outside)) if names]
    shown = {f"{word} {n}" if n else "": e for n, e in cells.items()}
    return _verdict(claim_id, _word(set(state.values()), mixed), shown, notes, profile, failed, runs, unit)


def judge_ordering(claim_id: str, estimates: Mapping[str, Estimate], published: Mapping[str, float],
                   profile: str, **options) -> Verdict:
    """x above each rival: cells are rivals y, estimates and published values x - y, options as `judge_delta`.

    The same table, but a rival proven better is enough: some below is CONTRADICTED, whatever the others.
    """
    return judge_delta(claim_id, estimates, published, profile, mixed="CONTRADICTED", word="over", **options)


def judge_trend(claim_id: str, estimate: Estimate | None, sign: int, profile: str,
                published: float | None = None, p_value: float | None = None, unit: str = "points per unit",
                **options) -> Verdict:
    """A slope of this sign, +1 or -1; `published` is the printed values' slope; options as `judge_delta`.

    One cell: missing NOT_RUN, above CONFIRMED, below CONTRADICTED, near CONSISTENT, few or open INCONCLUSIVE;
    a published slope against `sign` raises, for then the claim is transcribed wrongly.
    """
    if sign not in (1, -1) or (published or 0.0) * sign < 0:
        raise ValueError(f"{claim_id}: sign {sign!r} must be 1 or -1, the sign of published {published!r}")
    return judge_delta(claim_id, {"": estimate}, {"": copysign(published or 0.0, sign)}, profile, unit=unit,
                       p_values=None if p_value is None else {"": p_value}, **options)


def judge_within(claim_id: str, estimate: Estimate | None, low: float, high: float, profile: str,
                 minimum_seeds: int = 3, failed: int = 0, runs: int | None = None,
                 unit: str = "points") -> Verdict:
    """A difference within a margin fixed beforehand: equivalent; with one infinite end, not worse or no gain.

    missing NOT_RUN; few INCONCLUSIVE; interval inside [low, high] CONFIRMED, wholly outside CONTRADICTED,
    across an end INCONCLUSIVE.
    """
    word, notes = "INCONCLUSIVE", [f"margin [{low:g}, {high:g}]"]
    if not _usable(estimate):
        word = "NOT_RUN"
    elif estimate.n_seeds < minimum_seeds:
        notes.append(f"fewer than {minimum_seeds} seeds")
    elif low <= estimate.low and estimate.high <= high:
        word = "CONFIRMED"
    elif estimate.high < low or estimate.low > high:
        word = "CONTRADICTED"
    return _verdict(claim_id, word, {"": estimate}, notes, profile, failed, runs, unit)


def judge_reached(claim_id: str, estimates: Mapping[str, Estimate], printed: Mapping[str, str], scale: str,
                  unit: str = "times", runs: int = 1) -> Verdict:
    """Something measured at full size, such as a speed-up, against the printed digits: reached where the interval holds
    what rounds to them, or lies above. It does not depend on a profile; `scale` says where it was measured.

    | cells | verdict |
    |---|---|
    | none measured | NOT_RUN |
    | all reached | CONFIRMED |
    | some reached, others not or not measured | PARTIAL |
    | none reached | CONTRADICTED |
    """
    there = {name: estimates[name] for name in printed if _usable(estimates.get(name))}
    reached = [name for name, e in there.items() if e.high >= float(_rounding_range(printed[name])[0])]
    word = ("NOT_RUN" if not there else "CONFIRMED" if len(reached) == len(printed) else
            "PARTIAL" if reached else "CONTRADICTED")
    measured = "; ".join(f"{name} {e.mean:.2f} {unit} [{e.low:.2f}, {e.high:.2f}], {printed[name]} printed"
                         for name, e in there.items()) or "not measured"
    notes = {"below the printed value": [name for name in there if name not in reached],
             "missing": [name for name in printed if name not in there]}
    return Verdict(claim_id, word, measured, (min(e.low for e in there.values()), max(e.high for e in there.values()))
                   if there else None, "; ".join(f"{k}: {', '.join(names)}" for k, names in notes.items() if names), runs, scale)


def _rounding_range(printed):
    """What a printed number stands for: half a unit of its last digit either way, "14.5": 14.45 to 14.55."""
    value = Decimal(str(printed).replace(",", ""))
    half = Decimal(1).scaleb(value.as_tuple().exponent) / 2
    return value - half, value + half


def judge_equal(claim_id: str, computed: Mapping[str, float] | float | None,
                printed: Mapping[str, str | Sequence[str]] | str | float, runs: int = 0) -> Verdict:
    """Deterministic values against the printed digits (as text, to keep "14.50"), at any profile, also toy.

    | cells | verdict |
    |---|---|
    | none computed | NOT_RUN |
    | some printed in several places (a list) with values that no number rounds to | PAPER_INCONSISTENT |
    | all equal | CONFIRMED |
    | some equal, others differ or are missing | PARTIAL |
    | none equal | CONTRADICTED |
    """
    printed = printed if isinstance(printed, Mapping) else {"": printed}
    computed = computed if isinstance(computed, Mapping) else {"": computed}
    cells = {"equal": [], "differs": [], "missing": [], "inconsistent": []}
    for name, text in printed.items():
        places = list(text) if isinstance(text, list | tuple) else [text]
        lows, highs = zip(*map(_rounding_range, places), strict=True)
        value, shown = computed.get(name), f"{' and '.join(map(str, places))} printed"
        if value is None or not isfinite(value):
            cells["missing"].append(name or "value")
        elif max(lows) > min(highs):
            cells["inconsistent"].append(f"{name} {shown}".strip())
        else:
            number = Decimal(str(value))
            equal = max(lows) <= number <= min(highs)
            cells["equal" if equal else "differs"].append(f"{name} {number} computed, {shown}".strip())
    if len(cells["missing"]) == len(printed):
        word = "NOT_RUN"
    elif cells["inconsistent"]:
        word = "PAPER_INCONSISTENT"
    elif len(cells["equal"]) == len(printed):
        word = "CONFIRMED"
    else:
        word = "PARTIAL" if cells["equal"] else "CONTRADICTED"
    single = cells["equal"] + cells["differs"] if len(printed) == 1 else []
    measured = single[0] if single else f"{len(cells['equal'])} of {len(printed)} equal to the printed digits"
    note = "; ".join(f"{k}: {', '.join(names)}" for k, names in cells.items() if names and k != "equal")
    return Verdict(claim_id, word, measured, None, note, runs, "any scale")
