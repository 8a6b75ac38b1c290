"""This module gives the layers of an MPNet the parts that a BERT's have (parts.py).

In transformers' MPNet the output projection is inside of self-attention, and one bias
for all layers is added to the scores: a number for each head and each of 32 buckets of
distances between two tokens. Here the projection is apart, as in a BERT, so that every
operation finds its part. A layer that lost heads takes the columns of the heads that it
has; the table stays one and whole. The parameters are those that transformers made, and
a plain model is saved under its names.

Shapes: B batch, T tokens, H hidden, A heads, M kept heads, D head size.
"""

import re
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PretrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.mpnet.modeling_mpnet import (
    MPNetAttention,
    MPNetEncoder,
    MPNetSelfAttention,
)

from .parts import OUT, QKV, base
from .scores import ATTENTION, attend

# These are transformers' names of the parts that have another name here.
NAMES = dict(
    zip((*QKV, OUT), (f"attention.attn.{name}" for name in "qkvo"), strict=True)
)
NAMES["attention.output.LayerNorm"] = "attention.LayerNorm"
Model = TypeVar("Model", bound=nn.Module)


class SelfAttention(nn.Module):
    """A SelfAttention maps states [B, T, H] to contexts [B, T, M * D].

    columns: the columns [M] of the shared bias that its heads have, or None for all of
    them. They are saved, because the scores of a cut are not."""

    columns: torch.Tensor | None

    def __init__(self, attention: MPNetSelfAttention, config: PretrainedConfig) -> None:
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
        """Return (contexts, maps [B, M, T, T]); position_bias: [1, A, T, T]."""
        query, key, value = (
            linear(x).unflatten(-1, (-1, self.attention_head_size)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        if self.columns is not None:
            position_bias = position_bias.index_select(1, self.columns)
        name: Any = self.config._attn_implementation
        rate = self.dropout.p if self.training else 0.0
        run = ALL_ATTENTION_FUNCTIONS.get_interface(name, attend)
        more = {"dropout": rate, "position_bias": position_bias}
        context, maps = run(self, query, key, value, attention_mask, **more)
        return context.flatten(2), maps


class Output(nn.Module):
    """An Output is LayerNorm(x + dropout(the output projection of the contexts))."""

    def __init__(self, attention: MPNetAttention) -> None:
        super().__init__()
        self.dense, self.dropout = attention.attn.o, attention.dropout
        self.LayerNorm = attention.LayerNorm

    def forward(self, contexts: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(contexts)) + x)


class Attention(nn.Module):
    """An Attention stands in for the MPNetAttention whose parameters it takes."""

    def __init__(self, attention: MPNetAttention, config: PretrainedConfig) -> None:
        super().__init__()
        self.self, self.output = (
            SelfAttention(attention.attn, config),
            Output(attention),
        )
        self.train(attention.training)

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_bias: torch.Tensor,
        output_attentions: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, ...]:
        contexts, maps = self.self(x, attention_mask, position_bias)
        return self.output(contexts, x), *([maps] if output_attentions else [])


class Encoder(MPNetEncoder):
    """An Encoder makes the bias once for all rows of a batch."""

    # pyrefly: ignore[bad-override]  The framework's encoder calls it with x alone.
    def compute_position_bias(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the bias [1, A, T, T] for states [B, T, H]."""
        places = torch.arange(x.shape[1], device=x.device)
        buckets = self.relative_position_bucket(places - places[:, None])
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)


def arrange(model: Model) -> Model:
    """Give the layers of an MPNet the parts of a BERT's, and return the model.

    The function stays the same up to rounding. Another model, or one with these parts,
    stays as it is."""
    encoder = getattr(base(model), "encoder", None)
    if type(encoder) is MPNetEncoder:
        encoder.__class__ = Encoder
        config: Any = model.config
        config._attn_implementation = ATTENTION
        for layer in encoder.layer:
            attention: Any = layer.attention
            layer.attention = Attention(attention, config)
    return model


def rename_tensors(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """Return the tensors of an MPNet by transformers' names, as `save_pretrained` takes
    them.

    Returns None for another model, whose names are transformers' own.
    """
    if not isinstance(getattr(base(model), "encoder", None), Encoder):
        return None
    pattern = rf"(encoder\.layer\.\d+\.)({'|'.join(map(re.escape, NAMES))})\."
    return {
        re.sub(pattern, lambda match: f"{match[1]}{NAMES[match[2]]}.", name): tensor
        for name, tensor in model.state_dict().items()
    }
