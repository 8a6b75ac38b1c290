"""This module has EfficientBERT's feed-forward networks and token embedding as torch
modules (section 3.1).

Letters: B batch, T tokens, H hidden, L layers. A layer has a stack of k feed-forward
networks. Each computes a formula (lib.model.formula) with e = int(D / q) inner
channels, where all layers share the width D, and each layer has its divisor q."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional

from .formula import (
    OPERATIONS,
    SizeMismatchRule,
    evaluate_formula_tree,
    parse_feed_forward_formula,
)
from .options import Refused
from .parts import AnyModule, CountByMetric, count_parameters, get_encoder, get_layers

FUNCTIONS = {name: partial(op.torch, torch) for name, op in OPERATIONS.items()} | {
    "pad": lambda a, count, value: functional.pad(a, (0, count), value=value)
}
Module = TypeVar("Module", bound=nn.Module)
# Description of an EfficientBERT network: see `add_feed_forward_stacks`.
ArchitectureJson = dict[str, Any]


class FeedForwardNetwork(nn.Module):
    """A FeedForwardNetwork has the parameters of one feed-forward network of
    EfficientBERT.

    These are the linear maps W1 (hidden_size to inner_size) and W2 (back), dropout and
    LayerNorm. The function that combines them is a formula such as "W2 gelu(W1 x)". All
    networks of a transformer layer share the formula, so it is stored in the
    FeedForwardStack, the module that contains them."""

    def __init__(
        self, hidden_size: int, inner_size: int, layer_norm_eps: float, dropout: float
    ) -> None:
        super().__init__()
        self.W1 = nn.Linear(hidden_size, inner_size)
        self.W2 = nn.Linear(inner_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.LayerNorm = nn.LayerNorm(hidden_size, layer_norm_eps)

    def get_sliced_linear_maps(
        self, inner_channel_count: int
    ) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
        """Return the network's two linear maps with only some of its inner channels.

        The dict is {"W1": function from H to the first `inner_channel_count` inner
        channels, "W2": function back to H}. By this, in a supernet (one network that
        contains all candidates of a search), a smaller network uses the weights of a
        larger one."""
        first, second = self.W1, self.W2
        if inner_channel_count < first.out_features:
            first = partial(
                functional.linear,
                weight=first.weight[:inner_channel_count],
                bias=first.bias[:inner_channel_count],
            )
            second = partial(
                functional.linear,
                weight=second.weight[:, :inner_channel_count],
                bias=second.bias,
            )
        return {"W1": first, "W2": second}


class LastActiveLayerNorm(nn.Module):
    """A LastActiveLayerNorm applies the LayerNorm of the last active feed-forward
    network of a layer.

    The layer has several such networks in a row (a FeedForwardStack). How many of them
    are active changes while a supernet (one network that contains all candidates of a
    search) is trained. This module is always the last one to be called, so that a hook
    on it records the output of the layer."""

    def __init__(self, stack: "FeedForwardStack") -> None:
        super().__init__()
        # The stack contains this module, so it must not become a submodule of it. torch
        # does not look for submodules in lists.
        self.stack = [stack]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stack = self.stack[0]
        return stack.networks[stack.active - 1].LayerNorm(x)


class FeedForwardStack(nn.Module):
    """A FeedForwardStack is k feed-forward networks in a row, where a usual layer has
    one.

    Each network computes LayerNorm(x + dropout(f(x))) for x [B, T, H], with weights of
    its own and a formula f that an architecture search finds (EfficientBERT section
    3.1). In a supernet (one network that contains all candidates of the search) only a
    part of the networks and channels is active. `set_active_subnetwork` must be called
    before the first forward pass, as it sets the formula.

    hidden_size, inner_size: H, and the inner channels of each network.
    network_count: k."""

    networks: AnyModule  # ModuleList of k FeedForwardNetworks.

    def __init__(
        self,
        hidden_size: int,
        inner_size: int,
        network_count: int,
        layer_norm_eps: float,
        dropout: float,
    ) -> None:
        super().__init__()
        arguments = hidden_size, inner_size, layer_norm_eps, dropout
        self.networks = nn.ModuleList(
            FeedForwardNetwork(*arguments) for _ in range(network_count)
        )
        self.LayerNorm = LastActiveLayerNorm(self)

    def set_active_subnetwork(
        self,
        feed_forward_formula: str,
        network_count: int,
        inner_channel_count: int,
        size_mismatch_rule: SizeMismatchRule,
    ) -> None:
        """Choose which feed-forward networks of this stack compute, and their formula.

        In a supernet (one network that contains all candidates of a search) the first
        `network_count` networks, with their first `inner_channel_count` inner channels,
        form a candidate network. Raises Refused where the stack has fewer networks or
        channels.

        feed_forward_formula: the function f of the networks, such as "W2 gelu(W1 x)".
        size_mismatch_rule: for operands of different widths in f, "truncate" cuts the
        wider one, "pad" fills up the narrower one."""
        channels = self.networks[0].W1.out_features
        if network_count > len(self.networks) or inner_channel_count > channels:
            raise Refused(
                f"a stack of {len(self.networks)} networks of {channels} channels "
                f"cannot run {network_count} of {inner_channel_count}: choose a smaller net"
            )
        self.tree = parse_feed_forward_formula(feed_forward_formula)
        self.active = network_count
        self.inner, self.mismatch = inner_channel_count, size_mismatch_rule

    def forward(
        self, _intermediate_output: torch.Tensor, x: torch.Tensor
    ) -> torch.Tensor:
        for number, network in enumerate(self.networks[: self.active], 1):
            linears = network.get_sliced_linear_maps(self.inner)
            output = evaluate_formula_tree(
                self.tree, x, linears, FUNCTIONS, self.mismatch
            )
            x = x + network.dropout(output)
            x = self.LayerNorm(x) if number == self.active else network.LayerNorm(x)
        return x


class TrigramEmbedding(nn.Module):
    """A TrigramEmbedding embeds each token together with its two neighbours.

    It maps token ids [B, T] to states [B, T, H], as in MobileBERT. The embeddings of
    the next token, the token and the previous token, from a narrow table, are
    concatenated and pass a linear layer. Neighbours beyond the ends of a row are zero.
    Unlike in EfficientBERT's code, the embedding of the padding token is always zero,
    so that the length of the padding changes nothing.

    embedding_width: the width of the table.
    hidden_size: H.
    padding_id: the id of the padding token; None where there is none."""

    def __init__(
        self,
        vocabulary_size: int,
        embedding_width: int,
        hidden_size: int,
        padding_id: int | None,
    ) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(
            vocabulary_size, embedding_width, padding_idx=padding_id
        )
        self.dense = nn.Linear(3 * embedding_width, hidden_size)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        x = self.word_embeddings(token_ids)
        after = functional.pad(x[:, 1:], (0, 0, 0, 1))
        before = functional.pad(x[:, :-1], (0, 0, 1, 0))
        return self.dense(torch.cat((after, x, before), -1))


def add_trigram_embedding(model: nn.Module, width: int) -> CountByMetric:
    """Replace the token embedding of a model by a smaller one, in place.

    The new embedding is a TrigramEmbedding, as in MobileBERT: a narrow table, and a
    linear layer over the embeddings of each token and its two neighbours. This change
    is the operation named "trigram" in the list of changes that is saved with a model.
    Returns {"parameters": change of the number of parameters}.

    width: the width of the new table."""
    embeddings = get_encoder(model).embeddings
    old = embeddings.word_embeddings
    config: Any = model.config
    new = initialise_weights(
        TrigramEmbedding(
            old.num_embeddings, width, config.hidden_size, old.padding_idx
        ),
        model,
    )
    embeddings.word_embeddings = new
    return {
        "parameters": count_parameters(new)["parameters"]
        - count_parameters(old)["parameters"]
    }


def add_feed_forward_stacks(model: nn.Module, net: ArchitectureJson) -> CountByMetric:
    """Put EfficientBERT's searched feed-forward networks into each layer, in place.

    Each layer gets a stack of such networks instead of its single feed-forward network.
    This change is the operation named "stack" in the list of changes that is saved with
    a model. Returns {"networks": number of networks in all layers, "parameters": change
    of the number of parameters}.

    The model must have the hidden size and number of layers of `net`. Weights are drawn
    from torch's random state.

    net: the architecture as JSON, with {"hidden": hidden size, "width": largest number
    of inner channels, "mismatch": "truncate" or "pad" for operands of different widths,
    "layers": for each layer [formula such as "W2 gelu(W1 x)", number of networks, q],
    where each network has width // q inner channels}."""
    config: Any = model.config
    before = count_parameters(model)["parameters"]
    rates = config.layer_norm_eps, config.hidden_dropout_prob
    for layer, (formula, count, q) in zip(
        get_layers(model), net["layers"], strict=True
    ):
        inner = net["width"] // q
        layer.intermediate = nn.Identity()
        layer.output = initialise_weights(
            FeedForwardStack(net["hidden"], inner, count, *rates), model
        )
        layer.output.set_active_subnetwork(formula, count, inner, net["mismatch"])
    return {
        "networks": sum(count for _, count, _ in net["layers"]),
        "parameters": count_parameters(model)["parameters"] - before,
    }


def initialise_weights(new_module: Module, model_to_match: nn.Module) -> Module:
    """Initialise a new module, give it a model's device and dtype, and return it.

    Linear and embedding weights are drawn from a normal distribution whose standard
    deviation is `initializer_range` of the model's configuration. Biases of linear
    layers and the embedding of the padding token are 0."""
    config: Any = model_to_match.config
    for part in new_module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0.0, config.initializer_range)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
            elif part.padding_idx is not None:
                part.weight.data[part.padding_idx].zero_()
    return new_module.to(next(model_to_match.parameters()))
