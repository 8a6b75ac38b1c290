"""Steering a search: schedules, cost loss, movers, turns, landing and trim, on
arrays."""

from dataclasses import replace

import numpy as np
import pytest

from lib.papers.nas_pruning import control as gates
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning.control import (
    GateController,
    compute_cost_gradient_sign,
    compute_target_cost_ratio,
    sigmoid,
)
from lib.papers.nas_pruning.options import Gates
from lib.stats import cost

ZERO, OPEN = np.zeros(4848), np.full(4848, 5.0)
PLAIN = Gates(("heads", "ffn"), 0.3, 0.1, "layer", "jump", 1.0, 0.01, landing="end")
OURS = replace(PLAIN, schedule="additive", landing="steps")
TINY4, BASE = cost.SHAPES["tinybert-4"], cost.SHAPES["bert-base"]


def control(options=PLAIN, shape=TINY4, seed=0):
    whole = {"heads": shape.heads, "ffn": shape.ffn}
    sizes = {
        (layer, kind): n for layer in range(shape.layers) for kind, n in whole.items()
    }
    cost = gates.make_encoder_flops_function(
        shape.hidden, shape.hidden // shape.heads, [whole] * shape.layers
    )
    return GateController(options, sizes, cost, seed)


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7, 1.0])
def test_schedules_start_at_one_and_end_at_the_target(kind, ratio):
    values = [compute_target_cost_ratio(i, 101, ratio, kind) for i in range(101)]
    assert values[0] == 1 and values[-1] == pytest.approx(ratio, abs=1e-12)
    if kind == "additive":
        assert np.diff(values) == pytest.approx(-(1 - ratio) / 100, abs=1e-12)
    else:
        assert np.divide(values[1:], values[:-1]) == pytest.approx(
            ratio ** (1 / 100)
        )  # corrected
    assert compute_target_cost_ratio(0, 1, ratio, kind) == ratio
    assert {compute_target_cost_ratio(i, 9, ratio, "none") for i in range(9)} == {ratio}


@pytest.mark.parametrize(
    "actual, sign", [(0.989, -1), (0.9901, 0), (1.0, 0), (1.0099, 0), (1.011, 1)]
)
def test_cost_loss_has_a_band(actual, sign):
    assert compute_cost_gradient_sign(actual, 1.0, 0.01) == sign


def test_costs_are_those_of_the_report():
    c, soft = control(), gated.count_masked_encoder_flops(TINY4, gated.OPEN)
    assert (
        c.full == gated.count_masked_encoder_flops(TINY4) and len(c.region) == 48 + 4800
    )
    assert c.cost(c.sum_masks_by_region(np.full(4848, gated.OPEN))) == pytest.approx(
        soft
    )
    assert c.compute_cost_ratio_of_alphas(OPEN) == 1
    slope = c.compute_log_cost_gradient(
        OPEN
    )  # sigmoid'(5) = 0.00665, and a head is worth 62.7 neurons
    assert slope[0] / slope[12] == pytest.approx(62.7, abs=0.05)
    assert slope[12] == pytest.approx(
        gated.count_neuron_flops(312) * 0.006648 / soft, rel=1e-4
    )


COLUMNS = (
    GateController(  # inputs times columns: the cost is linear in each sum, not in all
        replace(PLAIN, regions=("embedding", "qkv"), ratio=0.9),
        {(0, "embedding"): 20, (0, "qk"): 20, (0, "v"): 20},
        gates.make_encoder_flops_function(20, 5, [{"heads": 4, "ffn": 30}]),
    )
)


@pytest.mark.parametrize(
    "c, places", [(control(), (0, 11, 12, 700, 1212, 4847)), (COLUMNS, (0, 25, 59))]
)
def test_slope_is_the_derivative_of_the_logarithm_of_the_expected_cost(c, places):
    alphas = np.random.default_rng(0).normal(size=len(c.region)) * 3
    found = c.compute_log_cost_gradient(alphas)
    for i in places:
        up, down = (
            np.log(
                c.cost(
                    c.sum_masks_by_region(
                        sigmoid(alphas + step * (np.arange(len(alphas)) == i))
                    )
                )
            )
            for step in (1e-5, -1e-5)
        )
        assert found[i] == pytest.approx((up - down) / 2e-5, rel=1e-4)


@pytest.mark.parametrize(
    "quota, groups",
    [("layer", [(12, 2)] * 4 + [(1200, 120)] * 4), ("all", [(4848, 485)])],
)
def test_the_share_of_each_group_with_the_largest_gradients_may_move(quota, groups):
    c = control(replace(PLAIN, quota=quota))
    gradient = np.random.default_rng(0).normal(size=4848)
    movers = c.select_top_gates_per_group(np.abs(gradient), 0.1)
    pairs = [(group, np.intersect1d(group, movers)) for group in c.groups]
    assert sorted((len(group), len(moved)) for group, moved in pairs) == sorted(groups)
    for group, moved in pairs:
        others = np.abs(gradient[np.setdiff1d(group, moved)])
        assert set(moved) <= set(group) and np.abs(gradient[moved]).min() > others.max()


def test_a_jump_ends_at_the_bounds():
    c = control(replace(PLAIN, share=1.0, weight=0.0))
    alphas, gradient = OPEN.copy(), ZERO.copy()
    alphas[:4], gradient[:6] = -5, (1e-9, -1e-9, 3, -3, 1e-9, -2)
    moved, _, note = c.compute_gate_logits_after_step(alphas, ZERO, gradient, 0, 10)
    assert moved[:6].tolist() == [-5, 5, -5, 5, -5, 5] and (moved[6:] == 5).all()
    assert note.tolist() == [0.3, c.compute_cost_ratio_of_alphas(moved), 1, 2]


def test_as_reported_one_step_takes_off_a_tenth():
    """The overshoot: 10 % of all gates at once, where the schedule asked for 0.03 %."""
    c = control(replace(PLAIN, ratio=0.98))
    moved, _, note = c.compute_gate_logits_after_step(OPEN, ZERO, ZERO, 0, 1)
    assert note[2] == 4 * (2 + 120) and 1 - c.compute_cost_ratio_of_alphas(
        moved
    ) == pytest.approx(0.126, abs=0.001)


def test_turns_take_the_same_share_of_every_region():
    c, random = control(), np.random.default_rng(0)
    wanted = np.concatenate([np.arange(4), np.arange(12, 112), np.arange(1212, 1222)])
    eager = random.normal(size=4848)
    order = c.alternate_gates_between_layers_and_kinds(wanted, eager, random.random(8))
    assert sorted(order) == sorted(wanted)
    for end in range(1, len(order) + 1):
        counts = np.bincount(c.region[order[:end]], minlength=8)
        share = end / len(order)
        assert (
            np.abs(counts - share * np.array([4, 100, 10, 0, 0, 0, 0, 0])) <= 2
        ).all()
    for region in range(3):
        own = order[c.region[order] == region]
        assert (np.diff(eager[own]) < 0).all()


def test_heads_and_neurons_switch_off_at_the_same_rate_over_many_steps():
    """A step that needs two neurons takes a head once in a while, and on average the
    same share of both."""
    random, heads, neurons = np.random.default_rng(0), 0, 0
    c = control(replace(OURS, ratio=0.99))
    for step in range(250):
        moved, _, _ = c.compute_gate_logits_after_step(
            OPEN, ZERO, random.normal(size=4848) ** 2, step + 400, 2000
        )
        heads += (moved < 0)[c.region % 2 == 0].mean()
        neurons += (moved < 0).mean()
    assert 0.6 < heads / neurons < 1.6


def noise(c, steps, scale, seed):
    """A search against random gradients. Returns (alphas, average, curve)."""
    random, number, notes = np.random.default_rng(seed), len(c.region), []
    alphas, average = np.full(number, 5.0), np.zeros(number)
    bias = random.normal(size=number) * scale
    for step in range(steps):
        gradient = bias + scale * random.normal(size=number)
        alphas, average, note = c.compute_gate_logits_after_step(
            alphas, average, gradient, step, steps
        )
        notes.append(note)
    return alphas, average, np.array(notes)


@pytest.mark.parametrize(
    "shape, ratio, scale, memory",
    [
        *(
            (TINY4, ratio, *more)
            for ratio in (0.1, 0.3, 0.5, 0.7)
            for more in ((0.0, 0.0), (1e-6, 0.9), (1e-3, 0.0), (1e-3, 0.9))
        ),
        *(
            (cost.SHAPES["bert-mini"], ratio, 1e-5, 0.9)
            for ratio in (0.1, 0.3, 0.5, 0.7)
        ),
        (BASE, 0.3, 1e-6, 0.9),
    ],
)
def test_it_lands(shape, ratio, scale, memory):
    """With gradients below, like and far above those of the cost loss; little is left
    to trim."""
    c = control(replace(OURS, ratio=ratio, memory=memory), shape)
    alphas, average, curve = noise(c, 30, scale, seed=1)
    trimmed, taken = c.correct_final_gates_to_target_cost(alphas, average)
    head = gated.count_head_flops(shape.hidden, shape.hidden // shape.heads)
    assert abs(c.compute_cost_ratio_of_alphas(trimmed) / ratio - 1) <= 0.01
    assert (
        (alphas != trimmed).sum()
        == len(taken)
        <= head / gated.count_neuron_flops(shape.hidden) + 1
    )
    assert np.bincount(c.region, c.compute_open_gate_mask(trimmed)).min() >= 1
    assert (
        np.abs(curve[:, 1] - curve[:, 0]) <= head / c.full
    ).all()  # one gate, at every step


def test_as_reported_a_task_that_outweighs_the_cost_loss_ends_above_the_target():
    c = control(replace(PLAIN, ratio=0.1, schedule="additive"))
    alphas, _, _ = noise(c, 60, 1e-3, seed=1)
    assert c.compute_cost_ratio_of_alphas(alphas) > 0.4


def test_below_the_target_gates_switch_on_and_none_off():
    c = control(replace(OURS, schedule="none", ratio=0.5))
    alphas = np.where(np.arange(4848) % 5 < 2, 5.0, -5.0)
    before = c.compute_cost_ratio_of_alphas(alphas)
    moved, _, note = c.compute_gate_logits_after_step(
        alphas, ZERO, np.full(4848, -1.0), 0, 10
    )
    assert (
        before < c.compute_cost_ratio_of_alphas(moved)
        and note[2] == 0
        and note[3] == (moved > alphas).sum() > 0
    )
    kept, _, note = c.compute_gate_logits_after_step(
        alphas, ZERO, np.full(4848, 1.0), 0, 10
    )  # nobody wants to
    assert note[2:].tolist() == [0, 0] and (kept == alphas).all()


def test_around_the_target_gates_are_exchanged():
    c = control(replace(OURS, schedule="none", ratio=0.5))
    alphas, _, curve = noise(c, 60, 1e-3, seed=2)
    assert (curve[20:, 2:] > 0).any(0).all() and abs(
        c.compute_cost_ratio_of_alphas(alphas) / 0.5 - 1
    ) < 0.02


def test_those_that_want_off_go_before_those_that_do_not_and_these_by_gradient_for_cost():
    c = control(replace(OURS, share=1.0, quota="all"))
    on, wish = np.ones(4848, bool), np.full(4848, -1.0)
    wish[[5, 100, 3000]] = (1e-3, 2.0, 1e-9)
    wish[0], wish[20], wish[21] = -1e-3, -1e-5, -1e-6  # a head is worth 62.7 neurons
    order = c.order_gates_to_switch_off(on, OPEN, wish, np.full(8, 0.5), 1.0)
    assert set(order[:3]) == {5, 100, 3000} and order[3:6].tolist() == [21, 20, 0]
    assert len(order) == 4848


def test_memory_averages_the_gradients():
    """With 0.5, after gradients a and b: (b + a / 2) / 1.5."""
    c = control(replace(OURS, memory=0.5, weight=0.0, schedule="none", ratio=0.999))
    a, b = np.zeros(4848), np.zeros(4848)
    a[700], b[700], b[800] = -3.0, 1.2, 0.1
    _, average, _ = c.compute_gate_logits_after_step(OPEN, ZERO, a, 0, 9)
    alphas, average, _ = c.compute_gate_logits_after_step(OPEN, average, b, 1, 9)
    assert average[[700, 800]] == pytest.approx([0.5 * 1.2 + 0.25 * -3.0, 0.05])
    assert alphas[800] == -5 and alphas[700] == 5  # 700 wants to stay on average


def test_a_region_is_never_emptied():
    for options in (
        replace(PLAIN, share=1.0, ratio=0.2),
        replace(OURS, share=1.0, ratio=0.04),
    ):
        c = control(options)
        alphas, average = OPEN, ZERO
        for step in range(5):
            alphas, average, _ = c.compute_gate_logits_after_step(
                alphas, average, np.ones(4848) + np.arange(4848), step, 5
            )
        assert np.bincount(c.region, c.compute_open_gate_mask(alphas)).min() == 1


def test_trim_counts_what_it_switches_and_stays_away_where_nothing_is_to_do():
    c = control(replace(OURS, ratio=0.3))
    trimmed, taken = c.correct_final_gates_to_target_cost(OPEN, np.arange(4848.0))
    assert (
        -0.001 < c.compute_cost_ratio_of_alphas(trimmed) / 0.3 - 1 <= 0
        and len(taken) == (trimmed < 0).sum()
    )
    again, none = c.correct_final_gates_to_target_cost(trimmed, np.arange(4848.0))
    assert len(none) == 0 and (again == trimmed).all()
    up, switched = c.correct_final_gates_to_target_cost(
        np.where(np.arange(4848) % 50, -5.0, 5.0), np.arange(4848.0)
    )
    assert (
        abs(c.compute_cost_ratio_of_alphas(up) / 0.3 - 1) <= 0.01 and len(switched) > 0
    )


def test_where_gates_are_too_coarse_it_ends_below_and_stays_where_it_is_nearer():
    c = GateController(
        replace(OURS, ratio=0.36), {"inputs": 10}, lambda sums: sums["inputs"]
    )
    alphas, _ = c.correct_final_gates_to_target_cost(np.full(10, 5.0), np.arange(10.0))
    assert c.compute_open_gate_mask(alphas).tolist() == [True] * 3 + [False] * 7
    near = np.where(np.arange(10) < 4, 5.0, -5.0)
    assert (
        c.correct_final_gates_to_target_cost(near, np.arange(10.0))[0] == near
    ).all()  # 0.4 is nearer than 0.3


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7, 1.0])
def test_random_architectures_have_the_wanted_cost(ratio):
    c = control(replace(OURS, ratio=ratio))
    shares = []
    for seed in range(5):
        on = gates.sample_random_architecture_at_target_flops(
            c.options, c.sizes, c.cost, seed
        )
        assert (
            -0.001 < c.compute_cost_ratio_of_gates(on) / ratio - 1 <= 0
        )  # as searched ones end: within a neuron
        counts = np.bincount(c.region, on)
        assert counts.min() >= 1
        shares.append(counts / np.array(list(c.sizes.values())))
    if ratio in (0.3, 0.7):
        neurons = np.array(shares)[:, 1::2]
        assert neurons.mean() == pytest.approx(ratio, abs=0.12) and neurons.std() < 0.05
        assert not np.allclose(shares[0], shares[1])


def test_random_architectures_of_given_sizes_keep_the_numbers_of_each_region():
    sizes = {(0, "heads"): 4, (0, "ffn"): 30, (1, "heads"): 4, (1, "ffn"): 30}
    numbers = [1, 12, 4, 3]
    drawn = [
        gates.sample_random_architecture_with_layer_sizes(sizes, numbers, seed)
        for seed in range(400)
    ]
    ends = np.cumsum(list(sizes.values()))[:-1]
    for on in drawn:
        assert (
            on.dtype == bool and [part.sum() for part in np.split(on, ends)] == numbers
        )
    assert np.array_equal(
        drawn[3], gates.sample_random_architecture_with_layer_sizes(sizes, numbers, 3)
    )
    share = np.mean(drawn, 0)  # each part of a region has the same chance
    wanted = np.repeat([1 / 4, 12 / 30, 1, 3 / 30], list(sizes.values()))
    assert np.abs(share - wanted).max() < 0.12 and (share[34:38] == 1).all()


def test_a_target_below_one_head_and_one_neuron_a_layer_is_refused():
    shape = cost.Shape("bert", 2, 48, 4, 96, 60, 40, 2, 48)
    least = (
        2 * (gated.count_head_flops(48, 12) + gated.count_neuron_flops(48)) + 2 * 48**2
    ) / gated.count_masked_encoder_flops(shape)
    said = rf"ratio is 0.05, but one gate for each kind .* leaves {least:.4f} .* at least that"
    with pytest.raises(ValueError, match=said):
        control(replace(OURS, ratio=0.05), shape)
    assert control(
        replace(OURS, ratio=round(least, 3) + 0.001), shape
    ).full == gated.count_masked_encoder_flops(shape)


def test_without_control_everything_moves():
    assert len(control().select_top_gates_per_group(ZERO, 1.0)) == 4848


def test_the_same_seed_gives_the_same_turns_and_another_does_not():
    runs = [noise(control(OURS, seed=seed), 30, 1e-6, 3)[0] for seed in (0, 0, 1)]
    assert (runs[0] == runs[1]).all() and (runs[0] != runs[2]).any()
