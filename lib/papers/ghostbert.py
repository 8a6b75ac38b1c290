"""This module has GhostBERT's settings, Specs, axes of grids, and cost columns of
tables.

The paper is Huang et al., ACL 2021. At `paper` the settings are the printed ones
(Appendix A.2, Table 8) wherever the paper prints one. `toy` and `mini` have settings of
their own, chosen before their first recorded run. The pages list each difference
(`data/published/ghostbert/deviations.toml`). The module is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from lib.core.names import Refused
from lib.core.options import Distil, Ghost, Importance, Targets, Train
from lib.core.rows import Row
from lib.core.spec import Spec, plain
from lib.core.types import Json
from lib.measure import cost
from lib.papers import grids, published
from lib.papers.grids import LABELS, common, shape, teacher

if TYPE_CHECKING:
    import pandas as pd

# ---- SETTINGS

S = grids.settings("ghostbert")
# These are the tables of ghostbert.toml, which says what each is.
WIDTHS: tuple[int, ...] = S.WIDTHS
MODELS: tuple[str, ...] = S.MODELS
WHOLE: tuple[str, ...] = S.WHOLE
LONG: tuple[str, ...] = S.LONG
FIVE: tuple[str, ...] = S.FIVE
PRUNED: tuple[str, ...] = S.PRUNED
KERNELS: tuple[int, ...] = S.KERNELS
TIMES: int = S.TIMES
FEATURES: tuple[int, ...] = S.FEATURES
NAMES: dict[str, tuple[str, str]] = S.NAMES
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
SAMPLED: dict[str, tuple[str, ...]] = S.SAMPLED
SWEPT: dict[str, tuple[str, ...]] = S.SWEPT
SWEPT_SEEDS: dict[str, tuple[int, ...]] = S.SWEPT_SEEDS
CUT: dict[str, tuple[int, ...]] = S.CUT
SWEPT_CUT: dict[str, tuple[int, ...]] = S.SWEPT_CUT
AUGMENTED: dict[str, bool] = S.AUGMENTED
CACHED: dict[str, bool] = S.CACHED
TWICE: dict[str, bool] = S.TWICE
LONGER: dict[str, tuple[int, ...]] = S.LONGER
TAPS: dict[str, float] = S.TAPS
ONE_LENGTH: dict[str, int] = S.ONE_LENGTH
DISTIL: dict[str, Train] = S.DISTIL
FINETUNE: dict[str, Train] = S.FINETUNE
IMPORTANCE: dict[str, Importance] = S.IMPORTANCE
GHOST: Json = S.GHOST
ABLATIONS: dict[str, Json] = S.ABLATIONS
POSITIONS: dict[str, Json] = S.POSITIONS
HEADS = 12  # A width is a whole number M of kept heads, of 12 (ELECTRA-small has 4).
DEVIATIONS = published.deviations("ghostbert")
# Names of rows with another training end so.
APART, MORE, AGAIN = ", own rate of taps", ", distilled longer", ", labels twice"

tasks = partial(grids.tasks, by_profile=TASKS)
picked = grids.picked
seeds = partial(grids.seeds, by_profile=SEEDS)
sampled = partial(grids.tasks, by_profile=SAMPLED)
swept = partial(grids.tasks, by_profile=SWEPT)
swept_seeds = partial(grids.seeds, by_profile=SWEPT_SEEDS)


def five(profile: str, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks of the tables of five tasks, as far as `swept` has them."""
    return tasks(profile, chosen or [name for name in swept(profile) if name in FIVE])


def parts(family: str = "bert") -> int:
    """Return how many parts a whole width has: the heads of the paper's model of a
    kind."""
    return shape("paper", family).heads


def kept_heads(profile: str, m: int, family: str = "bert") -> int:
    """Return the number of heads that an encoder keeps at a width of m parts.

    Raises Refused, naming the possible widths, where that is no whole number from 1 to
    all, and where neurons do not split as heads do."""
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


def possible(profile: str, widths: Sequence[int]) -> tuple[int, ...]:
    """Return those of some widths that the heads of an encoder can have.

    Raises Refused where there is none.
    """
    heads = shape(profile).heads
    possible_widths = tuple(m for m in widths if not m * heads % HEADS)
    return possible_widths or (kept_heads(profile, widths[0]),)


def widths(profile: str, chosen: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the widths of the tables over widths, in twelfths.

    Those that the heads cannot have are left out.
    """
    return possible(profile, tuple(chosen) or CUT[profile])


def swept_widths(profile: str, chosen: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the widths of the tables that change one thing at a time."""
    return possible(profile, tuple(chosen) or SWEPT_CUT[profile])


# ---- SPECS


def ghost(profile: str, **changes: Any) -> Ghost:
    """Return the paper's ghost module (section 2.1); changes: fields with other
    values."""
    return Ghost(**GHOST | {"mask": profile != "paper"} | changes)


def operation(
    profile: str, task: str, m: int, ghosts: Ghost | None, family: str = "bert"
) -> tuple[list[Json], dict[str, Spec]]:
    """Return (surgery, inputs) that make a student of a width of m parts out of a
    fine-tuned teacher.

    A width of all heads has no cut. What a ghost stands in for stays whole (section
    4.2). Raises ValueError, before anything runs, for a width or ghosts that the
    encoder cannot have."""
    heads, surgery = kept_heads(profile, m, family), []
    pruned = heads < shape(profile, family).heads
    inputs = {"teacher": teacher(profile, task, family)}
    if pruned:
        uncut = {"whole": list(ghosts.uncut)} if ghosts and ghosts.uncut else {}
        surgery.append({"op": "cut", "heads": heads} | uncut)
        ranked = common(profile, task, importance=IMPORTANCE[profile])
        inputs["importance"] = Spec(
            "importance", ranked, {"teacher": inputs["teacher"]}
        )
    if ghosts:
        ghosts.fits(pruned)
        surgery.append({"op": "ghost"} | plain(ghosts))
    return surgery, inputs


def padded(train: Train, tokens: int) -> Train:
    """Return the settings with every row padded to one number of tokens.

    0 leaves the settings as they are.
    """
    return replace(train, max_length=tokens, pad_to=tokens) if tokens else train


def finetuned(
    profile: str,
    task: str,
    start: Spec,
    tokens: int = 0,
    targets: Targets = LABELS,
    taught_by: Spec | None = None,
    ghosts: bool = True,
    taps: float = 0.0,
) -> Spec:
    """Return the Spec of the last stage (section 2.3): a model `start` learns from its
    targets.

    These are the labels or, where the targets ask for them, the answers of the model
    `taught_by`. ghosts: whether it has ghosts; without, it has no taps that could have
    a rate of their own. taps: learning rate of the taps; 0 means the profile's."""
    train = padded(FINETUNE[profile], tokens)
    train = replace(train, taps=(taps or train.taps) if ghosts else 0.0)
    inputs = {"start": start} | (
        {"teacher": taught_by} if targets.kind != "hard" else {}
    )
    return Spec("finetune", common(profile, task, train=train, targets=targets), inputs)


def distillation(
    profile: str,
    task: str,
    lr: float = 0.0,
    ghosts: bool = True,
    times: int = 1,
    taps: float = 0.0,
) -> Train:
    """Return the settings of the distillation stage of a task.

    times: multiple of the profile's epochs. A learning rate of 0 means the profile's.
    ghosts, taps: as in `finetuned`."""
    train = DISTIL[profile]
    epochs = 1 if profile == "paper" and task in LONG else train.epochs
    taps = (taps or train.taps) if ghosts else 0.0
    return replace(train, epochs=times * epochs, lr=lr or train.lr, taps=taps)


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
    """Return the Spec of a student: cut to `heads` kept heads, distilled, then
    fine-tuned.

    See section 2.3. ghosts: its Ghost; None is the pruned baseline, made by the same
    procedure. augmented: whether it is distilled on augmented rows; None means what the
    profile does. targets: targets of the last stage. lr: learning rate of the
    distillation; 0 means the profile's. times: multiple of its epochs. taps: learning
    rate of the taps in both stages; 0 means the profile's."""
    surgery, inputs = operation(profile, task, heads, ghosts, family)
    train = distillation(profile, task, lr, bool(ghosts), times, taps)
    tokens = ghosts.tokens if ghosts else 0
    if AUGMENTED[profile] if augmented is None else augmented:
        inputs["augmented"] = grids.augmentation(profile, task)
    elif CACHED[profile] and not tokens and not grids.asked(profile):
        read = distillation(
            profile, task, ghosts=False
        )  # States do not depend on any rate.
        state_args = common(profile, task, train=read, distil=Distil(mask=True))
        inputs["states"] = Spec("states", state_args, {"teacher": inputs["teacher"]})
    distil = Distil(mask=profile != "paper")
    args = common(
        profile, task, train=padded(train, tokens), surgery=surgery, distil=distil
    )
    start = Spec("distil", args, inputs)
    taught_by = inputs["teacher"]
    return finetuned(
        profile, task, start, tokens, targets, taught_by, bool(ghosts), taps
    )


def labelled(
    profile: str,
    task: str,
    heads: int,
    ghosts: Ghost | None = None,
    family: str = "bert",
    lr: float = 0.0,
) -> Spec:
    """Return the Spec of the control of a student: cut alike, it learns the labels in
    both stages.

    Epochs, rates and steps are those of the student, so what the student has above it
    is due to the teacher's states and not to longer training. The arguments are those
    of `student`."""
    train = distillation(profile, task, lr, bool(ghosts))
    start = untrained(profile, task, heads, ghosts, family)
    train = padded(train, ghosts.tokens if ghosts else 0)
    first = common(profile, task, train=train, targets=LABELS)
    return finetuned(
        profile, task, Spec("finetune", first, {"start": start}), ghosts=bool(ghosts)
    )


def controls(
    profile: str, ghosts: Ghost, lr: float = 0.0
) -> dict[str, Callable[..., Spec]]:
    """Return {row of Table 4: f(profile, task, m) -> its Spec} of the controls at a
    profile.

    They are the model without ghosts, and both models with labels in both stages. Only
    the profiles in TWICE have them."""
    made = {
        "Prune": partial(student, lr=lr),
        f"Prune{AGAIN}": partial(labelled, lr=lr),
        f"GhostBERT{AGAIN}": partial(labelled, ghosts=ghosts, lr=lr),
    }
    return made if TWICE[profile] else {}


def whole_controls(profile: str) -> dict[tuple[int, str], Callable[..., Spec]]:
    """Return {(width, row of Figure 1): f(profile, task) -> its Spec} of its controls
    at a profile.

    Half of the model and the whole model learn the labels in both stages, for as many
    steps at the same rates as those that are distilled. Only the profiles in TWICE have
    them."""
    has_controls = TWICE[profile] and not isinstance(profile, grids.ReaderProfile)
    names = {6: f"Prune{AGAIN}", HEADS: f"Plain{AGAIN}"} if has_controls else {}
    return {(m, name): partial(labelled, heads=m) for m, name in names.items()}


def fair(
    profile: str, widths: Iterable[int]
) -> dict[tuple[int, str], Callable[..., Spec]]:
    """Return {(width, row of Table 3): f(profile, task) -> its Spec} of models with
    more training.

    One pair is distilled TIMES as long, at the widths of LONGER. In one row the taps of
    ghosts have the rate of TAPS, where there is one."""
    made, longer = (
        {},
        () if isinstance(profile, grids.ReaderProfile) else LONGER[profile],
    )
    for m in (m for m in widths if m in longer):
        for name in MODELS:
            made[m, name + MORE] = partial(model_spec, m=m, model=name, times=TIMES)
        if taps := TAPS[profile]:
            made[m, "Ghost" + APART] = partial(
                model_spec, m=m, model="Ghost", taps=taps
            )
    return made


def augmentations(profile: str, tasks: Iterable[str], seed: int) -> list[Row]:
    """Return rows of the augmented texts of some tasks, made once or, where it draws,
    at a seed."""
    made = {task: grids.augmentation(profile, task) for task in tasks}
    return [
        Row(spec if spec.seed is not None else spec.with_seed(seed), task=task)
        for task, spec in made.items()
    ]


def model_spec(
    profile: str, task: str, m: int, model: str, family: str = "bert", **more: Any
) -> Spec:
    """Return the Spec of a model by its name.

    "Plain" is fine-tuned alone, "Ghost" is a student with ghosts, "Prune" or
    "Distilled" a student without. more: arguments of `student`."""
    if model == "Plain":
        return teacher(profile, task, family)
    module = ghost(profile) if model == "Ghost" else None
    return student(profile, task, m, module, family, **more)


def untrained(
    profile: str, task: str, heads: int, ghosts: Ghost | None, family: str = "bert"
) -> Spec:
    """Return the Spec of a student before training: cut, with its ghosts as drawn."""
    surgery, inputs = operation(profile, task, heads, ghosts, family)
    return Spec("operate", {"surgery": surgery}, inputs)


def undistilled(profile: str, task: str, heads: int, ghosts: Ghost | None) -> Spec:
    """Return the Spec of a model that is cut, gets ghosts, and learns the labels
    alone."""
    return finetuned(profile, task, untrained(profile, task, heads, ghosts))


def distillations(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the distillations behind some students, each with that Spec.

    They have the labels of their students, and no score: measures read them.
    """
    return [
        row.with_spec(first)
        for row in rows
        for first in [row.spec.parents.get("start")]
        if first and first.step == "distil"
    ]


# ---- AXES


def convolutions(profile: str) -> dict[str, Json]:
    """Return {row of Table 5: fields of its Ghost}.

    Conv1D_S mixes channels and Conv1D_F mixes tokens. There the softmax is over all
    weights that one output sums: over the taps alone, an output would be a sum over 768
    channels. The paper leaves this open."""
    tied = {"softmax_over": "inputs", "tokens": ONE_LENGTH[profile]}
    return {
        "Conv1D_S": {"kind": "conv1d_s", "softmax_over": "inputs"},
        "Conv1D_F": {"kind": "conv1d_f", **tied},
        "Conv2D": {"kind": "conv2d"},
        "DWConv": {},
    }


# ---- TABLES


def lines_of_table_1(widths: Iterable[int]) -> dict[str, tuple[str, str, int]]:
    """Return {name: (family, model, heads)} of the rows of Table 1 and of the control.

    They are in the order of the table.
    """
    lines = {}
    for family, (name, ghosted) in NAMES.items():
        heads = parts(family)
        lines[name] = family, "Plain", heads
        lines[f"{name}, distilled"] = family, "Distilled", heads
        for m in (heads, *(widths if family in PRUNED else ())):
            lines[f"{ghosted} (m = {m}/{heads})"] = family, "Ghost", m
    return lines


# ---- COST COLUMNS


def costs(family: str, model: str, m: int) -> tuple[int, int, int]:
    """Return (FLOPs as the paper counts, FLOPs as PyTorch counts, parameters) of a
    network at `paper`.

    model: "Ghost", or another one without ghosts. m: kept heads of 12. They are of one
    sentence of 128 tokens."""
    base, module = shape("paper", family), ghost("paper") if model == "Ghost" else None
    printed = cost.flops(base, heads=m, ghost=module, convention="ghostbert")
    return (
        printed,
        cost.flops(base, heads=m, ghost=module),
        cost.parameters(base, m, module),
    )


def cost_cells(
    unit: str, text: str, as_printed: int | None, true: int | None
) -> dict[tuple[str, str], str]:
    """Return three cells of a row: {(unit, "printed", "by its rule" or "true"): text}.

    unit: "GFLOPs" or "M parameters". text: the printed cell. as_printed, true: counts
    by the paper's rule and as PyTorch counts, or None."""
    shown = "–" if as_printed is None else cost.shown(as_printed, unit)
    exact = "–" if true is None else f"{true / (1e9 if unit == 'GFLOPs' else 1e6):.3f}"
    return {
        (unit, "printed"): text,
        (unit, "by its rule"): shown,
        (unit, "true"): exact,
    }


def module_costs(
    modules: Mapping[str, Ghost], widths: Iterable[int], printed: pd.DataFrame
) -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """Return rows of a table {(width, label): cells} of ghost modules on BERT-base, at
    128 tokens.

    modules: {label: Ghost}. printed: a published table with its costs, indexed by
    ("1/12", label)."""
    base, table = cost.SHAPES["bert-base"], {}
    for m, label in product(widths, modules):
        key, variant = (f"{m}/12", label), {"heads": m, "ghost": modules[label]}
        gflops, weights = (
            str(printed[name].get(key, "–")) for name in ("FLOPs(G)", "#params(M)")
        )
        counts = (
            cost.flops(base, **variant, convention="ghostbert"),
            cost.flops(base, **variant),
        )
        number = cost.parameters(base, **variant)
        table[key] = cost_cells("GFLOPs", gflops, *counts)
        table[key] |= cost_cells("M parameters", weights, number, number)
        ghosts = cost.ghost_parameters(base, modules[label], m) / 1e6
        table[key]["M parameters", "ghosts"] = f"{ghosts:.4f}"
    return table
