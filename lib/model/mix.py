"""Layer mix: the encoder's last hidden state becomes a weighted sum of all its states (BERMo section 3.1).

    gamma * sum over j of softmax(alpha)_j drop(norm(h_j)),   j = 0 .. L: the embedding output and the L layer outputs

Pooler, sequence head and span head follow as before. Shapes: B batch, T tokens, H hidden, L layers.

    norm             mean and variance over                               more parameters
    "layers"         the L + 1 states of each token and channel           none: the paper's text, taken literally
    "layers_affine"  the same, then a scale and a shift for each state    2 (L + 1)
    "channels"       the H channels of each state and token               none
    "tokens"         all real tokens and channels of each state           none; as ELMo's code has it: a row's result
                                                                          depends on the batch that it stands in
    "none"           nothing                                              none

Taken literally the L + 1 normalised values of a channel sum to 0, so equal weights give exactly zero, whatever the
input: the signal is sum (a_j - 1 / (L + 1)) z_j and lives on the spread of alpha.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from lib.model import ghost
from lib.model.backbone import base, embedding_output, layers
from lib.options import MIX_INITS, MIX_NORMS, one_of
from lib.spec import stream

EPS = 1e-12  # of ELMo's code and of BERT's own LayerNorm; the paper names none


class LayerMix(nn.Module):
    """L + 1 weights and one scale. `padding`: a list of one, the batch's mask [B, T], 1 at real tokens, or None."""

    def __init__(self, states, norm, init, dropout, padding, generator):
        super().__init__()
        self.norm, self.padding, self.seen = norm, padding, []
        alpha = torch.zeros(states)
        if init != "zeros":  # as of a matrix of one row: Xavier is not defined for a vector
            getattr(nn.init, f"{init}_")(alpha.view(1, -1), generator=generator)
        self.alpha, self.gamma = nn.Parameter(alpha), nn.Parameter(torch.ones(()))
        if norm == "layers_affine":
            self.scale, self.shift = (
                nn.Parameter(torch.ones(states)),
                nn.Parameter(torch.zeros(states)),
            )
        self.dropout = nn.Dropout(dropout)

    def weights(self):
        """softmax(alpha) [L + 1]."""
        return self.alpha.softmax(0)

    def forward(self, states, mask=None):
        """states: L + 1 tensors [B, T, H]; mask [B, T]. Returns [B, T, H]."""
        normal = self.normaliser(states, mask)
        return self.gamma * sum(
            a * self.dropout(normal(j, h))
            for j, (a, h) in enumerate(zip(self.weights(), states, strict=True))
        )

    def normaliser(self, states, mask):
        """f(j, state) -> the state normalised."""
        if self.norm == "none":
            return lambda _, state: state
        if self.norm == "channels":
            return lambda _, state: functional.layer_norm(state, state.shape[-1:], eps=EPS)
        if self.norm == "tokens":
            real = (
                states[0].new_ones(states[0].shape[:2])
                if mask is None
                else mask.to(states[0].dtype)
            )
            return lambda _, state: over_tokens(state, real.unsqueeze(-1))
        mean = sum(states) / len(states)
        rate = (sum((state - mean).square() for state in states) / len(states) + EPS).rsqrt()
        if self.norm == "layers":
            return lambda _, state: (state - mean) * rate
        return lambda j, state: (state - mean) * rate * self.scale[j] + self.shift[j]

    # Hooks, methods so that a copied model has its own.
    def start(self, _, __, output):
        self.seen = [output]

    def keep(self, _, __, output):
        self.seen.append(output[0] if isinstance(output, tuple) else output)

    def replace(self, _, __, output):
        states, self.seen = (
            [state.to(self.alpha.dtype) for state in self.seen],
            [],
        )  # what tells layers apart is small
        if len(states) != len(self.alpha):
            raise ValueError(
                f"the layer mix saw {len(states)} states and weighs {len(self.alpha)}: a layer was replaced after "
                "it; put the mix last"
            )
        output["last_hidden_state"] = self(states, self.padding[0])
        return output


def over_tokens(state, real):
    """state [B, T, H] less its mean, over its standard deviation, both over real tokens (1 in [B, T, 1]) and channels."""
    number = real.sum() * state.shape[-1]
    mean = (state * real).sum() / number
    variance = ((state - mean) * real).square().sum() / number
    return (state - mean) / (variance + EPS).sqrt()


def present(model):
    """The LayerMix of a model, or None."""
    return getattr(base(model), "mix", None)


def add(model, norm, init, dropout=0.0, seed=0):
    """Put a mix between a model's encoder and its head; alpha is drawn from `seed`. Returns {"states", "parameters"}.

    Raises ValueError for a model without hidden states to mix, one that has a mix, and options that are not there.
    """
    one_of("mix", "norm", norm, MIX_NORMS)
    one_of("mix", "init", init, MIX_INITS)
    try:
        there, first = layers(model), embedding_output(model)
    except AttributeError:
        raise ValueError(
            f"a {type(model).__name__} has no hidden states to mix: it takes an embedding and a list of layers, "
            "as BERT, RoBERTa and ELECTRA have"
        ) from None
    if present(model):
        raise ValueError("this model has a layer mix already: it takes one")
    encoder = base(model)
    if not hasattr(encoder, "padding"):
        encoder.padding = [None]
        encoder.register_forward_pre_hook(ghost._remember, with_kwargs=True)
    generator = torch.Generator().manual_seed(stream(seed, "mix"))
    encoder.mix = LayerMix(len(there) + 1, norm, init, dropout, encoder.padding, generator).to(
        next(model.parameters()).device
    )
    first.register_forward_hook(encoder.mix.start)
    for layer in there:
        layer.register_forward_hook(encoder.mix.keep)
    encoder.encoder.register_forward_hook(encoder.mix.replace)
    return {
        "states": len(there) + 1,
        "parameters": sum(p.numel() for p in encoder.mix.parameters()),
    }


def memory(layers, hidden, size=4):
    """Bytes for each token that a forward pass without gradients holds for the mix: (L + 1) H values of `size` bytes,
    all states until the last one is there, where a plain encoder holds one (the limitation of BERMo's section 5)."""
    return math.prod((layers + 1, hidden, size))
