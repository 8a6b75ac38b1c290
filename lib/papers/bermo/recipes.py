"""This module has the settings of BERMo (Kodge and Roy, 2021), and the Specs,
descriptions of runs, of its models.

At profile `paper` the settings are the printed ones (Appendix A.1, Tables 6 to 11) and,
where the paper is silent, those of the public code of movement pruning.
`data/published/bermo/deviations.toml` lists what the small profiles `toy` and `mini` do
differently."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any, Literal, TypeAlias, TypeVar

from lib.core.memo import cache_results_while_enabled
from lib.core.names import Refused, check_known_name
from lib.core.options import Share, Targets, Train
from lib.core.spec import Spec
from lib.core.types import Json, ProfileDefault, ProfileName, TaskName
from lib.data import DataDescriptor
from lib.papers import grids, published
from lib.papers.bermo.options import Mix, Prune
from lib.papers.grids import pretrained_encoder_spec
from lib.stats.compare import MetricColumn

S = grids.read_settings("bermo")
# Settings from settings.toml in this folder, where comments describe them.
MODELS: tuple[str, ...] = S.MODELS
PLAIN: dict[str, Literal["mean", "embedding"]] = S.PLAIN
LEARNED: float = S.LEARNED
HEAD: float = S.HEAD
ALPHA: float = S.ALPHA
DIVERGED: float = S.DIVERGED
COLUMNS: tuple[MetricColumn, ...] = S.COLUMNS
METHODS: dict[str, Json] = S.METHODS
PROBES: dict[str, str] = S.PROBES
PROBING: dict[str, tuple[str, ...]] = S.PROBING
TABLES: dict[str, tuple[str, bool]] = S.TABLES
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
PROBED: dict[str, tuple[int, ...]] = S.PROBED
TEN: dict[str, tuple[int, ...]] = S.TEN
CASED: dict[str, tuple[str, ...]] = S.CASED
FASTER: dict[str, tuple[str, ...]] = S.FASTER
STABILITY: dict[str, tuple[str, ...]] = S.STABILITY
SWEPT: dict[str, tuple[str, ...]] = S.SWEPT
SWEEP: dict[str, Json] = S.SWEEP
PRUNED: dict[str, tuple[str, ...]] = S.PRUNED
UNPRUNED: dict[str, tuple[str, ...]] = S.UNPRUNED
BUDGETS: dict[str, dict[str, tuple[int, ...]]] = S.BUDGETS
EXAMPLES: dict[str, dict[str, int]] = S.EXAMPLES
LONG: dict[str, Json] = S.LONG
WARMUPS: dict[str, dict[str, tuple[int, ...]]] = S.WARMUPS
PENALTIES: dict[str, dict[str, dict[str, tuple[float, ...]]]] = S.PENALTIES
MIX: dict[str, Mix] = S.MIX
DENSE: dict[str, Train] = S.DENSE
MASKED: dict[str, Train] = S.MASKED
EPOCHS: dict[str, int] = S.EPOCHS
ROWS: dict[str, dict[str, int]] = S.ROWS
# Loss of a pruned model that is distilled: on labels and on a teacher's logits. The
# temperature is that of the public code of movement pruning.
TAUGHT = Targets("both", sum_classes=True, temperature=2.0)
DEVIATIONS = published.read_deviation_sentences_by_profile("bermo")
Value = TypeVar("Value")
BermoModelName: TypeAlias = Literal[
    "BERT", "BERMo", "Mean of all states", "Embeddings alone"
]
PruningMethodName: TypeAlias = Literal["Magnitude", "L0", "Movement", "Soft Movement"]


def find_setting(
    values_by_profile: Mapping[ProfileName, Mapping[TaskName, Value]],
    profile: ProfileName,
    task: TaskName,
    setting_name_in_errors: str,
) -> Value:
    """Return the value of a setting for a profile and task.

    The table of settings is {profile: {task: value}}, where the task "" stands for all
    tasks that are not listed. Raises Refused where the task is not listed and there is
    no "", and for a profile that the table lacks.

    values_by_profile: the table.
    profile: size of the experiment, "toy", "mini", "base" or "paper".
    setting_name_in_errors: what the value is, such as "warm-ups", for the error
    message."""
    check_known_name(
        f"profile with {setting_name_in_errors}", profile, values_by_profile
    )
    by_task = values_by_profile[profile]
    if "" not in by_task:
        check_known_name(
            f"task with {setting_name_in_errors} at {profile}", task, by_task
        )
    return by_task[task if task in by_task else ""]


def make_bermo_data_descriptor(profile: ProfileName, task: TaskName) -> DataDescriptor:
    """Return the dict that says on which rows of a task all BERMo runs are trained.

    It has the keys of `lib.data.make_data_descriptor`, such as "source" and "task" of
    the data, "digest" of all rows and, unless all are trained on, "rows", the number to
    train on. All models of a task have the same dict, so that they are compared on the
    same rows.

    profile: size of the experiment, "toy", "mini", "base" or "paper"."""
    rows = ROWS[profile]
    return grids.make_training_data_descriptor(
        profile, task, rows.get(task, rows.get(""))
    )


def make_bermo_run_arguments(
    profile: ProfileName,
    task: TaskName,
    model_name: BermoModelName,
    **further_arguments: Any,
) -> grids.RunArguments:
    """Return the arguments {name: value} that all BERMo runs on a task have in common.

    They are "data" (the rows), "numerics" (dtype, threads and device), "span" for
    question answering (how long passages are cut into windows), "mix" (settings of the
    weighted sum of layers; None for plain BERT) and "margin" (a run whose score is at
    most this far above that of the majority class counts as diverged). Raises Refused
    for an unknown model.

    profile: size of the experiment, "toy", "mini", "base" or "paper".
    model_name: "BERT", "BERMo" with its weighted sum of all layers, or a control: "Mean
    of all states" or "Embeddings alone".
    further_arguments: {name: value} of arguments that are added to the result."""
    check_known_name("model", model_name, [*MODELS, *PLAIN])
    mix = MIX[profile] if model_name == "BERMo" else None
    if model_name in PLAIN:
        mix = replace(MIX[profile], norm="none", init="zeros", plain=PLAIN[model_name])
    return grids.make_run_arguments_of_task(
        profile,
        task,
        make_bermo_data_descriptor(profile, task),
        margin=DIVERGED,
        mix=mix,
        **further_arguments,
    )


def make_train_settings(
    settings_by_profile: Mapping[ProfileName, Train],
    profile: ProfileName,
    task: TaskName,
    **training_changes: Any,
) -> Train:
    """Return the training settings of a task, such as epochs and learning rate.

    They are the profile's, with a longer input and a smaller batch for question
    answering at some profiles.

    settings_by_profile: {profile: settings}.
    profile: size of the experiment, "toy", "mini", "base" or "paper".
    training_changes: fields of Train with other values, such as epochs=3; 0 or None
    leaves a field as it is."""
    long = LONG[profile] if grids.find_passage_window_settings(profile, task) else {}
    return replace(
        settings_by_profile[profile],
        **long | {k: v for k, v in training_changes.items() if v},
    )


@cache_results_while_enabled
def unpruned_model_spec(
    profile: ProfileName,
    task: TaskName,
    model_name: BermoModelName = "BERT",
    layer_mix_normalisation: Literal[
        "layers", "layers_affine", "channels", "tokens", "none"
    ]
    | ProfileDefault = None,
    freeze_encoder: bool = False,
    lower_case: bool | None = None,
    learning_rate: float | ProfileDefault = None,
    layer_mix_learning_rate: float | ProfileDefault = None,
) -> Spec:
    """Describe the run that fine-tunes BERT or BERMo on a task without pruning.

    The Spec is the frozen description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini", "base" or "paper".
    model_name: "BERT", "BERMo" with its layer mix (a learned weighted sum of all
    layers' outputs), or a control: "Mean of all states" or "Embeddings alone".
    layer_mix_normalisation: over what the mix normalises its summands, such as
    "layers"; None takes the profile's.
    freeze_encoder: whether embeddings and encoder are not trained, which makes it a
    probe of what they contain.
    lower_case: False keeps capitals although the vocabulary is uncased; None takes the
    setting of the pre-trained model.
    learning_rate: that of the model's weights; None or 0 takes the profile's, or 1e-3
    with a frozen encoder.
    layer_mix_learning_rate: that of the mix; None or 0 takes the profile's."""
    train = make_train_settings(
        DENSE, profile, task, lr=learning_rate or HEAD * freeze_encoder
    )
    args = make_bermo_run_arguments(
        profile,
        task,
        model_name,
        train=train,
        targets=grids.LABELS,
        frozen="encoder" if freeze_encoder else None,
        lower_case=lower_case,
    )
    if mix := args["mix"]:
        args["mix"] = replace(
            mix,
            norm=layer_mix_normalisation or mix.norm,
            lr=layer_mix_learning_rate or mix.lr,
        )
    return Spec("fineprune", args, {"start": pretrained_encoder_spec(profile)})


def compute_warmup_share(warmup_steps: int, total_steps: int) -> float:
    """Convert a learning rate's warm-up from steps to a share of all steps.

    Papers print a warm-up in steps, and the training loop takes a share. int(share *
    total_steps) is exactly `warmup_steps`. Raises Refused where `warmup_steps` is below
    0 or above `total_steps`."""
    if not 0 <= warmup_steps <= total_steps:
        why = f"does not fit a run of {total_steps}: take at most {total_steps}"
        raise Refused(f"a warm-up of {warmup_steps} steps {why}")
    return min(1.0, (warmup_steps + 0.5) / total_steps) if warmup_steps else 0.0


def make_pruning_settings(
    profile: ProfileName,
    task: TaskName,
    model_name: BermoModelName = "BERT",
    method: PruningMethodName = "Movement",
    epochs: int | ProfileDefault = None,
    kept_share: float | ProfileDefault = None,
    penalty_weight: float | ProfileDefault = None,
    learning_rate: float | ProfileDefault = None,
    pruning_delay_in_warmups: int | ProfileDefault = None,
) -> tuple[Train, Prune]:
    """Return the settings (Train, Prune) of a model that is pruned during fine-tuning.

    Train has epochs, learning rate and the like, and Prune the schedule that removes
    weights. They are those of the profile, with the changes that the arguments ask for.
    The threshold that decides which weights are pruned is constant in a warm-up at the
    start and at the end. If few steps leave none between the two, it jumps at "paper",
    as in the public code of movement pruning; elsewhere the warm-ups are shortened.

    Raises Refused for an unknown method, a kept share that is not above 0 and at most
    1, and a task or profile without settings, such as "base" for "L0" and "Soft
    Movement". Raises it too for a penalty on "Magnitude", which has no scores, and for
    a method with a penalty whose weight is 0, if `kept_share` is set.

    profile: size of the experiment, "toy", "mini", "base" or "paper".
    model_name: "BERT" or "BERMo"; its penalty may differ.
    method: "Magnitude", "L0", "Movement" or "Soft Movement".
    epochs, learning_rate: None or 0 takes the profile's.
    kept_share: the share of the encoder's weights to keep; None takes the profile's
    threshold.
    penalty_weight: weight lambda of the penalty on mask scores; None takes the
    profile's, and for "Magnitude" and "Movement" none.
    pruning_delay_in_warmups: steps before the threshold moves, as a multiple of the
    warm-up of the learning rate; None or 0 takes the profile's."""
    check_known_name("pruning method", method, METHODS)
    if kept_share is not None and not 0 < kept_share <= 1:
        raise Refused(f"the kept share is {kept_share}: take one above 0, at most 1")
    options: Json = dict(METHODS[method], final_lambda=penalty_weight or 0.0)
    kind = options["method"]
    epochs_are_requested = bool(epochs)
    if profile == "paper":
        check_known_name("task with printed settings", task, EPOCHS)
        epochs = epochs or EPOCHS[task]
        learning_rate = learning_rate or (
            3e-6 if task == "QQP" and kind in ("movement", "soft") else 0.0
        )
    train = make_train_settings(MASKED, profile, task, epochs=epochs, lr=learning_rate)
    train = grids.adapt_options_to_user_data(profile, train, epochs_are_requested)
    capped = profile != "paper" and make_bermo_data_descriptor(profile, task).get(
        "rows"
    )
    rows = capped or find_setting(EXAMPLES, profile, task, "a known number of rows")
    steps = ceil(rows / train.batch) * train.epochs
    w, *parts = find_setting(WARMUPS, profile, task, "warm-ups")
    first, last = (1, 1) if kind == "l0" else parts
    first = pruning_delay_in_warmups or first
    # At the small profiles a run may have fewer steps than the two phases of constant
    # threshold, at its start and end, together. The two phases are then shortened.
    if not EXAMPLES[profile] and w * (first + last) >= steps:
        w = steps // (first + last + 1)
    options |= {"warmup_steps": w, "initial_warmup": first, "final_warmup": last}
    if kind in PENALTIES:
        check_known_name(f"model with settings of {method}", model_name, MODELS)
        rate, *weights = find_setting(
            PENALTIES[kind], profile, task, f"settings of {method}"
        )
        if penalty_weight is None:
            penalty_weight = weights[MODELS.index(model_name)]
        options |= {
            "lr": rate,
            "final_lambda": penalty_weight,
            "target": kept_share or 0.0,
        }
    elif kept_share:
        options["final_threshold"] = kept_share
    prune = Prune(
        **options, overlong="jump" if w * (first + last) >= steps else "refuse"
    )
    return replace(train, warmup=compute_warmup_share(w, steps)), prune


@cache_results_while_enabled
def pruned_spec(
    profile: ProfileName,
    task: TaskName,
    model_name: BermoModelName = "BERT",
    method: PruningMethodName = "Movement",
    epochs: int | ProfileDefault = None,
    distillation_weight: Share = 0.0,
    **pruning_settings: Any,
) -> Spec:
    """Describe the run that prunes BERT or BERMo while it is fine-tuned on a task.

    Embeddings are not trained. The Spec is the frozen description of this run, still
    without a seed.

    profile: size of the experiment, "toy", "mini", "base" or "paper".
    model_name: "BERT", or "BERMo", whose last output is a weighted sum of all layers'
    outputs (layer mix).
    method: "Magnitude", "L0", "Movement" or "Soft Movement".
    epochs: None or 0 takes the profile's.
    distillation_weight: weight from 0 to 1 of the teacher's logits in the loss. The
    teacher is BERT fine-tuned on the task without pruning. 0 trains on labels alone.
    pruning_settings: further arguments of `make_pruning_settings`, such as
    kept_share=0.1."""
    train, prune = make_pruning_settings(
        profile, task, model_name, method, epochs, **pruning_settings
    )
    args = make_bermo_run_arguments(
        profile,
        task,
        model_name,
        targets=TAUGHT if distillation_weight else grids.LABELS,
        prune=prune,
        frozen="embeddings",
        alpha=distillation_weight or None,
    )
    args["train"] = train
    guide = unpruned_model_spec(profile, task) if distillation_weight else None
    return Spec(
        "fineprune", args, {"start": pretrained_encoder_spec(profile), "teacher": guide}
    )
