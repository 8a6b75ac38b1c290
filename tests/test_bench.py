"""Bench: the cost of a training step of the pruning methods, at the smallest size; and
what one would write by hand in the project's place."""

import json
from pathlib import Path

import bench
import by_hand
import numpy as np
import pandas as pd
import pytest
import torch
import torch_pruning
import transformers

from lib import data
from lib.core import paths
from lib.core.options import Numerics, Train
from lib.core.spec import Spec, find_transitive_input_specs
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
            run.report_progress(done / len(self.seconds))
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
    old = {"dtype": "bfloat16", "seconds": 1.0, "device": device}
    pd.DataFrame([old]).to_csv(path)
    bench.replace_lines([{"dtype": "float32", "seconds": 2.0}], path)
    assert pd.read_csv(path)["dtype"].tolist() == ["bfloat16", "float32"]


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


def test_by_hand_half_of_each_layer_is_cut_and_the_hidden_size_stays():
    sizes = {"hidden_size": 24, "intermediate_size": 48, "vocab_size": 50}
    config = transformers.BertConfig(
        num_hidden_layers=2, num_attention_heads=4, **sizes
    )
    model = transformers.BertForSequenceClassification(config)
    strong = model.bert.encoder.layer[0].attention.self
    with torch.no_grad():  # Heads 1 and 3 of the first layer are the strong ones.
        for linear in (strong.query, strong.key, strong.value):
            linear.weight.view(4, 6, 24)[[1, 3]] *= 100
    kept = strong.value.weight.view(4, 6, 24)[[1, 3]].reshape(12, 24).clone()
    importance = torch_pruning.importance.MagnitudeImportance(p=2)
    by_hand.cut_heads_and_neurons(model, 0.5, importance)
    for layer in model.bert.encoder.layer:
        attention, dense = layer.attention.self, layer.intermediate.dense
        assert attention.num_attention_heads == 2
        assert attention.value.weight.shape == (12, 24)
        assert dense.weight.shape == (24, 24)
    assert torch.equal(strong.value.weight, kept)
    assert model(input_ids=torch.ones(3, 5, dtype=torch.long)).logits.shape == (3, 2)


def test_by_hand_a_student_like_its_teacher_has_no_distance(tmp_path):
    config = transformers.BertConfig(
        hidden_size=24,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
        vocab_size=50,
    )
    teacher = transformers.BertForSequenceClassification(config).eval()
    rows = {"input_ids": torch.ones(2, 5, dtype=torch.long)}
    rows["attention_mask"] = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    arguments = transformers.TrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none"
    )

    def distance(student):
        trainer = by_hand.DistillationTrainer(student, arguments, teacher=teacher)
        return float(trainer.compute_loss(student.eval(), rows).detach())

    assert distance(teacher) == 0
    fewer = transformers.BertForSequenceClassification(config)
    fewer.load_state_dict(teacher.state_dict())
    by_hand.drop_layers(fewer, 0.5)
    assert len(fewer.bert.encoder.layer) == 2
    states = [
        model(**rows, output_hidden_states=True).hidden_states
        for model in (fewer.eval(), teacher)
    ]
    mask = rows["attention_mask"].unsqueeze(-1)
    squares = [
        (((s - t) ** 2 * mask).sum() / (7 * 24)).item()
        for s, t in zip(states[0], states[1][::2], strict=True)
    ]
    assert distance(fewer) == pytest.approx(sum(squares), rel=1e-5) and sum(squares) > 0


def test_a_command_is_measured_to_its_end_and_a_failure_is_told():
    seconds, said = bench.measure_command(
        ["-c", "import time; time.sleep(0.3); print('a'); print(7)"]
    )
    assert said == "7" and 0.3 < seconds < 60
    with pytest.raises(bench.subprocess.CalledProcessError):
        bench.measure_command(["-c", "raise SystemExit(3)"])


def test_both_contenders_train_on_the_same_rows_with_the_same_settings(tmp_path):
    try:
        model = data.require_checkpoint_folder(bench.MODEL)
        bench.write_own_rows(tmp_path / "rows", 500)
    except FileNotFoundError:
        pytest.skip(f"{bench.MODEL} or SST-2 is not at hand")
    specs = bench.list_own_specs("mini", tmp_path / "rows", model, 3)
    assert list(specs) == list(bench.SIX)
    file = tmp_path / "settings.json"
    bench.write_settings_by_hand(file, specs, tmp_path / "rows", model)
    job = json.loads(file.read_text())
    assert job["training_rows"] == 320 and job["seed"] == 3 and job["share"] == 0.5
    trained = {
        (spec.args["train"]["epochs"], spec.args["train"]["lr"])
        for spec in find_transitive_input_specs([*specs.values()])
        if spec.step in ("distil", "finetune")
    } | {(specs["Whole"].args["train"]["epochs"], specs["Whole"].args["train"]["lr"])}
    trained |= {
        (specs["Width"].args["train"]["epochs"], specs["Width"].args["train"]["lr"])
    }
    stages = job["stages"].values()
    assert {(stage["epochs"], stage["lr"]) for stage in stages} == trained
