"""This module has the settings and Specs of BERMo (Kodge and Roy, 2021) at each profile.

At `paper` the settings are the printed ones (Appendix A.1, Tables 6 to 11) and, where the paper is
silent, those of the public code of movement pruning. The pages list how `toy` and `mini` differ
(`data/published/bermo/deviations.toml`). The module is free of torch.
"""

from dataclasses import replace
from math import ceil

from lib.core.names import Refused, known
from lib.core.options import Prune, Targets
from lib.core.spec import Spec
from lib.papers import grids, published
from lib.papers.grids import backbone

S = grids.settings("bermo")
__getattr__ = S.__getattribute__  # So bermo.SEEDS is the table SEEDS.
# The temperature of distillation during pruning is the public code's.
TAUGHT = Targets("both", sum_classes=True, temperature=2.0)
DEVIATIONS = published.deviations("bermo")


def of(settings, profile, task, what):
    """Return what a profile has for a task, out of {profile: {task: value}}.

    The task "" stands for every other task. Raises Refused for a task without a value; what:
    names the value in the message.
    """
    there = settings[profile]
    if "" not in there:
        known(f"task with {what} at {profile}", task, there)
    return there.get(task, there.get(""))


# ---- SPECS


def described(profile, task):
    """Return the descriptor of the rows of every run on a task."""
    rows = S.ROWS[profile]
    return grids.described(profile, task, rows.get(task, rows.get("")))


def common(profile, task, model, **args):
    """Return arguments of every run on a task.

    They are its rows, the settings of spans, the model's mix of layers, and `args`.
    """
    known("model", model, [*S.MODELS, *S.PLAIN])
    mix = S.MIX[profile] if model == "BERMo" else None
    if model in S.PLAIN:
        mix = replace(S.MIX[profile], norm="none", init="zeros", plain=S.PLAIN[model])
    own = {"margin": S.DIVERGED, "mix": mix}
    return grids.common(profile, task, described(profile, task), **own, **args)


def trained(settings, profile, task, **changes):
    """Return the settings of training on a task.

    changes: fields with other values; a value that is 0 or None changes nothing.
    """
    long = S.LONG[profile] if grids.span(profile, task) else {}
    return replace(settings[profile], **long | {k: v for k, v in changes.items() if v})


def dense(profile, task, model="BERT", norm=None, probe=False, lower_case=None, lr=0.0, mix_lr=0.0):
    """Return the Spec of an unpruned model.

    norm: another reading of the mix. probe: whether encoder and embeddings keep their weights.
    lower_case: False gives the text as it is to the uncased vocabulary. lr, mix_lr: learning rates
    of the weights and of the mix; 0 means the profile's.
    """
    train = trained(S.DENSE, profile, task, lr=lr or S.HEAD * probe)
    more = {"frozen": "encoder" if probe else None, "lower_case": lower_case}
    told = common(profile, task, model, train=train, targets=grids.LABELS, **more)
    if mix := told["mix"]:
        told["mix"] = replace(mix, norm=norm or mix.norm, lr=mix_lr or mix.lr)
    return Spec("fineprune", told, {"start": backbone(profile)})


def warmup(w, steps):
    """Return the `Train.warmup` whose linear warm-up is exactly w of so many steps.

    Raises Refused where it is longer than the run.
    """
    if not 0 <= w <= steps:
        why = f"does not fit a run of {steps}: take at most {steps}"
        raise Refused(f"a warm-up of {w} steps {why}")
    return min(1.0, (w + 0.5) / steps) if w else 0.0


def settings(
    profile,
    task,
    model="BERT",
    method="Movement",
    epochs=0,
    share=None,
    weight=None,
    lr=0.0,
    begin=0,
):
    """Return (Train, Prune) of a pruned model.

    epochs, share, weight, lr: values other than the profile's. share: the share of the weights that
    is kept; a penalty is steered to it. weight: lambda of a penalty. begin: the warm-ups before the
    threshold falls, in units of w; 0 means the profile's. Where the warm-ups do not fit
    the epochs, the threshold falls by one jump, as in the public code. Raises Refused for an
    impossible setting.
    """
    known("pruning method", method, S.METHODS)
    if share is not None and not 0 < share <= 1:
        raise Refused(f"the kept share is {share}: take one above 0, at most 1")
    told = dict(S.METHODS[method], final_lambda=weight or 0.0)
    kind = told["method"]
    if profile == "paper":
        known("task with printed settings", task, S.EPOCHS)
        epochs = epochs or S.EPOCHS[task]
        lr = lr or (3e-6 if task == "QQP" and kind in ("movement", "soft") else 0.0)
    train = trained(S.MASKED, profile, task, epochs=epochs, lr=lr)
    train = grids.lengthened(profile, train)
    capped = profile != "paper" and described(profile, task).get("rows")
    rows = capped or of(S.EXAMPLES, profile, task, "a known number of rows")
    steps = ceil(rows / train.batch) * train.epochs
    w, *parts = of(S.WARMUPS, profile, task, "warm-ups")
    first, last = (1, 1) if kind == "l0" else parts
    first = begin or first
    if not S.EXAMPLES[profile] and w * (first + last) >= steps:  # Few rows have short warm-ups.
        w = steps // (first + last + 1)
    told |= {"warmup_steps": w, "initial_warmup": first, "final_warmup": last}
    if kind in S.PENALTIES:
        rate, *weights = of(S.PENALTIES[kind], profile, task, f"settings of {method}")
        weight = weights[S.MODELS.index(model)] if weight is None else weight
        told |= {"lr": rate, "final_lambda": weight, "target": share or 0.0}
    elif share:
        told["final_threshold"] = share
    prune = Prune(**told, overlong="jump" if w * (first + last) >= steps else "refuse")
    return replace(train, warmup=warmup(w, steps)), prune


def pruned(profile, task, model="BERT", method="Movement", epochs=0, alpha=0.0, **more):
    """Return the Spec of a pruned model.

    alpha: the share of the loss that the dense BERT of the task teaches. more: arguments of
    `settings`.
    """
    train, prune = settings(profile, task, model, method, epochs, **more)
    told = {"train": train, "prune": prune, "frozen": "embeddings", "alpha": alpha or None}
    told = common(profile, task, model, targets=TAUGHT if alpha else grids.LABELS, **told)
    guide = dense(profile, task) if alpha else None
    return Spec("fineprune", told, {"start": backbone(profile), "teacher": guide})
