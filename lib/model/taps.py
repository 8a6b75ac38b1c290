"""Taps: read hidden states inside a model by role, whatever its backbone.

The framework's own `output_hidden_states` drops a replaced layer without an error; these hooks count what they see.
"""

from contextlib import contextmanager

from lib.model.backbone import embedding_output, layers


@contextmanager
def taps(model, norm="post"):
    """Within, each forward fills the yielded dict: "embedding" [B, T, H], and L states [B, T, H] each under
    "attention" (after the attention block) and "ffn" (after the layer). norm: states after ("post") or before
    ("pre") the block's LayerNorm; the embedding is always its block's output."""
    seen = {"embedding": None, "attention": [], "ffn": []}

    def start(_, __, output):
        seen["embedding"] = output
        seen["attention"].clear()
        seen["ffn"].clear()

    def keep(name):
        if norm == "pre":
            return lambda _, inputs, __: seen[name].append(inputs[0])
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
