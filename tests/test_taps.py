"""Hidden states by role: as many as layers, the framework's own values, nothing left
behind."""

import pytest
import torch

from lib.model.parts import get_encoder, get_layers
from lib.model.surgery import apply_surgery
from lib.model.taps import record_hidden_states

GHOST = {
    "op": "ghost",
    "kind": "dwconv",
    "positions": ["o", "ffn2"],
    "kernel": 3,
    "mask": True,
}


def seen_by(model, batch):
    with torch.no_grad(), record_hidden_states(model) as seen:
        out = get_encoder(model)(**batch)
    return seen, out.last_hidden_state


def hooks(model):
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
    )


def test_states_are_those_of_the_framework(family, tiny, sentences):
    model, batch, blocks = tiny(family), sentences(family), []
    with torch.no_grad():
        expected = get_encoder(tiny(family))(
            **batch, output_hidden_states=True
        ).hidden_states
    for layer in get_layers(model):
        layer.attention.register_forward_hook(
            lambda _, __, output: blocks.append(output[0])
        )
    seen, _ = seen_by(model, batch)
    assert len(seen["attention"]) == len(seen["ffn"]) == 2
    for mine, theirs in zip(
        [seen["embedding"], *seen["ffn"], *seen["attention"]],
        [*expected, *blocks],
        strict=True,
    ):
        assert torch.equal(mine, theirs)


def test_each_forward_starts_anew_and_no_hook_stays(tiny, sentences):
    model, first, second = tiny(), sentences(), sentences(lengths=(4, 6), seed=1)
    expected, before = seen_by(model, second)[0], hooks(model)
    with pytest.raises(KeyError), record_hidden_states(model) as seen:
        model(**first)
        model(**second)
        assert hooks(model) == before + 5
        raise KeyError
    assert len(seen["ffn"]) == 2 and torch.equal(seen["ffn"][1], expected["ffn"][1])
    assert hooks(model) == before


def test_a_student_has_as_many_states(family, tiny, sentences):
    model, batch = tiny(family), sentences(family)
    whole, _ = seen_by(model, batch)
    for op in ({"op": "cut", "heads": 3}, GHOST):
        apply_surgery(model, op)
    seen, last = seen_by(model, batch)
    assert torch.equal(seen["embedding"], whole["embedding"])
    for name in ("attention", "ffn"):
        assert (
            [s.shape for s in seen[name]]
            == [s.shape for s in whole[name]]
            == [(3, 9, 48)] * 2
        )
        assert not torch.allclose(seen[name][0], whole[name][0])
    assert torch.equal(seen["ffn"][-1], last)
