"""Taps: read hidden states inside a model by role, whatever its backbone.

The framework's own `output_hidden_states` drops a replaced layer without an error; these hooks
count what they see. Shapes: B batch, T tokens, H hidden, L layers.
"""

from contextlib import contextmanager

from .parts import embedding_output, layers


@contextmanager
def taps(model):
    """Within, each forward fills the yielded dict with hidden states [B, T, H].

    "embedding" is one state; "attention" (after the attention block) and "ffn" (after the layer)
    are lists of L.
    """
    seen = {"embedding": None, "attention": [], "ffn": []}

    def start(_, __, output):
        seen["embedding"] = output
        seen["attention"].clear()
        seen["ffn"].clear()

    def keep(name):
        return lambda _, __, output: seen[name].append(output)

    handles = [embedding_output(model).register_forward_hook(start)]
    for layer in layers(model):
        handles.append(layer.attention.output.LayerNorm.register_forward_hook(keep("attention")))
        handles.append(layer.output.LayerNorm.register_forward_hook(keep("ffn")))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
