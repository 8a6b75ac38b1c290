"""This module has GhostBERT's settings, the Specs, descriptions of runs, of its models,
and the costs in its tables.

The paper is Huang et al., ACL 2021. At profile `paper` the settings are the printed
ones (Appendix A.2, Table 8) wherever there is one, but for the last stage, which learns
from labels (section 2.3). The small profiles `toy` and `mini`
have their own, chosen before their first recorded run;
`data/published/ghostbert/deviations.toml` lists each difference.

A width m is the number of attention heads that are kept of 12, and the same share of
neurons. A ghost is a feature that a cheap convolution computes from others; a tap is a
weight of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lib.core.memo import cache_results_while_enabled
from lib.core.options import Ghost
from lib.core.rows import PARTS, Row
from lib.core.spec import Spec
from lib.core.types import (
    EncoderFamily,
    Json,
    ModelName,
    ProfileDefault,
    ProfileName,
    Seed,
    TaskName,
)
from lib.papers import grids, published
from lib.papers.grids import find_encoder_shape, teacher_spec
from lib.papers.students import AUGMENTED as AUGMENTED
from lib.papers.students import CACHED as CACHED
from lib.papers.students import FINETUNE as FINETUNE
from lib.papers.students import (
    HEADS,
    count_heads_of_published_encoder,
    finetuned_student_spec,
    select_possible_widths,
    student_spec,
    student_trained_on_labels_spec,
    untrained_student_spec,
)
from lib.papers.students import IMPORTANCE as IMPORTANCE
from lib.papers.students import make_distillation_settings as make_distillation_settings
from lib.stats import cost

if TYPE_CHECKING:
    import pandas as pd

# {(width, name of a row): f(profile, task) -> Spec} of the control models that a table
# adds to the paper's. A width is the number of kept heads of 12, such as 3. A Spec is
# the description of the run that makes a control.
SpecFunctionByWidthAndModel = dict[tuple[int, ModelName], Callable[..., Spec]]
# {(unit, heading): text of the cell} of one row in a table of costs. Unit and heading
# name a column, such as ("GFLOPs", "printed").
CostCells = dict[tuple[str, str], str]


GhostFields: TypeAlias = Json  # {field of the options Ghost: value}.
WidthAndLabel: TypeAlias = tuple[str, str]  # Such as ("3/12", label of a ghost module).
PlainPruneGhostOrDistilled: TypeAlias = str


class EncoderAndVariant(NamedTuple):
    family: EncoderFamily
    model_variant: PlainPruneGhostOrDistilled
    kept_heads_per_layer: int


class PaperAndTrueCosts(NamedTuple):
    flops_by_paper_rule: int
    true_flops: int  # FLOPs as PyTorch counts them.
    parameters: int


S = grids.read_settings("ghostbert")
# Settings from settings.toml in this folder, where comments describe them.
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
DEVIATIONS = published.read_deviation_sentences_by_profile("ghostbert")
# Suffixes of the names of table rows whose training differs. With APART the kernels of
# ghost modules have another learning rate. With MORE the distillation is longer. With
# AGAIN the first of the two training stages learns labels, as the second does, instead
# of a teacher's hidden states.
APART = ", own rate of taps"
MORE = ", distilled longer"
AGAIN = ", labels twice"

tasks = partial(grids.select_tasks, tasks_by_profile=TASKS)
select_values_by_label = grids.select_values_by_label
seeds = partial(grids.select_seeds, seeds_by_profile=SEEDS)
select_tasks_of_tables_1_and_2 = partial(grids.select_tasks, tasks_by_profile=SAMPLED)
select_tasks_of_setting_sweeps = partial(grids.select_tasks, tasks_by_profile=SWEPT)
select_seeds_of_setting_sweeps = partial(
    grids.select_seeds, seeds_by_profile=SWEPT_SEEDS
)


def select_ablation_tasks(
    profile: ProfileName, chosen_tasks: Sequence[TaskName] = ()
) -> tuple[TaskName, ...]:
    """Return the tasks for those tables of GhostBERT that have five tasks in the paper.

    They are the chosen ones or, without a choice, those of the paper's five tasks that
    an experiment of this size has.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    chosen_tasks: names of tasks, such as "SST-2"."""
    return tasks(
        profile,
        chosen_tasks
        or [name for name in select_tasks_of_setting_sweeps(profile) if name in FIVE],
    )


def select_pruned_model_widths(
    profile: ProfileName, chosen_widths: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the widths of the pruned models in tables that compare widths.

    A width is the share of heads, in twelfths, that each layer keeps. The result has
    the chosen widths, or else those of the profile, but not those at which the encoder
    would keep no whole number of heads. Raises Refused where none is left.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    return select_possible_widths(profile, tuple(chosen_widths) or CUT[profile])


def select_model_widths_for_setting_sweeps(
    profile: ProfileName, chosen_widths: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the widths of the pruned models in tables that vary one setting at a time.

    A width is the share of heads, in twelfths, that each layer keeps. The result has
    the given widths, or else those of the profile, but not those at which the encoder
    would keep no whole number of heads. Raises Refused where none is left.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    return select_possible_widths(profile, tuple(chosen_widths) or SWEPT_CUT[profile])


def make_ghost_options(profile: ProfileName, **changes: Any) -> Ghost:
    """Return the settings of GhostBERT's ghost module (section 2.1 of the paper).

    A ghost module is a cheap convolution that adds features to a pruned layer. Padded
    tokens are set to zero before it, except at "paper".

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    changes: fields of Ghost with other values, for ablations."""
    return Ghost(**GHOST | {"mask": profile != "paper"} | changes)


def map_controls_of_table_4_to_spec_functions(
    profile: ProfileName,
    ghost_options: Ghost,
    learning_rate: float | ProfileDefault = None,
) -> dict[ModelName, Callable[..., Spec]]:
    """Return controls for GhostBERT's ablation (Table 4) that the paper lacks.

    The result is {row of the table: f(profile, task, width in twelfths) -> Spec}, where
    a Spec is the description of a run. The controls are the pruned model without ghosts
    (added convolutions), and models without and with ghosts that learn labels in both
    stages of training instead of a teacher's hidden states in the first. The result is
    empty where an experiment of this size has no such controls.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    ghost_options: settings of the ghost modules.
    learning_rate: of the first stage; None or 0 means that of the profile."""
    made = {
        "Prune": partial(student_spec, distillation_learning_rate=learning_rate),
        f"Prune{AGAIN}": partial(
            student_trained_on_labels_spec, first_stage_learning_rate=learning_rate
        ),
        f"GhostBERT{AGAIN}": partial(
            student_trained_on_labels_spec,
            ghost_options=ghost_options,
            first_stage_learning_rate=learning_rate,
        ),
    }
    return made if TWICE[profile] else {}


def map_controls_of_figure_1_to_spec_functions(
    profile: ProfileName,
) -> SpecFunctionByWidthAndModel:
    """Return controls for GhostBERT's Figure 1 that are trained without a teacher.

    The result is {(width in twelfths, name in the figure): f(profile, task) -> Spec},
    where a Spec is the description of a run. The controls are a model of half the width
    and the whole model. They learn labels in both stages, with the steps and learning
    rates of the distilled models. So they show what is due to the teacher alone. The
    result is empty where an experiment of this size has no such controls, and for a
    user's own data or encoder.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    has_controls = TWICE[profile] and not isinstance(profile, grids.ProfileWithUserData)
    names = {6: f"Prune{AGAIN}", HEADS: f"Plain{AGAIN}"} if has_controls else {}
    return {
        (m, name): partial(student_trained_on_labels_spec, kept_heads_of_paper_model=m)
        for m, name in names.items()
    }


def map_controls_of_table_3_to_spec_functions(
    profile: ProfileName, widths_in_twelfths: Iterable[int]
) -> SpecFunctionByWidthAndModel:
    """Return controls for GhostBERT's Table 3 that differ from its rows in training.

    The result is {(width in twelfths, row of the table): f(profile, task) -> Spec},
    where a Spec is the description of a run. At some widths, models without and with
    ghosts (added convolutions) are distilled for four times as many epochs. If the
    settings TAPS have a learning rate for an experiment of this size, at these widths a
    model with ghost kernels of this rate is added. So the table shows whether ghosts
    still help when the training differs. The result is empty for a user's own data or
    encoder.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    widths_in_twelfths: the widths of the table, in twelfths of the heads."""
    made = {}
    longer = () if isinstance(profile, grids.ProfileWithUserData) else LONGER[profile]
    for m in (m for m in widths_in_twelfths if m in longer):
        for name in MODELS:
            made[m, name + MORE] = partial(
                table_model_spec,
                width_in_twelfths=m,
                variant_name=name,
                distillation_epoch_factor=TIMES,
            )
        if taps := TAPS[profile]:
            made[m, "Ghost" + APART] = partial(
                table_model_spec,
                width_in_twelfths=m,
                variant_name="Ghost",
                ghost_kernel_learning_rate=taps,
            )
    return made


def list_rows_of_data_augmentation_runs(
    profile: ProfileName, tasks: Iterable[TaskName], seed: int
) -> list[Row]:
    """Return one Row for each task: the run that augments its training texts.

    A Row is a Spec (the description of a run) with labels such as the task. One
    augmentation serves all seeds, unless each seed draws its own training rows; then
    the result has the augmentation of the rows of `seed`.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    made = {task: grids.augmented_rows_spec(profile, task) for task in tasks}
    return [
        Row(spec if spec.seed is not None else spec.with_seed(seed), task=task)
        for task, spec in made.items()
    ]


@cache_results_while_enabled
def table_model_spec(
    profile: ProfileName,
    task: TaskName,
    width_in_twelfths: int,
    variant_name: PlainPruneGhostOrDistilled,
    family: EncoderFamily = "bert",
    **student_options: Any,
) -> Spec:
    """Return the Spec (description of a run) of a model by its name in tables.

    "Plain" is the fine-tuned encoder, "Prune" a pruned and distilled student, "Ghost"
    the same with ghost modules (added convolutions), and "Distilled" an unpruned
    student, whose width must be the whole one. Raises Refused for a width that the
    encoder cannot have.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    width_in_twelfths: kept heads of the paper's encoder, which has 12 (ELECTRA-small
    4); it does not matter for "Plain".
    family: family of encoders, such as "bert".
    student_options: further arguments of `student_spec`."""
    if variant_name == "Plain":
        return teacher_spec(profile, task, family)
    module = make_ghost_options(profile) if variant_name == "Ghost" else None
    return student_spec(
        profile, task, width_in_twelfths, module, family, **student_options
    )


def pruned_undistilled_model_spec(
    profile: ProfileName,
    task: TaskName,
    width_in_twelfths: int,
    ghost_options: Ghost | None,
) -> Spec:
    """Return the Spec (description of a run) of a pruned model trained on labels alone.

    It is a control: compared with distilled models it shows what the teacher brings.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    width_in_twelfths: width of the model, kept heads of 12.
    ghost_options: settings of the ghost modules (added convolutions), or None for
    none."""
    return finetuned_student_spec(
        profile,
        task,
        untrained_student_spec(profile, task, width_in_twelfths, ghost_options),
        ghost_options,
    )


def make_convolution_options_of_table_5(
    profile: ProfileName,
) -> dict[ModelName, GhostFields]:
    """Return the settings of the kinds of convolution in GhostBERT's Table 5.

    The table compares kinds of ghost modules, convolutions that add features to a
    pruned model. The result is {row of the table: {field of the options Ghost: value}},
    such as {"Conv2D": {"kind": "conv2d"}}. In Conv1D_S, which mixes channels, and
    Conv1D_F, which mixes tokens, the softmax that normalises a kernel is over all
    weights of one output value. The paper does not say over what it is.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    tied = {"softmax_over": "inputs", "tokens": ONE_LENGTH[profile]}
    return {
        "Conv1D_S": {"kind": "conv1d_s", "softmax_over": "inputs"},
        "Conv1D_F": {"kind": "conv1d_f", **tied},
        "Conv2D": {"kind": "conv2d"},
        "DWConv": {},
    }


def map_rows_of_table_1_to_encoders_and_variants(
    kept_head_counts: Iterable[int],
) -> dict[ModelName, EncoderAndVariant]:
    """Return {name of a row: EncoderAndVariant} of GhostBERT's Table 1, in the table's
    order.

    A EncoderAndVariant has the family of encoders, the name of the model, and its
    number of kept heads. To the printed rows it adds the whole distilled model without
    ghost modules (added convolutions), as a control.

    kept_head_counts: kept heads of the pruned models; only BERT and RoBERTa are
    pruned."""
    lines = {}
    for family, (name, ghosted) in NAMES.items():
        heads = count_heads_of_published_encoder(family)
        lines[name] = EncoderAndVariant(family, "Plain", heads)
        lines[f"{name}, distilled"] = EncoderAndVariant(family, "Distilled", heads)
        for m in (heads, *(kept_head_counts if family in PRUNED else ())):
            lines[f"{ghosted} (m = {m}/{heads})"] = EncoderAndVariant(
                family, "Ghost", m
            )
    return lines


def make_label_of_unpruned_head_count(family: EncoderFamily) -> dict[str, int]:
    """Return {"of": number of heads} of an encoder, or {} where the number is 12.

    It is added to the labels of a run, so that tables show the width of a pruned model
    as kept heads of all heads, such as 4/4 instead of 4/12. The number is that of the
    paper's encoder.

    family: family of encoders, such as "electra"."""
    heads = count_heads_of_published_encoder(family)
    return {} if heads == PARTS else {"of": heads}


def count_costs_by_paper_rule_and_exactly(
    family: EncoderFamily,
    model_variant: PlainPruneGhostOrDistilled,
    kept_heads_per_layer: int,
) -> PaperAndTrueCosts:
    """Return a model's FLOPs by the paper's rule, its true FLOPs, and its parameters.

    The costs are those of GhostBERT's own encoders, for one sequence of 128 tokens. The
    paper does not state its rule; the one used here reproduces most printed numbers.

    family: family of encoders, such as "bert".
    model_variant: "Ghost" for a model with ghost modules (added convolutions); any
    other name is one without.
    kept_heads_per_layer: number of heads that are left in each layer."""
    base = find_encoder_shape("paper", family)
    module = make_ghost_options("paper") if model_variant == "Ghost" else None
    printed = cost.flops(
        base, heads=kept_heads_per_layer, ghost=module, convention="token head"
    )
    return PaperAndTrueCosts(
        printed,
        cost.flops(base, heads=kept_heads_per_layer, ghost=module),
        cost.parameters(base, kept_heads_per_layer, module),
    )


def format_cost_cells(
    unit: Literal["GFLOPs", "M parameters"],
    printed_text: str,
    count_by_paper_rule: int | None,
    true_count: int | None,
) -> CostCells:
    """Return a model's printed, recomputed and true cost as three cells of a table.

    The result is {(unit, heading): text} with the headings "printed", "by its rule"
    (recomputed by the paper's own way of counting) and "true" (as PyTorch counts), so
    that a reader sees where the paper's numbers differ.

    unit: "GFLOPs" or "M parameters".
    printed_text: the printed number.
    count_by_paper_rule, true_count: FLOPs or parameters for the last two of these
    cells; None shows a dash."""
    shown = (
        "–"
        if count_by_paper_rule is None
        else cost.format_count_in_billions_or_millions(count_by_paper_rule, unit)
    )
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


def make_ghost_module_cost_table(
    ghost_options_by_label: Mapping[str, Ghost],
    kept_head_counts: Iterable[int],
    printed_table: pd.DataFrame,
) -> dict[WidthAndLabel, CostCells]:
    """Return a table of what BERT-base costs with several kinds of ghost modules.

    Ghost modules are convolutions that add features to a pruned model. The result is
    {(width, label): {(unit, heading): text}}: GFLOPs for 128 tokens and millions of
    parameters, each as printed, by the paper's rule and true, and the parameters of the
    ghost modules alone.

    ghost_options_by_label: {label: settings of a ghost module}.
    kept_head_counts: numbers of kept heads of 12.
    printed_table: a printed table with the columns "FLOPs(G)" and "#params(M)", indexed
    by (width such as "1/12", label)."""
    base = cost.SHAPES["bert-base"]
    table = {}
    for m, label in product(kept_head_counts, ghost_options_by_label):
        key = (f"{m}/12", label)
        variant = {"heads": m, "ghost": ghost_options_by_label[label]}
        gflops, weights = (
            str(printed_table[name].get(key, "–"))
            for name in ("FLOPs(G)", "#params(M)")
        )
        counts = (
            cost.flops(base, **variant, convention="token head"),
            cost.flops(base, **variant),
        )
        number = cost.parameters(base, **variant)
        table[key] = format_cost_cells("GFLOPs", gflops, *counts)
        table[key] |= format_cost_cells("M parameters", weights, number, number)
        ghosts = (
            cost.count_ghost_parameters(base, ghost_options_by_label[label], m) / 1e6
        )
        table[key]["M parameters", "ghosts"] = f"{ghosts:.4f}"
    return table


def list_rows_of_ghost_option_variants(
    profile: ProfileName,
    changed_ghost_fields_by_model: Mapping[ModelName, GhostFields],
    tasks: Iterable[TaskName],
    widths_in_twelfths: Iterable[int],
    seeds: Sequence[Seed],
    learning_rate: float,
) -> list[Row]:
    """Return the Rows of a table of pruned students whose ghost modules differ.

    A Row is a Spec (the description of a run) with the labels task, m (kept heads of
    12), model and seed. Ghost modules are added convolutions.

    profile: size of the experiment, such as "mini".
    changed_ghost_fields_by_model: {name of a model: fields of its ghost modules that
    differ from the paper's}.
    seeds: empty for the profile's seeds of such tables.
    learning_rate: rate of the distillation; 0 is the profile's."""
    modules = {
        name: make_ghost_options(profile, **changes)
        for name, changes in changed_ghost_fields_by_model.items()
    }
    return [
        Row(
            student_spec(
                profile, task, m, module, distillation_learning_rate=learning_rate
            ),
            task=task,
            m=m,
            model=name,
            seed=seed,
        )
        for task, m, (name, module), seed in product(
            tasks,
            widths_in_twelfths,
            modules.items(),
            select_seeds_of_setting_sweeps(profile, seeds),
        )
    ]
