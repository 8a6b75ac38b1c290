"""BERMo's printed numbers: each check of `checks.csv` computed again, and the repairs
behind it."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from lib.papers import published
from lib.papers.bermo import tables as bermo_tables
from lib.papers.bermo.recipes import PROBES
from lib.stats.cost import SHAPES

SEMANTIC = ("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")
CHECKS = pd.read_csv(
    published.PUBLISHED / "bermo" / "checks.csv", dtype=str, keep_default_na=False
)
REPAIRED = bermo_tables.read_printed_probing_accuracies_with_corrections(
    "table12_probing_trials", ["Block", "Model"]
)


def trials(model, column, repaired=True):
    """The scores of Table 12 that did not diverge."""
    cells = REPAIRED[PROBES[column]]
    if not repaired:
        cells = pd.Series(
            list(published.read_table("bermo", "table12_probing_trials")[column]),
            cells.index,
        )
    cells = (
        cells[cells.index.str.match(f"Trial . {model}")]
        .astype(str)
        .str.removesuffix(" †")
    )
    return pd.to_numeric(cells, errors="coerce").dropna()


def improvement(column):
    return trials("BERMo_BASE", column).mean() - trials("BERT_BASE", column).mean()


def remaining():
    """Kept weights at top-k 10 % of each matrix, and all biases and LayerNorms, over
    the encoder's parameters."""
    s = SHAPES["bert-base"]
    sizes = ([s.hidden**2] * 4 + [s.hidden * s.ffn] * 2) * s.layers
    rest = s.layers * (9 * s.hidden + s.ffn)
    kept = sum(size // 10 for size in sizes) + rest
    return 100 * kept / (sum(sizes) + rest), sum(sizes) / 1e6, sum(sizes) + rest


GAINS = {column: improvement(column) for column in PROBES}
TEXT = {
    "avg semantic improvement": np.mean(
        [GAINS[c] for c, task in PROBES.items() if task in SEMANTIC]
    ),
    "avg improvement all": np.mean([*GAINS.values()]),
    "tasks improved": sum(gain > 0 for gain in GAINS.values()),
    "L0 QQP weight ratio": 7.7 / 5.5,
    "soft QQP ratio": 14.9 / 11.5,
    "contribution iv ratio": (7.7 / 5.5 + 14.9 / 11.5) / 2,
    "MNLI convergence": 5 / 3,
    "QQP convergence": 8 / 7,
    "84M params": remaining()[1],
}


def recomputed(check):
    if check["table"].startswith("text; "):
        return TEXT[check["row"]]
    if check["table"] == "table04":
        return remaining()[0]
    if check["table"] in (
        "table02",
        "table03",
    ):  # the nearest score that 872 sentences can give
        return 100 * round(float(check["printed"]) * 8.72) / 872
    column = check["column"].removesuffix(" (corrected)")
    if check["row"] == "Improvements":
        return GAINS[column]
    model, *statistic = check["row"].split(" ", 1)
    values = trials(
        model, column, check["table"] == "table01" or column != check["column"]
    )
    return values.std() if statistic == ["Standard Deviation"] else values.mean()


def test_every_check_is_computed_again():
    assert CHECKS["status"].value_counts().to_dict() == {"match": 87, "MISMATCH": 13}
    for check in CHECKS.to_dict("records"):
        value, printed = float(recomputed(check)), check["printed"]
        assert value == pytest.approx(float(check["recomputed"]), rel=5e-5), check
        digits = max(0, -Decimal(printed).as_tuple().exponent)
        equal = round(value + 1e-9, digits) == float(printed)
        assert equal == (check["status"] == "match"), check


def test_printed_cells_of_the_checks_are_those_of_the_tables():
    names = ("table01_probing_mean", "table12_probing_trials", "table03_sst2_stability")
    means, blocks, seeds = (published.read_table("bermo", name) for name in names)
    blocks.index = blocks["Model"] + " " + blocks["Block"]
    tables = {"table01": means.set_index("Model"), "table03": seeds.set_index("Model")}
    tables["table12"] = blocks
    own = CHECKS[CHECKS["table"].isin(tables)].to_dict("records")
    assert len(own) > 80
    for check in own:
        cell = tables[check["table"]].loc[
            check["row"], check["column"].removesuffix(" (corrected)")
        ]
        assert float(cell) == float(check["printed"]), check


def test_repaired_cells_are_marked_and_make_the_means_hold():
    means = bermo_tables.read_printed_probing_accuracies_with_corrections(
        "table01_probing_mean", ["Model"]
    )
    marks = means.map(lambda text: text.endswith(" †"))
    assert means.loc["BERT_BASE", "Length"] == "99.20 †" and marks.sum().sum() == 1
    marked = REPAIRED.stack()[lambda cells: cells.str.endswith("†")].to_dict()
    assert marked == {
        ("Trial 1 BERT_BASE", "Length"): "99.16 †",
        ("Trial 3 BERMo_BASE", "Length"): "99.24 †",
        ("Trial 3 BERMo_BASE", "OddManOut"): "63.74 †",
    }
    printed = means.loc["BERMo_BASE"].astype(float)
    for column, task in PROBES.items():
        assert abs(trials("BERMo_BASE", column).mean() - printed[task]) < 0.0051


def test_the_denominator_of_remaining_weights():
    share, masked, whole = remaining()
    assert (masked, whole) == (84.934656, 85054464) and share == pytest.approx(
        10.126735, abs=5e-7
    )
    assert math.floor(10 * share) / 10 == 10.1
