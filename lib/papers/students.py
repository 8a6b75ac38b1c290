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
from lib.papers.grids import LABELS, common_arguments, shape, teacher
from lib.stats import cost

S = grids.settings("students")
# Tables of students.toml, which describes each.
DISTIL: dict[str, Train] = S.DISTIL
FINETUNE: dict[str, Train] = S.FINETUNE
IMPORTANCE: dict[str, Importance] = S.IMPORTANCE
AUGMENTED: dict[str, bool] = S.AUGMENTED
CACHED: dict[str, bool] = S.CACHED
LONG: tuple[str, ...] = S.LONG
# Parts of a whole width. A width is m kept heads of these 12 (ELECTRA-small has 4).
HEADS = 12


def parts(family: str = "bert") -> int:
    """Return the number of parts of a whole width: the heads of the paper's model."""
    return shape("paper", family).heads


def kept_heads(profile: str, m: int, family: str = "bert") -> int:
    """Return the number of heads that an encoder keeps at a width of m parts.

    Raises Refused, with the possible widths, where m parts are no whole number of
    heads, or where the neurons cannot be split like the heads."""
    all_parts, encoder = parts(family), shape(profile, family)
    work = [
        width
        for width in range(1, all_parts + 1)
        if not width * encoder.heads % all_parts
    ]
    if type(m) is not int or m not in work:
        why = (
            f"width {m}/{all_parts} of {encoder.heads} heads is no whole number of them"
        )
        raise Refused(f"{why}: take {', '.join(map(str, work))} of {all_parts}")
    return cost.kept_heads(encoder, m * encoder.heads // all_parts)


def select_widths(profile: str, widths: Sequence[int]) -> tuple[int, ...]:
    """Return those widths that are a whole number of an encoder's heads.

    Raises Refused where there is none."""
    heads = shape(profile).heads
    possible_widths = tuple(m for m in widths if not m * heads % HEADS)
    return possible_widths or (kept_heads(profile, widths[0]),)


def describe_cut(
    profile: str, task: str, m: int, ghosts: Ghost | None, family: str = "bert"
) -> tuple[list[Json], dict[str, Spec]]:
    """Return (surgery, inputs) that cut a fine-tuned teacher to a width of m parts.

    With `ghosts` the surgery adds them. A whole width has no cut. The projections that
    a ghost replaces stay whole (section 4.2). Raises ValueError, before anything runs,
    for a width or ghosts that the encoder cannot have."""
    heads, surgery = kept_heads(profile, m, family), []
    pruned = heads < shape(profile, family).heads
    inputs = {"teacher": teacher(profile, task, family)}
    if pruned:
        uncut = {"whole": list(ghosts.uncut)} if ghosts and ghosts.uncut else {}
        surgery.append({"op": "cut", "heads": heads} | uncut)
        ranked = common_arguments(profile, task, importance=IMPORTANCE[profile])
        inputs["importance"] = Spec(
            "importance", ranked, {"teacher": inputs["teacher"]}
        )
    if ghosts:
        ghosts.fits(pruned)
        surgery.append({"op": "ghost"} | to_plain_json(ghosts))
    return surgery, inputs


def pad_rows(train: Train, tokens: int) -> Train:
    """Return settings in which every row is padded to this number of tokens.

    0 leaves the settings as they are."""
    return replace(train, max_length=tokens, pad_to=tokens) if tokens else train


def finetuned_spec(
    profile: str,
    task: str,
    start: Spec,
    tokens: int = 0,
    targets: Targets = LABELS,
    taught_by: Spec | None = None,
    ghosts: bool = True,
    taps: float = 0.0,
) -> Spec:
    """Return the Spec of the last stage (section 2.3): fine-tuning of a model `start`.

    targets: the labels or, for other kinds, answers of the model `taught_by`. ghosts:
    whether the model has ghosts. taps: learning rate of the ghosts' kernel weights; 0
    means the profile's."""
    train = pad_rows(FINETUNE[profile], tokens)
    train = replace(train, taps=(taps or train.taps) if ghosts else 0.0)
    inputs = {"start": start} | (
        {"teacher": taught_by} if targets.kind != "hard" else {}
    )
    return Spec(
        "finetune",
        common_arguments(profile, task, train=train, targets=targets),
        inputs,
    )


def distillation(
    profile: str,
    task: str,
    lr: float = 0.0,
    ghosts: bool = True,
    times: int = 1,
    taps: float = 0.0,
) -> Train:
    """Return the settings of the distillation stage of a task.

    lr: learning rate; 0 means the profile's. times: multiple of the profile's epochs.
    ghosts, taps: as in `finetuned_spec`."""
    train = DISTIL[profile]
    epochs = 1 if profile == "paper" and task in LONG else train.epochs
    taps = (taps or train.taps) if ghosts else 0.0
    return replace(train, epochs=times * epochs, lr=lr or train.lr, taps=taps)


def untrained_student(
    profile: str, task: str, heads: int, ghosts: Ghost | None, family: str = "bert"
) -> Spec:
    """Return the Spec of a student before training: cut, with untrained ghosts."""
    surgery, inputs = describe_cut(profile, task, heads, ghosts, family)
    return Spec("operate", {"surgery": surgery}, inputs)


def student(
    profile: str,
    task: str,
    heads: int,
    ghosts: Ghost | None = None,
    family: str = "bert",
    augmented: bool | None = None,
    targets: Targets = LABELS,
    lr: float = 0.0,
    times: int = 1,
    taps: float = 0.0,
) -> Spec:
    """Return the Spec of a student: cut, distilled, then fine-tuned (section 2.3).

    heads: parts of the width that are kept. ghosts: its Ghost; None gives the pruned
    baseline, made by the same procedure. augmented: whether it is distilled on
    augmented rows; None means the profile's choice. targets: targets of the last stage.
    lr: learning rate of the distillation; 0 means the profile's. times: multiple of its
    epochs. taps: learning rate of the ghosts' kernel weights in both stages; 0 means
    the profile's."""
    surgery, inputs = describe_cut(profile, task, heads, ghosts, family)
    train = distillation(profile, task, lr, bool(ghosts), times, taps)
    tokens = ghosts.tokens if ghosts else 0
    if AUGMENTED[profile] if augmented is None else augmented:
        inputs["augmented"] = grids.augmentation(profile, task)
    elif CACHED[profile] and not tokens and not grids.span_of_reader(profile):
        # The teacher's states do not depend on learning rates, so all rates share them.
        read = distillation(profile, task, ghosts=False)
        state_args = common_arguments(
            profile, task, train=read, distil=Distil(mask=True)
        )
        inputs["states"] = Spec("states", state_args, {"teacher": inputs["teacher"]})
    distil = Distil(mask=profile != "paper")
    args = common_arguments(
        profile, task, train=pad_rows(train, tokens), surgery=surgery, distil=distil
    )
    start = Spec("distil", args, inputs)
    taught_by = inputs["teacher"]
    return finetuned_spec(
        profile, task, start, tokens, targets, taught_by, bool(ghosts), taps
    )


def student_on_labels(
    profile: str,
    task: str,
    heads: int,
    ghosts: Ghost | None = None,
    family: str = "bert",
    lr: float = 0.0,
) -> Spec:
    """Return the Spec of a control: a student that learns the labels in both stages.

    Cut, epochs, rates and steps are those of the student. So what the student scores
    above it is due to the teacher's states, and not to longer training. The arguments
    are those of `student`."""
    train = distillation(profile, task, lr, bool(ghosts))
    start = untrained_student(profile, task, heads, ghosts, family)
    train = pad_rows(train, ghosts.tokens if ghosts else 0)
    first = common_arguments(profile, task, train=train, targets=LABELS)
    return finetuned_spec(
        profile, task, Spec("finetune", first, {"start": start}), ghosts=bool(ghosts)
    )
