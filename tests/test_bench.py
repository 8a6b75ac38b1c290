"""Bench: the cost of a training step of the pruning methods, at the smallest size."""

import bench
import numpy as np
import pandas as pd
import pytest

from lib import data
from lib.core import paths
from lib.core.options import Numerics, Train
from lib.core.spec import Spec
from lib.core.store import Store


class Clock:
    """A run that takes its steps from a list of (wall, CPU) seconds."""

    def __init__(self, monkeypatch, *seconds):
        self.now, self.seconds = np.zeros(2), seconds
        monkeypatch.setattr(bench, "clocks", lambda: self.now)

    def step(self, run, **_):
        for done, pair in enumerate(self.seconds, 1):
            self.now = self.now + pair
            run.progress(done / len(self.seconds))
        pytest.fail("the run was not ended")


def test_steps_are_timed_after_the_first_and_the_rest_is_left_out(
    tmp_path, monkeypatch
):
    clock = Clock(monkeypatch, (9, 9), (1, 2), (3, 4), (50, 50))
    monkeypatch.setattr("lib.train.steps.training.finetune", clock.step)
    assert bench.step_seconds(
        Spec("finetune", seed=0), Store(tmp_path, tmp_path), 2
    ).tolist() == [
        [1, 2],
        [3, 4],
    ]


def test_a_cut_network_is_timed_beside_the_whole_one():
    lines = list(bench.cutting(turns=2))
    assert [line["turn"] for line in lines] == [0, 1]
    assert all(line["whole_seconds"] > 0 and line["cut_seconds"] > 0 for line in lines)
    assert lines[0]["flops_ratio"] == pytest.approx(1 / 0.3, rel=0.02)


def test_methods_start_with_plain_fine_tuning_and_see_the_same_batches():
    common = {
        "data": data.describe("toy", "CoLA", 64),
        "numerics": Numerics("float32", 1),
        "train": Train(epochs=1, batch=32, lr=1e-3, max_length=16),
    }
    made = bench.pruners(common, Spec("pretrain", seed=0))
    masks = [
        f"masks: {name}" for name in ("Magnitude", "L0", "Movement", "Soft Movement")
    ]
    searches = ["search: cross_entropy", "search: prediction"]
    assert list(made) == ["plain fine-tuning", *masks, "layer mix", *searches]
    plain = made["plain fine-tuning"].args
    for spec in made.values():
        assert all(
            spec.args[name] == plain[name] for name in ("data", "train", "numerics")
        )
    for name in masks:
        prune = made[name].args["prune"]
        assert (
            prune["initial_threshold"] == prune["final_threshold"]
            and prune["warmup_steps"] == 0
        )


@pytest.mark.slow
def test_the_real_steps_on_real_rows():
    if not (paths.data_root() / "glue" / "CoLA").is_dir():
        pytest.skip("CoLA is not under DATA_ROOT/glue")
    try:
        data.locate(bench.MODEL)
    except FileNotFoundError:
        pytest.skip(f"{bench.MODEL} is not at hand")
    found = pd.DataFrame(bench.pruning(repeats=1, sizes=(("CoLA", 0, 2),)))
    assert len(found) == 8 and (found[["cpu_seconds", "wall_seconds"]] > 0).all(
        axis=None
    )
    assert found.set_index("method")["cpu_ratio"]["plain fine-tuning"] == 1.0
    assert found["cpu_ratio"].between(0.3, 10).all()
