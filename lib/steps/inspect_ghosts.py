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

from lib.model import backbone
from lib.model import ghost as ghosts
from lib.model.parts import layers
from lib.train import loop
from lib.train.batches import collate
from lib.train.learn import Lesson

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
    """
    lesson = Lesson(run, data, train, numerics)
    model, tokenizer = backbone.load(run.inputs["model"].model)
    model.to(loop.device())
    found, dev = modules(model), lesson.splits["dev"]
    lesson.splits["dev"] = dev.take(np.arange(min(rows, len(dev))))
    encoded, _ = lesson.encoded(tokenizer, "dev")
    order, sums = np.argsort(encoded.lengths(), kind="stable"), {}
    with watched(found) as seen, torch.inference_mode():

        def forward(chosen):
            """Fills `seen`; returns which tokens are real [B, T]."""
            batch = collate(encoded, chosen, lesson.train.pad_to, loop.device())
            with loop.autocast(lesson.numerics):
                loop.outputs(model, batch)
            return batch["attention_mask"].bool()

        for start in range(0, len(order), BATCH):
            real = forward(order[start : start + BATCH])
            for place, (y, g) in seen.items():
                new = moments(y[real].double(), g[real].double())
                before = sums.get(place, dict.fromkeys(new, 0))
                sums[place] = {name: before[name] + value for name, value in new.items()}
            run.progress(start / len(order))
        real, kept = forward(order[len(order) // 2 :][:1]), {}
        for place, module in found.items():
            y, g = (part[real][:TOKENS, :CHANNELS].float().cpu() for part in seen[place])
            told = {"original": y, "ghost": g, "taps": module.convolution.taps().detach().cpu()}
            for name, value in (compared(sums[place]) | told).items():
                kept.setdefault(f"{place[0]}.{name}", []).append(np.asarray(value))
    run.save_arrays("ghosts", **{name: np.stack(layers) for name, layers in kept.items()})
    return {
        "modules": len(found),
        "inspected_rows": len(encoded),
        "tokens": int(encoded.lengths().sum()),
    }


def modules(model):
    """{(position, layer): ghost module}."""
    return {
        (position, number): module
        for number, layer in enumerate(layers(model))
        for position, module in ghosts.present(layer).items()
        if position in ADDED
    }


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


def moments(y, g):
    """Sums over tokens of two features y and g, both [n, C] in float64."""
    return {
        "n": len(y),
        "cosine": functional.cosine_similarity(y, g, dim=-1).sum(),
        "active": (g > 0).double().mean(-1).sum(),
        "y": y.sum(0),
        "g": g.sum(0),
        "yy": y.T @ y,
        "gg": g.T @ g,
        "yg": y.T @ g,
    }


def compared(s):
    """The measures of summed moments; see the head of this file."""
    yy, gg, yg = (
        (s[a + b] - torch.outer(s[a], s[b]) / s["n"]).norm() for a, b in ("yy", "gg", "yg")
    )
    size = (s["gg"].trace() / s["yy"].trace()).sqrt()
    shares = {name: (s[name] / s["n"]).item() for name in ("cosine", "active")}
    return shares | {"size": size.item(), "cka": (yg**2 / (yy * gg)).item()}
