"""What needs a GPU: `make test-gpu`. Workers on it, memory, bits of a resumed run, and
speed."""

from dataclasses import asdict, replace

import bench
import pytest
import torch
from conftest import same_run, stop_at
from test_sweep import NUMERICS, importance, teacher

from lib.cluster import sweep
from lib.cluster.executors import estimate_resources
from lib.core.execute import execute
from lib.core.spec import Spec
from lib.core.store import Store
from lib.model.int8 import Int8Linear
from lib.train import loop

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is at hand"),
    pytest.mark.papers("efficientbert", "bermo", "nas_pruning"),
]


def on_card(spec):
    """A Spec and its inputs as runs of a GPU."""
    inputs = {name: on_card(each) for name, each in spec.inputs.items()}
    numerics = asdict(replace(NUMERICS, device="cuda"))
    return Spec(spec.step, spec.args | {"numerics": numerics}, inputs, spec.seed)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def test_a_run_takes_no_more_of_the_gpu_than_is_noted(store):
    spec = on_card(teacher(rows=320, batch=64, max_length=64)).with_seed(0)
    for each in store.plan_missing_runs([spec]):
        torch.cuda.reset_peak_memory_stats()
        execute(each, store, keep_weights=True)
        assert torch.cuda.max_memory_allocated() < estimate_resources(each).memory_bytes


def test_a_sweep_on_gpus_makes_what_is_asked(store):
    specs = [on_card(importance(teacher())).with_seed(seed) for seed in range(3)]
    assert sweep.execute_specs(specs, store, 2) == {}
    assert all(
        store.find_run(spec).env["device"] == torch.cuda.get_device_name()
        for spec in specs
    )


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(3, 13, 5), (64, 96, 96)])
def test_int8_is_that_of_the_cpu(rows, inputs, outputs):
    """A short batch and a pruned layer have sizes that CUDA's product does not take."""
    layer, x = Int8Linear(torch.nn.Linear(inputs, outputs)), torch.randn(rows, inputs)
    there = layer(x)
    torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), there)


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(
    store, tmp_path, monkeypatch
):
    spec = on_card(teacher(rows=320, epochs=3)).with_seed(0)
    whole = Store(tmp_path / "whole", tmp_path / "records")
    for place in (store, whole):
        for each in place.plan_missing_runs([spec]):
            if each != spec:
                execute(each, place, keep_weights=True)
    execute(spec, whole, keep_weights=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, loop, "write_checkpoint", 20)
        execute(spec, store, keep_weights=True, checkpoint_interval_seconds=0.0)
    execute(spec, store, keep_weights=True)
    assert store.find_run(spec).status["attempts"] == 2
    same_run(store.find_run(spec), whole.find_run(spec))


def test_our_loop_is_not_slower_than_trainer_on_the_gpu(monkeypatch):
    monkeypatch.setenv("DEVICE", "cuda")  # of the processes that train
    try:
        lines = list(bench.training(repeats=3))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for task in {line["task"] for line in lines}:
        speed = {}
        for line in lines:
            if line["task"] == task:
                speed.setdefault(line["contender"], []).append(
                    line["examples_per_second"]
                )
        best = {name: max(found) for name, found in speed.items()}
        print(f"\n  {task}: {best}")
        assert best["ours"] >= 0.95 * best["Trainer, tuned"]
