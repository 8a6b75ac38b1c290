"""Step: a teacher's hidden states over the training rows, so that its students need not run it again."""

from lib import data as sources
from lib.model import backbone
from lib.options import Distil
from lib.train import loop
from lib.train import states as cache
from lib.train.batches import encode


def states(run, data, train, distil, numerics):
    """Input: `teacher`. `train` gives the length at which rows are cut."""
    numerics, train = loop.options(numerics, train)
    model, tokenizer = backbone.load(run.inputs["teacher"].model)
    rows = encode(tokenizer, sources.load(data)["train"], train.max_length)
    folder = run.folder / "model"  # large: kept only while another Spec needs it
    folder.mkdir(exist_ok=True)
    return cache.compute(
        model,
        rows,
        Distil(**distil).norm,
        numerics,
        folder / "states.safetensors",
        progress=run.progress,
    )
