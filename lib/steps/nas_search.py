"""Step: search which heads and neurons of a model to keep at a given cost, by gates that train beside its weights
(report on NAS pruning, sections 5 and 7)."""

import numpy as np
import torch

from lib import data as sources
from lib.model import backbone
from lib.model import gates as masks
from lib.options import Gates, Objective
from lib.search.gates import Control
from lib.spec import stream
from lib.steps.distil import learned
from lib.steps.finetune import evaluation, predictions
from lib.train import heads, loop, objectives


def nas_search(run, data, train, numerics, gates, objective):
    """Inputs: `start`, the model to search in, fine-tuned or general, or an earlier search whose gates go on; `teacher`,
    which may be the same, where the objective needs one; `augmented` for its rows instead of the plain ones.

    Weights and gates learn from the same batches. The model is saved as it then is, gates and all; predictions and scores
    are those of its soft masks. Saved arrays "search": the curve [steps, 4] (target and actual ratio, gates switched off
    and on) and every alpha. Metrics: `architecture`, what the operation "keep" takes; `flops`, `whole_flops` and `ratio`
    of the cut model; `before_trim` and `trimmed` of a final trim.
    Raises ValueError for a target out of reach, gates that do not fit, and for `select`: the last model is the result.
    """
    numerics, train = loop.options(numerics, train)
    if train.select != "last":
        raise ValueError(
            f'Train.select is {train.select!r}; a search ends at its target in the last step: take "last"'
        )
    options, objective = Gates(**gates), Objective(**objective)
    splits, task = sources.load(data), sources.described(data)
    model, tokenizer = heads.network(
        run.inputs["start"].model, task, train.dropout, stream(run.seed, "head")
    )
    alphas = list(masks.ensure(model, options.regions).values())
    sizes, cost = masks.costs(model, options.regions)
    control = Control(options, sizes, cost, run.seed)
    rows = learned(run, data, tokenizer, task, train)
    steps = -(-len(rows) // train.batch) * train.epochs
    for name, size in (
        ("curve", (steps, 4)),
        ("average", (len(control.region),)),
    ):  # parts of its checkpoints
        model.register_buffer(name, torch.zeros(size, dtype=torch.float64))

    def steer(step, _):
        found = [a.new_zeros(a.shape) if a.grad is None else a.grad for a in alphas]
        moved, average, note = control.move(
            flat(alphas), model.average.cpu().numpy(), flat(found), step, steps
        )
        write(alphas, moved)
        model.average.copy_(torch.from_numpy(average))
        model.curve[step] = torch.from_numpy(note)

    with objectives.learning(run, objective, model, rows, task, train, numerics, steps) as (
        loss,
        before,
    ):
        hooks = loop.Hooks(apart=tuple(alphas), before=before, gradients=steer)
        result = loop.fit(run, model, rows, loss, train, numerics, hooks=hooks)
    last, trimmed = flat(alphas), []
    result["before_trim"] = control.ratio(last)
    if options.landing:
        last, trimmed = control.trim(last, model.average.cpu().numpy())
        write(alphas, last)
    curve = model.curve.cpu().numpy()
    del model.curve, model.average
    on = control.on(last)
    found, ratio = masks.architecture(sizes, on), control.ratio(last)
    run.save_arrays(
        "search",
        curve=curve.astype(np.float32),
        **{  # small: they are committed with a record
            f"{layer}.{kind}": alpha.detach().cpu().half().numpy()
            for (layer, kind), alpha in masks.alphas(model).items()
        },
    )
    backbone.save(model, tokenizer, run.model)
    return (
        result
        | predictions(run, evaluation(model, tokenizer, splits, task, train, numerics))
        | {
            "architecture": found,
            "target": options.ratio,
            "ratio": ratio,
            "miss": ratio / options.ratio - 1,
            "flops": control.full * ratio,
            "whole_flops": control.full,
            "trimmed": len(trimmed),
            "switched_off": int(curve[:, 2].sum()),
            "switched_on": int(curve[:, 3].sum()),
        }
    )


def flat(tensors):
    """One float64 array of several tensors."""
    return torch.cat([t.detach() for t in tensors]).double().cpu().numpy()


def write(alphas, values):
    """The reverse of `flat`, in place."""
    with torch.no_grad():
        for alpha, part in zip(
            alphas, np.split(values, np.cumsum([len(a) for a in alphas])[:-1]), strict=True
        ):
            alpha.copy_(torch.from_numpy(part))
