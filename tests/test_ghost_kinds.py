"""Every convolution at every position: against loops and the cost formulas, under padding, saving and copying."""

import copy
from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib.measure.cost import SHAPES, flops, ghost_flops, ghost_parameters, parameters
from lib.model import backbone
from lib.model.ghost import ATTENTION, Completed, Convolution, Folded, Ghosted, attend
from lib.model.surgery import operate, rank
from lib.model.taps import taps
from lib.options import Ghost
from lib.published import table
from lib.spec import plain, stream

KINDS, TOKENS = ("dwconv", "conv1d_s", "conv1d_f", "conv2d"), 9


def options(kind="dwconv", positions=("o", "ffn2"), kernel=3, **changes):
    fixed = {"tokens": TOKENS} if kind == "conv1d_f" else {}
    return Ghost(
        **{"kind": kind, "positions": positions, "kernel": kernel, "relu": True} | fixed | changes
    )


SINGLE = [options("conv2d", ("qk",))] + [
    options(k, (p,)) for k in KINDS for p in ("v", "o", "ffn1", "ffn2")
]
MANY = [options(k, ("o", "ffn2"), features=3) for k in KINDS]
MIXED = [
    options("conv2d", ("qk", "o", "ffn1", "ffn2")),
    options("dwconv", ("o", "v", "ffn2"), softmax=True),
]
EVERY = [replace(one, mask=True) for one in SINGLE + MANY + MIXED]


def name(one):
    return f"{one.kind}-{'-'.join(one.positions)}-{one.features}"


every = pytest.mark.parametrize("ghost", EVERY, ids=name)


def operations(ghost, heads=3):
    cut = {"op": "cut", "heads": heads} | ({"whole": list(ghost.whole)} if ghost.whole else {})
    return [cut, {"op": "ghost"} | plain(ghost)]


def scores(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {
        "head_scores": torch.rand(2, 12, generator=generator),
        "neuron_scores": torch.rand(2, 96, generator=generator),
    }


def operated(model, ghost, heads=3, seed=3):
    """The model with the cut that this ghost wants, and the ghost; and the cut's report."""
    cut, add = operations(ghost, heads)
    report = operate(model, cut, **scores(model))
    operate(model, add, seed=seed)
    return model, report


def new_parameters(model):
    return {n: p for n, p in model.named_parameters() if "convolution" in n}


# --- the convolutions -----------------------------------------------------------------------------------------------


def slow(kind, x, weight):
    """x [B, M, T, C], weight [R, M, *kernel]: one output value at a time, zero beyond the edges."""
    batch, inputs, tokens, channels = x.shape
    taps, half = weight.shape[-1], weight.shape[-1] // 2
    out = x.new_zeros(batch, len(weight), tokens, channels)

    def at(b, m, t, c):
        return x[b, m, t, c] if 0 <= t < tokens and 0 <= c < channels else 0.0

    for b, r, t, c in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        for m in range(inputs):
            w = weight[r, m]
            if kind == "dwconv":
                terms = [w[c, k] * at(b, m, t + k - half, c) for k in range(taps)]
            elif kind == "conv1d_s":
                terms = [
                    w[c, j, k] * at(b, m, t + k - half, j)
                    for j in range(channels)
                    for k in range(taps)
                ]
            elif kind == "conv1d_f":
                terms = [
                    w[t, j, k] * at(b, m, j, c + k - half)
                    for j in range(tokens)
                    for k in range(taps)
                ]
            else:
                terms = [
                    w[i, k] * at(b, m, t + i - half, c + k - half)
                    for i in range(taps)
                    for k in range(taps)
                ]
            out[b, r, t, c] += sum(terms)
    return out


def convolution(settings, channels, inputs=1, outputs=1):
    return Convolution(
        channels, settings, torch.Generator().manual_seed(0), inputs, outputs
    ).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs, outputs, kernel", [(1, 1, 3), (1, 2, 1), (3, 1, 3), (2, 3, 5)])
@pytest.mark.parametrize("softmax", [True, False])
def test_a_convolution_is_its_loop(kind, inputs, outputs, kernel, softmax):
    one = convolution(
        options(
            kind, kernel=kernel, softmax=softmax, **({"tokens": 4} if kind == "conv1d_f" else {})
        ),
        3,
        inputs,
        outputs,
    )
    x = torch.randn(2, inputs, 4, 3, dtype=torch.float64)
    torch.testing.assert_close(
        one(x), slow(kind, x, one.taps().detach().view(one.full)), atol=1e-12, rtol=0
    )
    if inputs == outputs == 1:
        assert torch.equal(one(x[:, 0]), one(x)[:, 0])


@pytest.mark.parametrize(
    "kind, shared",
    [
        ("dwconv", (5, 3)),
        ("conv1d_s", (5, 5, 3)),
        ("conv2d", (1, 1, 3, 3)),
        ("conv1d_f", (TOKENS, TOKENS, 3)),
    ],
)
def test_shapes_of_the_kernels(kind, shared):
    assert convolution(options(kind), 5).weight.shape == shared
    kernel = shared[2:] if kind == "conv2d" else shared
    assert convolution(options(kind), 5, 2, 3).weight.shape == (3, 2, *kernel)


@pytest.mark.parametrize(
    "kind, over, axes",
    [
        ("dwconv", "taps", -1),
        ("conv1d_s", "taps", -1),
        ("conv1d_f", "taps", -1),
        ("conv2d", "taps", (-2, -1)),
        ("conv1d_s", "inputs", (-2, -1)),
        ("conv1d_f", "inputs", (-2, -1)),
    ],
)
@pytest.mark.parametrize("maps", [(1, 1), (2, 3)])
def test_what_the_softmax_makes_sum_to_one(kind, over, axes, maps):
    one = convolution(options(kind, softmax=True, softmax_over=over), 5, *maps)
    total = one.taps().sum(axes)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert one.taps().shape == one.weight.shape and (one.taps() > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_uniform_kernels_are_a_mean(kind):
    """A constant stays one away from the edges, with the softmax over all that an output sums or without."""
    over = {"softmax_over": "inputs"} if kind.startswith("conv1d") else {}
    x = torch.full((1, 9, 5), 2.0, dtype=torch.float64)
    for settings in (
        options(kind, init="uniform"),
        options(kind, init="uniform", softmax=True, **over),
    ):
        torch.testing.assert_close(convolution(settings, 5)(x)[:, 1:-1, 1:-1], x[:, 1:-1, 1:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_is_drawn_like_a_single_one(kind):
    one, many = convolution(options(kind), 6).weight, convolution(options(kind), 6, 4, 5).weight
    bound = one.abs().max()
    assert 0.6 < many.abs().max() / bound < 1.6 and len(many.view(20, -1).unique(dim=0)) == 20


# --- as recorded ----------------------------------------------------------------------------------------------------


class Recorded(nn.Module):
    """Dense layer and depthwise ghost, written out, as the recorded runs of the default ghost computed them."""

    def __init__(self, dense, taps, mask):
        super().__init__()
        self.dense, self.weight, self.mask = dense, nn.Parameter(taps), mask

    def forward(self, x):
        y = self.dense(x)
        seen = y * self.mask.unsqueeze(-1).to(y.dtype)
        kernel = self.weight.softmax(-1).to(y.dtype).unsqueeze(1)
        ghost = nn.functional.conv1d(
            seen.transpose(1, 2), kernel, padding=1, groups=len(kernel)
        ).transpose(1, 2)
        return y + ghost.relu()


def test_the_default_ghost_keeps_its_bits(family, tiny, sentences):
    """Kernels in the order drawn, names of the weights, logits and gradients."""
    ghost = options(softmax=True, mask=True)
    ours, theirs, batch = operated(tiny(family), ghost)[0], tiny(family), sentences(family)
    operate(theirs, operations(ghost)[0], **scores(theirs))
    generator = torch.Generator().manual_seed(stream(3, "ghost"))
    for layer in backbone.layers(theirs):
        for place in (layer.attention.output, layer.output):
            kernel = nn.init.xavier_uniform_(torch.empty(48, 3), generator=generator)
            place.dense = Recorded(place.dense, kernel, batch["attention_mask"])
    outputs = [model(**batch).logits for model in (ours, theirs)]
    assert torch.equal(*outputs)
    grads = []
    for model, logits in zip((ours, theirs), outputs, strict=True):
        (logits * torch.arange(logits.numel()).view_as(logits)).sum().backward()
        grads.append({n.replace(".convolution.", "."): p.grad for n, p in model.named_parameters()})
    assert set(grads[0]) == set(grads[1]) and all(
        torch.equal(grads[0][n], grads[1][n]) for n in grads[0]
    )
    assert set(new_parameters(ours)) == {
        f"{family}.encoder.layer.{l}.{place}.dense.convolution.weight"
        for l in (0, 1)
        for place in ("attention.output", "output")
    }


# --- counts ---------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("heads", [3, 1])
def test_parameters_are_those_of_the_formula(ghost, heads, family, tiny, shape):
    model, (cut, add) = tiny(family), operations(ghost, heads)
    assert backbone.shape(model) == shape(family)
    operate(model, cut)
    report = operate(model, add)
    extra = ghost_parameters(shape(family), ghost, heads, TOKENS)
    assert report == {"modules": 2 * len(ghost.positions), "parameters": extra}
    assert sum(p.numel() for p in new_parameters(model).values()) == extra
    assert backbone.size(model) == {
        "parameters": parameters(shape(family), heads, ghost, 2, TOKENS)
    }


@every
@pytest.mark.parametrize("heads", [3, 1])
def test_operations_are_those_of_the_formula(ghost, heads, family, tiny, shape):
    """Under eager attention, which the counter can see into; ghosts at "qk" are eager already."""
    model = tiny(family)
    model.set_attn_implementation("eager")
    operated(model, ghost, heads)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(
            input_ids=torch.full((1, TOKENS), 5),
            attention_mask=torch.ones(1, TOKENS, dtype=torch.long),
        )
    assert counter.get_total_flops() == flops(shape(family), TOKENS, heads, ghost)
    assert ghost_flops(shape(family), ghost, heads, TOKENS) > 0


def true_size():
    """(row, heads, ghost) of Tables 5 and 6 and of appendix B.4."""
    for _, line in table("ghostbert", "table5").iterrows():
        kind = line["Convolution Type"].removeprefix("ours: ").lower()
        fixed = {"tokens": 128} if kind == "conv1d_f" else {}
        yield f"{line['m']} {kind}", int(line["m"].split("/")[0]), options(kind, **fixed)
    positions = {
        "After QK": ("qk",),
        "After V": ("v",),
        "After O": ("o",),
        "After FFN1": ("ffn1",),
        "After FFN2": ("ffn2",),
        "Ours: After O&FFN2": ("o", "ffn2"),
    }
    for _, line in table("ghostbert", "table6").iterrows():
        yield (
            line["Position"],
            1,
            options(line["Convolution Type"].lower(), positions[line["Position"]]),
        )
    for features in (2, 4, 8, 12):
        yield f"F = {features}", 1, options(features=features)
    yield "M = F = 12", 12, options(features=12)


ROWS = list(true_size())


@pytest.mark.parametrize("row, heads, ghost", ROWS, ids=[r[0] for r in ROWS])
def test_bert_base_at_true_size_on_the_meta_device(row, heads, ghost):
    config = transformers.BertConfig()
    with torch.device("meta"):
        model = backbone.build(
            transformers.BertForSequenceClassification, config, operations(ghost, heads)
        )
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert sum(p.numel() for p in new_parameters(model).values()) == ghost_parameters(
        SHAPES["bert-base"], ghost, heads
    )
    assert backbone.size(model)["parameters"] == parameters(SHAPES["bert-base"], heads, ghost)
    assert config._attn_implementation != ATTENTION  # the caller's configuration may serve others


def test_every_row_of_tables_5_and_6_is_there():
    assert len(ROWS) == 8 + 6 + 4 + 1


@pytest.mark.parametrize("family", ["roberta", "electra"])
@every
def test_other_families_build_on_the_meta_device(family, ghost, tiny):
    expected = {k: v.shape for k, v in operated(tiny(family), ghost)[0].state_dict().items()}
    with torch.device("meta"):
        model = backbone.build(type(tiny(family)), tiny(family).config, operations(ghost))
    assert {k: v.shape for k, v in model.state_dict().items()} == expected
    assert {p.device.type for p in model.parameters()} == {"meta"}


# --- more ghosts (appendix B.4) -------------------------------------------------------------------------------------


def folded(kind, bias, heads=3, size=2, hidden=4, features=2, **changes):
    torch.manual_seed(0)
    settings = options(kind, features=features, **changes)
    return Folded(
        nn.Linear(heads * size, hidden, bias=bias),
        convolution(settings, hidden, heads, features),
        settings,
        [None],
    ).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_ghosts_of_distinct_kernels_are_the_explicit_sum(kind, bias, relu):
    one, x = folded(kind, bias, relu=relu), torch.randn(2, TOKENS, 6, dtype=torch.float64)
    weight = one.dense.weight.detach()
    each = torch.stack(
        [x[..., 2 * h : 2 * h + 2] @ weight[:, 2 * h : 2 * h + 2].T for h in range(3)], 1
    )
    ghosts = slow(kind, each, one.convolution.taps().detach().view(one.convolution.full))
    expected = one.dense(x) + sum(g.relu() if relu else g for g in ghosts.unbind(1))
    torch.testing.assert_close(one(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_equal_kernels_reduce_to_f_times_the_shared_one(kind, bias):
    """Exactly where the dense layer has no bias, as the shared ghost convolves the bias and the many do not."""
    many, x = folded(kind, bias), torch.randn(2, TOKENS, 6, dtype=torch.float64)
    shared = convolution(options(kind), 4)
    with torch.no_grad():
        many.convolution.weight.copy_(
            shared.weight.expand(many.convolution.full)
            if kind == "conv2d"
            else shared.weight.expand_as(many.convolution.weight)
        )
    y = many.dense(x)
    difference = (many(x) - y - 2 * shared(y).relu()).abs().max()
    assert difference < 1e-12 if not bias else difference > 1e-3
    unbiased = y if not bias else y - many.dense.bias
    torch.testing.assert_close(many(x), y + 2 * shared(unbiased).relu(), atol=1e-12, rtol=0)


def test_a_fold_is_a_block_of_sorted_neurons(tiny):
    model, _ = operated(tiny(), options(features=2))
    layer = backbone.layers(model)[0]
    assert isinstance(layer.output.dense, Folded) and isinstance(
        layer.attention.output.dense, Folded
    )
    x, dense = torch.randn(1, 5, 24), layer.output.dense
    first, seen = torch.cat((x[..., :8], torch.zeros(1, 5, 16)), -1), []
    handle = dense.convolution.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    dense(x)
    dense(first)
    handle.remove()
    assert seen[0].shape == (1, 3, 5, 48)
    torch.testing.assert_close(seen[1][:, 0], seen[0][:, 0])
    assert (seen[1][:, 1:] == 0).all() and (seen[0][:, 1:] != 0).any()


# --- inside attention (section 4.2) ---------------------------------------------------------------------------------


def first_attention(model, batch):
    """Input and both outputs of the first self-attention."""
    seen = {}
    attention = backbone.layers(model)[0].attention.self
    handle = attention.register_forward_hook(
        lambda _, args, out: seen.update(x=args[0], context=out[0], maps=out[1])
    )
    with torch.no_grad():
        model(**batch)
    handle.remove()
    return seen


def by_head(linear, x, heads):
    return linear(x).view(*x.shape[:2], heads, -1).transpose(1, 2)


def masked_maps(attention, x, heads, mask):
    """Softmaxed maps [B, heads, T, T], padded keys at zero."""
    q, k = (by_head(getattr(attention, n), x, heads) for n in ("query", "key"))
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
    return scores.masked_fill(mask[:, None, None, :] == 0, float("-inf")).softmax(-1)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("position, kind", [("qk", "conv2d")] + [("v", k) for k in KINDS])
def test_ghost_heads_are_a_slow_reference_of_the_uncut_weights(
    position, kind, masked, family, tiny, sentences
):
    """From the uncut model's own projections, heads in the order that the cut reports: kept, then others. So the maps
    meet the values, and the contexts the columns of O, that the docstrings promise."""
    fixed = {"tokens": 5} if kind == "conv1d_f" else {}
    ghost, batch = (
        options(kind, (position,), softmax=True, mask=masked, **fixed),
        sentences(family, (5, 3)),
    )
    model, report = operated(tiny(family), ghost)
    whole, model, mask = tiny(family).double(), model.double(), batch["attention_mask"]
    order = report["heads"][0] + report["others"][0]
    assert (
        sorted(order) == list(range(12)) and order == rank(scores(model)["head_scores"][0]).tolist()
    )
    seen, layer = first_attention(model, batch), backbone.layers(model)[0]
    attention, x, convolve = (
        backbone.layers(whole)[0].attention,
        seen["x"],
        layer.attention.self.ghost.convolution,
    )
    kernel, rows = (
        convolve.taps().detach().view(convolve.full),
        mask[:, None, :, None] if masked else torch.ones(1),
    )
    with torch.no_grad():
        maps = masked_maps(attention.self, x, 12, mask)[:, order]
        values = by_head(attention.self.value, x, 12)[:, order]
        if position == "qk":
            area = rows * rows.transpose(2, 3) if masked else rows
            maps = torch.cat((maps[:, :3], slow(kind, maps[:, :3] * area, kernel).relu() * area), 1)
            torch.testing.assert_close(seen["maps"], maps, atol=1e-10, rtol=0)
            context = maps @ values
        else:
            context = (maps @ values)[:, :3]
            context = torch.cat((context, slow(kind, context * rows, kernel).relu()), 1)
        flat = context.transpose(1, 2).flatten(2)
        torch.testing.assert_close(seen["context"], flat, atol=1e-10, rtol=0)
        columns = attention.output.dense.weight.view(48, 12, 4)[:, order].flatten(1)
        projected = flat @ columns.T + attention.output.dense.bias
        torch.testing.assert_close(
            layer.attention.output.dense(seen["context"]), projected, atol=1e-10, rtol=0
        )


@pytest.mark.parametrize("position", ["qk", "v"])
def test_kept_heads_are_unchanged_beside_ghosts_of_nothing(
    position, family, tiny, sentences, logits
):
    """Zero kernels: the ghosts give nothing, so that the model is the plainly cut one."""
    model, report = operated(tiny(family), options("conv2d", (position,)))
    for p in new_parameters(model).values():
        p.data.zero_()
    plain_cut, batch = tiny(family), sentences(family)
    kept = operate(plain_cut, {"op": "cut", "heads": 3}, **scores(plain_cut))
    assert kept == {k: report[k] for k in ("heads", "neurons")}
    torch.testing.assert_close(logits(model, batch), logits(plain_cut, batch), atol=1e-5, rtol=0)


@pytest.mark.parametrize("position, widths", [("qk", (12, 12, 48, 48)), ("v", (12, 12, 12, 48))])
def test_what_stays_whole(position, widths, family, tiny):
    model, _ = operated(tiny(family), options("conv2d", (position,)))
    for layer in backbone.layers(model):
        attention = layer.attention.self
        assert (
            attention.query.out_features,
            attention.key.out_features,
            attention.value.out_features,
            layer.attention.output.dense.in_features,
        ) == widths
        assert (
            isinstance(attention.ghost, Completed) and layer.intermediate.dense.out_features == 24
        )


def test_no_ghost_map_attends_to_padding(tiny, sentences):
    batch = sentences(lengths=(9, 5))
    unmasked, masked = (
        first_attention(operated(tiny(), options("conv2d", ("qk",), mask=m))[0], batch)["maps"]
        for m in (False, True)
    )
    assert (
        masked.shape == (2, 12, 9, 9)
        and (masked[1, :, :, 5:] == 0).all()
        and (masked[1, 3:, 5:] == 0).all()
    )
    assert (masked[1, 3:, :5, :5] != 0).any() and (unmasked[1, 3:, :5, 5] != 0).any()


def test_dropout_acts_on_all_maps(tiny):
    module = backbone.layers(operated(tiny(), options("conv2d", ("qk",)))[0])[
        0
    ].attention.self.train()
    q, v = torch.randn(2, 3, 7, 4), torch.randn(2, 12, 7, 4)
    torch.manual_seed(0)
    context, maps = attend(module, q, q, v, None, dropout=0.5)
    torch.manual_seed(0)
    expected = nn.functional.dropout(module.ghost((q @ q.transpose(2, 3) / 2).softmax(-1)), 0.5)
    assert (
        torch.equal(maps, expected)
        and 0.3 < (maps == 0).float().mean()
        and context.shape == (2, 7, 12, 4)
    )
    assert torch.equal(
        attend(module.eval(), q, q, v, None, scaling=0.5, dropout=0.0)[1],
        module.ghost((q @ q.transpose(2, 3) / 2).softmax(-1)),
    )


def test_attention_of_other_models_is_left_alone(tiny, sentences, logits):
    config = tiny().config
    torch.manual_seed(0)
    one, other = (
        backbone.build(transformers.BertForSequenceClassification, config).eval() for _ in range(2)
    )
    before, implementation = logits(other, sentences()), config._attn_implementation
    operated(one, options("conv2d", ("qk",)))
    assert one.config._attn_implementation == one.bert.config._attn_implementation == ATTENTION
    assert (
        config._attn_implementation
        == other.config._attn_implementation
        == implementation
        != ATTENTION
    )
    assert torch.equal(logits(other, sentences()), before)


# --- models ---------------------------------------------------------------------------------------------------------

any_length = pytest.mark.parametrize(
    "ghost", [one for one in EVERY if one.kind != "conv1d_f"], ids=name
)


@every
def test_what_stands_at_padding_leaves_masked_logits(ghost, tiny, sentences, logits):
    """Also where a length is fixed, so that no more padding can be tried. RoBERTa finds positions by padding."""
    for family in ("bert", "electra"):
        model, batch = operated(tiny(family), ghost)[0], sentences(family)
        other = batch | {
            "input_ids": torch.where(batch["attention_mask"] == 1, batch["input_ids"], 17)
        }
        torch.testing.assert_close(logits(model, other), logits(model, batch), atol=1e-5, rtol=0)


@any_length
def test_padding_leaves_masked_logits(ghost, family, tiny, sentences, logits):
    model = operated(tiny(family), ghost)[0]
    first, *others = (logits(model, sentences(family, (9, 6), extra)) for extra in (0, 3, 7))
    for other in others:
        torch.testing.assert_close(other, first, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "ghost", [one for one in SINGLE + MANY if one.kind != "conv1d_f"], ids=name
)
def test_padding_is_seen_without_the_mask(ghost, tiny, sentences, logits):
    model = operated(tiny(), ghost)[0]
    first, other = (logits(model, sentences("bert", (9, 6), extra)) for extra in (0, 3))
    assert (first - other).abs().max() > 1e-4


@every
def test_gradient_reaches_every_kernel(ghost, family, tiny, sentences):
    model = operated(tiny(family), ghost)[0].train()
    (model(**sentences(family)).logits * torch.tensor([1.0, -2.0])).sum().backward()
    new = new_parameters(model)
    assert len(new) == 2 * len(ghost.positions)
    for n, p in new.items():
        reached = (p.grad.flatten(1) != 0).any(1).float().mean()
        # A ReLU may shut some; in the last layer the head reads one token, one output channel of "conv1d_f".
        assert reached > (0.4 if "layer.0" in n else 0), n


@every
def test_saved_and_loaded_gives_the_same_logits(
    ghost, family, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = operated(tiny(family, labels=3), ghost)[0], sentences(family)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, _ = backbone.load(tmp_path / "model")
    assert again.surgery == model.surgery == operations(ghost)
    assert again.config._attn_implementation == model.config._attn_implementation
    assert (again.config._attn_implementation == ATTENTION) == ("qk" in ghost.positions)
    assert torch.equal(logits(again, batch), logits(model, batch))


@every
def test_a_copy_is_a_model_of_its_own(ghost, tiny, sentences, logits):
    model, batch = operated(tiny(), ghost)[0], sentences(lengths=(9, 5))
    expected, twin = logits(model, batch), copy.deepcopy(model)
    assert torch.equal(logits(twin, batch), expected)
    for p in new_parameters(twin).values():
        p.data.add_(1.0)
    logits(twin, sentences(lengths=(9, 2), seed=1))
    assert torch.equal(backbone.base(model).padding[0], batch["attention_mask"])
    assert not torch.equal(logits(twin, batch), expected) and torch.equal(
        logits(model, batch), expected
    )
    lists = [m.padding for m in twin.modules() if isinstance(m, (Ghosted, Completed))]
    assert len(lists) == 2 * len(ghost.positions) and all(
        each is backbone.base(twin).padding for each in lists
    )


@every
def test_mixed_precision_and_taps(ghost, tiny, sentences):
    model, batch = operated(tiny(), ghost)[0], sentences()
    with taps(model) as seen, torch.autocast("cpu", torch.bfloat16):
        coarse = model(**batch).logits
    assert len(seen["attention"]) == len(seen["ffn"]) == 2 and seen["ffn"][0].shape == (3, 9, 48)
    assert torch.isfinite(coarse).all()
    assert (coarse.float() - model(**batch).logits).abs().max() < 0.5


@pytest.mark.parametrize("position", ["o", "v", "ffn1"])
@pytest.mark.parametrize("length", [TOKENS - 2, TOKENS + 1])
def test_the_fixed_length_refuses_others(position, length, tiny, sentences, logits):
    model = operated(tiny(), options("conv1d_f", (position,)))[0]
    said = rf"a batch of {length} tokens: .* {TOKENS} tokens .* set Train.pad_to to {TOKENS}"
    with pytest.raises(ValueError, match=said) as caught:
        logits(model, sentences(lengths=(length, 3)))
    assert "\n" not in str(caught.value)
    assert logits(model, sentences(lengths=(4, 3), extra=TOKENS - 4)).isfinite().all()


def test_ghosts_may_come_in_two_operations(tiny, sentences, logits):
    together, apart = tiny(), tiny()
    for model, groups in ((together, [("v", "o")]), (apart, [("v",), ("o",)])):
        operate(model, {"op": "cut", "heads": 3, "whole": ["o"]})
        for positions in groups:
            ghost = options(positions=positions, init="uniform", softmax=True, mask=True)
            operate(model, {"op": "ghost"} | plain(ghost))
    assert torch.equal(logits(together, sentences()), logits(apart, sentences()))


CUT = {"op": "cut", "heads": 3}
QK, V = (
    {"op": "ghost"} | plain(options("conv2d", ("qk",))),
    {"op": "ghost"} | plain(options(positions=("v",))),
)


@pytest.mark.parametrize(
    "before, op, message",
    [
        ([], QK, "position 'qk' generates the pruned heads, and none is pruned"),
        ([], V, "position 'v' generates the pruned heads, and none is pruned"),
        (
            [CUT | {"heads": 12, "whole": ["v", "o"]}],
            QK,
            "position 'qk' generates the pruned heads, and none is pruned",
        ),
        (
            [CUT | {"whole": ["v", "o"]}],
            QK | {"kind": "dwconv"},
            "'dwconv' has no meaning on attention maps",
        ),
        (
            [CUT | {"whole": ["v", "o"]}],
            QK | {"positions": ["qk", "v"]},
            "positions 'qk' and 'v' both stand in for",
        ),
        (
            [CUT | {"whole": ["o"]}],
            V | {"features": 2},
            "features is 2; more than one is defined at 'o' and 'ffn2' only",
        ),
        (
            [CUT],
            QK,
            r"ghosts at \['qk'\] need a cut with \"whole\": \['v', 'o'\]; this model's cut left \[\] whole",
        ),
        (
            [CUT | {"whole": ["o"]}],
            QK,
            r"need a cut with \"whole\": \['v', 'o'\]; this model's cut left \['o'\] whole",
        ),
        ([CUT], V, r"need a cut with \"whole\": \['o'\]; this model's cut left \[\] whole"),
        (
            [CUT | {"whole": ["v", "o"]}],
            V,
            r"need a cut with \"whole\": \['o'\]; this model's cut left \['v', 'o'\] whole",
        ),
        (
            [CUT | {"whole": ["o"]}],
            V | {"positions": ["o"]},
            r"ghosts at \['o'\] need a cut with \"whole\": \[\]",
        ),
        ([CUT | {"whole": ["o"]}, V], V, "position 'v' has a ghost already"),
        ([CUT | {"whole": ["v", "o"]}, QK], CUT, "cut after ghost: put the cut first"),
        ([CUT | {"whole": ["o"]}], CUT, r"cut after a cut that left \['o'\] whole: cut once"),
        (
            [{"op": "ghost"} | plain(options(positions=("ffn1",)))],
            CUT,
            "cut after ghost: put the cut first",
        ),
        (
            [],
            {"op": "ghost"} | plain(options("conv1d_f", tokens=0)),
            "Ghost.tokens is 0: 'conv1d_f' needs",
        ),
        (
            [],
            {"op": "ghost"} | plain(options(softmax=True)) | {"softmax_over": "inputs"},
            "Ghost.softmax_over is 'inputs'; that takes softmax",
        ),
        (
            [],
            {"op": "ghost"} | plain(options()) | {"tokens": 9},
            "Ghost.tokens is 9; 'dwconv' takes any length",
        ),
        (
            [],
            {"op": "ghost"} | plain(options("conv1d_f")) | {"tokens": -1},
            "Ghost.tokens is -1; it must be at least 0",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_changes(before, op, message, tiny):
    model = tiny()
    for each in before:
        operate(model, each)
    shapes, modules = (
        {k: v.shape for k, v in model.state_dict().items()},
        [type(m) for m in model.modules()],
    )
    with pytest.raises(ValueError, match=message) as caught:
        operate(model, op)
    assert "\n" not in str(caught.value)
    assert model.surgery == before and shapes == {k: v.shape for k, v in model.state_dict().items()}
    assert modules == [type(m) for m in model.modules()] and model.config._attn_implementation in (
        "sdpa",
        ATTENTION,
    )


def test_uneven_folds_are_refused(tiny):
    model = tiny(heads=12)
    for layer in backbone.layers(model):
        layer.intermediate.dense, layer.output.dense = nn.Linear(48, 98), nn.Linear(98, 48)
    with pytest.raises(ValueError, match="98 neurons do not split into 12 folds of equal size"):
        operate(model, {"op": "ghost"} | plain(options(features=2)))
    assert model.surgery == []


@pytest.mark.parametrize(
    "positions, whole",
    [(("o", "ffn2"), ()), (("ffn1",), ()), (("v",), ("o",)), (("qk", "o"), ("v", "o"))],
)
def test_the_option_says_what_its_cut_leaves_whole(positions, whole):
    assert options("conv2d", positions).whole == whole
