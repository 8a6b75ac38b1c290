"""Iterative magnitude pruning: global masks, rewinding, zeros that stay."""

from dataclasses import replace

import pytest
import torch
from conftest import finetuned, made, untrained

from lib import data
from lib.core.options import Numerics, Train
from lib.core.spec import Spec
from lib.model import backbone, masks
from lib.papers.nas_pruning import training as imp

pytestmark = pytest.mark.usefixtures("few_rows")
NUMERICS = Numerics("float32", 1)
DATA = data.make_data_descriptor("toy", "BigramShift", 48, max_unseen_rows=8)
TRAIN = Train(epochs=2, batch=16, lr=1e-3, max_length=24, weight_decay=0.01, clip=1.0)


def chain(family="bert"):
    """(pre-trained, dense, first round, second round)."""
    origin = untrained(family)
    rounds = [finetuned(DATA, TRAIN, {"start": origin})]
    for kept in (0.9, 0.8):
        told = {"data": DATA, "train": TRAIN, "numerics": NUMERICS, "kept": kept}
        rounds.append(Spec("imp", told, {"start": rounds[-1], "origin": origin}))
    return origin, *rounds


def test_rounds(family, store):
    runs = [made(store, spec.with_seed(0)) for spec in chain(family)]
    models = [backbone.load(run.model_folder)[0] for run in runs]
    zeros = []
    for before, model, run, kept in zip(
        models[1:], models[2:], runs[2:], (0.9, 0.8), strict=False
    ):
        weights = [w.detach() for w in imp.list_prunable_weights(model)]
        assert len(weights) == 12 + (family == "bert")
        total = sum(w.numel() for w in weights)
        gone = torch.cat([(w == 0).flatten() for w in weights])
        assert int(gone.sum()) == total - round(kept * total)
        sizes = torch.cat(
            [w.detach().abs().flatten() for w in imp.list_prunable_weights(before)]
        )
        # the smallest of the round before, over all matrices
        assert sizes[gone].max() <= sizes[~gone].min()
        assert {"accuracy", "unseen.accuracy"} < run.metrics.keys()
        zeros.append(gone)
    assert (zeros[1] >= zeros[0]).all()


def test_weights_are_rewound_and_the_classifier_is_not(store):
    origin, dense, first, _ = chain()
    told = first.args["train"] | {"lr": 1e-12, "weight_decay": 0.0}
    still = replace(first, args=first.args | {"train": told})
    began, trained, ended = (
        backbone.load(made(store, spec.with_seed(0)).model_folder)[0]
        for spec in (origin, dense, still)
    )
    for a, b in zip(
        imp.list_prunable_weights(began), imp.list_prunable_weights(ended), strict=True
    ):
        torch.testing.assert_close(b, a * (b != 0), atol=1e-6, rtol=0)
    heads = ended.classifier.weight, trained.classifier.weight
    torch.testing.assert_close(*heads, atol=1e-6, rtol=0)


def test_exactly_as_many_stay_also_where_values_are_equal():
    sizes = [torch.ones(4, 5), torch.full((3, 4), 2.0), torch.ones(2)]
    chosen = masks.make_global_top_k_masks(sizes, 17)
    assert [int(mask.sum()) for mask in chosen] == [5, 12, 0] and chosen[0].flatten()[
        :5
    ].all()
