"""This module has the settings and Specs of differentiable NAS pruning of BERT.

The paper is the report "Neural Architecture Search on BERT for Network Compression".
The settings of `paper` are the printed ones, and TinyBERT's where the report is silent.
`toy` and `mini` have values of their own, each chosen once, before the first recorded
run. The module is free of torch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from lib.core.names import Refused, check_name
from lib.core.options import Train
from lib.core.spec import Output, Spec
from lib.core.types import Json
from lib.papers import grids, published
from lib.papers.grids import backbone, shape, start_checkpoint
from lib.papers.nas_pruning import control, gated
from lib.papers.nas_pruning.options import Gates, Objective, Perceptron
from lib.stats.compare import Column
from lib.stats.cost import SHAPES

S = grids.settings("nas_pruning")
# Tables of settings.toml, which describes each.
MAIN: str = S.MAIN
RATIOS: tuple[float, ...] = S.RATIOS
TIMES: int = S.TIMES
LONG: tuple[str, ...] = S.LONG
TEN: tuple[str, ...] = S.TEN
AUGMENTED: tuple[str, ...] = S.AUGMENTED
COLUMNS: tuple[Column, ...] = S.COLUMNS
CLAIM_COLUMNS = COLUMNS  # Metrics by which claims are judged.
TARGETS: tuple[float, ...] = S.TARGETS
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SIZED: dict[str, tuple[float, ...]] = S.SIZED
LONGER: dict[str, tuple[float, ...]] = S.LONGER
TAUGHT: dict[str, tuple[float, ...]] = S.TAUGHT
DIGITS_REPORTED: dict[str, bool] = S.DIGITS_REPORTED
RANDOM: dict[str, tuple[str, ...]] = S.RANDOM
PAIR: dict[str, tuple[str, ...]] = S.PAIR
TRIO: dict[str, tuple[str, ...]] = S.TRIO
TEST: dict[str, tuple[str, ...]] = S.TEST
TINYBERTS: dict[str, tuple[str, ...]] = S.TINYBERTS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
HEADLINES: dict[str, tuple[int, ...]] = S.HEADLINES
REPEATS: dict[str, tuple[int, ...]] = S.REPEATS
ROWS: dict[str, int] = S.ROWS
TEACHER: dict[str, Train] = S.TEACHER
SEARCH: dict[str, Train] = S.SEARCH
INTERMEDIATE: dict[str, Train] = S.INTERMEDIATE
PREDICTION: dict[str, Train] = S.PREDICTION
MAGNITUDE: dict[str, Train] = S.MAGNITUDE
TOY_MINI: Json = S.TOY_MINI
IMAGES: dict[str, dict[str, str]] = S.IMAGES
NETWORKS: dict[str, Perceptron] = S.NETWORKS
CHECKPOINTS: dict[str, str] = S.CHECKPOINTS
TURNS: dict[str, int] = S.TURNS
ROUNDS: dict[str, tuple[float, ...]] = S.ROUNDS
TEACHING: dict[str, tuple[int, int]] = S.TEACHING
STAGES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = S.STAGES
WINNING: dict[str, float] = S.WINNING
GATES: Json = S.GATES
REPORTED: Json = S.REPORTED
# Columns of Table 10. It compares with accuracies of another paper, which reports
# Pearson's correlation alone.
AGAINST_IMP = COLUMNS[0], COLUMNS[3]
LOGITS, TINYBERT = Objective("prediction"), Objective("soft_cross_entropy")

DEVIATIONS = published.deviations("nas_pruning")
SMALL_TEACHER = published.deviations("nas_pruning", "small_teacher")
DIGITS = published.deviations("nas_pruning", "digits")


# Other tables pass RANDOM, PAIR, TRIO or TEST in place of TASKS.
tasks = partial(grids.tasks, by_profile=TASKS)
# Other tables pass HEADLINES or REPEATS.
seeds = partial(grids.seeds, by_profile=SEEDS)


def gates(ratio: float = 0.3, **changes: Any) -> Gates:
    """Return the settings of the report's search; changes: other fields of Gates.

    ratio: target share of the FLOPs."""
    return Gates(ratio=ratio, **GATES | changes)


def general_spec(profile: str, model: str = MAIN) -> Spec:
    """Return the Spec of an encoder before any task.

    Raises Refused, with the nearest name, for an unknown model, and for BERT-Mini at
    mini."""
    check_name("model", model, CHECKPOINTS)
    if profile == "paper":
        return start_checkpoint(profile, CHECKPOINTS[model])
    if model != "BERT-Mini":
        return backbone(profile)
    if profile != "toy":
        raise Refused(
            f"model 'BERT-Mini' has no stand-in at profile {profile!r}: take 'toy' or 'paper'"
        )
    return Spec("pretrain", backbone("toy").args | TOY_MINI, seed=0)


def whole_model(profile: str, task: str, model: str = MAIN, epochs: int = 0) -> Spec:
    """Return the Spec of a model on a task before any search, fine-tuned on the labels.

    At `paper` a TinyBERT is distilled from BERT-base instead. epochs: a number other
    than the profile's."""
    if profile == "paper" and model.startswith("TinyBERT"):
        return distilled_spec(profile, task, model)
    train = pace_training(
        TEACHER, profile, task, () if task in TEN else LONG, epochs=epochs
    )
    spec = grids.teacher(profile, task, train=train)
    return replace(spec, inputs={"start": general_spec(profile, model)})


def distilled_spec(
    profile: str, task: str, model: str = MAIN, epochs: Sequence[int] = ()
) -> Spec:
    """Return the Spec of a TinyBERT on a task, distilled from BERT-base in two stages
    (Table 3).

    The second stage has TinyBERT's own loss. At `paper` both see augmented rows
    (6.1.1)."""
    start, guide = general_spec(profile, model), whole_model(profile, task, "BERT-base")
    more = profile == "paper"
    return stages(profile, task, start, guide, None, more, epochs, TINYBERT)


def pace_training(
    settings: Mapping[str, Train],
    profile: str,
    task: str,
    long: Collection[str] = LONG,
    **changes: Any,
) -> Train:
    """Return the Train of a task, out of {profile: Train}.

    long: tasks of fewer epochs at `paper`. For STS-B the best model is chosen by both
    correlations, as in TinyBERT's code. changes: fields with other values; 0 changes
    nothing."""
    train, changes = settings[profile], {n: v for n, v in changes.items() if v}
    if train.select == "best" and task == "STS-B":
        changes["select_by"] = ("pearson", "spearman")
    few: Json = {"epochs": 3} if profile == "paper" and task in long else {}
    return grids.adapt_options(profile, replace(train, **few | changes))


def rows(profile: str, task: str) -> Json:
    """Return the descriptor of a task's rows for searches and retraining."""
    if profile in ROWS:
        return grids.describe_data(profile, task, ROWS[profile])
    return grids.dataset(profile, task)


def states(
    profile: str, kind: Literal["intermediate", "two_stage"] = "intermediate"
) -> Objective:
    """Return the objective that matches attention scores and layer outputs.

    kind: "two_stage" learns logits in the second half of the steps."""
    return Objective(kind, attention=True, mask=profile != "paper")


def augmentation_spec(profile: str, task: str, augmented: bool = True) -> Spec | None:
    """Return the Spec of augmented rows for searches and retraining.

    It is None where not `augmented`."""
    return grids.augmentation(profile, task, rows(profile, task)) if augmented else None


def search_spec(
    profile: str,
    task: str,
    start: Spec | None = None,
    guide: Spec | None = None,
    objective: Objective = LOGITS,
    times: int = 1,
    enlarged: bool = False,
    lr: float = 0.0,
    **gate: Any,
) -> Spec:
    """Return the Spec of a search in a model `start`, by default that of `whole_model`.

    guide: the teacher; without one the model is its own (5.5). times: multiple of the
    profile's epochs. enlarged: whether it sees augmented rows, at `paper` for one epoch
    (7.6). lr: learning rate; 0 means the profile's. gate: arguments of `gates`."""
    start, train = (
        start or whole_model(profile, task),
        pace_training(SEARCH, profile, task, lr=lr),
    )
    epochs = 1 if enlarged and profile == "paper" else train.epochs
    teacher = (guide or start) if objective.kind != "cross_entropy" else None
    args = {"train": replace(train, epochs=times * epochs), "objective": objective}
    args = grids.common_arguments(
        profile, task, rows(profile, task), gates=gates(**gate), **args
    )
    augmented = augmentation_spec(profile, task, enlarged)
    return Spec(
        "nas_search", args, {"start": start, "teacher": teacher, "augmented": augmented}
    )


def random_spec(start: Spec, search: Spec | None = None, **gate: Any) -> Spec:
    """Return the Spec of a random architecture with the cost of a search (Table 5).

    search: the Spec of a search whose numbers of heads and neurons in each layer it
    keeps. This shows whether a search finds more than the number of parts of each
    layer."""
    inputs = {"start": start, "search": search}
    return Spec("random_architecture", {"gates": gates(**gate)}, inputs)


def stages(
    profile: str,
    task: str,
    start: Spec,
    guide: Spec,
    search: Spec | None = None,
    augmented: bool = False,
    epochs: Sequence[int] = (),
    objective: Objective = LOGITS,
) -> Spec:
    """Return the Spec of two stages of distillation from `start`: states, then
    `objective`.

    guide: the teacher. search: the Spec that finds the architecture to train; None
    trains the whole model. epochs: epochs of the two stages; by default the
    profile's."""
    args = grids.common_arguments(profile, task, rows(profile, task))
    one, two = (
        args | {"train": pace_training(settings, profile, task, epochs=number)}
        for settings, number in zip(
            (INTERMEDIATE, PREDICTION), epochs or (0, 0), strict=True
        )
    )
    inputs = {
        "teacher": guide,
        "augmented": augmentation_spec(profile, task, augmented),
    }
    architecture = Output("search", "architecture") if search else None
    one |= {"objective": states(profile), "architecture": architecture}
    first = Spec("retrain", one, inputs | {"start": start, "search": search})
    return Spec("retrain", two | {"objective": objective}, inputs | {"start": first})


def pruned_spec(
    profile: str,
    task: str,
    model: str = MAIN,
    objective: Objective = LOGITS,
    augmented: bool = False,
    keep_weights: bool = False,
    **changes: Any,
) -> Spec:
    """Return the Spec of procedure B (5.5): search in the fine-tuned model, cut and
    retrain.

    The fine-tuned model is the teacher. keep_weights: whether retraining starts from
    the searched weights (7.8). changes: arguments of `search_spec`."""
    fine_tuned = whole_model(profile, task, model)
    search = search_spec(profile, task, fine_tuned, objective=objective, **changes)
    return stages(
        profile,
        task,
        search if keep_weights else fine_tuned,
        fine_tuned,
        search,
        augmented,
    )


def random(
    profile: str,
    task: str,
    sized: bool = False,
    lr: float = 0.0,
    times: int = 1,
    **gate: Any,
) -> Spec:
    """Return the Spec of a random architecture with the retraining of a searched one.

    sized: whether each layer keeps as many heads and neurons as the search of the same
    target leaves there (`random_spec`). lr: learning rate of that search. times:
    multiple of the epochs of retraining."""
    fine_tuned = whole_model(profile, task)
    search = search_spec(profile, task, fine_tuned, lr=lr, **gate) if sized else None
    trainings = (INTERMEDIATE[profile], PREDICTION[profile])
    epochs = [times * train.epochs for train in trainings] if times > 1 else ()
    return stages(
        profile,
        task,
        fine_tuned,
        fine_tuned,
        random_spec(fine_tuned, search, **gate),
        epochs=epochs,
    )


def magnitude_spec(
    profile: str,
    task: str,
    share: float,
    model: str = "BERT-base",
    taught: bool = False,
) -> Spec:
    """Return the Spec of iterative magnitude pruning down to a share of the weights
    (Table 10).

    Each round is rewound to `model` and fine-tuned on the labels, as the dense model
    is. taught: whether each round learns the logits of the dense model instead, as a
    searched network does. Raises Refused for a share that no round ends with."""
    check_name("kept share", share, ROUNDS[profile])
    origin = general_spec(profile, model)
    dense = grids.teacher(profile, task, train=MAGNITUDE[profile])
    args = {name: dense.args[name] for name in ("data", "train", "numerics")}
    spec = teacher = replace(dense, inputs={"start": origin})
    if taught:
        args |= {"objective": LOGITS}
    for round_share in ROUNDS[profile]:
        inputs = {
            "start": spec,
            "origin": origin,
            "teacher": teacher if taught else None,
        }
        spec = Spec("imp", args | {"kept": round_share}, inputs)
        if round_share == share:
            break
    return spec


def model_spec(profile: str, task: str, model: str) -> Spec:
    """Return the Spec of a model of Tables 6 to 9: a whole one, or one such as "30 %
    BERT-base".

    Such a network is retrained on augmented rows at `paper`, for the report's tasks."""
    share, _, base = model.rpartition(" % ")
    if not share:
        return whole_model(profile, task, model)
    augmented = profile == "paper" and task in AUGMENTED
    return pruned_spec(profile, task, base, augmented=augmented, ratio=int(share) / 100)


def label(ratio: float, kind: str = "NAS") -> str:
    return f"{100 * ratio:.0f} % {kind}"


def random_network(ratio: float, shape: str) -> Json:
    """Return a random architecture with a share of a model's FLOPs, at its true size.

    It is an argument of the step `latency`. shape: a name of lib.stats.cost.SHAPES."""
    full = SHAPES[shape]
    widths = {"heads": full.heads, "ffn": full.ffn}
    number = {
        (layer, kind): n for layer in range(full.layers) for kind, n in widths.items()
    }
    cost = control.encoder_cost(
        full.hidden, full.hidden // full.heads, [widths] * full.layers
    )
    on = control.random_architecture(gates(ratio), number, cost, 0)
    parts = np.split(on, np.cumsum([*number.values()])[:-1])
    left = [np.flatnonzero(part).tolist() for part in parts]
    return {
        "shape": shape,
        "surgery": [{"op": "keep", "heads": left[::2], "neurons": left[1::2]}],
    }


def least_share(profile: str) -> float:
    """Return the share of FLOPs that is left by one head and one neuron in each layer.

    No search can go below it."""
    encoder = shape(profile)
    one = gated.flops(
        encoder.hidden,
        encoder.hidden // encoder.heads,
        [{"heads": 1, "ffn": 1}] * encoder.layers,
    )
    return one / gated.masked_flops(encoder)


def reachable(profile: str, ratios: Sequence[float] = ()) -> list[float]:
    """Return the ratios, by default RATIOS, that a search in the profile's encoder can
    reach.

    A small encoder can reach high ones alone. Raises Refused where it can reach none.
    """
    ratios, low = ratios or RATIOS, least_share(profile)
    reachable_ratios = [
        ratio for ratio in ratios if low <= ratio * (1 + gates().tolerance)
    ]
    if not reachable_ratios:
        raise Refused(
            f"ratios is {list(ratios)}; this encoder can have {low:.3f} or more"
        )
    return reachable_ratios
