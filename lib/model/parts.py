"""This module finds the submodules of an encoder, such as its layers, in every
supported family of models (BERT, RoBERTa, ELECTRA, MPNet, DistilBERT).

Shapes: B batch, T tokens, H hidden, L layers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .options import AllKept, SurgeryOperation

# Type of a module of transformers or of this folder. It is Any, because torch gives the
# attributes of a module no types that a type checker could use.
AnyModule = Any
# {metric, such as "parameters": number}.
CountByMetric = dict[str, int]


def get_encoder(model: nn.Module) -> AnyModule:
    """Return the encoder of a model without the task head: embeddings and L layers.

    The returned encoder includes the pooler, where the model has one."""
    return model.base_model


def get_layers(model: nn.Module) -> AnyModule:
    """Return the L transformer layers of a model, a ModuleList.

    Each layer has the submodules `attention.self`, `attention.output`, `intermediate`
    and `output`, as in BERT. An MPNet or DistilBERT of transformers must first pass
    `rename_layer_parts_as_bert`; those that `backbone` opens or builds have done so."""
    return get_encoder(model).encoder.layer


def get_last_embedding_module(model: nn.Module) -> AnyModule:
    """Return the submodule of a model whose output [B, T, H] enters the first layer.

    It is the module of the embeddings, or the projection after them in an ELECTRA that
    has one. Hooks on it see the first hidden state and the start of each forward
    pass."""
    return (
        getattr(get_encoder(model), "embeddings_project", None)
        or get_encoder(model).embeddings
    )


def count_parameters(model: nn.Module) -> CountByMetric:
    """Return {"parameters": number of parameters of a model}.

    It is a dict so that it can be joined with other metrics of the model."""
    return {"parameters": sum(p.numel() for p in model.parameters())}


def set_dropout(model: nn.Module, probability: float) -> None:
    """Set the rate of all dropout layers of a model in place.

    probability: the share of values that are set to zero in training, 0 to 1."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability


def get_recorded_model_changes(model: nn.Module) -> list[SurgeryOperation]:
    """Return the list of operations that have changed a model, the oldest first.

    An operation is a dict such as {"op": "cut", "heads": 3}, which pruned the model to
    3 heads in each layer. It is the model's own list, not a copy, and is saved with the
    model, so that the operations can be applied again when the model is opened.
    `apply_surgery` appends to the list, and code that undoes an operation removes that
    operation from it."""
    return model.__dict__.setdefault("surgery", [])


def slice_linear(
    linear_layer: nn.Linear,
    output_indices: torch.Tensor | AllKept,
    input_indices: torch.Tensor | AllKept,
) -> nn.Linear:
    """Copy some rows (outputs) and columns (inputs) of a linear layer into a new one.

    Pruning puts the new layer in place of the old one. The bias is cut with the
    outputs.

    output_indices, input_indices: the indices that are copied; None copies all."""
    weight, bias = linear_layer.weight, linear_layer.bias
    if output_indices is not None:
        weight = weight[output_indices.to(weight.device)]
        bias = None if bias is None else bias[output_indices.to(bias.device)]
    if input_indices is not None:
        weight = weight[:, input_indices.to(weight.device)]
    parameters: Any = (
        None if x is None else nn.Parameter(x.detach().clone()) for x in (weight, bias)
    )
    return build_linear_layer(*parameters)


def build_linear_layer(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    """Return a linear layer around a given weight [outputs, inputs] and bias [outputs].

    The parameters are used without a copy, and no initial weights are drawn."""
    outputs, inputs = weight.shape
    new = nn.Linear(inputs, outputs, bias is not None, device="meta")
    # pyrefly: ignore[bad-assignment]  torch does not say that a bias may be None.
    new.weight, new.bias = weight, bias
    return new


class PaddingMask:
    """A PaddingMask holds the attention mask [B, T] of the current batch, or None.

    The mask is 1 for real tokens; None means that all tokens are real. Modules deep
    inside a model read it here, as transformers does not pass it to them."""

    mask: torch.Tensor | None = None

    def store_attention_mask(
        self, encoder: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Store the attention mask of a batch in `mask`, before the encoder's pass.

        It is the forward pre-hook of the encoder, so that modules deep inside can read
        `mask`. This is None where the encoder gets no mask.

        args, kwargs: the arguments of that pass."""
        self.mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)


def get_or_attach_padding_mask(model: nn.Module) -> PaddingMask:
    """Return the object that holds the attention mask of a model's current batch.

    Modules deep inside a model, which transformers gives no mask, read it there. The
    first call adds the object to the encoder, with a hook that stores the mask before
    each forward pass."""
    encoder = get_encoder(model)
    if not hasattr(encoder, "padding"):
        encoder.padding = PaddingMask()
        encoder.register_forward_pre_hook(
            encoder.padding.store_attention_mask, with_kwargs=True
        )
    return encoder.padding


def set_padded_tokens_to_zero(
    states: torch.Tensor,
    padding_mask: PaddingMask | None,
    is_attention_map: bool,
) -> torch.Tensor:
    """Return hidden states or attention maps with zeros at padded tokens.

    So a convolution over tokens does not read padding.

    states: [B, T, C] or [B, M, T, C], for M heads of C channels; attention maps are
    [B, M, T, T].
    padding_mask: holds the attention mask. Without it, or where it holds None, the
    states are returned unchanged.
    is_attention_map: whether the last axis is tokens (keys) too; padded keys are then
    set to zero as well."""
    if padding_mask is None or padding_mask.mask is None:
        return states
    rows = padding_mask.mask.to(states.dtype).unsqueeze(-1)
    if states.dim() == 4:
        rows = rows.unsqueeze(1)
    return states * rows * rows.transpose(2, 3) if is_attention_map else states * rows
