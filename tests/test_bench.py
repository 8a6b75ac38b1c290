"""Bench: the cost of a training step of the pruning methods, at the smallest size."""

from pathlib import Path

import bench
import numpy as np
import pandas as pd
import pytest

from lib import data
from lib.core import paths
from lib.core.options import Numerics, Train
from lib.core.spec import Spec
from lib.core.store import Store

pytestmark = pytest.mark.papers("efficientbert", "bermo", "nas_pruning")


class TimeForecast:
    """A run that takes its steps from a list of (wall, CPU) seconds."""

    def __init__(self, monkeypatch, *seconds):
        self.now, self.seconds = np.zeros(2), seconds
        monkeypatch.setattr(bench, "read_wall_and_cpu_seconds", lambda: self.now)

    def step(self, run, **_):
        for done, pair in enumerate(self.seconds, 1):
            self.now = self.now + pair
            run.progress(done / len(self.seconds))
        pytest.fail("the run was not ended")


def test_steps_are_timed_after_the_first_and_the_rest_is_left_out(
    tmp_path, monkeypatch
):
    clock = TimeForecast(monkeypatch, (9, 9), (1, 2), (3, 4), (50, 50))
    monkeypatch.setattr("lib.train.steps.training.finetune", clock.step)
    assert bench.step_seconds(
        Spec("finetune", seed=0), Store(tmp_path, tmp_path), 2
    ).tolist() == [
        [1, 2],
        [3, 4],
    ]


def test_methods_start_with_plain_fine_tuning_and_see_the_same_batches():
    common = {
        "data": data.make_data_descriptor("toy", "CoLA", 64),
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
        data.require_checkpoint_folder(bench.MODEL)
    except FileNotFoundError:
        pytest.skip(f"{bench.MODEL} is not at hand")
    found = pd.DataFrame(bench.pruning(repeats=1, sizes=(("CoLA", 0, 2),)))
    assert len(found) == 8 and (found[["cpu_seconds", "wall_seconds"]] > 0).all(
        axis=None
    )
    assert found.set_index("method")["cpu_ratio"]["plain fine-tuning"] == 1.0
    assert found["cpu_ratio"].between(0.3, 10).all()


def test_a_line_is_printed_and_written_before_the_next_is_measured(tmp_path, capsys):
    journal = tmp_path / "bench" / "cutting.csv"

    def measure():
        yield {"turn": 0, "seconds": 1.23456}
        assert pd.read_csv(journal)["turn"].tolist() == [0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(bench.record(measure(), journal))
    assert capsys.readouterr().out == "  turn 0  seconds 1.235\n"
    assert pd.read_csv(journal)["features"].notna().all()


def test_lines_take_the_place_of_those_of_their_kind_of_processor(
    tmp_path, monkeypatch
):
    def measure(features, seconds):
        monkeypatch.setattr(
            bench.processor, "list_processor_features", lambda: features
        )
        bench.replace_lines([{"turn": n, "seconds": seconds} for n in (0, 1)], path)
        return pd.read_csv(path).groupby("features")["seconds"].sum().to_dict()

    path = tmp_path / "cutting.csv"
    device = bench.processor.read_processor_name()
    pd.DataFrame([{"turn": 0, "seconds": 9.0, "device": device}]).to_csv(path)
    assert measure(["avx2", "avx512_bf16"], 1.0) == {"avx2 avx512_bf16": 2.0}
    measure(["avx2"], 3.0)
    assert measure(["avx2"], 4.0) == {"avx2": 8.0, "avx2 avx512_bf16": 2.0}


def test_without_instructions_for_bfloat16_all_compute_in_float32(monkeypatch):
    monkeypatch.setattr(bench.processor, "list_processor_features", lambda: ["avx2"])
    code = Path(bench.__file__).read_text()
    names = {"__name__": "bench_of_an_old_processor", "__file__": bench.__file__}
    exec(compile(code, bench.__file__, "exec"), names)
    assert names["LEAN"].dtype == names["FULL"].dtype == "float32"


def test_a_quick_bench_times_a_cut_network_and_leaves_the_tables_as_they_are(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "pages")
    bench.main(["cutting", "--quick"])
    (journal,) = (tmp_path / "pages" / "scratch" / "bench").glob("cutting-*.csv")
    lines = pd.read_csv(journal)
    assert lines["turn"].tolist() == list(range(bench.QUICK["cutting"]["turns"]))
    assert (lines[["whole_seconds", "cut_seconds"]] > 0).all(axis=None)
    assert lines["flops_ratio"][0] == pytest.approx(1 / 0.3, rel=0.02)
    assert not (tmp_path / "figures").exists()
