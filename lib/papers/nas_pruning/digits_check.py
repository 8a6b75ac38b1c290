"""This step tests the search on handwritten digits (NAS report, section 7.1): it should
keep pixels and drop inputs of pure noise.

Letters: P pixels, P noise inputs beside them, N = 2 P gates, one for each input."""

from itertools import chain, pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lib.core import paths
from lib.core.names import derive_seed
from lib.core.store import RunWriter
from lib.papers.nas_pruning import digits as images_of
from lib.papers.nas_pruning.control import LIMIT, GateMask
from lib.papers.nas_pruning.gating import GateTraining
from lib.papers.nas_pruning.options import Gates, Perceptron
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.loop import SettingsJson


def digits(
    run: RunWriter,
    images: images_of.DigitsDescriptor,
    perceptron: SettingsJson,
    gates: SettingsJson,
    numerics: SettingsJson,
) -> Metrics:
    """Search which inputs of a perceptron to keep, where half of the inputs are noise.

    It tests a pruning search on a case with a known answer: pixels should stay, and
    noise should go (section 7.1 of the report on pruning by differentiable NAS).
    Cross-entropy trains the weights and a gate on each of the N inputs together, from
    random weights. The cost is the number of inputs. There is no training afterwards.
    It takes minutes and writes no checkpoints, so a killed run starts again.

    It returns the metrics `accuracy` (on test images, with the kept inputs alone),
    `pixels` and `noise` (numbers of kept inputs), `steps` (of the training), and
    others of the search, such as `ratio` (share of the inputs that is kept). It saves
    the arrays "inputs": `kept` bool [2, height, width] (pixels, noise), `alphas` [N],
    and `curve` [steps, 4] (target and actual cost, gates switched off and on).

    run: the run that is being made, which takes log and arrays.
    images: {"kind", "digest"}. "kind" is "files" (MNIST) or "bundled" (scikit-learn's
    digits), and "digest" is a hash of the data set.
    perceptron, gates, numerics: fields of the options Perceptron, Gates and
    Numerics."""
    loop.set_dtype_threads_and_device(numerics)
    options = Perceptron(**perceptron)
    gate_options = Gates(**gates)
    arrays = images_of.load_digits_of_descriptor(paths.data_root() / "mnist", images)
    splits = {
        name: [torch.from_numpy(part).to(loop.get_device()) for part in split]
        for name, split in arrays.items()
    }
    shape = splits["train"][0].shape[1:]
    pixels = shape.numel()
    torch.manual_seed(derive_seed(run.seed, "init"))
    network = build_perceptron(2 * pixels, options.widths).to(loop.get_device())
    search = train_perceptron_with_input_gates(
        run, network, splits["train"], gate_options, options
    )
    metrics, alphas, curve = search.correct_cost_and_finish_search()
    selected = search.control.compute_open_gate_mask(alphas)
    run.save_arrays(
        "inputs",
        kept=selected.reshape(2, *shape),
        alphas=alphas.astype(np.float32),
        curve=curve,
    )
    return metrics | {
        "accuracy": measure_perceptron_accuracy(
            network, splits["test"], selected, options, run.seed
        ),
        "pixels": int(selected[:pixels].sum()),
        "noise": int(selected[pixels:].sum()),
        "steps": len(curve),
    }


def build_perceptron(
    input_size: int, output_size_of_each_layer: tuple[int, ...]
) -> nn.Module:
    """Return a network of linear layers with ReLU between them.

    It is the network on which a pruning search is tested with handwritten digits.

    output_size_of_each_layer: numbers of outputs of the layers; the last is the number
    of classes."""
    layers = [
        (nn.Linear(a, b), nn.ReLU())
        for a, b in pairwise((input_size, *output_size_of_each_layer))
    ]
    return nn.Sequential(*chain.from_iterable(layers))[:-1]


def append_noise_inputs(
    images: torch.Tensor, perceptron_settings: Perceptron, generator: torch.Generator
) -> torch.Tensor:
    """Return a perceptron's inputs [B, 2 P]: P pixels, then P values of Gaussian noise.

    Pixels are scaled to [0, 1]. The noise carries no information, so a pruning search
    should drop it.

    images: uint8 [B, height, width].
    perceptron_settings: their `noise` is the noise's standard deviation.
    generator: draws the noise, on the CPU."""
    images = images.flatten(1).float() / 255
    noise = torch.randn(images.shape, generator=generator).to(images.device)
    return torch.cat([images, perceptron_settings.noise * noise], 1)


def train_perceptron_with_input_gates(
    run: RunWriter,
    network: nn.Module,
    images_and_labels: list[torch.Tensor],
    gate_settings: Gates,
    perceptron_settings: Perceptron,
) -> GateTraining:
    """Train a network's weights together with gates, trained masks on its inputs.

    Of the inputs [B, 2 P] the first half are pixels and the second half noise. The
    search keeps the share `gate_settings.ratio` of them. The GateTraining that is
    returned holds the gates. Its method `correct_cost_and_finish_search` then corrects
    their number to the target.

    run: the run that is being made; it has the seed and takes the log.
    images_and_labels: [uint8 [M, height, width], int64 [M]] of the M training images.
    gate_settings, perceptron_settings: settings of the search and of the training."""
    pixels, labels = images_and_labels
    optimiser = torch.optim.Adam(network.parameters(), lr=perceptron_settings.lr)
    generator = torch.Generator().manual_seed(derive_seed(run.seed, "noise"))
    per_epoch = -(-len(labels) // perceptron_settings.batch)
    steps = per_epoch * perceptron_settings.epochs
    alphas = nn.Parameter(
        torch.full((2 * pixels[0].numel(),), LIMIT, device=pixels.device)
    )
    search = GateTraining(
        run,
        network,
        [alphas],
        {"inputs": len(alphas)},
        lambda sums: sums["inputs"],
        gate_settings,
    )
    batches: list[np.ndarray] = []
    for step in range(steps):
        if step % per_epoch == 0:
            dice = np.random.default_rng(
                derive_seed(run.seed, f"order:{step // per_epoch}")
            )
            batches = np.array_split(dice.permutation(len(labels)), per_epoch)
        rows = torch.from_numpy(batches[step % per_epoch]).to(labels.device)
        logits = network(
            append_noise_inputs(pixels[rows], perceptron_settings, generator)
            * alphas.sigmoid()
        )
        functional.cross_entropy(logits, labels[rows]).backward()
        search.after_backward_pass(step, steps)
        optimiser.step()
        network.zero_grad()
        alphas.grad = None
        run.report_progress((step + 1) / steps)
    return search


@torch.inference_mode()
def measure_perceptron_accuracy(
    network: nn.Module,
    images_and_labels: list[torch.Tensor],
    kept_input_mask: GateMask,
    perceptron_settings: Perceptron,
    noise_seed: int,
) -> float:
    """Return a perceptron's test accuracy, 0 to 1, on the kept inputs alone.

    All other inputs are zero. So it shows how well the inputs that a search keeps
    suffice.

    images_and_labels: [uint8 [M, height, width], int64 [M]] of the M test images.
    kept_input_mask: bool [2 P]: first the P pixels, then the P noise inputs.
    perceptron_settings: their `noise` is the noise's standard deviation.
    noise_seed: draws the noise inputs."""
    pixels, labels = images_and_labels
    generator = torch.Generator().manual_seed(derive_seed(noise_seed, "test noise"))
    batch = append_noise_inputs(
        pixels, perceptron_settings, generator
    ) * torch.from_numpy(kept_input_mask).to(labels.device)
    return (network(batch).argmax(1) == labels).double().mean().item()
