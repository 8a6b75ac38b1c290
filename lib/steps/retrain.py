"""Step: cut an architecture out of a model and train it on a teacher's states, on its logits, or on
labels (report on NAS pruning, sections 5.4 and 5.5). Each of the two stages is one run.
"""

from lib.model import backbone, gates
from lib.model.parts import size
from lib.model.surgery import operate
from lib.train import objectives
from lib.train.gating import flops
from lib.train.learn import Lesson, learn
from lib.train.options import Objective


def retrain(run, data, train, numerics, objective, architecture=None):
    """Inputs: `start`, whose weights are taken: the model that was searched in, or the search
    itself, whose gates are then left out (section 7.8). `teacher` where the objective needs one.
    `search`, so that `architecture` can be its Output. `augmented` for its rows instead of the
    plain ones.

    architecture: {"heads", "neurons", ...} of `nas_search` or `random_architecture`; none keeps the
    model as it is. Predictions and metrics are those of `finetune`; `flops` is in the report's
    convention.
    """
    lesson = Lesson(run, data, train, numerics)
    model, tokenizer = lesson.start()
    if gates.present(model):
        gates.detach(model)
    if architecture:
        operate(model, {"op": "keep"} | architecture)
    rows = lesson.rows(tokenizer)
    objective = objectives.objective(lesson, model, rows, Objective(**objective))
    result = learn(lesson, model, tokenizer, rows, objective)
    backbone.save(model, tokenizer, run.model)
    return result | size(model) | {"flops": flops(model)}
