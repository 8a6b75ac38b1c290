"""The report's FLOPs, its percentage changes and its speed-ups, to the printed digit or
on the list of known misses."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal

import pandas as pd
import pytest

from lib.core.paths import PUBLISHED
from lib.papers import published
from lib.papers.nas_pruning import gated
from lib.papers.published import read_table
from lib.stats import cost

MISSES = {
    (m["table"], m["row"], m["column"]): m
    for m in published.read_inconsistent_printed_values("nas_pruning")
}
TINY4 = gated.REPORTED["TinyBERT-4L"][0]


def rounded(value, digits):
    return float(
        Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    )


@pytest.mark.parametrize(
    "name, said, hard",
    [
        ("TinyBERT-4L", 1.239, 1.2475),
        ("TinyBERT-6L", 11.100, 11.1748),
        ("BERT-base", 22.199, 22.3484),
        ("BERT-Mini", 0.873, 0.8725),
    ],
)
def test_the_four_sizes_to_the_last_digit(name, said, hard):
    shape, mask, printed = gated.REPORTED[name]
    assert (
        printed
        == said
        == rounded(gated.count_masked_encoder_flops(shape, mask) / 1e9, 3)
    )
    assert gated.count_masked_encoder_flops(shape) / 1e9 == pytest.approx(
        hard, abs=5e-5
    )


def test_the_factor_and_the_pooler_are_both_needed():
    """Whole masks miss three of four sizes; without the pooler three miss the last
    digit."""
    hits = []
    for shape, mask, said in gated.REPORTED.values():
        counts = (
            gated.count_masked_encoder_flops(shape),
            gated.count_masked_encoder_flops(shape, mask) - 2 * shape.hidden**2,
        )
        hits.append([rounded(count / 1e9, 3) == said for count in counts])
    assert hits == [[False, True], [False, False], [False, False], [True, False]]


def test_shares():
    found = gated.compute_flops_share_by_part(TINY4)
    assert sum(found.values()) == pytest.approx(1)
    shares = [round(100 * share, 1) for share in found.values()]
    assert shares[:3] == [32.0, 6.6, 61.5]
    assert int(100 * found["feed-forward"]) == 61
    other = cost.Shape("bert", 4, 312, 12, 1024, 30522, 512, 2, 312)
    sizes = [
        rounded(gated.count_masked_encoder_flops(other, mask) / 1e9, 3)
        for mask in (1, gated.OPEN)
    ]
    assert sizes == [1.135, 1.127]
    assert (
        round(100 * gated.compute_flops_share_by_part(other)["feed-forward"], 1) == 57.6
    )


@pytest.mark.parametrize(
    "shape, neurons",
    [(TINY4, 62.7), (cost.SHAPES["bert-base"], 138.7), (cost.SHAPES["bert-mini"], 160)],
)
def test_units(shape, neurons):
    """8 T H D + 4 T T D for a head and 4 T H for a dimension; one of the former in
    terms of the latter."""
    h, d = shape.hidden, shape.hidden // shape.heads
    assert (
        gated.count_head_flops(h, d) == 8 * 128 * h * d + 4 * 128**2 * d
        and gated.count_neuron_flops(h) == 4 * 128 * h
    )
    assert gated.count_head_flops(h, d) / gated.count_neuron_flops(h) == pytest.approx(
        neurons, abs=0.05
    )
    units = shape.heads * gated.count_head_flops(
        h, d
    ) + shape.ffn * gated.count_neuron_flops(h)
    assert gated.count_masked_encoder_flops(shape) == shape.layers * units + 2 * h * h


def test_true_flops_differ_by_the_classifier_alone():
    assert cost.flops(TINY4) - gated.count_masked_encoder_flops(TINY4) == 2 * 312 * 2


def test_inputs_and_qkv_dimensions():
    """Halving the inputs halves the three products that read them; dropping a query
    dimension drops a key's with it."""
    h, d, t = 312, 26, 128
    width = {"heads": 12, "ffn": 1200}

    def total(**more):
        return gated.flops(h, d, [width | more], has_pooler=False)

    assert total(embedding=h, qk=h, v=h) == total()
    assert total() - total(embedding=h // 2) == 2 * t * (h // 2) * 3 * h
    assert total() - total(qk=h - 1) == 2 * t * h * 2 + 2 * t * t
    assert total() - total(v=h - 1) == 2 * t * h * 2 + 2 * t * t
    assert total() - total(qk=h - d, v=h - d) == gated.count_head_flops(h, d)


def test_counts_of_an_architecture():
    found = cost.compute_layer_widths_of_pruned_network(
        {"heads": [[0, 3], [1]], "neurons": [[5], [1, 2, 3]]}
    )
    assert found == [{"heads": 2, "ffn": 1}, {"heads": 1, "ffn": 3}]


def decimals(cell):
    return len(re.fullmatch(r"-?\d+\.?(\d*)", cell)[1])


def printed(name):
    """Cells as text, by row name."""
    cells = pd.read_csv(
        PUBLISHED / "nas_pruning" / f"{name}.csv", dtype=str, keep_default_na=False
    )
    return {row.iloc[0]: row.to_dict() for _, row in cells.iterrows()}


def change(value, baseline):
    """The tables' percentage change, relative and not in points; from a baseline of 0
    infinite."""
    return (
        100 * (value - baseline) / baseline
        if baseline
        else math.copysign(math.inf, value)
    )


TESTS = {
    "table06_test_tinybert4l": 9,
    "table07_test_tinybert6l": 9,
    "table08a_test_bertbase": 10,
    "table09_vs_bertmini": 9,
}


@pytest.mark.parametrize("name, cells", TESTS.items())
def test_percentage_changes_of_the_test_tables(name, cells):
    baseline, ours, shown = printed(name).values()
    told = {
        column: cell for column, cell in shown.items() if cell and column != "Models"
    }
    assert len(told) == cells
    for column, cell in told.items():
        found = change(float(ours[column]), float(baseline[column]))
        assert found == float(cell) or rounded(found, 2) == float(cell), column


@pytest.mark.parametrize("name", [n for n in TESTS if n != "table09_vs_bertmini"])
@pytest.mark.parametrize("end, other", [("low", "high"), ("high", "low")])
def test_speed_ups(name, end, other):
    baseline, ours, _ = printed(name).values()
    found = rounded(
        float(baseline["FLOPS (B) low"]) / float(ours[f"FLOPS (B) {other}"]), 1
    )
    miss = MISSES.get((name, ours["Models"], f"Speedup {end}"))
    assert f"{found:.1f}" == (miss["computed"] if miss else ours[f"Speedup {end}"])
    assert not miss or miss["printed"] == ours[f"Speedup {end}"]


def test_percentage_changes_of_the_size_sweep():
    cells = 0
    for row in read_table("nas_pruning", "table04_dev_size_sweep").to_dict("records"):
        for size in ("10%", "30%", "50%", "70%"):
            assert rounded(change(row[size], row["100%"]), 1) == row[f"{size} change"]
            cells += 1
    assert cells == 16


def test_table_5_repeats_table_4():
    sizes = read_table("nas_pruning", "table04_dev_size_sweep")
    random = read_table("nas_pruning", "table05_nas_vs_random")
    for size in ("10%", "30%", "50%", "70%"):
        assert sizes[size].tolist() == random[f"{size} NAS"].tolist()


@pytest.mark.parametrize("name", ["table08b_mnist_3layer", "table10b_mnist_11layer"])
def test_resulting_ratios_of_the_digits(name):
    wrong = 0
    for _, (_, target, ratio, image, noise) in (
        read_table("nas_pruning", name).astype(str).iterrows()
    ):
        found = f"{rounded((int(image) + int(noise)) / 1568, 3):.3f}"
        miss = MISSES.get((name, str(float(target)), "Resulting Input Size Ratio"))
        wrong += bool(miss)
        assert float(found) == float(miss["computed"] if miss else ratio)
        assert not miss or float(miss["printed"]) == float(ratio)
    assert wrong == {"table08b_mnist_3layer": 1, "table10b_mnist_11layer": 5}[name]


def test_magnitude_table():
    rows = read_table("nas_pruning", "table10a_vs_imp_dev").set_index("Row")
    ours = rows.loc["30% Bertbase-12L"]
    theirs = rows.loc["IMP [37]"]
    told = rows.loc["Difference"]
    for column in rows.columns.drop("Avg"):
        assert rounded(ours[column] - theirs[column], 1) == told[column]
    for row in (ours, theirs):
        assert rounded(row.drop("Avg").mean(), 1) == row["Avg"]
    ratios = rows.loc["Ratio % (30% Bertbase-12L)"].drop("Avg")
    big = (
        read_table("nas_pruning", "table08a_test_bertbase")
        .set_index("Models")
        .loc["30% Bertbase-12L"]
    )
    for end, column, value in (
        ("lowest", "low", ratios.min()),
        ("highest", "high", ratios.max()),
    ):
        miss = MISSES["table10a_vs_imp_dev", "Ratio % (30% Bertbase-12L)", end]
        computed = rounded(100 * big[f"FLOPS (B) {column}"] / 22.199, 1)
        assert (miss["printed"], miss["computed"]) == (str(value), str(computed))
        assert 100 * big[f"FLOPS (B) {column}"] / value == pytest.approx(
            23.74, abs=0.02
        )


def test_means_over_three_runs_are_whole_counts_of_the_development_set():
    rows = read_table("nas_pruning", "table12_flops_weight").set_index(
        ["Task", "Statistic"]
    )
    for value in rows.loc["SST-2", "AVG (3 runs)"]:
        assert round(round(value * 3 * 872) / (3 * 872), 6) == value


def test_every_known_miss_is_one_and_has_its_arithmetic():
    assert len(MISSES) == len(published.read_inconsistent_printed_values("nas_pruning"))
    assert all(m["printed"] != m["computed"] and m["reason"] for m in MISSES.values())


def test_corrections_name_tables_that_are_there():
    listed = read_table("nas_pruning", "corrections")
    assert not listed.isna().any(axis=None) or listed["column"].isna().sum() == 1
    names = {
        p.stem.split("_")[0] for p in (PUBLISHED / "nas_pruning").glob("table*.csv")
    }
    for cell in listed["table"]:
        assert all(
            part.split()[0] in names | {"text", "eq."} for part in cell.split("; ")
        ), cell
