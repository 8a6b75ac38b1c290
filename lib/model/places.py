"""This module has the names of the linear layers and LayerNorms of a transformer layer,
free of torch."""

# These are paths of linear layers in a layer, as every operation finds them.
QKV = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
OUT, FFN1, FFN2 = "attention.output.dense", "intermediate.dense", "output.dense"
LINEAR = (*QKV, OUT, FFN1, FFN2)
# In two families transformers has other names for them, and for the LayerNorms of
# attention and layer; and one family has another name for the stack of layers.
NAMES: dict[str, dict[str, str]] = {
    "mpnet": dict(zip(LINEAR, (f"attention.attn.{x}" for x in "qkvo"), strict=False)),
    "distilbert": dict(
        zip(
            LINEAR, (f"attention.{x}_lin" for x in ("q", "k", "v", "out")), strict=False
        )
    ),
}
NAMES["mpnet"]["attention.output.LayerNorm"] = "attention.LayerNorm"
NAMES["distilbert"] |= {
    FFN1: "ffn.lin1",
    FFN2: "ffn.lin2",
    "attention.output.LayerNorm": "sa_layer_norm",
    "output.LayerNorm": "output_layer_norm",
}
STACKS = {"distilbert": "transformer"}  # It is "encoder" in the others.
