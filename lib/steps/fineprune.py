"""Step: fine-tune under masks that a schedule closes, with or without a mix of the layers (BERMo; Sanh et al. 2020).

Without `prune` it is dense fine-tuning with the same measurements. A run that diverges is a result.
"""

from contextlib import contextmanager

import numpy as np
import torch

from lib import data as sources
from lib.measure import metrics, squad
from lib.model import backbone, masks
from lib.model import mix as mixes
from lib.model.surgery import operate
from lib.options import Mix, Prune, Targets, one_of
from lib.spec import stream
from lib.steps.finetune import evaluation, judged, predictions, teacher_logits
from lib.train import heads, loop, losses, pruning

BINS = 50  # of the run, for what is kept of each step


def fineprune(
    run,
    data,
    train,
    numerics,
    targets,
    alpha=None,
    prune=None,
    mix=None,
    frozen=None,
    margin=None,
    span=None,
    lower_case=None,
):
    """Inputs: `start` (any model), and `teacher` where the targets need its logits.

    prune, mix: lib.options.Prune and Mix; without, nothing is pruned, the mix is that of `start`. alpha: with targets
    "both", weight of the teacher's part, the labels' being 1 - alpha (0.9 in the paper; T^2 KL, up to a constant).
    frozen: what stays as it is, "embeddings", or the "encoder" with them (a probe: pooler, head, mix and scores learn).
    margin: of the first metric above that of the majority class, up to which a run is called diverged; without, no run
    is, and a loss that is not finite fails. lower_case: False keeps the case of the text, as a script without
    --do_lower_case does: to an uncased vocabulary every capitalised word is unknown (`unknown_share`: of all tokens of
    the training rows); None leaves it to `start`.

    Predictions are kept of every labelled split but the training rows, the metrics of test rows as "test.<metric>".
    Beside them: `course`, means over at most 50 bins of the run: norm of the unclipped gradient of each layer [bins, L]
    (masks' scores left out), threshold, weight of the penalty and kept share; `shares`, kept share by layer [L]; `mix`,
    its weights before and after. Metrics have the counts of lib.train.pruning.bake and the bytes of the model, dense and
    sparse; empty heads and neurons are cut out, then it is saved sparse. Where the loss was not finite there are no
    predictions, `diverged` is true and `diverged_at` says the step.
    """
    numerics, train = loop.options(numerics, train)
    targets = Targets(**targets)
    if (alpha is None) != (targets.kind != "both") or not 0 <= (alpha or 0) <= 1:
        raise ValueError(
            f'alpha is {alpha!r} with targets {targets.kind!r}: "both" takes a weight of the teacher\'s part from '
            "0 to 1, the others none"
        )
    splits, task = sources.load(data), sources.described(data)
    model, tokenizer = heads.network(
        run.inputs["start"].model, task, train.dropout, stream(run.seed, "head")
    )
    one_of("fineprune", "lower_case", lower_case, (None, False))
    if lower_case is False:
        tokenizer = cased(run.inputs["start"].model, tokenizer)
    rows, _ = heads.rows(tokenizer, splits["train"], task, train.max_length, span)
    steps = -(-len(rows) // train.batch) * train.epochs
    teacher = teacher_logits(run, targets, task, rows, train, numerics)
    judges = evaluation(
        model, tokenizer, splits, task, train, numerics, span, ("dev", "unseen", "test")
    )

    groups, result = [], {} if margin is None else {"majority": majority(task, splits)}
    if lower_case is False:
        result["unknown_share"] = float(
            np.mean(np.concatenate(rows.columns["input_ids"]) == tokenizer.unk_token_id)
        )
    mix = mix and Mix(**mix)
    if mix:
        operate(model, mix.surgery, seed=stream(run.seed, "mix"))
    mixed = mixes.present(model)
    before = mixed and mixed.weights().detach().numpy().copy()
    if mix:
        groups.append({"params": list(mixed.parameters()), "lr": mix.lr})
        result["mix_bytes_per_token"] = mixes.memory(
            len(backbone.layers(model)), model.config.hidden_size
        )
    masked = pruning.attach(model, Prune(**prune), steps) if prune else None
    if masked:
        if masked.scores():
            groups.append({"params": masked.scores(), "lr": masked.options.lr})
        result["warmup_steps"] = masked.warmup
        if masked.warmup != masked.options.warmup_steps:
            run.log(warmup_steps=masked.warmup, rescaled_from=masked.options.warmup_steps)
    course = Course(run, model, masked, steps)

    def loss(batch, chosen):
        logits = loop.outputs(model, batch)
        labels = rows.labels[chosen].to(logits.device)
        parts = losses.prediction(
            logits, labels, targets, None if teacher is None else teacher[chosen].to(logits.device)
        )
        if alpha is not None:
            parts["loss"] = (1 - alpha) * parts["hard"] + alpha * parts["soft"]
        if masked and masked.options.penalised:
            parts["penalty"] = masked.penalty()
            parts["loss"] = parts["loss"] + parts["penalty"]
        return parts

    def score():
        if not masked:
            return judged(judges["dev"], task, train)
        with masked.final(model):
            return judged(judges["dev"], task, train)

    hooks = loop.Hooks(groups=tuple(groups), before=course.begin, gradients=course.note)
    with still(model, frozen):
        try:
            result |= loop.fit(run, model, rows, loss, train, numerics, score, hooks)
        except FloatingPointError:
            if margin is None:
                raise
            result |= {"diverged": True, "diverged_at": course.step, "steps": steps}
    if masked:
        result["threshold"], result["penalty_weight"] = (
            masked.options.final_threshold,
            masked.weight,
        )
        counts, shares = pruning.bake(model)
        result |= counts | ({"target": masked.options.target} if masked.options.target else {})
        run.save_arrays("shares", layers=shares)
        kept = masks.shrink(model)
        result |= {f"kept_{what}": sum(numbers) for what, numbers in kept.items()}
    run.save_arrays("course", **course.binned())
    if mixed:
        run.save_arrays(
            "mix",
            before=before,
            after=mixed.weights().detach().cpu().numpy(),
            gamma=mixed.gamma.detach().cpu().numpy()[None],
        )
    if "diverged" not in result:
        result |= predictions(run, judges)
        if margin is not None:
            result["diverged"] = bool(result[task.metrics[0]] <= result["majority"] + margin)
    result |= backbone.size(model)
    if masked:
        result |= masks.packed(model)
    backbone.save(model, tokenizer, run.model)
    return result


def cased(folder, tokenizer):
    """The tokenizer of a model's folder with do_lower_case off; it is saved so. Raises ValueError where it does not
    lower-case anyway, or has no such switch."""
    found = type(tokenizer).from_pretrained(folder, do_lower_case=False, local_files_only=True)
    rules = [each.backend_tokenizer.normalizer for each in (tokenizer, found)]
    before, after = (bool(rule) and rule.normalize_str("A") == "a" for rule in rules)
    if after or not before:
        raise ValueError(
            f"fineprune.lower_case is False; the tokenizer of `start`, a {type(tokenizer).__name__}, "
            f"{'has no switch do_lower_case' if before else 'does not lower-case'}: leave lower_case out, or "
            "start from an uncased BERT"
        )
    return found


def majority(task, splits):
    """First metric of the development set for the answer that needs no reading: the training set's most frequent class,
    its mean score, no answer to any question."""
    train, dev = splits["train"], splits["dev"]
    if task.span:
        return squad.score([""] * len(dev), dev.answers, 1 if all(dev.answers) else 2)[
            task.metrics[0]
        ]
    said = np.bincount(train.y).argmax() if task.labels else train.y.mean()
    return metrics.score(task.metrics[0], np.full(len(dev), said), dev.y)


@contextmanager
def still(model, part):
    """Within, a part of the model does not learn: None, "embeddings" (words, positions, types and their LayerNorm), or
    "encoder", these and the layers. Embeddings are cut off by a hook, as the loop may train a table in their place."""
    one_of("fineprune", "frozen", part, (None, "embeddings", "encoder"))
    base, fixed = backbone.base(model), []
    if part == "encoder":
        fixed = [
            p
            for name, p in base.named_parameters()
            if not (name.startswith(("pooler", "mix")) or name.endswith("scores"))
        ]
    handle = part and base.embeddings.register_forward_hook(
        lambda _, __, output: output.detach(), prepend=True
    )
    for parameter in fixed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in fixed:
            parameter.requires_grad_(True)
        if handle:
            handle.remove()


class Course:
    """What happens at each step, in a file beside the checkpoints, so that a resumed run goes on with it."""

    def __init__(self, run, model, masked, steps):
        self.masked, self.step = masked, None
        scores = {id(p) for p in masked.scores()} if masked else ()
        self.layers = [
            [p for p in layer.parameters() if id(p) not in scores]
            for layer in backbone.layers(model)
        ]
        run.resume.mkdir(exist_ok=True)
        path, shape = run.resume / "course.npy", (steps, len(self.layers) + 3)
        there = path.exists()
        self.table = np.lib.format.open_memmap(path, "r+" if there else "w+", np.float32, shape)
        if not there:
            self.table[:] = np.nan
        self.edges = np.linspace(0, steps, min(BINS, steps) + 1).astype(int)

    def begin(self, step, steps):
        """For lib.train.loop.Hooks, before the forward pass."""
        self.step = step
        if self.masked:
            self.masked.before(step, steps)

    def note(self, step, _):
        """For lib.train.loop.Hooks: gradients are there and not yet clipped."""
        norms = [
            torch.nn.utils.get_total_norm([p.grad for p in layer if p.grad is not None])
            for layer in self.layers
        ]
        more = (1.0, 0.0, 1.0)
        if self.masked:
            more = (
                self.masked.ramp(step),
                self.masked.weight,
                self.masked.share() if step in self.edges else np.nan,
            )
        self.table[step] = [*torch.stack(norms).tolist(), *more]

    def binned(self):
        """{"gradient_norm" [bins, L], "threshold", "penalty_weight" [bins]}, means over the steps of a bin, "kept_share"
        [bins] at its first step, "last_step" [bins]; NaN where a run did not get to."""
        table = np.asarray(self.table, np.float64)
        means = np.stack(
            [table[a:b].mean(0) for a, b in zip(self.edges, self.edges[1:], strict=False)]
        )
        return {
            "gradient_norm": means[:, :-3].copy(),
            "threshold": means[:, -3].copy(),
            "penalty_weight": means[:, -2].copy(),
            "kept_share": table[self.edges[:-1], -1].copy(),
            "last_step": self.edges[1:].copy(),
        }
