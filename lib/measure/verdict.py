"""From estimates to verdicts: total functions, so that no verdict is ever typed.

A claim has one or more *cells*, its comparisons: a width, a rival. It is confirmed when all of them are. So each cell is
tested at 5 % as it stands, and the p of the claim is the largest of its cells (intersection-union test). What one cell of
several is enough for, PARTIAL and CONTRADICTED, takes the cells' p after Holm. `holm_paper` adjusts over a paper's claims.

With the published effect turned upwards a cell is
- `missing`: no estimate, or one that is not finite;
- `few`: fewer than `minimum_seeds` seeds, nothing is read from it;
- `above` (`below`): its 95 % interval lies above (below) 0 and its p is under 0.05;
- `near`: none of these, yet the interval holds the published value and is narrower than it (so excludes 0);
- `open`: the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import copysign, inf, isfinite

from scipy.stats import norm

from lib.measure.stats import Estimate, detectable, holm, power

# What each word means for a finding: (its mark, how it is counted, a line), and what an arithmetic check says instead.
WORDS = {
    "CONFIRMED": (
        "✓",
        "held",
        "the claim is proven at this scale, in each of its cells (widths, rivals); its size may differ",
    ),
    "CONSISTENT": (
        "≈",
        "open",
        "not proven, but the interval holds the published value and is narrower than that effect",
    ),
    "PARTIAL": ("◐", "held in part", "proven in some cells only"),
    "CONTRADICTED": ("✗", "did not hold", "the opposite is proven at this scale"),
    "INCONCLUSIVE": (
        "?",
        "open",
        "nothing is proven: too few seeds, or an interval that holds 0 or an end of the margin",
    ),
    "NOT_RUN": (
        "–",
        "open",
        "not measured, or measured at toy scale, which judges arithmetic alone",
    ),
    "PAPER_INCONSISTENT": (
        "!",
        "the paper contradicts itself",
        "the paper prints values that exclude each other",
    ),
}
CHECKS = {
    "CONFIRMED": "= equal",
    "PARTIAL": "≠ partly equal",
    "CONTRADICTED": "≠ differs",
    "NOT_RUN": "– not computed",
    "PAPER_INCONSISTENT": "! printed twice, not alike",
}
READING = (
    "A finding rests on runs. An arithmetic check recomputes what the paper prints (settings, sums, counts), and is counted "
    "apart.",
    "Intervals and p are of this claim alone, at 95 % and 5 %; its p is the largest of its cells. Fewer than 3 seeds prove "
    "nothing, and the interval of one seed covers examples alone. The board, python -m lib evidence --list, adjusts p over the "
    "claims of a paper (Holm).",
    "Power: how often the planned seeds would confirm the printed effect, with the spread of the paired differences seen so far.",
    "Provisional: fewer seeds than planned are done, so the word may change.",
)
SCALES = {"toy": "at toy scale", "mini": "at mini scale", "paper": "at the paper's scale"}
ALPHA = 0.05


@dataclass(frozen=True)
class Cell:
    """One comparison of a claim, as measured, and the interval that it is to lie in."""

    name: str
    published: float | None  # None: a direction alone is printed
    mean: float
    low: float
    high: float
    seeds: int
    spread: float | None  # sd of the seeds' differences; None where it is not known
    noise: float  # sd of the mean that examples alone cause
    bounds: tuple[float | None, float | None]  # confirmed within; None: no end


@dataclass(frozen=True)
class Verdict:
    claim: str
    verdict: str  # one of WORDS
    measured: str  # one readable line
    interval: (
        tuple[float, float] | None
    )  # 95 %, in the unit of `measured`; envelope of several cells
    note: str
    runs: int  # as given, else two a pair, where a shared baseline counts again
    scale: str
    kind: str = "finding"  # or "arithmetic"
    p: float | None = None  # two-sided, of the claim as a whole; None where there is none
    cells: tuple[Cell, ...] = ()  # those measured
    planned: int | None = None  # seeds; None: nothing is said
    unseen: int = 0  # rows of no development set among those of a task that it rests on

    @property
    def seeds(self):
        """Seeds of the cell that has fewest; None where nothing is counted in seeds."""
        return min((cell.seeds for cell in self.cells), default=None)

    @property
    def provisional(self):
        """What stands beside the word until the planned seeds are there."""
        short = (
            self.planned
            and self.seeds is not None
            and self.verdict != "NOT_RUN"
            and self.seeds < self.planned
        )
        return f"provisional, {self.seeds} of {self.planned} seeds" if short else ""

    @property
    def power(self):
        """A line: how often the planned seeds, else those there, confirm the printed effect, in the cell of least power;
        without a printed effect, the one that they find."""
        found = []
        for cell in self.cells:
            n, place = self.planned or cell.seeds, f" {cell.name}" * bool(cell.name)
            low, high = (
                copysign(inf, side) if end is None else end
                for side, end in zip((-1, 1), cell.bounds, strict=True)
            )
            inside = (
                cell.published if cell.published is not None else 0.0 if low < 0 < high else None
            )
            if cell.seeds < 2:
                found.append((-1.0, f"power not known{place}: it takes the spread of two seeds"))
            elif cell.spread is None:  # no mean of seeds, such as a ratio of variances
                continue
            elif inside is not None:
                value = power(cell.spread, cell.noise, n, inside, low, high)
                about = (
                    f"for the printed {inside:+.3g}"
                    if cell.published is not None
                    else "if the true value is 0"
                )
                found.append((value, f"power {value:.2f} at {n} seeds {about}{place}"))
            elif 0.0 in (low, high) and inf in (-low, high):
                found.append(
                    (
                        2.0,
                        f"{n} seeds find {detectable(cell.spread, cell.noise, n):.2g} with power 0.80{place}",
                    )
                )
        return min(found)[1] if found else ""


def tally(found) -> str:
    """Counts of verdicts, findings and arithmetic checks apart. found: (kind, word) of each."""
    found = list(found)
    findings = [WORDS[word][1] for kind, word in found if kind == "finding"]
    checks = [word == "CONFIRMED" for kind, word in found if kind == "arithmetic"]
    groups = dict.fromkeys(group for _, group, _ in WORDS.values())
    counts = ", ".join(f"{findings.count(group)} {group}" for group in groups if group in findings)
    parts = [f"findings: {counts}"] * bool(findings) + [
        f"arithmetic checks: {sum(checks)} of {len(checks)}"
    ] * bool(checks)
    return "; ".join(parts)


def holm_paper(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """{claim: p after Holm} over the findings of one paper that have been judged and have a p. A claim that several
    verdicts share, such as two halves on two pages, counts once, with their largest p."""
    p = {}
    for each in verdicts:
        if each.kind == "finding" and each.p is not None:
            p[each.claim] = max(each.p, p.get(each.claim, 0.0))
    return dict(zip(p, map(float, holm(list(p.values()))), strict=True))


def _usable(e):
    return (
        e is not None
        and e.n_seeds > 0
        and isfinite(e.mean)
        and isfinite(e.low)
        and isfinite(e.high)
    )


def _state(e, published, p, minimum_seeds):
    """The state of one cell, as the module describes it."""
    if not _usable(e):
        return "missing"
    if e.n_seeds < minimum_seeds:
        return "few"
    low, high = (e.low, e.high) if copysign(1, published) > 0 else (-e.high, -e.low)
    if p < ALPHA and (low > 0 or high < 0):
        return "above" if low > 0 else "below"
    return "near" if low <= abs(published) <= high and high - low < abs(published) else "open"


def whole(toward: Sequence[float], against: Sequence[float]) -> float:
    """Two-sided p of a claim that wants all its parts: the largest of `toward`, of parts that point its way (1 for another);
    or, where that is less, the smallest of `against` times their number, as one part is enough to contradict."""
    return min(1.0, max(toward, default=1.0), len(against) * min(against, default=1.0))


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
    alone = ", whose interval covers examples alone" if e.high > e.low else ", so no interval"
    return (
        f"{e.mean:+.{digits}f} {unit} {name}".strip()
        + f" [{e.low:.{digits}f}, {e.high:.{digits}f}], "
        f"n = {e.n_seeds} seed" + ("s" if e.n_seeds != 1 else alone)
    )


def _verdict(claim, word, estimates, notes, profile, failed, runs, unit, p, published, bounds):
    """Puts a verdict together; toy scale overrules the word, failed runs enter the note. bounds: f(cell) -> its ends."""
    usable = {name: e for name, e in estimates.items() if _usable(e)}
    if profile == "toy":
        word, notes = "NOT_RUN", ["toy scale judges arithmetic alone", *notes]
    elif word == "NOT_RUN" and failed:
        word = "INCONCLUSIVE"  # it was run, and nothing came of it
    if failed:
        notes = [*notes, f"{failed} failed or diverged run{'s' * (failed != 1)} left out"]
    measured = "; ".join(_line(name, e, unit) for name, e in estimates.items()) or "not measured"
    interval = (
        (min(e.low for e in usable.values()), max(e.high for e in usable.values()))
        if usable
        else None
    )
    runs = 2 * sum(e.n_pairs for e in usable.values()) if runs is None else runs
    cells = tuple(
        Cell(
            name,
            published.get(name),
            e.mean,
            e.low,
            e.high,
            e.n_seeds,
            e.spread if isfinite(e.spread) else None,
            e.noise,
            tuple(end if isfinite(end) else None for end in bounds(name)),
        )
        for name, e in usable.items()
        if profile != "toy"
    )
    return Verdict(
        claim,
        word,
        measured,
        interval,
        "; ".join(filter(None, notes)),
        runs,
        SCALES[profile],
        p=p if cells else None,
        cells=cells,
        unseen=max((e.unseen for e in usable.values()), default=0),
    )


def judge_delta(
    claim_id: str,
    estimates: Mapping[str, Estimate],
    published: Mapping[str, float],
    profile: str,
    minimum_seeds: int = 3,
    failed: int = 0,
    runs: int | None = None,
    unit: str = "points",
    mixed: str = "PARTIAL",
    word: str = "at",
) -> Verdict:
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

    "Some" is read after Holm over the cells, "all" as they stand. Cells are those published and those estimated; without a
    published value a cell is judged for > 0. `failed` runs are counted in the note; `word` stands before a cell's name in
    the text.
    """
    cells = {name: estimates.get(name) for name in (*published, *estimates)}
    size = {name: float(published.get(name, 0.0)) for name in cells}
    size = {
        name: v if isfinite(v) else copysign(0.0, v) for name, v in size.items()
    }  # 0: only a direction
    enough = {n: _usable(e) and e.n_seeds >= minimum_seeds for n, e in cells.items()}
    p = {n: e.p if enough[n] and isfinite(e.p) else 1.0 for n, e in cells.items()}
    state = {n: _state(e, size[n], p[n], minimum_seeds) for n, e in cells.items()}
    if set(state.values()) != {"above"}:
        judged = [n for n in cells if enough[n]]
        adjusted = dict(zip(judged, holm([p[n] for n in judged]), strict=True))
        state = {
            n: _state(e, size[n], adjusted.get(n, 1.0), minimum_seeds) for n, e in cells.items()
        }
    toward = {n: enough[n] and copysign(1, size[n]) * e.mean > 0 for n, e in cells.items()}
    outside = [
        n
        for n, e in cells.items()
        if state[n] not in ("missing", "few") and size[n] and not e.low <= size[n] <= e.high
    ]
    notes = [
        f"{text}: {', '.join(names)}" if any(names) else text
        for text, names in (
            ("missing", [n for n in cells if state[n] == "missing"]),
            (f"fewer than {minimum_seeds} seeds", [n for n in cells if state[n] == "few"]),
            ("opposite to the claim", [n for n in cells if state[n] == "below"]),
            ("not proven to differ from 0", [n for n in cells if state[n] in ("near", "open")]),
            ("published size outside the interval", outside),
        )
        if names
    ]
    shown = {n: f"{word} {n}" if n else "" for n in cells}
    return _verdict(
        claim_id,
        _word(set(state.values()), mixed),
        {shown[n]: e for n, e in cells.items()},
        notes,
        profile,
        failed,
        runs,
        unit,
        whole(
            [p[n] if toward[n] else 1.0 for n in cells], [1.0 if toward[n] else p[n] for n in cells]
        ),
        {shown[n]: v for n, v in size.items() if v},
        {shown[n]: (0.0, inf) if copysign(1, v) > 0 else (-inf, 0.0) for n, v in size.items()}.get,
    )


def judge_ordering(
    claim_id: str,
    estimates: Mapping[str, Estimate],
    published: Mapping[str, float],
    profile: str,
    **options,
) -> Verdict:
    """x above each rival: cells are rivals y, estimates and published values x - y, options as `judge_delta`.

    The same table, but a rival proven better is enough: some below is CONTRADICTED, whatever the others.
    """
    return judge_delta(
        claim_id, estimates, published, profile, mixed="CONTRADICTED", word="over", **options
    )


def judge_trend(
    claim_id: str,
    estimate: Estimate | None,
    sign: int,
    profile: str,
    published: float | None = None,
    unit: str = "points per unit",
    **options,
) -> Verdict:
    """A slope of this sign, +1 or -1; `published` is the printed values' slope; options as `judge_delta`.

    One cell: missing NOT_RUN, above CONFIRMED, below CONTRADICTED, near CONSISTENT, few or open INCONCLUSIVE;
    a published slope against `sign` raises, for then the claim is transcribed wrongly.
    """
    if sign not in (1, -1) or (published or 0.0) * sign < 0:
        raise ValueError(
            f"{claim_id}: sign {sign!r} must be 1 or -1, the sign of published {published!r}"
        )
    return judge_delta(
        claim_id,
        {"": estimate},
        {"": copysign(published or 0.0, sign)},
        profile,
        unit=unit,
        **options,
    )


def judge_within(
    claim_id: str,
    estimate: Estimate | None,
    low: float,
    high: float,
    profile: str,
    minimum_seeds: int = 3,
    failed: int = 0,
    runs: int | None = None,
    unit: str = "points",
    published: float | None = None,
) -> Verdict:
    """A difference within a margin fixed beforehand: equivalent; with one infinite end, not worse or no gain.

    missing NOT_RUN; few INCONCLUSIVE; interval inside [low, high] CONFIRMED, wholly outside CONTRADICTED,
    across an end INCONCLUSIVE. `published` is what power is counted for, where the paper prints it.
    """
    word, notes, p = "INCONCLUSIVE", [f"margin [{low:g}, {high:g}]"], 1.0
    if not _usable(estimate):
        word = "NOT_RUN"
    elif estimate.n_seeds < minimum_seeds:
        notes.append(f"fewer than {minimum_seeds} seeds")
    else:
        if low <= estimate.low and estimate.high <= high:
            word = "CONFIRMED"
        elif estimate.high < low or estimate.low > high:
            word = "CONTRADICTED"
        p = whole(
            [_beyond(estimate, low, 1), _beyond(estimate, high, -1)],
            [min(_beyond(estimate, low, -1), _beyond(estimate, high, 1))],
        )
    return _verdict(
        claim_id,
        word,
        {"": estimate},
        notes,
        profile,
        failed,
        runs,
        unit,
        p,
        {"": published} if published is not None else {},
        lambda name: (low, high),
    )


def _beyond(e, end, side):
    """Two-sided p of an estimate above (side 1) or below (-1) an end, read off the 95 % interval: 0.05 where they meet."""
    if not isfinite(end):
        return 0.0 if (end < 0) == (side > 0) else 1.0
    room, half = side * (e.mean - end), side * (e.mean - (e.low if side > 0 else e.high))
    return (
        min(1.0, 2 * float(norm.sf(norm.ppf(1 - ALPHA / 2) * room / half)))
        if half > 0
        else float(room < 0)
    )


def judge_reached(
    claim_id: str,
    estimates: Mapping[str, Estimate],
    printed: Mapping[str, str],
    scale: str,
    unit: str = "times",
    runs: int = 1,
) -> Verdict:
    """Something measured at full size, such as a speed-up, against the printed digits: reached, at least as fast as printed,
    where the interval holds what rounds to them, or lies above. It does not depend on a profile; `scale` says where it was
    measured.

    | cells | verdict |
    |---|---|
    | none measured | NOT_RUN |
    | all reached | CONFIRMED |
    | some reached, others not or not measured | PARTIAL |
    | none reached | CONTRADICTED |
    """
    there = {name: estimates[name] for name in printed if _usable(estimates.get(name))}
    reached = [
        name for name, e in there.items() if e.high >= float(_rounding_range(printed[name])[0])
    ]
    word = (
        "NOT_RUN"
        if not there
        else "CONFIRMED"
        if len(reached) == len(printed)
        else "PARTIAL"
        if reached
        else "CONTRADICTED"
    )
    measured = (
        "; ".join(
            f"{name} {e.mean:.2f} {unit} [{e.low:.2f}, {e.high:.2f}], {printed[name]} printed"
            for name, e in there.items()
        )
        or "not measured"
    )
    notes = {
        "at least as fast as printed": reached if reached != list(printed) else [""],
        "below the printed value": [name for name in there if name not in reached],
        "missing": [name for name in printed if name not in there],
    }
    interval = (
        (min(e.low for e in there.values()), max(e.high for e in there.values())) if there else None
    )
    note = "; ".join(
        f"{text}: {', '.join(names)}".removesuffix(": ") for text, names in notes.items() if names
    )
    return Verdict(claim_id, word, measured, interval, note, runs, scale)


def _rounding_range(printed):
    """What a printed number stands for: half a unit of its last digit either way, "14.5": 14.45 to 14.55."""
    value = Decimal(str(printed).replace(",", ""))
    half = Decimal(1).scaleb(value.as_tuple().exponent) / 2
    return value - half, value + half


def _rounds_to(number, printed):
    """Whether a Decimal rounds to the printed digits, a half away from zero: 80.35 to 80.4, not to 80.3."""
    low, high = _rounding_range(printed)
    return low < number < high or number == (low if low > 0 else high if high < 0 else None)


def judge_equal(
    claim_id: str,
    computed: Mapping[str, float] | float | None,
    printed: Mapping[str, str | Sequence[str]] | str | float,
    runs: int = 0,
) -> Verdict:
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
            equal = all(_rounds_to(number, place) for place in places)
            cells["equal" if equal else "differs"].append(
                f"{name} {number} computed, {shown}".strip()
            )
    if len(cells["missing"]) == len(printed):
        word = "NOT_RUN"
    elif cells["inconsistent"]:
        word = "PAPER_INCONSISTENT"
    elif len(cells["equal"]) == len(printed):
        word = "CONFIRMED"
    else:
        word = "PARTIAL" if cells["equal"] else "CONTRADICTED"
    single = cells["equal"] + cells["differs"] if len(printed) == 1 else []
    measured = (
        single[0]
        if single
        else f"{len(cells['equal'])} of {len(printed)} equal to the printed digits"
    )
    note = "; ".join(
        f"{k}: {', '.join(names)}" for k, names in cells.items() if names and k != "equal"
    )
    return Verdict(claim_id, word, measured, None, note, runs, "any scale", "arithmetic")
