"""This module gives the layers of an MPNet or a DistilBERT the parts that a BERT's have
(parts.py).

In transformers' MPNet the output projection is inside of self-attention, and one bias
for all layers is added to the scores: a number for each head and each of 32 buckets of
distances between two tokens. A layer that lost heads takes the columns of the heads
that it has; the table stays one and whole. In transformers' DistilBERT the projections,
the feed-forward network and the stack of layers have names of their own. Here each part
stands where a BERT has it, so that every operation finds it. The parameters are those
that transformers made, and a plain model is saved under its names.

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

from .parts import Part, base
from .places import NAMES, STACKS
from .scores import ATTENTION, attend

Model = TypeVar("Model", bound=nn.Module)


def attend_heads(
    attention: Part, x: torch.Tensor, mask: torch.Tensor | None, **more: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (contexts [B, T, M * D], maps [B, M, T, T]) of states x [B, T, H].

    mask: what is added to the scores, or None. more: arguments of the attention of the
    model's configuration."""
    query, key, value = (
        linear(x).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
        for linear in (attention.query, attention.key, attention.value)
    )
    run: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, attend
    )
    rate = attention.dropout.p if attention.training else 0.0
    context, maps = run(attention, query, key, value, mask, dropout=rate, **more)
    return context.flatten(2), maps


class BiasAttention(nn.Module):
    """A BiasAttention is the self-attention of an MPNet.

    columns: the columns [M] of the shared bias that its heads have, or None for all of
    them. They are saved, because the scores of a cut are not."""

    columns: torch.Tensor | None

    def __init__(self, attention: Part, config: PretrainedConfig) -> None:
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
        """Return (contexts, maps) for a bias [1, A, T, T]."""
        if self.columns is not None:
            position_bias = position_bias.index_select(1, self.columns)
        return attend_heads(self, x, attention_mask, position_bias=position_bias)


class SelfAttention(DistilBertSelfAttention):
    """A SelfAttention is that of a DistilBERT, without its output projection.

    transformers finds the maps of its class."""

    # pyrefly: ignore[bad-override]  It returns the maps too.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None, _: None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return attend_heads(self, x, attention_mask)


class Output(nn.Module):
    """An Output is LayerNorm(x + dropout(dense(inner states)))."""

    def __init__(self, dense: Part, dropout: nn.Module, norm: Part) -> None:
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = dense, dropout, norm

    def forward(self, inner: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(inner)) + x)


class Attention(nn.Module):
    """An Attention is self-attention with its output projection."""

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
    """An Intermediate is the first half of a feed-forward network."""

    def __init__(self, dense: Part, activation: Part) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = dense, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.dense(x))


class Layer(TransformerBlock):
    """A Layer is that of a DistilBERT, in the parts of a BERT's.

    transformers finds the hidden states of its class."""

    # pyrefly: ignore[bad-override-param-name]  Modules are called by position.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        parts: Part = self
        x = parts.attention(x, attention_mask)[0]
        return parts.output(parts.intermediate(x), x)


class Encoder(MPNetEncoder):
    """An Encoder makes the bias once for all rows of a batch."""

    # pyrefly: ignore[bad-override]  The framework's encoder calls it with x alone.
    def compute_position_bias(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the bias [1, A, T, T] for states [B, T, H]."""
        places = torch.arange(x.shape[1], device=x.device)
        buckets = self.relative_position_bucket(places - places[:, None])
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)


def arrange_layers(model: Model) -> Model:
    """Give the layers of an MPNet or a DistilBERT the parts of a BERT's, and return the
    model.

    The function stays the same up to rounding. Another model, or one with these parts,
    stays as it is."""
    encoder, config = base(model), base(model).config
    if type(getattr(encoder, "encoder", None)) is MPNetEncoder:
        encoder.encoder.__class__ = Encoder
        config._attn_implementation = ATTENTION
        for layer in encoder.encoder.layer:
            layer.attention = arrange_attention(layer.attention, config)
    elif hasattr(encoder, "transformer") and not hasattr(encoder, "encoder"):
        encoder.encoder = encoder._modules.pop("transformer")
        # transformers calls it by that name, under which torch does not list it.
        encoder.__dict__["transformer"] = encoder.encoder
        for layer in encoder.encoder.layer:
            arrange_layer(layer)
    return model


def arrange_attention(attention: Part, config: PretrainedConfig) -> Attention:
    """Return the attention of an MPNet's layer in the parts of a BERT's."""
    output = Output(attention.attn.o, attention.dropout, attention.LayerNorm)
    made = Attention(BiasAttention(attention.attn, config), output)
    return made.train(attention.training)


def arrange_layer(layer: Part) -> None:
    """Give a layer of a DistilBERT the parts of a BERT's, but for the dropout of its
    attention's output, which it does not have."""
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


def rename_tensors(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """Return the tensors of an MPNet or a DistilBERT by transformers' names, as
    `save_pretrained` takes them.

    Returns None for another model, whose names are transformers' own.
    """
    family = base(model).config.model_type.removeprefix("operated-")
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
