"""This module records the hidden states inside an encoder of any family, by hooks.

transformers' `output_hidden_states` leaves out a layer that was replaced by another
module, without an error; these hooks record such a layer too. Shapes: B batch, T
tokens, H hidden, L layers."""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

from .options import ContextYield
from .parts import AnyModule, get_last_embedding_module, get_layers

# {"embedding": tensor, "attention", "ffn": [tensor of each layer]}.
EmbeddingAttentionAndFfnStates = dict[str, Any]


@contextmanager
def record_hidden_states(
    model: AnyModule,
) -> ContextYield[EmbeddingAttentionAndFfnStates]:
    """Record a model's hidden states [B, T, H] during a `with` block, for distillation.

    Yields a dict that each forward pass fills anew. "embedding" is one tensor.
    "attention" (outputs of the attention blocks, after LayerNorm) and "ffn" (outputs of
    the layers) are lists of L tensors."""
    seen: dict[str, Any] = {}

    def store_embedding(
        _module: AnyModule, _inputs: tuple[Any, ...], output: Any
    ) -> None:
        seen.update(embedding=output, attention=[], ffn=[])

    def make_storing_hook(
        state_kind: str,
    ) -> Callable[[AnyModule, tuple[Any, ...], Any], None]:
        return lambda _, __, output: seen[state_kind].append(output)

    with ExitStack() as held:
        held.enter_context(
            get_last_embedding_module(model).register_forward_hook(store_embedding)
        )
        for layer in get_layers(model):
            blocks = {"attention": layer.attention.output, "ffn": layer.output}
            for name, block in blocks.items():
                held.enter_context(
                    block.LayerNorm.register_forward_hook(make_storing_hook(name))
                )
        yield seen
