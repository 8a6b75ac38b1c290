"""The three profiles: where data and encoder come from, and a reader's own data and model in the
place of a profile's. Free of torch.

An `Own` is the name of a profile. It finds the settings of that profile in every table, and says
where rows and encoder come from instead. So no paper knows of it: `lib.papers.grids` describes the
rows, `backbone` here the encoder.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from lib import data
from lib.data import grammar, lines, models, own
from lib.measure.cost import CONFIG, SHAPES, Shape, configured
from lib.runs import files, paths
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

# Of a reader's own data and model.
MOST = {"toy": 4000, "mini": 4000, "paper": None}  # training rows at most
FAMILIES = ("bert", "roberta", "electra")
OTHER = "take another model"
LONGEST = 128  # tokens that the position table must have
PARAMETERS = ("profile", "data", "model")  # of notebooks and commands
NEEDED = ("config.json", "model.safetensors", "tokenizer.json vocab.txt vocab.json")  # one of each


def profile(name):
    """Raises ValueError naming the nearest profile."""
    known("profile", name, PROFILES)
    return PROFILES[name]


def checkpoint(name):
    """Spec of a published checkpoint; its seed is pinned, all replicates start from it."""
    known("checkpoint", name, models.HUB)
    return Spec("checkpoint", {"name": name, "digest": data.checkpoint_digest(name)}, seed=0)


def families(name):
    """The kinds of encoder that a profile has; a reader's own model is of one."""
    if folder := of(name, "model"):
        return (shape_of(folder).family,)
    return tuple(CHECKPOINTS.get(profile(name).name, ("bert",)))


def backbone(name, family="bert"):
    """Spec of the encoder that a profile's models of a kind start from.

    A reader's own model stands for every kind. Raises ValueError for a kind that the profile does
    not have.
    """
    if folder := of(name, "model"):
        return Spec("checkpoint", {"name": folder, "digest": data.weights(folder)}, seed=0)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    return toy_backbone() if name == "toy" else checkpoint(CHECKPOINTS[name][family])


def started(profile_name, name):
    """Spec of a published checkpoint, or of the reader's own model in its place."""
    return backbone(profile_name) if of(profile_name, "model") else checkpoint(name)


def toy_backbone():
    """Spec of the small encoder, pre-trained on generated text."""
    common = dict(epochs=2, batch=32, max_length=64, clip=1.0, warmup=0.1, weight_decay=0.01)
    told = {"train": Train(**common, lr=2e-3), "numerics": PROFILES["toy"].numerics}
    return Spec("pretrain", TOY | told, seed=0)


def untrained():
    """Spec of the small encoder with random weights."""
    return Spec("pretrain", TOY | {"numerics": PROFILES["toy"].numerics}, seed=0)


def shape(name, family="bert"):
    """The encoder of a profile and a kind as cost formulas see it."""
    if folder := of(name, "model"):
        return shape_of(folder)
    known(f"kind of encoder in profile {name!r}", family, families(name))
    if name != "toy":
        return SHAPES[CHECKPOINTS[name][family].removesuffix("-uncased")]
    sizes = (TOY["model"][size] for size in ("layers", "hidden", "heads", "ffn"))
    return Shape("bert", *sizes, len(grammar.vocabulary()), 128, 2, TOY["model"]["hidden"])


class Own(str):
    """The name of a profile, with the reader's data, model, or both.

    data: a name of `lib.data.own.task_of`, or "". model: the full path of a folder, or "".
    """

    def __new__(cls, profile, data="", model=""):
        self = super().__new__(cls, profile)
        self.data, self.model = data and own.task_of(data), model and folder(model)
        if data and profile == "toy" and not model:
            fix = "name a model, or take the profile 'mini'"
            raise ValueError(f"the encoder of 'toy' knows generated words alone: {fix}")
        return self

    def __str__(self):
        named = " and ".join(name for name in PARAMETERS[1:] if getattr(self, name))
        return f"{self[:]}, own {named}"

    @property
    def task(self):
        """What tables call the reader's task; "" where the tasks are the profile's."""
        return own.title(self.data) if self.data else ""

    def about(self):
        """Sentences for a page on what is the reader's; the first one is for captions."""
        named = [f"data: {self.task}"] * bool(self.data)
        named += [f"model: {Path(self.model).name}"] * bool(self.model)
        lines = [f"Your own {', '.join(named)}."]
        if self.data:
            task, there = data.task("own", self.data), data.splits("own", self.data)
            count, most = len(there["train"]), MOST[self]
            kind = "answers" if task.span else "scores"
            kind = f"{len(task.labels)} classes" if task.labels else kind
            rows = f"{count:,} training and {len(there['dev']):,} development rows"
            capped = f", trained on {most:,} of them" * bool(most and count > most)
            lines.append(f"The data have {rows} of {kind}{capped}.")
        if self.model:
            s = shape_of(self.model)
            sizes = f"{s.layers} layers of {s.hidden}, {s.heads} heads, {s.ffn} neurons"
            lines.append(f"The model is a {s.family} of {sizes}.")
        settled = (
            f"All other settings are those of profile {self[:]}; the paper's verdicts are off."
        )
        return [*lines, settled]


def named(profile, data="", model=""):
    """The profile's name, an `Own` where data or model are given."""
    return Own(profile, data, model) if data or model else profile


def meant(values):
    """The profile's name that the parameters of a notebook mean; only those that take data of a
    reader's own have a `model` that is a folder."""
    told = PARAMETERS if "data" in values else PARAMETERS[:1]
    return named(*(values.get(name, "") for name in told))


def values(profile_name):
    """The parameters of a notebook that mean a profile's name."""
    own = {name: of(profile_name, name) for name in PARAMETERS[1:]}
    return {"profile": profile_name[:]} | (own if isinstance(profile_name, Own) else {})


def words(profile_name):
    """The words of a command that mean a profile's name."""
    return [
        f"--{name} {shlex.quote(value)}" for name, value in values(profile_name).items() if value
    ]


def of(profile_name, what):
    """The reader's `data`, `model` or `task` behind a profile's name; "" where it has none."""
    return getattr(profile_name, what, "")


def told(profile_name):
    """Lines on what was read of the reader's own; none of a profile alone."""
    if not isinstance(profile_name, Own):
        return []
    return [*profile_name.about(), *(own.told(profile_name.data) if profile_name.data else ())]


def titles(profile_name):
    """What the reader's data and model are called, each where there is one."""
    model = of(profile_name, "model")
    return [name for name in (of(profile_name, "task"), model and Path(model).name) if name]


def content(profile_name):
    """Digests of the reader's data and model, "" where there is none."""
    name, model = (of(profile_name, what) for what in PARAMETERS[1:])
    return [name and data.digest_of("own", name), model and data.weights(model)]


def rows(name, profile_name, wanted, held_out):
    """(training rows or None for all, held-out rows) of a reader's task: what is wanted, or as many
    as there are. A fifth of the training rows is held out at most."""
    there, most = len(data.splits("own", name)["train"]), MOST[profile_name]
    held_out = min(held_out, there // 5)
    return min(wanted or most or there, most or there, there - held_out), held_out


def folder(path):
    """The full path of a reader's model. A path may be relative to the working folder or to the
    project. Raises FileNotFoundError where a file of it is missing, ValueError as `shape_of`."""
    found = paths.meant(path)
    for names in map(str.split, NEEDED):
        if not any((found / name).is_file() for name in names):
            form = "it must be a BERT, RoBERTa or ELECTRA folder as save_pretrained writes it"
            raise FileNotFoundError(
                f"no model {str(path)!r}: it has no {' or '.join(names)}; {form}"
            )
    shape_of(found)
    return str(found)


def shape_of(path):
    """The Shape of a reader's model, from its config.json. Raises ValueError for what is no BERT,
    RoBERTa or ELECTRA, for sizes that cannot be, for uneven heads, and for short position
    tables."""
    body = lines.parsed(file := Path(path) / "config.json")
    family = body.get("model_type") if isinstance(body, dict) else None
    if family not in FAMILIES:
        raise lines.malformed(file, f"a model of type {family!r}", " or ".join(FAMILIES), OTHER)
    sizes = {name: body.get(name) for name in CONFIG[1:]}
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise lines.malformed(file, f"{name} {size!r}", "a whole number above 0", OTHER)
    positions, least = sizes["max_position_embeddings"], LONGEST + 2 * (family == "roberta")
    if positions < least:
        raise lines.malformed(file, f"{positions} positions", f"{least} for long rows", OTHER)
    return configured(body)
