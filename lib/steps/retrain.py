"""Step: cut an architecture out of a model and train it on a teacher's states, logits, or on labels (report on NAS
pruning, sections 5.4 and 5.5): of the two stages, each is one run."""

from lib import data as sources
from lib.model import backbone
from lib.model import gates as masks
from lib.model.surgery import operate
from lib.options import Objective
from lib.spec import stream
from lib.steps.distil import learned
from lib.steps.finetune import evaluation, judged, predictions
from lib.train import heads, loop, objectives


def retrain(run, data, train, numerics, objective, architecture=None):
    """Inputs: `start`, whose weights are taken: the model that was searched in, or the search itself, whose gates then are
    left out (section 7.8); `teacher` where the objective needs one; `search`, so that `architecture` can be its Output;
    `augmented` for its rows instead of the plain ones.

    architecture: {"heads", "neurons", ...} of `nas_search` or `random_architecture`; none keeps the model as it is.
    Predictions and metrics as those of `finetune`; `flops` in the report's convention.
    """
    numerics, train = loop.options(numerics, train)
    objective = Objective(**objective)
    splits, task = sources.load(data), sources.described(data)
    model, tokenizer = heads.network(
        run.inputs["start"].model, task, train.dropout, stream(run.seed, "head")
    )
    if masks.present(model):
        masks.detach(model)
    if architecture:
        operate(model, {"op": "keep"} | architecture)
    rows = learned(run, data, tokenizer, task, train)
    steps = -(-len(rows) // train.batch) * train.epochs
    judges = evaluation(model, tokenizer, splits, task, train, numerics)
    with objectives.learning(run, objective, model, rows, task, train, numerics, steps) as (
        loss,
        before,
    ):
        result = loop.fit(
            run,
            model,
            rows,
            loss,
            train,
            numerics,
            lambda: judged(judges["dev"], task, train),
            loop.Hooks(before=before),
        )
    backbone.save(model, tokenizer, run.model)
    return result | predictions(run, judges) | backbone.size(model) | {"flops": masks.flops(model)}
