"""This module has the frontier: a comparison of score and cost of the compression
methods of all papers.

No paper compares itself with the others. Here all methods have one teacher and the same
rows, epochs and seeds. A point of the frontier is a method at a budget, a share m/12 of
the whole model's FLOPs. Each paper lists its methods in its `frontier.py`
(lib.papers.points). This module adds controls that the papers lack, and combinations of
methods that the papers call orthogonal but never tried."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

import lib.model
from lib.core.names import Refused
from lib.core.options import Targets
from lib.core.papers import import_module_of_each_paper
from lib.core.rows import ResultRow
from lib.core.spec import Spec
from lib.core.store import Run
from lib.core.types import (
    IndicesPerLayerByKind,
    Json,
    MetricName,
    ModelName,
    Points,
    ProfileName,
    TaskName,
)
from lib.methods import (
    METHODS,
    import_method,
    plan_pruning_by_method,
)
from lib.papers import grids, students
from lib.papers.grids import find_encoder_shape
from lib.papers.points import TOKENS as TOKENS
from lib.papers.points import (
    CompressionMethod,
    compressed_student_spec,
    int8_quantisation_spec,
    make_single_stage_train_settings,
    student_pruned_by_search_spec,
)
from lib.stats import compare, cost, paired
from lib.stats.compare import MetricColumn

if TYPE_CHECKING:
    import pandas as pd

ModelScoreRow = (
    Json  # {column: value}, columns of `tabulate_models_by_task_with_costs`.
)
MethodName: TypeAlias = str  # A key of TABLE, such as "NAS".
FlopsParametersOrBytes: TypeAlias = str
MajorityOrBagOfWords: TypeAlias = str
Reason: TypeAlias = str
HEADS = students.HEADS
S = grids.read_settings("frontier")
# Settings from frontier.toml beside this module, where comments describe them.
ORDER: tuple[str, ...] = S.ORDER
SLACK: float = S.SLACK
EVEN: float = S.EVEN
BUDGETS: dict[str, tuple[int, ...]] = S.BUDGETS
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
LISTED: dict[str, tuple[str, ...]] = S.LISTED
AXES: dict[str, str] = S.AXES

tasks = partial(grids.select_tasks, tasks_by_profile=TASKS)
seeds = partial(grids.select_seeds, seeds_by_profile=SEEDS)


def uniformly_pruned_student_spec(
    profile: ProfileName, task: TaskName, width_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) of a student pruned without a ranking.

    As a control for the ranking, it keeps the first heads and neurons of each layer
    instead of the most important ones. It is trained on the teacher's logits alone, in
    one stage, for as many epochs as other students in two.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    width_in_twelfths: the share of heads and neurons that each layer keeps, times
    12."""
    teacher = grids.teacher_spec(profile, task)
    cut = {
        "op": "cut",
        "heads": students.scale_kept_head_count(profile, width_in_twelfths),
    }
    start = Spec("operate", {"surgery": [cut]}, {"teacher": teacher})
    targets = Targets("soft", sum_classes=True)
    train = make_single_stage_train_settings(students.FINETUNE, profile, task)
    args = grids.make_run_arguments_of_task(profile, task, train=train, targets=targets)
    return Spec("finetune", args, {"start": start, "teacher": teacher})


def finetuned_unpruned_model_spec(
    profile: ProfileName, task: TaskName, unused_width: int
) -> Spec:
    return grids.teacher_spec(profile, task)


def distilled_unpruned_model_spec(
    profile: ProfileName, task: TaskName, unused_width: int
) -> Spec:
    """Return the Spec (description of a run) of an unpruned model trained as a student.

    Pruned students are trained in two stages: they match the teacher's hidden states,
    then learn the labels. This control is trained in the same way, and shows what the
    training alone changes.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    unused_width: not used; the caller gives it to every method that is compared."""
    return students.student_spec(profile, task, HEADS)


def student_pruned_by_further_method_spec(
    profile: ProfileName,
    task: TaskName,
    flops_budget_in_twelfths: int,
    method_module_name: str,
) -> Spec:
    """Return the Spec (description of a run) of a student pruned by a further method.

    Such a method is in none of the papers. Its module in lib.methods says which heads
    and neurons, or which layers, the student keeps. If the module has a function
    `compute_importance_scores`, this function ranks heads and neurons. The module's
    function `plan_pruning` may return a number `version` among its arguments. This
    number becomes an option of the ranking. Its author raises it when the module's
    code changes, so that the ranking is run again. The training is that of all methods
    that are compared.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the student has m/12 of the whole model's FLOPs.
    method_module_name: name of the module, such as "layer_dropping"."""
    method = import_method(method_module_name)
    ranking = None
    _, arguments = plan_pruning_by_method(
        method_module_name,
        find_encoder_shape(profile),
        flops_budget_in_twelfths / HEADS,
    )
    if hasattr(method, "compute_importance_scores"):
        take = arguments.get if hasattr(method, "prune") else arguments.pop
        options = replace(
            students.IMPORTANCE[profile],
            cumulative=False,
            by=method_module_name,
            version=take("version", 0),
        )
        ranked = grids.make_run_arguments_of_task(profile, task, importance=options)
        teacher = grids.teacher_spec(profile, task)
        ranking = Spec("importance", ranked, {"teacher": teacher})
    return compressed_student_spec(
        profile, task, {"op": method_module_name} | arguments, importance=ranking
    )


# {paper: its module `recipes`}. The folder of a paper may be deleted; combinations of
# methods that need this paper are then left out.
RECIPES = import_module_of_each_paper("recipes")


def ghost_student_pruned_by_search_spec(
    profile: ProfileName, task: TaskName, flops_budget_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) of a student that combines two papers.

    It keeps the heads and neurons that a search finds (NAS pruning), and gets ghost
    modules, which are cheap convolutions (GhostBERT). So it shows whether the gains add
    up.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the search leaves m/12 of the whole model's
    FLOPs."""
    find = import_module_of_each_paper("frontier")[
        "nas_pruning"
    ].architecture_search_spec_at_budget
    return student_pruned_by_search_spec(
        profile,
        task,
        flops_budget_in_twelfths,
        find,
        RECIPES["ghostbert"].make_ghost_options(profile),
    )


def layer_mix_student_spec(
    profile: ProfileName, task: TaskName, width_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) of a pruned student with a layer mix.

    The layer mix is BERMo's weighted sum of all layers' outputs. The student has it in
    its last stage of training. So the combination of BERMo's mix and GhostBERT's
    pruning can be compared with the pruning alone.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    width_in_twelfths: the share of heads and neurons that each layer keeps, times
    12."""
    last = students.student_spec(profile, task, width_in_twelfths)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    mix = RECIPES["bermo"].MIX[profile]
    return Spec("fineprune", args | {"mix": mix}, last.inputs)


def single_stage_ghost_student_spec(
    profile: ProfileName, task: TaskName, width_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) of a ghost student distilled in one stage.

    The student is pruned and has ghost modules, GhostBERT's cheap convolutions.
    EfficientBERT's distillation trains it: it matches attention scores, hidden states
    and logits in one loss, instead of hidden states first and labels then.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    width_in_twelfths: the share of heads and neurons that each layer keeps, times
    12."""
    ghosts = RECIPES["ghostbert"].make_ghost_options(profile)
    start = students.untrained_student_spec(profile, task, width_in_twelfths, ghosts)
    train = make_single_stage_train_settings(students.FINETUNE, profile, task, ghosts)
    options = RECIPES["efficientbert"].TAUGHT[profile]
    args = grids.make_run_arguments_of_task(profile, task, train=train, warmup=options)
    inputs = {"teacher": grids.teacher_spec(profile, task), "start": start}
    return Spec("warmup", args, inputs)


def list_baselines_controls_and_combinations() -> dict[MethodName, CompressionMethod]:
    """Return {name: CompressionMethod} of compression methods that are not those of one
    paper.

    A CompressionMethod says how a model is made at each FLOPs budget. The methods are
    the uncompressed model, width pruning, controls, int8, and combinations of papers. A
    combination is left out where the code of one of its papers is missing."""
    points = {
        "Whole": CompressionMethod(
            "whole", finetuned_unpruned_model_spec, "all", has_single_model=True
        ),
        "Width": CompressionMethod("paper", students.student_spec),
        "Whole, distilled": CompressionMethod(
            "control", distilled_unpruned_model_spec, "all", has_single_model=True
        ),
        "Uniform": CompressionMethod("control", uniformly_pruned_student_spec),
    }
    in_int8 = partial(
        int8_quantisation_spec, make_trained_spec=finetuned_unpruned_model_spec
    )
    points["Int8"] = CompressionMethod("control", in_int8, "all", has_single_model=True)
    papers = import_module_of_each_paper("frontier")
    if "bermo" in papers:
        points["Width + layer mix"] = CompressionMethod(
            "combination", layer_mix_student_spec
        )
    if "ghostbert" in papers:
        ghosts = papers["ghostbert"].POINTS["GhostBERT"]
        combined = partial(
            CompressionMethod, "combination", count_added_flops=ghosts.count_added_flops
        )
        in_int8 = partial(int8_quantisation_spec, make_trained_spec=ghosts.make_spec)
        points["GhostBERT, int8"] = combined(in_int8)
        if "efficientbert" in papers:
            points["GhostBERT, warmed up"] = combined(single_stage_ghost_student_spec)
        if "nas_pruning" in papers:
            least = papers["nas_pruning"].POINTS["NAS"].find_least_flops_share
            made = combined(
                ghost_student_pruned_by_search_spec,
                kept_parts="found",
                find_least_flops_share=least,
            )
            points["NAS + ghosts"] = made
    return points


# Names that mean something else where a method is named: operations without a file in
# lib/model, and what a method of the frontier keeps.
RESERVED = {"all", "found", "keep", "trigram", "width"}


def check_method_module_name_is_free(method_module_name: str) -> None:
    """Raise Refused if a method's file has a name that means something else.

    Files of lib/model are such names too, as an exported model has them in the same
    folder as the method's file."""
    if method_module_name in RESERVED | {
        file.name for file in iter_modules(lib.model.__path__)
    }:
        raise Refused(
            f"lib/methods/{method_module_name}.py has the name of an operation or of a file of "
            "lib/model: take another file name"
        )


def collect_compression_methods() -> dict[MethodName, CompressionMethod]:
    """Return {name: CompressionMethod} of all compression methods that can be compared.

    A CompressionMethod says how a model is made at each FLOPs budget. The methods are
    those of all papers, controls, combinations, and those in lib.methods, in the order
    of the tables of results. Raises Refused for a title in lib.methods that another
    method has."""
    points = list_baselines_controls_and_combinations()
    for paper in import_module_of_each_paper("frontier").values():
        points |= paper.POINTS
    for title, name in METHODS.items():
        check_method_module_name_is_free(name)
        if title in points:
            fault = f"lib.methods.METHODS names {name!r} {title!r}"
            raise Refused(f"{fault}, as another method is called: take another name")
        points[title] = CompressionMethod(
            "control",
            partial(student_pruned_by_further_method_spec, method_module_name=name),
            name,
        )
    order = [name for name in ORDER if name in points]
    return {name: points[name] for name in dict.fromkeys([*order, *points])}


TABLE = collect_compression_methods()
# Methods that are compared on a user's own data if the user does not choose any.
OWN = tuple(name for name in S.OWN if name in TABLE)


def list_flops_budgets_in_twelfths(
    profile: ProfileName, method_name: MethodName, chosen_budgets: Sequence[int] = ()
) -> Sequence[int]:
    """Return the FLOPs budgets at which a compression method has a model.

    A budget is m, where the model has m/12 of the whole model's FLOPs. The result has
    the chosen budgets, or else those of the profile, but not those at which the encoder
    would keep no whole number of heads, or which a search cannot reach. It is (0,) for
    a method with a single model, and empty for a pruning search on a user's own
    question-answering data, which it does not support.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    method_name: a key of `collect_compression_methods()`, such as "NAS"."""
    method = TABLE[method_name]
    if method.has_single_model:
        return (0,)
    possible_widths = students.select_possible_widths(
        profile, tuple(chosen_budgets) or BUDGETS[profile]
    )
    if method.kept_parts == "found" and grids.get_passage_windows_of_user_data(profile):
        return []  # Searches do not support questions on passages.
    low = method.find_least_flops_share(profile) * HEADS
    return [m for m in possible_widths if m > low]


def count_method_flops(
    profile: ProfileName,
    method_name: MethodName,
    flops_budget_in_twelfths: int,
    searched_architecture: IndicesPerLayerByKind | None = None,
) -> int:
    """Return the FLOPs of one forward pass of a compressed model on 128 tokens.

    Counted are matrix products and convolutions of the layers, and the pooler.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    method_name: the compression method, a key of `collect_compression_methods()`.
    flops_budget_in_twelfths: m, where the budget is m/12 of the whole model's FLOPs. It
    is not used for methods with a search or with a single model.
    searched_architecture: {"heads": L lists of kept indices, "neurons": L lists} that a
    search found; needed for methods with a search."""
    base = find_encoder_shape(profile)
    method = TABLE[method_name]
    if method.count_flops:
        return method.count_flops(profile)
    if method.kept_parts == "found":
        assert searched_architecture is not None
        layers = cost.compute_layer_widths_of_pruned_network(searched_architecture)
    else:
        layers = list_head_and_neuron_counts_by_layer(
            base, method.kept_parts, flops_budget_in_twelfths
        )
    total = cost.count_flops_of_layers(base.hidden, base.hidden // base.heads, layers)
    return total + method.count_added_flops(profile)


def list_head_and_neuron_counts_by_layer(
    shape: cost.Shape, kept_parts_rule: str, flops_budget_in_twelfths: int
) -> list[cost.WidthByHeadsFfnEmbeddingQkAndV]:
    """Return {"heads": number, "ffn": neurons} of each layer that a student keeps.

    shape: of the whole model.
    kept_parts_rule: "all", "width" (the share m/12 of each layer), or the name of a
    module of lib.methods, whose `plan_pruning` says what is kept.
    flops_budget_in_twelfths: m, where the budget is m/12 of the whole model's FLOPs."""
    if kept_parts_rule in ("all", "width"):
        m = flops_budget_in_twelfths if kept_parts_rule == "width" else HEADS
        pairs = [(m * shape.heads // HEADS, m * shape.ffn // HEADS)] * shape.layers
    else:
        pairs, _ = plan_pruning_by_method(
            kept_parts_rule, shape, flops_budget_in_twelfths / HEADS
        )
    return [{"heads": heads, "ffn": neurons} for heads, neurons in pairs]


def explain_parameter_count_mismatch(
    profile: ProfileName,
    method_name: MethodName,
    flops_budget_in_twelfths: int,
    trained_parameter_count: float,
    uncompressed_parameter_count: float,
) -> Reason | None:
    """Return why a trained model cannot be compared, where its size is not as planned.

    FLOPs of a further method (a module of lib.methods) are counted from its
    `plan_pruning`, and its `prune` makes the model. If the two disagree, the FLOPs are
    those of another model. None where they agree, and for other methods.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the budget is m/12 of the whole model's FLOPs.
    trained_parameter_count, uncompressed_parameter_count: parameters of the method's
    trained model, and of the whole model on the same task."""
    shape = find_encoder_shape(profile)
    pruning_rule = TABLE[method_name].kept_parts
    if pruning_rule not in METHODS.values():
        return None
    count = partial(
        cost.count_parameters_of_layers, shape.hidden, shape.hidden // shape.heads
    )
    removed_parameters = count(
        list_head_and_neuron_counts_by_layer(shape, "all", HEADS)
    ) - count(
        list_head_and_neuron_counts_by_layer(
            shape, pruning_rule, flops_budget_in_twelfths
        )
    )
    expected = uncompressed_parameter_count - removed_parameters
    if trained_parameter_count == expected:
        return None
    return (
        f"left out {method_name} at {flops_budget_in_twelfths}/{HEADS}: its model has "
        f"{trained_parameter_count:,.0f} parameters, but the layers that `plan_pruning` of "
        f"lib/methods/{pruning_rule}.py names give {expected:,.0f}. FLOPs are counted "
        "from these layers: let `plan_pruning` name what `prune` keeps."
    )


def explain_models_left_out_of_comparison(
    runs_frame: pd.DataFrame, profile: ProfileName
) -> dict[tuple[TaskName, ModelName], Reason]:
    """Return {(task, model): why} of trained models that have another size than
    planned, or a run without predictions, as after a loss that was not finite.

    A page states the reasons, and compares the other models. Nothing is checked where
    the whole model has no run.

    runs_frame: a line for each run, with its labels and metrics.
    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    models = select_and_label_model_runs(runs_frame)
    reasons: dict[Any, str] = {}
    finished = compare.select_rows_with_runs(models)
    for task, rows in finished.groupby("task", sort=False):
        column = grids.select_metrics_by_task(profile)[str(task)][0]
        for row in rows.to_dict("records"):
            try:
                row["run"].read_arrays(column.predictions_file_stem)
            except FileNotFoundError:
                reasons[task, row["model"]] = (
                    f"{row['model']} on {task} has no predictions at seed {row['seed']}: "
                    "its loss was not finite"
                )
        for whole_parameters, row in product(
            rows.loc[rows["method"] == "Whole", "parameters"].unique(),
            rows.to_dict("records"),
        ):
            if why := explain_parameter_count_mismatch(
                profile,
                row["method"],
                int(row["m"]),
                row["parameters"],
                whole_parameters,
            ):
                reasons[task, row["model"]] = why
    return reasons


def format_help_lines_for_method_comparison() -> list[str]:
    """Return lines of help for the command that compares methods on a user's own data.

    They list all methods, those that are compared by default, and the default FLOPs
    budgets (m, for m/12 of the whole model's FLOPs), seeds and token limits of the
    sizes "toy", "mini", "base" and "paper"."""
    lines = [
        f"methods: {' · '.join(TABLE)}",
        f"without --methods: {', '.join(OWN)}",
    ]
    for profile in ("toy", "mini", "base", "paper"):
        parts = {
            "budgets": ",".join(map(str, BUDGETS[profile])),
            "seeds": ",".join(map(str, SEEDS[profile])),
            "length": grids.find_truncation_length(profile),
        }
        chosen = ", ".join(f"--{name} {value}" for name, value in parts.items())
        lines.append(f"without a choice, {profile}: {chosen}")
    return lines


def extract_majority_and_bag_of_words_scores(
    bag_of_words_run_metrics: Mapping[MetricName, Any],
) -> dict[MajorityOrBagOfWords, Points]:
    """Return {baseline: score in points} of two baselines without a neural network.

    They are "majority" (always the most frequent class, for a regression a constant,
    for answer spans no answer) and "bag of words" (a linear model). A baseline that has
    no score on the task is left out. A useful model must score higher than both.

    bag_of_words_run_metrics: the metrics of a run of the step (kind of run)
    `bag_of_words`."""
    names = ("majority", "bag_of_words")
    values = {
        name.replace("_", " "): bag_of_words_run_metrics.get(name, np.nan)
        for name in names
    }
    return {name: 100 * value for name, value in values.items() if value == value}


def format_majority_and_bag_of_words_scores(
    bag_of_words_run_metrics: Mapping[MetricName, Any], score_is_mean_over_rows: bool
) -> str:
    """Return a line of text on the scores of two baselines without a neural network.

    They are the majority class and a bag of words. The line warns where they score so
    high that not even a perfect model could be shown to be better on the development
    rows.

    bag_of_words_run_metrics: the metrics of a run of the step (kind of run)
    `bag_of_words`.
    score_is_mean_over_rows: whether the score is a share of right rows, such as
    accuracy. For other scores the line warns only where a baseline has 100 points."""
    scores = extract_majority_and_bag_of_words_scores(bag_of_words_run_metrics)
    parts = ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
    rows = bag_of_words_run_metrics["dev_rows"]
    best = max(scores.values(), default=0.0)
    line = f"without training: {parts} points on {rows:,} development rows"
    top = (
        100 - paired.estimate_difference_of_proportions([False] * rows).high
        if score_is_mean_over_rows
        else 99.95
    )
    if best < top:
        return line
    why = (
        f"even with all {rows:,} rows right a model is known to be above {top:.1f} only"
    )
    return (
        f"{line}. Beware: nothing can be shown above that"
        + f"; {why}" * score_is_mean_over_rows
    )


def format_model_label(model_name: str, flops_budget_in_twelfths: int) -> str:
    return (
        f"{model_name} {flops_budget_in_twelfths}/{HEADS}"
        if flops_budget_in_twelfths
        else model_name
    )


def select_and_label_model_runs(runs_frame: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of trained models, labelled by compression method and budget.

    The column `method` gets the method's name, such as "Width", and `model` the name
    with the FLOPs budget, such as "Width 3/12". Lines of other runs, such as searches,
    are left out.

    runs_frame: a line for each run, with the columns kind ("model" for trained models),
    model (the method) and m (the budget in twelfths)."""
    runs_frame = runs_frame[runs_frame["kind"] == "model"]
    names = map(format_model_label, runs_frame["model"], runs_frame["m"].astype(int))
    return runs_frame.assign(method=runs_frame["model"], model=list(names))


def tabulate_models_by_task_with_costs(
    runs_frame: pd.DataFrame, profile: ProfileName
) -> pd.DataFrame:
    """Return a table that compares compression methods: a line for each model and task.

    Models that `explain_models_left_out_of_comparison` names have no line.

    The first columns are task, model, method, m (the FLOPs budget in twelfths), seeds
    (their number) and kind (of the method). `score` is in points; its 95 % interval
    `low` to `high` covers the choice of seeds and examples, or of examples alone if
    there is one seed. `flops`, `parameters` and `bytes` are means over seeds, in
    millions. `gap` is the score minus that of the model named in `beside`, the one that
    `find_width_pruned_baseline` finds, whose width in twelfths is `budget`. From three
    seeds on `gap_low` to `gap_high` is the interval of the gap.

    runs_frame: a line for each run, with its labels and metrics.
    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    import pandas as pd

    lines = []
    place = ["model", "m", "task", "seed"]
    left_out = explain_models_left_out_of_comparison(runs_frame, profile)
    searches = runs_frame[runs_frame["kind"] == "search"].to_dict("records")
    architectures = {
        tuple(row[key] for key in place): row.get("architecture") for row in searches
    }
    for task, task_frame in compare.select_rows_with_runs(
        select_and_label_model_runs(runs_frame)
    ).groupby("task", sort=False):
        assert isinstance(task, str)
        column = grids.select_metrics_by_task(profile)[task][0]
        start = len(lines)
        for model, rows in task_frame.groupby("model", sort=False):
            if (task, model) in left_out:
                continue
            name = rows["method"].iloc[0]
            m = rows["m"].iloc[0]
            seed_architectures = [
                architectures.get((name, m, task, seed)) for seed in rows["seed"]
            ]
            row_costs = map(
                partial(count_model_costs, profile),
                rows.to_dict("records"),
                seed_architectures,
            )
            pairs = map(
                partial(pair_predictions_with_labels, column), rows["run"], rows["seed"]
            )
            score = paired.estimate_difference_with_nonzero_interval([*pairs])
            least = 0.0 if column.metric in paired.SHARES else -100.0
            line = {
                "task": task,
                "model": model,
                "method": name,
                "m": m,
                "seeds": score.n_seeds,
                "kind": TABLE[name].kind,
                "score": 100 + score.mean,
                "low": max(100 + score.low, least),
                "high": min(100 + score.high, 100.0),
            }
            lines.append(line | dict(zip(AXES, np.mean([*row_costs], 0), strict=True)))
        for line in lines[start:]:
            line |= compute_score_gaps_to_width_pruning(
                task_frame,
                line,
                find_width_pruned_baseline(lines[start:], line["flops"]),
                column,
            )
    return pd.DataFrame(lines)


class ModelCosts(NamedTuple):
    megaflops: float
    million_parameters: float
    megabytes: float


def count_model_costs(
    profile: ProfileName,
    run_row: ResultRow,
    searched_architecture: IndicesPerLayerByKind | None,
) -> ModelCosts:
    """Return a trained model's FLOPs, parameters and bytes, each in millions.

    FLOPs are those of a forward pass on 128 tokens. Pruned weights do not count as
    parameters. Bytes are those of int8 or of a sparse format where they were measured.
    Else they are 4 for each parameter, pruned weights included.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    run_row: labels and metrics of the run that trained the model.
    searched_architecture: {"heads": L lists of kept indices, "neurons": L lists} that a
    search found. None for a method without a search, whose sizes follow from its name
    and width in `run_row`."""
    pruned = run_row.get("masked_weights", 0) - run_row.get("kept_weights", 0)
    weights = run_row["parameters"] - np.nan_to_num(pruned)
    stored = [
        n
        for n in (run_row.get("bytes"), run_row.get("bytes_sparse"))
        if n and np.isfinite(n)
    ]
    forward = count_method_flops(
        profile, run_row["method"], run_row["m"], searched_architecture
    )
    stored_bytes = (*stored, 4 * run_row["parameters"])[0]
    return ModelCosts(forward / 1e6, weights / 1e6, stored_bytes / 1e6)


def find_width_pruned_baseline(
    model_rows: Iterable[ModelScoreRow], min_megaflops: float
) -> ModelScoreRow | None:
    """Return the line of the model with which a compressed model is compared.

    It is the cheapest model, width-pruned or whole and distilled, that has at least
    `min_megaflops`, less a tolerance of 5 %. It is None where there is none. So a
    method counts as better only where it beats width pruning at the same cost.

    model_rows: a line for each model of one task, with its `method` and `flops` in
    millions.
    min_megaflops: millions of FLOPs of the compressed model."""
    both = [
        line for line in model_rows if line["method"] in ("Width", "Whole, distilled")
    ]
    candidates = [line for line in both if SLACK * line["flops"] >= min_megaflops]
    return min(candidates, key=lambda line: line["flops"], default=None)


def compute_score_gaps_to_width_pruning(
    runs_frame: pd.DataFrame,
    model_row: ModelScoreRow,
    baseline_row: ModelScoreRow | None,
    compared_metric_column: MetricColumn,
) -> ModelScoreRow:
    """Return table columns that compare a model with a width-pruned one of its cost.

    The result is {column: value}. The columns are `beside` (name of the width-pruned
    model), `budget` (its width in twelfths), `gap` (the difference of the scores in
    points) and its 95 % interval, `gap_low` to `gap_high`, from three seeds on. What is
    unknown is nan, or "" for `beside`.

    runs_frame: a line for each run of one task.
    model_row, baseline_row: table lines of the model and of the width-pruned one, with
    `model` (name) and `m` (width); without a `baseline_row` all columns are unknown.
    compared_metric_column: the metric that is compared."""
    columns = {
        "budget": np.nan,
        "beside": "",
        "gap": np.nan,
        "gap_low": np.nan,
        "gap_high": np.nan,
    }
    if baseline_row is None:
        return columns
    columns |= {"budget": baseline_row["m"] or HEADS, "beside": baseline_row["model"]}
    pairs = compare.pair_runs_of_models(
        runs_frame,
        model_row["model"],
        baseline_row["model"],
        {compared_metric_column.task: (compared_metric_column,)},
    )
    if not pairs:
        return columns
    gap = paired.estimate_difference_with_nonzero_interval(pairs)
    columns["gap"] = gap.mean
    if gap.n_seeds >= paired.SEEDS:
        columns |= {"gap_low": gap.low, "gap_high": gap.high}
    return columns


def pair_predictions_with_labels(
    scored_metric_column: MetricColumn, run: Run, seed: int
) -> paired.Pair:
    """Return a Pair that compares a run's predictions with the labels themselves.

    A Pair has two predictions of the same examples at one seed, for paired statistics.
    Here the difference is the run's score minus 100 points. So the function for
    intervals of differences serves single scores too.

    scored_metric_column: the metric and the split that are scored.
    run: the finished run that has the predictions."""
    rows = compare.read_labels_and_predictions(run, scored_metric_column)
    labels = rows["labels"]
    said = rows["said"]
    cluster = rows["cluster"]
    labels = (
        np.ones(len(said)) if scored_metric_column.metric in paired.MARKS else labels
    )
    return paired.Pair(
        scored_metric_column.task,
        seed,
        labels,
        said,
        labels,
        scored_metric_column.metric,
        cluster,
    )


def list_models_on_pareto_front(
    models_frame: pd.DataFrame, cost_column: FlopsParametersOrBytes
) -> list[ModelName]:
    """Return the names of the models on the Pareto front of score and cost.

    The cheapest comes first. No other model of at most the same cost scores higher than
    a model on the front. Costs within 1 % count as equal, so that no model is on the
    front by a trifle.

    models_frame: a line for each model of one task, with its name, score and costs.
    cost_column: the column of the cost, such as "flops"."""
    ordered = models_frame.sort_values(
        [cost_column, "score"], ascending=[True, False], ignore_index=True
    )
    best = [
        ordered.loc[ordered[cost_column] <= EVEN * c, "score"].idxmax()
        for c in ordered[cost_column]
    ]
    return list(ordered["model"][best == ordered.index])


def find_uncompressed_model_cost(
    models_frame: pd.DataFrame, cost_column: FlopsParametersOrBytes
) -> float | None:
    """Return the cost of the uncompressed model, of which budgets are shares.

    It is None where that model was not run.

    models_frame: a line for each model, with its method and costs.
    cost_column: the column of the cost, such as "flops"."""
    full_costs = models_frame.loc[models_frame["method"] == "Whole", cost_column]
    return float(full_costs.iloc[0]) if len(full_costs) else None


def find_best_affordable_model(
    models_frame: pd.DataFrame,
    cost_column: FlopsParametersOrBytes,
    max_cost_share: float,
) -> dict[Hashable, Any] | None:
    """Return the table line of the best model within a cost limit, to recommend it.

    The limit is `max_cost_share` of the uncompressed model's cost, which may be
    exceeded by 5 %. Of models with equal scores the cheapest is taken. The result is
    None where no model is within the limit. Raises Refused where the uncompressed model
    was not run.

    models_frame: a line for each model of one task, with its method, score and costs.
    cost_column: the column of the cost, such as "flops".
    max_cost_share: the share, from 0 to 1."""
    full_cost = find_uncompressed_model_cost(models_frame, cost_column)
    if full_cost is None:
        raise Refused(
            "the budget is a share of the model 'Whole': add it to the methods"
        )
    affordable = models_frame[
        models_frame[cost_column] <= SLACK * max_cost_share * full_cost
    ].sort_values(cost_column)
    return (
        affordable.loc[affordable["score"].idxmax()].to_dict()
        if len(affordable)
        else None
    )
