"""Findings: general rules by which the runs of a page decide a claim. Free of torch.

The `cells` of a claim say what is compared, by the labels of the page's grid:

    Ghost > Prune @ m=3                          scores above
    F = 12 ~ F = 4 @ m=1                         alike within the margin of the claim
    Ghost [m=6] ~ Plain [m=12]                   each in rows of its own
    A over B > C over D                          a gap larger than another gap
    value 0 > k = 3 | k = 5 | k = 9              a slope, per doubling of the labels' last numbers
    kept weights :: BERT > BERMo                 another measure of the runs (MEASURES)
    diverged :: BERMo = value 0                  never in any run

All of them are contrasts: sums of scores or measures with weights, paired by seed.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from lib import pd, sweep
from lib.data import squad
from lib.measure import compare, stats, verdict
from lib.papers import claims, efficientbert, efficientbert_claims, grids, nas, nas_claims
from lib.papers.bermo_claims import diverged
from lib.spec import known

COLUMNS = {"efficientbert": efficientbert.COLUMNS, "nas": nas.COLUMNS}
# How far a margin of the rule `within` reaches, by the words of its sentence.
SIDES = {"not below": lambda m: (-m, inf)} | dict.fromkeys(
    ("not above", "below"), lambda m: (-inf, m)
)
JUDGES = {"ordering": verdict.judge_ordering}  # by the word of the rule; else judge_delta
# Steps of models that are scored on examples.
TRAINED = ("finetune", "distil", "warmup", "retrain", "imp", "fineprune")
SIZED = ("points", "F1 points")  # units in which a printed value is the size of a difference


def last_loss(frame):
    """The smoothed loss that each run of `warmup` ends on."""
    return [efficientbert_claims.smoothed(run.arrays("curve")["loss"])[-1] for run in frame["run"]]


def share_of_steps(frame):
    """How soon each run comes to the last loss of the run from scratch of its seed; 0 for the
    latter, from which it is counted."""
    found = frame["seed"].map(efficientbert_claims.shares(frame))
    return found.where(frame["model"] == "inherits", 0.0)


def epochs_to_target(frame):
    """Epochs of each search until its FLOPs come within 1 % of the target."""
    found = []
    for run in frame["run"]:
        if "target" not in run.metrics:  # of the network that was cut
            found.append(np.nan)
            continue
        actual = run.arrays("search")["curve"][:, 1]
        there = np.flatnonzero(actual <= 1.01 * run.metrics["target"])
        share = (there[0] + 1) / len(actual) if len(there) else 1.0
        found.append(share * run.spec["args"]["train"]["epochs"])
    return found


# name: (an expression over the metrics of runs, or a function of a frame; its unit)
MEASURES = {
    "accuracy": ("100 * accuracy", "points"),
    "diverged": ("diverged == True", "points of the runs that diverge"),
    "epochs to the target": (epochs_to_target, "epochs"),
    "gates that return": ("switched_on / switched_off", "of the gates"),
    "kept weights": ("100 * remaining", "points of weights"),
    "last loss": (last_loss, "of the loss"),
    "misses": (
        "abs(before_trim / target - 1) > 0.01",
        "points of the searches that miss their target by over 1 %",
    ),
    "noise": ("1.0 * noise", "noise inputs"),
    "share of noise": ("noise / (noise + pixels)", "of the kept inputs"),
    "share of steps": (share_of_steps, "of the steps"),
    "size": ("before_trim / target", "times the target"),
    "variance": ("", "times the variance"),
}


# ---- WHAT IS COMPARED


@dataclass(frozen=True)
class Form:
    """A model, or one above another, in the rows of a grid that have these values."""

    models: tuple  # one (label, where), or two: of a method and of its baseline
    # where: ((column, values as text with "/" between), ...)

    @property
    def where(self):
        """Where its last model is looked for."""
        return self.models[-1][1]

    def rows(self, rows):
        """Its rows. Raises LookupError for a model without any."""
        found = [[row for row in rows if fits(row, *model)] for model in self.models]
        for (label, where), own in zip(self.models, found, strict=True):
            if not own:
                place = ", ".join(f"{key} {value}" for key, value in where)
                raise LookupError(" at ".join(filter(None, [f"{label!r}", place])))
        return [row for own in found for row in own]

    def parts(self, frame):
        """The rows of a collected frame, of each of its models."""
        lines = frame.to_dict("records")
        told = [[fits(line, *model) for line in lines] for model in self.models]
        return [frame[np.array(fit, bool)] for fit in told]


@dataclass(frozen=True)
class Comparison:
    """One cell of a claim: a contrast that is above 0 (>), alike (~) or none at all (=)."""

    measure: str  # "" for the score
    terms: tuple  # of (weight, Form)
    sign: str
    less: float  # what is taken off the contrast
    text: str
    slope: bool

    @property
    def name(self):
        """The rival and the place, as a cell of a verdict is named; else the cell as told."""
        left, right = self.text.partition(" @ ")[0], self.terms[-1][1]
        if len(self.terms) != 2 or self.slope or "[" in left or " over " in left:
            return self.text
        return ", ".join([right.models[0][0], *(f"{key} {value}" for key, value in right.where)])

    def unit(self):
        """The unit of the contrast."""
        unit = MEASURES[self.measure][1] if self.measure else "points"
        return unit + " per doubling" * self.slope


CELL = r"(?:(.+?) :: )?(.+?) (>|~|=(?= value )) (.+?)(?: @ (\w+=.+))?"


def labelled(row):
    """The label of a row of a grid: its model, else its network."""
    return row.get("model") if isinstance(row.get("model"), str) else row.get("network")


def fits(row, label, where):
    """Whether a row has a label and these values."""
    return labelled(row) == label and all(str(row.get(k)) in v.split("/") for k, v in where)


def places(text):
    """((column, value), ...) of "m=3, task=CoLA"."""
    return tuple(tuple(each.split("=", 1)) for each in (text or "").split(", ") if each)


def form(text, where):
    """The Form of "A [m=3]" or "A over B [m=3]", where A may have a place of its own."""
    told = [
        re.fullmatch(r"(.+?)(?: \[(\w+=[^\]]+)\])?", part).groups() for part in text.split(" over ")
    ]
    return Form(tuple((label, (*places(own or told[-1][1]), *where)) for label, own in told))


def side(text, where):
    """((weight, Form), ...) of one side of a cell, and whether it is a slope."""
    parts = text.split(" | ")
    forms = [form(part, where) for part in parts]
    if len(parts) == 1:
        return [(1.0, forms[0])], False
    x = [float((re.findall(r"[\d.]+", part) or ["nan"])[-1]) for part in parts]
    if not np.isfinite(x).all():
        raise ValueError(f"{text!r} is a slope over the last numbers of its labels: one has none")
    return list(zip(map(float, stats.slope_weights(np.log2(x))), forms, strict=True)), True


def comparisons(text):
    """The Comparisons of a claim's `cells`. Raises ValueError, naming the cell, where one is
    none."""
    found = []
    for part in filter(None, text.split("; ")):
        hit = re.fullmatch(CELL, part)
        if not hit:
            raise ValueError(f"cell {part!r}: expected 'A > B' or 'A ~ B', then '@ column=value'")
        measure, *both, where = hit[1] or "", hit[2], hit[4], places(hit[5])
        if measure:
            known("measure", measure, MEASURES)
        terms, less, slope = Counter(), 0.0, False
        for told, factor in zip(both, (1, -1), strict=True):
            if told.startswith("value "):
                less -= factor * float(told.removeprefix("value "))
                continue
            weighted, steep = side(told, where)
            slope |= steep
            for weight, one in weighted:
                terms[one] += factor * weight
        told = tuple((weight, one) for one, weight in terms.items())
        level = sum(weight for weight, one in told if len(one.models) == 1)
        if not measure and (less or abs(level) > 1e-9):
            raise ValueError(f"cell {part!r}: scores are compared in pairs, so weights sum to 0")
        found.append(Comparison(measure, told, hit[3], less, part, slope))
    return found


# ---- HOW IT IS JUDGED


def scores(spec):
    """Whether a run of a Spec is scored on examples that another model can be paired on."""
    return spec.step in TRAINED and spec.args["data"]["task"] not in squad.TASKS


def each_task(cell, rows):
    """The Comparison, or one for each task of its rows where it says `task=each`."""
    if "task=each" not in cell.text:
        return [cell]
    free = comparisons(re.sub(r"(, | @ )task=each", "", cell.text))[0]
    tasks = dict.fromkeys(r["task"] for _, form in free.terms for r in form.rows(rows))
    return [c for t in tasks for c in comparisons(cell.text.replace("task=each", f"task={t}"))]


def measured(line, rows, store, scale):
    """The Verdict on a finding by its cells, from the runs of rows of grids, and how many seeds are
    planned. Raises LookupError, naming it, for a model that no row has."""
    cells = [c for told in comparisons(line["cells"]) for c in each_task(told, rows)]
    parts = {}
    for cell in cells:
        own = [row for row in rows if cell.measure or scores(row["spec"])]
        own = [row for _, form in cell.terms for row in form.rows(own)]
        parts[cell] = list({(labelled(row), row["spec"]): row for row in own}.values())
    frames = {cell: sweep.collect(own, store, on_missing="skip") for cell, own in parts.items()}
    above = {cell: frame for cell, frame in frames.items() if cell.sign == ">"}
    found = [higher(line, above, scale)] if above else []
    for cell, frame in frames.items():
        if cell.sign == "~":
            found.append(alike(line, cell, frame, scale))
        if cell.sign == "=":
            found.append(never(line, cell, frame, scale))
    judged = claims.together(found) if len(found) > 1 else found[0]
    return replace(judged, planned=len({row["seed"] for own in parts.values() for row in own}))


def estimate(cell, frame, scale, columns):
    """The Estimate of a contrast less what is taken off; None where a part of it was not run."""
    if cell.measure == "variance":
        return of_variance(cell, frame, scale, columns)
    if cell.measure:
        return of_measure(cell, frame)
    frame = frame[~diverged(frame)]  # their scores are no replicate
    alone = [(weight, form) for weight, form in cell.terms if len(form.models) == 1]
    told = [(weight, *form.parts(frame)) for weight, form in cell.terms if len(form.models) == 2]
    told += [(w, *form.parts(frame), *alone[-1][1].parts(frame)) for w, form in alone[:-1]]
    groups = [
        claims.pairs(
            pd.concat([a.assign(model="method"), b.assign(model="baseline")]),
            *(scale, "method", "baseline", columns),
        )
        for _, a, b in told
    ]
    tasks = [{pair.task for pair in group} for group in groups]
    if any(not a.isdisjoint(b) for a, b in combinations(tasks, 2)):
        groups = stats.common(groups)
    return stats.contrast(groups, [weight for weight, *_ in told]) if all(groups) else None


def of_measure(cell, frame):
    """The same of a measure of runs: the mean over seeds, or the share of the runs where it is yes
    or no."""
    frame = valued(cell, frame)
    parts = [(weight, form.parts(frame)) for weight, form in cell.terms]
    values = [part["value"].dropna() for _, own in parts for part in own]
    if not all(map(len, values)):
        return None
    if frame["value"].dtype == bool:
        return stats.share_gap(*values, less=cell.less)
    total = sum(weight * mean_of(own) for weight, own in parts).dropna()
    return stats.replicates(total - cell.less) if len(total) else None


def valued(cell, frame):
    """The rows of a frame that have the measure of a cell, as `value`."""
    how, frame = MEASURES[cell.measure][0], frame[frame["run"].notna()]
    if callable(how):
        return frame.assign(value=how(frame))
    names = re.findall(r"[a-z_]{4,}", how)
    if not {*names} <= {*frame}:
        return frame[:0].assign(value=0.0)
    frame = frame.dropna(subset=names).infer_objects()
    return frame.assign(value=frame.eval(how))


def mean_of(parts):
    """The mean `value` by seed of the rows of a model, or of one less another."""
    first, *others = (part.groupby("seed")["value"].mean() for part in parts)
    return first - others[0] if others else first


def of_variance(cell, frame, scale, columns):
    """The ratio of the variances of two models' scores."""
    scored = [
        compare.points(part, grids.metrics(scale, columns))["score"]
        for _, form in cell.terms
        for part in form.parts(frame[frame["run"].notna() & ~diverged(frame)])
    ]
    return nas_claims.variance_ratio(*scored)


def most(line, cells):
    """How many of some cells the claim asks for: all, or as its sentence says."""
    told = re.search(r"(\d+) of \d+", line["margin"])
    half = len(cells) // 2 + 1 if "more than half" in line["rule"] else len(cells)
    return min(int(told[1]), len(cells)) if told else half


def higher(line, frames, scale):
    """Verdict on the cells A > B, {Comparison: frame of its rows}, all in one."""
    cells, alone, columns = list(frames), len(frames) == 1, COLUMNS.get(line["paper"], ())
    names = [cell.name for cell in cells]
    names = names if len({*names}) == len(names) else [cell.text for cell in cells]
    named = {cell: name * (not alone) for cell, name in zip(cells, names, strict=True)}
    sized = alone and line["unit"] in SIZED and cells[0].name != cells[0].text
    size = abs(float(line["value"])) if sized else 0.0
    found = {named[cell]: estimate(cell, frame, scale, columns) for cell, frame in frames.items()}
    every = pd.concat(frames.values()).drop_duplicates("spec")
    told = found, dict.fromkeys(found, size), scale
    more = {"failed": compare.lost(every), "unit": cells[0].unit()}
    least = most(line, cells)
    if least < len(cells):
        return verdict.judge_count(line["id"], found, least, scale, **more)
    judge = JUDGES.get(line["rule"].split(":")[0], verdict.judge_delta)
    word = (
        "over" if all(name != cell.text for cell, name in zip(cells, names, strict=True)) else "for"
    )
    return judge(line["id"], *told, word=word, **more)


def alike(line, cell, frame, scale):
    """Verdict on one cell A ~ B: within the margin of the claim, on the sides that its rule has."""
    margin = abs(float(line["margin"].split()[0]))
    sides = [ends(margin) for words, ends in SIDES.items() if words in line["rule"]]
    low, high = sides[0] if sides else (-margin, margin)
    found = estimate(cell, frame, scale, COLUMNS.get(line["paper"], ()))
    more = {"failed": compare.lost(frame), "unit": cell.unit()}
    judged = verdict.judge_within(line["id"], found, low, high, scale, **more)
    text = (
        cell.text if cell.name == cell.text else f"{cell.terms[0][1].models[0][0]} over {cell.name}"
    )
    return claims.about(text, judged)


def never(line, cell, frame, scale):
    """Verdict on one cell A = value 0: a measure of yes and no is no in every planned run."""
    ((_, form),) = cell.terms
    told = valued(cell, frame)["value"]
    words = f"runs of {form.models[0][0]} {cell.measure}"
    return verdict.judge_never(line["id"], int(told.sum()), len(told), len(frame), scale, words)
