"""Step: the report's check on handwritten digits: does a search keep pixels and drop inputs of
noise (section 7.1)?

P pixels, P noise inputs beside them, N = 2 P gates.
"""

from itertools import chain, pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lib.data import digits as images_of
from lib.runs import paths
from lib.runs.spec import stream
from lib.search.control import LIMIT
from lib.train import loop
from lib.train.gating import Gating
from lib.train.options import Gates, Perceptron


def digits(run, images, perceptron, gates, numerics):
    """images: descriptor of lib.data.digits. Cross-entropy trains weights and gates together from
    random weights; the cost is the number of inputs. There is no retraining.

    Metrics: `accuracy` of the network whose inputs are cut to those kept, on the test images,
    `soft_accuracy` with the masks as they stand, `pixels` and `noise` kept, `ratio`, and those of a
    final trim as in `nas_search`. Saved arrays "inputs": `kept` [2, height, width], pixels first,
    `alphas` [N] and the curve [steps, 4].
    """
    loop.options(numerics)
    options, gates = Perceptron(**perceptron), Gates(**gates)
    found = images_of.described(paths.data_root() / "mnist", images)
    splits = {
        name: [torch.from_numpy(part).to(loop.device()) for part in split]
        for name, split in found.items()
    }
    shape = splits["train"][0].shape[1:]
    pixels = shape.numel()
    torch.manual_seed(stream(run.seed, "init"))
    network = mlp(2 * pixels, options.widths).to(loop.device())
    search = train(run, network, splits["train"], gates, options)
    metrics, alphas, curve = search.land()
    kept = search.control.on(alphas)
    run.save_arrays(
        "inputs", kept=kept.reshape(2, *shape), alphas=alphas.astype(np.float32), curve=curve
    )

    def accuracy(masks):
        return share(network, splits["test"], masks, options, run.seed)

    return metrics | {
        "accuracy": accuracy(np.where(kept, 1.0, 0.0)),
        "soft_accuracy": accuracy(1 / (1 + np.exp(-alphas))),
        "pixels": int(kept[:pixels].sum()),
        "noise": int(kept[pixels:].sum()),
        "inputs": 2 * pixels,
        "steps": len(curve),
    }


def mlp(inputs, widths):
    """Build dense layers with ReLU between them."""
    layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise((inputs, *widths))]
    return nn.Sequential(*chain.from_iterable(layers))[:-1]


def inputs_of(pixels, options, generator):
    """Return [B, height, width] bytes to [B, 2 P]: pixels in [0, 1], then noise."""
    pixels = pixels.flatten(1).float() / 255
    noise = torch.randn(pixels.shape, generator=generator).to(pixels.device)
    return torch.cat([pixels, options.noise * noise], 1)


def train(run, network, split, gates, options):
    """Train weights and gates together. Returns the search (lib.train.gating.Gating)."""
    pixels, labels = split
    optimiser = torch.optim.Adam(network.parameters(), lr=options.lr)
    generator = torch.Generator().manual_seed(stream(run.seed, "noise"))
    per_epoch = -(-len(labels) // options.batch)
    # Parts of the network, for its checkpoints; the state of the noise is on the CPU.
    network.alphas = nn.Parameter(torch.full((2 * pixels[0].numel(),), LIMIT, device=pixels.device))
    network.register_buffer("noise", generator.get_state())
    sizes = {"inputs": len(network.alphas)}
    search = Gating(run, network, [network.alphas], sizes, lambda sums: sums["inputs"], gates)

    def batches(epoch):
        order = np.random.default_rng(stream(run.seed, f"order:{epoch}")).permutation(len(labels))
        return np.array_split(order, per_epoch)

    for place, rows in loop.walk(run, network, optimiser, batches, options.epochs):
        generator.set_state(network.noise)
        rows = torch.from_numpy(rows).to(labels.device)
        batch = inputs_of(pixels[rows], options, generator)
        network.noise.copy_(generator.get_state())
        logits = network(batch * network.alphas.sigmoid())
        functional.cross_entropy(logits, labels[rows]).backward()
        search.gradients(place.step, per_epoch * options.epochs)
        optimiser.step()
        network.zero_grad()
    return search


@torch.inference_mode()
def share(network, split, masks, options, seed):
    """Return the share of the images that are told right with these masks [N] on the inputs."""
    pixels, labels = split
    generator = torch.Generator().manual_seed(stream(seed, "test noise"))
    masks = torch.from_numpy(masks).float().to(labels.device)
    batch = inputs_of(pixels, options, generator) * masks
    return (network(batch).argmax(1) == labels).double().mean().item()
