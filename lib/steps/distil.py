"""Step: start from a teacher, cut it, add ghosts, and match the teacher's hidden states (GhostBERT section 2.3).

Without surgery it is the control that the paper lacks: distillation of an unpruned model without ghosts.
"""

import copy

import torch

from lib import data as sources
from lib.model import backbone
from lib.model.surgery import operate
from lib.model.taps import taps
from lib.options import Distil
from lib.spec import stream
from lib.store import write_json
from lib.train import augment, heads, loop, losses
from lib.train.lean import frozen, lean
from lib.train.states import Cache


def distil(run, data, train, numerics, distil, surgery, span=None):
    """Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts; `augmented` for its rows instead of the plain
    ones; `states` for the teacher's hidden states from disk. `span` for tasks such as SQuAD."""
    numerics, train = loop.options(numerics, train)
    options = Distil(**distil)
    task = sources.described(data)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model)
    teacher.to(loop.device())
    student = copy.deepcopy(teacher)
    backbone.set_dropout(student, train.dropout)
    write_json(run.folder / "surgery.json", perform(run, student, surgery))
    rows = learned(run, data, tokenizer, task, train, span)

    remembered = cached(run, data, options, len(backbone.layers(teacher)))

    with (
        taps(student, options.norm) as mine,
        taps(teacher, options.norm) as theirs,
        lean(frozen(teacher, numerics), numerics),
    ):

        def loss(batch, chosen):
            wanted = theirs
            if remembered:
                wanted = remembered(chosen, batch["input_ids"].shape[1], loop.device())
            else:
                with torch.no_grad():
                    backbone.base(teacher)(**batch)
            backbone.base(student)(**batch)
            return losses.states(mine, wanted, batch["attention_mask"] if options.mask else None)

        result = loop.fit(run, student, rows, loss, train, numerics)
    backbone.save(student, tokenizer, run.model)
    return result | backbone.size(student)


def learned(run, data, tokenizer, task, train, span=None):
    """The Encoded rows to train on. Raises ValueError where those of the input `augmented` were made from others."""
    if "augmented" not in run.inputs:
        return heads.rows(tokenizer, sources.load(data)["train"], task, train.max_length, span)[0]
    made = run.inputs["augmented"]
    if made.spec["args"]["data"] != data:
        raise ValueError(
            f"the augmented rows of {made.name} were made from {made.spec['args']['data']}, but this run is "
            f"of {data}: augment the same rows"
        )
    return augment.encoded(made, tokenizer, train.max_length)


def cached(run, data, options, layers):
    """The teacher's states of the input `states`, or None without one. Raises ValueError where they are of other rows
    or another norm, or where the loss would see padding, which the cache does not hold."""
    if "states" not in run.inputs:
        return None
    made = run.inputs["states"]
    told = made.spec["args"]
    other = (
        "augmented" in run.inputs or "span" in run.spec.args
    )  # rows that the cache was not made of
    if (
        other
        or told["data"] != data
        or told["distil"].get("norm", "post") != options.norm
        or not options.mask
    ):
        raise ValueError(
            f"the states of {made.name} are of {told['data']} with {told['distil']}, real tokens alone; this "
            f"run is of {data} with {options}: cache the same plain rows and norm, and mask the padding"
        )
    return Cache(made.model / "states.safetensors", layers)


def perform(run, model, ops):
    """Operate in order: cuts by the input `importance`, ghosts from the run's seed. Returns each operation with its
    report."""
    reports = []
    for op in ops:
        more = {}
        if op["op"] == "cut":
            scores = run.inputs["importance"].arrays("scores")
            more = {
                "head_scores": torch.from_numpy(scores["heads"]),
                "neuron_scores": torch.from_numpy(scores["neurons"]),
            }
        elif op["op"] == "ghost":
            more = {"seed": stream(run.seed, "ghost")}
        reports.append({"surgery": op, "report": operate(model, op, **more)})
    return reports
