"""Gates against masks written out by hand, in float64: forward, gradients, cutting,
saving."""

import copy

import pytest
import torch

from lib.core.names import Refused
from lib.model import backbone, gates
from lib.model.parts import count_parameters, get_layers, get_recorded_model_changes
from lib.model.surgery import apply_surgery
from lib.papers.nas_pruning import gated, gating

REGIONS = [
    ("heads", "ffn"),
    ("ffn",),
    ("qkv", "ffn"),
    ("heads", "ffn", "embedding"),
    ("qkv",),
]
COUNT = {"heads": 12, "ffn": 96, "embedding": 48, "qk": 48, "v": 48}
every_region = pytest.mark.parametrize("regions", REGIONS, ids="+".join)


def gated_model(model, regions, seed=1, scale=3.0):
    apply_surgery(model, {"op": "gates", "regions": list(regions)})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for alpha in gates.get_gate_logits(model).values():
            alpha.copy_(scale * torch.randn(alpha.shape, generator=generator))
    return model


def read(model):
    """The architecture of a gated model, by the rule of
    lib.papers.nas_pruning.control."""
    sizes, _ = gating.count_gates_and_make_flops_function(
        model, get_recorded_model_changes(model)[-1]["regions"]
    )
    alphas = torch.cat(
        [alpha.detach() for alpha in gates.get_gate_logits(model).values()]
    )
    return gating.list_kept_indices(sizes, (alphas.sigmoid() > gated.KEPT).tolist())


def by_hand(model, masks):
    """The plain model with its activations multiplied by {(layer, kind): mask}."""
    for (number, kind), mask in masks.items():
        layer = get_layers(model)[number]
        attention, out = layer.attention.self, layer.attention.output.dense
        if kind == "qk":
            attention.query.register_forward_hook(
                lambda _, __, made, mask=mask: made * mask
            )
            continue
        width = attention.attention_head_size
        wide = mask.repeat_interleave(width) if kind == "heads" else mask
        parts = {
            "heads": [out],
            "v": [out],
            "ffn": [layer.output.dense],
            "embedding": [attention.query, attention.key, attention.value],
        }
        for part in parts[kind]:
            part.register_forward_pre_hook(
                lambda _, given, wide=wide: (given[0] * wide,)
            )
    return model


@every_region
def test_gates_are_masks_on_activations(family, regions, tiny, sentences, logits):
    plain, batch = tiny(family).double(), sentences(family)
    model = gated_model(copy.deepcopy(plain), regions)
    alphas = gates.get_gate_logits(model)
    kinds = [
        k for region in regions for k in (("qk", "v") if region == "qkv" else (region,))
    ]
    assert {k: len(alphas[0, k]) for _, k in alphas} == {k: COUNT[k] for k in kinds}
    hand = {
        at: torch.sigmoid(alpha.detach()).requires_grad_()
        for at, alpha in alphas.items()
    }
    twin = by_hand(plain, hand)
    torch.testing.assert_close(
        logits(model, batch), logits(twin, batch), atol=1e-12, rtol=0
    )
    model(**batch).logits.square().sum().backward()
    twin(**batch).logits.square().sum().backward()
    for at, alpha in alphas.items():
        expected = hand[at].grad * hand[at] * (1 - hand[at])
        torch.testing.assert_close(alpha.grad, expected.detach(), atol=1e-12, rtol=1e-9)
    mine, theirs = (get_layers(m)[0].output.dense.weight.grad for m in (model, twin))
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-9)


def test_all_gates_start_on_and_one_is_on_above_the_threshold(tiny):
    """sigmoid(a) > 0.99 means a > 4.595."""
    model = tiny("bert")
    assert apply_surgery(model, {"op": "gates", "regions": ["heads", "ffn"]}) == {
        "heads": 24,
        "ffn": 192,
    }
    assert {
        a.item()
        for alpha in gates.get_gate_logits(model).values()
        for a in alpha.detach()
    } == {5.0}
    assert read(model) == {
        "heads": [list(range(12))] * 2,
        "neurons": [list(range(96))] * 2,
    }
    values = torch.tensor([5, 4.596, 4.594, 4, 0, -5, 6, -6, 4.7, 4.5, -4.7, 5])
    with torch.no_grad():
        for layer in (0, 1):
            gates.get_gate_logits(model)[layer, "heads"].copy_(values)
    assert read(model)["heads"] == [[0, 1, 6, 8, 11]] * 2


@every_region
def test_the_cut_model_is_the_gated_one_with_hard_masks(
    family, regions, tiny, sentences, logits, tokenizer, tmp_path
):
    batch, model = sentences(family), gated_model(tiny(family).double(), regions)
    with torch.no_grad():
        for alpha in gates.get_gate_logits(model).values():
            alpha.copy_(torch.where(alpha > 0, 60.0, -60.0))
    hard, found = logits(model, batch), read(model)
    gates.remove_gates(model)
    report = apply_surgery(model, {"op": "keep"} | found)
    assert report == {
        kind: [len(kept) for kept in lists] for kind, lists in found.items()
    }
    torch.testing.assert_close(logits(model, batch), hard, atol=1e-12, rtol=0)
    backbone.save(model.float(), tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert get_recorded_model_changes(again) == [{"op": "keep"} | found]
    assert torch.equal(logits(again, batch), logits(model, batch))
    whole, cost = gating.count_gates_and_make_flops_function(tiny(family), regions)
    left = [len(kept) for parts in zip(*found.values(), strict=True) for kept in parts]
    assert gating.count_inference_flops(again) == cost(
        dict(zip(whole, left, strict=True))
    )
    assert (
        count_parameters(again)["parameters"]
        < count_parameters(tiny(family))["parameters"]
    )


@every_region
def test_detached_gates_leave_the_model_as_it_was(
    family, regions, tiny, sentences, logits
):
    model, batch = tiny(family), sentences(family)
    names = [name for name, _ in model.named_parameters()]
    gated_model(model, regions)
    assert gates.has_gates(model)
    assert not torch.equal(logits(model, batch), logits(tiny(family), batch))
    gates.remove_gates(model)
    assert not gates.has_gates(model) and get_recorded_model_changes(model) == []
    assert [name for name, _ in model.named_parameters()] == names
    assert torch.equal(logits(model, batch), logits(tiny(family), batch))


def test_a_gated_model_is_saved_loaded_and_copied(
    family, tiny, sentences, logits, tokenizer, tmp_path
):
    model = gated_model(tiny(family), ["heads", "ffn", "embedding"])
    batch = sentences(family)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    other, expected = copy.deepcopy(again), logits(model, batch)
    gates.get_gate_logits(other)[0, "ffn"].data.fill_(-9.0)
    assert torch.equal(logits(again, batch), expected) and read(again) == read(model)
    assert not torch.equal(logits(other, batch), expected)


def test_gates_are_refused_where_they_do_not_fit(tiny):
    model = tiny("bert")
    with pytest.raises(ValueError, match="'neurons' is not in list"):
        apply_surgery(model, {"op": "gates", "regions": ["neurons"]})
    with pytest.raises(Refused, match="'heads' and 'qkv' both mask .*: take one"):
        apply_surgery(model, {"op": "gates", "regions": ["qkv", "ffn", "heads"]})
    assert get_recorded_model_changes(model) == [] and not gates.has_gates(model)
    apply_surgery(
        model, {"op": "ghost", "kind": "dwconv", "positions": ["ffn2"], "kernel": 3}
    )
    with pytest.raises(ValueError, match="gates after ghost"):
        apply_surgery(model, {"op": "gates", "regions": ["ffn"]})


def test_gates_on_a_cut_model_count_what_is_there(tiny):
    model = tiny("bert")
    apply_surgery(
        model,
        {"op": "keep", "heads": [[1, 2], [5]], "neurons": [[1, 2, 3], list(range(50))]},
    )
    apply_surgery(model, {"op": "gates", "regions": ["heads", "ffn", "embedding"]})
    found = {at: len(alpha) for at, alpha in gates.get_gate_logits(model).items()}
    first = {(0, "heads"): 2, (0, "ffn"): 3, (0, "embedding"): 48}
    assert found == first | {(1, "heads"): 1, (1, "ffn"): 50, (1, "embedding"): 48}
