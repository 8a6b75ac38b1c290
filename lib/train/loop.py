"""The training loop of every method: batches in a fixed order, a schedule that is a function of the step, resume.

A killed and resumed run gives the same bits on the same machine, dtype and thread count: weights, optimiser and
random states are saved whole between two steps, and everything else is computed from (seed, step).
"""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from lib.options import Numerics, Train
from lib.spec import stream
from lib.store import read_json, write_json
from lib.train.batches import collate, order
from lib.train.dropout import byte_dropout
from lib.train.lean import keep_memory, lean
from lib.train.used_rows import used_rows

ABSENT = -1e4  # logit of a token that is none: probability 0, without infinities


_chosen = "cpu"  # of the run that this process makes


def device():
    """Where the run's tensors are: what its Numerics say, see `options`."""
    return torch.device(_chosen)


def autocast(numerics):
    """Context of a forward pass in the run's dtype."""
    if numerics.dtype == "float32":
        return nullcontext()
    return torch.autocast(device().type, torch.bfloat16)


def schedule(step, steps, warmup):
    """Factor of the learning rate: linear from 0 over the first `warmup` fraction of the steps, then linear to 0."""
    first = int(warmup * steps)
    if step < first:
        return (step + 1) / first
    return (steps - step) / max(1, steps - first)


@dataclass(frozen=True)
class Hooks:
    """What a method adds to the loop. Its parameters are the model's own, and what it does follows from the step and
    from the model's state alone, so that a resumed run repeats it."""

    groups: tuple = ()  # {"params", "lr", "weight_decay"}: parameters with a rate of their own, on the run's schedule
    apart: tuple = ()  # parameters that neither the optimiser nor the clipping touches: `gradients` may move them
    before: Callable | None = None  # f(step, steps), before each forward pass
    gradients: Callable | None = (
        None  # f(step, steps), when the gradients are there, before they are clipped
    )
    batches: Callable | None = (
        None  # f(epoch) -> index arrays in place of the bucketed order, equally many each epoch
    )


def fit(draft, model, encoded, loss, train, numerics, evaluate=None, hooks=Hooks()):
    """Train `model` in place over `encoded` (lib.train.batches.Encoded); see `_fit`."""
    model.to(device())
    with (
        lean(model, numerics),
        byte_dropout(model, train.byte_dropout),
        used_rows(model, encoded, train.weight_decay),
    ):
        return _fit(draft, model, encoded, loss, train, numerics, evaluate, hooks)


def _fit(draft, model, encoded, loss, train, numerics, evaluate, hooks):
    """The loop itself.

    loss: f(batch, rows) -> {"loss": scalar, parts...} for a collated batch and its row numbers. evaluate: f() ->
    score, higher is better, asked for when `train.select` is "best". Returns {"steps", "examples_per_second", ...}
    with the mean parts of the last epoch. Raises FloatingPointError where the loss is not finite.
    """
    where = device()
    model.train()
    groups = parameter_groups(model, train, hooks)
    rates = [group["lr"] for group in groups]
    parameters, everything = (
        [p for group in groups for p in group["params"]],
        list(model.parameters()),
    )
    optimiser = torch.optim.AdamW(groups, lr=train.lr, weight_decay=train.weight_decay, fused=True)
    lengths = encoded.lengths()
    batches_of = hooks.batches or (
        lambda epoch: order(lengths, train.batch, draft.seed, epoch, bucket=not train.pad_to)
    )
    per_epoch = len(hooks.batches(0)) if hooks.batches else -(-len(encoded) // train.batch)
    steps = per_epoch * train.epochs
    torch.manual_seed(stream(draft.seed, "dropout"))
    step, best, sums = restore(draft, model, optimiser)
    saved = began = time.time()
    first, means = step, {}
    while step < steps:
        epoch, offset = divmod(step, per_epoch)
        sums = (
            sums if offset else {}
        )  # a checkpoint of an epoch's last step holds those of the epoch before
        for rows in batches_of(epoch)[offset:]:
            batch = collate(encoded, rows, train.pad_to, where)
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step, steps, train.warmup)
            if hooks.before:
                hooks.before(step, steps)
            with autocast(numerics):
                parts = loss(batch, rows)
            if not torch.isfinite(parts["loss"]):
                raise FloatingPointError(
                    f"loss {parts['loss'].item()} at step {step} of {steps}: lower Train.lr "
                    f"({train.lr}) or clip the gradient"
                )
            parts["loss"].backward()
            if hooks.gradients:
                hooks.gradients(step, steps)
            if train.clip:
                torch.nn.utils.clip_grad_norm_(parameters, train.clip)
            optimiser.step()
            for parameter in everything:  # as zero_grad, which looks for them anew
                parameter.grad = None
            step += 1
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value.detach().double()
            if train.select == "best" and (
                step % (train.eval_every or per_epoch) == 0 or step == steps
            ):
                best = keep_best(draft, model, evaluate(), step, best)
                model.train()
            draft.progress(step / steps)
            if time.time() - saved >= draft.checkpoint_seconds and step < steps:
                checkpoint(draft, model, optimiser, step, best, sums)
                saved = time.time()
        means, sums = {name: float(value) / per_epoch for name, value in sums.items()}, {}
        draft.log(step=step, epoch=epoch + 1, **means)
    if best:
        model.load_state_dict(load_file(draft.resume / "best.safetensors"))
    seconds = time.time() - began
    model.eval()
    done = (step - first) * train.batch
    return {
        "steps": steps,
        "examples_per_second": round(done / seconds, 1) if done else None,
        "mean_tokens": round(float(lengths.mean()), 1),
        "train_loss": means.get("loss"),
    } | ({"best_step": best["step"]} if best else {})


def parameter_groups(model, train, hooks):
    """The optimiser's groups: what trains, then, where asked for, what is spared weight decay, then the hooks' own."""
    taken = {id(p) for p in hooks.apart} | {
        id(p) for group in hooks.groups for p in group["params"]
    }
    rest = [
        (name, p) for name, p in model.named_parameters() if p.requires_grad and id(p) not in taken
    ]
    spared = [
        p
        for name, p in rest
        if train.spare_norms and (name.endswith("bias") or "LayerNorm" in name)
    ]
    ids = {id(p) for p in spared}
    groups = [{"params": [p for _, p in rest if id(p) not in ids], "lr": train.lr}]
    if spared:
        groups.append({"params": spared, "lr": train.lr, "weight_decay": 0.0})
    return groups + [{"weight_decay": 0.0, **group} for group in hooks.groups]


def keep_best(draft, model, score, step, best):
    """The better of the best so far and the model as it is, its weights written beside the checkpoints."""
    draft.log(step=step, score=score)
    if best and score <= best["score"]:
        return best
    draft.resume.mkdir(exist_ok=True)
    save_file(state(model), draft.resume / "best.new")
    os.replace(draft.resume / "best.new", draft.resume / "best.safetensors")
    return {"score": score, "step": step}


def state(model):
    """The weights as a dict without shared storage, on the CPU."""
    return {k: v.detach().to("cpu", copy=True).contiguous() for k, v in model.state_dict().items()}


def checkpoint(draft, model, optimiser, step, best, sums):
    """Write everything a resumed run needs, whole or not at all; the last one before goes afterwards."""
    target = draft.resume / f"step-{step:08d}"
    temporary = draft.resume / ".new"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file(state(model), temporary / "model.safetensors")
    save_file(
        {
            f"{i}.{k}": v.detach().cpu().contiguous()
            for i, values in optimiser.state_dict()["state"].items()
            for k, v in values.items()
        },
        temporary / "optimiser.safetensors",
    )
    random = {"cpu": torch.get_rng_state()} | (
        {"cuda": torch.cuda.get_rng_state()} if device().type == "cuda" else {}
    )
    save_file(random, temporary / "random.safetensors")
    write_json(
        temporary / "state.json",
        {"step": step, "best": best, "sums": {name: float(value) for name, value in sums.items()}},
    )
    temporary.rename(target)
    for old in sorted(draft.resume.glob("step-*")):
        if old != target:
            shutil.rmtree(old)


def restore(draft, model, optimiser):
    """Take up the last checkpoint, if there is one. Returns (step, best, sums of the epoch's losses so far)."""
    there = sorted(draft.resume.glob("step-*"))
    if not there:
        return 0, None, {}
    folder = there[-1]
    model.load_state_dict(load_file(folder / "model.safetensors"))
    values = {}
    for name, tensor in load_file(folder / "optimiser.safetensors").items():
        index, key = name.split(".", 1)
        values.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict(
        {"state": values, "param_groups": optimiser.state_dict()["param_groups"]}
    )
    random = load_file(folder / "random.safetensors")
    torch.set_rng_state(random["cpu"])
    if "cuda" in random:
        torch.cuda.set_rng_state(random["cuda"])
    note = read_json(folder / "state.json")
    draft.log(step=note["step"], resumed=True)
    return note["step"], note["best"], note["sums"]


def outputs(model, batch):
    """Logits of a collated batch: [B, C] of classes, or [B, 2, T] of an answer's first and last token, where padding
    is as good as impossible."""
    out = model(**batch)
    if "logits" in out:
        return out.logits
    both = torch.stack([out.start_logits, out.end_logits], 1).float()
    return both.masked_fill(batch["attention_mask"][:, None] == 0, ABSENT)


@torch.inference_mode()
def predict(model, encoded, numerics, tokens=2048, pad_to=0):
    """Logits in float32, rows in their own order: [N, C], or [N, 2, T] where T is the longest row's length. Batches of rows
    of like length, of some `tokens` tokens with padding; weights are cast to the run's dtype once for all of them."""
    model.to(device()).eval()
    lengths = np.maximum(encoded.lengths(), pad_to)
    rows, start = np.argsort(-lengths, kind="stable"), 0
    logits = None
    with lean(model, numerics), autocast(numerics):
        while start < len(rows):
            chosen = rows[start : start + max(1, tokens // lengths[rows[start]])]
            out = outputs(model, collate(encoded, chosen, pad_to, device())).float().cpu().numpy()
            if logits is None:
                shape = out.shape[1:] if out.ndim == 2 else (2, lengths.max())
                logits = np.full((len(rows), *shape), ABSENT, dtype=np.float32)
            logits[chosen, ..., : out.shape[-1]] = out
            start += len(chosen)
    return logits


def options(numerics, train=None):
    """The option dataclasses of a step's plain arguments, with the run's thread count and device set. Raises RuntimeError
    where the device is not at hand."""
    global _chosen
    numerics = Numerics(**numerics)
    if numerics.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "Numerics.device is 'cuda', and no GPU is at hand: make this run where there is one, or unset DEVICE "
            "for runs of the CPU, which are others"
        )
    torch.set_num_threads(numerics.threads)
    keep_memory()
    _chosen = numerics.device or "cpu"
    return (numerics, Train(**train)) if train else numerics
