"""Ghost modules against the paper's equations, and under padding, copying and training."""

import copy

import pytest
import torch
from torch import nn

from lib.model import backbone
from lib.model.ghost import Convolution, Ghosted, add
from lib.options import Ghost


def options(kernel=3, **changes):
    return Ghost(
        **{
            "kind": "dwconv",
            "positions": ("o", "ffn2"),
            "kernel": kernel,
            "softmax": True,
            "relu": True,
        }
        | changes
    )


def module(settings, inputs=8, hidden=6, bias=True, seed=0):
    """A Ghosted linear layer in float64."""
    torch.manual_seed(seed)
    convolution = Convolution(hidden, settings, torch.Generator().manual_seed(seed))
    return Ghosted(nn.Linear(inputs, hidden, bias=bias), convolution, settings, [None]).double()


def convolved(x, taps):
    """O[i, c] = sum over the K taps m of taps[c, m] * x[i + m - (K - 1) / 2, c], zero beyond the sentence."""
    out = torch.zeros_like(x)
    batch, tokens, channels = x.shape
    for b in range(batch):
        for i in range(tokens):
            for c in range(channels):
                for m in range(taps.shape[1]):
                    j = i + m - taps.shape[1] // 2
                    if 0 <= j < tokens:
                        out[b, i, c] += taps[c, m] * x[b, j, c]
    return out


@pytest.mark.parametrize("kernel", [1, 3, 5, 17])
@pytest.mark.parametrize("init", ["xavier", "uniform"])
def test_taps_sum_to_one(kernel, init):
    taps = Convolution(10, options(kernel, init=init), torch.Generator().manual_seed(0)).taps()
    assert taps.shape == (10, kernel)
    torch.testing.assert_close(taps.sum(1), torch.ones(10))
    assert (taps > 0).all()
    if init == "uniform":
        torch.testing.assert_close(taps, torch.full_like(taps, 1 / kernel))


def test_taps_without_softmax_are_the_raw_kernel():
    convolution = Convolution(10, options(softmax=False), torch.Generator().manual_seed(0))
    assert convolution.taps() is convolution.weight
    uniform = Convolution(10, options(softmax=False, init="uniform"), torch.Generator())
    torch.testing.assert_close(uniform.taps(), torch.full((10, 3), 1 / 3))


def test_one_tap_is_y_plus_relu():
    ghosted, x = module(options(1)), torch.randn(2, 7, 8, dtype=torch.float64)
    y = ghosted.dense(x)
    assert torch.equal(ghosted(x), y + y.relu())


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("softmax, relu", [(True, True), (False, True), (True, False)])
def test_module_is_the_papers_equation(kernel, softmax, relu):
    ghosted, x = (
        module(options(kernel, softmax=softmax, relu=relu)),
        torch.randn(2, 7, 8, dtype=torch.float64),
    )
    y = ghosted.dense(x)
    feature = convolved(
        y, ghosted.convolution.weight.softmax(1) if softmax else ghosted.convolution.weight
    )
    torch.testing.assert_close(
        ghosted(x), y + (feature.relu() if relu else feature), atol=1e-12, rtol=0
    )


def test_offsets_are_minus_one_zero_one():
    convolution = Convolution(1, options(softmax=False), torch.Generator().manual_seed(0))
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        out = convolution(torch.tensor([1.0, 2.0, 3.0])[None, :, None])
    assert out.flatten().tolist() == [10 + 200, 1 + 20 + 300, 2 + 30]


@pytest.mark.parametrize("bias", [False, True])
def test_shared_kernel_on_the_sum_equals_the_sum_over_heads(bias):
    """Without a bias exactly; with one, convolving the dense output differs from adding the bias after the
    convolution at the two ends alone, where a tap falls off the sentence."""
    heads, size, hidden = 4, 3, 6
    ghosted, x = (
        module(options(3), heads * size, hidden, bias),
        torch.randn(2, 7, heads * size, dtype=torch.float64),
    )
    taps, weight = ghosted.convolution.taps(), ghosted.dense.weight
    each = [
        x[..., h * size : (h + 1) * size] @ weight[:, h * size : (h + 1) * size].T
        for h in range(heads)
    ]
    offset = ghosted.dense.bias if bias else torch.zeros(hidden, dtype=torch.float64)
    explicit = sum(each) + offset + (sum(convolved(one, taps) for one in each) + offset).relu()
    difference = (ghosted(x) - explicit).abs().amax((0, 2))
    assert difference[1:-1].max() < 1e-12
    assert difference[[0, -1]].max() < 1e-12 if not bias else difference[[0, -1]].min() > 1e-3


@pytest.mark.parametrize("mask", [True, False])
def test_padding_and_logits(mask, family, tiny, sentences, logits):
    """Masked ghosts do not see padding; unmasked ones, the letter of the paper, do."""
    model = tiny(family)
    add(model, options(5, mask=mask), seed=0)
    first, *others = (logits(model, sentences(family, (9, 6), extra)) for extra in (0, 3, 7))
    change = max((first - other).abs().max() for other in others)
    assert change < 1e-5 if mask else change > 1e-3


def test_a_batch_without_a_mask_is_all_real(tiny, sentences, logits):
    model, batch = tiny(), sentences(lengths=(8, 8))
    add(model, options(mask=True), seed=0)
    alone = logits(model, {"input_ids": batch["input_ids"]})
    torch.testing.assert_close(alone, logits(model, batch), atol=1e-5, rtol=0)


def test_the_mask_is_found_as_a_positional_argument_too(tiny, sentences):
    model, batch = tiny(), sentences()
    add(model, options(mask=True), seed=0)
    with torch.no_grad():
        named = backbone.base(model)(**batch).last_hidden_state
        assert torch.equal(
            backbone.base(model)(batch["input_ids"], batch["attention_mask"]).last_hidden_state,
            named,
        )


def test_ghosts_added_one_by_one_share_the_mask(tiny, sentences, logits):
    at_once, one_by_one = tiny(), tiny()
    add(at_once, options(mask=True, init="uniform"), seed=0)
    for position in ("o", "ffn2"):
        add(one_by_one, options(mask=True, init="uniform", positions=(position,)), seed=0)
    assert torch.equal(logits(one_by_one, sentences()), logits(at_once, sentences()))


@pytest.mark.parametrize("kernel", [17, 31])
def test_kernels_longer_than_the_sentence(kernel, tiny, sentences, logits):
    ghosted, x = module(options(kernel)), torch.randn(1, 4, 8, dtype=torch.float64)
    y = ghosted.dense(x)
    torch.testing.assert_close(
        ghosted(x), y + convolved(y, ghosted.convolution.taps()).relu(), atol=1e-12, rtol=0
    )
    model = tiny()
    add(model, options(kernel, mask=True), seed=0)
    assert torch.isfinite(logits(model, sentences(lengths=(3, 1)))).all()


@pytest.mark.parametrize("kernel", [2, 4, 0, -1])
def test_kernels_without_a_centre_are_refused(kernel):
    with pytest.raises(ValueError, match=rf"Ghost.kernel is {kernel};"):
        options(kernel)


@pytest.mark.parametrize("kernel", [3, 1])
def test_gradient_of_the_kernels(kernel, family, tiny, sentences):
    """One tap under the softmax is the constant 1, so nothing is learned there."""
    model = tiny(family)
    add(model, options(kernel), seed=0)
    model(**sentences(family)).logits[:, 0].sum().backward()
    new = {n: p.grad for n, p in model.named_parameters() if "convolution" in n}
    assert len(new) == 4
    if kernel == 1:
        assert all((g == 0).all() for g in new.values())
    else:
        assert all((g != 0).any() for g in new.values())


def test_a_copied_model_keeps_its_own_mask(tiny, sentences, logits):
    model = tiny()
    add(model, options(mask=True), seed=0)
    long, short = sentences(lengths=(9, 5)), sentences(lengths=(4, 2), seed=1)
    expected = logits(model, long)
    twin = copy.deepcopy(model)
    logits(twin, short)
    assert torch.equal(backbone.base(model).padding[0], long["attention_mask"])
    assert torch.equal(backbone.base(twin).padding[0], short["attention_mask"])
    for one in (model, twin):
        lists = [m.padding for m in one.modules() if isinstance(m, Ghosted)]
        assert len(lists) == 4 and all(each is backbone.base(one).padding for each in lists)
    assert torch.equal(logits(model, long), expected) and torch.equal(logits(twin, long), expected)


def test_kernels_follow_the_seed(tiny):
    def kernels(seed, noise):
        model = tiny()
        torch.manual_seed(noise)
        add(model, options(), seed)
        return [p for n, p in model.named_parameters() if "convolution" in n]

    first, same, other = kernels(3, 0), kernels(3, 1), kernels(4, 0)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            options(positions=("qk",)),
            "'dwconv' has no meaning on attention maps: position 'qk' takes 'conv2d'",
        ),
        (options(positions=("v",)), "position 'v' generates the pruned heads, and none is pruned"),
        (
            options(features=4, positions=("o", "ffn1")),
            "features is 4; more than one is defined at 'o' and 'ffn2' only",
        ),
        (options(kind="conv1d_f"), "Ghost.tokens is 0: 'conv1d_f' needs the one number of tokens"),
        (options(positions=("o", "o")), "position 'o' has a ghost already"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message, tiny):
    with pytest.raises(ValueError, match=message):
        add(tiny(), settings, seed=0)
