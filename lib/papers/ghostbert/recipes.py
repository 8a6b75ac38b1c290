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
from lib.papers.grids import find_encoder_shape, teacher_spec
from lib.papers.students import AUGMENTED as AUGMENTED
from lib.papers.students import CACHED as CACHED
from lib.papers.students import DISTIL as DISTIL
from lib.papers.students import FINETUNE as FINETUNE
from lib.papers.students import HEADS as HEADS
from lib.papers.students import IMPORTANCE as IMPORTANCE
from lib.papers.students import LONG as LONG
from lib.papers.students import count_kept_heads as count_kept_heads
from lib.papers.students import count_width_parts as count_width_parts
from lib.papers.students import finetuned_spec as finetuned_spec
from lib.papers.students import make_distillation_settings as make_distillation_settings
from lib.papers.students import select_divisible_widths as select_divisible_widths
from lib.papers.students import student_on_labels_spec as student_on_labels_spec
from lib.papers.students import student_spec as student_spec
from lib.papers.students import untrained_student_spec as untrained_student_spec
from lib.stats import cost

if TYPE_CHECKING:
    import pandas as pd

S = grids.read_settings("ghostbert")
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
DEVIATIONS = published.read_deviations("ghostbert")
# Ends of the names of rows with another training.
APART, MORE, AGAIN = ", own rate of taps", ", distilled longer", ", labels twice"

tasks = partial(grids.select_tasks, by_profile=TASKS)
picked = grids.pick_values
seeds = partial(grids.select_seeds, by_profile=SEEDS)
sampled = partial(grids.select_tasks, by_profile=SAMPLED)
swept = partial(grids.select_tasks, by_profile=SWEPT)
swept_seeds = partial(grids.select_seeds, by_profile=SWEPT_SEEDS)


def select_five_tasks(
    profile: str, chosen_tasks: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the tasks of those tables that have five tasks, at most those of
    `swept`."""
    return tasks(
        profile, chosen_tasks or [name for name in swept(profile) if name in FIVE]
    )


def select_table_widths(
    profile: str, chosen_widths: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the widths of the tables over widths, in twelfths.

    Widths that are no whole number of the encoder's heads are left out."""
    return select_divisible_widths(profile, tuple(chosen_widths) or CUT[profile])


def select_swept_widths(
    profile: str, chosen_widths: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the widths, in twelfths, of the tables that change one thing at a time."""
    return select_divisible_widths(profile, tuple(chosen_widths) or SWEPT_CUT[profile])


def make_ghost_options(profile: str, **changes: Any) -> Ghost:
    """Return the options of the paper's ghost module (section 2.1).

    changes: fields with other values."""
    return Ghost(**GHOST | {"mask": profile != "paper"} | changes)


def list_control_makers(
    profile: str, ghosts: Ghost, learning_rate: float = 0.0
) -> dict[str, Callable[..., Spec]]:
    """Return {row of Table 4: f(profile, task, m) -> Spec} of the controls.

    They are the model without ghosts, and both models with labels in both stages. Only
    the profiles in TWICE have them."""
    made = {
        "Prune": partial(student_spec, lr=learning_rate),
        f"Prune{AGAIN}": partial(student_on_labels_spec, lr=learning_rate),
        f"GhostBERT{AGAIN}": partial(
            student_on_labels_spec, ghosts=ghosts, lr=learning_rate
        ),
    }
    return made if TWICE[profile] else {}


def list_whole_width_controls(
    profile: str,
) -> dict[tuple[int, str], Callable[..., Spec]]:
    """Return {(width, row of Figure 1): f(profile, task) -> Spec} of the controls.

    Half of the model and the whole model learn the labels in both stages, with the
    steps and rates of the distilled models. Only the profiles in TWICE have them."""
    has_controls = TWICE[profile] and not isinstance(profile, grids.ReaderProfile)
    names = {6: f"Prune{AGAIN}", HEADS: f"Plain{AGAIN}"} if has_controls else {}
    return {
        (m, name): partial(student_on_labels_spec, kept_parts=m)
        for m, name in names.items()
    }


def list_longer_trained_controls(
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
            made[m, name + MORE] = partial(
                model_spec, width_in_twelfths=m, model=name, times=TIMES
            )
        if taps := TAPS[profile]:
            made[m, "Ghost" + APART] = partial(
                model_spec, width_in_twelfths=m, model="Ghost", taps=taps
            )
    return made


def make_augmentation_rows(profile: str, tasks: Iterable[str], seed: int) -> list[Row]:
    """Return rows of the augmented texts of some tasks.

    One augmentation serves all seeds, unless the profile draws rows: then it is at
    `seed`."""
    made = {task: grids.augmented_rows_spec(profile, task) for task in tasks}
    return [
        Row(spec if spec.seed is not None else spec.with_seed(seed), task=task)
        for task, spec in made.items()
    ]


def model_spec(
    profile: str,
    task: str,
    width_in_twelfths: int,
    model: str,
    family: str = "bert",
    **student_options: Any,
) -> Spec:
    """Return the Spec of a model by its name.

    "Plain" is fine-tuned alone, "Ghost" is a student with ghosts, and "Prune" and
    "Distilled" are students without. student_options: arguments of `student_spec`."""
    if model == "Plain":
        return teacher_spec(profile, task, family)
    module = make_ghost_options(profile) if model == "Ghost" else None
    return student_spec(
        profile, task, width_in_twelfths, module, family, **student_options
    )


def undistilled_spec(
    profile: str, task: str, kept_heads: int, ghosts: Ghost | None
) -> Spec:
    """Return the Spec of a model that is cut, gets ghosts, and only learns the
    labels."""
    return finetuned_spec(
        profile, task, untrained_student_spec(profile, task, kept_heads, ghosts)
    )


def list_convolutions(profile: str) -> dict[str, Json]:
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


def list_rows_of_table_1(widths: Iterable[int]) -> dict[str, tuple[str, str, int]]:
    """Return {name: (family, model, heads)} of the rows of Table 1 and of the control.

    They are in the order of the table."""
    lines = {}
    for family, (name, ghosted) in NAMES.items():
        heads = count_width_parts(family)
        lines[name] = family, "Plain", heads
        lines[f"{name}, distilled"] = family, "Distilled", heads
        for m in (heads, *(widths if family in PRUNED else ())):
            lines[f"{ghosted} (m = {m}/{heads})"] = family, "Ghost", m
    return lines


def label_whole_width(family: str) -> dict[str, int]:
    """Return {"of": heads} for an encoder whose whole width is not 12 heads, else {}.

    Labels of rows show it."""
    heads = count_width_parts(family)
    return {} if heads == PARTS else {"of": heads}


def count_costs(family: str, model: str, kept_heads: int) -> tuple[int, int, int]:
    """Return (FLOPs as the paper counts, FLOPs as PyTorch counts, parameters) of a
    network at `paper`.

    model: "Ghost", or another one without ghosts. kept_heads: kept heads. FLOPs are
    those of one sentence of 128 tokens."""
    base, module = (
        find_encoder_shape("paper", family),
        make_ghost_options("paper") if model == "Ghost" else None,
    )
    printed = cost.flops(base, heads=kept_heads, ghost=module, convention="token head")
    return (
        printed,
        cost.flops(base, heads=kept_heads, ghost=module),
        cost.parameters(base, kept_heads, module),
    )


def format_cost_cells(
    unit: str, printed_text: str, paper_count: int | None, true_count: int | None
) -> dict[tuple[str, str], str]:
    """Return three cells of a row: {(unit, "printed", "by its rule" or "true"): text}.

    unit: "GFLOPs" or "M parameters". printed_text: the printed cell. paper_count,
    true_count: counts by the paper's rule and as PyTorch counts; None shows a dash."""
    shown = "–" if paper_count is None else cost.format_count(paper_count, unit)
    exact = (
        "–"
        if true_count is None
        else f"{true_count / (1e9 if unit == 'GFLOPs' else 1e6):.3f}"
    )
    return {
        (unit, "printed"): printed_text,
        (unit, "by its rule"): shown,
        (unit, "true"): exact,
    }


def count_module_costs(
    ghosts_by_label: Mapping[str, Ghost], widths: Iterable[int], printed: pd.DataFrame
) -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """Return {(width, label): cells} of the costs of ghost modules on BERT-base.

    Costs are at 128 tokens. ghosts_by_label: {label: Ghost}. printed: a published table
    with its costs, indexed by ("1/12", label)."""
    base, table = cost.SHAPES["bert-base"], {}
    for m, label in product(widths, ghosts_by_label):
        key, variant = (f"{m}/12", label), {"heads": m, "ghost": ghosts_by_label[label]}
        gflops, weights = (
            str(printed[name].get(key, "–")) for name in ("FLOPs(G)", "#params(M)")
        )
        counts = (
            cost.flops(base, **variant, convention="token head"),
            cost.flops(base, **variant),
        )
        number = cost.parameters(base, **variant)
        table[key] = format_cost_cells("GFLOPs", gflops, *counts)
        table[key] |= format_cost_cells("M parameters", weights, number, number)
        ghosts = cost.ghost_parameters(base, ghosts_by_label[label], m) / 1e6
        table[key]["M parameters", "ghosts"] = f"{ghosts:.4f}"
    return table
