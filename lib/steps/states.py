"""Step: a teacher's hidden states over the training rows, so that its students need not run it
again.
"""

from lib.model import backbone
from lib.train import states as cache
from lib.train.learn import Lesson
from lib.train.options import Distil


def states(run, data, train, numerics, distil):
    """Input: `teacher`. `train` gives the length at which rows are cut; distil: that of the
    students.
    """
    lesson, _ = Lesson(run, data, train, numerics), Distil(**distil)
    model, tokenizer = backbone.load(run.inputs["teacher"].model)
    folder = run.folder / "model"  # large: kept only while another Spec needs it
    folder.mkdir(exist_ok=True)
    path = folder / "states.safetensors"
    return cache.compute(
        model, lesson.rows(tokenizer), lesson.numerics, path, progress=run.progress
    )
