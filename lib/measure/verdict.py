"""From estimates to verdicts: total functions, so that no verdict is ever typed.

A claim has one or more cells. A cell is one comparison, such as a width or a rival. A claim is
confirmed when all of its cells are. So each cell is tested at 5 % as it stands, and the p of the
claim is the largest p of its cells (intersection-union test). One cell of several is enough for
PARTIAL and CONTRADICTED, so these two words are read after Holm's correction over the cells.
`holm_paper` corrects over the claims of a paper.

The states of a cell, with the published effect turned upwards:
- `missing`: there is no estimate, or it is not finite;
- `few`: it has fewer than SEEDS seeds, and nothing is read from it;
- `above` (`below`): its 95 % interval lies above (below) 0, and its p is under 0.05;
- `near`: none of these, but the interval holds the published value and is narrower than it;
- `open`: the rest.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import copysign, inf, isfinite
from pathlib import Path

import scipy

from lib import files
from lib.measure.stats import detectable, holm, power

# Texts: of each word for a finding (its mark, how it is counted, one line) and for an arithmetic
# check, and how verdicts are to be read.
WORDS, CHECKS, READING = map(
    files.toml(Path(__file__).with_suffix(".toml")).get, ("WORDS", "CHECKS", "READING")
)
SCALES = {"toy": "at toy scale", "mini": "at mini scale", "paper": "at the paper's scale"}
ALPHA = 0.05
SEEDS = 3  # fewer prove nothing


@dataclass(frozen=True)
class Cell:
    """One comparison of a claim as measured, and the interval in which it is to lie."""

    name: str
    published: float | None  # None: only a direction is printed
    mean: float
    low: float
    high: float
    seeds: int
    spread: float | None  # sd of the seeds' differences; None where it is not known
    noise: float  # sd of the mean that examples alone cause
    bounds: tuple[float | None, float | None]  # confirmed within; None: no end
    unit: str = "points"

    @property
    def ends(self):
        """The bounds as numbers, an open end as infinity."""
        ends = zip(self.bounds, (-inf, inf), strict=True)
        return tuple(far if end is None else end for end, far in ends)

    def power(self, planned):
        """(power, a line on it) of the planned seeds, else of those there; None where it has none.

        It is the power to confirm the printed effect. Without a printed effect the line tells the
        effect that these seeds find.
        """
        n, place = planned or self.seeds, f" {self.name}" * bool(self.name)
        low, high = self.ends
        if self.seeds < 2:
            return -1.0, f"power not known{place}: it takes the spread of two seeds"
        if self.spread is None:  # no mean of seeds, such as a ratio of variances
            return None
        if self.published is not None or low < 0 < high:
            effect, about = 0.0, "if the true value is 0"
            if self.published is not None:
                effect, about = self.published, f"for the printed {self.published:+.3g}"
            value = power(self.spread, self.noise, n, effect, low, high)
            return value, f"power {value:.2f} at {n} seeds {about}{place}"
        if 0.0 in (low, high) and inf in (-low, high):
            least = detectable(self.spread, self.noise, n)
            return 2.0, f"{n} seeds find {least:.2g} with power 0.80{place}"
        return None


@dataclass(frozen=True)
class Verdict:
    claim: str
    verdict: str  # one of WORDS
    measured: str  # one readable line
    interval: tuple[float, float] | None  # 95 %, in the unit of `measured`; spans several cells
    note: str
    runs: int  # two for each pair; a shared baseline counts again
    scale: str
    kind: str = "finding"  # or "arithmetic"
    p: float | None = None  # two-sided, of the claim as a whole; None where there is none
    cells: tuple[Cell, ...] = ()  # those measured
    planned: int | None = None  # seeds; None: nothing is said
    alone: dict = field(default_factory=dict)  # {task: the Verdict on it alone}, where told

    def __getitem__(self, key):
        """The part on a task alone, or of the cells whose names begin so; see `__str__`."""
        cells = tuple(cell for cell in self.cells if cell.name.startswith(key))
        found = self.alone.get(key) or replace(self, cells=cells, alone={})
        return replace(found, planned=self.planned)

    def __str__(self):
        """The first cell in words, so that "{N1[STS-B][at 10]}" in a text is a measured figure.

        Fewer seeds than prove anything have neither an interval nor bold type.
        """
        if not self.cells:
            return "not measured yet"
        cell = self.cells[0]
        digits = 1 if cell.unit.startswith("points") else 3
        value = f"{cell.mean:+.{digits}f} {cell.unit}"
        if cell.seeds < SEEDS:
            return f"{value} ({cell.seeds} of {self.planned or SEEDS} seeds)"
        ends = f"[{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
        return f"**{value}** {ends} ({cell.seeds} of {self.planned or cell.seeds} seeds)"

    @property
    def seeds(self):
        """Seeds of the cell that has fewest; None where nothing is counted in seeds."""
        return min((cell.seeds for cell in self.cells), default=None)

    @property
    def provisional(self):
        """What stands beside the word until the planned seeds are there."""
        if not self.planned or self.seeds is None or self.verdict == "NOT_RUN":
            return ""
        short = self.seeds < self.planned
        return f"provisional, {self.seeds} of {self.planned} seeds" if short else ""

    @property
    def power(self):
        """A line on the power of the cell that has least; see `Cell.power`."""
        found = [cell.power(self.planned) for cell in self.cells]
        return min(filter(None, found), default=(0.0, ""))[1]


def tally(found):
    """Counts of verdicts as text, findings and arithmetic checks apart.

    found: (kind, word) of each verdict.
    """
    found = list(found)
    findings = [WORDS[word][1] for kind, word in found if kind == "finding"]
    checks = [word == "CONFIRMED" for kind, word in found if kind == "arithmetic"]
    groups = dict.fromkeys(group for _, group, _ in WORDS.values())
    counts = ", ".join(f"{findings.count(group)} {group}" for group in groups if group in findings)
    parts = [f"findings: {counts}"] * bool(findings)
    parts += [f"arithmetic checks: {sum(checks)} of {len(checks)}"] * bool(checks)
    return "; ".join(parts)


def holm_paper(verdicts):
    """{claim: p after Holm} over the findings of one paper that have a p.

    A claim that several verdicts share, such as its two halves on two pages, counts once. It has
    the largest p of them.
    """
    p = {}
    for each in verdicts:
        if each.kind == "finding" and each.p is not None:
            p[each.claim] = max(each.p, p.get(each.claim, 0.0))
    return dict(zip(p, map(float, holm(list(p.values()))), strict=True))


def _usable(e):
    return e is not None and e.n_seeds > 0 and all(map(isfinite, (e.mean, e.low, e.high)))


def _enough(e):
    return _usable(e) and e.n_seeds >= SEEDS


def _state(e, published, p):
    """The state of one cell, as the module describes it."""
    if not _enough(e):
        return "few" if _usable(e) else "missing"
    low, high = (e.low, e.high) if copysign(1, published) > 0 else (-e.high, -e.low)
    if p < ALPHA and (low > 0 or high < 0):
        return "above" if low > 0 else "below"
    return "near" if low <= abs(published) <= high and high - low < abs(published) else "open"


def whole(toward, against):
    """Two-sided p of a claim that wants all of its parts.

    toward: p of each part, 1 for a part that points the other way. against: the same for the
    opposite. The claim has the largest p of `toward`. One part is enough to contradict it: where it
    is less, the claim has the smallest p of `against` times their number.
    """
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
    value, name = f"{e.mean:+.{digits}f} {unit}", f" {name}" * bool(name)
    seeds = f"n = {e.n_seeds} seed" + ("s" if e.n_seeds != 1 else alone)
    return f"{value}{name} [{e.low:.{digits}f}, {e.high:.{digits}f}], {seeds}"


def _listed(text, names):
    """ "text: a, b"; the text alone for one cell without a name; nothing without cells."""
    return f"{text}: {', '.join(names)}".removesuffix(": ") if names else ""


def _span(estimates):
    """The interval that spans those of some estimates; None without one."""
    lows, highs = [e.low for e in estimates], [e.high for e in estimates]
    return (min(lows), max(highs)) if lows else None


def _verdict(claim, word, cells, notes, profile, failed, unit, p):
    """Puts a verdict together. Toy scale overrules the word, and failed runs enter the note.

    cells: {name: (Estimate or None, published value or None, the (low, high) in which it is to
    lie)}.
    """
    toy, estimates = profile == "toy", {name: e for name, (e, *_) in cells.items()}
    usable = [e for e in estimates.values() if _usable(e)]
    if toy:
        word, notes = "NOT_RUN", ["toy scale judges arithmetic alone", *notes]
    elif word == "NOT_RUN" and failed:
        word = "INCONCLUSIVE"  # it was run, and nothing came of it
    if failed:
        notes = [*notes, f"{failed} failed or diverged run{'s' * (failed != 1)} left out"]

    def finite(value):
        return value if isfinite(value) else None

    kept = []
    for name, (e, size, bounds) in ({} if toy else cells).items():
        if _usable(e):
            told = e.mean, e.low, e.high, e.n_seeds, finite(e.spread), e.noise
            kept.append(Cell(name, size, *told, tuple(map(finite, bounds)), unit))
    return Verdict(
        claim,
        word,
        "; ".join(_line(name, e, unit) for name, e in estimates.items() if usable)
        or "not measured",
        _span(usable),
        "; ".join(filter(None, notes)),
        2 * sum(e.n_pairs for e in usable),
        SCALES[profile],
        p=p if kept else None,
        cells=tuple(kept),
    )


def judge_delta(
    claim, estimates, published, profile, failed=0, unit="points", mixed="PARTIAL", word="at"
):
    """A difference with the sign of its published value, in each cell, such as a width.

    | cells | verdict |
    |---|---|
    | none, or all missing | NOT_RUN (INCONCLUSIVE if runs failed) |
    | all above | CONFIRMED |
    | some above, none below | PARTIAL |
    | some above, some below | `mixed`: PARTIAL |
    | some below, none above | CONTRADICTED |
    | all near | CONSISTENT |
    | else | INCONCLUSIVE |

    "Some" is read after Holm over the cells, "all" as they stand. The cells are those of
    `estimates` {name: Estimate or None} and of `published` {name: value}. A cell without a
    published value is judged for > 0. The note counts `failed` runs. `word` stands before the name
    of a cell in the text.
    """
    cells = {name: estimates.get(name) for name in (*published, *estimates)}
    size = {name: float(published.get(name, 0.0)) for name in cells}
    # a value of 0 stands for a direction alone, which its sign tells
    size = {name: v if isfinite(v) else copysign(0.0, v) for name, v in size.items()}
    judged = {name: e for name, e in cells.items() if _enough(e)}
    p = dict.fromkeys(cells, 1.0) | {name: e.p for name, e in judged.items() if isfinite(e.p)}
    state = {name: _state(e, size[name], p[name]) for name, e in cells.items()}
    if set(state.values()) != {"above"}:
        after = p | dict(zip(judged, holm([p[name] for name in judged]), strict=True))
        state = {name: _state(e, size[name], after[name]) for name, e in cells.items()}
    toward = {n for n, e in judged.items() if copysign(1, size[n]) * e.mean > 0}
    outside = [n for n, e in judged.items() if size[n] and not e.low <= size[n] <= e.high]

    def those(*states):
        return [name for name in cells if state[name] in states]

    notes = [
        _listed("missing", those("missing")),
        _listed(f"fewer than {SEEDS} seeds", those("few")),
        _listed("opposite to the claim", those("below")),
        _listed("not proven to differ from 0", those("near", "open")),
        _listed("published size outside the interval", outside),
    ]
    p_of_claim = whole(
        [p[name] if name in toward else 1.0 for name in cells],
        [1.0 if name in toward else p[name] for name in cells],
    )
    shown = {}
    for name, e in cells.items():
        side = (0.0, inf) if copysign(1, size[name]) > 0 else (-inf, 0.0)
        shown[f"{word} {name}" if name else ""] = e, size[name] or None, side
    return _verdict(
        claim, _word(set(state.values()), mixed), shown, notes, profile, failed, unit, p_of_claim
    )


def judge_ordering(claim, estimates, published, profile, **options):
    """x above each rival. Cells are rivals y, values are x - y, options as in `judge_delta`.

    The table is the same, but one rival that is proven better is enough to contradict: some below
    is CONTRADICTED.
    """
    options = {"mixed": "CONTRADICTED", "word": "over"} | options
    return judge_delta(claim, estimates, published, profile, **options)


def judge_trend(claim, estimate, sign, profile, published=None, unit="points per unit", **options):
    """A slope of this sign, 1 or -1, in one cell; options as in `judge_delta`.

    Missing is NOT_RUN, above CONFIRMED, below CONTRADICTED, near CONSISTENT, few or open
    INCONCLUSIVE. Raises ValueError where the published slope has another sign than `sign`: then the
    claim is transcribed wrongly.
    """
    if sign not in (1, -1) or (published or 0.0) * sign < 0:
        raise ValueError(
            f"{claim}: sign {sign!r} must be 1 or -1, the sign of published {published!r}"
        )
    size = {"": copysign(published or 0.0, sign)}
    return judge_delta(claim, {"": estimate}, size, profile, unit=unit, **options)


def judge_count(claim, estimates, least, profile, failed=0, unit="points"):
    """At least so many of some differences are above 0, `estimates` {name: Estimate or None}.

    p is that of a partial conjunction: the p of the cell that is `least` in order, times the number
    of cells from it on. The opposite is that too few can be above.

    | cells | verdict |
    |---|---|
    | all missing | NOT_RUN (INCONCLUSIVE if runs failed) |
    | at least `least` above, p < 0.05 | CONFIRMED |
    | the opposite, p < 0.05 | CONTRADICTED |
    | some above after Holm | PARTIAL |
    | else | INCONCLUSIVE |
    """
    there, n = {name: e for name, e in estimates.items() if _enough(e)}, len(estimates)
    toward = [e.p if e.mean > 0 else 1.0 for e in there.values()]
    against = [e.p if e.mean < 0 else 1.0 for e in there.values()]

    def partial(p, k):
        return min(1.0, (n - k + 1) * sorted([*p, *[1.0] * (n - len(p))])[k - 1])

    p, opposite = partial(toward, least), partial(against, n - least + 1)
    word = "CONFIRMED" if p < ALPHA else "CONTRADICTED" if opposite < ALPHA else "INCONCLUSIVE"
    if word == "INCONCLUSIVE" and min(holm(toward), default=1.0) < ALPHA:
        word = "PARTIAL"
    if not any(map(_usable, estimates.values())):
        word = "NOT_RUN"
    above = sum(e.mean > 0 for e in there.values())
    notes = [f"{above} of {n} above 0, {least} asked for"]
    notes += [_listed("missing", [name for name, e in estimates.items() if not _usable(e)])]
    notes += [f"fewer than {SEEDS} seeds"] * any(
        _usable(e) and not _enough(e) for e in estimates.values()
    )
    cells = {f"for {name}": (e, None, (0.0, inf)) for name, e in estimates.items()}
    return _verdict(claim, word, cells, notes, profile, failed, unit, min(p, opposite))


def judge_never(claim, hits, done, wanted, profile, unit="runs"):
    """What happens in no run: one hit contradicts it, and it is confirmed where all wanted runs are
    done without one. None done is NOT_RUN, the rest INCONCLUSIVE."""
    word = "CONTRADICTED" if hits else "CONFIRMED" if done == wanted else "INCONCLUSIVE"
    if profile == "toy" or not done:
        word = "NOT_RUN"
    note = f"{wanted - done} of {wanted} runs missing" * (done < wanted)
    measured = f"{hits} of {done} {unit}" if done else "not measured"
    return Verdict(claim, word, measured, None, note, done, SCALES[profile])


def judge_within(claim, estimate, low, high, profile, failed=0, unit="points", published=None):
    """A difference within a margin fixed beforehand: equivalent; with one infinite end, not worse.

    A missing estimate is NOT_RUN, one of few seeds INCONCLUSIVE. An interval inside [low, high] is
    CONFIRMED, one wholly outside CONTRADICTED, one across an end INCONCLUSIVE. Power is counted for
    `published`, where the paper prints it.
    """
    ends = [f"at least {low:g}"] * isfinite(low) + [f"at most {high:g}"] * isfinite(high)
    word, notes, p = "INCONCLUSIVE", [f"the margin is {' and '.join(ends)}"], 1.0
    if not _usable(estimate):
        word = "NOT_RUN"
    elif not _enough(estimate):
        notes.append(f"fewer than {SEEDS} seeds")
    else:
        if low <= estimate.low and estimate.high <= high:
            word = "CONFIRMED"
        elif estimate.high < low or estimate.low > high:
            word = "CONTRADICTED"
        inside = [_beyond(estimate, low, 1), _beyond(estimate, high, -1)]
        p = whole(inside, [min(_beyond(estimate, low, -1), _beyond(estimate, high, 1))])
    cells = {"": (estimate, published, (low, high))}
    return _verdict(claim, word, cells, notes, profile, failed, unit, p)


def _beyond(e, end, side):
    """Two-sided p of an estimate above (side 1) or below (side -1) an end.

    It is read off the 95 % interval: 0.05 where the interval touches the end.
    """
    if not isfinite(end):
        return 0.0 if (end < 0) == (side > 0) else 1.0
    room, half = side * (e.mean - end), side * (e.mean - (e.low if side > 0 else e.high))
    if half <= 0:
        return float(room < 0)
    normal = scipy.stats.norm
    return min(1.0, 2 * float(normal.sf(normal.ppf(1 - ALPHA / 2) * room / half)))


def judge_reached(claim, estimates, printed, scale, unit="times", runs=1):
    """A value measured at full size, such as a speed-up, against the printed digits.

    A cell is reached where its interval holds a value that rounds to the printed digits, or lies
    above them. The verdict depends on no profile; `scale` says where it was measured.

    | cells | verdict |
    |---|---|
    | none measured | NOT_RUN |
    | all reached | CONFIRMED |
    | some reached, others not or not measured | PARTIAL |
    | none reached | CONTRADICTED |
    """
    there = {name: estimates[name] for name in printed if _usable(estimates.get(name))}
    reached = [name for name, e in there.items() if e.high >= float(_rounding(printed[name])[0])]
    word = "PARTIAL" if reached else "CONTRADICTED" if there else "NOT_RUN"
    if there and len(reached) == len(printed):
        word = "CONFIRMED"
    measured = [
        f"{name} {e.mean:.2f} {unit} [{e.low:.2f}, {e.high:.2f}], {printed[name]} printed"
        for name, e in there.items()
    ]
    notes = [
        _listed("at least as fast as printed", reached if reached != list(printed) else [""]),
        _listed("below the printed value", [name for name in there if name not in reached]),
        _listed("missing", [name for name in printed if name not in there]),
    ]
    note = "; ".join(filter(None, notes))
    told = "; ".join(measured) or "not measured", _span(there.values()), note
    return Verdict(claim, word, *told, runs, scale)


def _rounding(printed):
    """(low, high) of the numbers that round to a printed one: "14.5" is from 14.45 to 14.55."""
    value = Decimal(str(printed).replace(",", ""))
    half = Decimal(1).scaleb(value.as_tuple().exponent) / 2
    return value - half, value + half


def _rounds_to(number, printed):
    """Whether a Decimal rounds to the printed digits, a half away from zero: 80.35 to 80.4."""
    low, high = _rounding(printed)
    return low < number < high or number == (low if low > 0 else high if high < 0 else None)


def judge_equal(claim, computed, printed, runs=0):
    """Computed values against the printed digits, at any profile, also toy.

    computed and printed are {name: value}, or one value each. Printed values are text, to keep the
    digits of "14.50". A list of them are several places where the paper prints the same quantity.

    | cells | verdict |
    |---|---|
    | none computed | NOT_RUN |
    | some printed in several places, with values that no number rounds to | PAPER_INCONSISTENT |
    | all equal | CONFIRMED |
    | some equal, others differ or are missing | PARTIAL |
    | none equal | CONTRADICTED |
    """
    printed = printed if isinstance(printed, dict) else {"": printed}
    computed = computed if isinstance(computed, dict) else {"": computed}
    cells = {"equal": [], "differs": [], "missing": [], "inconsistent": []}
    for name, text in printed.items():
        places = list(text) if isinstance(text, list | tuple) else [text]
        lows, highs = zip(*map(_rounding, places), strict=True)
        value, shown = computed.get(name), f"{' and '.join(map(str, places))} printed"
        if value is None or not isfinite(value):
            cells["missing"].append(name or "value")
        elif max(lows) > min(highs):
            cells["inconsistent"].append(f"{name} {shown}".strip())
        else:
            number = Decimal(str(value))
            equal = all(_rounds_to(number, place) for place in places)
            line = f"{name} {number} computed, {shown}".strip()
            cells["equal" if equal else "differs"].append(line)
    count = {state: len(names) for state, names in cells.items()}
    word = "PARTIAL" if count["equal"] else "CONTRADICTED"
    if count["missing"] == len(printed):
        word = "NOT_RUN"
    elif count["inconsistent"]:
        word = "PAPER_INCONSISTENT"
    elif count["equal"] == len(printed):
        word = "CONFIRMED"
    single = cells["equal"] + cells["differs"] if len(printed) == 1 else []
    measured = f"{count['equal']} of {len(printed)} equal to the printed digits"
    note = [f"{k}: {', '.join(names)}" for k, names in cells.items() if names and k != "equal"]
    return Verdict(
        claim, word, *(single or [measured]), None, "; ".join(note), runs, "any scale", "arithmetic"
    )
