"""This module has the names of the linear layers and LayerNorms inside a transformer
layer, in BERT and in the families that name them otherwise."""

# Names of the linear layers as submodules of a transformer layer of BERT.
QKV = QUERY, KEY, VALUE = tuple(
    f"attention.self.{name}" for name in ("query", "key", "value")
)
OUT, FFN1, FFN2 = "attention.output.dense", "intermediate.dense", "output.dense"
LINEAR = (*QKV, OUT, FFN1, FFN2)
ATTENTION_NORM = "attention.output.LayerNorm"
# {family: {BERT's name: name in transformers}} of linear layers and LayerNorms, for the
# families whose names differ from BERT's.
NAMES = {
    "mpnet": {
        QUERY: "attention.attn.q",
        KEY: "attention.attn.k",
        VALUE: "attention.attn.v",
        OUT: "attention.attn.o",
        ATTENTION_NORM: "attention.LayerNorm",
    },
    "distilbert": {
        QUERY: "attention.q_lin",
        KEY: "attention.k_lin",
        VALUE: "attention.v_lin",
        OUT: "attention.out_lin",
        FFN1: "ffn.lin1",
        FFN2: "ffn.lin2",
        ATTENTION_NORM: "sa_layer_norm",
        "output.LayerNorm": "output_layer_norm",
    },
}
# {family: name in transformers of the module with the layers}. In all other families
# the name is "encoder".
STACKS = {"distilbert": "transformer"}
