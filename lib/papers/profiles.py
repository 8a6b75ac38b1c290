"""The three profiles: where data and backbone come from. Free of torch."""

from dataclasses import dataclass

from lib.data import grammar, models
from lib.measure.cost import SHAPES, Shape
from lib.options import MaskedLM, Numerics, Train
from lib.spec import Spec, known


@dataclass(frozen=True)
class Profile:
    name: str
    source: str        # of the tasks, see lib.data
    numerics: Numerics
    about: str         # one line on every page


PROFILES = {
    "toy": Profile("toy", "toy", Numerics("float32", 1),
                   "generated sentences and a small encoder, made here: shows that everything works, proves nothing"),
    "mini": Profile("mini", "glue", Numerics("bfloat16", 1),
                    "real GLUE tasks, all-MiniLM-L6-v2 (6 layers, 384 hidden, 12 heads, 22.7 M parameters)"),
    "paper": Profile("paper", "glue", Numerics("float32", 1), "the paper's own tasks, backbones and settings"),
}

# The toy encoder: 12 heads as the papers' backbones, so that widths are the same twelfths.
TOY_MODEL = {"family": "bert", "layers": 2, "hidden": 192, "heads": 12, "ffn": 768, "init": 0.04}


def profile(name):
    """Raises ValueError naming the nearest profile."""
    known("profile", name, PROFILES)
    return PROFILES[name]


def checkpoint(name):
    """Spec of a published checkpoint; its seed is pinned, all replicates start from it."""
    known("checkpoint", name, models.HUB)
    return Spec("checkpoint", {"name": name, "digest": models.digest(name)}, seed=0)


def toy_backbone():
    """Spec of the small encoder pre-trained on generated text."""
    train = Train(epochs=2, batch=32, lr=2e-3, max_length=64, clip=1.0, warmup=0.1, weight_decay=0.01)
    objective = MaskedLM(share=0.3, hidden=0.6, replaced=0.3, next_sentence=True)
    return Spec("pretrain", {"corpus": {"sentences": 40000, "seed": 0}, "model": TOY_MODEL, "objective": objective,
                             "train": train, "numerics": PROFILES["toy"].numerics}, seed=0)


def shape(name):
    """The backbone of a profile as cost formulas see it."""
    if name == "toy":
        width = TOY_MODEL["hidden"]
        return Shape("bert", TOY_MODEL["layers"], width, TOY_MODEL["heads"], TOY_MODEL["ffn"], len(grammar.vocabulary()), 128,
                     2, width)
    return SHAPES[{"mini": "all-MiniLM-L6-v2", "paper": "bert-base"}[name]]
