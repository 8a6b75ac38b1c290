"""Costs of the paper's runs: counted, and told without data or checkpoints."""

import pytest

from lib import budget
from lib.__main__ import main
from lib.measure.cost import SHAPES, flops
from lib.papers import efficientbert, ghostbert, grids, nas


def test_a_fine_tuning_is_three_passes_of_each_row_and_epoch(anywhere):
    spec, shape = grids.teacher("paper", "MNLI"), SHAPES["bert-base"]
    found = budget.cost(spec)
    assert found.flops == 3 * flops(shape, 128) * 392702 * 3
    assert found.seconds == pytest.approx(found.flops / 11.7e12)
    assert found.disk == pytest.approx(4 * 109.5e6, rel=0.01)
    assert 4e9 < found.memory < 8e9  # batch 32 of 128 tokens in float32


def test_teachers_augmented_rows_and_networks_are_counted(anywhere):
    tuned = ghostbert.student("paper", "RTE", 3, ghostbert.ghost("paper"))
    distilled, one = tuned.inputs["start"], flops(SHAPES["bert-base"], 128)
    # a pass of the teacher, 30 tries a sentence
    assert budget.cost(distilled).flops == 4 * one * 2490 * (1 + 30) * 3
    assert budget.cost(tuned).flops == 3 * one * 2490 * 3
    small = efficientbert.student("paper", "RTE", "EfficientBERT")
    # 10 epochs of a small network, a large teacher
    assert budget.cost(small).flops < 2 * budget.cost(tuned).flops
    searched = budget.cost(nas.searched("paper", "RTE")).flops
    assert searched == 4 * flops(SHAPES["tinybert-4"], 128) * 2490 * 10


def test_the_plan_of_the_paper_needs_no_data(without_data, capsys):
    without_data()
    assert main(["plan", "nas_t0", "ghostbert_t03", "--profile", "paper"]) == 0
    told = capsys.readouterr().out
    for words in (
        *("ghostbert_t03_pruned_vs_ghost: 729 runs missing", "GPU hours", "A100"),
        *("models/bert-base-uncased", "glue/CoLA", "glue/MNLI"),
        *("one GPU and one night", "DEVICE=cuda papermill notebooks/"),
    ):
        assert words in told
    with pytest.raises(FileNotFoundError):
        grids.teacher("paper", "MNLI")  # a plan alone does without
