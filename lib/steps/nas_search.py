"""Step: search which heads and neurons of a model to keep at a given cost, by gates that train
beside its weights (report on NAS pruning, sections 5 and 7).
"""

from lib.model import backbone
from lib.train import objectives
from lib.train.gating import GateSearch
from lib.train.learn import Lesson, learn
from lib.train.options import Gates, Objective


def nas_search(run, data, train, numerics, gates, objective):
    """Inputs: `start`, the model to search in, fine-tuned or general. `teacher` where the objective
    needs one; it may be the same model. `augmented` for its rows instead of the plain ones.

    Weights and gates learn from the same batches. The model is saved as it then is, with its gates;
    predictions and scores are those of its soft masks. What else is kept:
    lib.train.gating.GateSearch. The last model is the result: `train.select` is "last".
    """
    lesson = Lesson(run, data, train, numerics)
    model, tokenizer = lesson.start()
    search = GateSearch(run, model, Gates(**gates))
    rows = lesson.rows(tokenizer)
    objective = objectives.objective(lesson, model, rows, Objective(**objective))
    result = learn(lesson, model, tokenizer, rows, objective, [search])
    backbone.save(model, tokenizer, run.model)
    return result
