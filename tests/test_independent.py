"""Judged cells computed again from the files of the records, by numpy alone.

Nothing of `lib` is used. A cell "A > B @ m=3" is the mean over its seeds of the accuracy of A less
that of B, in points, over development rows and judged unseen rows. Its interval is a bootstrap over
seeds and over clusters of rows, with draws of its own.
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
LEAST, DRAWS = 3, 2000


@cache
def rows(file):
    with (DATA / file).open() as lines:
        return list(csv.DictReader(lines))


def cells():
    """Each difference of two models that is judged on SST-2 from three seeds, by its sizes."""
    judged = {}
    for row in rows("records/verdicts.csv"):
        simple = row["unit"] == "points" and not re.search(r"::|\|| over ", row["cell"])
        seeds = int(row["seeds"].split(" of ")[0] or 0) if row["seeds"] else 0
        if simple and row["estimate"] and row["task"] == "SST-2" and seeds >= LEAST:
            judged.setdefault((row["estimate"], row["low"]), row | {"count": seeds})
    return list(judged.values())


def planned(claim):
    """(the pages of a claim, its seeds; None for those of the pages)."""
    (line,) = (
        row
        for file in DATA.glob("published/*/claims.csv")
        for row in rows(file.relative_to(DATA))
        if row["id"] == claim
    )
    for row in rows("published/plan.csv"):
        if row["claim"] == claim:
            first = int(row["first_seed"])
            return line["artefact"].split("; "), range(first, first + int(row["seeds"]))
    first, _, last = line["seeds"].partition(" to ")
    return line["artefact"].split("; "), first and range(int(first), int(last or first) + 1)


def labels(*texts):
    """{name: value} of labels such as "m=3, budget=6", on SST-2."""
    every = ", ".join(filter(None, texts)).split(", ")
    return dict(each.split("=", 1) for each in every if each) | {"task": "SST-2"}


def recorded(claim, model, where):
    """{seed: folder} of the recorded runs of a model, or of a recipe, that a claim is on."""
    pages, seeds = planned(claim)
    wanted = {f"{name}={value}" for name, value in where.items()}
    return {
        row["seed"]: DATA / "records" / row["run"]
        for row in rows("records/runs.csv")
        if row["profile"] == "mini"
        and row["page"] in (claim, *pages)
        and (not seeds or int(row["seed"]) in seeds)
        and wanted <= {*(told := row["labels"].split("; "))}
        and {f"model={model}", f"recipe={model}"} & {*told}
        and (DATA / "records" / row["run"]).exists()
    }


def judged(folder):
    """(right [N], cluster [N]) of a run on development rows and judged unseen rows."""
    spec = json.loads((folder / "spec.json").read_text())["args"]["data"]["unseen"]
    dev = load_file(folder / "predictions.safetensors")
    packed = load_file(folder / "predictions_unseen.safetensors")["bits"]
    rest = load_file(DATA / "unseen" / f"{spec['digest']}.safetensors")
    unseen = np.unpackbits(packed, count=spec["rows"]) == rest["labels"]
    right = dev["logits"].argmax(1) == dev["labels"]
    return np.concatenate([right, unseen[rest["judged"]]]), rest["cluster"].astype(int)


@cache
def draws(units):
    """How often each of some units occurs in each draw: [DRAWS, units]."""
    rng = np.random.default_rng(7)
    return rng.multinomial(units, np.full(units, 1 / units), DRAWS).astype(float)


@pytest.mark.parametrize("row", cells(), ids=lambda r: f"{r['claim']} {r['cell']}")
def test_a_judged_cell(row):
    parts = CELL.fullmatch(row["cell"]).groupdict()
    a, b = (
        recorded(row["claim"], parts[side], labels(parts["where"], parts[f"of_{side}"]))
        for side in "ab"
    )
    seeds = sorted({*a} & {*b})
    n = len(seeds)
    assert n == row["count"]
    both = [(judged(a[seed]), judged(b[seed])) for seed in seeds]
    gaps = np.array([100.0 * ours - 100.0 * theirs for (ours, _), (theirs, _) in both])
    mean, of_seed = gaps.mean(), gaps.mean(1)
    assert mean == pytest.approx(float(row["estimate"]), abs=1e-7)

    rng, cluster = np.random.default_rng(8), both[0][0][1]
    drawn, total = draws(int(cluster.max()) + 1), np.bincount(cluster, gaps.mean(0))
    of_rows = (drawn @ total) / (drawn @ np.bincount(cluster)) - mean
    of_seeds = of_seed[rng.integers(n, size=(DRAWS, n))].mean(1) - mean
    # n seeds show (n - 1) / n of their variance, and Student's t is wider than a normal
    part = of_seed.var(ddof=1) / n
    freedom = (n - 1) * ((part + of_rows.var()) / part) ** 2
    wider = np.quantile(rng.standard_t(freedom, 200_000), 0.975) / 1.95996
    ends = np.quantile(of_rows + (n / (n - 1)) ** 0.5 * of_seeds, (0.025, 0.975))
    low, high = mean + wider * ends
    near = 0.08 * (high - low)  # what 2,000 draws leave open
    assert (low, high) == pytest.approx((float(row["low"]), float(row["high"])), abs=near)


def test_twenty_cells_are_computed_again():
    assert len(cells()) >= 20
