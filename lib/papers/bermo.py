"""BERMo (Kodge and Roy, 2021): its settings at each profile, its Specs and its grids.

At `paper` the settings are the printed ones (Appendix A.1, Tables 6 to 11) and, where the paper is
silent, those of the public code of movement pruning. `toy` and `mini` have settings of their own,
chosen before their first recorded run. The pages list each difference
(`data/published/bermo/deviations.toml`). Free of torch.
"""

from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

from lib import files, published
from lib.data.read import SQUAD
from lib.measure.compare import Column
from lib.options import MIX_NORMS, Mix, Prune, Targets
from lib.papers import grids, mini
from lib.papers.profiles import backbone
from lib.spec import Spec, known

TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is

# ---- TABLES

MODELS = ("BERT", "BERMo")
# Rows of Table 4, and the penalty methods steered to a tenth of the weights: not in the paper.
METHODS = {"Magnitude": "magnitude", "L0": "l0", "Movement": "movement", "Soft Movement": "soft"}
AIMED = {"L0, to 10 %": "L0", "Soft Movement, to 10 %": "Soft Movement"}

PROBES = TOLD["PROBES"]
SEMANTIC = ("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")
COLUMNS = tuple(Column(*told) for told in TOLD["COLUMNS"])
TABLES = TOLD["TABLES"]

# ---- SETTINGS: by profile and, where they differ, by task; "" is every other task

ALL = tuple(PROBES.values())
PROBING = {"toy": ("BigramShift", "Tense", "CoordinationInversion"), "mini": ALL, "paper": ALL}
# Tasks on which a baseline sees cased text. Generated text has no capitals.
CASED = {"toy": (), "mini": ("Tense", "SubjNumber"), "paper": ("Tense", "SubjNumber")}
UNPRUNED = TOLD["UNPRUNED"]
# Tasks whose mixes are shown. The first one has all readings of the normalisation.
MIXES = {
    name: tuple(dict.fromkeys((first, *PROBING[name], *UNPRUNED[name])))
    for name, first in (("toy", "BigramShift"), ("mini", "WordContent"), ("paper", "Tense"))
}
STABILITY = {"toy": ("Tense",), "mini": mini.BOTH, "paper": ("SST-2",)}
PRUNED = {"toy": ("Tense",), "mini": ("SST-2",), "paper": ("MNLI", "QQP", "SQuAD1")}
# At paper the seeds of Table 12; the other tables print one run.
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (63, 77, 9, 96, 39)}
PROBED = SEEDS | {"mini": mini.FIVE}  # of Table 1
TEN = {"toy": (0, 1, 2, 3), "mini": mini.TEN, "paper": (9, 25, 39, 52, 59, 63, 77, 87, 91, 96)}
BUDGETS, EXAMPLES, LONG = TOLD["BUDGETS"], TOLD["EXAMPLES"], TOLD["LONG"]
# Training rows; all where a task is not named.
ROWS = {
    "toy": {"": 512, "SQuAD1": 256},
    "mini": grids.ROWS["mini"]
    | dict.fromkeys(("Length", "TopConstituents", "BigramShift", "Tense", "OddManOut"), 2000),
    "paper": {},
}
DENSE = grids.training(
    epochs=(4, 5, 3), batch=(16, 16, 32), lr=(5e-4, 1e-4, 5e-5), warmup=(0.1, 0.1, 0.0)
)
MASKED = grids.training(epochs=(5, 6, 6), batch=(16, 32, 32), lr=(1e-3, 1e-4, 3e-5))
# Epochs at paper; Tables 7 and 11 leave 6, 10 and 10 out.
EPOCHS = {"SST-2": 25, "MNLI": 6, "QQP": 10, "SQuAD1": 10}
GPUS = {"SQuAD1": 2}  # two devices of 8 rows in print, one of 16 here
MIX = {name: Mix(**told) for name, told in TOLD["MIX"].items()}
HEAD = 1e-3  # learning rate of a probe's head: not in the paper

WARMUPS, PENALTIES = TOLD["WARMUPS"], TOLD["PENALTIES"]
# First and last threshold.
THRESHOLDS = {"magnitude": (1.0, 0.1), "movement": (1.0, 0.1), "soft": (0.0, 0.1), "l0": (1.0, 1.0)}
SCORES = 1e-2  # mask_scores_learning_rate of movement
# Distillation during pruning: its share of the loss. The temperature is the public code's.
ALPHA, TAUGHT = 0.9, Targets("both", sum_classes=True, temperature=2.0)
# A run diverged that ends within this of the majority class. The paper does not define the word.
DIVERGED = 0.02

DEVIATIONS = published.deviations("bermo")


def of(settings, profile_name, task, what):
    """What a profile has for a task. Raises ValueError for a task that it has nothing for."""
    there = settings[profile_name]
    if "" not in there:
        known(f"task with {what} at {profile_name}", task, there)
    return there.get(task, there.get(""))


seeds = partial(grids.seeds, own=SEEDS)


# ---- SPECS


def common(profile_name, task, model, **args):
    """Arguments of every run on a task: its rows, how it is cut, the model's mix, and these."""
    own = {"margin": DIVERGED, "span": grids.span(profile_name, task)}
    own |= {"mix": mixed(profile_name, model)}
    return grids.common(profile_name, task, described(profile_name, task), **own, **args)


def described(profile_name, task):
    """Descriptor of the rows of every run on a task."""
    rows = ROWS[profile_name]
    return grids.described(profile_name, task, rows.get(task, rows.get("")))


def mixed(profile_name, model):
    """The Mix of a model; None of BERT, which has none."""
    known("model", model, MODELS)
    return MIX[profile_name] if model == "BERMo" else None


def trained(own, profile_name, task, **changes):
    """Settings of training on a task; a change that is None is none."""
    long = LONG[profile_name] if task in SQUAD else {}
    return replace(own[profile_name], **long | {k: v for k, v in changes.items() if v is not None})


def dense(profile_name, task, model="BERT", norm=None, probe=False, lower_case=None):
    """Spec of an un-pruned model.

    norm: another reading of the mix. probe: encoder and embeddings keep their weights. lower_case:
    False gives the text as it is to the uncased vocabulary.
    """
    told = common(
        profile_name,
        task,
        model,
        train=trained(DENSE, profile_name, task, lr=HEAD if probe else None),
        targets=grids.LABELS,
        frozen="encoder" if probe else None,
        lower_case=lower_case,
    )
    if norm and told["mix"]:
        told["mix"] = replace(told["mix"], norm=norm)
    return Spec("fineprune", told, {"start": backbone(profile_name)})


def warmup(w, steps):
    """The `Train.warmup` whose linear warm-up is exactly w of so many steps.

    Raises ValueError where it is longer than the run.
    """
    if not 0 <= w <= steps:
        raise ValueError(
            f"a warm-up of {w} steps does not fit a run of {steps}: take at most {steps}"
        )
    return min(1.0, (w + 0.5) / steps) if w else 0.0


def settings(profile_name, task, model="BERT", method="Movement", epochs=None, target=0.0):
    """(Train, Prune) of a pruned model; epochs: other than the profile's.

    target: the share of the weights that a penalty is steered to. Where the warm-ups do not fit the
    epochs, the threshold falls by one jump, as in the public code.
    """
    known("pruning method", method, METHODS)
    kind, lr = METHODS[method], None
    if profile_name == "paper":
        known("task with printed settings", task, EPOCHS)
        epochs = epochs or EPOCHS[task]
        lr = 3e-6 if task == "QQP" and kind in ("movement", "soft") else None
    train = trained(MASKED, profile_name, task, epochs=epochs or None, lr=lr)
    capped = profile_name != "paper" and described(profile_name, task).get("rows")
    rows = capped or of(EXAMPLES, profile_name, task, "a known number of rows")
    steps = ceil(rows / train.batch) * train.epochs
    w, first, last = of(WARMUPS, profile_name, task, "warm-ups")
    if kind == "l0":
        first, last = 1, 1
    if not EXAMPLES[profile_name] and w * (first + last) >= steps:  # few rows have short ones
        w = steps // (first + last + 1)
    more = {"lr": SCORES} if kind == "movement" else {}
    if kind in PENALTIES:
        rate, *weights = of(PENALTIES[kind], profile_name, task, f"settings of {method}")
        init = 2.197 if kind == "l0" else 0.0
        more = {"lr": rate, "final_lambda": weights[MODELS.index(model)], "init": init}
    overlong = "jump" if w * (first + last) >= steps else "refuse"
    prune = Prune(kind, *THRESHOLDS[kind], w, first, last, target=target, overlong=overlong, **more)
    return replace(train, warmup=warmup(w, steps)), prune


def pruned(
    profile_name, task, model="BERT", method="Movement", epochs=None, target=0.0, distilled=False
):
    """Spec of a pruned model. distilled: 0.9 of the loss come from the dense BERT of the task; the
    rest as in `settings`."""
    train, prune = settings(profile_name, task, model, method, epochs, target)
    taught = {"targets": TAUGHT, "alpha": ALPHA} if distilled else {"targets": grids.LABELS}
    told = {"train": train, "prune": prune, "frozen": "embeddings"} | taught
    guide = {"teacher": dense(profile_name, task)} if distilled else {}
    return Spec(
        "fineprune",
        common(profile_name, task, model, **told),
        {"start": backbone(profile_name)} | guide,
    )


# ---- GRIDS


def probing(profile_name, task_names, seed_numbers):
    """The grid of Table 1 and, beside it, of the probe proper: with a frozen encoder."""
    make = partial(dense, profile_name)
    models = {name: partial(make, model=name) for name in MODELS}
    models |= {f"{name}, frozen encoder": partial(make, model=name, probe=True) for name in MODELS}
    return grids.crossed(
        seed_numbers, lambda task, model: models[model](task), task=task_names, model=models
    )


def cased(profile_name, task_names, seed_numbers):
    """The grid beside Table 1, on the tasks of CASED: a BERT whose script forgot to lower-case its
    text, which would explain weak baselines."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: dense(profile_name, task, lower_case=False),
        task=[name for name in task_names if name in CASED[profile_name]],
        model=("BERT, cased text",),
    )


def unpruned(profile_name, task_names, seed_numbers):
    """The grid of Table 2."""
    make = partial(dense, profile_name)
    return grids.crossed(seed_numbers, make, task=task_names, model=MODELS)


def mixes(profile_name, task_names, seed_numbers):
    """The grid of the learned mixes: both models un-pruned and, on the first task, the other
    readings of the normalisation."""
    own = MIX[profile_name].norm
    others = grids.crossed(
        seed_numbers,
        partial(dense, profile_name),
        task=task_names[:1],
        model=("BERMo",),
        norm=[norm for norm in MIX_NORMS if norm != own],
    )
    return [
        row | {"norm": own} for row in unpruned(profile_name, task_names, seed_numbers)
    ] + others


def stability(profile_name, task_names, seed_numbers):
    """The grid of Table 3: movement pruning to a tenth of the weights."""
    make = partial(pruned, profile_name)
    return grids.crossed(seed_numbers, make, task=task_names, model=MODELS)


def convergence(profile_name, task_names, seed_numbers):
    """The grid of Figure 5: movement pruning in separate runs, one for each budget of epochs."""
    rows, make = [], partial(pruned, profile_name)
    for task in task_names:
        axes = {
            "task": (task,),
            "model": MODELS,
            "epochs": of(BUDGETS, profile_name, task, "budgets"),
        }
        rows += grids.crossed(seed_numbers, make, **axes)
    return rows


def methods(profile_name, task_names, seed_numbers):
    """The grid of Table 4, and the penalty methods steered to a tenth of the weights (at toy for
    BERT alone)."""
    make = partial(pruned, profile_name)
    printed = grids.crossed(seed_numbers, make, task=task_names, method=METHODS, model=MODELS)
    return printed + grids.crossed(
        seed_numbers,
        lambda task, method, model: make(task, model, AIMED[method], target=0.1),
        task=task_names,
        method=AIMED,
        model=MODELS[:1] if profile_name == "toy" else MODELS,
    )


def distillation(profile_name, task_names, seed_numbers):
    """The grid of Table 5, and the same runs without a teacher."""
    return grids.crossed(
        seed_numbers,
        lambda task, model, teacher: pruned(profile_name, task, model, distilled=teacher != "none"),
        task=task_names,
        model=MODELS,
        teacher=("none", "dense BERT"),
    )


def hyperparameters(task, method, distilled=False):
    """The settings of `paper` under the names of Tables 6 to 11, as numbers or words.

    What a method does not have is left out.
    """
    (train, prune), (_, other) = (settings("paper", task, model, method) for model in MODELS)
    gpus = GPUS.get(task, 1)
    steps = ceil(EXAMPLES["paper"][task] / train.batch) * train.epochs
    kinds = {"magnitude": "Magnitude", "movement": "topK", "soft": "sigmoied_threshold"}
    found = {
        "number of gpus": gpus,
        "per_gpu_train_batch_size": train.batch // gpus,
        "num_train_epochs": train.epochs,
        "max_seq_length": train.max_length,
        "learning_rate": train.lr,
        "warmup_steps": int(train.warmup * steps),
        "initial_threshold": prune.initial_threshold,
        "final_threshold": prune.final_threshold,
        "initial_warmup": prune.initial_warmup,
        "final_warmup": prune.final_warmup,
        "pruning_method": kinds.get(prune.method, prune.method),
    }
    if prune.scored:
        found["mask_scores_learning_rate"] = prune.lr
        found |= {"mask_init": "constant", "mask_scale": prune.init}
    if prune.penalised:
        found["regularization"] = {"soft": "l1"}.get(prune.method, prune.method)
        found["final_lambda (BERT_BASE)"] = prune.final_lambda
        found["final_lambda (BERMo_BASE)"] = other.final_lambda
    if distilled:
        found |= {"alpha_ce": round(1 - ALPHA, 9), "alpha_distill": ALPHA}
    return found
