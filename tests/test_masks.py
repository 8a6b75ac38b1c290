"""Pruning masks, their gradients and penalties against closed forms; what is left of a
masked model, cut out, counted, saved and loaded."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from lib.model import backbone, compact, mix
from lib.model.masks import (
    Mask,
    find_kth_largest,
    list_linear_layers,
    make_global_top_k_masks,
    make_top_k_mask,
)
from lib.model.parts import count_parameters, get_layers, get_recorded_model_changes
from lib.model.surgery import apply_surgery
from lib.papers.bermo import pruning
from lib.papers.bermo.options import Prune

METHODS = {
    "magnitude": {},
    "movement": {"lr": 1e-2},
    "soft": {"lr": 1e-2, "final_lambda": 10.0},
    "l0": {"lr": 1e-1, "final_lambda": 10.0, "init": 2.197, "final_threshold": 1.0},
}
every_method = pytest.mark.parametrize("method", METHODS)


def prune(method="movement", **changes):
    fixed = {"initial_threshold": 1.0, "final_threshold": 0.25, "warmup_steps": 0}
    return Prune(**{"method": method} | fixed | METHODS[method] | changes)


def random(*shape, seed=0):
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def masked(method, weight, scores=None, threshold=0.25, **changes):
    """A Mask in training mode at a threshold, its scores set."""
    module = Mask(weight, prune(method, **changes))
    module.threshold = threshold
    if scores is not None:
        module.scores = nn.Parameter(scores.clone())
    return module


def attached(model, method="movement", steps=10, noise=1.0, **changes):
    """The masks of a model (lib.papers.bermo.pruning), with random scores."""
    run = SimpleNamespace(arrays={})
    run.save_arrays = lambda _, **arrays: run.arrays.update(arrays)
    found = pruning.PruningMasks(run, model, prune(method, **changes), steps)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for scores in found.scores:
            scores.add_(noise * torch.randn(scores.shape, generator=generator))
    return found


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(
        st.sampled_from([-2.0, -1.0, 0.0, 0.0, 0.5, 3.0]), min_size=1, max_size=40
    ),
    data=st.data(),
)
def test_exactly_k_stay_the_largest_and_of_equal_ones_the_first(values, data):
    k = data.draw(st.integers(1, len(values)))
    cut = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    expected = np.isin(np.arange(len(values)), order[:k])
    assert np.array_equal(make_top_k_mask(torch.tensor(values), k).numpy(), expected)
    assert find_kth_largest(torch.tensor(values), k) == values[order[k - 1]]
    parts = [torch.tensor(values[:cut]), torch.tensor(values[cut:])]
    assert np.array_equal(
        torch.cat(make_global_top_k_masks(parts, k)).numpy(), expected
    )


@pytest.mark.parametrize("method", ["magnitude", "movement", "soft"])
@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_straight_through_gradients(method, threshold):
    weight, scores = random(4, 6).requires_grad_(), random(4, 6, seed=1)
    scores -= scores.mean()
    ranked = weight.detach().abs() if method == "magnitude" else scores
    chosen = (
        scores > 0 if method == "soft" else make_top_k_mask(ranked, int(24 * threshold))
    )  # sigmoid > 0.5
    threshold = 0.5 if method == "soft" else threshold
    module = masked(
        method, weight, None if method == "magnitude" else scores, threshold
    )
    out, upstream = module(weight), random(4, 6, seed=2)
    assert torch.equal(out, chosen * weight) and out is not weight
    out.backward(upstream)
    assert torch.equal(weight.grad, chosen * upstream)
    learned = [p.grad for p in module.parameters()]
    assert len(learned) == (method != "magnitude")
    assert all(torch.equal(grad, weight.detach() * upstream) for grad in learned)


def test_movement_scores_are_the_running_sum_of_equation_7():
    """Gradient descent of rate r: S = - r * sum over t of dL/dW' * W, also where W is
    masked."""
    weight, x = random(3, 4).requires_grad_(), random(5, 4, seed=1)
    module, total, seen = masked("movement", weight), torch.zeros(3, 4).double(), set()
    groups = [{"params": [weight], "lr": 0.1}, {"params": [module.scores], "lr": 0.01}]
    optimiser = torch.optim.SGD(groups)
    for step in range(6):
        module.threshold = 1.0 if step < 2 else 0.5
        used = module(weight)
        used.retain_grad()
        (x @ used.T).square().mean().backward()
        total += used.grad * weight.detach()
        seen.add(tuple((used == 0).flatten().tolist()))
        optimiser.step()
        optimiser.zero_grad()
    close(module.scores.detach(), -0.01 * total)
    assert len(seen) > 1


@pytest.mark.parametrize("method", ["magnitude", "movement"])
def test_the_smallest_share_still_keeps_a_weight(method):
    weight = random(4, 6)
    assert masked(method, weight, threshold=0.0)(weight).count_nonzero() == 1
    assert (
        masked(method, weight, threshold=0.1)(weight).count_nonzero()
        == int(0.1 * 24)
        == 2
    )


def test_soft_movement_keeps_its_floor():
    weight, scores = random(40, 50), random(40, 50, seed=1)
    low = masked("soft", weight, scores - 100, 0.1)
    assert torch.equal(low(weight) != 0, make_top_k_mask(scores, int(0.005 * 2000) + 1))
    tied = masked(
        "soft", weight, torch.full((40, 50), -100.0, dtype=torch.float64), 0.1
    )
    assert tied(weight).count_nonzero() == 11
    free = masked("soft", weight, scores, 0.1)
    assert torch.equal(free(weight) != 0, scores > math.log(0.1 / 0.9))


@pytest.mark.parametrize(
    "method, start", [("magnitude", 1.0), ("movement", 1.0), ("soft", 0.0)]
)
def test_eval_mode_takes_the_final_threshold(method, start):
    weight, scores = random(4, 6), random(4, 6, seed=1)
    module = masked(method, weight, None if method == "magnitude" else scores, start)
    soft = int((scores > math.log(0.25 / 0.75)).sum())
    assert module(weight).count_nonzero() == 24
    assert module.eval()(weight).count_nonzero() == (soft if method == "soft" else 6)
    assert int(module.count_kept_weights(weight)) == module(weight).count_nonzero()


def test_l0_samples_and_gradients_in_closed_form():
    weight, scores = random(40, 50).requires_grad_(), 2 * random(40, 50, seed=1)
    module, upstream = masked("l0", weight, scores), random(40, 50, seed=2)
    torch.manual_seed(5)
    u = torch.rand_like(scores).clamp(1e-4, 1 - 1e-4)
    s = 1 / (1 + (-(u.log() - (1 - u).log() + scores) / (2 / 3)).exp())
    raw = s * 1.2 - 0.1
    torch.manual_seed(5)
    out = module(weight)
    close(out, weight * raw.clamp(0, 1))
    out.backward(upstream)
    inside = (raw >= 0) & (raw <= 1)
    assert 0.1 < inside.double().mean() < 0.9
    expected = weight.detach() * upstream * inside * 1.2 / (2 / 3) * s * (1 - s)
    close(module.scores.grad, expected)
    close(weight.grad, raw.clamp(0, 1) * upstream)


def test_l0_in_eval_mode_has_neither_noise_nor_temperature():
    weight, scores = random(4, 6), 3 * random(4, 6, seed=1)
    module = masked("l0", weight, scores).eval()
    expected = (torch.sigmoid(scores) * 1.2 - 0.1).clamp(0, 1)
    close(module(weight), weight * expected)
    assert int(module.count_kept_weights(weight)) == int(
        (scores > math.log(1 / 11)).sum()
    )
    start = masked("l0", weight).eval()(weight) / weight
    close(start, torch.full((4, 6), 0.98, dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize(
    "method, shift", [("soft", 0.0), ("l0", 2 / 3 * math.log(0.1 / 1.1))]
)
def test_penalties_and_their_gradients_in_closed_form(method, shift):
    module = masked(method, random(4, 6), random(4, 6, seed=1))
    s = 1 / (1 + (-(module.scores.detach() - shift)).exp())
    value = module.compute_sparsity_penalty()
    value.backward()
    close(value.detach(), s.mean())
    close(module.scores.grad, s * (1 - s) / 24)


@every_method
def test_every_projection_is_masked_baked_and_nothing_else(
    family, method, tiny, sentences, logits
):
    model, batch = tiny(family), sentences(family)
    linears = {
        name for name, part in model.named_modules() if isinstance(part, nn.Linear)
    }
    inner = {name for name in linears if ".encoder.layer." in name}
    names = set(model.state_dict())
    everything = sum(p.numel() for p in get_layers(model).parameters())
    untouched = logits(model, batch)
    found = attached(model, method)
    on = {
        name
        for name, part in model.named_modules()
        if parametrize.is_parametrized(part)
    }
    assert on == inner and len(inner) == 12
    assert len(found.scores) == (0 if method == "magnitude" else 12)
    model.train()
    found.before_forward_pass(0, 10)
    (
        model(**batch).logits.sum() + sum(found.compute_penalty_terms().values())
    ).backward()
    assert all(scores.grad.abs().sum() > 0 for scores in found.scores)
    expected = logits(model.eval(), batch)
    counts = found.after_last_step()
    assert counts["encoder_parameters"] == everything
    sizes = [linear.weight.numel() for *_, linear in list_linear_layers(model)]
    assert counts["masked_weights"] == sum(sizes)
    assert torch.equal(logits(model, batch), expected) and not torch.allclose(
        expected, untouched
    )
    assert set(model.state_dict()) == names
    assert all(type(linear) is nn.Linear for *_, linear in list_linear_layers(model))


def test_golden_counts_of_bert_base():
    """84,934,656 masked weights; at top-k 10 % 10.127 % of the encoder remain: Table
    4's 10.1."""
    with torch.device("meta"):
        whole = transformers.BertForSequenceClassification(transformers.BertConfig())
    sizes = [linear.weight.numel() for *_, linear in list_linear_layers(whole)]
    everything = sum(p.numel() for p in get_layers(whole).parameters())
    assert (len(sizes), sum(sizes), everything) == (72, 84934656, 85054464)
    counts = pruning.compute_pruning_metrics(
        sum(sizes), sum(int(0.1 * each) for each in sizes), everything
    )
    assert (
        counts["kept_weights"] == 8493432
        and round(100 * counts["remaining"], 6) == 10.126735
    )
    exact = pruning.compute_pruning_metrics(
        sum(sizes), 0.1 * sum(sizes), everything
    )  # not cut to whole weights
    assert round(100 * exact["remaining"], 6) == 10.126774


def test_the_controller_acts_on_the_penalty(tiny):
    found = attached(tiny(), "soft", initial_threshold=0.0, target=0.5, init=3.0)
    state, weights = found.model.pruning, []
    for step in range(4):
        found.before_forward_pass(step, 10)
        weights.append(float(state.steered))
    scores = (
        torch.cat([s.detach().flatten() for s in found.scores])
        .sort(descending=True)
        .values
    )
    cut = math.log(0.25 / 0.75)
    error = (scores[len(scores) // 2 - 1].item() - cut) / (3 - cut) - (1 - 2 / 10) ** 2
    assert weights[:2] == [10.0] * 2  # every 2 steps, after the initial warm-up
    assert (
        weights[2] == weights[3] == pytest.approx(10 * math.exp(21 * error), rel=1e-4)
    )
    assert float(state.error) == pytest.approx(error, rel=1e-4)
    assert found.weight == pytest.approx(weights[3] * found.ramp(3) / 0.25)
    assert {"pruning.steered", "pruning.error"} <= found.model.state_dict().keys()


@pytest.mark.parametrize(
    "method, changes, message",
    [
        (
            "movement",
            {"warmup_steps": 4, "initial_warmup": 2, "final_warmup": 1},
            "that is 12 of the 10 steps",
        )
    ],
)
def test_masks_that_cannot_be_are_refused(method, changes, message, tiny):
    with pytest.raises(ValueError, match=message):
        attached(tiny(), method, **changes)


def test_what_is_empty_is_cut_out_and_the_function_stays(
    family, tiny, sentences, logits
):
    """Units without outgoing weights, and without incoming ones: these give a
    constant."""
    model, batch = tiny(family), sentences(family)
    first, second = get_layers(model)
    with torch.no_grad():
        first.attention.output.dense.weight[:, 4:8] = 0  # head 1, D = 4
        first.attention.self.value.weight[8:16] = 0  # heads 2 and 3
        first.intermediate.dense.weight[:10] = 0
        first.output.dense.weight[:, 8:30] = 0
        second.attention.self.value.weight[:] = 0  # all heads of this layer
        second.attention.self.query.weight[:4] = 0  # says nothing about head 0 alone
    expected, before = logits(model, batch), count_parameters(model)["parameters"]
    assert compact.remove_constant_heads_and_neurons(model) == {
        "heads": [9, 1],
        "neurons": [66, 96],
    }
    heads, neurons = [[0, *range(4, 12)], [0]], [list(range(30, 96)), list(range(96))]
    assert get_recorded_model_changes(model) == [
        {"op": "keep", "heads": heads, "neurons": neurons}
    ]
    close(logits(model, batch), expected, atol=2e-5)
    gone = (3 + 11) * (4 * 4 * 48 + 3 * 4) + 30 * (2 * 48 + 1)
    assert before - count_parameters(model)["parameters"] == gone


@pytest.mark.parametrize("ghost", [False, True])
def test_a_model_without_anything_empty_or_with_ghosts_is_left_alone(ghost, tiny):
    model = tiny()
    if ghost:
        apply_surgery(
            model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3}
        )
        get_layers(model)[0].attention.self.value.weight.data[:8] = 0
    before = copy.deepcopy(model.state_dict())
    done = list(get_recorded_model_changes(model))
    assert compact.remove_constant_heads_and_neurons(model) == {
        "heads": [12, 12],
        "neurons": [96, 96],
    }
    assert get_recorded_model_changes(model) == done
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@every_method
def test_bytes_count_a_sparse_matrix_where_that_is_less(
    family, method, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = tiny(family, labels=3), sentences(family)
    apply_surgery(
        model, {"op": "mix", "norm": "layers", "init": "xavier_uniform"}, seed=1
    )
    found = attached(model, method, **({"init": -3.0} if method == "l0" else {}))
    counts = found.after_last_step()
    matrices = [linear.weight for *_, linear in list_linear_layers(model)]
    total, kept = (
        sum(map(count, matrices)) for count in (torch.numel, torch.count_nonzero)
    )
    told = compact.count_dense_and_sparse_bytes(model)
    bits = sum(-(-weight.numel() // 8) for weight in matrices)
    assert told["bytes_dense"] - told["bytes_sparse"] == 4 * (total - kept) - bits
    assert kept <= counts["kept_weights"]
    backbone.save(model, tokenizer, tmp_path / "model")
    on_disk = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert told["bytes_dense"] < on_disk < told["bytes_dense"] + 20000  # and a header
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, batch), logits(model, batch))
    assert torch.equal(mix.find_layer_mix(again).alpha, mix.find_layer_mix(model).alpha)


def test_dense_matrices_are_never_counted_as_sparse(tiny):
    told = compact.count_dense_and_sparse_bytes(tiny())
    assert told["bytes_dense"] == told["bytes_sparse"]


@pytest.mark.parametrize("score", [-2.0, 2.197])
def test_the_l0_penalty_is_the_chance_that_a_mask_is_not_zero(score):
    weight = torch.ones(200, 500, dtype=torch.float64)
    module = masked("l0", weight, torch.full_like(weight, score))
    drawn = (module(weight) > 0).double().mean().item()
    assert drawn == pytest.approx(module.compute_sparsity_penalty().item(), abs=0.005)


def test_a_pruned_weight_waits_for_its_score(tiny, sentences):
    model = tiny()
    found = attached(model)
    model.train()
    found.before_forward_pass(9, 10)
    model(**sentences()).logits.sum().backward()
    for _, linear, mask in found.places:
        weight = linear.parametrizations.weight.original
        gone = ~mask.make_binary_mask(weight)
        assert (weight.grad[gone] == 0).all() and (mask.scores.grad[gone] != 0).any()


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_counts_are_exact_in_each_matrix_ties_or_not(noise, tiny):
    found = attached(tiny(), final_threshold=0.1, noise=noise)
    found.model.eval()
    kept = [int((linear.weight != 0).sum()) for _, linear, _ in found.places]
    sizes = [linear.weight.numel() for _, linear, _ in found.places]
    assert kept == [int(0.1 * each) for each in sizes]
    counts = found.after_last_step()
    assert counts["kept_weights"] == sum(kept) and counts["kept_share"] == sum(
        kept
    ) / sum(sizes)
    shares = [sum(kept[:6]) / sum(sizes[:6]), sum(kept[6:]) / sum(sizes[6:])]
    assert found.run.arrays["layers"] == pytest.approx(shares, abs=1e-15)
    biases = counts["encoder_parameters"] - sum(sizes)
    assert counts["remaining"] == (sum(kept) + biases) / (sum(sizes) + biases)
