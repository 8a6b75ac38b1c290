"""Masks, their gradients and penalties against closed forms; what is left of a masked model, saved and loaded."""

import copy
import math

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from lib.model import backbone, masks, mix
from lib.model.masks import Mask, Packed, kth_largest, projections, top, top_of_all
from lib.model.surgery import operate
from lib.options import Ghost, Prune
from lib.spec import plain
from lib.train import pruning

SETTINGS = {
    "magnitude": {},
    "movement": {"lr": 1e-2},
    "soft": {"lr": 1e-2, "final_lambda": 10.0},
    "l0": {"lr": 1e-1, "final_lambda": 10.0, "init": 2.197, "final_threshold": 1.0},
}


def prune(method="movement", **changes):
    return Prune(
        **{"method": method, "initial_threshold": 1.0, "final_threshold": 0.25, "warmup_steps": 0}
        | SETTINGS[method]
        | changes
    )


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def masked(method, weight, scores=None, threshold=0.25, **changes):
    """A Mask in training mode at a threshold, its scores set."""
    module = Mask(weight, prune(method, **changes))
    module.threshold = threshold
    if scores is not None:
        module.scores = nn.Parameter(scores.clone())
    return module


def attached(model, method="movement", steps=10, seed=0, **changes):
    """(model, Masks) with random scores."""
    found = pruning.Masks(None, model, prune(method, **changes), steps)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for scores in found.scores:
            scores.add_(torch.randn(scores.shape, generator=generator))
    return model, found


# ---- selection ----
@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.0, 0.5, 3.0]), min_size=1, max_size=40),
    data=st.data(),
)
def test_exactly_k_stay_the_largest_and_of_equal_ones_the_first(values, data):
    k = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    expected = np.isin(np.arange(len(values)), order[:k])
    assert np.array_equal(top(torch.tensor(values), k).numpy(), expected)
    assert kth_largest(torch.tensor(values), k) == values[order[k - 1]]


def test_where_all_are_tied_k_stay_all_the_same():
    for k in (1, 7, 12):
        assert top(torch.zeros(3, 4), k).flatten().tolist() == [True] * k + [False] * (12 - k)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_a_selection_over_all_matrices_is_that_of_one_long_list(sizes, seed, data):
    draw = torch.Generator().manual_seed(seed)
    lists = [torch.randint(0, 4, (size,), generator=draw).float() for size in sizes]
    k = data.draw(st.integers(1, sum(sizes)))
    kth, surplus = top_of_all(lists, k)
    found = torch.cat(
        [masks.at_least(values, kth, more) for values, more in zip(lists, surplus, strict=True)]
    )
    assert torch.equal(found, top(torch.cat(lists), k))


def test_both_ways_to_the_kth_value_agree():
    values = torch.randn(5000)
    for k in (1, 500, 4999, 5000):
        assert (
            kth_largest(values, k)
            == values.kthvalue(5000 - k + 1).values
            == values.sort(descending=True).values[k - 1]
        )


# ---- gradients ----
@pytest.mark.parametrize("method", ["movement", "soft"])
def test_straight_through_gradients(method):
    weight = random(4, 6).requires_grad_()
    module = masked(method, weight, random(4, 6, seed=1), 0.5)
    if method == "movement":
        chosen = top(module.scores, 12)
    else:
        module.scores.data -= module.scores.data.mean()
        chosen = module.scores > 0  # sigmoid(S) > 0.5
    full = chosen.double()
    assert 0 < full.sum() < 24
    out, upstream = module(weight), random(4, 6, seed=2)
    assert torch.equal(out, full * weight)
    out.backward(upstream)
    assert torch.equal(weight.grad, full * upstream)
    assert torch.equal(module.scores.grad, weight.detach() * upstream)


def test_scores_collect_gradients_while_everything_is_kept():
    weight = random(4, 6).requires_grad_()
    module, upstream = masked("movement", weight, threshold=1.0), random(4, 6, seed=2)
    out = module(weight)
    assert torch.equal(out, weight) and out is not weight
    out.backward(upstream)
    assert torch.equal(weight.grad, upstream) and torch.equal(
        module.scores.grad, weight.detach() * upstream
    )


def test_movement_scores_are_the_running_sum_of_equation_7():
    """Gradient descent of rate r: S = - r * sum over t of dL/dW' * W, whatever was masked meanwhile."""
    weight, x = random(3, 4).requires_grad_(), random(5, 4, seed=1)
    module, total = masked("movement", weight), torch.zeros(3, 4, dtype=torch.float64)
    optimiser = torch.optim.SGD(
        [{"params": [weight], "lr": 0.1}, {"params": [module.scores], "lr": 0.01}]
    )
    seen = set()
    for step in range(6):
        module.threshold = 1.0 if step < 2 else 0.5
        used = module(weight)
        used.retain_grad()
        (x @ used.T).square().mean().backward()
        total += used.grad * weight.detach()
        seen.add(tuple((used == 0).flatten().tolist()))
        optimiser.step()
        optimiser.zero_grad()
    torch.testing.assert_close(module.scores.detach(), -0.01 * total, atol=1e-14, rtol=0)
    assert len(seen) > 1


def test_magnitude_keeps_the_largest_weights():
    weight = random(4, 6).requires_grad_()
    module, upstream = masked("magnitude", weight, threshold=0.5), random(4, 6, seed=2)
    full = top(weight.detach().abs(), 12).double()
    out = module(weight)
    out.backward(upstream)
    assert full.sum() == 12 and torch.equal(out, full * weight)
    assert torch.equal(weight.grad, full * upstream) and list(module.parameters()) == []


@pytest.mark.parametrize("method", ["magnitude", "movement"])
def test_the_smallest_share_still_keeps_a_weight(method):
    weight = random(4, 6)
    assert masked(method, weight, threshold=0.0)(weight).count_nonzero() == 1
    assert masked(method, weight, threshold=0.1)(weight).count_nonzero() == int(0.1 * 24) == 2


def test_soft_movement_keeps_its_floor():
    weight, scores = random(40, 50), random(40, 50, seed=1)
    module = masked("soft", weight, scores - 100, 0.1)
    assert torch.equal(module(weight) != 0, top(scores, int(0.005 * 2000) + 1))
    tied = masked("soft", weight, torch.full((40, 50), -100.0, dtype=torch.float64), 0.1)
    assert tied(weight).count_nonzero() == 11
    free = masked("soft", weight, scores, 0.1)
    assert torch.equal(free(weight) != 0, scores > math.log(0.1 / 0.9))


def test_eval_mode_takes_the_final_threshold():
    weight = random(4, 6)
    for method, kept in (("magnitude", 6), ("movement", 6)):
        module = masked(method, weight, threshold=1.0)
        assert (
            module(weight).count_nonzero() == 24 and module.eval()(weight).count_nonzero() == kept
        )
    module = masked("soft", weight, random(4, 6, seed=1), 0.0)
    assert module(weight).count_nonzero() == 24
    assert torch.equal(module.eval()(weight) != 0, module.scores > math.log(0.25 / 0.75))


# ---- hard concrete ----
def drawn(scores, seed=5):
    torch.manual_seed(seed)
    return torch.rand_like(scores).clamp(1e-4, 1 - 1e-4)


def test_l0_samples_and_gradients_in_closed_form():
    weight, scores = random(40, 50).requires_grad_(), 2 * random(40, 50, seed=1)
    module, u, upstream = masked("l0", weight, scores), drawn(scores), random(40, 50, seed=2)
    s = 1 / (1 + (-(u.log() - (1 - u).log() + scores) / (2 / 3)).exp())
    raw = s * 1.2 - 0.1
    torch.manual_seed(5)
    out = module(weight)
    torch.testing.assert_close(out, weight * raw.clamp(0, 1), atol=1e-12, rtol=0)
    out.backward(upstream)
    inside = (raw >= 0) & (raw <= 1)
    assert 0.1 < inside.double().mean() < 0.9
    torch.testing.assert_close(
        module.scores.grad,
        weight.detach() * upstream * inside * 1.2 / (2 / 3) * s * (1 - s),
        atol=1e-12,
        rtol=0,
    )
    torch.testing.assert_close(weight.grad, raw.clamp(0, 1) * upstream, atol=1e-12, rtol=0)


def test_l0_in_eval_mode_has_neither_noise_nor_temperature():
    weight, scores = random(4, 6), 3 * random(4, 6, seed=1)
    module = masked("l0", weight, scores).eval()
    expected = (torch.sigmoid(scores) * 1.2 - 0.1).clamp(0, 1)
    torch.testing.assert_close(module(weight), weight * expected, atol=1e-14, rtol=0)
    assert torch.equal(module(weight), module(weight))
    assert (
        int(module.kept(weight))
        == int((expected > 0).sum())
        == int((scores > math.log(1 / 11)).sum())
    )
    start = masked("l0", weight).eval()
    torch.testing.assert_close(
        start(weight) / weight, torch.full((4, 6), 0.98, dtype=torch.float64), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("score", [-2.0, 0.0, 2.197])
def test_the_l0_penalty_is_the_chance_that_a_mask_is_not_zero(score):
    weight = torch.ones(200, 500, dtype=torch.float64)
    module = masked("l0", weight, torch.full((200, 500), score, dtype=torch.float64))
    expected = 1 / (1 + math.exp(-(score - 2 / 3 * math.log(0.1 / 1.1))))
    assert module.penalty().item() == pytest.approx(expected, abs=1e-12)
    assert (module(weight) > 0).double().mean().item() == pytest.approx(expected, abs=0.005)


def test_penalties_and_their_gradients_in_closed_form():
    weight, scores = random(4, 6), random(4, 6, seed=1)
    for method, shift in (("soft", 0.0), ("l0", 2 / 3 * math.log(0.1 / 1.1))):
        module = masked(method, weight, scores)
        s = 1 / (1 + (-(scores - shift)).exp())
        value = module.penalty()
        value.backward()
        assert value.item() == pytest.approx(s.mean().item(), abs=1e-14)
        torch.testing.assert_close(module.scores.grad, s * (1 - s) / 24, atol=1e-14, rtol=0)


# ---- in a model ----
@pytest.mark.parametrize("method", SETTINGS)
def test_every_projection_is_masked_and_nothing_else(family, method, tiny, sentences):
    model = tiny(family)
    names = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    plain_size = sum(p.numel() for p in backbone.layers(model).parameters())
    model, found = attached(model, method)
    inner = {name for name in names if ".encoder.layer." in name}
    assert {
        name for name, part in model.named_modules() if parametrize.is_parametrized(part)
    } == inner
    assert len(inner) == 12 and sum(found.sizes()) == sum(
        model.get_submodule(name).parametrizations.weight.original.numel() for name in inner
    )
    assert len(found.scores) == (0 if method == "magnitude" else 12)
    model.train()
    found.before(0, 10)
    (model(**sentences(family)).logits.sum() + sum(found.penalty().values())).backward()
    assert all(scores.grad.abs().sum() > 0 for scores in found.scores)
    sizes, (counts, _) = sum(found.sizes()), found.bake()
    assert counts["encoder_parameters"] == plain_size and counts["masked_weights"] == sizes


def test_a_pruned_weight_waits_for_its_score(tiny, sentences):
    model, found = attached(tiny())
    model.train()
    found.before(9, 10)
    model(**sentences()).logits.sum().backward()
    for _, linear, mask in found.places:
        gone = ~mask.chosen(linear.parametrizations.weight.original)
        assert (linear.parametrizations.weight.original.grad[gone] == 0).all() and (
            mask.scores.grad[gone] != 0
        ).any()


def test_the_penalty_of_a_model_is_the_mean_over_matrices(tiny):
    model, found = attached(tiny(), "soft", initial_threshold=0.0)
    assert found.penalty()["penalty"].item() == 0
    found.before(5, 10)
    expected = np.mean([mask.scores.sigmoid().mean().item() for *_, mask in found.places])
    assert found.weight == pytest.approx(10 * (1 - (1 - 0.5) ** 3))
    assert found.penalty()["penalty"].item() == pytest.approx(found.weight * expected, rel=1e-5)


def test_local_counts_are_exact_in_each_matrix(tiny):
    model, found = attached(tiny(), final_threshold=0.1)
    with found.final():
        kept = [int(count) for count in found.kept()]
        assert kept == [int((linear.weight != 0).sum()) for _, linear, _ in found.places]
    sizes = [linear.parametrizations.weight.original.numel() for _, linear, _ in found.places]
    assert kept == [int(0.1 * size) for size in sizes]
    counts, shares = found.bake()
    assert counts["kept_weights"] == sum(kept) and counts["kept_share"] == sum(kept) / sum(sizes)
    assert shares == pytest.approx(
        [sum(kept[:6]) / sum(sizes[:6]), sum(kept[6:]) / sum(sizes[6:])], abs=1e-15
    )
    biases = counts["encoder_parameters"] - sum(sizes)
    assert counts["remaining"] == (sum(kept) + biases) / (sum(sizes) + biases)


def test_tied_scores_leave_the_wanted_share_of_a_model(tiny):
    found = pruning.Masks(None, tiny(), prune(final_threshold=0.1), 10)  # all scores are 0
    sizes, (counts, _) = found.sizes(), found.bake()
    assert counts["kept_share"] == pytest.approx(0.1, abs=1e-3)
    assert sum(sizes) == counts["masked_weights"]


def test_golden_counts_of_bert_base():
    """84,934,656 masked weights; at top-k 10 % 10.127 % of the encoder remain: Table 4's 10.1. All layers are alike, so one
    layer of the true size, really pruned, has the same share."""
    with torch.device("meta"):
        whole = backbone.build(
            transformers.BertForSequenceClassification, transformers.BertConfig()
        )
    sizes = [linear.weight.numel() for *_, linear in projections(whole)]
    everything = sum(p.numel() for p in backbone.layers(whole).parameters())
    assert (len(sizes), sum(sizes), everything) == (72, 84934656, 85054464)
    counts = pruning.counted(sum(sizes), sum(int(0.1 * size) for size in sizes), everything)
    assert counts["kept_weights"] == 8493432 and round(100 * counts["remaining"], 6) == 10.126735
    exact = pruning.counted(
        sum(sizes), 0.1 * sum(sizes), everything
    )  # not cut to whole weights: what the reference prints
    assert round(100 * exact["remaining"], 6) == 10.126774
    one = backbone.build(
        transformers.BertForSequenceClassification,
        transformers.BertConfig(num_hidden_layers=1, vocab_size=30, max_position_embeddings=8),
    )
    found, _ = pruning.Masks(None, one, prune("magnitude", final_threshold=0.1), 1).bake()
    assert found["remaining"] == pytest.approx(counts["remaining"], abs=1e-15)
    assert (found["masked_weights"], found["kept_weights"]) == (84934656 // 12, 8493432 // 12)


def test_warm_ups_that_do_not_fit_are_refused(tiny):
    with pytest.raises(
        ValueError, match="2 \\+ 1 times that is 12 steps of warm-up in a run of 10"
    ):
        options = prune(warmup_steps=4, initial_warmup=2, final_warmup=1)
        pruning.Masks(None, tiny(), options, 10)


# ---- the controller in a model ----
@pytest.mark.parametrize("method, cut", [("soft", math.log(0.25 / 0.75)), ("l0", math.log(1 / 11))])
def test_the_controller_acts_on_the_penalty(method, cut, tiny):
    model, found = attached(
        tiny(), method, initial_threshold=0.0 if method == "soft" else 1.0, target=0.5, init=3.0
    )
    model.train()
    weights = []
    for step in range(4):
        found.before(step, 10)
        weights.append(float(model.pruning.steered))
    scores = torch.cat([s.detach().flatten() for s in found.scores]).sort(descending=True).values
    error = (scores[len(scores) // 2 - 1].item() - cut) / (3 - cut) - (1 - 2 / 10) ** 2
    assert (
        weights[:2] == [10.0] * 2 and weights[2] == weights[3]
    )  # every 2 steps, after the initial warm-up
    assert weights[2] == pytest.approx(10 * math.exp(21 * error), rel=1e-4)
    assert float(model.pruning.error) == pytest.approx(error, rel=1e-4)
    assert found.weight == pytest.approx(weights[3] * found.ramp(3) / found.options.final_threshold)
    assert {"steered", "error"} <= model.pruning.state_dict().keys()


def test_a_target_that_scores_start_below_of_is_refused(tiny):
    with pytest.raises(
        ValueError,
        match="Prune.init is -3.0; .* must start above the final cut, which is -1.099 for 'soft'",
    ):
        pruning.Masks(None, tiny(), prune("soft", target=0.1, init=-3.0), 10)


# ---- what is left ----
@pytest.mark.parametrize("method", SETTINGS)
def test_baked_is_the_masked_model_in_eval_mode(family, method, tiny, sentences, logits):
    model, batch = tiny(family), sentences(family)
    names = set(model.state_dict())
    untouched = logits(model, batch)
    model, found = attached(model, method)
    with found.final():
        expected = logits(model, batch)
    found.bake()
    assert torch.equal(logits(model, batch), expected) and not torch.allclose(expected, untouched)
    assert set(model.state_dict()) == names and not hasattr(model, "pruning")
    assert all(type(linear) is nn.Linear for *_, linear in projections(model))


def test_what_is_empty_is_cut_out_and_the_function_stays(family, tiny, sentences, logits):
    """Heads and neurons without outgoing weights, and without incoming ones: these give a constant."""
    model, batch = tiny(family), sentences(family)
    first, second = backbone.layers(model)
    with torch.no_grad():
        first.attention.output.dense.weight[:, 4:8] = 0  # head 1, D = 4
        first.attention.self.value.weight[8:16] = 0  # heads 2 and 3
        first.intermediate.dense.weight[:10] = 0
        first.output.dense.weight[:, 8:30] = 0
        second.attention.self.value.weight[:] = 0  # all heads of this layer
        second.attention.self.query.weight[:4] = 0  # says nothing about head 0 alone
    expected, before = logits(model, batch), backbone.size(model)["parameters"]
    assert masks.shrink(model) == {"heads": [9, 1], "neurons": [66, 96]}
    assert model.surgery == [
        {
            "op": "keep",
            "heads": [[0, *range(4, 12)], [0]],
            "neurons": [list(range(30, 96)), list(range(96))],
        }
    ]
    torch.testing.assert_close(logits(model, batch), expected, atol=2e-5, rtol=0)
    assert before - backbone.size(model)["parameters"] == (3 + 11) * (4 * 4 * 48 + 3 * 4) + 30 * (
        2 * 48 + 1
    )


def test_a_model_without_anything_empty_is_left_alone(tiny):
    model = tiny()
    before = copy.deepcopy(model.state_dict())
    assert masks.shrink(model) == {"heads": [12, 12], "neurons": [96, 96]} and model.surgery == []
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    operate(model, {"op": "ghost"} | plain(Ghost("dwconv", ("o", "ffn2"), 3, softmax=True)))
    assert (
        masks.shrink(model) == {"heads": [12, 12], "neurons": [96, 96]} and len(model.surgery) == 1
    )


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 11),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_packing_is_exact_for_every_shape(rows, columns, share, seed):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=draw) < share
    weight = torch.randn(rows, columns, generator=draw) * mask
    module = Packed(mask)
    values = module.right_inverse(weight)
    assert len(module.bits) == -(-rows * columns // 8) and len(values) == int(mask.sum())
    assert torch.equal(module(values), weight) and torch.equal(
        module.mask().view(rows, columns), mask
    )


@pytest.mark.parametrize("method", SETTINGS)
def test_saved_sparse_and_loaded_is_the_same_model(
    family, method, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = tiny(family, labels=3), sentences(family)
    operate(
        model, {"op": "mix", "norm": "layers", "init": "xavier_uniform", "dropout": 0.0}, seed=1
    )
    _, found = attached(model, method, **({"init": -3.0} if method == "l0" else {}))
    counts, _ = found.bake()
    expected, dense = logits(model, batch), copy.deepcopy(model.state_dict())
    size = masks.packed(model)
    assert torch.equal(logits(model, batch), expected)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, batch), expected) and [op["op"] for op in again.surgery] == [
        "mix",
        "sparse",
    ]
    spared = counts["masked_weights"] - counts["kept_weights"]
    bits = sum(-(-linear.weight.numel() // 8) for *_, linear in projections(again))
    assert size["bytes_dense"] - size["bytes_sparse"] == 4 * spared - bits
    on_disk = (tmp_path / "model" / "weights.safetensors").stat().st_size
    assert size["bytes_sparse"] < on_disk < size["bytes_sparse"] + 20000  # and a header with names
    masks.unpack(again)
    assert [op["op"] for op in again.surgery] == [
        "mix"
    ] and again.state_dict().keys() == dense.keys()
    assert all(torch.equal(dense[k], v) for k, v in again.state_dict().items())
    assert torch.equal(mix.present(again).alpha, mix.present(model).alpha)


def test_a_pruned_weight_stays_pruned_in_what_follows(tiny, sentences):
    model, found = attached(tiny(), "magnitude")
    found.bake()
    masks.packed(model)
    before = [linear.weight.detach().clone() for *_, linear in projections(model)]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        model(**sentences()).logits.square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    for old, (*_, linear) in zip(before, projections(model), strict=True):
        assert torch.equal(old == 0, linear.weight == 0) and not torch.equal(old, linear.weight)


@pytest.mark.parametrize(
    "kept, message",
    [
        (
            {"0.attention.self.kuery": 3},
            "sparse keeps 3 values of '0.attention.self.kuery', which has 0 and a mask of 3",
        ),
        (
            {"0.attention.self.query": 9999},
            "keeps 9999 values of '0.attention.self.query', which has 2304",
        ),
    ],
)
def test_packing_what_is_not_there_is_refused(kept, message, tiny):
    model = tiny()
    with pytest.raises(ValueError, match=message):
        operate(model, {"op": "sparse", "kept": kept})
    assert model.surgery == [] and all(
        type(linear) is nn.Linear for *_, linear in projections(model)
    )


def test_masks_that_say_something_else_are_refused(tiny):
    model = tiny()
    chosen = {"0.attention.self.query": torch.eye(48).bool()}
    with pytest.raises(
        ValueError,
        match="keeps 40 values of '0.attention.self.query', which has 2304 and a mask of 48",
    ):
        operate(model, {"op": "sparse", "kept": {"0.attention.self.query": 40}}, masks=chosen)
    _, found = attached(model, "magnitude")
    found.bake()
    masks.packed(model)
    with pytest.raises(
        ValueError, match="is masked or packed already: bake a model first, and pack it once"
    ):
        masks.packed(model)
