"""This module has EfficientBERT's searches: settings and Specs of Tables 5 and 6 and of
Figure 3.

A chain of three searches hands its winners on inside the Specs. `Output("before",
"net")` is the network that the search before found. `Output("search", "supernet")` is
that network with all stacks and the full width: the last stage trains it as a supernet.
The module is free of torch."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from lib.core.names import check_name, stream
from lib.core.options import Train
from lib.core.spec import Output, Spec
from lib.core.types import Json
from lib.papers import grids, published
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert.options import Search
from lib.papers.efficientbert.recipes import BRIEF, PART, READ, TAUGHT, TOGETHER
from lib.papers.efficientbert.search import space as spaces
from lib.papers.efficientbert.search.net import Net
from lib.papers.grids import backbone, profile_of

SINGLE, LAST = "single", "stage3"
S = efficientbert.S
# Tables of settings.toml on searches, which describes each.
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
DEVIATIONS = published.deviations("efficientbert", "search")


def space(profile: str, stage: str) -> Json:
    """Return the argument `space` of the step search: stage, window of sizes,
    grammar."""
    low, high = efficientbert.window(profile)
    return {"stage": stage, "low": low, "high": high, "grammar": spaces.grammar(stage)}


def sampler(profile: str, stage: str, method: str = "", budget: int = 1) -> Search:
    """Return the Search of a stage: how it proposes candidates.

    method: "" means the profile's. budget: a multiple of the profile's number of
    evaluations. Raises Refused with the nearest method."""
    method, budget = method or METHOD[profile], budget * BUDGET[profile][stage]
    check_name("search method", method, METHODS)
    more: Json = METHODS[method] | {"method": method, "score": SCORE[profile]}
    if method == "cascade":
        more |= zip(("initial", "refit"), LEARN[profile], strict=True)
    if method == "evolution":
        more["population"] = min(more["population"], budget // 2)
    return Search(budget=budget, draws=DRAWS[profile], **more)


def rows(profile: str, count: int | None, held_out: int) -> Json:
    """Return the descriptor of rows of the proxy task, and of held-out rows that score
    candidates.

    count, held_out: how many rows there are of each.
    """
    return efficientbert.describe_held_out(
        profile, efficientbert.proxy(profile), count, held_out
    )


def base_spec(profile: str) -> Net:
    return efficientbert.scale_network("Base Model", profile)


def search_spec(profile: str, stage: str, method: str = "", budget: int = 1) -> Spec:
    """Return the Spec of a search stage, which starts from the stage before it.

    "single" searches the space of stage 1 to the end. Stage 3 scores parts of a
    supernet and trains none of them. method, budget: as in `sampler`. Raises Refused
    with the nearest stage."""
    check_name("search stage", stage, BUDGET[profile])
    task, inputs, how = efficientbert.proxy(profile), {}, (method, budget)
    args: Json = {
        "space": space(profile, stage),
        "search": sampler(profile, stage, method, budget),
    }
    args["numerics"] = profile_of(profile).numerics
    before = {"stage2": "stage1", LAST: "stage2"}.get(stage)
    if before:
        inputs["before"] = search_spec(profile, before, *how)
        args["net"] = Output("before", "net")
    else:
        args["net"] = base_spec(profile).to_json()
    if stage == LAST:
        count = grids.ROWS[profile].get(task)
        args["data"] = rows(profile, count, HELD_OUT[profile])
        args |= {"train": TOGETHER[profile], "classifier": task}
        inputs["start"] = supernet_after_search(profile, inputs["before"])
        if SCORE[profile] == "loss":
            inputs["teacher"] = efficientbert.teacher(profile, task)
        return Spec("search", args, inputs)
    args["data"] = rows(profile, *PART[profile])
    args |= {"train": BRIEFLY[profile], "warmup": TAUGHT[profile]}
    inputs["start"] = efficientbert.supernet_spec(profile)
    inputs["teacher"] = efficientbert.teacher(profile, task)
    if profile in BRIEF:
        args["corpus"] = efficientbert.brief_text(profile)
        args["pretrain"] = READ[profile]
        inputs["general"] = backbone(profile)
    return Spec("search", args, inputs)


def supernet_after_search(profile: str, search: Spec) -> Spec:
    """Return the Spec of stage 3's supernet, with the formulas that a search ended on.

    It is the Spec of `lib.papers.efficientbert.recipes`, made anew for each seed of the
    search."""
    spec = efficientbert.shared_supernet_spec(profile)
    args = {"output": "supernet", "shared": Output("search", "shared")}
    return respecify(
        spec, search, {"start": respecify(spec.inputs["start"], search, **args)}, **args
    )


def respecify(
    spec: Spec,
    search: Spec,
    inputs: Mapping[str, Spec] | Iterable[tuple[str, Spec]] = (),
    output: str = "net",
    **args: Any,
) -> Spec:
    """Return a Spec with the network and the seed of a search, and other inputs and
    arguments."""
    args = spec.args | {"net": Output("search", output)} | args
    return Spec(spec.step, args, spec.inputs | dict(inputs) | {"search": search})


def retraining_spec(profile: str, task: str, search: Spec, **tuning: Any) -> Spec:
    """Return the Spec of a search's winner, trained as the rows of the tables are.

    It is pre-trained and then fine-tuned.
    """
    start = respecify(efficientbert.preparation_spec(profile, "EfficientBERT"), search)
    return respecify(
        efficientbert.task_distillation_spec(
            profile, task, base_spec(profile), start, **tuning
        ),
        search,
    )


def final(
    profile: str, task: str, net: Net | None = None, search: Spec | None = None
) -> Spec:
    """Return the Spec of a network, or of a search's winner, trained to the end on a
    task.

    At `paper` that is the training of the tables. At the small scales it is training on
    the task alone, from the supernet."""
    start = efficientbert.supernet(profile)
    if profile in BRIEF:
        if search:
            return retraining_spec(profile, task, search)
        assert net is not None
        start = efficientbert.pretraining_spec(profile, net, start)
    net, train = net or base_spec(profile), FINAL.get(profile)
    spec = efficientbert.task_distillation_spec(profile, task, net, start, train=train)
    return respecify(spec, search) if search else spec


def brief_training_spec(profile: str, net: Net, **tuning: Any) -> Spec:
    """Return the Spec of a candidate as stages 1 and 2 train it.

    Its score is that of the held-out rows.
    """
    defaults: Json = {"train": BRIEFLY[profile], "rows": rows(profile, *PART[profile])}
    spec = efficientbert.candidate_spec(profile, net, **defaults | tuning)
    score = {"score": SCORE[profile]} if SCORE[profile] else {}
    return replace(spec, args=spec.args | score)


@cache
def candidates(profile: str, count: int = 0) -> tuple[Net, ...]:
    """Return different networks of stage 1, drawn without guidance: always the same
    networks."""
    where = spaces.from_json(
        space(profile, "stage1")
        | {
            "start": base_spec(profile).to_json(),
            "tables": efficientbert.tables(profile),
        }
    )
    nets, rng = {}, np.random.default_rng(stream(0, "candidates"))
    while len(nets) < (count or CANDIDATES[profile]):
        net = where.draw(rng)
        nets.setdefault(where.key(net), net)
    return tuple(nets.values())
