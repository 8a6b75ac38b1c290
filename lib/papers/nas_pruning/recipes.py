"""This module has the settings of the report "Neural Architecture Search on BERT for
Network Compression", and the Specs, descriptions of runs, of its searches and
trainings.

The settings of profile `paper` are the printed ones, and TinyBERT's where the report is
silent. The small profiles `toy` and `mini` have their own, chosen once before the first
recorded run. The module does not import torch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from lib.core.memo import reuse_result
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
# Tables of this folder's settings.toml, whose comments describe them.
MAIN: str = S.MAIN
RATIOS: tuple[float, ...] = S.RATIOS
TIMES: int = S.TIMES
LONG: tuple[str, ...] = S.LONG
TEN: tuple[str, ...] = S.TEN
AUGMENTED: tuple[str, ...] = S.AUGMENTED
COLUMNS: tuple[Column, ...] = S.COLUMNS
CLAIM_COLUMNS = COLUMNS  # Metrics by which the report's claims are checked.
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
# Metrics of Table 10. It compares with another paper, which reports accuracies and, for
# STS-B, Pearson's correlation alone.
AGAINST_IMP = COLUMNS[0], COLUMNS[3]
LOGITS, TINYBERT = Objective("prediction"), Objective("soft_cross_entropy")

DEVIATIONS = published.read_deviations("nas_pruning")
SMALL_TEACHER = published.read_deviations("nas_pruning", "small_teacher")
DIGITS = published.read_deviations("nas_pruning", "digits")


# f(profile, chosen tasks) -> tasks of a table. Some tables pass another `by_profile`, such
# as RANDOM, PAIR, TRIO or TEST.
tasks = partial(grids.select_tasks, by_profile=TASKS)
# f(profile, chosen seeds) -> seeds of a table. Some tables pass `by_profile=HEADLINES` or
# REPEATS.
seeds = partial(grids.select_seeds, by_profile=SEEDS)


def make_gate_settings(ratio: float = 0.3, **changes: Any) -> Gates:
    """Return the settings of the report's search over gates.

    ratio: target share of the whole model's FLOPs.
    changes: other fields of Gates with new values."""
    return Gates(ratio=ratio, **GATES | changes)


def untrained_spec(profile: str, model: str = MAIN) -> Spec:
    """Return the Spec of a pre-trained encoder that was not trained on a task yet.

    Raises Refused for an unknown model, and for BERT-Mini at profile mini, which has no
    encoder of that size."""
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


@reuse_result
def finetuned_whole_spec(
    profile: str, task: str, model: str = MAIN, epochs: int = 0
) -> Spec:
    """Return the Spec of a whole model fine-tuned on a task's labels, before any
    pruning.

    At `paper` a TinyBERT is distilled from BERT-base instead.

    epochs: 0 means the profile's number."""
    if profile == "paper" and model.startswith("TinyBERT"):
        return distilled_spec(profile, task, model)
    train = make_train_settings(
        TEACHER, profile, task, () if task in TEN else LONG, epochs=epochs
    )
    spec = grids.teacher_spec(profile, task, train=train)
    return replace(spec, inputs={"start": untrained_spec(profile, model)})


@reuse_result
def distilled_spec(
    profile: str, task: str, model: str = MAIN, epochs: Sequence[int] = ()
) -> Spec:
    """Return the Spec of a whole TinyBERT distilled from BERT-base on a task in two
    stages (Table 3): hidden states first, then TinyBERT's own loss on logits.

    At `paper` both stages use augmented rows (section 6.1.1).

    epochs: of the two stages; () means the profile's."""
    start, guide = (
        untrained_spec(profile, model),
        finetuned_whole_spec(profile, task, "BERT-base"),
    )
    more = profile == "paper"
    return two_stage_distillation_spec(
        profile, task, start, guide, None, more, epochs, TINYBERT
    )


def make_train_settings(
    settings_by_profile: Mapping[str, Train],
    profile: str,
    task: str,
    tasks_with_fewer_epochs: Collection[str] = LONG,
    **changes: Any,
) -> Train:
    """Return the training settings of a task at a profile.

    For STS-B the best model is chosen by both correlations, as in TinyBERT's code.

    tasks_with_fewer_epochs: tasks that have 3 epochs at `paper`.
    changes: fields with other values; a value of 0 changes nothing."""
    train, changes = (
        settings_by_profile[profile],
        {n: v for n, v in changes.items() if v},
    )
    if train.select == "best" and task == "STS-B":
        changes["select_by"] = ("pearson", "spearman")
    few: Json = (
        {"epochs": 3} if profile == "paper" and task in tasks_with_fewer_epochs else {}
    )
    return grids.adapt_options_to_reader(profile, replace(train, **few | changes))


def describe_search_rows(profile: str, task: str) -> Json:
    """Return the descriptor of the rows of a task on which searches and pruned models
    are trained."""
    if profile in ROWS:
        return grids.describe_training_rows(profile, task, ROWS[profile])
    return grids.describe_dataset(profile, task)


def make_states_objective(
    profile: str, objective_kind: Literal["intermediate", "two_stage"] = "intermediate"
) -> Objective:
    """Return the Objective that matches a teacher's attention scores and hidden states.

    objective_kind: "two_stage" matches logits in the second half of the steps."""
    return Objective(objective_kind, attention=True, mask=profile != "paper")


def augmentation_spec_or_none(
    profile: str, task: str, is_augmented: bool = True
) -> Spec | None:
    """Return the Spec that augments the training rows of searches and pruned models;
    None where not `is_augmented`, so that it can be passed on as an input."""
    return (
        grids.augmented_rows_spec(profile, task, describe_search_rows(profile, task))
        if is_augmented
        else None
    )


@reuse_result
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
    """Return the Spec of a search for which heads and neurons of a model to keep.

    initial_model: the model, by default that of `finetuned_whole_spec`.
    guiding_teacher: the teacher, by default the model itself (section 5.5).
    objective: the loss of the search.
    times: factor on the profile's number of epochs.
    enlarged: whether training rows are augmented, at `paper` for one epoch (section
    7.6).
    lr: learning rate; 0 means the profile's.
    gate_options: arguments of `make_gate_settings`."""
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
    augmented = augmentation_spec_or_none(profile, task, enlarged)
    return Spec(
        "nas_search",
        args,
        {"start": initial_model, "teacher": teacher, "augmented": augmented},
    )


@reuse_result
def random_architecture_spec(
    initial_model: Spec, search: Spec | None = None, **gate_options: Any
) -> Spec:
    """Return the Spec that draws a random architecture with the cost of a searched one
    (Table 5).

    search: the Spec of a search. With it each layer keeps as many heads and neurons as
    that search left, so a comparison shows whether it matters which ones.
    gate_options: arguments of `make_gate_settings`, such as the cost."""
    inputs = {"start": initial_model, "search": search}
    return Spec(
        "random_architecture", {"gates": make_gate_settings(**gate_options)}, inputs
    )


@reuse_result
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
    """Return the Spec of a distillation in two stages: hidden states first, then
    `objective`.

    initial_model: the run that gives the weights.
    guiding_teacher: the teacher's run.
    search_to_follow: the run whose architecture is cut out first; None trains the whole
    model.
    epochs: of the two stages; () means the profile's.
    objective: the loss of the second stage."""
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
        "augmented": augmentation_spec_or_none(profile, task, is_augmented),
    }
    architecture = Output("search", "architecture") if search_to_follow else None
    one |= {"objective": make_states_objective(profile), "architecture": architecture}
    first = Spec(
        "retrain", one, inputs | {"start": initial_model, "search": search_to_follow}
    )
    return Spec("retrain", two | {"objective": objective}, inputs | {"start": first})


@reuse_result
def pruned_spec(
    profile: str,
    task: str,
    model: str = MAIN,
    objective: Objective = LOGITS,
    is_augmented: bool = False,
    keep_weights: bool = False,
    **search_options: Any,
) -> Spec:
    """Return the Spec of a pruned model by the report's procedure B (section 5.5):
    search in the fine-tuned model, cut, and train again with the fine-tuned model as
    teacher.

    is_augmented: whether the training after the search uses augmented rows.
    keep_weights: whether it starts from the weights at the end of the search (section
    7.8) and not from the fine-tuned ones.
    search_options: further arguments of `search_spec`."""
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


@reuse_result
def random_retrained_spec(
    profile: str,
    task: str,
    keeps_searched_sizes: bool = False,
    lr: float = 0.0,
    times: int = 1,
    **gate_options: Any,
) -> Spec:
    """Return the Spec of a model with a random architecture, trained as a searched one
    is.

    keeps_searched_sizes: whether each layer keeps as many heads and neurons as a search
    with the same target leaves there.
    lr: learning rate of that search.
    times: factor on the epochs of the training.
    gate_options: arguments of `make_gate_settings`."""
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
        random_architecture_spec(fine_tuned, search, **gate_options),
        epochs=epochs,
    )


@reuse_result
def magnitude_spec(
    profile: str,
    task: str,
    kept_share: float,
    model: str = "BERT-base",
    learns_from_teacher: bool = False,
) -> Spec:
    """Return the Spec of iterative magnitude pruning down to a share of the weights
    (Table 10).

    Before each round the kept weights are set back to those of `model`; then it is
    fine-tuned. Raises Refused for a share that no round ends with.

    learns_from_teacher: whether each round learns the dense fine-tuned model's logits,
    as a searched network does, and not the labels."""
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


@reuse_result
def model_spec(profile: str, task: str, model: str) -> Spec:
    """Return the Spec of a model of Tables 6 to 9 by its name: a whole one such as
    "BERT-base", or a pruned one such as "30 % BERT-base".

    At `paper` a pruned model is trained on augmented rows, for the tasks for which the
    report says so."""
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
    """Return a random pruned model as an argument of the step `latency`, which times
    models with random weights: {"shape", "surgery"}.

    flops_ratio: its share of the whole model's FLOPs.
    shape_name: the whole model, a key of lib.stats.cost.SHAPES."""
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
    """Return the share of the FLOPs of a profile's encoder that one head and one neuron
    in each layer have. No search can go below it."""
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
    """Return those target shares of the FLOPs that a search in the profile's encoder
    can reach. A small encoder reaches high ones alone.

    Raises Refused where it reaches none.

    wanted_ratios: by default RATIOS, the report's."""
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
