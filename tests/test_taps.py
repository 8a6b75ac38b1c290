"""Hidden states by role: as many as layers, the framework's own values, nothing left behind."""

import pytest
import torch
from torch import nn

from lib.model import backbone
from lib.model.surgery import operate
from lib.model.taps import taps
from lib.options import Ghost
from lib.spec import plain

GHOST = {"op": "ghost"} | plain(
    Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True, mask=True)
)


def seen_by(model, batch, norm="post"):
    with torch.no_grad(), taps(model, norm) as seen:
        out = backbone.base(model)(**batch)
    return seen, out.last_hidden_state


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_states_are_those_of_the_framework(family, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    seen, _ = seen_by(model, batch)
    with torch.no_grad():
        expected = backbone.base(tiny(family))(**batch, output_hidden_states=True).hidden_states
    assert len(seen["attention"]) == len(seen["ffn"]) == 2
    for mine, theirs in zip([seen["embedding"], *seen["ffn"]], expected, strict=True):
        assert torch.equal(mine, theirs)


def test_attention_states_are_the_blocks_outputs(family, tiny, sentences):
    model, batch, expected = tiny(family), sentences(family), []
    for layer in backbone.layers(model):
        layer.attention.register_forward_hook(lambda _, __, output: expected.append(output[0]))
    seen, _ = seen_by(model, batch)
    assert len(expected) == 2 and all(
        torch.equal(a, b) for a, b in zip(seen["attention"], expected, strict=True)
    )


def test_pre_is_before_the_layer_norm(family, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    (before, _), (after, _) = seen_by(model, batch, "pre"), seen_by(model, batch, "post")
    assert torch.equal(before["embedding"], after["embedding"])
    for number, layer in enumerate(backbone.layers(model)):
        for name, norm in (
            ("attention", layer.attention.output.LayerNorm),
            ("ffn", layer.output.LayerNorm),
        ):
            assert not torch.allclose(before[name][number], after[name][number])
            assert torch.equal(norm(before[name][number]), after[name][number])


def test_each_forward_starts_anew(tiny, sentences):
    model, first, second = tiny(), sentences(), sentences(lengths=(4, 6), seed=1)
    expected, _ = seen_by(model, second)
    with torch.no_grad(), taps(model) as seen:
        model(**first)
        model(**second)
    assert len(seen["ffn"]) == 2 and torch.equal(seen["ffn"][1], expected["ffn"][1])


def test_hooks_are_removed_even_after_an_error(tiny, sentences):
    model = tiny()
    before = hooks(model)
    with pytest.raises(KeyError), taps(model) as seen:
        assert hooks(model) == before + 5
        model(**sentences())
        raise KeyError
    assert hooks(model) == before
    kept = list(seen["ffn"])
    model(**sentences(seed=1))
    assert all(a is b for a, b in zip(kept, seen["ffn"], strict=True))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_student_has_as_many_states(family, norm, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    whole, _ = seen_by(model, batch, norm)
    for op in ({"op": "cut", "heads": 3}, GHOST):
        operate(model, op)
    seen, last = seen_by(model, batch, norm)
    assert torch.equal(seen["embedding"], whole["embedding"])
    for name in ("attention", "ffn"):
        assert [s.shape for s in seen[name]] == [s.shape for s in whole[name]] == [(3, 9, 48)] * 2
        assert not torch.allclose(seen[name][0], whole[name][0])
    assert torch.equal(seen["ffn"][-1], last) or norm == "pre"


def test_states_carry_gradients(tiny, sentences):
    model = tiny()
    with taps(model) as seen:
        backbone.base(model)(**sentences())
        sum(
            s.square().mean() for s in [seen["embedding"], *seen["attention"], *seen["ffn"]]
        ).backward()
    inner = [
        m.weight.grad for m in backbone.base(model).encoder.modules() if isinstance(m, nn.Linear)
    ]
    assert len(inner) == 12 and all(g is not None and g.abs().sum() > 0 for g in inner)
