"""What the paper's runs take, counted, and printed by `plan` without data or checkpoints."""

import pytest

from lib.__main__ import main
from lib.measure.cost import SHAPES, flops
from lib.papers import efficientbert, ghostbert, grids, nas, training


def test_a_fine_tuning_is_three_passes_of_each_row_and_epoch(anywhere):
    spec, shape = grids.teacher("paper", "MNLI"), SHAPES["bert-base"]
    assert (found := training.flops(spec)) == 3 * flops(shape, 128) * 392702 * 3
    hours = f"{2 * found / 11.7e12 / 3600:,.1f} GPU hours"
    assert training.gpu_hours([spec, spec]) == hours


def test_teachers_augmented_rows_and_networks_are_counted(anywhere):
    tuned = ghostbert.student("paper", "RTE", 3, ghostbert.ghost("paper"))
    distilled, one = tuned.inputs["start"], flops(SHAPES["bert-base"], 128)
    # a pass of the teacher, 30 tries a sentence
    assert training.flops(distilled) == 4 * one * 2490 * (1 + 30) * 3
    assert training.flops(tuned) == 3 * one * 2490 * 3
    small = efficientbert.student("paper", "RTE", "EfficientBERT")
    # 10 epochs of a small network, a large teacher
    assert training.flops(small) < 2 * training.flops(tuned)
    searched = training.flops(nas.searched("paper", "RTE"))
    assert searched == 4 * flops(SHAPES["tinybert-4"], 128) * 2490 * 10


def test_the_plan_of_the_paper_needs_no_data(without_data, capsys):
    without_data()
    assert main(["plan", "nas_t0", "ghostbert_t03", "--profile", "paper"]) == 0
    told = capsys.readouterr().out
    for words in (
        *("ghostbert_t03_pruned_vs_ghost: ", "729 runs missing", "GPU hours", "A100"),
        *("models/bert-base-uncased", "glue/CoLA", "glue/MNLI"),
    ):
        assert words in told
    with pytest.raises(FileNotFoundError):
        grids.teacher("paper", "MNLI")  # a plan alone does without
