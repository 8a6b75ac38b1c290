"""This module has the names of the linear layers and LayerNorms inside a transformer
layer, in BERT and in the families that name them otherwise; it does not import
torch."""

# Names of the linear layers as submodules of a transformer layer of BERT.
QKV = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
OUT, FFN1, FFN2 = "attention.output.dense", "intermediate.dense", "output.dense"
LINEAR = (*QKV, OUT, FFN1, FFN2)
# {family: {BERT's name: name in transformers}} of linear layers and LayerNorms, for the
# families whose names differ from BERT's.
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
# {family: name in transformers of the module with the layers}; in all other families it
# is "encoder".
STACKS = {"distilbert": "transformer"}
