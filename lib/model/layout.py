"""This module gives the submodules of MPNet's and DistilBERT's layers the names that
they have in BERT.

So every operation on a model, such as pruning, finds the submodules in all families. In
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
from collections import OrderedDict
from typing import Any, TypeAlias, TypeVar

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
NamesUnchanged: TypeAlias = None


def compute_multi_head_attention(
    attention: AnyModule,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **attention_options: Any,
) -> ContextsAndMaps:
    """Compute self-attention of M heads of size D, without the output projection.

    Returns (contexts [B, T, M * D], attention maps [B, M, T, T]). A fused kernel
    returns None for the maps. The self-attention modules for MPNet and DistilBERT share
    this function.

    attention: the module with the projections `query`, `key` and `value`.
    hidden_states: hidden states [B, T, H].
    attention_mask: the mask in the form that the attention function takes; None masks
    no token.
    attention_options: further arguments for the attention function, which the model's
    configuration names, such as `position_bias`."""
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


class MPNetSelfAttentionAsBert(nn.Module):
    """An MPNetSelfAttentionAsBert is an MPNet's self-attention with BERT's names of its
    parts.

    So the same pruning code works on MPNet and on BERT. MPNet adds a relative position
    bias with one map for each head to the scores.

    attention: transformers' self-attention of an MPNet, whose projections are used
    without a copy.
    columns: after pruning, the indices [M] of the heads that are left, by which their
    maps of the bias are chosen; None for all heads. It is saved with the weights, since
    a pruned model is rebuilt without the importance scores that chose the heads."""

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
    ) -> ContextsAndMaps:
        """Return (contexts [B, T, M * D], attention maps [B, M, T, T]) of an MPNet.

        M of the A heads are left after pruning.

        x: hidden states [B, T, H].
        attention_mask: a tensor that is added to the scores; None masks no token.
        position_bias: the relative position bias of all A heads, [1, A, T, T], which
        all layers share. Its maps of the M heads are added to the scores."""
        if self.columns is not None:
            position_bias = position_bias.index_select(1, self.columns)
        return compute_multi_head_attention(
            self, x, attention_mask, position_bias=position_bias
        )


class DistilBertSelfAttentionAsBert(DistilBertSelfAttention):
    """A DistilBertSelfAttentionAsBert is a DistilBERT's self-attention as BERT has it.

    It lacks the output projection, which in BERT is a module of its own. So the same
    pruning code works on BERT and DistilBERT. It is a subclass of transformers' class,
    because transformers finds the modules that return attention maps by their class."""

    # pyrefly: ignore[bad-override]  It returns the attention maps too.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None, _position_bias: None
    ) -> ContextsAndMaps:
        return compute_multi_head_attention(self, x, attention_mask)


class Output(nn.Module):
    """An Output is the end of an attention or feed-forward block, as BERT has it.

    It computes LayerNorm(residual + dropout(dense(hidden))), where the residual is the
    input of the block, and hidden has the contexts or activations. MPNet and DistilBERT
    get it, so that the same pruning code works on them as on BERT."""

    def __init__(
        self, dense: AnyModule, dropout: nn.Module, layer_norm: AnyModule
    ) -> None:
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = dense, dropout, layer_norm

    def forward(
        self, hidden_states: torch.Tensor, residual_input: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.dropout(self.dense(hidden_states))
        return self.LayerNorm(hidden + residual_input)


class Attention(nn.Module):
    """An Attention is an attention block with BERT's names of its two parts.

    `self` is the self-attention, and `output` the output projection with LayerNorm.
    MPNet and DistilBERT get it, so that the same pruning code works on them as on
    BERT."""

    def __init__(self, self_attention: nn.Module, output: Output) -> None:
        super().__init__()
        self.self, self.output = self_attention, output

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


class Layer(TransformerBlock):
    """A Layer is a transformer layer of a DistilBERT whose parts have BERT's names.

    So the same pruning code works on BERT and DistilBERT. It is a subclass of
    transformers' class, because transformers finds the modules that return hidden
    states by their class."""

    # pyrefly: ignore[bad-override-param-name]  Modules are called by position.
    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        parts: AnyModule = self
        x = parts.attention(x, attention_mask)[0]
        return parts.output(parts.intermediate(x), x)


class Encoder(MPNetEncoder):
    """An Encoder is an MPNet's encoder with a faster relative position bias.

    It makes one bias for all rows of a batch. transformers copies the bias for each
    row, although all rows have the same."""

    # pyrefly: ignore[bad-override]  The framework's encoder calls it with x alone.
    def compute_position_bias(self, states: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return MPNet's relative position bias [1, A, T, T] for inputs of T tokens.

        It is added to the attention scores of the A heads, in all layers.

        states: the hidden states [B, T, H]; only T is used."""
        places = torch.arange(states.shape[1], device=states.device)
        buckets = self.relative_position_bucket(places - places[:, None])
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)


def rename_layer_parts_as_bert(model: Model) -> Model:
    """Rename the parts of an MPNet's or a DistilBERT's layers as in BERT.

    So code that prunes or changes layers finds them under the same names in all
    families. The model is changed in place and returned. Its outputs change only by
    rounding. Models of other families are not changed."""
    encoder, config = get_encoder(model), get_encoder(model).config
    if type(getattr(encoder, "encoder", None)) is MPNetEncoder:
        encoder.encoder.__class__ = Encoder
        config._attn_implementation = ATTENTION
        for layer in encoder.encoder.layer:
            layer.attention = rename_mpnet_attention_parts_as_bert(
                layer.attention, config
            )
    elif hasattr(encoder, "transformer") and not hasattr(encoder, "encoder"):
        encoder.encoder = encoder._modules.pop("transformer")
        # transformers still reads the attribute `transformer`. It is put into __dict__,
        # so that torch does not register the module under both names.
        encoder.__dict__["transformer"] = encoder.encoder
        for layer in encoder.encoder.layer:
            rename_distilbert_parts_as_bert(layer)
    return model


def rename_mpnet_attention_parts_as_bert(
    attention: AnyModule, config: PretrainedConfig
) -> Attention:
    """Return an attention block of MPNet whose parts have BERT's names.

    So the same pruning code works on MPNet and BERT. Parameters are shared with the
    given block, not copied.

    attention: the attention block of a layer of transformers' MPNet.
    config: the model's configuration."""
    output = Output(attention.attn.o, attention.dropout, attention.LayerNorm)
    made = Attention(MPNetSelfAttentionAsBert(attention.attn, config), output)
    return made.train(attention.training)


def rename_distilbert_parts_as_bert(layer: AnyModule) -> None:
    """Rename the parts of a DistilBERT's transformer layer as in BERT, in place.

    So the same pruning code works on BERT and DistilBERT. BERT has a dropout after the
    output projection of attention. DistilBERT has none, and gets an identity in its
    place."""
    attention, ffn = layer.attention, layer.ffn
    projection = attention._modules.pop("out_lin")
    for name in ("query", "key", "value"):
        attention.add_module(name, attention._modules.pop(f"{name[0]}_lin"))
    attention.__class__, layer.__class__ = DistilBertSelfAttentionAsBert, Layer
    attention.num_attention_heads = attention.n_heads
    attention.all_head_size = attention.dim
    parts = {
        "attention": Attention(
            attention, Output(projection, nn.Identity(), layer.sa_layer_norm)
        ),
        "intermediate": nn.Sequential(
            OrderedDict(dense=ffn.lin1, intermediate_act_fn=ffn.activation)
        ),
        "output": Output(ffn.lin2, ffn.dropout, layer.output_layer_norm),
    }
    layer._modules.clear()
    for name, part in parts.items():
        layer.add_module(name, part.train(layer.training))


def make_state_dict_with_transformers_names(
    model: nn.Module,
) -> dict[str, torch.Tensor] | NamesUnchanged:
    """Return a state dict of an MPNet or DistilBERT with transformers' tensor names.

    In memory these models have BERT's names of their parts. Saved under transformers'
    names, they can be opened without this project. Returns None for other families,
    whose names were not changed."""
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
