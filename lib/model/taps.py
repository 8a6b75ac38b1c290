"""This module reads hidden states inside a model by their role, whatever its backbone.

The framework's own `output_hidden_states` drops a replaced layer without an error; these hooks do
not. Shapes: B batch, T tokens, H hidden, L layers.
"""

from contextlib import ExitStack, contextmanager

from .parts import embedding_output, layers


@contextmanager
def taps(model):
    """Yield a dict that each forward pass fills with hidden states [B, T, H].

    "embedding" is one state; "attention" (after the attention block) and "ffn" (after the layer)
    are lists of L states.
    """
    seen = {"embedding": None, "attention": [], "ffn": []}

    def start(_, __, output):
        seen["embedding"] = output
        seen["attention"].clear()
        seen["ffn"].clear()

    def keep(name):
        return lambda _, __, output: seen[name].append(output)

    with ExitStack() as held:
        held.enter_context(embedding_output(model).register_forward_hook(start))
        for layer in layers(model):
            for name, block in (("attention", layer.attention.output), ("ffn", layer.output)):
                held.enter_context(block.LayerNorm.register_forward_hook(keep(name)))
        yield seen
