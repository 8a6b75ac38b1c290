"""The three profiles: where data and encoder come from. Free of torch."""

import os
from dataclasses import dataclass

from lib.data import grammar, models
from lib.measure.cost import SHAPES, Shape
from lib.options import MaskedLM, Numerics, Train
from lib.papers import own
from lib.spec import Spec, known


@dataclass(frozen=True)
class Profile:
    name: str
    source: str  # of the tasks, see lib.data
    numerics: Numerics
    about: str  # one line on every page


DEVICE = os.environ.get("DEVICE", "")  # of all runs: "" is the CPU, "cuda" a GPU

PROFILES = {
    "toy": Profile(
        "toy",
        "toy",
        Numerics("float32", 1, DEVICE),
        "generated sentences and a small encoder, made here: shows that everything works, "
        "proves nothing",
    ),
    "mini": Profile(
        "mini",
        "glue",
        Numerics("bfloat16", 1, DEVICE),
        "real GLUE tasks, all-MiniLM-L6-v2 (6 layers, 384 hidden, 12 heads, 22.7 M parameters)",
    ),
    "paper": Profile(
        "paper",
        "glue",
        Numerics("float32", 1, DEVICE),
        "the paper's own tasks, backbones and settings",
    ),
}

# Published checkpoints that a profile starts from, by kind. CHECKPOINT names the rounded one of a
# pack, see lib.pack.
CHECKPOINTS = {
    "mini": {"bert": os.environ.get("CHECKPOINT", "all-MiniLM-L6-v2")},
    "paper": {"bert": "bert-base-uncased", "roberta": "roberta-base", "electra": "electra-small"},
}

# The toy encoder has 12 heads as the papers' backbones have, so that widths are the same twelfths.
TOY_MODEL = {"family": "bert", "layers": 2, "hidden": 192, "heads": 12, "ffn": 768, "init": 0.04}
# ELECTRA-small has four heads and narrow tables.
TOY_MODELS = {
    "bert": TOY_MODEL,
    "roberta": TOY_MODEL | {"family": "roberta"},
    "electra": TOY_MODEL | {"family": "electra", "heads": 4, "embedding": 96},
}
TOY_OBJECTIVES = {
    "bert": MaskedLM(share=0.3, hidden=0.6, replaced=0.3, next_sentence=True),
    "roberta": MaskedLM(share=0.3, hidden=0.6, replaced=0.3),
    "electra": MaskedLM(share=0.25, hidden=1.0, replaced=0.0),
}
# The first serves every paper, the others only Table 1 of GhostBERT.
TOY_SENTENCES = {"bert": 40000, "roberta": 20000, "electra": 20000}


def profile(name):
    """Raises ValueError naming the nearest profile."""
    known("profile", name, PROFILES)
    return PROFILES[name]


def checkpoint(name):
    """Spec of a published checkpoint; its seed is pinned, all replicates start from it."""
    known("checkpoint", name.removesuffix(models.ROUNDED), models.HUB)
    return Spec("checkpoint", {"name": name, "digest": models.digest(name)}, seed=0)


def families(name):
    """The kinds of encoder that a profile has; a reader's own model is of one."""
    if folder := own.of(name, "model"):
        return (own.shape(folder).family,)
    return tuple(TOY_MODELS if profile(name).name == "toy" else CHECKPOINTS[name])


def backbone(name, family="bert"):
    """Spec of the encoder that a profile's models of a kind start from.

    A reader's own model stands for every kind. Raises ValueError for a kind that the profile does
    not have.
    """
    if folder := own.of(name, "model"):
        return Spec("checkpoint", {"name": folder, "digest": models.weights(folder)}, seed=0)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    return toy_backbone(family) if name == "toy" else checkpoint(CHECKPOINTS[name][family])


def started(profile_name, name):
    """Spec of a published checkpoint, or of the reader's own model in its place."""
    return backbone(profile_name) if own.of(profile_name, "model") else checkpoint(name)


def toy_backbone(family="bert"):
    """Spec of the small encoder of a kind, pre-trained on generated text."""
    known("kind of small encoder", family, TOY_MODELS)
    train = Train(
        epochs=2,
        batch=32,
        lr=1e-3 if family == "electra" else 2e-3,
        max_length=64,
        clip=1.0,
        warmup=0.1,
        weight_decay=0.01,
    )
    return Spec(
        "pretrain",
        {
            "corpus": {"sentences": TOY_SENTENCES[family], "seed": 0},
            "model": TOY_MODELS[family],
            "objective": TOY_OBJECTIVES[family],
            "train": train,
            "numerics": PROFILES["toy"].numerics,
        },
        seed=0,
    )


def untrained(family="bert"):
    """The same encoder with random weights."""
    args = {name: value for name, value in toy_backbone(family).args.items() if name != "train"}
    return Spec("pretrain", args, seed=0)


def shape(name, family="bert"):
    """The encoder of a profile and a kind as cost formulas see it."""
    if folder := own.of(name, "model"):
        return own.shape(folder)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    if name != "toy":
        checkpoint = CHECKPOINTS[name][family].removesuffix(models.ROUNDED)
        return SHAPES[checkpoint.removesuffix("-uncased")]
    toy, roberta = TOY_MODELS[family], family == "roberta"
    return Shape(
        family,
        toy["layers"],
        toy["hidden"],
        toy["heads"],
        toy["ffn"],
        vocab=len(grammar.vocabulary()),
        positions=130 if roberta else 128,
        types=1 if roberta else 2,
        embedding=toy.get("embedding", toy["hidden"]),
    )
