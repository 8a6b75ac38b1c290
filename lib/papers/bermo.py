"""BERMo (Chakraborty et al. 2021): its settings by profile and its Specs. Free of torch.

`paper` is as printed (Appendix A.1, Tables 6 to 11) and, where the paper is silent, as the public code of movement
pruning has it. `toy` and `mini` have values of their own, chosen once before their first recorded run; what differs is
listed in `DEVIATIONS` and shown on the pages.
"""

from dataclasses import replace
from math import ceil

from lib import published
from lib.data import squad
from lib.measure.compare import Column
from lib.options import MIX_NORMS, Mix, Prune, Span, Targets
from lib.papers import grids, mini
from lib.papers.profiles import backbone, profile
from lib.spec import Spec, known
from lib.train import schedules

MODELS = ("BERT", "BERMo")
METHODS = {
    "Magnitude": "magnitude",
    "L0": "l0",
    "Movement": "movement",
    "Soft Movement": "soft",
}  # rows of Table 4
AIMED = {
    "L0, to 10 %": "L0",
    "Soft Movement, to 10 %": "Soft Movement",
}  # the penalty steered to a kept share: not in the paper

# Columns of Tables 1 and 12, all accuracies, and below of Tables 2, 4 and 5.
PROBES = dict(
    zip(
        (
            "Sentlen",
            "WC",
            "TreeDepth",
            "TopConst",
            "Bshift",
            "Tense",
            "SubjNum",
            "ObjNum",
            "Somo",
            "CoordInv",
        ),
        (
            "Length",
            "WordContent",
            "Depth",
            "TopConstituents",
            "BigramShift",
            "Tense",
            "SubjNumber",
            "ObjNumber",
            "OddManOut",
            "CoordinationInversion",
        ),
        strict=True,
    )
)
SEMANTIC = ("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")
COLUMNS = (
    Column("SST-2 Acc", "SST-2", "accuracy"),
    Column("MNLI Acc-m", "MNLI", "accuracy"),
    Column("MNLI Acc-mm", "MNLI", "accuracy", "dev_mm"),
    Column("QQP Acc", "QQP", "accuracy"),
    Column("QQP F1", "QQP", "f1"),
    Column("SQuAD F1", "SQuAD1", "span_f1"),
    Column("Tense Acc", "Tense", "accuracy"),
    Column("Tense Remaining %", "Tense", "remaining"),  # of toy; not in print
    *(
        Column(f"{task.removesuffix('1')} Remaining %", task, "remaining")
        for task in ("SST-2", "MNLI", "QQP", "SQuAD1")
    ),
)

# ---- SETTINGS

PROBING = {
    "toy": ("BigramShift", "Tense", "CoordinationInversion"),
    "mini": tuple(PROBES.values()),
    "paper": tuple(PROBES.values()),
}
CASED = {
    "toy": (),
    "mini": ("Tense", "SubjNumber"),
    "paper": ("Tense", "SubjNumber"),
}  # generated text has no capitals
UNPRUNED = {
    "toy": ("Tense", "SQuAD1"),
    "mini": ("SST-2", "SQuAD1"),
    "paper": ("SST-2", "MNLI", "QQP", "SQuAD1"),
}
MIXES = {
    name: tuple(
        dict.fromkeys((first, *PROBING[name], *UNPRUNED[name]))
    )  # whose mixes are shown; all readings on the first
    for name, first in (("toy", "BigramShift"), ("mini", "WordContent"), ("paper", "Tense"))
}
STABILITY = {"toy": ("Tense",), "mini": mini.BOTH, "paper": ("SST-2",)}
PRUNED = {"toy": ("Tense",), "mini": ("SST-2",), "paper": ("MNLI", "QQP", "SQuAD1")}
SEEDS = {
    "toy": (0,),
    "mini": mini.THREE,
    "paper": (63, 77, 9, 96, 39),
}  # of Table 12; the other tables print one run
PROBED = SEEDS | {"mini": mini.FIVE}  # seeds of Table 1
TEN = {"toy": (0, 1, 2, 3), "mini": mini.TEN, "paper": (9, 25, 39, 52, 59, 63, 77, 87, 91, 96)}
BUDGETS = {
    "toy": {"": (2, 3, 5)},
    "mini": {"": (2, 3, 4, 6)},  # epochs; Figure 5's axes
    "paper": {"MNLI": (1, 2, 3, 4, 5, 6), "QQP": (6, 7, 8, 9, 10), "SQuAD1": (2, 4, 6, 8, 10)},
}

ROWS = {
    "toy": {"": 512, "SQuAD1": 256},
    "mini": grids.ROWS["mini"]
    | dict.fromkeys(("Length", "TopConstituents", "BigramShift", "Tense", "OddManOut"), 2000),
    "paper": {},
}  # training rows; else all
# Rows of an epoch, of SQuAD the windows that BERT's script cuts: a schedule in steps has to know them beforehand.
EXAMPLES = {
    "toy": {"": 512},
    "mini": {"SST-2": 4000, "STS-B": 4000},
    "paper": {"SST-2": 67349, "MNLI": 392702, "QQP": 363846, "SQuAD1": 88524},
}

DENSE = grids.training(
    epochs=(4, 5, 3), batch=(16, 16, 32), lr=(5e-4, 1e-4, 5e-5), warmup=(0.1, 0.1, 0.0)
)
MASKED = grids.training(epochs=(5, 6, 6), batch=(16, 32, 32), lr=(1e-3, 1e-4, 3e-5))
EPOCHS = {
    "SST-2": 25,
    "MNLI": 6,
    "QQP": 10,
    "SQuAD1": 10,
}  # of `paper`; 6, 10 and 10 are left out in Table 7
HEAD = 1e-3  # rate of a probe's head: not in the paper
LONG = {
    "toy": {"max_length": 96},
    "mini": {},
    "paper": {"batch": 16, "max_length": 384, "pad_to": 384},
}  # for spans
GPUS = {"SQuAD1": 2}  # two of 8 rows in print, one of 16 here
SPAN = {
    "toy": Span(stride=64, max_query=32, max_answer=12),
    "mini": Span(stride=64, max_query=64, max_answer=30),
    "paper": Span(stride=128, max_query=64, max_answer=30),
}

MIX = {
    "toy": Mix("layers", "xavier_uniform", 5e-2, dropout=0.1),
    "mini": Mix("layers", "xavier_uniform", 1e-2, dropout=0.1),
    "paper": Mix("layers", "xavier_uniform", 1e-2, dropout=0.1),
}  # read literally; dropout's rate is not printed
WARMUPS = {
    "toy": {"": (20, 1, 2)},
    "mini": {"": (100, 1, 1)},  # w in steps, i and f in units of w
    "paper": {
        "SST-2": (2100, 1, 1),
        "MNLI": (12000, 1, 1),
        "QQP": (11000, 2, 3),
        "SQuAD1": (5400, 1, 2),
    },
}
THRESHOLDS = {
    "magnitude": (1.0, 0.1),
    "movement": (1.0, 0.1),
    "soft": (0.0, 0.1),
    "l0": (1.0, 1.0),
}  # first and last
SCORES = 1e-2  # mask_scores_learning_rate of movement
PENALTIES = {  # rate of the scores, lambda of BERT and of BERMo
    "l0": {
        "toy": {"": (0.15, 50, 50)},
        "mini": {"": (1e-1, 50, 50)},
        "paper": {"MNLI": (1e-1, 50, 45), "QQP": (1e-2, 50, 50), "SQuAD1": (1e-1, 175, 175)},
    },
    "soft": {
        "toy": {"": (0.09, 200, 200)},
        "mini": {"": (1e-2, 200, 200)},
        "paper": {"MNLI": (1e-2, 200, 200), "QQP": (1e-2, 150, 150), "SQuAD1": (1e-2, 500, 500)},
    },
}
ALPHA, TAUGHT = (
    0.9,
    Targets("both", sum_classes=True, temperature=2.0),
)  # the temperature is the code's
DIVERGED = (
    0.02  # of the metric above the majority class: the paper does not say what "diverges" means
)

# Tables 6 to 11: (method, distilled).
TABLES = {
    "table06_hparams_sst2_stability": ("Movement", False),
    "table07_hparams_convergence_movement": ("Movement", False),
    "table08_hparams_magnitude": ("Magnitude", False),
    "table09_hparams_l0": ("L0", False),
    "table10_hparams_soft_movement": ("Soft Movement", False),
    "table11_hparams_kd": ("Movement", True),
}

DEVIATIONS = published.deviations("bermo")


def of(settings, profile_name, task, what):
    """What a profile has for a task. Raises ValueError for a task that it has nothing for."""
    there = settings[profile_name]
    if "" not in there:
        known(f"task with {what} at {profile_name}", task, there)
    return there.get(task, there.get(""))


def tasks(profile_name, chosen, wanted=()):
    return grids.tasks(profile_name, wanted, chosen)


def seeds(profile_name, wanted=(), own=SEEDS):
    return grids.seeds(profile_name, wanted, own)


def budgets(profile_name, task):
    """Epochs of the runs of Figure 5."""
    return of(BUDGETS, profile_name, task, "epoch budgets")


# ---- SPECS


def common(profile_name, task):
    """What every run on a task has: rows, numerics, when it counts as diverged, how it is cut."""
    rows = ROWS[profile_name]
    return {
        "data": grids.described(profile_name, task, rows.get(task, rows.get(""))),
        "margin": DIVERGED,
        "numerics": profile(profile_name).numerics,
        "span": SPAN[profile_name] if task in squad.TASKS else None,
    }


def mixed(profile_name, model, norm=None):
    known("model", model, MODELS)
    return (
        replace(MIX[profile_name], norm=norm or MIX[profile_name].norm)
        if model == "BERMo"
        else None
    )


def dense(profile_name, task, model="BERT", norm=None, probe=False, lower_case=None):
    """Spec of an un-pruned model. norm: another reading of the mix; probe: encoder and embeddings stay as they are;
    lower_case: False feeds the text as it is to the uncased vocabulary."""
    train = replace(DENSE[profile_name], **LONG[profile_name] if task in squad.TASKS else {})
    return Spec(
        "fineprune",
        common(profile_name, task)
        | {
            "train": replace(train, lr=HEAD) if probe else train,
            "targets": grids.LABELS,
            "mix": mixed(profile_name, model, norm),
            "frozen": "encoder" if probe else None,
            "lower_case": lower_case,
        },
        {"start": backbone(profile_name)},
    )


def settings(profile_name, task, model="BERT", method="Movement", epochs=None, target=0.0):
    """(Train, Prune) of a pruned model, epochs and target other than the profile's where given. A budget that the warm-ups
    do not fit is pruned by one jump, as in the public code."""
    known("pruning method", method, METHODS)
    kind, paper, train = METHODS[method], profile_name == "paper", MASKED[profile_name]
    if paper:
        known("task with printed settings", task, EPOCHS)
        slow = task == "QQP" and kind in ("movement", "soft")
        train = replace(train, epochs=EPOCHS[task], lr=3e-6 if slow else train.lr)
    train = replace(
        train, epochs=epochs or train.epochs, **LONG[profile_name] if task in squad.TASKS else {}
    )
    steps = (
        ceil(of(EXAMPLES, profile_name, task, "a known number of rows") / train.batch)
        * train.epochs
    )
    w, i, f = of(WARMUPS, profile_name, task, "warm-ups")
    i, f = (1, 1) if kind == "l0" else (i, f)
    more = {"lr": SCORES} if kind == "movement" else {}
    if kind in PENALTIES:
        rate, *weights = of(PENALTIES[kind], profile_name, task, f"settings of {method}")
        more = {
            "lr": rate,
            "final_lambda": weights[MODELS.index(model)],
            "init": 2.197 if kind == "l0" else 0.0,
        }
    return (
        replace(train, warmup=schedules.fraction(w, steps)),
        Prune(
            kind,
            *THRESHOLDS[kind],
            w,
            i,
            f,
            target=target,
            overlong="jump" if w * (i + f) >= steps else "refuse",
            **more,
        ),
    )


def pruned(
    profile_name, task, model="BERT", method="Movement", epochs=None, target=0.0, distilled=False
):
    """Spec of a pruned model; distilled: also from the dense BERT of the task, 0.9 of the loss."""
    train, prune = settings(profile_name, task, model, method, epochs, target)
    taught = {"targets": TAUGHT, "alpha": ALPHA} if distilled else {"targets": grids.LABELS}
    return Spec(
        "fineprune",
        common(profile_name, task)
        | taught
        | {
            "train": train,
            "prune": prune,
            "mix": mixed(profile_name, model),
            "frozen": "embeddings",
        },
        {"start": backbone(profile_name)}
        | ({"teacher": dense(profile_name, task)} if distilled else {}),
    )


def probing(profile_name, task_names, seed_numbers):
    """The grid of Table 1, and beside it the probe proper: encoder and embeddings stay as they are."""
    models = {
        name + end: (name, probe)
        for probe, end in ((False, ""), (True, ", frozen encoder"))
        for name in MODELS
    }
    return grids.crossed(
        seed_numbers,
        lambda task, model: dense(profile_name, task, models[model][0], probe=models[model][1]),
        task=task_names,
        model=models,
    )


def cased(profile_name, task_names, seed_numbers):
    """Beside Table 1, on the tasks of CASED: BERT whose script forgot to lower-case, which would explain weak baselines."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: dense(profile_name, task, lower_case=False),
        task=[name for name in task_names if name in CASED[profile_name]],
        model=("BERT, cased text",),
    )


def unpruned(profile_name, task_names, seed_numbers):
    """The grid of Table 2."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: dense(profile_name, task, model),
        task=task_names,
        model=MODELS,
    )


def mixes(profile_name, task_names, seed_numbers):
    """The grid of the learned mix: both models un-pruned; on the first task BERMo in the other readings as well."""
    own = MIX[profile_name].norm
    others = grids.crossed(
        seed_numbers,
        lambda task, norm: dense(profile_name, task, "BERMo", norm),
        task=task_names[:1],
        norm=[norm for norm in MIX_NORMS if norm != own],
    )
    return [row | {"norm": own} for row in unpruned(profile_name, task_names, seed_numbers)] + [
        row | {"model": "BERMo"} for row in others
    ]


def stability(profile_name, task_names, seed_numbers):
    """The grid of Table 3: movement pruning to 10 %."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: pruned(profile_name, task, model),
        task=task_names,
        model=MODELS,
    )


def convergence(profile_name, task_names, seed_numbers):
    """The grid of Figure 5: movement pruning in separate runs, one for each budget of epochs."""
    return [
        row
        for name in task_names
        for row in grids.crossed(
            seed_numbers,
            lambda task, model, epochs: pruned(profile_name, task, model, epochs=epochs),
            task=(name,),
            model=MODELS,
            epochs=budgets(profile_name, name),
        )
    ]


def methods(profile_name, task_names, seed_numbers):
    """The grid of Table 4, and the penalty methods steered to a tenth of the weights (at toy for BERT alone)."""
    rows = grids.crossed(
        seed_numbers,
        lambda task, method, model: pruned(profile_name, task, model, method),
        task=task_names,
        method=METHODS,
        model=MODELS,
    )
    return rows + grids.crossed(
        seed_numbers,
        lambda task, method, model: pruned(profile_name, task, model, AIMED[method], target=0.1),
        task=task_names,
        method=AIMED,
        model=MODELS[:1] if profile_name == "toy" else MODELS,
    )


def distillation(profile_name, task_names, seed_numbers):
    """The grid of Table 5, with the same runs without a teacher."""
    return grids.crossed(
        seed_numbers,
        lambda task, model, teacher: pruned(profile_name, task, model, distilled=teacher != "none"),
        task=task_names,
        model=MODELS,
        teacher=("none", "dense BERT"),
    )


def hyperparameters(task, method, distilled=False):
    """The settings of `paper` by the names of Tables 6 to 11, as numbers or words; what a method has not is left out."""
    (train, prune), (_, other) = (settings("paper", task, model, method) for model in MODELS)
    gpus = GPUS.get(task, 1)
    steps = ceil(EXAMPLES["paper"][task] / train.batch) * train.epochs
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
        "pruning_method": {
            "magnitude": "Magnitude",
            "movement": "topK",
            "soft": "sigmoied_threshold",
        }.get(prune.method, prune.method),
    }
    if prune.scored:
        found |= {
            "mask_scores_learning_rate": prune.lr,
            "mask_init": "constant",
            "mask_scale": prune.init,
        }
    if prune.penalised:
        found |= {
            "regularization": {"soft": "l1"}.get(prune.method, prune.method),
            "final_lambda (BERT_BASE)": prune.final_lambda,
            "final_lambda (BERMo_BASE)": other.final_lambda,
        }
    return found | ({"alpha_ce": round(1 - ALPHA, 9), "alpha_distill": ALPHA} if distilled else {})
