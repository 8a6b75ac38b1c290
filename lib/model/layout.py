"""This module gives the submodules of MPNet's and DistilBERT's layers the names that
they have in BERT.

So every operation on a model, such as pruning, finds them in all families. In
transformers' MPNet the output projection is inside of self-attention, and a relative
position bias, shared by all layers, is added to the scores: a number for each head and
each of 32 buckets of distances between two tokens. A layer that lost heads reads the
columns of its remaining heads; the table itself is never cut. In transformers'
DistilBERT the projections, the feed-forward network and the list of layers have other
names. The parameters are the same objects as before, and a model that no operation has
changed is saved under transformers' names.

Shapes: B batch, T tokens, H hidden, A heads, M kept heads, D head size.
"""

import re
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PretrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.distilbert.modeling_distilbert import (
    DistilBertSelfAttention,
    TransformerBlock,
)
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from .parts import AnyModule, get_encoder
from .places import NAMES, STACKS
from .scores import ATTENTION, ContextsAndMaps, attend_eagerly

Model = TypeVar("Model", bound=nn.Module)


def compute_multi_head_attention(
    attention: AnyModule,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **attention_options: Any,
) -> ContextsAndMaps:
    """Compute self-attention of M heads of size D, without the output projection, and
    return (contexts [B, T, M * D], attention maps [B, M, T, T]).

    attention: the module with the projections `query`, `key` and `value`.
    hidden_states: hidden states [B, T, H].
    attention_mask: a tensor that is added to the scores, or None.
    attention_options: further arguments for the attention function that the model's
    configuration names."""
    query, key, value = (
        linear(hidden_states)
        .unflatten(-1, (-1, attention.attention_head_size))
        .transpose(1, 2)
        for linear in (attention.query, attention.key, attention.value)
    )
    run: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, attend_eagerly
    )
    rate = attention.dropout.p if attention.training else 0.0
    context, maps = run(
        attention, query, key, value, attention_mask, dropout=rate, **attention_options
    )
    return context.flatten(2), maps


class BiasAttention(nn.Module):
    """A BiasAttention is the self-attention of an MPNet, which adds a relative position
    bias to the scores, with BERT's names of its submodules.

    columns: the heads that are left after pruning, as indices [M] into the bias, or
    None for all. They are saved with the weights, because a pruned model is rebuilt
    without the importance scores that decided them."""

    columns: torch.Tensor | None

    def __init__(self, attention: AnyModule, config: PretrainedConfig) -> None:
        super().__init__()
        self.config, self.dropout = config, attention.dropout
        self.query, self.key, self.value = attention.q, attention.k, attention.v
        self.num_attention_heads = attention.num_attention_heads
        self.attention_head_size = attention.attention_head_size
        self.all_head_size = attention.all_head_size
        self.register_buffer("columns", None)

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (contexts [B, T, M * D], attention maps [B, M, T, T]) of hidden states
        x [B, T, H], where M of the A heads are left after pruning.

        position_bias: the relative position bias [1, A, T, T] that all layers share. Of
        it the maps of the M heads are added."""
        if self.columns is not None:
            position_bias = position_bias.index_select(1, self.columns)
        return compute_multi_head_attention(
            self, x, attention_mask, position_bias=position_bias
        )


class SelfAttention(DistilBertSelfAttention):
    """A SelfAttention is the self-attention of a DistilBERT without its output
    projection, which is a module of its own in BERT.

    It is a subclass, since transformers recognises by class where attention maps come
    from."""

    # pyrefly: ignore[bad-override]  It returns the attention maps too.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None, _position_bias: None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return compute_multi_head_attention(self, x, attention_mask)


class Output(nn.Module):
    """An Output is the end of an attention or feed-forward block, as in BERT:
    LayerNorm(x + dropout(dense(inner))), where x is the input of the block and inner
    the contexts or activations."""

    def __init__(
        self, dense: AnyModule, dropout: nn.Module, layer_norm: AnyModule
    ) -> None:
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = dense, dropout, layer_norm

    def forward(self, inner: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(inner)) + x)


class Attention(nn.Module):
    """An Attention is an attention block with BERT's names of its two parts: `self` is
    the self-attention, `output` the output projection with LayerNorm."""

    def __init__(self, attention: nn.Module, output: Output) -> None:
        super().__init__()
        self.self, self.output = attention, output

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_bias: torch.Tensor | None = None,
        output_attentions: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, ...]:
        contexts, maps = self.self(x, attention_mask, position_bias)
        return self.output(contexts, x), *([maps] if output_attentions else [])


class Intermediate(nn.Module):
    """An Intermediate is the first half of a feed-forward network, as in BERT: a linear
    layer and its activation function."""

    def __init__(self, dense: AnyModule, activation: AnyModule) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = dense, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.dense(x))


class Layer(TransformerBlock):
    """A Layer is a transformer layer of a DistilBERT whose submodules have BERT's
    names.

    It is a subclass, since transformers recognises by class where hidden states come
    from."""

    # pyrefly: ignore[bad-override-param-name]  Modules are called by position.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        parts: AnyModule = self
        x = parts.attention(x, attention_mask)[0]
        return parts.output(parts.intermediate(x), x)


class Encoder(MPNetEncoder):
    """An Encoder is the encoder of an MPNet that computes the relative position bias
    once for all rows of a batch, instead of for each row."""

    # pyrefly: ignore[bad-override]  The framework's encoder calls it with x alone.
    def compute_position_bias(self, states: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return MPNet's relative position bias [1, A, T, T], which is added to the
        attention scores of all layers.

        states: the hidden states [B, T, H]; only T is used."""
        places = torch.arange(states.shape[1], device=states.device)
        buckets = self.relative_position_bucket(places - places[:, None])
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)


def rename_layer_parts_as_bert(model: Model) -> Model:
    """Give the submodules of an MPNet's or a DistilBERT's layers BERT's names, in
    place, and return the model.

    Its outputs change only by rounding. Models of other families are not changed."""
    encoder, config = get_encoder(model), get_encoder(model).config
    if type(getattr(encoder, "encoder", None)) is MPNetEncoder:
        encoder.encoder.__class__ = Encoder
        config._attn_implementation = ATTENTION
        for layer in encoder.encoder.layer:
            layer.attention = rename_attention_parts_as_bert(layer.attention, config)
    elif hasattr(encoder, "transformer") and not hasattr(encoder, "encoder"):
        encoder.encoder = encoder._modules.pop("transformer")
        # transformers still reads the old name. Put into __dict__, it is no second
        # submodule for torch.
        encoder.__dict__["transformer"] = encoder.encoder
        for layer in encoder.encoder.layer:
            rename_distilbert_parts_as_bert(layer)
    return model


def rename_attention_parts_as_bert(
    attention: AnyModule, config: PretrainedConfig
) -> Attention:
    """Return the attention block of an MPNet's layer with BERT's names of its
    submodules; their parameters are the same objects."""
    output = Output(attention.attn.o, attention.dropout, attention.LayerNorm)
    made = Attention(BiasAttention(attention.attn, config), output)
    return made.train(attention.training)


def rename_distilbert_parts_as_bert(layer: AnyModule) -> None:
    """Give the submodules of a DistilBERT's transformer layer BERT's names, in place.

    DistilBERT has no dropout after the output projection of attention, so the dropout
    there is an identity."""
    attention, ffn = layer.attention, layer.ffn
    projection = attention._modules.pop("out_lin")
    for name in ("query", "key", "value"):
        attention.add_module(name, attention._modules.pop(f"{name[0]}_lin"))
    attention.__class__, layer.__class__ = SelfAttention, Layer
    attention.num_attention_heads = attention.n_heads
    attention.all_head_size = attention.dim
    parts = {
        "attention": Attention(
            attention, Output(projection, nn.Identity(), layer.sa_layer_norm)
        ),
        "intermediate": Intermediate(ffn.lin1, ffn.activation),
        "output": Output(ffn.lin2, ffn.dropout, layer.output_layer_norm),
    }
    layer._modules.clear()
    for name, part in parts.items():
        layer.add_module(name, part.train(layer.training))


def make_transformers_state_dict(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """Return the state dict of an MPNet or a DistilBERT under transformers' names of
    its tensors, for saving.

    Returns None for other families, whose submodules were not renamed."""
    family = get_encoder(model).config.model_type.removeprefix("operated-")
    if family not in NAMES:
        return None
    stack, names = STACKS.get(family, "encoder"), NAMES[family]
    pattern = rf"encoder(\.layer\.\d+\.)({'|'.join(map(re.escape, names))})\."
    return {
        re.sub(
            pattern, lambda match: f"{stack}{match[1]}{names[match[2]]}.", name
        ): tensor
        for name, tensor in model.state_dict().items()
    }
