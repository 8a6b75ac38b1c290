"""A teacher's states from disk are those that it computes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.core.names import Refused
from lib.core.options import Distil, Numerics
from lib.model.parts import get_encoder, get_layers
from lib.model.taps import record_hidden_states
from lib.train import matching
from lib.train.batches import EncodedRows, make_batch
from lib.train.steps import distilling


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    ids = [generator.integers(5, 50, size=n) for n in (3, 9, 5, 1, 7)]
    return EncodedRows({"input_ids": ids}, None, 0)


def test_stored_states_have_no_padded_tokens_to_count(tiny):
    training = SimpleNamespace(run=SimpleNamespace(inputs={"states": None}))
    with pytest.raises(Refused, match=r"mask=False counts: take Distil\(mask=True\)"):
        distilling.build_distillation_loss(training, tiny(), tiny(), Distil(mask=False))


def test_cached_states_are_the_computed_ones(tiny, rows, tmp_path):
    model, shares = tiny("bert"), []
    told = matching.write_hidden_states(
        model,
        rows,
        Numerics("float32", 1),
        tmp_path / "states.safetensors",
        batch_size=2,
        report_progress=shares.append,
    )
    assert told["tokens"] == 25 and shares == [0.4, 0.8, 1.0]
    cached = matching.build_teacher_forward_from_stored_states(
        tmp_path / "states.safetensors", len(get_layers(model))
    )
    chosen = [4, 0, 1]
    batch = make_batch(rows, chosen)
    with record_hidden_states(model) as seen, torch.no_grad():
        get_encoder(model)(**batch)
    found, _ = cached(batch, chosen)
    real = batch["attention_mask"].bool()
    assert torch.allclose(found["embedding"][real], seen["embedding"][real], atol=1e-5)
    for name in ("attention", "ffn"):
        assert len(found[name]) == len(seen[name]) == 2
        for mine, theirs in zip(found[name], seen[name], strict=True):
            assert (
                torch.allclose(mine[real], theirs[real], atol=1e-5)
                and not mine[~real].any()
            )


def test_half_precision_is_kept(tiny, rows, tmp_path):
    told = matching.write_hidden_states(
        tiny("bert"), rows, Numerics("bfloat16", 1), tmp_path / "s.safetensors"
    )
    assert told["bytes"] == 25 * 5 * 48 * 2
    found, _ = matching.build_teacher_forward_from_stored_states(
        tmp_path / "s.safetensors", 2
    )(make_batch(rows, [0]), [0])
    assert found["embedding"].dtype == torch.bfloat16
