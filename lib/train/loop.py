"""This module has the training loop that all methods share.

Batches come in a fixed order, and the learning rate is a function of the step. A run
that was killed and resumed gives the same bits on the same machine, dtype and thread
count. For this, checkpoints have weights, optimiser, random states, log and best model
as they are between two steps; everything else is computed from the seed and the
step. On a GPU the gradients of fused attention over long rows may be added up in
another order, which changes last bits."""

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from lib.core import disk, paths, processor
from lib.core.names import Refused, derive_seed
from lib.core.options import Numerics, Train
from lib.core.store import TrainingOutput, print_once
from lib.core.types import ContextYield, Json, LossTerm, ModelInput
from lib.stats.metrics import Metrics
from lib.train.batches import EncodedRows, make_batch, shuffle_row_numbers_into_batches
from lib.train.lean import (
    speed_up_passes_on_cpu,
    train_only_embedding_rows_in_data,
    use_dropout_by_random_bytes,
)

# Logit of padded tokens as start or end of an answer. A softmax gives it probability 0,
# and the loss stays finite, unlike with -inf.
ABSENT = -1e4
# File of a checkpoint with weights, optimiser, random states and log.
STATE = "state.pt"
POINTS = 500  # Number of steps, at most, at which a run logs its losses.

# {field: value} of an options class such as Train, as the description of a run (its
# Spec) has them in JSON.
SettingsJson: TypeAlias = Json
Batch = dict[ModelInput, Tensor]  # The tensors are padded, [B, T].
# f(batch, its row numbers) -> {"loss": scalar, further terms to log...}.
LossFunction = Callable[[Batch, np.ndarray], dict[LossTerm, Tensor]]
Epoch: TypeAlias = int  # Counted from 0.
RowNumbersOfBatch: TypeAlias = np.ndarray
# {"params": list of parameters, "lr": learning rate, perhaps "weight_decay"}.
ParameterGroup: TypeAlias = dict[str, Any]
ParameterOutsideOptimiser: TypeAlias = Tensor

_chosen = "cpu"  # Device on which this process computes; `get_device` returns it.


def get_device() -> torch.device:
    """Return the device (CPU or GPU) on which this process trains and runs models.

    It is the CPU until `set_dtype_threads_and_device` sets another one."""
    return torch.device(_chosen)


def autocast_to_dtype(numerics: Numerics) -> torch.autocast:
    """Return an autocast context for forward passes in the dtype that `numerics` has.

    For bfloat16 it casts matrix products to bfloat16, and for float32 it does
    nothing."""
    return torch.autocast(
        get_device().type, torch.bfloat16, numerics.dtype == "bfloat16"
    )


def compute_learning_rate_factor(
    step: int, step_count: int, warmup_share: float
) -> float:
    """Return the factor of the learning rate at a step of linear warmup and decay.

    It rises linearly to 1 over the first `warmup_share` of all steps, then falls
    linearly, and would be 0 one step after the last.

    step: the number of the step, counted from 0.
    step_count: the number of all steps."""
    first = int(warmup_share * step_count)
    if step < first:
        return (step + 1) / first
    return (step_count - step) / max(1, step_count - first)


ScoreStepAndWeights: TypeAlias = dict[str, Any]  # {"score", "step", "weights"}.


class LoadedCheckpoint(NamedTuple):
    steps_done: int
    best_model: ScoreStepAndWeights | None


class Callback:
    """A Callback adds something to the training loop, such as pruning masks.

    This base class has methods that the loop calls in each step and at the end, and
    that do nothing; a subclass overrides some. Several callbacks can be combined. A
    callback is constructed for a model before the training begins. What it does must
    follow from the step and from the state of the model alone, buffers included, so
    that a resumed training repeats it. Tensors that it trains must be parameters of the
    model, so that checkpoints save them.

    groups: further groups of parameters for the optimiser, {"params", "lr"}. Their own
    learning rates rise and fall with the schedule of the training.
    apart: parameters that the optimiser does not update and gradient clipping leaves
    out. The callback may update them in `after_backward_pass`."""

    groups: Sequence[ParameterGroup] = ()
    apart: Sequence[ParameterOutsideOptimiser] = ()

    def before_forward_pass(self, step: int, step_count: int) -> None:
        """Change the model before each forward pass, such as its pruning threshold.

        step: the number of the step, counted from 0.
        step_count: the number of all steps."""

    def compute_penalty_terms(self) -> dict[LossTerm, Tensor]:
        """Return {name: scalar tensor} of terms to add to the loss of each step.

        An example is a penalty that makes pruning masks sparse. {} adds nothing."""
        return {}

    def after_backward_pass(self, step: int, step_count: int) -> None:
        """Read or change the gradients, after the backward pass and before clipping.

        step: the number of the step, counted from 0.
        step_count: the number of all steps."""

    def after_last_step(self) -> Metrics:
        """Give the model its final form after the last step, before it is saved.

        An example is to remove pruned weights. Returns {metric: value}, which is joined
        with the metrics of the training."""
        return {}


def fit(
    run: TrainingOutput,
    model: PreTrainedModel,
    encoded: EncodedRows,
    loss: LossFunction,
    train_settings: Train,
    numerics: Numerics,
    score_model: Callable[[], float] | None = None,
    callbacks: Sequence[Callback] = (),
    list_batches_of_epoch: Callable[[Epoch], list[RowNumbersOfBatch]] | None = None,
) -> Metrics:
    """Train a model in place on tokenised rows, by AdamW with linear warmup and decay.

    A training that was stopped resumes from its last checkpoint. Returns {"steps",
    "examples_per_second", "mean_tokens" of a row, "best_step" where the best model is
    selected} and the metrics of the callbacks. Raises FloatingPointError, naming the
    step, where the loss is not finite, and Refused where `train_settings.select` is
    "best" without a `score_model`, and where a checkpoint does not fit the model.

    run: the folder for checkpoints and logs, and the seed.
    encoded: the tokenised training rows.
    loss: f(batch, row numbers) -> {"loss": scalar, further terms to log...}. It may be
    a Callback too.
    train_settings: the settings, such as epochs and learning rate.
    numerics: the dtype of the passes.
    score_model: f() -> score of the model as it is now, higher being better, by which
    the best weights are selected where `train_settings.select` is "best".
    callbacks: additions such as pruning masks: they act at each step, and finish the
    model at the end.
    list_batches_of_epoch: f(epoch) -> [row numbers of each batch], in place of
    `shuffle_row_numbers_into_batches`. All epochs must have the same number of
    batches."""
    selects = train_settings.select == "best"
    if selects and not score_model:
        fault = "select is 'best', and nothing judges this training"
        raise Refused(f"{fault}; it must be 'last'")
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(get_device()).train()
    if isinstance(loss, Callback):
        callbacks = [*callbacks, loss]
    with (
        speed_up_passes_on_cpu(model, numerics),
        use_dropout_by_random_bytes(model, train_settings.byte_dropout),
        train_only_embedding_rows_in_data(model, encoded, train_settings.weight_decay),
    ):
        groups = list_parameter_groups(model, train_settings, callbacks)
        rates = [group["lr"] for group in groups]
        parameters = [p for group in groups for p in group["params"]]
        everything = list(model.parameters())
        optimiser = torch.optim.AdamW(
            groups, weight_decay=train_settings.weight_decay, fused=True
        )
        lengths, bucket = encoded.compute_row_lengths(), not train_settings.pad_to
        list_batches = lru_cache(maxsize=1)(
            list_batches_of_epoch
            or (
                lambda epoch: shuffle_row_numbers_into_batches(
                    lengths, train_settings.batch, run.seed, epoch, bucket
                )
            )
        )
        per_epoch = len(list_batches(0))
        steps = per_epoch * train_settings.epochs
        every = train_settings.eval_every or per_epoch
        torch.manual_seed(derive_seed(run.seed, "dropout"))
        first, best = load_checkpoint(run, model, optimiser, numerics.dtype)
        began = saved = time.monotonic()
        for step in range(first, steps):
            epoch, offset = divmod(step, per_epoch)
            rows, done = list_batches(epoch)[offset], step + 1
            batch = make_batch(encoded, rows, train_settings.pad_to, get_device())
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * compute_learning_rate_factor(
                    step, steps, train_settings.warmup
                )
            for callback in callbacks:
                callback.before_forward_pass(step, steps)
            with autocast_to_dtype(numerics):
                parts = loss(batch, rows)
                for callback in callbacks:
                    for name, value in callback.compute_penalty_terms().items():
                        parts |= {name: value, "loss": parts["loss"] + value}
            if not torch.isfinite(parts["loss"]):
                raise FloatingPointError(
                    f"loss {parts['loss'].item()} at step {step} of {steps}: "
                    f"lower Train.lr ({train_settings.lr}) or clip the gradient"
                )
            parts["loss"].backward()
            for callback in callbacks:
                callback.after_backward_pass(step, steps)
            if train_settings.clip:
                torch.nn.utils.clip_grad_norm_(parameters, train_settings.clip)
            optimiser.step()
            # This does what `zero_grad` does, but faster: `zero_grad` collects all
            # parameters of the model anew at each step.
            for parameter in everything:
                parameter.grad = None
            if step % -(-steps // POINTS) == 0:
                curve = {name: float(value.detach()) for name, value in parts.items()}
                run.log_step(step, curve=curve)
            if score_model and selects and (done == steps or done % every == 0):
                best = log_and_select_best_model(run, model, score_model(), done, best)
                model.train()
            run.report_progress(done / steps)
            if (
                time.monotonic() - saved >= run.checkpoint_interval_seconds
                and done < steps
            ):
                write_checkpoint(run, model, optimiser, done, best, numerics.dtype)
                saved = time.monotonic()
        if best:
            model.load_state_dict(best["weights"])
        # The loss of the last step was finite before its update.
        if not all(bool(torch.isfinite(p).all()) for p in parameters):
            raise FloatingPointError(
                f"weights are not finite after step {steps} of {steps}: "
                f"lower Train.lr ({train_settings.lr}) or clip the gradient"
            )
        seconds = time.monotonic() - began
        model.eval()
    result = {
        "steps": steps,
        "examples_per_second": round(
            (steps - first) * train_settings.batch / seconds, 1
        ),
        "mean_tokens": round(float(lengths.mean()), 1),
    }
    if best:
        result["best_step"] = best["step"]
    return result | finish_callbacks(callbacks)


def finish_callbacks(callbacks: Sequence[Callback]) -> Metrics:
    """Call `after_last_step` of all callbacks, and return their metrics in one dict.

    That method gives the model its final form, for example without pruned weights."""
    return {
        name: value
        for callback in callbacks
        for name, value in callback.after_last_step().items()
    }


def list_parameter_groups(
    model: PreTrainedModel, train_settings: Train, callbacks: Sequence[Callback]
) -> list[ParameterGroup]:
    """Return the optimiser's groups of parameters, with rates and weight decay.

    A group is {"params", "lr"}, with "weight_decay" where it differs from the
    optimiser's. The first group has all parameters that are in no other group. Biases
    and LayerNorms have no weight decay if `train_settings.spare_norms`. The kernels of
    GhostBERT's convolutions have the learning rate `train_settings.taps` if that is not
    0. Groups of the callbacks follow, without weight decay unless they set one. Frozen
    parameters, and those that a callback updates itself, are in no group.

    train_settings: the settings, such as the learning rate.
    callbacks: additions to the training. `groups` of a callback are its further groups,
    `apart` are the parameters that it updates itself."""
    callback_groups = [group for callback in callbacks for group in callback.groups]
    taken = {id(p) for callback in callbacks for p in callback.apart}
    taken |= {id(p) for group in callback_groups for p in group["params"]}
    decayed, spared, taps = [], [], []
    for name, p in model.named_parameters():
        if p.requires_grad and id(p) not in taken:
            if train_settings.taps and name.endswith("convolution.weight"):
                taps.append(p)
            elif train_settings.spare_norms and (
                name.endswith("bias") or "LayerNorm" in name
            ):
                spared.append(p)
            else:
                decayed.append(p)
    groups = [{"params": decayed, "lr": train_settings.lr}]
    if spared:
        groups.append({"params": spared, "lr": train_settings.lr, "weight_decay": 0.0})
    if taps:
        groups.append({"params": taps, "lr": train_settings.taps})
    return groups + [{"weight_decay": 0.0, **group} for group in callback_groups]


def log_and_select_best_model(
    run: TrainingOutput,
    model: PreTrainedModel,
    score: float,
    steps_done: int,
    previous_best: ScoreStepAndWeights | None,
) -> ScoreStepAndWeights:
    """Return the better one of the current model and the best model so far.

    A model is {"score", "step", "weights": copy of the state dict on the CPU}. At equal
    scores the earlier one is returned. The score is logged.

    run: the log of the training.
    score: the score of the current model, higher being better.
    steps_done: the number of training steps done.
    previous_best: the best model so far; None at the first call."""
    run.log_step(step=steps_done, score=score)
    if previous_best and score <= previous_best["score"]:
        return previous_best
    weights = {
        name: value.to("cpu", copy=True) for name, value in model.state_dict().items()
    }
    return {"score": float(score), "step": steps_done, "weights": weights}


def write_checkpoint(
    run: TrainingOutput,
    model: PreTrainedModel,
    optimiser: torch.optim.Optimizer,
    steps_done: int,
    previous_best: ScoreStepAndWeights | None,
    dtype: str,
) -> None:
    """Write a checkpoint with everything that a training needs to resume, atomically.

    It has weights, optimiser, log, random states and the best model so far. The
    previous checkpoint stays, in case this one is damaged, and older ones are removed.

    run: the folder and the log of the training.
    steps_done: the number of training steps done.
    previous_best: the best model so far, from `log_and_select_best_model`; None where
    no model was scored yet.
    dtype: the dtype of the forward passes. A training in another dtype does not resume
    from this checkpoint."""
    target = run.checkpoint_folder / f"step-{steps_done:08d}"
    body = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "step": steps_done,
        "dtype": dtype,
        "best": previous_best,
        "lines": run.lines,
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if get_device().type == "cuda" else None,
    }
    with disk.write_atomically(target) as folder:
        folder.mkdir()
        torch.save(body, folder / STATE)
        disk.write_manifest(folder)
    # Folders with these names are unfinished checkpoints of processes that were killed.
    halves = list(run.checkpoint_folder.glob(".step-*"))
    for old in [*halves, *sorted(run.checkpoint_folder.glob("step-*"))[:-2]]:
        disk.remove_path(old)


def load_checkpoint(
    run: TrainingOutput,
    model: PreTrainedModel,
    optimiser: torch.optim.Optimizer,
    dtype: str,
) -> LoadedCheckpoint:
    """Load the last checkpoint of a training into model and optimiser, to resume it.

    Returns (number of training steps done, best model so far or None); (0, None) where
    there is no checkpoint. A checkpoint that is damaged or of another dtype is deleted,
    and the one before it is tried. Raises Refused where a checkpoint does not fit the
    model, as after a change of code. Log and random states are restored too."""
    for folder in sorted(run.checkpoint_folder.glob("step-*"), reverse=True):
        if why := disk.describe_folder_damage(folder):
            print_once(
                f"damaged  {why}; this training goes on from an earlier checkpoint, or anew"
            )
            disk.remove_path(folder)
            continue
        try:
            body = torch.load(folder / STATE, map_location="cpu")
            if (was := body.get("dtype", "an unknown dtype")) != dtype:
                print_once(
                    f"not used  {paths.format_project_path(folder)} is of {was}, not {dtype}; "
                    "it begins anew"
                )
                disk.remove_path(folder)
                continue
            step, best, run.lines = body["step"], body["best"], body["lines"]
            model.load_state_dict(body["model"])
            optimiser.load_state_dict(body["optimiser"])
            break
        except Exception as error:
            system_errors = (OSError, MemoryError, torch.OutOfMemoryError)
            is_file_missing = isinstance(error, FileNotFoundError)
            if isinstance(error, system_errors) and not is_file_missing:
                raise  # The checkpoint may be sound.
            raise Refused(
                f"other code wrote {paths.format_project_path(folder)}: delete it"
            ) from error
    else:
        return LoadedCheckpoint(0, None)
    torch.set_rng_state(body["cpu"])
    if body["cuda"] is not None:
        torch.cuda.set_rng_state(body["cuda"])
    run.log_step(step=step, resumed=True)
    return LoadedCheckpoint(step, best)


def compute_logits(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the logits of a batch: [B, C] of classes, or [B, 2, T] of answer spans.

    An answer span has a logit at each token for being its first, and one for being its
    last token. Logits of padded tokens are -10,000 (ABSENT), so that no answer begins
    or ends there."""
    out = model(**batch)
    if "logits" in out:
        return out.logits
    both = torch.stack([out.start_logits, out.end_logits], 1).float()
    return both.masked_fill(batch["attention_mask"][:, None] == 0, ABSENT)


@torch.inference_mode()
def predict_logits(
    model: PreTrainedModel,
    encoded: EncodedRows,
    numerics: Numerics,
    max_batch_tokens: int = 2048,
    min_token_count: int = 0,
) -> np.ndarray:
    """Return the logits of N tokenised rows in float32, in the order of the rows.

    They are [N, C], or for answer spans [N, 2, T] (first and last token), where T is
    the length of the longest row. The model is set to eval mode.

    encoded: the tokenised rows.
    numerics: the dtype of the forward passes.
    max_batch_tokens: the largest number of tokens in a batch with padding; a longer row
    is a batch of its own.
    min_token_count: the number of tokens to which shorter rows are padded; T is at
    least this."""
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(get_device()).eval()
    lengths = np.maximum(encoded.compute_row_lengths(), min_token_count)
    rows, start = np.argsort(-lengths, kind="stable"), 0
    logits = None
    with (
        speed_up_passes_on_cpu(model, numerics),
        autocast_to_dtype(numerics),
        parametrize.cached(),
    ):
        while start < len(rows):
            chosen = rows[
                start : start + max(1, max_batch_tokens // lengths[rows[start]])
            ]
            out = (
                compute_logits(
                    model, make_batch(encoded, chosen, min_token_count, get_device())
                )
                .float()
                .cpu()
                .numpy()
            )
            if logits is None:  # The first batch has the longest row.
                shape = len(rows), *out.shape[1:]
                logits = np.full(shape, ABSENT, dtype=np.float32)
            logits[chosen, ..., : out.shape[-1]] = out
            start += len(chosen)
    assert logits is not None
    return logits


def set_dtype_threads_and_device(numerics: SettingsJson) -> Numerics:
    """Apply the numeric settings of a run to this process, and return them.

    The dict {"dtype", "threads", "device"} becomes a Numerics. PyTorch's thread count
    and the device of `get_device` are set from it. Raises Refused for bfloat16 on a CPU
    without instructions for it. There is no fallback to float32, because its results
    would be stored as those of bfloat16. On a GPU convolutions compute in float32 where
    this is asked for, and add in a fixed order."""
    global _chosen
    arithmetic = Numerics(**numerics)
    if arithmetic.dtype == "bfloat16" and not (
        arithmetic.device or processor.has_bfloat16_instructions()
    ):
        lacks = f"this processor has none of {', '.join(processor.BFLOAT16)}"
        raise Refused(
            f"numerics.dtype is 'bfloat16', and {lacks}: take 'float32', which makes another run, "
            "or a machine that has one of them"
        )
    torch.set_num_threads(arithmetic.threads)
    if arithmetic.device:
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True
    _chosen = arithmetic.device or "cpu"
    return arithmetic


@contextmanager
def use_float32_on_model_device(
    model: PreTrainedModel, thread_count: int
) -> ContextYield[Numerics]:
    """Set this process to float32 and to a model's device during a `with` block.

    Yields the Numerics (dtype, threads, device) that functions for training and
    prediction take. It serves a user's own program: at the end, thread count, device
    and random states are restored. Raises Refused for a model on a device that is
    neither a CPU nor a CUDA GPU.

    thread_count: the number of CPU threads within the block."""
    global _chosen
    before, count = _chosen, torch.get_num_threads()
    convolutions = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    if model.device.type not in ("cpu", "cuda"):
        fix = "move it with model.to('cpu')"
        raise Refused(f"the model is on {model.device}; expected cpu or cuda: {fix}")
    device = "cuda" * (model.device.type == "cuda")
    with torch.random.fork_rng():
        try:
            numerics = set_dtype_threads_and_device(
                {"dtype": "float32", "threads": thread_count, "device": device}
            )
            _chosen = str(model.device)  # One of several GPUs has a number.
            yield numerics
        finally:
            torch.set_num_threads(count)
            torch.backends.cudnn.allow_tf32 = convolutions[0]
            torch.backends.cudnn.deterministic = convolutions[1]
            _chosen = before
