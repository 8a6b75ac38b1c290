"""This module has the settings of EfficientBERT's searches and the Specs, descriptions
of runs, of Tables 5 and 6 and of Figure 3.

Three searches follow each other, and each starts from the result of the one before. A
Spec refers to such a result before it exists: `Output("before", "net")` is the network
that the input run `before` will find, and `Output("search", "supernet")` is a network
with the same formulas at full size, which is trained as the supernet of the last stage."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from lib.core.memo import cache_results_while_enabled
from lib.core.names import check_known_name, derive_seed
from lib.core.options import Train
from lib.core.spec import Output, Spec
from lib.core.types import Json, ProfileDefault, ProfileName, TaskName
from lib.data import DataDescriptor
from lib.papers import grids, published
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert.options import (
    AllRemainingRows,
    RandomCascadeOrEvolution,
    Search,
)
from lib.papers.efficientbert.recipes import BRIEF, PART, READ, TAUGHT, TOGETHER
from lib.papers.efficientbert.search import space as spaces
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import SearchStage
from lib.papers.grids import find_profile_settings, pretrained_encoder_spec

SINGLE = "single"
LAST = "stage3"
S = efficientbert.S
# Tables on searches in this folder's settings.toml, whose comments describe them.
HELD_OUT: dict[str, int] = S.HELD_OUT
SCORE: dict[str, str] = S.SCORE
FINAL: dict[str, Train] = S.FINAL
BRIEFLY: dict[str, Train] = S.BRIEFLY
METHOD: dict[str, str] = S.METHOD
METHODS: dict[str, Json] = S.METHODS
LEARN: dict[str, tuple[int, int]] = S.LEARN
DRAWS: dict[str, int] = S.DRAWS
BUDGET: dict[str, dict[str, int]] = S.BUDGET
CANDIDATES: dict[str, int] = S.CANDIDATES
STAGES: dict[str, str] = S.STAGES
SHOWN: dict[str, tuple[str, ...]] = S.SHOWN
ENDS: dict[str, str] = S.ENDS
DEVIATIONS = published.read_deviation_sentences_by_profile("efficientbert", "search")


def make_search_space(
    profile: ProfileName, stage: SearchStage
) -> spaces.SpaceDescriptor:
    """Return the set of networks that a stage of the search may evaluate, as JSON.

    It is {"stage", "low" and "high": least and most parameters of a network, "grammar":
    the rules for formulas of feed-forward networks (FFNs), such as W2 gelu(W1 x)}, and
    becomes the argument `space` of a search. The network from which the search starts
    is another argument.

    profile: size of the experiment, "toy", "mini" or "paper".
    stage: what is searched: "stage1" (formulas and sizes of FFNs), "stage2" (formulas),
    "stage3" (sizes) or "single" (as stage 1, in one search)."""
    low, high = efficientbert.find_parameter_count_bounds(profile)
    return {
        "stage": stage,
        "low": low,
        "high": high,
        "grammar": spaces.make_grammar_json(stage),
    }


def make_search_settings(
    profile: ProfileName,
    stage: SearchStage,
    method: RandomCascadeOrEvolution | ProfileDefault = None,
    factor_on_candidate_count: int = 1,
) -> Search:
    """Return the settings of a stage of the search: its method, budget and score.

    Raises Refused for an unknown method.

    profile: size of the experiment, "toy", "mini" or "paper".
    stage: "stage1" (formulas, such as "W2 gelu(W1 x)", and sizes of feed-forward
    networks), "stage2" (formulas), "stage3" (sizes) or "single" (both, in one search).
    method: how candidates are proposed: "random", "cascade" (random draws that
    classifiers accept) or "evolution"; None takes the profile's.
    factor_on_candidate_count: factor on the profile's number of evaluated
    candidates."""
    method = method or METHOD[profile]
    budget = factor_on_candidate_count * BUDGET[profile][stage]
    check_known_name("search method", method, METHODS)
    more: Json = METHODS[method] | {"method": method, "score": SCORE[profile]}
    if method == "cascade":
        more |= zip(("initial", "refit"), LEARN[profile], strict=True)
    if method == "evolution":
        more["population"] = min(more["population"], budget // 2)
    return Search(budget=budget, draws=DRAWS[profile], **more)


def make_search_rows_descriptor(
    profile: ProfileName,
    training_row_count: int | AllRemainingRows,
    held_out_row_count: int,
) -> DataDescriptor:
    """Return the dict that says on which rows a search trains and scores candidates.

    It is a part of the search's Spec, so a search on other rows is another run. It has
    "source", "task" and "digest" of the data, and the counts "rows" (to train on, left
    out where all rows are taken) and "held_out" (to score on). The task is the one task
    of the search. At "paper" the entry "in_order": True takes rows in the order of the
    file.

    profile: size of the experiment, "toy", "mini" or "paper".
    training_row_count: number of rows to train on; None takes all that are not held
    out.
    held_out_row_count: number of held-out rows."""
    return efficientbert.make_training_and_held_out_rows_descriptor(
        profile,
        efficientbert.find_search_task(profile),
        training_row_count,
        held_out_row_count,
    )


def find_base_network(profile: ProfileName) -> Net:
    return efficientbert.scale_network_to_profile("Base Model", profile)


@cache_results_while_enabled
def search_stage_spec(
    profile: ProfileName,
    stage: SearchStage,
    method: RandomCascadeOrEvolution | ProfileDefault = None,
    factor_on_candidate_count: int = 1,
) -> Spec:
    """Describe the run that does one stage of EfficientBERT's search.

    Stages 2 and 3 start from the result of the stage before, an input of the run; the
    others start from the base network. Stage 3 scores subnetworks of a trained supernet
    (one network that contains all candidates). The others train each candidate network
    for a few epochs. The Spec is the frozen description of this run, still without a
    seed. Raises Refused for an unknown stage or method.

    profile: size of the experiment, "toy", "mini" or "paper".
    stage: "stage1" (formulas such as "W2 gelu(W1 x)" and sizes of the feed-forward
    networks), "stage2" (formulas), "stage3" (sizes), or "single" (both in one search).
    method: "random", "cascade" or "evolution"; None takes the profile's.
    factor_on_candidate_count: factor on the profile's number of evaluated
    candidates."""
    check_known_name("search stage", stage, BUDGET[profile])
    task = efficientbert.find_search_task(profile)
    inputs = {}
    how = (method, factor_on_candidate_count)
    args: Json = {
        "space": make_search_space(profile, stage),
        "search": make_search_settings(profile, stage, *how),
        "numerics": find_profile_settings(profile).numerics,
    }
    stages: dict[SearchStage, SearchStage] = {"stage2": "stage1", "stage3": "stage2"}
    before = stages.get(stage)
    if before:
        inputs["before"] = search_stage_spec(profile, before, *how)
        args["net"] = Output("before", "net")
    else:
        args["net"] = find_base_network(profile).to_json()
    if stage == LAST:
        count = grids.ROWS[profile].get(task)
        args["data"] = make_search_rows_descriptor(profile, count, HELD_OUT[profile])
        args |= {"train": TOGETHER[profile], "classifier": task}
        inputs["start"] = supernet_with_searched_formulas_spec(
            profile, inputs["before"]
        )
        if SCORE[profile] == "loss":
            inputs["teacher"] = efficientbert.teacher_spec(profile, task)
        return Spec("search", args, inputs)
    args["data"] = make_search_rows_descriptor(profile, *PART[profile])
    args |= {"train": BRIEFLY[profile], "warmup": TAUGHT[profile]}
    inputs["start"] = efficientbert.search_stages_1_and_2_supernet_training_spec(
        profile
    )
    inputs["teacher"] = efficientbert.teacher_spec(profile, task)
    if profile in BRIEF:
        args["corpus"] = efficientbert.make_candidate_corpus_descriptor(profile)
        args["pretrain"] = READ[profile]
        inputs["general"] = pretrained_encoder_spec(profile)
    return Spec("search", args, inputs)


def supernet_with_searched_formulas_spec(profile: ProfileName, search: Spec) -> Spec:
    """Describe the run that trains a supernet for the last stage of a search.

    A supernet is a network whose leading parts are smaller networks with shared
    weights. Stage 3, the last one of EfficientBERT's search, scores these without
    training. The formulas of the feed-forward networks are those that an earlier stage
    finds. The Spec is the frozen description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    search: Spec of that earlier stage."""
    spec = efficientbert.search_stage_3_supernet_training_spec(profile)
    outputs = {
        "net": Output("search", "supernet"),
        "shared": Output("search", "shared"),
    }
    start = train_network_of_search_spec(spec.inputs["start"], search, **outputs)
    return train_network_of_search_spec(
        replace(spec, inputs=spec.inputs | {"start": start}), search, **outputs
    )


def train_network_of_search_spec(
    spec: Spec, search: Spec, **changed_arguments: Output
) -> Spec:
    """Change a run's description so that it trains the network that a search finds.

    Return a copy of the Spec, the description. The network is not known before the
    search has run, so the copy refers to the result of the search. Both runs have the
    same seed.

    spec: Spec of a run that trains some network.
    search: Spec of the search.
    changed_arguments: arguments of the run that are results of the search. Without
    `net` the network is "net", the best one of the search."""
    args = spec.args | {"net": Output("search", "net")} | changed_arguments
    return Spec(spec.step, args, spec.inputs | {"search": search})


@cache_results_while_enabled
def retraining_spec(
    profile: ProfileName, task: TaskName, search: Spec, **training_changes: Any
) -> Spec:
    """Describe the run that fully trains the network that a search found.

    It is pre-trained on text, then distilled on the task. The networks in
    EfficientBERT's tables are trained in the same way, for comparison. The Spec is the
    frozen description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    search: Spec of the search.
    training_changes: training settings with other values, such as epochs=3."""
    start = train_network_of_search_spec(
        efficientbert.pretrained_network_spec(profile, "EfficientBERT"), search
    )
    return train_network_of_search_spec(
        efficientbert.task_distillation_spec(
            profile, task, find_base_network(profile), start, **training_changes
        ),
        search,
    )


@cache_results_while_enabled
def final_training_spec(
    profile: ProfileName,
    task: TaskName,
    net: Net | None = None,
    search: Spec | None = None,
) -> Spec:
    """Describe the run that fully trains a network on a task, after a search scored it.

    A search trains its candidates only briefly. The full training shows how good they
    are. At "paper" the network is pre-trained on text and distilled on the task, as the
    published networks are. At the small profiles it inherits weights from the supernet,
    the largest network, and is distilled on the task alone. The Spec is the frozen
    description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    net: description of the network; None takes the one that `search` finds.
    search: Spec of a search; None where `net` is given."""
    start = efficientbert.pretrained_supernet_spec(profile)
    if profile in BRIEF:
        if search:
            return retraining_spec(profile, task, search)
        assert net is not None
        start = efficientbert.pretraining_spec(profile, net, start)
    net = net or find_base_network(profile)
    train = FINAL.get(profile)
    spec = efficientbert.task_distillation_spec(profile, task, net, start, train=train)
    return train_network_of_search_spec(spec, search) if search else spec


@cache_results_while_enabled
def brief_training_with_search_score_spec(
    profile: ProfileName, net: Net, **training_changes: Any
) -> Spec:
    """Describe the run that trains a network as briefly as the search does.

    Stages 1 and 2 of the search train their candidates in the same way. The metrics of
    the run include the score on held-out rows by which these stages rank networks. So
    the ranking can be compared with that after full training. The Spec is the frozen
    description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    net: description of the network.
    training_changes: training settings with other values, such as epochs=3."""
    spec = efficientbert.brief_training_spec(
        profile,
        net,
        train=BRIEFLY[profile],
        data_descriptor=make_search_rows_descriptor(profile, *PART[profile]),
        **training_changes,
    )
    return replace(spec, args=spec.args | {"score": SCORE[profile] or None})


@cache
def sample_stage_1_candidates(
    profile: ProfileName, candidate_count: int | ProfileDefault = None
) -> tuple[Net, ...]:
    """Return different random networks of search stage 1, always the same ones.

    Stage 1 searches the formulas and sizes of all feed-forward networks. The networks
    serve EfficientBERT's Figure 3, which asks whether short and full training rank
    networks alike.

    profile: size of the experiment, "toy", "mini" or "paper".
    candidate_count: number of networks; None takes the profile's."""
    where = spaces.from_json(
        make_search_space(profile, "stage1")
        | {
            "start": find_base_network(profile).to_json(),
            "tables": efficientbert.list_embedding_sizes(profile),
        }
    )
    nets = {}
    rng = np.random.default_rng(derive_seed(0, "candidates"))
    while len(nets) < (candidate_count or CANDIDATES[profile]):
        net = where.sample_candidate(rng)
        nets.setdefault(where.make_deduplication_key(net), net)
    return tuple(nets.values())
