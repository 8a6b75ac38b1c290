"""Ghost modules: every convolution at every position against loops, the paper's
equations and the cost formulas; under padding, training, saving and copying."""

import copy
from dataclasses import replace

import pytest
import torch
import transformers
from conftest import position_bias
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib.core.names import derive_seed
from lib.core.options import Ghost
from lib.core.spec import to_plain_json
from lib.model import backbone
from lib.model.ghost import (
    ATTENTION,
    Convolution,
    GhostedLayer,
    PerHeadGhostedLayer,
    attend_with_ghost_heads,
)
from lib.model.parts import (
    count_parameters,
    get_encoder,
    get_layers,
    get_recorded_model_changes,
)
from lib.model.surgery import apply_surgery
from lib.papers.published import read_table
from lib.stats.cost import (
    SHAPES,
    count_ghost_flops,
    count_ghost_parameters,
    flops,
    parameters,
    read_shape_of_config,
)

pytestmark = pytest.mark.papers("ghostbert")

KINDS, TOKENS = ("dwconv", "conv1d_s", "conv1d_f", "conv2d"), 9
every_kind = pytest.mark.parametrize("kind", KINDS)


def options(kind="dwconv", positions=("o", "ffn2"), kernel=3, **changes):
    fixed = {"tokens": TOKENS, "relu": True} if kind == "conv1d_f" else {"relu": True}
    return Ghost(
        **{"kind": kind, "positions": positions, "kernel": kernel} | fixed | changes
    )


EVERY = [
    replace(one, mask=True)
    for one in (
        options("conv2d", ("qk",)),
        *(options(kind, ("v",)) for kind in KINDS),
        *(options(kind, ("o", "ffn1", "ffn2")) for kind in KINDS),
        *(options(kind, ("o", "ffn2"), features=3) for kind in KINDS),
        options("conv2d", ("qk", "o", "ffn1", "ffn2")),
        options("dwconv", ("o", "v", "ffn2"), softmax=True),
    )
]


def name(one):
    return f"{one.kind}-{'-'.join(one.positions)}-{one.features}"


every = pytest.mark.parametrize("ghost", EVERY, ids=name)


def operations(ghost, heads=3):
    cut = {"op": "cut", "heads": heads} | (
        {"whole": list(ghost.unpruned_projections)}
        if ghost.unpruned_projections
        else {}
    )
    return [cut, {"op": "ghost"} | to_plain_json(ghost)]


def scores(seed=1):
    draw = torch.Generator().manual_seed(seed)
    heads = torch.rand(2, 12, generator=draw)
    neurons = torch.rand(2, 96, generator=draw)
    return {"head_scores": heads, "neuron_scores": neurons}


def operated(model, ghost, heads=3, seed=3):
    """The model with the cut that this ghost wants, and the ghost; and the cut's
    report."""
    cut, add = operations(ghost, heads)
    report = apply_surgery(model, cut, **scores())
    apply_surgery(model, add, seed=seed)
    return model, report


def added(model, ghost, seed=0):
    """The model with the ghost and without a cut."""
    apply_surgery(model, {"op": "ghost"} | to_plain_json(ghost), seed=seed)
    return model


def new_parameters(model):
    return {n: p for n, p in model.named_parameters() if "convolution" in n}


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def slow(kind, x, weight):
    """x [B, M, T, C], weight [R, M, *kernel]: one value at a time, zero beyond the
    edges."""
    batch, inputs, tokens, channels = x.shape
    taps, half = weight.shape[-1], weight.shape[-1] // 2
    out = x.new_zeros(batch, len(weight), tokens, channels)

    def at(b, m, t, c):
        return x[b, m, t, c] if 0 <= t < tokens and 0 <= c < channels else 0.0

    for b, r, t, c in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        for m in range(inputs):
            w = weight[r, m]
            for k in range(taps):
                if kind == "dwconv":
                    out[b, r, t, c] += w[c, k] * at(b, m, t + k - half, c)
                elif kind == "conv1d_s":
                    each = (
                        w[c, j, k] * at(b, m, t + k - half, j) for j in range(channels)
                    )
                    out[b, r, t, c] += sum(each)
                elif kind == "conv1d_f":
                    each = (
                        w[t, j, k] * at(b, m, j, c + k - half) for j in range(tokens)
                    )
                    out[b, r, t, c] += sum(each)
                else:
                    each = (
                        w[i, k] * at(b, m, t + i - half, c + k - half)
                        for i in range(taps)
                    )
                    out[b, r, t, c] += sum(each)
    return out


def convolution(settings, channels, inputs=1, outputs=1):
    draw = torch.Generator().manual_seed(0)
    return Convolution(channels, settings, draw, inputs, outputs).double()


@every_kind
@pytest.mark.parametrize(
    "inputs, outputs, kernel, softmax",
    [(1, 1, 3, True), (1, 2, 1, False), (2, 3, 5, True)],
)
def test_a_convolution_is_its_loop(kind, inputs, outputs, kernel, softmax):
    fixed = {"tokens": 4} if kind == "conv1d_f" else {}
    one = convolution(
        options(kind, kernel=kernel, softmax=softmax, **fixed), 3, inputs, outputs
    )
    x = torch.randn(2, inputs, 4, 3, dtype=torch.float64)
    close(
        one(x),
        slow(kind, x, one.compute_effective_kernel_weights().detach().view(one.full)),
    )
    if inputs == outputs == 1:
        assert torch.equal(one(x[:, 0]), one(x)[:, 0])


SHAPES_OF = {
    "dwconv": (5, 3),
    "conv1d_s": (5, 5, 3),
    "conv2d": (1, 1, 3, 3),
    "conv1d_f": (TOKENS, TOKENS, 3),
}


@every_kind
def test_shapes_of_the_kernels_and_how_they_are_drawn(kind):
    """Every kernel of many is drawn as if it were the only one."""
    shared = SHAPES_OF[kind]
    kernel = shared[2:] if kind == "conv2d" else shared
    one = convolution(options(kind), 5).weight
    many = convolution(options(kind), 5, 4, 5).weight
    assert one.shape == shared and many.shape == (5, 4, *kernel)
    assert 0.6 < many.abs().max() / one.abs().max() < 1.6
    assert len(many.view(20, -1).unique(dim=0)) == 20


@pytest.mark.parametrize(
    "kind, over",
    [(kind, "taps") for kind in KINDS]
    + [("conv1d_s", "inputs"), ("conv1d_f", "inputs")],
)
@pytest.mark.parametrize("maps", [(1, 1), (2, 3)])
def test_what_the_softmax_makes_sum_to_one(kind, over, maps):
    one = convolution(options(kind, softmax=True, softmax_over=over), 5, *maps)
    total = one.compute_effective_kernel_weights().sum(
        (-2, -1) if kind == "conv2d" or over == "inputs" else -1
    )
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (
        one.compute_effective_kernel_weights().shape == one.weight.shape
        and (one.compute_effective_kernel_weights() > 0).all()
    )
    raw = convolution(options(kind), 5)
    assert raw.compute_effective_kernel_weights() is raw.weight


def ghosted(kernel=3, inputs=8, hidden=6, bias=True, **changes):
    """A GhostedLayer linear layer in float64."""
    torch.manual_seed(0)
    settings = options(kernel=kernel, softmax=True, **changes)
    linear = nn.Linear(inputs, hidden, bias=bias)
    return GhostedLayer(
        linear, convolution(settings, hidden), settings, None, "o"
    ).double()


@pytest.mark.parametrize("kernel, relu", [(1, True), (3, True), (5, False), (17, True)])
def test_a_module_is_the_papers_equation(kernel, relu):
    """Also where the kernel is longer than the sentence. One tap under the softmax is
    1."""
    module, x = ghosted(kernel, relu=relu), torch.randn(2, 7, 8, dtype=torch.float64)
    y, taps = module.dense(x), module.convolution.weight.softmax(1)
    feature = slow("dwconv", y[:, None], taps[None, None])[:, 0]
    close(module(x), y + (feature.relu() if relu else feature))
    assert kernel > 1 or torch.equal(module(x), y + y.relu())


@pytest.mark.parametrize("bias", [False, True])
def test_shared_kernel_on_the_sum_equals_the_sum_over_heads(bias):
    """Without a bias exactly. With one it differs at the two ends alone from adding the
    bias after the convolution, because there a tap falls off the sentence."""
    module, x = ghosted(3, 12, 6, bias), torch.randn(2, 7, 12, dtype=torch.float64)
    weight = module.dense.weight
    taps = module.convolution.compute_effective_kernel_weights()[None, None]
    each = [x[..., h : h + 3] @ weight[:, h : h + 3].T for h in range(0, 12, 3)]
    offset = module.dense.bias if bias else 0.0
    convolved = sum(slow("dwconv", one[:, None], taps)[:, 0] for one in each)
    explicit = sum(each) + offset + (convolved + offset).relu()
    difference = (module(x) - explicit).abs().amax((0, 2))
    assert difference[1:-1].max() < 1e-12
    assert difference[[0, -1]].min() > 1e-3 if bias else difference.max() < 1e-12


class Recorded(nn.Module):
    """Dense layer and depthwise ghost, written out, as the recorded runs computed
    them."""

    def __init__(self, dense, taps, mask):
        super().__init__()
        self.dense, self.weight, self.mask = dense, nn.Parameter(taps), mask

    def forward(self, x):
        y = self.dense(x)
        seen = (y * self.mask.unsqueeze(-1).to(y.dtype)).transpose(1, 2)
        kernel = self.weight.softmax(-1).to(y.dtype).unsqueeze(1)
        made = nn.functional.conv1d(seen, kernel, padding=1, groups=len(kernel))
        return y + made.transpose(1, 2).relu()


def test_the_default_ghost_keeps_its_bits(family, tiny, sentences):
    """Kernels in the order drawn, names of the weights, logits and gradients."""
    ghost = options(softmax=True, mask=True)
    ours = operated(tiny(family), ghost)[0]
    theirs = tiny(family)
    batch = sentences(family)
    apply_surgery(theirs, operations(ghost)[0], **scores())
    generator = torch.Generator().manual_seed(derive_seed(3, "ghost"))
    for layer in get_layers(theirs):
        for place in (layer.attention.output, layer.output):
            kernel = nn.init.xavier_uniform_(torch.empty(48, 3), generator=generator)
            place.dense = Recorded(place.dense, kernel, batch["attention_mask"])
    outputs = [model(**batch).logits for model in (ours, theirs)]
    assert torch.equal(*outputs)
    grads = []
    for model, logits in zip((ours, theirs), outputs, strict=True):
        (logits * torch.arange(logits.numel()).view_as(logits)).sum().backward()
        grads.append(
            {
                n.replace(".convolution.", "."): p.grad
                for n, p in model.named_parameters()
            }
        )
    assert set(grads[0]) == set(grads[1])
    assert all(torch.equal(grads[0][n], grads[1][n]) for n in grads[0])
    places = [
        f"{l}.{place}" for l in (0, 1) for place in ("attention.output", "output")
    ]
    names = {
        f"{family}.encoder.layer.{place}.dense.convolution.weight" for place in places
    }
    assert set(new_parameters(ours)) == names


@every
@pytest.mark.parametrize("heads", [3, 1])
def test_parameters_and_operations_are_those_of_the_formulas(
    ghost, heads, family, tiny, shape
):
    """Under eager attention, which the counter can see into; ghosts at "qk" are eager
    already."""
    model, (cut, add), told = tiny(family), operations(ghost, heads), shape(family)
    assert read_shape_of_config(model.config.to_dict()) == told
    model.set_attn_implementation("eager")
    apply_surgery(model, cut)
    extra = count_ghost_parameters(told, ghost, heads, TOKENS)
    assert apply_surgery(model, add) == {
        "modules": 2 * len(ghost.positions),
        "parameters": extra,
    }
    assert sum(p.numel() for p in new_parameters(model).values()) == extra
    assert count_parameters(model) == {
        "parameters": parameters(told, heads, ghost, 2, TOKENS)
    }
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        ids = torch.full((1, TOKENS), 5)
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert counter.get_total_flops() == flops(told, TOKENS, heads, ghost)
    assert count_ghost_flops(told, ghost, heads, TOKENS) > 0


def true_size():
    """(row, heads, ghost) of Tables 5 and 6 and of appendix B.4."""
    for _, line in read_table("ghostbert", "table5").iterrows():
        kind = line["Convolution Type"].removeprefix("ours: ").lower()
        fixed = {"tokens": 128} if kind == "conv1d_f" else {}
        yield (
            f"{line['m']} {kind}",
            int(line["m"].split("/")[0]),
            options(kind, **fixed),
        )
    for _, line in read_table("ghostbert", "table6").iterrows():
        where = (
            line["Position"]
            .removeprefix("Ours: ")
            .removeprefix("After ")
            .lower()
            .split("&")
        )
        yield (
            line["Position"],
            1,
            options(line["Convolution Type"].lower(), tuple(where)),
        )
    for heads, features in ((1, 2), (1, 12), (12, 12)):
        yield f"M = {heads}, F = {features}", heads, options(features=features)


ROWS = list(true_size())


@pytest.mark.parametrize("row, heads, ghost", ROWS, ids=[r[0] for r in ROWS])
def test_bert_base_at_true_size_on_the_meta_device(row, heads, ghost):
    config, whole = transformers.BertConfig(), SHAPES["bert-base"]
    with torch.device("meta"):
        cls = transformers.BertForSequenceClassification
        model = backbone.build_random_model(cls, config, operations(ghost, heads))
    extra = sum(p.numel() for p in new_parameters(model).values())
    assert {p.device.type for p in model.parameters()} == {"meta"} and len(
        ROWS
    ) == 8 + 6 + 3
    assert extra == count_ghost_parameters(whole, ghost, heads)
    assert count_parameters(model)["parameters"] == parameters(whole, heads, ghost)
    assert (
        config._attn_implementation != ATTENTION
    )  # others may use the caller's configuration


def folded(kind, bias, heads=3, width=2, hidden=4, features=2, **changes):
    torch.manual_seed(0)
    settings = options(kind, features=features, **changes)
    linear = nn.Linear(6, hidden, bias=bias)
    kernels = convolution(settings, hidden, heads, features)
    return PerHeadGhostedLayer(linear, kernels, settings, None, "o").double()


@every_kind
@pytest.mark.parametrize("bias, relu", [(True, True), (False, False)])
def test_ghosts_of_distinct_kernels_are_the_explicit_sum(kind, bias, relu):
    one = folded(kind, bias, relu=relu)
    x = torch.randn(2, TOKENS, 6, dtype=torch.float64)
    weight = one.dense.weight.detach()
    each = torch.stack(
        [x[..., h : h + 2] @ weight[:, h : h + 2].T for h in (0, 2, 4)], 1
    )
    ghosts = slow(
        kind,
        each,
        one.convolution.compute_effective_kernel_weights()
        .detach()
        .view(one.convolution.full),
    )
    close(one(x), one.dense(x) + sum(g.relu() if relu else g for g in ghosts.unbind(1)))


QK_MAPS = options("conv2d", ("qk",))


def first_attention(model, batch):
    """Input and both outputs of the first self-attention."""
    seen, attention = {}, get_layers(model)[0].attention.self
    handle = attention.register_forward_hook(
        lambda _, args, out: seen.update(x=args[0], context=out[0], maps=out[1])
    )
    with torch.no_grad():
        model(**batch)
    handle.remove()
    return seen


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    "position, kind", [("qk", "conv2d")] + [("v", k) for k in KINDS]
)
def test_ghost_heads_are_a_slow_reference_of_the_uncut_weights(
    position, kind, masked, family, tiny, sentences
):
    """From the uncut model's own projections, heads in the order of the cut: kept, then
    others.

    So maps meet the values, and contexts the columns of O, that the docstrings promise.
    """
    fixed = {"tokens": 5} if kind == "conv1d_f" else {}
    ghost = options(kind, (position,), softmax=True, mask=masked, **fixed)
    model, report = operated(tiny(family), ghost)
    batch = sentences(family, (5, 3))
    whole = tiny(family).double()
    model = model.double()
    order, mask = report["heads"][0] + report["others"][0], batch["attention_mask"]
    falling = scores()["head_scores"][0].sort(descending=True, stable=True)
    assert order == falling.indices.tolist()
    seen, layer = first_attention(model, batch), get_layers(model)[0]
    attention = get_layers(whole)[0].attention
    convolve = layer.attention.self.ghost.convolution
    kernel = convolve.compute_effective_kernel_weights().detach().view(convolve.full)
    rows = mask[:, None, :, None] if masked else torch.ones(1)
    with torch.no_grad():
        q, k, values = (
            getattr(attention.self, n)(seen["x"])
            .unflatten(-1, (12, 4))
            .transpose(1, 2)[:, order]
            for n in ("query", "key", "value")
        )
        absent = mask[:, None, None, :] == 0
        maps = q @ k.transpose(2, 3) / 2 + position_bias(whole, seen["x"])[:, order]
        maps = maps.masked_fill(absent, float("-inf")).softmax(-1)
        if position == "qk":
            area = rows * rows.transpose(2, 3) if masked else rows
            maps = torch.cat(
                (maps[:, :3], slow(kind, maps[:, :3] * area, kernel).relu() * area), 1
            )
            close(seen["maps"], maps, atol=1e-10)
            context = maps @ values
        else:
            context = (maps @ values)[:, :3]
            context = torch.cat((context, slow(kind, context * rows, kernel).relu()), 1)
        flat = context.transpose(1, 2).flatten(2)
        close(seen["context"], flat, atol=1e-10)
        columns = attention.output.dense.weight.unflatten(1, (12, 4))[:, order].flatten(
            1
        )
        projected = flat @ columns.T + attention.output.dense.bias
        close(layer.attention.output.dense(seen["context"]), projected, atol=1e-10)


def test_no_ghost_map_attends_to_padding(tiny, sentences):
    batch = sentences(lengths=(9, 5))
    unmasked, masked = (
        first_attention(operated(tiny(), replace(QK_MAPS, mask=m))[0], batch)["maps"][1]
        for m in (False, True)
    )
    assert masked.shape == (12, 9, 9)
    assert (masked[:, :, 5:] == 0).all() and (masked[3:, 5:] == 0).all()
    assert (masked[3:, :5, :5] != 0).any() and (unmasked[3:, :5, 5] != 0).any()


def test_dropout_acts_on_all_maps(tiny):
    module = get_layers(operated(tiny(), QK_MAPS)[0])[0].attention.self.train()
    q, v = torch.randn(2, 3, 7, 4), torch.randn(2, 12, 7, 4)
    whole = module.ghost((q @ q.transpose(2, 3) / 2).softmax(-1))
    torch.manual_seed(0)
    context, maps = attend_with_ghost_heads(module, q, q, v, None, dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(maps, nn.functional.dropout(whole, 0.5)) and context.shape == (
        2,
        7,
        12,
        4,
    )
    assert 0.3 < (maps == 0).float().mean()
    assert torch.equal(
        attend_with_ghost_heads(module.eval(), q, q, v, None, scaling=0.5)[1], whole
    )


def test_attention_of_other_models_is_left_alone(tiny, sentences, logits):
    config, cls = tiny().config, transformers.BertForSequenceClassification
    one, other = (backbone.build_random_model(cls, config).eval() for _ in range(2))
    before, implementation = logits(other, sentences()), config._attn_implementation
    operated(one, QK_MAPS)
    assert (
        one.config._attn_implementation
        == one.bert.config._attn_implementation
        == ATTENTION
    )
    assert (
        config._attn_implementation
        == other.config._attn_implementation
        == implementation
    )
    assert implementation != ATTENTION and torch.equal(
        logits(other, sentences()), before
    )


@every
def test_masked_ghosts_do_not_see_padding(ghost, family, tiny, sentences, logits):
    """Neither its length nor what stands there. RoBERTa finds positions by padding."""
    model, batch = operated(tiny(family), ghost)[0], sentences(family)
    if family != "roberta":
        there = batch["attention_mask"] == 1
        other = batch | {"input_ids": torch.where(there, batch["input_ids"], 17)}
        close(logits(model, other), logits(model, batch), atol=1e-5)
    if ghost.kind != "conv1d_f":
        first, other = (
            logits(model, sentences(family, (9, 6), extra)) for extra in (0, 7)
        )
        close(other, first, atol=1e-5)
        model = operated(tiny(family), replace(ghost, mask=False))[0]
        first, other = (
            logits(model, sentences(family, (9, 6), extra)) for extra in (0, 3)
        )
        assert (first - other).abs().max() > 1e-4  # the letter of the paper


def test_the_mask_is_found_by_place_and_a_batch_without_one_is_real(
    tiny, sentences, logits
):
    model, batch = added(tiny(), options(mask=True)), sentences(lengths=(8, 5))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    with torch.no_grad():
        named = get_encoder(model)(**batch).last_hidden_state
        assert torch.equal(get_encoder(model)(ids, mask).last_hidden_state, named)
    every = {"input_ids": ids, "attention_mask": torch.ones_like(mask)}
    close(logits(model, {"input_ids": ids}), logits(model, every), atol=1e-5)


@every
def test_gradient_reaches_every_kernel(ghost, family, tiny, sentences):
    model = operated(tiny(family), ghost)[0].train()
    (model(**sentences(family)).logits * torch.tensor([1.0, -2.0])).sum().backward()
    new = new_parameters(model)
    assert len(new) == 2 * len(ghost.positions)
    for n, p in new.items():
        reached = (p.grad.flatten(1) != 0).any(1).float().mean()
        # A ReLU may shut some. In the last layer the head reads one token: one output
        # of conv1d_f.
        assert reached > (0.4 if "layer.0" in n else 0), n


@every
def test_a_saved_and_a_copied_model_are_the_same_function(
    ghost, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = operated(tiny(labels=3), ghost)[0], sentences(lengths=(9, 5))
    expected = logits(model, batch)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert (
        get_recorded_model_changes(again)
        == get_recorded_model_changes(model)
        == operations(ghost)
    )
    assert again.config._attn_implementation == model.config._attn_implementation
    assert (again.config._attn_implementation == ATTENTION) == ("qk" in ghost.positions)
    assert torch.equal(logits(again, batch), expected)
    twin = copy.deepcopy(model)
    assert torch.equal(logits(twin, batch), expected)
    for p in new_parameters(twin).values():
        p.data.add_(1.0)
    model(**batch)
    assert not torch.equal(logits(twin, sentences(lengths=(9, 2), seed=1)), expected)
    # Each keeps the mask of its own batch.
    assert torch.equal(get_encoder(model).padding.mask, batch["attention_mask"])
    assert get_encoder(twin).padding.mask.sum() == 11 and torch.equal(
        logits(model, batch), expected
    )


@pytest.mark.parametrize("position", ["o", "v", "ffn1"])
@pytest.mark.parametrize("length", [TOKENS - 2, TOKENS + 1])
def test_the_fixed_length_refuses_others(position, length, tiny, sentences, logits):
    model = operated(tiny(), options("conv1d_f", (position,)))[0]
    with pytest.raises(RuntimeError, match="channels"):
        logits(model, sentences(lengths=(length, 3)))
    assert logits(model, sentences(lengths=(4, 3), extra=TOKENS - 4)).isfinite().all()


def test_ghosts_may_come_in_two_operations(tiny, sentences, logits):
    together, apart = tiny(), tiny()
    for model, groups in ((together, [("v", "o")]), (apart, [("v",), ("o",)])):
        apply_surgery(model, {"op": "cut", "heads": 3, "whole": ["o"]})
        for where in groups:
            added(
                model, options(positions=where, init="uniform", softmax=True, mask=True)
            )
    assert torch.equal(logits(together, sentences()), logits(apart, sentences()))


CUT, ADD = {"op": "cut", "heads": 3}, {"op": "ghost"} | to_plain_json(options())
QK, V = ADD | {"kind": "conv2d", "positions": ["qk"]}, ADD | {"positions": ["v"]}
FIXED = ADD | {"kind": "conv1d_f"}
FOR_V, FOR_QK = CUT | {"whole": ["o"]}, CUT | {"whole": ["v", "o"]}
NEED = r"need a cut with \"whole\": "


@pytest.mark.parametrize(
    "before, op, message",
    [
        ([], QK, "position 'qk' generates the pruned heads, and none is pruned"),
        ([FOR_QK | {"heads": 12}], QK, "position 'qk' generates the pruned heads"),
        ([], V, "position 'v' generates the pruned heads, and none is pruned"),
        (
            [FOR_QK],
            QK | {"kind": "dwconv"},
            "'dwconv' has no meaning on attention maps",
        ),
        (
            [FOR_QK],
            QK | {"positions": ["qk", "v"]},
            "positions 'qk' and 'v' both stand in for",
        ),
        (
            [FOR_V],
            V | {"features": 2},
            "features is 2; more than one is defined at 'o' and 'ffn2'",
        ),
        ([CUT], QK, NEED + r"\['v', 'o'\]; it left \[\]"),
        ([FOR_V], QK, NEED + r"\['v', 'o'\]; it left \['o'\]"),
        ([FOR_QK], V, NEED + r"\['o'\]; it left \['v', 'o'\]"),
        ([FOR_V], ADD | {"positions": ["o"]}, NEED + r"\[\]"),
        ([FOR_V, V], V, "position 'v' has a ghost already"),
        (
            [],
            ADD | {"positions": ["o", "o"]},
            "position 'o' has a ghost already: name each",
        ),
        ([FOR_QK, QK], CUT, "cut after cut: leave"),
        ([], FIXED | {"tokens": -1}, "Ghost.tokens is -1; it must be at least 0"),
        (
            [],
            ADD | {"kernel": 4},
            "Ghost.kernel is 4; an even kernel has no centre tap",
        ),
        ([], ADD | {"kernel": 0}, "Ghost.kernel is 0;"),
        (
            [],
            ADD | {"softmax": True, "softmax_over": "inputs"},
            "Ghost.softmax_over is 'inputs'; each output of 'dwconv' .* take 'taps'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_changes(
    before, op, message, tiny
):
    model = tiny()
    for each in before:
        apply_surgery(model, each)
    before_it = told(model)
    with pytest.raises(ValueError, match=message) as caught:
        apply_surgery(model, op)
    assert "\n" not in str(caught.value) and get_recorded_model_changes(model) == before
    assert told(model) == before_it


def told(model):
    """Shapes, classes of modules, and what attention the model has."""
    shapes = {k: v.shape for k, v in model.state_dict().items()}
    return shapes, list(map(type, model.modules())), model.config._attn_implementation


@every_kind
@pytest.mark.parametrize("softmax", [True, False])
def test_uniform_kernels_are_a_mean(kind, softmax):
    """A constant stays one, away from the edges."""
    over = {"softmax_over": "inputs"} if softmax and kind.startswith("conv1d") else {}
    x = torch.full((1, 9, 5), 2.0, dtype=torch.float64)
    found = convolution(options(kind, init="uniform", softmax=softmax, **over), 5)(x)
    torch.testing.assert_close(found[:, 1:-1, 1:-1], x[:, 1:-1, 1:-1])


def test_one_tap_under_the_softmax_learns_nothing(tiny, sentences):
    model = added(tiny(), options(kernel=1, softmax=True))
    model(**sentences()).logits[:, 0].sum().backward()
    assert all((p.grad == 0).all() for p in new_parameters(model).values())


@every
def test_mixed_precision(ghost, tiny, sentences):
    model, batch = operated(tiny(), ghost)[0], sentences()
    with torch.autocast("cpu", torch.bfloat16):
        coarse = model(**batch).logits
    assert torch.isfinite(coarse).all()
    assert (coarse.float() - model(**batch).logits).abs().max() < 0.5
