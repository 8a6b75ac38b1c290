"""Losses against closed forms in float64; the functions themselves work in float32."""

import numpy as np
import pytest
import torch

from lib.core.options import Targets
from lib.train.losses import (
    compute_attention_error_ignoring_padded_keys,
    compute_attention_error_with_padded_scores_zeroed,
    compute_attention_mean_squared_error,
    compute_mean_squared_error,
    compute_prediction_losses,
)
from lib.train.matching import (
    Match,
    compute_layerwise_distillation_terms,
    pair_student_with_teacher_layers,
)

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 3)) * 2
TEACHER = RNG.normal(size=(6, 3)) * 2
LABELS = RNG.integers(0, 3, 6)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def values(parts):
    return {name: float(value) for name, value in parts.items()}


def expected_hard():
    return -np.log(softmax(LOGITS)[np.arange(6), LABELS]).mean()


def expected_soft(temperature=1.0, sum_classes=False):
    total = (
        -(softmax(TEACHER / temperature) * np.log(softmax(LOGITS / temperature)))
        .sum(-1)
        .mean()
        * temperature**2
    )
    return total if sum_classes else total / 3


@pytest.mark.parametrize(
    "kind, temperature, sum_classes",
    [
        ("hard", 1.0, False),
        ("soft", 1.0, False),
        ("soft", 1.0, True),
        ("soft", 4.0, False),
        ("soft", 0.5, True),
        ("both", 1.0, False),
        ("both", 2.0, True),
    ],
)
def test_prediction_of_classes(kind, temperature, sum_classes):
    parts = compute_prediction_losses(
        torch.tensor(LOGITS),
        torch.tensor(LABELS),
        Targets(kind, sum_classes, temperature),
        torch.tensor(TEACHER) if kind != "hard" else None,
    )
    expected = {}
    if kind != "soft":
        expected["hard"] = expected_hard()
    if kind != "hard":
        expected["soft"] = expected_soft(temperature, sum_classes)
    expected["loss"] = sum(expected.values())
    assert values(parts) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["hard", "soft", "both"])
def test_prediction_of_scores(kind):
    logits = LOGITS[:, :1]
    teacher = TEACHER[:, :1]
    labels = RNG.uniform(0, 5, 6).astype(np.float32)
    parts = compute_prediction_losses(
        torch.tensor(logits), torch.tensor(labels), Targets(kind), torch.tensor(teacher)
    )
    expected = {
        "hard": ((logits[:, 0] - labels) ** 2).mean(),
        "soft": ((logits - teacher) ** 2).mean(),
    }
    expected = {k: v for k, v in expected.items() if kind in (k, "both")}
    assert values(parts) == pytest.approx(
        expected | {"loss": sum(expected.values())}, rel=1e-6
    )


def made(layers, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(3, 5, 4, generator=generator) for _ in range(2 * layers + 1)]
    return {
        "embedding": draw[0],
        "attention": draw[1 : layers + 1],
        "ffn": draw[layers + 1 :],
    }


REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])


@pytest.mark.parametrize("mask", [False, True])
def test_matches_against_numpy(mask):
    """Every match adds to its part, in the pairs of layers that it names."""
    student, teacher = made(2, 0), made(4, 1)

    def mse(a, b):
        square = (a.numpy().astype(np.float64) - b.numpy()) ** 2
        return square[REAL.numpy() == 1].mean() if mask else square.mean()

    pairs = pair_student_with_teacher_layers(2, 4)
    matches = [
        Match("layers", "embedding", excludes_padding=mask),
        Match("layers", "ffn", pairs, mask),
        Match("blocks", "attention", ((1, 2),), mask),
    ]
    expected = {
        "layers": mse(student["embedding"], teacher["embedding"])
        + sum(mse(student["ffn"][i], teacher["ffn"][j]) for i, j in ((0, 1), (1, 3))),
        "blocks": mse(student["attention"][1], teacher["attention"][2]),
    }
    assert values(
        compute_layerwise_distillation_terms(matches, student, teacher, REAL)
    ) == pytest.approx(expected, rel=1e-6)
    same = compute_layerwise_distillation_terms(
        [Match("ffn", "ffn", pair_student_with_teacher_layers(2, 2), mask)],
        student,
        student,
        REAL,
    )
    assert values(same) == {"ffn": 0}


def test_states_go_through_the_students_projection():
    student, teacher = made(1, 0), made(1, 1)
    model = torch.nn.Module()
    model.projection = torch.nn.Linear(4, 4)
    (value,) = compute_layerwise_distillation_terms(
        [Match("a", "ffn", projects_student=True)], student, teacher, REAL, model
    ).values()
    expected = (model.projection(student["ffn"][0]) - teacher["ffn"][0]).square().mean()
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)


def test_heads_are_those_that_are_left_or_must_be_as_many():
    scores = {"scores": [torch.randn(3, heads, 5, 5) for heads in (2, 2)]}
    whole = {"scores": [torch.randn(3, 4, 5, 5) for _ in range(2)]}
    pairs, kept = ((0, 0), (1, 1)), ([0, 3], [1, 2])
    match = Match(
        "attention",
        "scores",
        pairs,
        teacher_heads_by_student_layer=kept,
        distance=compute_attention_mean_squared_error,
    )
    expected = sum(
        (scores["scores"][i] - whole["scores"][i][:, kept[i]]).square().mean().item()
        for i in (0, 1)
    )
    assert values(compute_layerwise_distillation_terms([match], scores, whole, REAL))[
        "attention"
    ] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="2 heads in the student, 4 in the teacher"):
        compute_layerwise_distillation_terms(
            [
                Match(
                    "attention", "scores", distance=compute_attention_mean_squared_error
                )
            ],
            scores,
            whole,
            REAL,
        )


@pytest.mark.parametrize(
    "student, teacher, pairs",
    [
        (2, 2, [(0, 0), (1, 1)]),
        (6, 12, [(m, 2 * m + 1) for m in range(6)]),
        (12, 6, [(2 * m + 1, m) for m in range(6)]),
    ],
)
def test_layers_are_evenly_spaced_and_the_last_goes_with_the_last(
    student, teacher, pairs
):
    assert list(pair_student_with_teacher_layers(student, teacher)) == pairs


def test_depths_that_do_not_divide_are_an_error():
    with pytest.raises(ValueError, match="a student of 4 layers and a teacher of 6"):
        pair_student_with_teacher_layers(4, 6)


@pytest.mark.parametrize(
    "distance",
    [
        compute_attention_mean_squared_error,
        compute_attention_error_ignoring_padded_keys,
        compute_attention_error_with_padded_scores_zeroed,
    ],
)
@pytest.mark.parametrize("mask", [False, True])
def test_distances_of_scores_against_numpy(distance, mask):
    """`compute_attention_error_ignoring_padded_keys` and
    `compute_attention_error_with_padded_scores_zeroed` take scores to padded keys for
    0. `compute_attention_error_with_padded_scores_zeroed` does so with those of at most
    -100 too."""

    a, b = (
        torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(i))
        for i in (0, 1)
    )
    a[0, 0, 0, 0], real = -150.0, REAL.numpy().astype(bool)
    x, y = a.numpy().astype(np.float64), b.numpy().astype(np.float64)
    keys = np.broadcast_to(real[:, None, None, :], x.shape)
    if distance is not compute_attention_mean_squared_error:
        x, y = np.where(keys, x, 0), np.where(keys, y, 0)
    if distance is compute_attention_error_with_padded_scores_zeroed:
        x = np.where(x <= -100, 0, x)
    square = (x - y) ** 2
    pairs = np.broadcast_to(real[:, None, :, None], x.shape) & keys
    expected = square[pairs].mean() if mask else square.mean()
    assert distance(a, b, REAL, mask).item() == pytest.approx(expected, rel=1e-6)


def test_masked_loss_ignores_padding():
    a, b = made(1, 0)["embedding"], made(1, 1)["embedding"]
    mask = torch.tensor([[1, 1, 1, 1, 0]] * 3)
    changed = a.clone()
    changed[:, -1] += 100
    assert torch.equal(
        compute_mean_squared_error(a, b, mask),
        compute_mean_squared_error(changed, b, mask),
    )
    assert compute_mean_squared_error(a, b) != compute_mean_squared_error(changed, b)


def test_soft_loss_is_least_at_the_teacher():
    teacher = torch.tensor(TEACHER)
    logits = teacher.clone().requires_grad_()
    compute_prediction_losses(logits, None, Targets("soft", True, 2.0), teacher)[
        "loss"
    ].backward()
    assert logits.grad.abs().max() < 1e-6


def test_no_gradient_of_a_part_that_is_off():
    logits = torch.tensor(LOGITS, requires_grad=True)
    compute_prediction_losses(logits, torch.tensor(LABELS), Targets("hard"))[
        "loss"
    ].backward()
    wanted = (softmax(LOGITS) - np.eye(3)[LABELS]) / 6
    np.testing.assert_allclose(logits.grad.numpy(), wanted, atol=1e-6)
