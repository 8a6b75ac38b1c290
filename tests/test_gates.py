"""Gates against masks written out by hand, in float64: forward, gradients, reading out, cutting, saving."""

import copy

import pytest
import torch

from lib.measure import gated
from lib.model import backbone, gates
from lib.model.surgery import operate

REGIONS = [
    ("heads", "ffn"),
    ("ffn",),
    ("embedding",),
    ("qkv", "ffn"),
    ("heads", "ffn", "embedding"),
    ("qkv", "embedding"),
]
COUNT = {"heads": 12, "ffn": 96, "embedding": 48, "qk": 48, "v": 48}


def gated_model(model, regions, seed=1, scale=3.0):
    operate(model, {"op": "gates", "regions": list(regions)})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for alpha in gates.alphas(model).values():
            alpha.copy_(scale * torch.randn(alpha.shape, generator=generator))
    return model


def read(model):
    """The architecture of a gated model, by the rule of lib.search.gates."""
    sizes, _ = gates.costs(model, gates.regions(model))
    on = (
        torch.cat([alpha.detach() for alpha in gates.alphas(model).values()]).sigmoid() > gated.KEPT
    )
    return gates.architecture(sizes, on.tolist())


def by_hand(model, masks):
    """The plain model with its activations multiplied by {(layer, kind): mask}."""
    for number, layer in enumerate(backbone.layers(model)):
        attention = layer.attention.self
        size = attention.attention_head_size

        def inputs(part, mask):
            part.register_forward_pre_hook(lambda _, given: (given[0] * mask,))

        for kind in {kind for at, kind in masks if at == number}:
            mask = masks[number, kind]
            if kind == "heads":
                inputs(layer.attention.output.dense, mask.repeat_interleave(size))
            elif kind == "v":
                inputs(layer.attention.output.dense, mask)
            elif kind == "ffn":
                inputs(layer.output.dense, mask)
            elif kind == "embedding":
                for part in (attention.query, attention.key, attention.value):
                    inputs(part, mask)
            else:
                attention.query.register_forward_hook(lambda _, __, made, mask=mask: made * mask)
    return model


@pytest.mark.parametrize("regions", REGIONS, ids="+".join)
def test_gates_are_masks_on_activations(family, regions, tiny, sentences, logits):
    plain, batch = tiny(family).double(), sentences(family)
    model = gated_model(copy.deepcopy(plain), regions)
    alphas = gates.alphas(model)
    assert {kind: len(alphas[0, kind]) for _, kind in alphas} == {
        kind: COUNT[kind]
        for region in regions
        for kind in (["qk", "v"] if region == "qkv" else [region])
    }
    hand = {at: torch.sigmoid(alpha.detach()).requires_grad_() for at, alpha in alphas.items()}
    twin = by_hand(plain, hand)
    torch.testing.assert_close(logits(model, batch), logits(twin, batch), atol=1e-12, rtol=0)
    model(**batch).logits.square().sum().backward()
    twin(**batch).logits.square().sum().backward()
    for at, alpha in alphas.items():
        expected = hand[at].grad * hand[at] * (1 - hand[at])
        torch.testing.assert_close(alpha.grad, expected.detach(), atol=1e-12, rtol=1e-9)
    mine, theirs = (backbone.layers(m)[0].output.dense.weight.grad for m in (model, twin))
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-9)


def test_at_the_start_every_mask_is_sigmoid_of_five(tiny):
    model = tiny("bert")
    assert operate(model, {"op": "gates", "regions": ["heads", "ffn"]}) == {"heads": 24, "ffn": 192}
    assert {a.item() for alpha in gates.alphas(model).values() for a in alpha.detach()} == {5.0}
    assert read(model) == {"heads": [list(range(12))] * 2, "neurons": [list(range(96))] * 2}
    assert torch.sigmoid(torch.tensor(5.0)).item() == pytest.approx(gated.OPEN)


def test_kept_is_above_the_threshold(tiny):
    """sigmoid(a) > 0.99 means a > 4.595."""
    model = gated_model(tiny("bert"), ["heads"])
    with torch.no_grad():
        for alpha in gates.alphas(model).values():
            alpha.copy_(torch.tensor([5, 4.596, 4.594, 4, 0, -5, 6, -6, 4.7, 4.5, -4.7, 5]))
    assert read(model) == {"heads": [[0, 1, 6, 8, 11]] * 2}


@pytest.mark.parametrize("regions", REGIONS, ids="+".join)
def test_the_cut_model_is_the_gated_one_with_hard_masks(
    family, regions, tiny, sentences, logits, tokenizer, tmp_path
):
    batch = sentences(family)
    model = gated_model(tiny(family).double(), regions)
    with torch.no_grad():
        for alpha in gates.alphas(model).values():
            alpha.copy_(torch.where(alpha > 0, 60.0, -60.0))
    hard, found = logits(model, batch), read(model)
    gates.detach(model)
    report = operate(model, {"op": "keep"} | found)
    assert report == {kind: [len(kept) for kept in lists] for kind, lists in found.items()}
    torch.testing.assert_close(logits(model, batch), hard, atol=1e-12, rtol=0)
    backbone.save(model.float(), tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert again.surgery == [{"op": "keep"} | found] and torch.equal(
        logits(again, batch), logits(model, batch)
    )
    whole, cost = gates.costs(tiny(family), regions)
    assert gates.flops(again) == cost(
        dict(
            zip(
                whole,
                (len(kept) for parts in zip(*found.values(), strict=True) for kept in parts),
                strict=True,
            )
        )
    )
    assert backbone.size(again)["parameters"] < backbone.size(tiny(family))["parameters"]
    if set(regions) & {"embedding", "qkv"}:
        with pytest.raises(
            ValueError,
            match="cut after keep of embedding inputs or of QKV dimensions: put the cut first",
        ):
            operate(again, {"op": "cut", "heads": 1})


@pytest.mark.parametrize("regions", REGIONS, ids="+".join)
def test_detached_gates_leave_the_model_as_it_was(family, regions, tiny, sentences, logits):
    model, batch = tiny(family), sentences(family)
    names = [name for name, _ in model.named_parameters()]
    gated_model(model, regions)
    assert gates.present(model) and gates.regions(model) == tuple(
        r for r in ("heads", "ffn", "embedding", "qkv") if r in regions
    )
    assert not torch.equal(logits(model, batch), logits(tiny(family), batch))
    gates.detach(model)
    assert not gates.present(model) and model.surgery == []
    assert [name for name, _ in model.named_parameters()] == names
    assert torch.equal(logits(model, batch), logits(tiny(family), batch))


def test_a_gated_model_is_saved_loaded_and_copied(
    family, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = gated_model(tiny(family), ["heads", "ffn", "embedding"]), sentences(family)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert torch.equal(logits(again, batch), logits(model, batch))
    assert read(again) == read(model)
    other = copy.deepcopy(again)
    with torch.no_grad():
        gates.alphas(other)[0, "ffn"].fill_(-9.0)
    assert torch.equal(logits(again, batch), logits(model, batch)) and not torch.equal(
        logits(other, batch), logits(model, batch)
    )


def test_a_checkpoint_whose_gates_do_not_fit_is_refused(tiny, tokenizer, tmp_path):
    backbone.save(gated_model(tiny("bert"), ["ffn"]), tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    with pytest.raises(
        ValueError,
        match="the checkpoint has gates on ffn, the search is over heads, ffn: start from a model "
        "without gates, or search the same regions",
    ):
        gates.ensure(again, ("heads", "ffn"))
    assert list(gates.ensure(again, ("ffn",))) == [(0, "ffn"), (1, "ffn")]
    body = tmp_path / "model" / "surgery.json"
    body.write_text(body.read_text().replace('"ffn"', '"heads"'))
    with pytest.raises(
        ValueError,
        match=r"weights do not fit surgery .* bert.encoder.layer.0.gates.ffn \(96,\), expected none",
    ):
        backbone.load(tmp_path / "model")


@pytest.mark.parametrize(
    "ops, message",
    [
        ([{"op": "gates", "regions": ["ffn"]}] * 2, "gates after gates: detach them first"),
        (
            [{"op": "gates", "regions": ["ffn"]}, {"op": "cut", "heads": 3}],
            "cut after gates: detach them first",
        ),
        (
            [{"op": "gates", "regions": ["neurons"]}],
            "gates.regions is 'neurons'; allowed: 'heads', 'ffn', 'embedding', 'qkv'",
        ),
        (
            [
                {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3},
                {"op": "gates", "regions": ["ffn"]},
            ],
            "gates after ghost: put the gates first",
        ),
        (
            [{"op": "keep", "v": [[1], [2]]}, {"op": "gates", "regions": ["ffn"]}],
            "gates after keep of embedding inputs",
        ),
        (
            [{"op": "keep", "v": [[1], [2]], "heads": [[1], [2]]}],
            "keep heads and dimensions of queries, keys or values",
        ),
        (
            [{"op": "keep", "qk": [[1], [48]]}],
            "keep qk of layer 1: found 48; give at least one of 0 to 47",
        ),
        ([{"op": "keep", "embedding": [[1]]}], "keep embedding: 2 lists of indices needed"),
    ],
)
def test_what_does_not_go_together_is_refused(ops, message, tiny):
    model = tiny("bert")
    for op in ops[:-1]:
        operate(model, op)
    with pytest.raises(ValueError, match=message):
        operate(model, ops[-1])
    assert model.surgery == ops[:-1]


def test_gates_on_a_cut_model_count_what_is_there(tiny):
    model = tiny("bert")
    operate(model, {"op": "keep", "heads": [[1, 2], [5]], "neurons": [[1, 2, 3], list(range(50))]})
    operate(model, {"op": "gates", "regions": ["heads", "ffn", "embedding"]})
    assert {at: len(alpha) for at, alpha in gates.alphas(model).items()} == {
        (0, "heads"): 2,
        (0, "ffn"): 3,
        (0, "embedding"): 48,
        (1, "heads"): 1,
        (1, "ffn"): 50,
        (1, "embedding"): 48,
    }
