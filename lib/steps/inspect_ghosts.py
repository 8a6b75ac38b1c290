"""Step: what the ghosts of a model do: their kernels, and their features beside those that they are
made from.

Of each ghost module, over all real tokens of some development rows, y [N, C] being what its
convolution reads and g [N, C] what it adds (N tokens, C channels):

    cosine   mean over the tokens of cos(y, g)
    cka      linear CKA of y and g (Kornblith et al. 2019): 1 where g is y, rotated and scaled
    size     |g| / |y|, Frobenius norms
    active   share of g above zero: what the ReLU lets through
"""

from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch.nn import functional

from lib import data as sources
from lib.model import backbone
from lib.model import ghost as ghosts
from lib.model.parts import layers
from lib.train import heads, loop
from lib.train.batches import collate

# positions whose ghosts are added, token by token, to what they are made from
ADDED = ("o", "ffn1", "ffn2")
BATCH = 32
TOKENS, CHANNELS = 24, 32  # of one row, whose features are kept to look at


def inspect_ghosts(run, data, train, numerics, rows):
    """Input: `model`, with ghosts. The first `rows` development rows, cut and padded as `train`
    tells.

    Saves `ghosts`, without text. For each position: "<position>.taps" [L, *kernel], what convolves;
    "<position>.cosine", ".cka", ".size" and ".active" [L]; and of the row of median length
    "<position>.original" and ".ghost" [L, T, C], the first TOKENS tokens and CHANNELS channels.
    Raises ValueError for a model without ghosts at such positions.
    """
    numerics, train = loop.options(numerics, train)
    model, tokenizer = backbone.load(run.inputs["model"].model)
    model.to(loop.device())
    found = modules(model)
    split = sources.load(data)["dev"]
    split = split.take(np.arange(min(rows, len(split))))
    encoded, _ = heads.rows(tokenizer, split, sources.described(data), train.max_length)
    order = np.argsort(encoded.lengths(), kind="stable")
    sums = {place: Sums() for place in found}
    with watched(found) as seen, torch.inference_mode():

        def forward(chosen):
            """Fills `seen`; returns which tokens are real [B, T]."""
            batch = collate(encoded, chosen, train.pad_to, loop.device())
            with loop.autocast(numerics):
                loop.outputs(model, batch)
            return batch["attention_mask"].bool()

        for start in range(0, len(order), BATCH):
            real = forward(order[start : start + BATCH])
            for place, (y, g) in seen.items():
                sums[place].add(y[real].double(), g[real].double())
            run.progress(start / len(order))
        real = forward(order[len(order) // 2 :][:1])
        look = {
            place: [part[real][:TOKENS, :CHANNELS].float().cpu().numpy() for part in pair]
            for place, pair in seen.items()
        }
    kept = {}
    for place, module in found.items():
        original, ghost = look[place]
        told = {"original": original, "ghost": ghost}
        told["taps"] = module.convolution.taps().detach().cpu()
        for name, value in (sums[place].result() | told).items():
            kept.setdefault(f"{place[0]}.{name}", []).append(np.asarray(value))
    run.save_arrays("ghosts", **{name: np.stack(layers) for name, layers in kept.items()})
    return {
        "modules": len(found),
        "inspected_rows": len(split),
        "tokens": int(encoded.lengths().sum()),
    }


def modules(model):
    """{(position, layer): ghost module}."""
    found = {
        (position, number): module
        for number, layer in enumerate(layers(model))
        for position, module in ghosts.present(layer).items()
        if position in ADDED
    }
    there = sorted(ghosts.present(layers(model)[0]))
    if not found:
        raise ValueError(
            f"ghosts at {there or 'no position'}: there is something to compare where a ghost is "
            f"added to what it is made from, at {', '.join(map(repr, ADDED))}"
        )
    return found


@contextmanager
def watched(found):
    """Within, each forward fills the yielded dict {place: (y, g)}, both [B, T, C].

    Several features of a module, and the heads that they are made from, are summed, as in the
    module.
    """
    seen = {}

    def keep(place, module):
        def hook(_, inputs, output):
            y, g = inputs[0], output.relu() if module.relu else output
            seen[place] = (y.sum(1), g.sum(1)) if y.dim() == 4 else (y, g)

        return hook

    with ExitStack() as held:
        for place, module in found.items():
            held.enter_context(module.convolution.register_forward_hook(keep(place, module)))
        yield seen


class Sums:
    """Running sums over tokens of two features y and g, both [n, C] in float64."""

    def __init__(self):
        self.n, self.sums = 0, {}

    def add(self, y, g):
        self.n += len(y)
        new = {
            "cosine": functional.cosine_similarity(y, g, dim=-1).sum(),
            "active": (g > 0).double().mean(-1).sum(),
            "y": y.sum(0),
            "g": g.sum(0),
            "yy": y.T @ y,
            "gg": g.T @ g,
            "yg": y.T @ g,
        }
        self.sums = {name: value + self.sums.get(name, 0) for name, value in new.items()}

    def result(self):
        s = self.sums
        yy, gg, yg = (
            (s[a + b] - torch.outer(s[a], s[b]) / self.n).norm() for a, b in ("yy", "gg", "yg")
        )
        result = {
            "cosine": s["cosine"] / self.n,
            "active": s["active"] / self.n,
            "size": (s["gg"].trace() / s["yy"].trace()).sqrt(),
            "cka": yg**2 / (yy * gg),
        }
        return {name: value.item() for name, value in result.items()}
