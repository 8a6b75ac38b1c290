"""This module has GhostBERT's settings, Specs, axes of grids, and cost columns.

The paper is Huang et al., ACL 2021. At `paper` the settings are the printed ones
(Appendix A.2, Table 8) wherever the paper prints one. `toy` and `mini` have settings of
their own, chosen before their first recorded run. The pages list each difference
(`data/published/ghostbert/deviations.toml`). The module is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from lib.core.options import Ghost
from lib.core.rows import PARTS, Row
from lib.core.spec import Spec
from lib.core.types import Json
from lib.papers import grids, published
from lib.papers.grids import shape, teacher
from lib.papers.students import AUGMENTED as AUGMENTED
from lib.papers.students import CACHED as CACHED
from lib.papers.students import DISTIL as DISTIL
from lib.papers.students import FINETUNE as FINETUNE
from lib.papers.students import HEADS as HEADS
from lib.papers.students import IMPORTANCE as IMPORTANCE
from lib.papers.students import LONG as LONG
from lib.papers.students import distillation as distillation
from lib.papers.students import finetuned_spec as finetuned_spec
from lib.papers.students import kept_heads as kept_heads
from lib.papers.students import parts as parts
from lib.papers.students import select_widths as select_widths
from lib.papers.students import student as student
from lib.papers.students import student_on_labels as student_on_labels
from lib.papers.students import untrained_student as untrained_student
from lib.stats import cost

if TYPE_CHECKING:
    import pandas as pd

S = grids.settings("ghostbert")
# Tables of settings.toml, which describes each.
WIDTHS: tuple[int, ...] = S.WIDTHS
MODELS: tuple[str, ...] = S.MODELS
WHOLE: tuple[str, ...] = S.WHOLE
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
TWICE: dict[str, bool] = S.TWICE
LONGER: dict[str, tuple[int, ...]] = S.LONGER
TAPS: dict[str, float] = S.TAPS
ONE_LENGTH: dict[str, int] = S.ONE_LENGTH
GHOST: Json = S.GHOST
ABLATIONS: dict[str, Json] = S.ABLATIONS
POSITIONS: dict[str, Json] = S.POSITIONS
DEVIATIONS = published.deviations("ghostbert")
# Ends of the names of rows with another training.
APART, MORE, AGAIN = ", own rate of taps", ", distilled longer", ", labels twice"

tasks = partial(grids.tasks, by_profile=TASKS)
picked = grids.pick_values
seeds = partial(grids.seeds, by_profile=SEEDS)
sampled = partial(grids.tasks, by_profile=SAMPLED)
swept = partial(grids.tasks, by_profile=SWEPT)
swept_seeds = partial(grids.seeds, by_profile=SWEPT_SEEDS)


def five_tasks(profile: str, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks of those tables that have five tasks, at most those of
    `swept`."""
    return tasks(profile, chosen or [name for name in swept(profile) if name in FIVE])


def widths(profile: str, chosen: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the widths of the tables over widths, in twelfths.

    Widths that are no whole number of the encoder's heads are left out."""
    return select_widths(profile, tuple(chosen) or CUT[profile])


def swept_widths(profile: str, chosen: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the widths, in twelfths, of the tables that change one thing at a time."""
    return select_widths(profile, tuple(chosen) or SWEPT_CUT[profile])


def ghost_options(profile: str, **changes: Any) -> Ghost:
    """Return the options of the paper's ghost module (section 2.1).

    changes: fields with other values."""
    return Ghost(**GHOST | {"mask": profile != "paper"} | changes)


def controls(
    profile: str, ghosts: Ghost, lr: float = 0.0
) -> dict[str, Callable[..., Spec]]:
    """Return {row of Table 4: f(profile, task, m) -> Spec} of the controls.

    They are the model without ghosts, and both models with labels in both stages. Only
    the profiles in TWICE have them."""
    made = {
        "Prune": partial(student, lr=lr),
        f"Prune{AGAIN}": partial(student_on_labels, lr=lr),
        f"GhostBERT{AGAIN}": partial(student_on_labels, ghosts=ghosts, lr=lr),
    }
    return made if TWICE[profile] else {}


def whole_controls(profile: str) -> dict[tuple[int, str], Callable[..., Spec]]:
    """Return {(width, row of Figure 1): f(profile, task) -> Spec} of the controls.

    Half of the model and the whole model learn the labels in both stages, with the
    steps and rates of the distilled models. Only the profiles in TWICE have them."""
    has_controls = TWICE[profile] and not isinstance(profile, grids.ReaderProfile)
    names = {6: f"Prune{AGAIN}", HEADS: f"Plain{AGAIN}"} if has_controls else {}
    return {(m, name): partial(student_on_labels, heads=m) for m, name in names.items()}


def fair_comparisons(
    profile: str, widths: Iterable[int]
) -> dict[tuple[int, str], Callable[..., Spec]]:
    """Return {(width, row of Table 3): f(profile, task) -> Spec} of longer training.

    At the widths of LONGER both models are distilled TIMES as long. Where TAPS has a
    learning rate, there is also a row whose ghosts' kernels learn at that rate."""
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
    """Return rows of the augmented texts of some tasks.

    One augmentation serves all seeds, unless the profile draws rows: then it is at
    `seed`."""
    made = {task: grids.augmentation(profile, task) for task in tasks}
    return [
        Row(spec if spec.seed is not None else spec.with_seed(seed), task=task)
        for task, spec in made.items()
    ]


def model_spec(
    profile: str, task: str, m: int, model: str, family: str = "bert", **more: Any
) -> Spec:
    """Return the Spec of a model by its name.

    "Plain" is fine-tuned alone, "Ghost" is a student with ghosts, and "Prune" and
    "Distilled" are students without. more: arguments of `student`."""
    if model == "Plain":
        return teacher(profile, task, family)
    module = ghost_options(profile) if model == "Ghost" else None
    return student(profile, task, m, module, family, **more)


def undistilled_spec(profile: str, task: str, heads: int, ghosts: Ghost | None) -> Spec:
    """Return the Spec of a model that is cut, gets ghosts, and only learns the
    labels."""
    return finetuned_spec(
        profile, task, untrained_student(profile, task, heads, ghosts)
    )


def convolutions(profile: str) -> dict[str, Json]:
    """Return {row of Table 5: fields of its Ghost}.

    Conv1D_S mixes channels and Conv1D_F mixes tokens. Their softmax is over all weights
    of one output. A softmax over the taps alone would make an output a sum over 768
    channels. The paper leaves this open."""
    tied = {"softmax_over": "inputs", "tokens": ONE_LENGTH[profile]}
    return {
        "Conv1D_S": {"kind": "conv1d_s", "softmax_over": "inputs"},
        "Conv1D_F": {"kind": "conv1d_f", **tied},
        "Conv2D": {"kind": "conv2d"},
        "DWConv": {},
    }


def lines_of_table_1(widths: Iterable[int]) -> dict[str, tuple[str, str, int]]:
    """Return {name: (family, model, heads)} of the rows of Table 1 and of the control.

    They are in the order of the table."""
    lines = {}
    for family, (name, ghosted) in NAMES.items():
        heads = parts(family)
        lines[name] = family, "Plain", heads
        lines[f"{name}, distilled"] = family, "Distilled", heads
        for m in (heads, *(widths if family in PRUNED else ())):
            lines[f"{ghosted} (m = {m}/{heads})"] = family, "Ghost", m
    return lines


def whole_width(family: str) -> dict[str, int]:
    """Return {"of": heads} for an encoder whose whole width is not 12 heads, else {}.

    Labels of rows show it."""
    heads = parts(family)
    return {} if heads == PARTS else {"of": heads}


def costs(family: str, model: str, m: int) -> tuple[int, int, int]:
    """Return (FLOPs as the paper counts, FLOPs as PyTorch counts, parameters) of a
    network at `paper`.

    model: "Ghost", or another one without ghosts. m: kept heads. FLOPs are those of one
    sentence of 128 tokens."""
    base, module = (
        shape("paper", family),
        ghost_options("paper") if model == "Ghost" else None,
    )
    printed = cost.flops(base, heads=m, ghost=module, convention="token head")
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
    by the paper's rule and as PyTorch counts; None shows a dash."""
    shown = "–" if as_printed is None else cost.format_count(as_printed, unit)
    exact = "–" if true is None else f"{true / (1e9 if unit == 'GFLOPs' else 1e6):.3f}"
    return {
        (unit, "printed"): text,
        (unit, "by its rule"): shown,
        (unit, "true"): exact,
    }


def module_costs(
    modules: Mapping[str, Ghost], widths: Iterable[int], printed: pd.DataFrame
) -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """Return {(width, label): cells} of the costs of ghost modules on BERT-base.

    Costs are at 128 tokens. modules: {label: Ghost}. printed: a published table with
    its costs, indexed by ("1/12", label)."""
    base, table = cost.SHAPES["bert-base"], {}
    for m, label in product(widths, modules):
        key, variant = (f"{m}/12", label), {"heads": m, "ghost": modules[label]}
        gflops, weights = (
            str(printed[name].get(key, "–")) for name in ("FLOPs(G)", "#params(M)")
        )
        counts = (
            cost.flops(base, **variant, convention="token head"),
            cost.flops(base, **variant),
        )
        number = cost.parameters(base, **variant)
        table[key] = cost_cells("GFLOPs", gflops, *counts)
        table[key] |= cost_cells("M parameters", weights, number, number)
        ghosts = cost.ghost_parameters(base, modules[label], m) / 1e6
        table[key]["M parameters", "ghosts"] = f"{ghosts:.4f}"
    return table
