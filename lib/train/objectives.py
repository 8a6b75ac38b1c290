"""What a search or a retraining learns from (report on NAS pruning, sections 1.4, 5.4, 5.5 and 7.3), as losses for the
loop: logits of a teacher, labels, or a teacher's attention scores and layer outputs.

Shapes: B batch, T tokens, A heads, H hidden, L layers, C classes.
"""

from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from lib.model import backbone, scores
from lib.model.taps import taps
from lib.options import Targets
from lib.spec import stream
from lib.train import heads, loop, losses
from lib.train.lean import frozen, lean


@contextmanager
def learning(run, objective, student, rows, task, train, numerics, steps):
    """Yields (f(batch, rows) -> parts, f(step, steps)): the loss and the `before` hook of `loop.fit`.

    objective: lib.options.Objective; the input `teacher` of the run is read where it needs one; rows: Encoded; steps: of
    the run, of which "two_stage" gives the first half to the intermediate loss, the second to the prediction. Within, a
    student that is narrower than its teacher has a projection to learn through.
    """
    teacher = logits = between = None
    if objective.kind != "cross_entropy":
        teacher, _ = backbone.load(run.inputs["teacher"].model)
        heads.by_name(teacher, task.labels)
    if objective.kind in ("prediction", "soft_cross_entropy", "two_stage"):
        logits = torch.from_numpy(loop.predict(teacher, rows, numerics, pad_to=train.pad_to))
    now = [0]

    def prediction(batch, chosen):
        made = loop.outputs(student, batch).float()
        wanted = None if logits is None else logits[chosen].to(made.device)
        if "cross_entropy" in objective.kind:
            soft = objective.kind == "soft_cross_entropy" and made.shape[1] > 1
            return losses.prediction(
                made,
                rows.labels[chosen].to(made.device),
                Targets("soft" if soft else "hard"),
                wanted,
            )
        return {"loss": nn.functional.mse_loss(made, wanted)}

    def loss(batch, chosen):
        first = (
            objective.kind == "intermediate"
            or objective.kind == "two_stage"
            and now[0] < steps // 2
        )
        return between(batch) if first else prediction(batch, chosen)

    with ExitStack() as stack:
        if objective.kind in ("intermediate", "two_stage"):
            torch.manual_seed(stream(run.seed, "projection"))
            stack.enter_context(lean(frozen(teacher.to(loop.device()), numerics), numerics))
            between = intermediate(stack, objective, student, teacher)
        yield loss, lambda step, _: now.__setitem__(0, step)


def intermediate(stack, objective, student, teacher):
    """f(batch) -> squared errors of the embedding output and the L layer outputs, "layers", and of raw attention scores,
    "attention", each summed over layers. Where the teacher is wider the student's states go through one linear layer
    that trains with it, as in TinyBERT's code; it is gone when the stack closes."""
    mine, theirs = (stack.enter_context(taps(model)) for model in (student, teacher))
    seen = heads_of = None
    if objective.attention:
        heads_of = kept_heads(student, teacher)
        seen = [stack.enter_context(scores.watch(model)) for model in (student, teacher)]
    count, deep = len(backbone.layers(student)), len(backbone.layers(teacher))
    narrow, wide = student.config.hidden_size, teacher.config.hidden_size
    project = nn.Identity()
    if narrow != wide:
        project = student.projection = nn.Linear(
            narrow, wide
        )  # part of the student, so that checkpoints hold it
        stack.callback(delattr, student, "projection")

    def loss(batch):
        with torch.no_grad():
            backbone.base(teacher)(**batch)
        backbone.base(student)(**batch)
        real = batch["attention_mask"].bool()
        mask = real if objective.mask else None
        ours = [mine["embedding"], *mine["ffn"]]
        wanted = [
            theirs["embedding"],
            *(theirs["ffn"][teacher_layer(i, count, deep)] for i in range(count)),
        ]
        parts = {
            "layers": sum(
                losses.mean_square(project(a), b, mask) for a, b in zip(ours, wanted, strict=True)
            )
        }
        if objective.attention:
            pairs = (
                real[:, None, :, None] & real[:, None, None, :]
                if objective.mask
                else real[:, None, None, :]
            )
            parts["attention"] = sum(
                attention_square(
                    a, seen[1][teacher_layer(i, count, deep)][:, kept], pairs, objective.mask
                )
                for i, (a, kept) in enumerate(zip(seen[0], heads_of, strict=True))
            )
        return {"loss": sum(parts.values()), **parts}

    return loss


def attention_square(a, b, real, mask):
    """Mean of (a - b)^2 over scores [B, A, T, T] between real tokens; without `mask` over all, those to padding being 0
    in both (as in TinyBERT's code). real: [B, 1, T or 1, T]."""
    square = (a.float() - b.float()).square() * real
    return square.sum() / (real.expand_as(square).sum() if mask else square.numel())


def teacher_layer(layer, count, deep):
    """The layer of a teacher of `deep` layers that a student's layer, both from 0, learns from: evenly spaced, the last
    from the last."""
    return (layer + 1) * deep // count - 1


def kept_heads(student, teacher):
    """L lists: the heads of the whole model that each layer of the student has. Raises ValueError where a surgery does
    not say which, or where the teacher's heads are not as many as those of the student's whole model."""
    whole = student.config.num_attention_heads
    if teacher.config.num_attention_heads != whole or teacher.surgery:
        raise ValueError(
            f"Objective.attention pairs heads by their index: the student's whole model has {whole}, the teacher "
            f"{teacher.config.num_attention_heads}{' and a surgery' if teacher.surgery else ''}; switch it off"
        )
    kept = [list(range(whole))] * len(backbone.layers(student))
    for op in student.surgery:
        if op["op"] == "cut":
            raise ValueError(
                "Objective.attention pairs heads by their index, and a cut by importance does not keep it: "
                "switch it off"
            )
        if "heads" in op and op["op"] == "keep":
            kept = [
                [layer[i] for i in chosen] for layer, chosen in zip(kept, op["heads"], strict=True)
            ]
    return kept
