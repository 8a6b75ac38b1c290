"""Methods of fine-pruning (BERMo section 2.3; Sanh et al. 2020): masks on a schedule, the layer
mix, a part that does not learn, and a record of the gradients.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from lib.model import compact
from lib.model import mix as mixes
from lib.model.masks import Mask, final_cut, kth_largest, projections
from lib.model.parts import base, layers
from lib.model.surgery import operate
from lib.runs.spec import stream
from lib.train import loop, schedules

BINS = 50  # of the run, for what is kept of each step
# where names of parameters begin that do not learn
FROZEN = {"embeddings": "embeddings.", "encoder": ("embeddings.", "encoder.")}


class Masks(loop.Method):
    """A mask on every projection of the encoder (lib.model.masks), closed by a schedule
    (lib.train.schedules).

    What a resumed run needs lies in buffers of `model.pruning`, which is gone from the finished
    model. Raises ValueError where the warm-ups do not fit `steps`, and for a target that the scores
    do not start above.
    """

    def __init__(self, run, model, options, steps):
        self.run, self.model, self.options, self.steps = run, model, options, steps
        self.ramp, self.cut, self.weight = schedules.plan(options, steps), final_cut(options), 0.0
        self.places = [(n, part, Mask(part.weight, options)) for n, _, part in projections(model)]
        for _, linear, mask in self.places:
            mask.train(linear.training)
            parametrize.register_parametrization(linear, "weight", mask, unsafe=True)
        self.scores = [mask.scores for *_, mask in self.places if hasattr(mask, "scores")]
        self.groups = ({"params": self.scores, "lr": options.lr},) if self.scores else ()
        model.pruning = nn.Module()
        device = next(model.parameters()).device
        for name, value in (("steered", options.final_lambda), ("error", 0.0)):
            made = torch.tensor(value, dtype=torch.float64, device=device)
            model.pruning.register_buffer(name, made)

    def before(self, step, steps):
        """Set the threshold and the weight of the penalty, which is steered where the kept share
        has a target.
        """
        for *_, mask in self.places:
            mask.threshold = self.ramp(step)
        if self.options.final_lambda:
            self.weight = schedules.penalty(self.ramp(step), self.options)
        if self.options.target:
            if step % schedules.EVERY == 0 and step > self.ramp.first:
                self.steer(step)
            self.weight *= float(self.model.pruning.steered) / self.options.final_lambda

    def steer(self, step):
        """Move the weight so that one score reaches the final cut when the run ends: the largest of
        those that the wanted share leaves out. The kept share itself would not do: it stays at 1
        for long, then it falls within a few steps, too late to brake.
        """
        state, first = self.model.pruning, self.options.final_lambda
        every = torch.cat([scores.detach().flatten() for scores in self.scores])
        score = float(kth_largest(every, max(1, int(self.options.target * every.numel()))))
        way = (score - self.cut) / (self.options.init - self.cut)
        error = way - schedules.course(step, self.ramp.first, self.steps)
        weight = schedules.steered(float(state.steered), error, float(state.error), first)
        state.steered.fill_(weight)
        state.error.fill_(error)

    def penalty(self):
        """Return the weight times the mean over all matrices."""
        if not self.options.final_lambda:
            return {}
        each = torch.stack([mask.penalty() for *_, mask in self.places])
        return {"penalty": self.weight * each.mean()}

    @torch.no_grad()
    def finish(self):
        """Replace each weight by weight times final mask, take the masks away, and cut out empty
        heads and neurons. Saved: `shares`, the kept share of each layer [L].

        The counts leave out embeddings, pooler, head and layer mix.
        """
        of_layer = [number for number, *_ in self.places]
        everything = sum(p.numel() for p in layers(self.model).parameters())
        everything -= sum(scores.numel() for scores in self.scores)
        whole = [linear.parametrizations.weight.original for _, linear, _ in self.places]
        self.model.eval()  # final masks
        kept = [int(mask.kept(w)) for (*_, mask), w in zip(self.places, whole, strict=True)]
        kept, total = (np.bincount(of_layer, n) for n in (kept, [w.numel() for w in whole]))
        for _, linear, _ in self.places:
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
        del self.model.pruning
        self.run.save_arrays("shares", layers=kept / total)
        left = compact.shrink(self.model)
        found = counted(int(total.sum()), int(kept.sum()), everything)
        found |= {f"kept_{what}": sum(numbers) for what, numbers in left.items()}
        return found | {"penalty_weight": self.weight}


def counted(masked, kept, everything):
    """Return the counts and shares of N masked and K kept weights, E being all parameters of the
    layers, biases and LayerNorms too. "remaining" is the papers' "remaining weights".
    """
    return {
        "masked_weights": masked,
        "kept_weights": kept,
        "encoder_parameters": everything,
        "kept_share": kept / masked,
        "remaining": (kept + everything - masked) / everything,
    }


class LayerMix(loop.Method):
    """A mix of the layers (lib.model.mix) of a lib.train.options.Mix. Saved: `mix`, its weights [L
    + 1] before and after, and its scale gamma [1].
    """

    def __init__(self, run, model, options):
        self.run, self.model = run, model
        operate(model, options.surgery, seed=stream(run.seed, "mix"))
        self.mix = mixes.present(model)
        self.first = self.mix.weights().detach().numpy().copy()
        self.groups = ({"params": list(self.mix.parameters()), "lr": options.lr},)

    def finish(self):
        self.run.save_arrays(
            "mix",
            before=self.first,
            after=self.mix.weights().detach().cpu().numpy(),
            gamma=self.mix.gamma.detach().cpu().numpy()[None],
        )
        # until the last state is there, all L + 1 of float32 values stay (limitation of section 5)
        number = (len(layers(self.model)) + 1) * self.model.config.hidden_size
        return {"mix_bytes_per_token": 4 * number}


def freeze(model, part):
    """Let a part of the model not learn: the "embeddings" (words, positions, types and their
    LayerNorm), or the "encoder", which is these and the layers. Pooler, head, mix and scores go on
    learning.
    """
    for name, parameter in base(model).named_parameters():
        if name.startswith(FROZEN[part]) and not name.endswith("scores"):
            parameter.requires_grad_(False)


class Course(loop.Method):
    """A record of the norm of the unclipped gradient of each layer, scores of masks left out.
    Saved: `course`, means over at most 50 bins of the run; NaN where the run did not get to.
    """

    def __init__(self, run, model, steps):
        self.run, self.steps = run, steps
        self.layers = [
            [p for name, p in layer.named_parameters() if not name.endswith("scores")]
            for layer in layers(model)
        ]

    def gradients(self, step, steps):
        grads = [[p.grad for p in layer if p.grad is not None] for layer in self.layers]
        norms = torch.stack([torch.nn.utils.get_total_norm(layer) for layer in grads])
        self.run.log(step, course={"gradient_norm": norms.tolist()})

    def finish(self):
        told = self.run.logged("course")
        norms = np.full((self.steps, len(self.layers)), np.nan)
        norms[told["step"]] = told["gradient_norm"].astype(np.float32)
        edges = np.linspace(0, self.steps, min(BINS, self.steps) + 1).astype(int)
        means = np.stack([norms[a:b].mean(0) for a, b in pairwise(edges)])
        self.run.save_arrays("course", gradient_norm=means)
        return {}
