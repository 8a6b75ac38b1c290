"""This module adds a layer mix to a model: a learned weighted sum of the hidden states
of all layers takes the place of the last hidden state (BERMo section 3.1, as in ELMo).

    gamma * sum over j of softmax(alpha)_j drop(norm(h_j)),   j = 0 .. L: embedding output, L layers

Pooler and task head follow as before. Shapes: B batch, T tokens, H hidden, L layers.

    norm             mean and variance are taken over                 more parameters
    "layers"         the L + 1 states of each token and channel       none: the paper's own text
    "layers_affine"  the same, then scale and shift of each state     2 (L + 1)
    "channels"       the H channels of each state and token           none
    "tokens"         all real tokens and channels of each state       none: ELMo's code. A row's
                                                                      result depends on
                                                                      its batch
    "none"           nothing                                          none

Under "layers" the L + 1 normalised values z_j of a channel sum to 0. So equal weights
a_j give exactly zero for any input: the result is the sum of (a_j - 1 / (L + 1)) z_j,
and needs unequal weights.

A plain mix is a control, in which nothing is learned or normalised:

    plain            in place of the last state of each token
    "mean"           the mean of the token's L + 1 states: gradients reach each layer as directly as
                     with the mix
    "embedding"      the mean of the embedding output over the row's real tokens: a bag of words.
                     [CLS] alone would say nothing: it has the same embedding in every
                     row"""

from collections.abc import MutableMapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from .options import MixNorm, Refused, derive_seed
from .parts import (
    CountByMetric,
    PaddingMask,
    count_parameters,
    get_encoder,
    get_last_embedding_module,
    get_layers,
    get_or_attach_padding_mask,
)

# Constant that is added to a variance before a division by its root, as in ELMo's code
# and BERT's LayerNorm. The BERMo paper names none.
EPS = 1e-12
TorchInitName = str  # "zeros", or a function of torch.nn.init without its last "_".
FixedMixKind = Literal["", "mean", "embedding"]  # "" for trained weights.


class LayerMix(nn.Module):
    """A LayerMix computes a weighted sum of all L + 1 hidden states of an encoder.

    The states are the embedding output and the outputs of the L layers, and the weights
    are gamma * softmax(alpha), with trained alpha and gamma (BERMo section 3.1, as in
    ELMo). The task head reads the sum instead of the last state.

    state_count: L + 1.
    normalisation: over what each state is normalised before it is summed: "layers"
    (over the L + 1 states of each token and channel), "layers_affine" (the same, then a
    trained scale and shift for each state), "channels" (the H channels of each token),
    "tokens" (all real tokens and channels of the batch) or "none".
    initialisation: how alpha is initialised: "zeros", or a random function of
    torch.nn.init without its last "_", such as "xavier_uniform".
    dropout: the rate of dropout on each normalised state.
    padding_mask: holds the attention mask of the current batch, so that padding is left
    out of means over tokens.
    generator: the random generator of alpha.
    fixed_mix_kind: "" for trained weights. "mean" (all states weigh the same) and
    "embedding" (the mean embedding of the row's tokens) are controls without trained
    weights."""

    alpha: torch.Tensor
    gamma: torch.Tensor

    def __init__(
        self,
        state_count: int,
        normalisation: MixNorm,
        initialisation: TorchInitName,
        dropout: float,
        padding_mask: PaddingMask,
        generator: torch.Generator,
        fixed_mix_kind: FixedMixKind = "",
    ) -> None:
        super().__init__()
        self.norm = normalisation
        self.padding = padding_mask
        self.plain = fixed_mix_kind
        self.seen: list[torch.Tensor] = []
        alpha = torch.zeros(state_count)
        self.dropout = nn.Dropout(dropout)
        # A mix with fixed weights is a control experiment. Its alpha and gamma are
        # buffers, so that they are saved, but not trained.
        if fixed_mix_kind:
            self.register_buffer("alpha", alpha)
            self.register_buffer("gamma", torch.ones(()))
            return
        if initialisation != "zeros":  # View alpha as a matrix, which Xavier requires.
            getattr(nn.init, f"{initialisation}_")(
                alpha.view(1, -1), generator=generator
            )
        self.alpha, self.gamma = nn.Parameter(alpha), nn.Parameter(torch.ones(()))
        if normalisation == "layers_affine":
            self.scale = nn.Parameter(torch.ones(state_count))
            self.shift = nn.Parameter(torch.zeros(state_count))

    def compute_hidden_state_weights(self) -> torch.Tensor:
        """Return the weights [L + 1] of the hidden states in the sum, softmax(alpha).

        Gamma, the trained factor of the sum, is left out. In a mix without trained
        weights the weights are fixed: for the kind "mean" all are equal; for
        "embedding" the embedding output has 1 and all layers have 0."""
        if self.plain == "embedding":
            return functional.one_hot(torch.tensor(0), len(self.alpha)).to(self.alpha)
        return self.alpha.softmax(0)

    def forward(
        self,
        layer_states: Sequence[torch.Tensor],
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the weighted sum [B, T, H] of L + 1 hidden states.

        A mix of the kind "embedding", which has no trained weights, returns the mean of
        the embedding output over the real tokens of each row, at every token, instead.

        layer_states: the L + 1 hidden states [B, T, H], embedding output first.
        attention_mask: the attention mask [B, T], 1 for real tokens; None where all
        tokens are real. Padding is left out where states are normalised over tokens."""
        first = layer_states[0]
        real = torch.ones_like(first[..., :1])
        if attention_mask is not None:
            real = attention_mask.to(first.dtype).unsqueeze(-1)
        if self.plain == "embedding":
            words = (first * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
            return self.dropout(words).expand_as(first)
        normal = self.normalise_states(layer_states, real)
        return self.gamma * sum(
            a * self.dropout(h)
            for a, h in zip(self.compute_hidden_state_weights(), normal, strict=True)
        )

    def normalise_states(
        self, layer_states: Sequence[torch.Tensor], token_mask: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        """Return the L + 1 hidden states [B, T, H], normalised before they are summed.

        The mean and variance are taken over what this module's `normalisation` names,
        such as "layers"; "none" and fixed weights return the states unchanged.

        layer_states: the L + 1 hidden states [B, T, H] of one forward pass.
        token_mask: [B, T, 1], 1 for real tokens."""
        if self.norm == "none" or self.plain:
            return layer_states
        if self.norm == "channels":
            width = layer_states[0].shape[-1:]
            return [functional.layer_norm(h, width, eps=EPS) for h in layer_states]
        if self.norm == "tokens":
            return [standardise_hidden_state(h, token_mask) for h in layer_states]
        mean = sum(layer_states) / len(layer_states)
        squares: Any = sum((state - mean).square() for state in layer_states)
        rate = (squares / len(layer_states) + EPS).rsqrt()
        normal = [(state - mean) * rate for state in layer_states]
        if self.norm == "layers":
            return normal
        return [z * self.scale[j] + self.shift[j] for j, z in enumerate(normal)]

    # The next three methods are forward hooks, which store states in this module.
    # `copy.deepcopy` of a model also copies this module, and binds the copied hooks to
    # the copy. Hooks that are closures would go on to write to the original.
    def store_embedding_output(
        self, _module: nn.Module, _inputs: tuple[Any, ...], module_output: torch.Tensor
    ) -> None:
        """Store the embedding output [B, T, H] as the first state of a forward pass.

        It is the forward hook of the embedding. The states are summed at the end of the
        pass."""
        self.seen = [module_output]

    def store_layer_output(
        self,
        _module: nn.Module,
        _inputs: tuple[Any, ...],
        module_output: torch.Tensor | tuple[torch.Tensor, ...],
    ) -> None:
        """Store the output of a transformer layer as the next hidden state.

        It is the forward hook of each layer. The states are summed at the end of the
        pass."""
        self.seen.append(
            module_output[0] if isinstance(module_output, tuple) else module_output
        )

    def replace_last_hidden_state(
        self,
        _module: nn.Module,
        _inputs: tuple[Any, ...],
        module_output: MutableMapping[str, Any],
    ) -> MutableMapping[str, Any]:
        """Replace the encoder's last state by the weighted sum of the stored states.

        It is the forward hook of the encoder, and returns the changed output of the
        encoder. Pooler and task head then read the sum. It is computed in float32, the
        dtype of alpha.

        module_output: the encoder's output, whose `last_hidden_state` is replaced."""
        states, self.seen = [state.to(self.alpha.dtype) for state in self.seen], []
        module_output["last_hidden_state"] = self(states, self.padding.mask)
        return module_output


def standardise_hidden_state(
    hidden_state: torch.Tensor, token_mask: torch.Tensor
) -> torch.Tensor:
    """Standardise a hidden state [B, T, H]: subtract the mean, divide by the deviation.

    Mean and standard deviation are one number each, taken over all real tokens and
    channels of the batch, as in ELMo's code.

    token_mask: [B, T, 1], 1 for real tokens."""
    number = token_mask.sum() * hidden_state.shape[-1]
    mean = (hidden_state * token_mask).sum() / number
    variance = ((hidden_state - mean) * token_mask).square().sum() / number
    return (hidden_state - mean) / (variance + EPS).sqrt()


def find_layer_mix(model: nn.Module) -> LayerMix | None:
    """Return the module of a model that sums the hidden states of all layers, or None.

    The module is a layer mix (BERMo section 3.1). None means that `add_layer_mix` was
    not applied to the model."""
    return getattr(get_encoder(model), "mix", None)


def add_layer_mix(
    model: nn.Module,
    norm: MixNorm,
    init: TorchInitName,
    dropout: float = 0.0,
    plain: FixedMixKind = "",
    seed: int = 0,
) -> CountByMetric:
    """Let a model's head read a trained weighted sum of all layers' hidden states.

    The sum replaces the last hidden state (BERMo section 3.1). This change is the
    operation named "mix" in the list of changes that is saved with a model. Returns
    {"states": number of states in the sum, "parameters": number of new parameters}.
    Raises Refused for a model that has such a sum already.

    norm: over what states are normalised before they are summed: "layers" (the states
    of each token and channel), "layers_affine" (the same, then a trained scale and
    shift), "channels" (the channels of each token), "tokens" (all real tokens and
    channels of the batch) or "none".
    init: how the weights' logits alpha are initialised: "zeros", or a random function
    of torch.nn.init without its last "_".
    dropout: the rate of dropout on each normalised state.
    plain: a control without trained parameters: "mean" gives all states the same
    weight, "embedding" takes the mean embedding of the row's tokens; "" trains the
    weights.
    seed: the seed from which alpha is drawn."""
    if find_layer_mix(model):
        raise Refused("this model has a layer mix already: it takes one")
    encoder, encoder_layers = get_encoder(model), get_layers(model)
    states = len(encoder_layers) + 1
    generator = torch.Generator().manual_seed(derive_seed(seed, "mix"))
    mix = LayerMix(
        states, norm, init, dropout, get_or_attach_padding_mask(model), generator, plain
    )
    encoder.mix = mix.to(next(model.parameters()).device)
    get_last_embedding_module(model).register_forward_hook(mix.store_embedding_output)
    for layer in encoder_layers:
        layer.register_forward_hook(mix.store_layer_output)
    encoder.encoder.register_forward_hook(mix.replace_last_hidden_state)
    return {"states": states} | count_parameters(mix)
