"""Step: cut a teacher and add ghosts without any training; the ablation without distillation starts
from it.
"""

from lib.model import backbone
from lib.model.parts import size
from lib.runs.files import write_json
from lib.steps.distil import perform


def operate(run, surgery):
    """Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts by it; `search` where it
    keeps what was found.
    """
    model, tokenizer = backbone.load(run.inputs["teacher"].model)
    write_json(run.folder / "surgery.json", perform(run, model, surgery))
    backbone.save(model, tokenizer, run.model)
    return size(model)
