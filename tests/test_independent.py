"""Judged cells computed again from the files of the records, by numpy alone.

Nothing of `lib` is used. A cell "A > B @ m=3" is the mean over its seeds of the
accuracy of A less that of B, in points, over development rows and judged unseen rows.
Its interval is Student's, from the variance over seeds and that over clusters of rows.
"""

import csv
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

DATA = Path(__file__).parents[1] / "data"
CELL = re.compile(
    r"(?P<a>.+?)(?: \[(?P<of_a>.+?)\])? (?:>=?|~|<=) (?P<b>.+?)(?: \[(?P<of_b>.+?)\])?"
    r"(?: (?:\+-|\+|-) [\d.]+)?(?: @ (?P<where>.+))?"
)
LEAST = 3


@cache
def rows(file):
    with (DATA / file).open() as lines:
        return list(csv.DictReader(lines))


def cells():
    """Each difference of two models that is judged on SST-2 from three seeds, by its
    sizes."""
    judged, files = {}, DATA.glob("published/*/claims.csv")
    here = {row["id"] for file in files for row in rows(file.relative_to(DATA))}
    for row in (row for row in rows("records/verdicts.csv") if row["claim"] in here):
        simple = row["unit"] == "points" and not re.search(r"::|\|| over ", row["cell"])
        seeds = int(row["seeds"])
        if simple and row["estimate"] and row["task"] == "SST-2" and seeds >= LEAST:
            judged.setdefault((row["estimate"], row["low"]), row | {"count": seeds})
    return list(judged.values())


def planned(claim, profile):
    """(the pages of a claim, its seeds at a profile; None for those of the pages)."""
    (line,) = (
        row
        for file in DATA.glob("published/*/claims.csv")
        for row in rows(file.relative_to(DATA))
        if row["id"] == claim
    )
    pages = line["artefact"].split("; ")
    if profile == "base":
        plan = [r for r in rows("published/plan_base.csv") if r["claim"] == claim]
        starts = [(int(r["first_seed"]), int(r["seeds"])) for r in plan]
        return pages, {seed for a, count in starts for seed in range(a, a + count)}
    for row in rows("published/plan.csv"):
        if row["claim"] == claim:
            first = int(row["first_seed"])
            seeds = [*range(first, first + int(row["seeds"]))]
            for more in rows("published/added.csv"):
                if more["claim"] == claim:
                    ends = [int(n) for n in more["seeds"].split(" to ")]
                    seeds += range(ends[0], ends[-1] + 1)
            return pages, seeds
    first, _, last = line["seeds"].partition(" to ")
    return pages, first and range(int(first), int(last or first) + 1)


def labels(*texts):
    """{name: value} of labels such as "m=3, budget=6", on SST-2."""
    every = ", ".join(filter(None, texts)).split(", ")
    return dict(each.split("=", 1) for each in every if each) | {"task": "SST-2"}


def recorded(claim, profile, model, where):
    """{seed: folder} of the recorded runs of a model, or of a recipe, that a claim is
    on at a profile."""
    pages, seeds = planned(claim, profile)
    wanted = {f"{name}={value}" for name, value in where.items()}
    return {
        row["seed"]: DATA / "records" / row["run"]
        for row in rows("records/runs.csv")
        if row["profile"] == profile
        and row["page"] in (claim, *pages)
        and (not seeds or int(row["seed"]) in seeds)
        and wanted <= {*(told := row["labels"].split("; "))}
        and {f"model={model}", f"recipe={model}"} & {*told}
        and "kind=search" not in told  # the search itself, before the model it found
        and (DATA / "records" / row["run"]).exists()
    }


@cache
def specs():
    """{canonical text of a recorded Spec: folder of its run}."""
    return {
        json.dumps(json.loads(file.read_text()), sort_keys=True): file.parent
        for file in DATA.glob("records/*/*/spec.json")
    }


def of_one_dtype(ours, theirs):
    """The folders of a pair's runs; where one computed in bfloat16 and the other in
    float32, the first is that of the same Spec in float32, or None."""
    pair = [json.loads((folder / "spec.json").read_text()) for folder in (ours, theirs)]
    texts = [json.dumps(spec, sort_keys=True) for spec in pair]
    halves = ["bfloat16" in text for text in texts]
    if halves[0] == halves[1]:
        return ours, theirs
    return tuple(specs().get(text.replace("bfloat16", "float32")) for text in texts)


def judged(folder):
    """(right [N], cluster [N]) of a run on development rows and judged unseen rows."""
    spec = json.loads((folder / "spec.json").read_text())["args"]["data"]["unseen"]
    dev = load_file(folder / "predictions.safetensors")
    packed = load_file(folder / "predictions_unseen.safetensors")["bits"]
    rest = load_file(DATA / "unseen" / f"{spec['digest']}.safetensors")
    unseen = np.unpackbits(packed, count=spec["rows"]) == rest["labels"]
    right = dev["logits"].argmax(1) == dev["labels"]
    return np.concatenate([right, unseen[rest["judged"]]]), rest["cluster"].astype(int)


def collapsed(folder):
    """Whether a run is no better than the most frequent class by two standard
    errors."""
    right, _ = judged(folder)
    spec = json.loads((folder / "spec.json").read_text())["args"]["data"]["unseen"]
    rest = load_file(DATA / "unseen" / f"{spec['digest']}.safetensors")
    dev = load_file(folder / "predictions.safetensors")["labels"]
    labels = np.concatenate([dev, rest["labels"][rest["judged"]]])
    most = np.bincount(labels.astype(int)).max() / len(labels)
    return right.mean() <= most + 2 * (most * (1 - most) / len(labels)) ** 0.5


@pytest.mark.parametrize("row", cells(), ids=lambda r: f"{r['claim']} {r['cell']}")
def test_a_judged_cell(row):
    parts = CELL.fullmatch(row["cell"]).groupdict()
    a, b = (
        recorded(
            row["claim"],
            row["profile"],
            parts[side],
            labels(parts["where"], parts[f"of_{side}"]),
        )
        for side in "ab"
    )
    for seed in {*a} & {*b}:
        a[seed], b[seed] = of_one_dtype(a[seed], b[seed])
    seeds = sorted(seed for seed in {*a} & {*b} if a[seed] and b[seed])
    seeds = [seed for seed in seeds if not (collapsed(a[seed]) or collapsed(b[seed]))]
    n = len(seeds)
    assert n == row["count"]
    both = [(judged(a[seed]), judged(b[seed])) for seed in seeds]
    gaps = np.array([100.0 * ours - 100.0 * theirs for (ours, _), (theirs, _) in both])
    mean, of_seed = gaps.mean(), gaps.mean(1)
    assert mean == pytest.approx(float(row["estimate"]), abs=1e-7)

    cluster = both[0][0][1]
    size, total = np.bincount(cluster), np.bincount(cluster, gaps.mean(0))
    # The mean without a cluster, and the variance of the jackknife over these.
    without = (total.sum() - total) / (size.sum() - size)
    of_rows = (len(size) - 1) * without.var()
    of_seeds = of_seed.var(ddof=1) / n
    freedom = (n - 1) * ((of_seeds + of_rows) / of_seeds) ** 2
    half = student(0.975, freedom) * (of_seeds + of_rows) ** 0.5
    ends = float(row["low"]), float(row["high"])
    assert (mean - half, mean + half) == pytest.approx(ends, abs=1e-4)


def student(q, freedom):
    """The quantile of Student's distribution: its density is integrated by Simpson's
    rule, over u with x = sinh(u), as the tails of few degrees of freedom are long."""
    u = np.linspace(0, 15, 600_001)
    x = np.sinh(u)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2) * np.cosh(u)
    steps = (density[:-2:2] + 4 * density[1::2] + density[2::2]) * (u[1] / 3)
    below = np.concatenate([[0], np.cumsum(steps)])
    return np.interp((q - 0.5) * 2 * below[-1], below, x[::2])


def test_twenty_cells_are_computed_again():
    assert len(cells()) >= 20
