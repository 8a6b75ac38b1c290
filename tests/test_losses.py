"""Losses against closed forms in float64; the functions themselves work in float32."""

import numpy as np
import pytest
import torch

from lib.options import Targets
from lib.train.losses import mean_square, prediction, states

RNG = np.random.default_rng(0)
LOGITS, TEACHER, LABELS = (
    RNG.normal(size=(6, 3)) * 2,
    RNG.normal(size=(6, 3)) * 2,
    RNG.integers(0, 3, 6),
)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def values(parts):
    return {name: float(value) for name, value in parts.items()}


def expected_hard():
    return -np.log(softmax(LOGITS)[np.arange(6), LABELS]).mean()


def expected_soft(temperature=1.0, sum_classes=False):
    total = (
        -(softmax(TEACHER / temperature) * np.log(softmax(LOGITS / temperature))).sum(-1).mean()
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
    parts = prediction(
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
    logits, teacher, labels = LOGITS[:, :1], TEACHER[:, :1], RNG.uniform(0, 5, 6).astype(np.float32)
    parts = prediction(
        torch.tensor(logits), torch.tensor(labels), Targets(kind), torch.tensor(teacher)
    )
    expected = {
        "hard": ((logits[:, 0] - labels) ** 2).mean(),
        "soft": ((logits - teacher) ** 2).mean(),
    }
    expected = {k: v for k, v in expected.items() if kind in (k, "both")}
    assert values(parts) == pytest.approx(expected | {"loss": sum(expected.values())}, rel=1e-6)


def test_soft_loss_is_least_at_the_teacher():
    teacher = torch.tensor(TEACHER)
    logits = teacher.clone().requires_grad_()
    prediction(logits, None, Targets("soft", True, 2.0), teacher)["loss"].backward()
    assert logits.grad.abs().max() < 1e-6


def test_no_gradient_of_a_part_that_is_off():
    logits = torch.tensor(LOGITS, requires_grad=True)
    prediction(logits, torch.tensor(LABELS), Targets("hard"))["loss"].backward()
    wanted = (softmax(LOGITS) - np.eye(3)[LABELS]) / 6
    np.testing.assert_allclose(logits.grad.numpy(), wanted, atol=1e-6)


def made(layers, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(3, 5, 4, generator=generator) for _ in range(2 * layers + 1)]
    return {"embedding": draw[0], "attention": draw[1 : layers + 1], "ffn": draw[layers + 1 :]}


@pytest.mark.parametrize("masked", [False, True])
def test_states_against_numpy(masked):
    student, teacher = made(2, 0), made(2, 1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])

    def mse(a, b):
        square = (a.numpy().astype(np.float64) - b.numpy()) ** 2
        return square[mask.numpy() == 1].mean() if masked else square.mean()

    expected = {"embedding": mse(student["embedding"], teacher["embedding"])} | {
        name: sum(mse(a, b) for a, b in zip(student[name], teacher[name], strict=True))
        for name in ("attention", "ffn")
    }
    expected["loss"] = sum(expected.values())
    assert values(states(student, teacher, mask if masked else None)) == pytest.approx(
        expected, rel=1e-6
    )


def test_masked_loss_ignores_padding():
    a, b = made(1, 0)["embedding"], made(1, 1)["embedding"]
    mask = torch.tensor([[1, 1, 1, 1, 0]] * 3)
    changed = a.clone()
    changed[:, -1] += 100
    assert torch.equal(mean_square(a, b, mask), mean_square(changed, b, mask))
    assert mean_square(a, b) != mean_square(changed, b)


def test_equal_states_cost_nothing():
    assert values(states(made(2, 0), made(2, 0))) == {
        "loss": 0,
        "embedding": 0,
        "attention": 0,
        "ffn": 0,
    }


@pytest.mark.parametrize("name", ["attention", "ffn"])
def test_another_number_of_states_is_an_error(name):
    student = made(2, 0)
    student[name] = student[name][:1]
    with pytest.raises(ValueError, match=f"1 {name} states in the student, 2 in the teacher"):
        states(student, made(2, 1))
