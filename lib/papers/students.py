"""This module makes students of a fine-tuned model: cut to a width, distilled, then
fine-tuned.

It is the procedure of DynaBERT (Hou et al. 2020). GhostBERT uses it for its models and
for the pruned baselines beside them (section 2.3), and so does the frontier. So it
belongs to no paper. The module is free of torch."""

from collections.abc import Sequence
from dataclasses import replace

from lib.core.names import Refused
from lib.core.options import Distil, Ghost, Importance, Targets, Train
from lib.core.spec import Spec, to_plain_json
from lib.core.types import Json
from lib.papers import grids
from lib.papers.grids import (
    LABELS,
    find_encoder_shape,
    make_common_arguments,
    teacher_spec,
)
from lib.stats import cost

S = grids.read_settings("students")
# Tables of students.toml, which describes each.
DISTIL: dict[str, Train] = S.DISTIL
FINETUNE: dict[str, Train] = S.FINETUNE
IMPORTANCE: dict[str, Importance] = S.IMPORTANCE
AUGMENTED: dict[str, bool] = S.AUGMENTED
CACHED: dict[str, bool] = S.CACHED
LONG: tuple[str, ...] = S.LONG
# Parts of a whole width. A width is m kept heads of these 12 (ELECTRA-small has 4).
HEADS = 12


def count_width_parts(family: str = "bert") -> int:
    """Return the number of parts of a whole width: the heads of the paper's model."""
    return find_encoder_shape("paper", family).heads


def count_kept_heads(profile: str, width_parts: int, family: str = "bert") -> int:
    """Return the number of heads that an encoder keeps at a width of `width_parts`
    parts.

    Raises Refused, with the possible widths, where these parts are no whole number of
    heads, or where the neurons cannot be split like the heads."""
    all_parts, encoder = count_width_parts(family), find_encoder_shape(profile, family)
    work = [
        width
        for width in range(1, all_parts + 1)
        if not width * encoder.heads % all_parts
    ]
    if type(width_parts) is not int or width_parts not in work:
        why = f"width {width_parts}/{all_parts} of {encoder.heads} heads is no whole number of them"
        raise Refused(f"{why}: take {', '.join(map(str, work))} of {all_parts}")
    return cost.check_kept_heads(encoder, width_parts * encoder.heads // all_parts)


def select_divisible_widths(profile: str, widths: Sequence[int]) -> tuple[int, ...]:
    """Return those widths that are a whole number of an encoder's heads.

    Raises Refused where there is none."""
    heads = find_encoder_shape(profile).heads
    possible_widths = tuple(m for m in widths if not m * heads % HEADS)
    return possible_widths or (count_kept_heads(profile, widths[0]),)


def plan_cut(
    profile: str,
    task: str,
    width_parts: int,
    ghosts: Ghost | None,
    family: str = "bert",
) -> tuple[list[Json], dict[str, Spec]]:
    """Return (surgery, inputs) that cut a fine-tuned teacher to a width of
    `width_parts` parts.

    With `ghosts` the surgery adds them. A whole width has no cut. The projections that
    a ghost replaces stay whole (section 4.2). Raises ValueError, before anything runs,
    for a width or ghosts that the encoder cannot have."""
    heads, surgery = count_kept_heads(profile, width_parts, family), []
    pruned = heads < find_encoder_shape(profile, family).heads
    inputs = {"teacher": teacher_spec(profile, task, family)}
    if pruned:
        uncut = (
            {"whole": list(ghosts.uncut_parts)} if ghosts and ghosts.uncut_parts else {}
        )
        surgery.append({"op": "cut", "heads": heads} | uncut)
        ranked = make_common_arguments(profile, task, importance=IMPORTANCE[profile])
        inputs["importance"] = Spec(
            "importance", ranked, {"teacher": inputs["teacher"]}
        )
    if ghosts:
        ghosts.check_fit(pruned)
        surgery.append({"op": "ghost"} | to_plain_json(ghosts))
    return surgery, inputs


def set_padded_length(train: Train, padded_length: int) -> Train:
    """Return settings in which every row is padded to this number of tokens.

    0 leaves the settings as they are."""
    return (
        replace(train, max_length=padded_length, pad_to=padded_length)
        if padded_length
        else train
    )


def finetuned_spec(
    profile: str,
    task: str,
    initial_model: Spec,
    padded_length: int = 0,
    targets: Targets = LABELS,
    teacher: Spec | None = None,
    has_ghosts: bool = True,
    tap_learning_rate: float = 0.0,
) -> Spec:
    """Return the Spec of the last stage (section 2.3): fine-tuning of a model
    `initial_model`.

    targets: the labels or, for other kinds, answers of the model `teacher`. has_ghosts:
    whether the model has ghosts. tap_learning_rate: learning rate of the ghosts' kernel
    weights; 0 means the profile's."""
    train = set_padded_length(FINETUNE[profile], padded_length)
    train = replace(
        train, taps=(tap_learning_rate or train.taps) if has_ghosts else 0.0
    )
    inputs = {"start": initial_model} | (
        {"teacher": teacher} if targets.kind != "hard" else {}
    )
    return Spec(
        "finetune",
        make_common_arguments(profile, task, train=train, targets=targets),
        inputs,
    )


def make_distillation_settings(
    profile: str,
    task: str,
    learning_rate: float = 0.0,
    has_ghosts: bool = True,
    epoch_factor: int = 1,
    tap_learning_rate: float = 0.0,
) -> Train:
    """Return the settings of the distillation stage of a task.

    learning_rate: learning rate; 0 means the profile's. epoch_factor: multiple of the
    profile's epochs.
    has_ghosts, tap_learning_rate: as in `finetuned_spec`."""
    train = DISTIL[profile]
    epochs = 1 if profile == "paper" and task in LONG else train.epochs
    tap_learning_rate = (tap_learning_rate or train.taps) if has_ghosts else 0.0
    return replace(
        train,
        epochs=epoch_factor * epochs,
        lr=learning_rate or train.lr,
        taps=tap_learning_rate,
    )


def untrained_student_spec(
    profile: str, task: str, kept_parts: int, ghosts: Ghost | None, family: str = "bert"
) -> Spec:
    """Return the Spec of a student before training: cut, with untrained ghosts."""
    surgery, inputs = plan_cut(profile, task, kept_parts, ghosts, family)
    return Spec("operate", {"surgery": surgery}, inputs)


def student_spec(
    profile: str,
    task: str,
    kept_parts: int,
    ghosts: Ghost | None = None,
    family: str = "bert",
    augmented: bool | None = None,
    targets: Targets = LABELS,
    lr: float = 0.0,
    times: int = 1,
    taps: float = 0.0,
) -> Spec:
    """Return the Spec of a student: cut, distilled, then fine-tuned (section 2.3).

    kept_parts: parts of the width that are kept. ghosts: its Ghost; None gives the
    pruned baseline, made by the same procedure. augmented: whether it is distilled on
    augmented rows; None means the profile's choice. targets: targets of the last stage.
    lr: learning rate of the distillation; 0 means the profile's. times: multiple of its
    epochs. taps: learning rate of the ghosts' kernel weights in both stages; 0 means
    the profile's."""
    surgery, inputs = plan_cut(profile, task, kept_parts, ghosts, family)
    train = make_distillation_settings(profile, task, lr, bool(ghosts), times, taps)
    tokens = ghosts.tokens if ghosts else 0
    if AUGMENTED[profile] if augmented is None else augmented:
        inputs["augmented"] = grids.augmented_rows_spec(profile, task)
    elif CACHED[profile] and not tokens and not grids.find_reader_span(profile):
        # The teacher's states do not depend on learning rates, so all rates share them.
        read = make_distillation_settings(profile, task, has_ghosts=False)
        state_args = make_common_arguments(
            profile, task, train=read, distil=Distil(mask=True)
        )
        inputs["states"] = Spec("states", state_args, {"teacher": inputs["teacher"]})
    distil = Distil(mask=profile != "paper")
    args = make_common_arguments(
        profile,
        task,
        train=set_padded_length(train, tokens),
        surgery=surgery,
        distil=distil,
    )
    start = Spec("distil", args, inputs)
    taught_by = inputs["teacher"]
    return finetuned_spec(
        profile, task, start, tokens, targets, taught_by, bool(ghosts), taps
    )


def student_on_labels_spec(
    profile: str,
    task: str,
    kept_parts: int,
    ghosts: Ghost | None = None,
    family: str = "bert",
    lr: float = 0.0,
) -> Spec:
    """Return the Spec of a control: a student that learns the labels in both stages.

    Cut, epochs, rates and steps are those of the student. So what the student scores
    above it is due to the teacher's states, and not to longer training. The arguments
    are those of `student_spec`."""
    train = make_distillation_settings(profile, task, lr, bool(ghosts))
    start = untrained_student_spec(profile, task, kept_parts, ghosts, family)
    train = set_padded_length(train, ghosts.tokens if ghosts else 0)
    first = make_common_arguments(profile, task, train=train, targets=LABELS)
    return finetuned_spec(
        profile,
        task,
        Spec("finetune", first, {"start": start}),
        has_ghosts=bool(ghosts),
    )
