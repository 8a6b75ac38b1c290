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
from lib.papers.grids import backbone_spec, find_encoder_shape, start_checkpoint_spec
from lib.papers.nas_pruning import control, gated
from lib.papers.nas_pruning.options import Gates, Objective, Perceptron
from lib.stats.compare import Column
from lib.stats.cost import SHAPES

S = grids.read_settings("nas_pruning")
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

DEVIATIONS = published.read_deviations("nas_pruning")
SMALL_TEACHER = published.read_deviations("nas_pruning", "small_teacher")
DIGITS = published.read_deviations("nas_pruning", "digits")


# Other tables pass RANDOM, PAIR, TRIO or TEST in place of TASKS.
tasks = partial(grids.select_tasks, by_profile=TASKS)
# Other tables pass HEADLINES or REPEATS.
seeds = partial(grids.select_seeds, by_profile=SEEDS)


def make_gate_settings(ratio: float = 0.3, **changes: Any) -> Gates:
    """Return the settings of the report's search; changes: other fields of Gates.

    ratio: target share of the FLOPs."""
    return Gates(ratio=ratio, **GATES | changes)


def untrained_spec(profile: str, model: str = MAIN) -> Spec:
    """Return the Spec of an encoder before any task.

    Raises Refused, with the nearest name, for an unknown model, and for BERT-Mini at
    mini."""
    check_name("model", model, CHECKPOINTS)
    if profile == "paper":
        return start_checkpoint_spec(profile, CHECKPOINTS[model])
    if model != "BERT-Mini":
        return backbone_spec(profile)
    if profile != "toy":
        raise Refused(
            f"model 'BERT-Mini' has no stand-in at profile {profile!r}: take 'toy' or 'paper'"
        )
    return Spec("pretrain", backbone_spec("toy").args | TOY_MINI, seed=0)


def finetuned_whole_spec(
    profile: str, task: str, model: str = MAIN, epochs: int = 0
) -> Spec:
    """Return the Spec of a model on a task before any search, fine-tuned on the labels.

    At `paper` a TinyBERT is distilled from BERT-base instead. epochs: a number other
    than the profile's."""
    if profile == "paper" and model.startswith("TinyBERT"):
        return distilled_spec(profile, task, model)
    train = make_train_settings(
        TEACHER, profile, task, () if task in TEN else LONG, epochs=epochs
    )
    spec = grids.teacher_spec(profile, task, train=train)
    return replace(spec, inputs={"start": untrained_spec(profile, model)})


def distilled_spec(
    profile: str, task: str, model: str = MAIN, epochs: Sequence[int] = ()
) -> Spec:
    """Return the Spec of a TinyBERT on a task, distilled from BERT-base in two stages
    (Table 3).

    The second stage has TinyBERT's own loss. At `paper` both see augmented rows
    (6.1.1)."""
    start, guide = (
        untrained_spec(profile, model),
        finetuned_whole_spec(profile, task, "BERT-base"),
    )
    more = profile == "paper"
    return two_stage_distillation_spec(
        profile, task, start, guide, None, more, epochs, TINYBERT
    )


def make_train_settings(
    settings: Mapping[str, Train],
    profile: str,
    task: str,
    tasks_with_fewer_epochs: Collection[str] = LONG,
    **changes: Any,
) -> Train:
    """Return the Train of a task, out of {profile: Train}.

    tasks_with_fewer_epochs: tasks of fewer epochs at `paper`. For STS-B the best model
    is chosen by both correlations, as in TinyBERT's code. changes: fields with other
    values; 0 changes nothing."""
    train, changes = settings[profile], {n: v for n, v in changes.items() if v}
    if train.select == "best" and task == "STS-B":
        changes["select_by"] = ("pearson", "spearman")
    few: Json = (
        {"epochs": 3} if profile == "paper" and task in tasks_with_fewer_epochs else {}
    )
    return grids.adapt_options(profile, replace(train, **few | changes))


def describe_search_rows(profile: str, task: str) -> Json:
    """Return the descriptor of a task's rows for searches and retraining."""
    if profile in ROWS:
        return grids.describe_training_rows(profile, task, ROWS[profile])
    return grids.describe_dataset(profile, task)


def make_states_objective(
    profile: str, objective_kind: Literal["intermediate", "two_stage"] = "intermediate"
) -> Objective:
    """Return the objective that matches attention scores and layer outputs.

    objective_kind: "two_stage" learns logits in the second half of the steps."""
    return Objective(objective_kind, attention=True, mask=profile != "paper")


def augmentation_spec(
    profile: str, task: str, is_augmented: bool = True
) -> Spec | None:
    """Return the Spec of augmented rows for searches and retraining.

    It is None where not `is_augmented`."""
    return (
        grids.augmented_rows_spec(profile, task, describe_search_rows(profile, task))
        if is_augmented
        else None
    )


def search_spec(
    profile: str,
    task: str,
    initial_model: Spec | None = None,
    guiding_teacher: Spec | None = None,
    objective: Objective = LOGITS,
    times: int = 1,
    enlarged: bool = False,
    lr: float = 0.0,
    **gate_options: Any,
) -> Spec:
    """Return the Spec of a search in a model `initial_model`, by default that of
    `finetuned_whole_spec`.

    guiding_teacher: the teacher; without one the model is its own (5.5). times:
    multiple of the profile's epochs. enlarged: whether it sees augmented rows, at
    `paper` for one epoch (7.6). lr: learning rate; 0 means the profile's. gate_options:
    arguments of `make_gate_settings`."""
    initial_model, train = (
        initial_model or finetuned_whole_spec(profile, task),
        make_train_settings(SEARCH, profile, task, lr=lr),
    )
    epochs = 1 if enlarged and profile == "paper" else train.epochs
    teacher = (
        (guiding_teacher or initial_model)
        if objective.kind != "cross_entropy"
        else None
    )
    args = {"train": replace(train, epochs=times * epochs), "objective": objective}
    args = grids.make_common_arguments(
        profile,
        task,
        describe_search_rows(profile, task),
        gates=make_gate_settings(**gate_options),
        **args,
    )
    augmented = augmentation_spec(profile, task, enlarged)
    return Spec(
        "nas_search",
        args,
        {"start": initial_model, "teacher": teacher, "augmented": augmented},
    )


def random_spec(
    initial_model: Spec, search: Spec | None = None, **gate_options: Any
) -> Spec:
    """Return the Spec of a random architecture with the cost of a search (Table 5).

    search: the Spec of a search whose numbers of heads and neurons in each layer it
    keeps. This shows whether a search finds more than the number of parts of each
    layer."""
    inputs = {"start": initial_model, "search": search}
    return Spec(
        "random_architecture", {"gates": make_gate_settings(**gate_options)}, inputs
    )


def two_stage_distillation_spec(
    profile: str,
    task: str,
    initial_model: Spec,
    guiding_teacher: Spec,
    search_to_follow: Spec | None = None,
    is_augmented: bool = False,
    epochs: Sequence[int] = (),
    objective: Objective = LOGITS,
) -> Spec:
    """Return the Spec of two stages of distillation from `initial_model`: states, then
    `objective`.

    guiding_teacher: the teacher. search_to_follow: the Spec that finds the architecture
    to train; None trains the whole model. epochs: epochs of the two stages; by default
    the profile's."""
    args = grids.make_common_arguments(
        profile, task, describe_search_rows(profile, task)
    )
    one, two = (
        args | {"train": make_train_settings(settings, profile, task, epochs=number)}
        for settings, number in zip(
            (INTERMEDIATE, PREDICTION), epochs or (0, 0), strict=True
        )
    )
    inputs = {
        "teacher": guiding_teacher,
        "augmented": augmentation_spec(profile, task, is_augmented),
    }
    architecture = Output("search", "architecture") if search_to_follow else None
    one |= {"objective": make_states_objective(profile), "architecture": architecture}
    first = Spec(
        "retrain", one, inputs | {"start": initial_model, "search": search_to_follow}
    )
    return Spec("retrain", two | {"objective": objective}, inputs | {"start": first})


def pruned_spec(
    profile: str,
    task: str,
    model: str = MAIN,
    objective: Objective = LOGITS,
    is_augmented: bool = False,
    keep_weights: bool = False,
    **search_options: Any,
) -> Spec:
    """Return the Spec of procedure B (5.5): search in the fine-tuned model, cut and
    retrain.

    The fine-tuned model is the teacher. keep_weights: whether retraining starts from
    the searched weights (7.8). search_options: arguments of `search_spec`."""
    fine_tuned = finetuned_whole_spec(profile, task, model)
    search = search_spec(
        profile, task, fine_tuned, objective=objective, **search_options
    )
    return two_stage_distillation_spec(
        profile,
        task,
        search if keep_weights else fine_tuned,
        fine_tuned,
        search,
        is_augmented,
    )


def random_retrained_spec(
    profile: str,
    task: str,
    keeps_searched_sizes: bool = False,
    lr: float = 0.0,
    times: int = 1,
    **gate_options: Any,
) -> Spec:
    """Return the Spec of a random architecture with the retraining of a searched one.

    keeps_searched_sizes: whether each layer keeps as many heads and neurons as the
    search of the same target leaves there (`random_spec`). lr: learning rate of that
    search. times: multiple of the epochs of retraining."""
    fine_tuned = finetuned_whole_spec(profile, task)
    search = (
        search_spec(profile, task, fine_tuned, lr=lr, **gate_options)
        if keeps_searched_sizes
        else None
    )
    trainings = (INTERMEDIATE[profile], PREDICTION[profile])
    epochs = [times * train.epochs for train in trainings] if times > 1 else ()
    return two_stage_distillation_spec(
        profile,
        task,
        fine_tuned,
        fine_tuned,
        random_spec(fine_tuned, search, **gate_options),
        epochs=epochs,
    )


def magnitude_spec(
    profile: str,
    task: str,
    kept_share: float,
    model: str = "BERT-base",
    learns_from_teacher: bool = False,
) -> Spec:
    """Return the Spec of iterative magnitude pruning down to a share of the weights
    (Table 10).

    Each round is rewound to `model` and fine-tuned on the labels, as the dense model
    is. learns_from_teacher: whether each round learns the logits of the dense model
    instead, as a searched network does. Raises Refused for a share that no round ends
    with."""
    check_name("kept share", kept_share, ROUNDS[profile])
    origin = untrained_spec(profile, model)
    dense = grids.teacher_spec(profile, task, train=MAGNITUDE[profile])
    args = {name: dense.args[name] for name in ("data", "train", "numerics")}
    spec = teacher = replace(dense, inputs={"start": origin})
    if learns_from_teacher:
        args |= {"objective": LOGITS}
    for round_share in ROUNDS[profile]:
        inputs = {
            "start": spec,
            "origin": origin,
            "teacher": teacher if learns_from_teacher else None,
        }
        spec = Spec("imp", args | {"kept": round_share}, inputs)
        if round_share == kept_share:
            break
    return spec


def model_spec(profile: str, task: str, model: str) -> Spec:
    """Return the Spec of a model of Tables 6 to 9: a whole one, or one such as "30 %
    BERT-base".

    Such a network is retrained on augmented rows at `paper`, for the report's tasks."""
    share, _, base = model.rpartition(" % ")
    if not share:
        return finetuned_whole_spec(profile, task, model)
    augmented = profile == "paper" and task in AUGMENTED
    return pruned_spec(
        profile, task, base, is_augmented=augmented, ratio=int(share) / 100
    )


def format_label(flops_ratio: float, search_kind: str = "NAS") -> str:
    return f"{100 * flops_ratio:.0f} % {search_kind}"


def draw_random_architecture(flops_ratio: float, shape_name: str) -> Json:
    """Return a random architecture with a share of a model's FLOPs, at its true size.

    It is an argument of the step `latency`. shape_name: a name of
    lib.stats.cost.SHAPES."""
    full = SHAPES[shape_name]
    widths = {"heads": full.heads, "ffn": full.ffn}
    number = {
        (layer, kind): n for layer in range(full.layers) for kind, n in widths.items()
    }
    cost = control.make_encoder_cost(
        full.hidden, full.hidden // full.heads, [widths] * full.layers
    )
    on = control.draw_random_gates(make_gate_settings(flops_ratio), number, cost, 0)
    parts = np.split(on, np.cumsum([*number.values()])[:-1])
    left = [np.flatnonzero(part).tolist() for part in parts]
    return {
        "shape": shape_name,
        "surgery": [{"op": "keep", "heads": left[::2], "neurons": left[1::2]}],
    }


def find_least_flops_share(profile: str) -> float:
    """Return the share of FLOPs that is left by one head and one neuron in each layer.

    No search can go below it."""
    encoder = find_encoder_shape(profile)
    one = gated.flops(
        encoder.hidden,
        encoder.hidden // encoder.heads,
        [{"heads": 1, "ffn": 1}] * encoder.layers,
    )
    return one / gated.masked_flops(encoder)


def select_reachable_ratios(
    profile: str, wanted_ratios: Sequence[float] = ()
) -> list[float]:
    """Return the ratios, by default RATIOS, that a search in the profile's encoder can
    reach.

    A small encoder can reach high ones alone. Raises Refused where it can reach none.
    """
    wanted_ratios, low = wanted_ratios or RATIOS, find_least_flops_share(profile)
    reachable_ratios = [
        ratio
        for ratio in wanted_ratios
        if low <= ratio * (1 + make_gate_settings().tolerance)
    ]
    if not reachable_ratios:
        raise Refused(
            f"ratios is {list(wanted_ratios)}; this encoder can have {low:.3f} or more"
        )
    return reachable_ratios
