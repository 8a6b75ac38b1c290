"""This module describes the training of students: a fine-tuned model is pruned to a
width, distilled, then fine-tuned.

The pruning is DynaBERT's (Hou et al. 2020), the stages are GhostBERT's, for its models
and for the pruned baselines beside them (section 2.3). `lib.papers.frontier`, the
comparison of all papers, uses it too.

A width m means that each layer keeps m of 12 attention heads, and the same share of its
neurons."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from lib.core.memo import cache_results_while_enabled
from lib.core.names import Refused, check_known_name
from lib.core.options import Distil, Ghost, Importance, SurgeryOperation, Targets, Train
from lib.core.spec import Spec, to_plain_json
from lib.core.types import EncoderFamily, Json, ProfileDefault, ProfileName, TaskName
from lib.papers import grids
from lib.papers.grids import (
    LABELS,
    find_encoder_shape,
    make_run_arguments_of_task,
    teacher_spec,
)
from lib.stats import cost

S = grids.read_settings("students")
# Settings from students.toml beside this module, where comments describe them.
DISTIL: dict[str, Train] = S.DISTIL
FINETUNE: dict[str, Train] = S.FINETUNE
IMPORTANCE: dict[str, Importance] = S.IMPORTANCE
AUGMENTED: dict[str, bool] = S.AUGMENTED
CACHED: dict[str, bool] = S.CACHED
LONG: tuple[str, ...] = S.LONG
# Number of heads of BERT-base. At the width m a model keeps m/12 of its heads.
HEADS = 12


def count_heads_of_published_encoder(family: EncoderFamily = "bert") -> int:
    """Return the number of attention heads of the encoder that the papers use.

    It is 12 for BERT-base. Widths of pruned models are counted in parts of it, such as
    3 of 12, also for smaller encoders.

    family: family of encoders, such as "bert" or "electra"."""
    return find_encoder_shape("paper", family).heads


def scale_kept_head_count(
    profile: ProfileName,
    kept_heads_of_paper_model: int,
    family: EncoderFamily = "bert",
) -> int:
    """Return how many attention heads an encoder keeps in each layer at a given width.

    Raises Refused, with the possible widths, where that is no whole number of heads, or
    where neurons cannot be divided like heads.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    kept_heads_of_paper_model: the width as kept heads of the paper's model, such as 3
    of 12. An encoder with 6 heads would keep 2 at 4 of 12.
    family: family of encoders, such as "bert"."""
    all_parts = count_heads_of_published_encoder(family)
    encoder = find_encoder_shape(profile, family)
    work = [
        width
        for width in range(1, all_parts + 1)
        if not width * encoder.heads % all_parts
    ]
    if (
        type(kept_heads_of_paper_model) is not int
        or kept_heads_of_paper_model not in work
    ):
        width = f"{kept_heads_of_paper_model}/{all_parts} of {encoder.heads} heads"
        why = f"width {width} is no whole number of them"
        raise Refused(f"{why}: take {', '.join(map(str, work))} of {all_parts}")
    return cost.check_head_count_or_take_all(
        encoder, kept_heads_of_paper_model * encoder.heads // all_parts
    )


def select_possible_widths(
    profile: ProfileName, widths_in_twelfths: Sequence[int]
) -> tuple[int, ...]:
    """Return those widths at which an encoder keeps a whole number of heads.

    So tables leave out widths that a small encoder cannot have. Raises Refused where
    none is possible, and for a width that is not from 1 to 12.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    widths_in_twelfths: shares of heads that pruned models keep, times 12, from 1 to
    12."""
    for width in widths_in_twelfths:
        check_known_name("width in twelfths", width, range(1, HEADS + 1))
    heads = find_encoder_shape(profile).heads
    possible_widths = tuple(m for m in widths_in_twelfths if not m * heads % HEADS)
    return possible_widths or (scale_kept_head_count(profile, widths_in_twelfths[0]),)


InputName: TypeAlias = str  # Name of an input of a Spec, such as "teacher".
# None in the place of a learning rate: that of the argument `train`.
ThatOfTrainSettings: TypeAlias = None


class StudentPlan(NamedTuple):
    # Changes of the model in the order in which they are made, each {"op": name, ...}.
    surgery_operations: list[SurgeryOperation]
    input_runs: dict[InputName, Spec]


def plan_pruning_and_ghost_operations(
    profile: ProfileName,
    task: TaskName,
    kept_heads_of_paper_model: int,
    ghost_options: Ghost | None,
    family: EncoderFamily = "bert",
) -> StudentPlan:
    """Return the changes that turn a fine-tuned teacher into an untrained student.

    The StudentPlan that is returned has the operations on the model, in order, and the
    Specs (descriptions of runs) that they need. The operations are a cut to the width,
    if heads are to go, and the addition of ghost modules (GhostBERT's convolutions).
    The runs are "teacher" and, for a cut, "importance", which ranks heads and neurons.
    If a ghost module generates attention maps or contexts of removed heads, the
    matrices that these heads need are not cut (GhostBERT, section 4.2). Raises Refused
    for a width or ghosts that the encoder cannot have.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    kept_heads_of_paper_model: the width, such as 3 of 12 heads.
    ghost_options: settings of the ghost modules; None for none.
    family: family of encoders, such as "bert"."""
    heads = scale_kept_head_count(profile, kept_heads_of_paper_model, family)
    surgery = []
    pruned = heads < find_encoder_shape(profile, family).heads
    inputs = {"teacher": teacher_spec(profile, task, family)}
    if pruned:
        cut: Json = {"op": "cut", "heads": heads}
        if ghost_options and ghost_options.unpruned_projections:
            cut["whole"] = list(ghost_options.unpruned_projections)
        surgery.append(cut)
        ranked = make_run_arguments_of_task(
            profile, task, importance=IMPORTANCE[profile]
        )
        inputs["importance"] = Spec(
            "importance", ranked, {"teacher": inputs["teacher"]}
        )
    if ghost_options:
        ghost_options.check_fits_model(pruned)
        surgery.append({"op": "ghost"} | to_plain_json(ghost_options))
    return StudentPlan(surgery, inputs)


def adapt_train_settings_to_ghost_modules(
    train_settings: Train,
    ghost_options: Ghost | None,
    ghost_kernel_learning_rate: float | ThatOfTrainSettings = None,
) -> Train:
    """Return training settings for a student with or without ghost modules.

    Ghost modules are GhostBERT's convolutions. Their kernels have a learning rate of
    their own. Those of kind "conv1d_f" need rows that are all padded to one length, as
    their weights are tied to the number of tokens.

    ghost_options: settings of the ghost modules; None for a student without.
    ghost_kernel_learning_rate: learning rate of the kernels; None and 0 mean that of
    `train_settings`."""
    if not ghost_options:
        return replace(train_settings, taps=0.0)
    train_settings = replace(
        train_settings, taps=ghost_kernel_learning_rate or train_settings.taps
    )
    tokens = ghost_options.tokens
    return (
        replace(train_settings, max_length=tokens, pad_to=tokens)
        if tokens
        else train_settings
    )


@cache_results_while_enabled
def finetuned_student_spec(
    profile: ProfileName,
    task: TaskName,
    initial_model: Spec,
    ghost_options: Ghost | None = None,
    targets: Targets = LABELS,
    teacher: Spec | None = None,
    ghost_kernel_learning_rate: float | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) of a student's last training stage.

    It fine-tunes a distilled student on the task (GhostBERT, section 2.3).

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    initial_model: Spec of the stage before.
    ghost_options: settings of the student's ghost modules (GhostBERT's convolutions);
    None for none.
    targets: labels, the logits of `teacher`, or both.
    teacher: Spec of the teacher, used where `targets` has its logits.
    ghost_kernel_learning_rate: learning rate of the kernels of these modules; None and
    0 mean that of the profile."""
    train = adapt_train_settings_to_ghost_modules(
        FINETUNE[profile], ghost_options, ghost_kernel_learning_rate
    )
    args = make_run_arguments_of_task(profile, task, train=train, targets=targets)
    taught_by = teacher if targets.kind != "hard" else None
    return Spec("finetune", args, {"start": initial_model, "teacher": taught_by})


def make_distillation_settings(
    profile: ProfileName,
    task: TaskName,
    learning_rate: float | ProfileDefault = None,
    epoch_factor: int = 1,
) -> Train:
    """Return the training settings of a student's distillation.

    Distillation is the first of a pruned student's two training stages, in which it
    learns its teacher's hidden states.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    learning_rate: None and 0 mean that of the profile.
    epoch_factor: factor on the number of epochs of the profile."""
    train = DISTIL[profile]
    epochs = 1 if profile == "paper" and task in LONG else train.epochs
    return replace(train, epochs=epoch_factor * epochs, lr=learning_rate or train.lr)


def untrained_student_spec(
    profile: ProfileName,
    task: TaskName,
    kept_heads_of_paper_model: int,
    ghost_options: Ghost | None,
) -> Spec:
    """Return the Spec (description of a run) of a pruned, untrained student.

    Students that are trained in another way, such as on labels alone, start from it.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    kept_heads_of_paper_model: the width, such as 3 of 12 heads.
    ghost_options: settings of the ghost modules (GhostBERT's convolutions) that the
    student gets; None for none."""
    surgery, inputs = plan_pruning_and_ghost_operations(
        profile, task, kept_heads_of_paper_model, ghost_options
    )
    return Spec("operate", {"surgery": surgery}, inputs)


@cache_results_while_enabled
def student_spec(
    profile: ProfileName,
    task: TaskName,
    kept_heads_of_paper_model: int,
    ghost_options: Ghost | None = None,
    family: EncoderFamily = "bert",
    trains_on_augmented_rows: bool | ProfileDefault = None,
    targets: Targets = LABELS,
    distillation_learning_rate: float | ProfileDefault = None,
    distillation_epoch_factor: int = 1,
    ghost_kernel_learning_rate: float | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) of a pruned and trained student.

    The student is cut from the fine-tuned teacher, distilled from it on hidden states,
    then fine-tuned (GhostBERT, section 2.3). The Spec describes the fine-tuning, and
    has the runs before as inputs. Most models in tables are made by it.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    kept_heads_of_paper_model: the width, such as 3 of 12 heads.
    ghost_options: settings of ghost modules (GhostBERT's convolutions); None gives the
    pruned baseline.
    family: family of encoders, such as "bert".
    trains_on_augmented_rows: whether the student is distilled on augmented rows; None
    takes the profile's choice.
    targets: what the fine-tuning learns, by default labels.
    distillation_learning_rate: learning rate of the distillation; None and 0 mean that
    of the profile.
    distillation_epoch_factor: factor on the epochs of the distillation.
    ghost_kernel_learning_rate: learning rate of the kernels of ghost modules in both
    stages; None and 0 mean that of the profile."""
    surgery, inputs = plan_pruning_and_ghost_operations(
        profile, task, kept_heads_of_paper_model, ghost_options, family
    )
    train = make_distillation_settings(
        profile, task, distillation_learning_rate, distillation_epoch_factor
    )
    train = adapt_train_settings_to_ghost_modules(
        train, ghost_options, ghost_kernel_learning_rate
    )
    if (
        AUGMENTED[profile]
        if trains_on_augmented_rows is None
        else trains_on_augmented_rows
    ):
        inputs["augmented"] = grids.augmented_rows_spec(profile, task)
    elif (
        CACHED[profile]
        and not (ghost_options and ghost_options.tokens)
        and not grids.get_passage_windows_of_user_data(profile)
    ):
        # A separate run computes the teacher's hidden states once. It has the profile's
        # training settings, not those of this student, so that students with different
        # learning rates share the run.
        read = make_distillation_settings(profile, task)
        state_args = make_run_arguments_of_task(
            profile,
            task,
            train=adapt_train_settings_to_ghost_modules(read, None),
            distil=Distil(mask=True),
        )
        inputs["states"] = Spec("states", state_args, {"teacher": inputs["teacher"]})
    args = make_run_arguments_of_task(
        profile,
        task,
        train=train,
        surgery=surgery,
        distil=Distil(mask=profile != "paper"),
    )
    return finetuned_student_spec(
        profile,
        task,
        Spec("distil", args, inputs),
        ghost_options,
        targets,
        inputs["teacher"],
        ghost_kernel_learning_rate,
    )


@cache_results_while_enabled
def student_trained_on_labels_spec(
    profile: ProfileName,
    task: TaskName,
    kept_heads_of_paper_model: int,
    ghost_options: Ghost | None = None,
    first_stage_learning_rate: float | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) of a student trained without a teacher.

    It is a control: it learns labels in both training stages, where other students
    match the teacher's hidden states in the first. Pruning, epochs, learning rates and
    steps are the same as in `student_spec` without augmented rows. So what other
    students score above this one is due to the teacher, not to longer training.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    kept_heads_of_paper_model: the width, such as 3 of 12 heads.
    ghost_options: settings of ghost modules (GhostBERT's convolutions); None for none.
    first_stage_learning_rate: learning rate of the first stage; None and 0 mean that of
    the profile."""
    train = make_distillation_settings(profile, task, first_stage_learning_rate)
    train = adapt_train_settings_to_ghost_modules(train, ghost_options)
    start = untrained_student_spec(
        profile, task, kept_heads_of_paper_model, ghost_options
    )
    args = make_run_arguments_of_task(profile, task, train=train, targets=LABELS)
    return finetuned_student_spec(
        profile, task, Spec("finetune", args, {"start": start}), ghost_options
    )
