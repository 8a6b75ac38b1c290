"""The Taylor importance of Torch-Pruning: scores by hand, the library's own pruner, the
runs."""

import json
import re

import numpy as np
import pytest
import torch
import torch_pruning
from conftest import finetuned, untrained
from test_importance import batches, loss_of, rows

from lib import data
from lib.core.execute import find_place_in_method_file
from lib.core.names import Refused
from lib.core.options import Distil, Importance, Numerics, Train
from lib.core.spec import Spec, to_plain_json
from lib.methods import taylor_importance
from lib.model import backbone
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.papers import frontier, grids
from lib.train.steps.importance import (
    compute_importance_by_method_file,
    compute_taylor_importance,
)

NUMERICS, BY = Numerics("float32", 1), "taylor_importance"
RANKED = Importance("held_out", 4, 32, by=BY)


def scored(model, encoded):
    """The scores of a model, which has its gradients from then on."""
    return compute_importance_by_method_file(model, encoded, RANKED, NUMERICS)


@pytest.mark.parametrize("labels", [2, 1])
def test_scores_are_the_formula(labels, family, tiny):
    """In float64 mean |w g| of four matrices and of two, over their mean; g is of all
    batches."""
    model, encoded = tiny(family, labels=labels).double(), rows(labels)
    found = scored(model, encoded)
    again = tiny(family, labels=labels).double()
    total = sum(loss_of(again, batch, y) for batch, y in batches(encoded))
    for l, layer in enumerate(get_layers(again)):
        own = layer.attention.self
        into = [
            own.query.weight,
            own.key.weight,
            own.value.weight,
            layer.intermediate.dense.weight,
        ]
        out = [layer.attention.output.dense.weight, layer.output.dense.weight]
        grads = torch.autograd.grad(total, into + out, retain_graph=True)
        q, k, v, w1, o, w2 = (
            (w * g).abs() for w, g in zip(into + out, grads, strict=True)
        )
        heads = (q.sum(1) + k.sum(1) + v.sum(1) + o.sum(0)).view(12, 4).sum(1)
        neurons = w1.sum(1) + w2.sum(0)
        for mine, theirs in zip(
            (heads, neurons), (each[l] for each in found), strict=True
        ):
            mine = (mine / mine.mean()).detach()
            torch.testing.assert_close(theirs.double(), mine, atol=1e-6, rtol=1e-5)
            assert torch.equal(
                theirs.argsort(descending=True), mine.argsort(descending=True)
            )


def test_a_score_is_what_the_loss_loses_by_each_weight(tiny):
    """Two neurons: central differences of the loss by a factor on each weight."""
    model, encoded, eps = tiny().double(), rows(number=4), 1e-5
    found = scored(model, encoded)[1][0]
    ((batch, y),) = batches(encoded)
    layer, sums = get_layers(model)[0], []
    into, out = layer.intermediate.dense.weight, layer.output.dense.weight
    with torch.no_grad():
        for neuron in (3, 50):
            moved = []
            for line in (into[neuron], out[:, neuron]):
                for i in range(len(line)):
                    before, ends = line[i].clone(), []
                    for factor in (1 + eps, 1 - eps):
                        line[i] = factor * before
                        ends.append(loss_of(model, batch, y))
                    line[i] = before
                    moved.append(abs(ends[0] - ends[1]) / (2 * eps))
            sums.append(sum(moved))
    assert found[3] / found[50] == pytest.approx(float(sums[0] / sums[1]), rel=1e-4)


RIGHT = torch.zeros(2, 12), torch.zeros(2, 96)


@pytest.mark.parametrize(
    "scores, shown",
    [
        (None, "NoneType"),
        (RIGHT[0], r"Tensor \[2, 12\]"),
        (RIGHT[:1], r"Tensor \[2, 12\]"),
        (RIGHT[::-1], r"Tensor \[2, 96\], Tensor \[2, 12\]"),
        ((*RIGHT, None), r"Tensor \[2, 12\], Tensor \[2, 96\], NoneType"),
        ((RIGHT[0], RIGHT[1].numpy()), r"Tensor \[2, 12\], ndarray \[2, 96\]"),
        ((RIGHT[0][0], RIGHT[1][0]), r"Tensor \[12\], Tensor \[96\]"),
    ],
)
def test_scores_of_another_form_are_refused_with_their_file(
    scores, shown, tiny, monkeypatch
):
    monkeypatch.setattr(
        taylor_importance, "compute_importance_scores", lambda model: scores
    )
    text = f"lib/methods/{BY}.py: compute_importance_scores returned {shown}.*; fix: "
    text += r"let it return two tensors, .* heads \[2, 12\] and of neurons \[2, 96\]"
    with pytest.raises(Refused, match=text):
        scored(tiny(), rows(number=4))


def test_scores_with_a_graph_can_be_saved(tiny, monkeypatch):
    """A product of a weight and its gradient has one, which numpy does not take."""
    scores = [torch.ones(2, count, requires_grad=True) for count in (12, 96)]
    monkeypatch.setattr(
        taylor_importance, "compute_importance_scores", lambda model: scores
    )
    assert all(part.numpy().all() for part in scored(tiny(), rows(number=4)))


@pytest.mark.parametrize("m", [6, 3, 1])
def test_the_library_s_own_pruner_keeps_the_same(m, family, tiny):
    model, ratio = tiny(family), 1 - m / 12
    found = scored(model, rows())
    if family == "mpnet":  # The pruner would tie the heads of layers that share a bias.
        model.base_model.encoder.relative_attention_bias.requires_grad_(False)
    cut = tiny(family)
    kept = apply_surgery(
        cut, {"op": "cut", "heads": m}, head_scores=found[0], neuron_scores=found[1]
    )
    parts = {}
    for layer in get_layers(model):
        own = layer.attention.self
        parts |= {own.query: 12, own.key: 12, own.value: 12}
    widths = dict.fromkeys(
        [*parts, *(layer.intermediate.dense for layer in get_layers(model))], ratio
    )
    torch_pruning.pruner.BasePruner(
        model,
        {"input_ids": torch.full((1, 4), 5)},
        torch_pruning.importance.TaylorImportance(),
        pruning_ratio=0.0,
        pruning_ratio_dict=widths,
        out_channel_groups={},
        num_heads=parts,
        prune_num_heads=True,
        prune_head_dims=False,
        head_pruning_ratio=ratio,
    ).step()
    for l, (one, two) in enumerate(
        zip(get_layers(model), get_layers(tiny(family)), strict=True)
    ):
        heads, neurons = (
            torch.tensor(sorted(kept[name][l])) for name in ("heads", "neurons")
        )
        rows_of = (heads[:, None] * 4 + torch.arange(4)).flatten()
        theirs = one.attention.self, one.attention.output.dense, one.intermediate.dense
        mine = two.attention.self, two.attention.output.dense, two.intermediate.dense
        for name in ("query", "key", "value"):
            weight = getattr(mine[0], name).weight[rows_of]
            assert torch.equal(getattr(theirs[0], name).weight, weight)
        assert torch.equal(theirs[1].weight, mine[1].weight[:, rows_of])
        assert torch.equal(theirs[2].weight, mine[2].weight[neurons])


def test_it_ranks_in_another_way_than_width(tiny):
    encoded = rows()
    theirs = scored(tiny(), encoded)
    ours = compute_taylor_importance(tiny(), encoded, RANKED, NUMERICS)
    for mine, other in zip(theirs, ours, strict=True):
        assert not torch.equal(mine.argsort(1), other.argsort(1))


@pytest.mark.parametrize("m", [6, 3, 1])
def test_a_model_has_the_kept_parts_and_opens_again(
    m, family, tiny, shape, sentences, logits, tokenizer, tmp_path
):
    model, batch = tiny(family), sentences(family)
    widths, op = taylor_importance.plan_pruning(shape(family), m / 12)
    found = scored(tiny(family), rows())
    apply_surgery(model, op, head_scores=found[0], neuron_scores=found[1])
    there = [
        (
            layer.attention.self.num_attention_heads,
            layer.intermediate.dense.out_features,
        )
        for layer in get_layers(model)
    ]
    assert there == widths == [(m, 8 * m)] * 2
    backbone.save(model, tokenizer, tmp_path)
    assert torch.equal(logits(backbone.load(tmp_path)[0], batch), logits(model, batch))


DATA = data.make_data_descriptor("toy", "CoLA", 32, 16)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32)


def test_a_student_is_cut_by_what_the_step_ranks(family, make):
    """Through the store: the teacher, the ranking on its held-out rows, the distilled
    student."""
    teacher = finetuned(DATA, TRAIN, {"start": untrained(family)}).with_seed(1)
    told = {"data": DATA, "numerics": NUMERICS}
    ranks = Spec(
        "importance", told | {"importance": RANKED}, {"teacher": teacher}
    ).with_seed(1)
    _, op = taylor_importance.plan_pruning(grids.find_encoder_shape("toy"), 3 / 12)
    more = {"train": TRAIN, "distil": Distil(mask=True), "surgery": [op]}
    student = Spec(
        "distil", told | more, {"teacher": teacher, "importance": ranks}
    ).with_seed(1)
    run, ranked = make(student), make(ranks).read_arrays("scores")
    (cut,) = json.loads((run.folder / "surgery.json").read_text())
    for name, number in (("heads", 3), ("neurons", 24)):
        assert np.allclose(ranked[name].mean(1), 1, atol=1e-5)
        best = np.argsort(-ranked[name], axis=1, kind="stable")[:, :number]
        assert cut["report"][name] == best.tolist()
    model, _ = backbone.load(run.model_folder)
    assert [
        layer.attention.self.num_attention_heads for layer in get_layers(model)
    ] == [
        3,
        3,
    ]


def test_only_the_ranking_differs_from_width(anywhere):
    """The student of a budget differs from Width's in how the parts are ranked, and
    nothing else. What ranks by itself has the identity that it had."""
    name = "Torch-Pruning Taylor"
    ours, theirs = (
        frontier.TABLE[n].make_spec("mini", "SST-2", 3) for n in (name, "Width")
    )
    one, two = (spec.inputs["start"].inputs["importance"] for spec in (ours, theirs))
    assert ours.args == theirs.args and one.inputs == two.inputs
    assert ours.inputs["start"].args == theirs.inputs["start"].args
    assert one.args["importance"] == two.args["importance"] | {"by": BY}
    assert "by" not in to_plain_json(Importance("held_out", 8, 32))
    assert frontier.count_method_flops("mini", name, 3) == frontier.count_method_flops(
        "mini", "Width", 3
    )


def test_the_error_of_a_method_names_its_line():
    """A progress line has no traceback, so it says where a reader's own file failed."""
    model = torch.nn.Linear(2, 2)  # It has no layers to rank.
    with pytest.raises(Exception) as error:
        taylor_importance.compute_importance_scores(model)
    place = find_place_in_method_file(error.value)
    assert re.fullmatch(r" \(lib/methods/taylor_importance.py:\d+\)", place), place
    assert find_place_in_method_file(ValueError("elsewhere")) == ""
