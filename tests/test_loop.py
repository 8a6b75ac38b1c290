"""The training loop: order, schedule, used rows, and runs that are interrupted and
resumed to the same bits."""

import hashlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import RunWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lib.core import disk
from lib.core.names import Refused
from lib.core.options import Numerics, Targets, Train
from lib.core.store import print_once
from lib.model.options import list_non_default_fields
from lib.model.parts import get_encoder, set_dropout
from lib.model.surgery import apply_surgery
from lib.train import loop, losses
from lib.train.batches import EncodedRows, make_batch, shuffle_row_numbers_into_batches
from lib.train.lean import TrainableEmbeddingRows, train_only_embedding_rows_in_data

NUMERICS = Numerics("float32", 1)
EVERY_STEP, NEVER = 0.0, 1e9


def encoded(number=22, seed=0, low=5, high=40):
    """Rows of 3 to 9 tokens out of some of the vocabulary, so that some rows of the
    table are never used."""
    draw = np.random.default_rng(seed)
    ids = [draw.integers(low, high, draw.integers(3, 10)) for _ in range(number)]
    return EncodedRows(
        {"input_ids": ids}, torch.as_tensor(draw.integers(0, 2, number)), 0
    )


def train(**changes):
    return replace(Train(3, 4, 1e-3, 16, clip=1.0, warmup=0.1, dropout=0.1), **changes)


class Interrupted(Exception):
    pass


def trained(
    tiny,
    writer,
    settings,
    make=lambda model, calls: (),
    stop=None,
    evaluate=None,
    slow_from=None,
    numerics=NUMERICS,
    **more,
):
    """(a model trained from the same start with the methods that `make` gives, the
    calls of the loss, fit's metrics); with `stop`, an error in the loss of that step.
    """
    model, data, calls, seen = tiny("bert"), encoded(), [], []
    set_dropout(model, settings.dropout)

    def loss(batch, rows):
        calls.append(("loss", *rows.tolist()))
        seen.append(rows)
        if len(seen) == slow_from:
            writer.checkpoint_interval_seconds = NEVER
        if len(seen) == stop:
            raise Interrupted
        return losses.compute_prediction_losses(
            model(**batch).logits, data.labels[rows], Targets("hard")
        )

    score, methods = evaluate and (lambda: evaluate(model)), make(model, calls)
    result = loop.fit(
        writer, model, data, loss, settings, numerics, score, methods, **more
    )
    return model, calls, {k: v for k, v in result.items() if k != "examples_per_second"}


def fitted(*args, **more):
    model, _, result = trained(*args, **more)
    return model, result


def bits(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(a, b):
    a, b = (x if isinstance(x, dict) else bits(x) for x in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def arbitrary_score(model):
    """A number that depends on every bit of the weights that eval mode sees, and on no
    other."""
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([[7, 8, 9, 55]])).logits
    return int.from_bytes(hashlib.sha256(logits.numpy().tobytes()).digest()[:4], "big")


@pytest.mark.parametrize(
    "steps, warmup", [(100, 0.1), (18, 0.1), (7, 0.0), (10, 0.5), (3, 0.1), (1, 0.0)]
)
def test_schedule_is_piecewise_linear(steps, warmup):
    first = int(warmup * steps)
    points = [-1, first - 1, first, steps], [0, 1, 1, 0]
    found = [
        loop.compute_learning_rate_factor(step, steps, warmup)
        for step in range(steps + 1)
    ]
    assert found == pytest.approx(np.interp(range(steps + 1), *points), abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(number=st.integers(1, 500), batch=st.integers(1, 40), bucket=st.booleans())
def test_order_covers_each_row_once(number, batch, bucket):
    lengths = np.random.default_rng(number).integers(3, 30, number)
    batches = shuffle_row_numbers_into_batches(lengths, batch, 1, 2, bucket)
    assert sorted(np.concatenate(batches).tolist()) == list(range(number))
    assert len(batches) == -(-number // batch) and all(
        1 <= len(rows) <= batch for rows in batches
    )


@pytest.mark.parametrize("bucket", [True, False])
def test_order_differs_between_epochs_and_seeds(bucket):
    lengths = np.random.default_rng(0).integers(3, 30, 300)

    def rows(seed, epoch):
        return tuple(
            np.concatenate(
                shuffle_row_numbers_into_batches(lengths, 8, seed, epoch, bucket)
            )
        )

    assert len({rows(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}) == 4
    before = rows(1, 1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert rows(1, 1) == before


def test_collate_pads_and_masks():
    data = EncodedRows(
        {
            "input_ids": [np.array([7, 8, 9]), np.array([5]), np.array([6, 6])],
            "token_type_ids": [np.array([0, 1, 1]), np.array([1]), np.array([0, 1])],
        },
        None,
        1,
    )
    batch = make_batch(data, [2, 1])
    assert batch["input_ids"].tolist() == [[6, 6], [5, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 1], [1, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    wide = make_batch(data, np.array([0, 1]), min_token_count=5)
    assert wide["input_ids"].tolist() == [[7, 8, 9, 1, 1], [5, 1, 1, 1, 1]]
    assert wide["attention_mask"].sum(1).tolist() == [3, 1]


@contextmanager
def untouched(*_):
    yield


@pytest.mark.parametrize(
    "changes",
    [{"clip": 0.0}, {"clip": 0.0, "select": "best"}, {"clip": 0.0, "pad_to": 16}],
)
def test_used_rows_change_no_bit(changes, tiny, tmp_path, monkeypatch):
    evaluate = arbitrary_score if "select" in changes else None
    with_rows, result = fitted(
        tiny, RunWriter(tmp_path / "a"), train(**changes), evaluate=evaluate
    )
    monkeypatch.setattr(loop, "train_only_embedding_rows_in_data", untouched)
    without, expected = fitted(
        tiny, RunWriter(tmp_path / "b"), train(**changes), evaluate=evaluate
    )
    assert result == expected and same(with_rows, without)


def test_the_table_is_whole_afterwards(family, tiny):
    model = tiny(family)
    pad = model.config.pad_token_id
    data = replace(encoded(), padding_id=pad)
    table = get_encoder(model).embeddings.word_embeddings
    before, ids = table.weight.detach().clone(), data.columns["input_ids"]
    used = sorted({pad, *np.concatenate(ids).tolist()})
    with train_only_embedding_rows_in_data(model, data, 0.0):
        inner = get_encoder(model).embeddings.word_embeddings
        assert isinstance(inner, TrainableEmbeddingRows)
        assert inner.weight.shape == (len(used), table.embedding_dim)
        assert not any(p is table.weight for p in model.parameters())
        batch = make_batch(data, range(4))
        model.train()
        get_encoder(model)(**batch).last_hidden_state[..., 0].sum().backward()
        moved = (inner.weight.grad.abs().sum(1) > 0).sum()
        assert moved == len(np.unique(np.concatenate(ids[:4])))
        assert inner.weight.grad[used.index(pad)].abs().sum() == 0
        with torch.no_grad():
            inner.weight += 1
    assert get_encoder(model).embeddings.word_embeddings is table
    expected = before.clone()
    expected[used] += 1
    assert torch.equal(table.weight, expected)


def test_unused_rows_are_seen_in_eval_mode(tiny, logits):
    model, batch = tiny(), {"input_ids": torch.tensor([[55, 7, 58]])}
    expected = logits(model, batch)
    with train_only_embedding_rows_in_data(model, encoded(), 0.0):
        assert torch.equal(logits(model, batch), expected)
        with torch.no_grad():
            get_encoder(model).embeddings.word_embeddings.weight += 0.5 * torch.randn(
                48
            )
        changed = logits(model, batch)
    assert not torch.equal(changed, expected)
    assert torch.equal(logits(model, batch), changed)


def test_the_table_is_whole_after_an_error(tiny):
    model = tiny()
    with (
        pytest.raises(Interrupted),
        train_only_embedding_rows_in_data(model, encoded(), 0.0),
    ):
        raise Interrupted
    assert type(get_encoder(model).embeddings.word_embeddings) is nn.Embedding
    assert same(model, tiny())


@pytest.mark.parametrize("masked_lm, decay", [(True, 0.0), (False, 0.01)])
def test_masked_lm_heads_and_weight_decay_train_the_whole_table(
    family, masked_lm, decay, tiny
):
    model = tiny(family, masked_lm=masked_lm)
    with train_only_embedding_rows_in_data(model, encoded(), decay):
        assert type(get_encoder(model).embeddings.word_embeddings) is nn.Embedding


def test_fit_learns_and_tells(tiny, tmp_path):
    writer, before = RunWriter(tmp_path), bits(tiny())
    model, result = fitted(tiny, writer, train(epochs=20, dropout=0.0))
    curve = writer.read_log("curve")
    assert result.pop("mean_tokens") > 1 and result == {"steps": 120}
    assert (
        curve["step"].tolist() == list(range(120))
        and (curve["hard"] == curve["loss"]).all()
    )
    assert curve["loss"][-6:].mean() < 0.5 * curve["loss"][:6].mean()
    assert writer.told == [(step + 1) / 120 for step in range(120)]
    assert (
        not model.training
        and not writer.checkpoint_folder.exists()
        and not same(model, before)
    )


def test_a_run_repeats_and_follows_its_seed(tiny, tmp_path):
    drafts = [RunWriter(tmp_path / f"{i}", seed) for i, seed in enumerate((3, 3, 4))]
    runs = [fitted(tiny, writer, train()) for writer in drafts]
    assert same(runs[0][0], runs[1][0]) and runs[0][1] == runs[1][1]
    assert not same(runs[0][0], runs[2][0])


@pytest.mark.parametrize("select, every", [("last", 0), ("best", 4)])
@pytest.mark.parametrize("stop", [2, 7, 18])
def test_interrupted_and_resumed_gives_the_same_bits(
    select, every, stop, tiny, tmp_path
):
    """Step 7 is the first of an epoch."""
    settings = train(select=select, eval_every=every)
    evaluate = arbitrary_score if select == "best" else None
    whole = RunWriter(tmp_path / "whole")
    expected, result = fitted(tiny, whole, settings, evaluate=evaluate)
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    with pytest.raises(Interrupted):
        fitted(tiny, writer, settings, stop=stop, evaluate=evaluate)
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    model, again = fitted(tiny, writer, settings, evaluate=evaluate)
    assert {"step": stop - 1, "resumed": True} in writer.lines and writer.told[
        0
    ] == stop / 18
    assert same(model, expected)
    assert again == result and ("best_step" in again) == (select == "best")
    assert [line for line in writer.lines if "resumed" not in line] == whole.lines


def test_the_best_model_needs_a_judge(tiny, tmp_path):
    with pytest.raises(Refused, match="nothing judges this training"):
        fitted(tiny, RunWriter(tmp_path / "run"), train(select="best"))


def test_bfloat16_runs_resume_too(tiny, tmp_path):
    numerics = Numerics("bfloat16", 1)
    expected, result = fitted(
        tiny, RunWriter(tmp_path / "whole"), train(), numerics=numerics
    )
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    with pytest.raises(Interrupted):
        fitted(tiny, writer, train(), stop=9, numerics=numerics)
    model, again = fitted(tiny, RunWriter(tmp_path / "cut"), train(), numerics=numerics)
    assert same(model, expected) and again == result
    assert {v.dtype for v in bits(model).values()} == {torch.float32}
    assert not same(expected, fitted(tiny, RunWriter(tmp_path / "float32"), train())[0])


@pytest.mark.parametrize("was", ["bfloat16", None])
def test_a_checkpoint_of_another_dtype_begins_anew(was, tiny, tmp_path, capfd):
    """None: an older checkpoint, which does not tell its dtype."""
    print_once.cache_clear()
    expected, result = fitted(tiny, RunWriter(tmp_path / "whole"), train())
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    with pytest.raises(Interrupted):
        fitted(tiny, writer, train(), stop=9, numerics=Numerics(was or "float32", 1))
    folders = sorted(writer.checkpoint_folder.glob("step-*"))
    for folder in folders if was is None else ():
        body = torch.load(folder / loop.STATE)
        assert body.pop("dtype") == "float32"
        torch.save(body, folder / loop.STATE)
        disk.write_manifest(folder)
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    model, again = fitted(tiny, writer, train())
    assert same(model, expected) and again == result and writer.told[0] == 1 / 18
    assert not any("resumed" in line for line in writer.lines)
    told = f"is of {was or 'an unknown dtype'}, not float32; it begins anew"
    assert told in capfd.readouterr().err and folders[-1] not in [
        *writer.checkpoint_folder.glob("*")
    ]


def test_best_is_the_first_of_equals_and_not_the_last(tiny, tmp_path):
    kept = {}

    def evaluate(model):
        step = len(kept) + 1
        kept[step] = bits(model)
        return {2: 5.0, 3: 5.0}.get(step, 1.0)

    settings = train(clip=0.0, weight_decay=0.01, epochs=5, select="best")
    model, result = fitted(tiny, RunWriter(tmp_path), settings, evaluate=evaluate)
    assert len(kept) == 5 and result["best_step"] == 12
    assert same(model, kept[2]) and not same(model, kept[5])


def test_a_loss_that_is_not_finite_names_the_step(tiny, tmp_path):
    model, data, calls = tiny(), encoded(), [0]

    def loss(batch, rows):
        calls[0] += 1
        return {
            "loss": model(**batch).logits.mean()
            * (float("nan") if calls[0] == 5 else 1.0)
        }

    told = r"loss nan at step 4 of 18: lower Train.lr \(0.001\)"
    with pytest.raises(FloatingPointError, match=told):
        loop.fit(RunWriter(tmp_path), model, data, loss, train(), NUMERICS)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_weights_that_are_not_finite_after_the_last_step_are_not_saved(tiny, tmp_path):
    class Spoil(loop.Callback):
        def after_backward_pass(self, step, steps):
            if step == steps - 1:
                model.classifier.weight.grad.fill_(float("nan"))

    model, data = tiny(), encoded()

    def loss(batch, rows):
        return {"loss": model(**batch).logits.mean()}

    told = r"weights are not finite after step 18 of 18: lower Train.lr \(0.001\)"
    with pytest.raises(FloatingPointError, match=told):
        loop.fit(
            RunWriter(tmp_path),
            model,
            data,
            loss,
            train(),
            NUMERICS,
            callbacks=[Spoil()],
        )


def test_checkpoints_are_whole_and_only_the_last_two_are_kept(tiny, tmp_path):
    writer = RunWriter(tmp_path, checkpoint_interval_seconds=EVERY_STEP)
    (writer.checkpoint_folder / ".step-00000004.7").mkdir(parents=True)
    (writer.checkpoint_folder / ".step-00000004.7" / "model.safetensors").write_bytes(
        b"half"
    )
    expected, _ = fitted(tiny, RunWriter(tmp_path / "other"), train())
    with pytest.raises(Interrupted):
        fitted(tiny, writer, train(), stop=6)
    assert sorted(p.name for p in writer.checkpoint_folder.iterdir()) == [
        "step-00000004",
        "step-00000005",
    ]
    (writer.checkpoint_folder / ".step-00000006.7").mkdir()
    (writer.checkpoint_folder / ".step-00000006.7" / "state.json").write_text("{")
    (writer.checkpoint_folder / ".best.safetensors.7").write_bytes(b"half")
    model, _ = fitted(tiny, writer, train())
    assert same(model, expected)


def test_of_two_checkpoints_the_last_counts(tiny, tmp_path):
    """Killed between writing one and removing an older one; the first one here is no
    checkpoint."""
    expected, result = fitted(tiny, RunWriter(tmp_path / "whole"), train())
    writer = RunWriter(tmp_path / "cut", checkpoint_interval_seconds=EVERY_STEP)
    for stop in (3, 2):
        with pytest.raises(Interrupted):
            fitted(tiny, writer, train(), stop=stop)
    (writer.checkpoint_folder / "step-00000001").mkdir()
    model, again = fitted(tiny, writer, train())
    assert same(model, expected) and again == result
    last = ["step-00000016", "step-00000017"]
    assert sorted(p.name for p in writer.checkpoint_folder.iterdir()) == last


@pytest.mark.parametrize("pad_to", [0, 20])
def test_predict_gives_rows_in_their_own_order(family, pad_to, tiny, logits):
    model, data = tiny(family, labels=3), encoded(23)
    data = EncodedRows(data.columns, data.labels, model.config.pad_token_id)
    found = loop.predict_logits(
        model.train(), data, NUMERICS, max_batch_tokens=200, min_token_count=pad_to
    )
    assert found.shape == (23, 3) and found.dtype == np.float32 and not model.training
    expected = np.concatenate(
        [logits(model, make_batch(data, [i])).numpy() for i in range(23)]
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_bfloat16_predictions_are_near(tiny):
    model, data = tiny(), encoded()
    exact, near = (
        loop.predict_logits(model, data, Numerics(dtype, 1))
        for dtype in ("float32", "bfloat16")
    )
    assert near.dtype == np.float32 and not np.array_equal(exact, near)
    np.testing.assert_allclose(near, exact, atol=0.3)


class Told(loop.Callback):
    """A method that writes down when it is asked."""

    def __init__(self, calls, name="", **more):
        self.calls, self.name = calls, name
        vars(self).update(more)

    def before_forward_pass(self, *at):
        self.calls.append((self.name, "before", *at))

    def after_backward_pass(self, *at):
        self.calls.append((self.name, "gradients", *at))


def test_methods_compose_in_order_and_know_the_step(tiny, tmp_path):
    def make(_, calls):
        return [Told(calls, "a"), Told(calls, "b")]

    _, calls, _ = trained(tiny, RunWriter(tmp_path), train(epochs=1), make)
    moments = [call for call in calls if call[0] != "loss"]
    assert moments == [
        (name, moment, step, 6)
        for step in range(6)
        for moment in ("before", "gradients")
        for name in ("a", "b")
    ]
    assert [call[0] for call in calls[:5]] == ["a", "b", "loss", "a", "b"]


def test_penalties_are_added_to_the_loss(tiny, tmp_path):
    class Norm(loop.Callback):
        def __init__(self, weight, name):
            self.weight, self.name = weight, name

        def compute_penalty_terms(self):
            return {self.name: self.weight.square().sum()}

    def make(model, _):
        weights = {
            "head": model.classifier.weight,
            "pooler": model.bert.pooler.dense.weight,
        }
        return [Norm(weight, name) for name, weight in weights.items()]

    writer = RunWriter(tmp_path)
    trained(tiny, writer, train(epochs=1), make)
    for line in writer.lines:
        told = line.get("curve", line)
        total = told["hard"] + told["head"] + told["pooler"]
        assert told["head"] > 0 and told["loss"] == pytest.approx(total, rel=1e-6)
    assert writer.read_log("curve")["step"].tolist() == list(range(6))


def test_groups_have_their_own_rate_on_the_same_schedule_and_apart_stays(
    tiny, tmp_path, monkeypatch
):
    seen = []

    class Spy(torch.optim.AdamW):
        def step(self, *args, **kwargs):
            seen.append(
                [
                    (g["lr"], g["weight_decay"], len(g["params"]))
                    for g in self.param_groups
                ]
            )
            return super().step(*args, **kwargs)

    monkeypatch.setattr(torch.optim, "AdamW", Spy)
    before = tiny("bert").bert.pooler.dense.weight.detach().clone()

    def make(model, calls):
        groups = ({"params": [model.classifier.weight], "lr": 0.5},)
        return [
            Told(calls, groups=groups),
            Told(calls, apart=(model.bert.pooler.dense.weight,)),
        ]

    settings = train(weight_decay=0.01, spare_norms=True)
    model, _ = fitted(tiny, RunWriter(tmp_path), settings, make)
    names = [name for name, _ in model.named_parameters()]
    spared = sum(name.endswith("bias") or "LayerNorm" in name for name in names)
    assert len(seen) == 18  # three epochs of six batches
    for step, groups in enumerate(seen):
        factor = loop.compute_learning_rate_factor(step, len(seen), 0.1)
        assert groups == [
            (1e-3 * factor, 0.01, len(names) - spared - 2),
            (1e-3 * factor, 0.0, spared),
            (0.5 * factor, 0.0, 1),
        ]
    assert torch.equal(model.bert.pooler.dense.weight, before)


def test_taps_of_ghosts_have_a_rate_of_their_own(tiny):
    model = tiny("bert")
    apply_surgery(
        model,
        {"op": "ghost", "kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3},
    )
    taps = {
        id(p)
        for name, p in model.named_parameters()
        if name.endswith("convolution.weight")
    }
    (usual,) = loop.list_parameter_groups(model, train(), ())
    rest, own = loop.list_parameter_groups(model, train(taps=0.25), ())
    assert taps and {id(p) for p in own["params"]} == taps and own["lr"] == 0.25
    assert rest["lr"] == usual["lr"] and len(rest["params"]) + len(taps) == len(
        usual["params"]
    )


def test_batches_of_ones_own(tiny, tmp_path):

    def batches(epoch):
        return [np.array([epoch, 3]), np.array([5])]

    _, calls, result = trained(
        tiny, RunWriter(tmp_path), train(epochs=2), list_batches_of_epoch=batches
    )
    assert [call[1:] for call in calls] == [(0, 3), (5,), (1, 3), (5,)] and result[
        "steps"
    ] == 4


def test_a_run_is_where_its_numerics_say(monkeypatch):
    assert list_non_default_fields(NUMERICS).keys() == {"dtype", "threads"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    loop.set_dtype_threads_and_device(list_non_default_fields(NUMERICS))
    assert (
        loop.get_device().type == "cpu"
    )  # a GPU at hand does not draw runs of the CPU to it
    loop.set_dtype_threads_and_device(
        list_non_default_fields(replace(NUMERICS, device="cuda"))
    )
    assert loop.get_device().type == "cuda"
    loop.set_dtype_threads_and_device(list_non_default_fields(NUMERICS))
    assert loop.get_device().type == "cpu"


def test_a_model_of_one_s_own_on_another_device_is_refused():
    """Else it would be moved, and computed where its owner does not look."""
    model = torch.nn.Linear(2, 2, device="meta")
    model.device = torch.device("meta")
    with (
        pytest.raises(Refused, match=r"on meta; expected cpu or cuda: move it with"),
        loop.use_float32_on_model_device(model, 1),
    ):
        pass


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="'tpu'; allowed: '', 'cuda'"):
        loop.set_dtype_threads_and_device(
            {"dtype": "float32", "threads": 1, "device": "tpu"}
        )
