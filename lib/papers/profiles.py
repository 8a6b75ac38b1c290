"""The three profiles: where data and encoder come from. Free of torch."""

import os
from dataclasses import dataclass
from pathlib import Path

from lib.data import grammar, models
from lib.measure.cost import SHAPES, Shape
from lib.papers import own
from lib.runs import files
from lib.runs.spec import Spec, known
from lib.train.options import MaskedLM, Numerics, Train


@dataclass(frozen=True)
class Profile:
    name: str
    source: str  # of the tasks, see lib.data
    numerics: Numerics
    about: str  # one line on every page


DEVICE = os.environ.get("DEVICE", "")  # of all runs: "" is the CPU, "cuda" a GPU

TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is
PROFILES = {
    name: Profile(name, told["source"], Numerics(told["dtype"], 1, DEVICE), told["about"])
    for name, told in TOLD["PROFILES"].items()
}

# Published checkpoints that a profile starts from, by kind.
CHECKPOINTS = {
    "mini": {"bert": "all-MiniLM-L6-v2"},
    "paper": {"bert": "bert-base-uncased", "roberta": "roberta-base", "electra": "electra-small"},
}

TOY = TOLD["TOY"] | {"objective": MaskedLM(**TOLD["TOY"]["objective"])}  # arguments of `pretrain`


def profile(name):
    """Raises ValueError naming the nearest profile."""
    known("profile", name, PROFILES)
    return PROFILES[name]


def checkpoint(name):
    """Spec of a published checkpoint; its seed is pinned, all replicates start from it."""
    known("checkpoint", name, models.HUB)
    return Spec("checkpoint", {"name": name, "digest": models.digest(name)}, seed=0)


def families(name):
    """The kinds of encoder that a profile has; a reader's own model is of one."""
    if folder := own.of(name, "model"):
        return (own.shape(folder).family,)
    return tuple(CHECKPOINTS.get(profile(name).name, ("bert",)))


def backbone(name, family="bert"):
    """Spec of the encoder that a profile's models of a kind start from.

    A reader's own model stands for every kind. Raises ValueError for a kind that the profile does
    not have.
    """
    if folder := own.of(name, "model"):
        return Spec("checkpoint", {"name": folder, "digest": models.weights(folder)}, seed=0)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    return toy_backbone() if name == "toy" else checkpoint(CHECKPOINTS[name][family])


def started(profile_name, name):
    """Spec of a published checkpoint, or of the reader's own model in its place."""
    return backbone(profile_name) if own.of(profile_name, "model") else checkpoint(name)


def toy_backbone():
    """Spec of the small encoder, pre-trained on generated text."""
    common = dict(epochs=2, batch=32, max_length=64, clip=1.0, warmup=0.1, weight_decay=0.01)
    own = {"train": Train(**common, lr=2e-3), "numerics": PROFILES["toy"].numerics}
    return Spec("pretrain", TOY | own, seed=0)


def untrained():
    """The same encoder with random weights."""
    return Spec("pretrain", TOY | {"numerics": PROFILES["toy"].numerics}, seed=0)


def shape(name, family="bert"):
    """The encoder of a profile and a kind as cost formulas see it."""
    if folder := own.of(name, "model"):
        return own.shape(folder)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    if name != "toy":
        return SHAPES[CHECKPOINTS[name][family].removesuffix("-uncased")]
    sizes = (TOY["model"][size] for size in ("layers", "hidden", "heads", "ffn"))
    return Shape("bert", *sizes, len(grammar.vocabulary()), 128, 2, TOY["model"]["hidden"])
