"""This module reads the hidden states inside an encoder of any family, by hooks.

transformers' `output_hidden_states` leaves out a replaced layer without an error; these
hooks do not. Shapes: B batch, T tokens, H hidden, L layers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .parts import Part, embedding_output, layers


@contextmanager
def taps(model: Part) -> Iterator[dict[str, Any]]:
    """Yield a dict that each forward pass fills with its hidden states [B, T, H].

    "embedding" is one tensor; "attention" (outputs of the attention blocks) and "ffn"
    (outputs of the layers) are lists of L tensors."""
    seen: dict[str, Any] = {}

    def start(_: Part, __: tuple[Any, ...], output: Any) -> None:
        seen.update(embedding=output, attention=[], ffn=[])

    def keep(name: str) -> Callable[[Part, tuple[Any, ...], Any], None]:
        return lambda _, __, output: seen[name].append(output)

    with ExitStack() as held:
        held.enter_context(embedding_output(model).register_forward_hook(start))
        for layer in layers(model):
            blocks = {"attention": layer.attention.output, "ffn": layer.output}
            for name, block in blocks.items():
                held.enter_context(block.LayerNorm.register_forward_hook(keep(name)))
        yield seen
