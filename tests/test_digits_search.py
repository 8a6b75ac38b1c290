"""The check on digits: what is trained, what is kept, and that noise goes first."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import same_run

from lib.core import paths
from lib.core.execute import execute
from lib.core.options import Numerics
from lib.core.spec import Spec
from lib.core.store import Store
from lib.papers.nas_pruning import digits
from lib.papers.nas_pruning import digits_check as step
from lib.papers.nas_pruning import recipes as nas
from lib.papers.nas_pruning.options import Perceptron

IMAGES = digits.make_digits_descriptor(paths.data_root() / "mnist", "bundled")
DEEP = (119, 95, 76, 61, 48, 39, 31, 25, 20, 16, 10)
NETWORK = Perceptron((128, 64, 10), epochs=12, batch=64, lr=2e-3, noise=1.0)
GATES = nas.make_gate_settings(0.25, regions=("inputs",), memory=0.95)


def spec(network=NETWORK, seed=0, **changes):
    told = {"images": IMAGES, "perceptron": network, "gates": replace(GATES, **changes)}
    return Spec("digits", told | {"numerics": Numerics("float32", 1)}).with_seed(seed)


@pytest.mark.parametrize("ratio", [0.125, 0.25, 0.5])
def test_noise_goes_first(ratio, store):
    """64 pixels and 64 noise inputs: at half of them nearly all of one kind could
    go."""
    found = execute(spec(ratio=ratio), store).metrics
    assert found["pixels"] + found["noise"] == 128 * ratio == 128 * found["ratio"]
    assert found["noise"] <= {0.125: 0, 0.25: 1, 0.5: 16}[ratio]
    assert found["accuracy"] > {0.125: 0.6, 0.25: 0.75, 0.5: 0.85}[ratio]


def test_gates_without_a_gradient_leave_first_where_asked(store):
    """Four of the 64 pixels are blank in every image, and their gates have no
    gradient."""
    blank = (
        digits.load_digit_images(paths.data_root() / "mnist", "bundled")["train"][
            0
        ].max(0)
        == 0
    )
    kept = []
    for idle in (0.0, 0.01):
        run = execute(spec(NETWORK, ratio=0.5, idle=idle), store)
        kept.append((run.read_arrays("inputs")["kept"][0].astype(bool) & blank).sum())
        assert abs(run.metrics["miss"]) <= 0.01
    assert blank.sum() == 4 and kept == [4, 0]


def test_what_is_kept(store):
    run = execute(spec(), store)
    arrays, found = run.read_arrays("inputs"), run.metrics
    assert arrays["kept"].sum((1, 2)).tolist() == [found["pixels"], found["noise"]]
    assert np.array_equal((arrays["alphas"] > 0).reshape(2, 8, 8), arrays["kept"])
    assert found["steps"] == 12 * -(-1437 // 64)
    assert arrays["curve"].shape == (found["steps"], 4)
    assert arrays["curve"][-1, 1] == pytest.approx(found["before_trim"])


def test_the_deep_network_has_eleven_layers_and_learns_something(store):
    network = step.build_perceptron(1568, DEEP)
    assert [m.out_features for m in network if isinstance(m, torch.nn.Linear)] == list(
        DEEP
    )
    assert len(network) == 21 and network[0].in_features == 1568
    found = execute(
        spec(replace(NETWORK, widths=DEEP, epochs=20), ratio=0.5), store
    ).metrics
    assert found["accuracy"] > 0.3 and abs(found["miss"]) <= 0.01


def test_inputs_are_pixels_then_noise():
    pixels = torch.full((500, 8, 8), 51, dtype=torch.uint8)
    made = step.append_noise_inputs(
        pixels, replace(NETWORK, noise=0.5), torch.Generator().manual_seed(0)
    )
    assert made.shape == (500, 128) and torch.allclose(made[:, :64], torch.tensor(0.2))
    assert made[:, 64:].std().item() == pytest.approx(0.5, abs=0.01)
    assert abs(made[:, 64:].mean().item()) < 0.01


def test_other_digits_are_refused(store):
    wrong = spec()
    wrong = replace(wrong, args=wrong.args | {"images": IMAGES | {"digest": "0"}})
    told = f"has digest {IMAGES['digest']}; this run is of 0: put the same data back"
    with pytest.raises(ValueError, match=told):
        execute(wrong, store)


def test_a_target_below_one_input_is_refused(store):
    told = "Gates.ratio is 0.005, but one gate for each kind and layer.* leaves 0.0078"
    with pytest.raises(ValueError, match=told):
        execute(spec(ratio=0.005), store)


def test_the_same_seed_gives_the_same_run_and_another_does_not(store, tmp_path):
    short = replace(NETWORK, epochs=2)
    other = Store(runs_folder=tmp_path, records_folder=tmp_path / "none")
    places = (0, store), (0, other), (1, store)
    one, same, third = (execute(spec(short, seed), place) for seed, place in places)
    same_run(one, same)
    assert not np.array_equal(
        one.read_arrays("inputs")["kept"], third.read_arrays("inputs")["kept"]
    )
