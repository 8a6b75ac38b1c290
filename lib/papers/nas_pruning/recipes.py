"""This module has the settings of the report "Neural Architecture Search on BERT for
Network Compression", and the Specs, descriptions of runs, of its searches and
trainings.

The settings of profile `paper` are the printed ones, and TinyBERT's where the report is
silent. The small profiles `toy` and `mini` have their own, chosen once before the first
recorded run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from lib.core.memo import cache_results_while_enabled
from lib.core.names import Refused, check_known_name
from lib.core.options import Train
from lib.core.spec import Output, Spec
from lib.core.types import Json, ModelName, ProfileDefault, ProfileName, TaskName
from lib.data import DataDescriptor
from lib.papers import grids, published
from lib.papers.grids import (
    checkpoint_or_user_encoder_spec,
    find_encoder_shape,
    pretrained_encoder_spec,
)
from lib.papers.nas_pruning import control, gated
from lib.papers.nas_pruning.options import Gates, Objective, Perceptron
from lib.stats.compare import MetricColumn
from lib.stats.cost import SHAPES

S = grids.read_settings("nas_pruning")
# Settings from settings.toml in this folder, where comments describe them.
MAIN: str = S.MAIN
RATIOS: tuple[float, ...] = S.RATIOS
TIMES: int = S.TIMES
LONG: tuple[str, ...] = S.LONG
TEN: tuple[str, ...] = S.TEN
AUGMENTED: tuple[str, ...] = S.AUGMENTED
COLUMNS: tuple[MetricColumn, ...] = S.COLUMNS
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
# Metrics of Table 10, which compares with iterative magnitude pruning (IMP): of tasks
# with two metrics that the paper on IMP reports.
AGAINST_IMP = tuple(
    column for column in COLUMNS if column.title in ("MNLI-m", "STS-B Pearson")
)
LOGITS = Objective("prediction")
TINYBERT = Objective("soft_cross_entropy")

DEVIATIONS = published.read_deviation_sentences_by_profile("nas_pruning")
SMALL_TEACHER = published.read_deviation_sentences_by_profile(
    "nas_pruning", "small_teacher"
)
DIGITS = published.read_deviation_sentences_by_profile("nas_pruning", "digits")


# None in the place of a Spec, by what it then means.
Unpruned: TypeAlias = None
FinetunedWholeModel: TypeAlias = None
SameAsInitialModel: TypeAlias = None
AnySizes: TypeAlias = None


# f(profile, chosen tasks) -> tasks of a table. Some tables pass `tasks_by_profile` to
# have other tasks by default, such as RANDOM, PAIR, TRIO or TEST.
tasks = partial(grids.select_tasks, tasks_by_profile=TASKS)
# f(profile, chosen seeds) -> seeds of a table. Some tables pass `seeds_by_profile` to
# have other seeds by default, HEADLINES or REPEATS.
seeds = partial(grids.select_seeds, seeds_by_profile=SEEDS)


def make_gate_settings(ratio: float = 0.3, **changed_fields: Any) -> Gates:
    """Return the settings of a pruning search.

    They are those of the report on pruning by differentiable NAS, except that `landing`
    and `memory` are our own. The search trains gates, masks on heads and neurons, until
    the model has a target share of its FLOPs.

    ratio: that share, above 0 and at most 1.
    changed_fields: other fields of Gates with new values, for ablations."""
    return Gates(ratio=ratio, **GATES | changed_fields)


def pretrained_model_spec(profile: ProfileName, model: ModelName = MAIN) -> Spec:
    """Return the Spec (description of a run) of a pre-trained encoder, before any task.

    It is the model that fine-tuning or distillation starts from. At sizes other than
    "paper" the experiment's own pre-trained encoder takes the place of every model but
    BERT-Mini, for which only "toy" has a stand-in. Raises Refused for an unknown model,
    and for BERT-Mini at "mini" and "base".

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    model: name of a model, such as "TinyBERT-4L"."""
    check_known_name("model", model, CHECKPOINTS)
    if profile == "paper":
        return checkpoint_or_user_encoder_spec(profile, CHECKPOINTS[model])
    if model != "BERT-Mini":
        return pretrained_encoder_spec(profile)
    if profile != "toy":
        raise Refused(
            f"model 'BERT-Mini' has no stand-in at profile {profile!r}: take 'toy' or 'paper'"
        )
    return Spec("pretrain", pretrained_encoder_spec("toy").args | TOY_MINI, seed=0)


@cache_results_while_enabled
def finetuned_unpruned_spec(
    profile: ProfileName,
    task: TaskName,
    model: ModelName = MAIN,
    epoch_count: int | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) of a whole model fine-tuned on a task.

    The model learns the task's labels. Searches prune it, and it is the teacher of
    pruned models and their baseline. At "paper" a TinyBERT is distilled from BERT-base
    instead.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    model: name of a model, such as "TinyBERT-4L".
    epoch_count: None means that of the profile; not used for a TinyBERT at "paper"."""
    if profile == "paper" and model.startswith("TinyBERT"):
        return distilled_tinybert_spec(profile, task, model)
    train = make_train_settings(
        TEACHER, profile, task, () if task in TEN else LONG, epochs=epoch_count
    )
    spec = grids.teacher_spec(profile, task, train=train)
    return replace(
        spec,
        args=spec.args | {"train": train},
        inputs={"start": pretrained_model_spec(profile, model)},
    )


@cache_results_while_enabled
def distilled_tinybert_spec(
    profile: ProfileName,
    task: TaskName,
    model: ModelName = MAIN,
    epochs_of_stages: Sequence[int] | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) of a whole TinyBERT distilled on a task.

    Its teacher is BERT-base fine-tuned on the task. The first of two stages matches
    hidden states, the second matches logits as TinyBERT does. The model's scores are
    compared with Table 3 of the report on pruning by differentiable NAS. At "paper"
    both stages use augmented training rows (section 6.1.1 of the report).

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    model: name of the TinyBERT, such as "TinyBERT-4L".
    epochs_of_stages: epochs of the two stages; None means those of the profile."""
    start = pretrained_model_spec(profile, model)
    guide = finetuned_unpruned_spec(profile, task, "BERT-base")
    return two_stage_distillation_spec(
        profile,
        task,
        start,
        guide,
        trains_on_augmented_rows=profile == "paper",
        epochs_of_stages=epochs_of_stages,
        second_stage_objective=TINYBERT,
    )


def make_train_settings(
    settings_by_profile: Mapping[ProfileName, Train],
    profile: ProfileName,
    task: TaskName,
    tasks_with_fewer_epochs: Collection[str] = LONG,
    **changes: Any,
) -> Train:
    """Return the training settings of a task at one size of experiment.

    If the settings keep the best model of a training, then for STS-B it is the one with
    the highest mean of both correlations, as in TinyBERT's code.

    settings_by_profile: {profile: settings of one kind of training}.
    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    tasks_with_fewer_epochs: tasks that have 3 epochs at "paper".
    changes: fields of Train with other values, such as epochs=5; None and 0 change
    nothing."""
    train = settings_by_profile[profile]
    changes = {n: v for n, v in changes.items() if v}
    epochs_are_requested = "epochs" in changes
    if train.select == "best" and task == "STS-B":
        changes["select_by"] = ("pearson", "spearman")
    if profile == "paper" and task in tasks_with_fewer_epochs:
        changes.setdefault("epochs", 3)
    return grids.adapt_options_to_user_data(
        profile, replace(train, **changes), epochs_are_requested
    )


def make_training_rows_descriptor(
    profile: ProfileName, task: TaskName
) -> DataDescriptor:
    """Return a dict that says which rows searches and pruned models train on.

    It names the data set of the task, with a digest of all its rows, and the number of
    rows. It is an argument of a Spec, the description of a run, so that a run is only
    repeated on the same rows.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    if profile in ROWS:
        return grids.make_training_data_descriptor(profile, task, ROWS[profile])
    return grids.make_profile_data_descriptor(profile, task)


def make_hidden_state_objective_settings(
    profile: ProfileName,
    objective_kind: Literal["intermediate", "two_stage"] = "intermediate",
) -> Objective:
    """Return the settings of the loss on a teacher's states and attention scores.

    Pruned models learn from it in the first stage of their training. Padded tokens are
    left out of the loss, except at "paper".

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    objective_kind: "two_stage" matches logits in the second half of the steps."""
    return Objective(objective_kind, attention=True, mask=profile != "paper")


@cache_results_while_enabled
def architecture_search_spec(
    profile: ProfileName,
    task: TaskName,
    initial_model: Spec | FinetunedWholeModel = None,
    teacher_model: Spec | SameAsInitialModel = None,
    objective: Objective = LOGITS,
    epoch_factor: int = 1,
    searches_on_augmented_rows: bool = False,
    learning_rate: float | ProfileDefault = None,
    **gate_settings: Any,
) -> Spec:
    """Return the Spec (description of a run) of a pruning search.

    The search decides which heads and neurons of a model to keep: it trains gates
    (masks) on them beside the weights.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    initial_model: Spec of the model to prune, by default the fine-tuned whole model.
    teacher_model: Spec of the teacher, by default `initial_model` (section 5.5 of the
    report on pruning by differentiable NAS).
    objective: the training loss; for labels alone there is no teacher.
    epoch_factor: factor on the number of epochs of the profile.
    searches_on_augmented_rows: whether training rows are augmented; at "paper" the
    search then has one epoch (section 7.6).
    learning_rate: None and 0 mean that of the profile.
    gate_settings: arguments of `make_gate_settings`, such as the target FLOPs
    `ratio`."""
    initial_model = initial_model or finetuned_unpruned_spec(profile, task)
    train = make_train_settings(SEARCH, profile, task, lr=learning_rate)
    epochs = 1 if searches_on_augmented_rows and profile == "paper" else train.epochs
    teacher = (
        (teacher_model or initial_model) if objective.kind != "cross_entropy" else None
    )
    rows = make_training_rows_descriptor(profile, task)
    args = grids.make_run_arguments_of_task(
        profile,
        task,
        rows,
        gates=make_gate_settings(**gate_settings),
        train=replace(train, epochs=epoch_factor * epochs),
        objective=objective,
    )
    inputs = {"start": initial_model, "teacher": teacher}
    if searches_on_augmented_rows:
        inputs["augmented"] = grids.augmented_rows_spec(profile, task, rows)
    return Spec("nas_search", args, inputs)


@cache_results_while_enabled
def random_architecture_spec(
    initial_model: Spec,
    search_with_same_sizes: Spec | AnySizes = None,
    **gate_settings: Any,
) -> Spec:
    """Return the Spec (description of a run) that draws a random pruned architecture.

    It keeps heads and neurons at random, with the FLOPs that a search would leave. As a
    control it shows whether searching pays (Table 5 of the report on pruning by
    differentiable NAS).

    initial_model: Spec of the model from which heads and neurons are drawn.
    search_with_same_sizes: Spec of a search. Each layer then keeps as many heads and
    neurons as that search left, so a comparison shows whether it matters which ones.
    With None random heads and neurons of all layers are dropped until the target is
    met.
    gate_settings: arguments of `make_gate_settings`, such as the target FLOPs
    `ratio`."""
    inputs = {"start": initial_model, "search": search_with_same_sizes}
    return Spec(
        "random_architecture", {"gates": make_gate_settings(**gate_settings)}, inputs
    )


@cache_results_while_enabled
def two_stage_distillation_spec(
    profile: ProfileName,
    task: TaskName,
    initial_model: Spec,
    teacher_model: Spec,
    architecture_search: Spec | Unpruned = None,
    trains_on_augmented_rows: bool = False,
    epochs_of_stages: Sequence[int] | ProfileDefault = None,
    second_stage_objective: Objective = LOGITS,
) -> Spec:
    """Return the Spec (description of a run) of the last of two distillation stages.

    The first stage matches the teacher's hidden states; its Spec is the input of the
    last one. Pruned models are trained like this after a search.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    initial_model: Spec of the run that gives the weights.
    teacher_model: Spec of the teacher.
    architecture_search: Spec of the run that decided which heads and neurons are kept;
    all others are cut out first. None trains the whole model.
    trains_on_augmented_rows: whether both stages use augmented training rows.
    epochs_of_stages: epochs of the two stages; None means those of the profile.
    second_stage_objective: the loss of the last stage, by default on logits."""
    rows = make_training_rows_descriptor(profile, task)
    args = grids.make_run_arguments_of_task(profile, task, rows)
    first_epochs, last_epochs = epochs_of_stages or (0, 0)
    inputs = {"teacher": teacher_model}
    if trains_on_augmented_rows:
        inputs["augmented"] = grids.augmented_rows_spec(profile, task, rows)
    first_args = {
        "train": make_train_settings(INTERMEDIATE, profile, task, epochs=first_epochs),
        "objective": make_hidden_state_objective_settings(profile),
        "architecture": Output("search", "architecture")
        if architecture_search
        else None,
    }
    last_args = {
        "train": make_train_settings(PREDICTION, profile, task, epochs=last_epochs),
        "objective": second_stage_objective,
    }
    sources = {"start": initial_model, "search": architecture_search}
    first = Spec("retrain", args | first_args, inputs | sources)
    return Spec("retrain", args | last_args, inputs | {"start": first})


@cache_results_while_enabled
def pruned_spec(
    profile: ProfileName,
    task: TaskName,
    model: ModelName = MAIN,
    objective: Objective = LOGITS,
    trains_on_augmented_rows: bool = False,
    keeps_searched_weights: bool = False,
    **search_settings: Any,
) -> Spec:
    """Return the Spec (description of a run) of a model that a search prunes.

    This is the self-distillation of the report on pruning by differentiable NAS
    (section 5.5), its main method: search in the fine-tuned model, cut out what the
    search drops, and train the rest with the fine-tuned model as teacher.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    model: name of the model to prune, such as "TinyBERT-4L".
    objective: the loss of the search.
    trains_on_augmented_rows: whether the training after the search uses augmented rows.
    keeps_searched_weights: whether that training starts from the weights at the end of
    the search (section 7.8) instead of the fine-tuned ones.
    search_settings: further arguments of `architecture_search_spec`, such as the target
    FLOPs `ratio`."""
    fine_tuned = finetuned_unpruned_spec(profile, task, model)
    search = architecture_search_spec(
        profile, task, fine_tuned, objective=objective, **search_settings
    )
    return two_stage_distillation_spec(
        profile,
        task,
        search if keeps_searched_weights else fine_tuned,
        fine_tuned,
        search,
        trains_on_augmented_rows,
    )


@cache_results_while_enabled
def retrained_random_architecture_spec(
    profile: ProfileName,
    task: TaskName,
    keeps_searched_sizes: bool = False,
    search_learning_rate: float | ProfileDefault = None,
    epoch_factor: int = 1,
    **gate_settings: Any,
) -> Spec:
    """Return the Spec (description of a run) of a model pruned at random.

    It is the control for a model pruned by a search, and is retrained in the same two
    distillation stages. Random heads and neurons are dropped, from all layers alike,
    until the FLOPs are at the target `ratio`.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    keeps_searched_sizes: if true, each layer keeps as many heads and neurons as a
    search with the same target leaves there, and only which ones is random.
    search_learning_rate: learning rate of that search, not used without one; None and 0
    mean that of the profile.
    epoch_factor: factor on the epochs of the retraining.
    gate_settings: arguments of `make_gate_settings`, such as the target FLOPs
    `ratio`."""
    fine_tuned = finetuned_unpruned_spec(profile, task)
    search = (
        architecture_search_spec(
            profile,
            task,
            fine_tuned,
            learning_rate=search_learning_rate,
            **gate_settings,
        )
        if keeps_searched_sizes
        else None
    )
    epochs = [
        epoch_factor * make_train_settings(stage, profile, task).epochs
        for stage in (INTERMEDIATE, PREDICTION)
    ]
    return two_stage_distillation_spec(
        profile,
        task,
        fine_tuned,
        fine_tuned,
        random_architecture_spec(fine_tuned, search, **gate_settings),
        epochs_of_stages=epochs,
    )


@cache_results_while_enabled
def magnitude_pruned_spec(
    profile: ProfileName,
    task: TaskName,
    kept_share: float,
    model: ModelName = "BERT-base",
    learns_from_teacher: bool = False,
) -> Spec:
    """Return the Spec (description of a run) of an iteratively magnitude-pruned model.

    Each round zeroes the smallest weights, sets the kept ones back to the pre-trained
    ones, and fine-tunes. It is the rival of searched networks in Table 10 of the report
    on pruning by differentiable NAS. The kept share falls from round to round, at
    "mini" 0.8, 0.6, 0.4 and 0.3. Raises Refused for a share that no round has, and at
    "base", which has no rounds.

    profile: size of the experiment, one of "toy", "mini" and "paper".
    kept_share: share of the encoder's weights that are kept at the end, 0 to 1.
    model: name of the pre-trained model, such as "BERT-base".
    learns_from_teacher: whether each round learns the logits of the dense fine-tuned
    model, as a searched network does, instead of the labels."""
    check_known_name("kept share", kept_share, ROUNDS[profile])
    origin = pretrained_model_spec(profile, model)
    dense = grids.teacher_spec(profile, task, train=MAGNITUDE[profile])
    args = {name: dense.args[name] for name in ("data", "train", "numerics")}
    spec = replace(dense, inputs={"start": origin})
    further_inputs = {"origin": origin}
    if learns_from_teacher:
        args["objective"] = LOGITS
        further_inputs["teacher"] = spec
    for round_share in ROUNDS[profile]:
        inputs = further_inputs | {"start": spec}
        spec = Spec("imp", args | {"kept": round_share}, inputs)
        if round_share == kept_share:
            break
    return spec


@cache_results_while_enabled
def table_6_to_9_model_spec(
    profile: ProfileName, task: TaskName, model_label: str
) -> Spec:
    """Return the Spec (description of a run) of a model by its name in the tables.

    The tables are Tables 6 to 9 of the report on pruning by differentiable NAS. At
    "paper" a pruned model is retrained on augmented rows, for the tasks for which the
    report says so.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    model_label: a whole model such as "BERT-base", or one pruned by a search to a share
    of its FLOPs, such as "30 % BERT-base"."""
    share, _, base = model_label.rpartition(" % ")
    if not share:
        return finetuned_unpruned_spec(profile, task, model_label)
    augmented = profile == "paper" and task in AUGMENTED
    return pruned_spec(
        profile, task, base, trains_on_augmented_rows=augmented, ratio=int(share) / 100
    )


def format_pruned_model_label(flops_ratio: float, method_or_model: str = "NAS") -> str:
    return f"{100 * flops_ratio:g} % {method_or_model}"


def describe_random_architecture_for_latency(
    flops_ratio: float, unpruned_shape_name: str
) -> Json:
    """Return the description of a randomly pruned model, for a measurement of speed.

    The result is {"shape": `unpruned_shape_name`, "surgery": [operation that prunes
    it]}. Which heads and neurons stay is drawn with a fixed seed. The measurement
    builds the model with random weights and times its forward passes.

    flops_ratio: FLOPs of the pruned model as a share of the whole model's, 0 to 1.
    unpruned_shape_name: a key of lib.stats.cost.SHAPES, such as "tinybert-4"."""
    full = SHAPES[unpruned_shape_name]
    widths = {"heads": full.heads, "ffn": full.ffn}
    number = {
        (layer, kind): n for layer in range(full.layers) for kind, n in widths.items()
    }
    cost = control.make_encoder_flops_function(
        full.hidden, full.hidden // full.heads, [widths] * full.layers
    )
    on = control.sample_random_architecture_at_target_flops(
        make_gate_settings(flops_ratio), number, cost, 0
    )
    pruning = {"op": "keep", **control.list_kept_indices(number, on)}
    return {"shape": unpruned_shape_name, "surgery": [pruning]}


def compute_least_reachable_flops_ratio(profile: ProfileName) -> float:
    """Return the smallest share of an encoder's FLOPs that a pruning search can reach.

    It is that of one head and one neuron in each layer, plus the pooler, from 0 to 1.
    The encoder is that of the experiment's size, at "paper" BERT-base.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    encoder = find_encoder_shape(profile)
    one = gated.flops(
        encoder.hidden,
        encoder.hidden // encoder.heads,
        [{"heads": 1, "ffn": 1}] * encoder.layers,
    )
    return one / gated.count_masked_encoder_flops(encoder)


def select_reachable_flops_ratios(
    profile: ProfileName, requested_ratios: Sequence[float] = ()
) -> list[float]:
    """Return those target shares of the FLOPs that a pruning search can reach.

    A search keeps at least one head and one neuron in each layer, so small encoders
    cannot reach small shares. Raises Refused where none is reachable.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    requested_ratios: shares from 0 to 1; by default those of the report on pruning by
    differentiable NAS."""
    requested_ratios = requested_ratios or RATIOS
    low = compute_least_reachable_flops_ratio(profile)
    reachable_ratios = [
        ratio
        for ratio in requested_ratios
        if low <= ratio * (1 + make_gate_settings().tolerance)
    ]
    if not reachable_ratios:
        raise Refused(
            f"ratios is {list(requested_ratios)}; this encoder can have {low:.3f} or more"
        )
    return reachable_ratios
