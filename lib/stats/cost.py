"""This module counts the parameters and FLOPs of an encoder, without torch.

Letters: B batch (1 throughout), T tokens, H hidden width, A heads, D = H / A head size,
F feed-forward neurons, L layers, M kept heads, k kernel size. GhostBERT prunes an
encoder to M heads, which keeps M * D columns of queries, keys and values and M * F / A
neurons in every layer. Embeddings, LayerNorms, output biases and the classifier stay
whole. Ghost modules are its cheap convolutions that generate
the pruned features from the kept ones. One multiply-accumulate is two FLOPs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lib.core import disk
from lib.core.names import Refused, check_value_is_allowed
from lib.core.options import Ghost
from lib.core.types import IndicesPerLayerByKind

if TYPE_CHECKING:
    from transformers import PretrainedConfig


NumberOrTensor: TypeAlias = Any
# Widths of one layer, such as {"heads": 3, "ffn": 768}, where "ffn" counts neurons. A
# search over more widths adds "embedding", "qk" and "v".
WidthByHeadsFfnEmbeddingQkAndV: TypeAlias = Mapping[str, NumberOrTensor]
# Number of heads that a pruned layer keeps; None stands for all.
KeptHeadsPerLayer: TypeAlias = int | None


@dataclass(frozen=True)
class Shape:
    """A Shape has the sizes of an encoder, from which FLOPs and parameters are counted.

    Raises Refused where the number of heads does not divide the hidden width.

    family: `model_type` of transformers, such as "bert"; one of
    lib.papers.encoder.FAMILIES.
    vocab: rows of the embedding table of tokens.
    positions: rows of the embedding table of positions. RoBERTa's and MPNet's table has
    two rows more than the longest input has tokens.
    types: rows of the embedding table of token types; 0 for MPNet and DistilBERT, which
    have no token types.
    embedding: the width of these tables, which a dense layer maps to the hidden width
    where the two differ (ELECTRA)."""

    family: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    types: int
    embedding: int

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            why = f"not a multiple of its {self.heads} heads"
            raise Refused(f"Shape.hidden is {self.hidden}, {why}")


# Rows of MPNet's table of relative position biases, which has a column for each head.
BUCKETS = 32
WIDTHS = "num_hidden_layers hidden_size num_attention_heads intermediate_size".split()
DISTILBERT = "n_layers dim n_heads hidden_dim".split()
TABLES = ["vocab_size", "max_position_embeddings", "type_vocab_size"]
UNTYPED = ("mpnet", "distilbert")  # Families whose embeddings have no token types.


def list_config_size_fields(model_type: str) -> list[str]:
    """Return the fields of a transformers configuration that have an encoder's sizes.

    The sizes are layers, hidden width, heads, neurons, and rows of the embedding tables
    of tokens, positions and token types, in this order. By these names, sizes are read
    and written for any family. The field for token types is left out for a family that
    has none.

    model_type: transformers' `model_type`, such as "distilbert"."""
    widths = DISTILBERT if model_type == "distilbert" else WIDTHS
    return [*widths, *TABLES[: 2 if model_type in UNTYPED else 3]]


def build_transformers_config(shape: Shape, **further_fields: Any) -> PretrainedConfig:
    """Build the transformers configuration of an encoder with the sizes of a Shape.

    A Shape has the numbers of layers, heads, neurons and so on. An untrained model can
    be made from the configuration, for example to be timed.

    further_fields: other fields of the configuration, such as num_labels."""
    from transformers import AutoConfig

    if shape.family == "electra":
        further_fields["embedding_size"] = shape.embedding
    family, *sizes = astuple(shape)
    further_fields |= dict(zip(list_config_size_fields(family), sizes, strict=False))
    return AutoConfig.for_model(family, **further_fields)


def read_shape_of_config(config: Mapping[str, Any]) -> Shape:
    """Return the sizes of an encoder (its Shape) from its transformers configuration.

    The sizes are the numbers of layers, heads, neurons and so on. FLOPs and parameters
    of an opened model can so be counted, if it was not pruned or otherwise changed.

    config: the configuration as a dict, such as `model.config.to_dict()`."""
    family = config["model_type"]
    sizes: list[Any] = [*map(config.get, list_config_size_fields(family))]
    if family in UNTYPED:
        sizes.append(0)
    # By default the tables have the hidden width.
    sizes.append(config.get("embedding_size", sizes[1]))
    return Shape(family, *sizes)


SHAPES = {
    name: Shape(*sizes)
    for name, sizes in disk.read_toml(Path(__file__).with_suffix(".toml"))[
        "SHAPES"
    ].items()
}


def check_head_count_or_take_all(
    shape: Shape, kept_heads_per_layer: int | None = None
) -> int:
    """Return the checked number of heads that a pruned encoder keeps in each layer.

    It is called before a model is pruned or its costs are counted. None stands for all
    A heads. Raises Refused for a number that is not from 1 to A, and where heads are
    pruned but A does not divide the F feed-forward neurons, since these are pruned by
    the same share."""
    all_heads = shape.heads
    if kept_heads_per_layer is None:
        return all_heads
    if kept_heads_per_layer not in range(1, all_heads + 1):
        raise Refused(
            f"heads is {kept_heads_per_layer!r}; this model keeps a whole number "
            f"from 1 to {all_heads}"
        )
    if kept_heads_per_layer < all_heads and shape.ffn % all_heads:
        raise Refused(
            f"{shape.ffn} neurons do not split into {all_heads} folds of equal size"
        )
    return int(kept_heads_per_layer)


class LayerWidths(NamedTuple):
    queries_and_keys: int
    values: int
    contexts: int  # Number of inputs of the attention's output projection.
    neurons: int


class GhostCosts(NamedTuple):
    parameters: int
    flops: int


def compute_layer_widths(
    shape: Shape, kept_heads_per_layer: int | None = None, ghost: Ghost | None = None
) -> LayerWidths:
    """Return the widths of a layer in a pruned encoder, the same for all layers.

    They are (queries_and_keys, values, contexts, neurons), where contexts are the
    inputs of the output projection. Costs are counted from them. GhostBERT's ghost
    modules (convolutions that generate pruned features) need some parts unpruned: one
    at "qk" generates the attention maps of pruned heads, so values and output
    projection stay whole. One at "v" generates their contexts, so the output projection
    stays whole (GhostBERT section 4.2). Raises Refused for a number of heads that does
    not fit.

    kept_heads_per_layer: None means all."""
    cut = (
        check_head_count_or_take_all(shape, kept_heads_per_layer)
        * shape.hidden
        // shape.heads
    )
    positions = ghost.positions if ghost else ()
    values = shape.hidden if "qk" in positions else cut
    contexts = shape.hidden if "v" in positions else values
    return LayerWidths(cut, values, contexts, shape.ffn * cut // shape.hidden)


def _count_ghost_costs(
    shape: Shape,
    ghost: Ghost | None,
    kept_heads_per_layer: int | None,
    token_count: int,
) -> GhostCosts:
    """Count the weights and the FLOPs of all ghost modules: (parameters, flops).

    Ghost modules are GhostBERT's convolutions that generate pruned features, without
    biases, one for each layer and position. The FLOPs are for one input. Without a
    ghost both are 0. Raises Refused for settings that do not fit the encoder.

    kept_heads_per_layer: M; None means all A heads.
    token_count: tokens of the input."""
    if ghost is None:
        return GhostCosts(0, 0)
    remaining = check_head_count_or_take_all(shape, kept_heads_per_layer)
    ghost.check_fits_model(remaining < shape.heads)
    neurons = compute_layer_widths(shape, kept_heads_per_layer).neurons
    weights = products = 0
    for position in ghost.positions:
        if position in ("qk", "v"):
            # Each kept head feeds each pruned one through its own kernel. That is how
            # the channel counts of GhostBERT's section 4.2 are read here.
            number = remaining * (shape.heads - remaining)
            channels = shape.hidden // shape.heads
        else:
            # One kernel is shared, and convolves the sum over heads or groups of
            # neurons. A module that generates several features has a kernel for each
            # feature and kept head (GhostBERT sections 2.1, B.4).
            number = remaining * ghost.features if ghost.features > 1 else 1
            channels = neurons if position == "ffn1" else shape.hidden
        # At "qk" the modules work on attention maps [T, T], which have T columns.
        columns = token_count if position == "qk" else channels
        each_tap, moves = {
            "dwconv": (channels, token_count),
            "conv1d_s": (channels**2, token_count),
            "conv1d_f": (token_count**2, columns),
            "conv2d": (ghost.kernel, token_count * columns),
        }[ghost.kind]
        kernels = shape.layers * number * each_tap * ghost.kernel
        weights += kernels
        products += kernels * moves
    return GhostCosts(weights, 2 * products)


def count_ghost_parameters(
    shape: Shape,
    ghost: Ghost | None,
    heads: KeptHeadsPerLayer = None,
    token_count: int = 128,
) -> int:
    """Count the weights of GhostBERT's ghost modules in all layers of an encoder.

    Ghost modules are convolutions that generate pruned features (sections 2.2.1, 4.1).
    A kernel of size k over C channels and T tokens has, by its kind, Ck weights
    ("dwconv"), CCk ("conv1d_s"), TTk ("conv1d_f"), or kk ("conv2d"). Raises Refused for
    settings that do not fit the encoder.

    ghost: the settings of the modules; with None the count is 0.
    heads: kept heads in a layer; None means all.
    token_count: T, which matters for "conv1d_f" alone."""
    return _count_ghost_costs(shape, ghost, heads, token_count).parameters


def count_ghost_flops(
    shape: Shape,
    ghost: Ghost | None,
    heads: KeptHeadsPerLayer = None,
    token_count: int = 128,
) -> int:
    """Count the FLOPs of GhostBERT's ghost modules in all layers, for one input.

    Ghost modules are convolutions that generate pruned features. A kernel of size k
    over C channels and T tokens takes, by its kind, 2TCk FLOPs ("dwconv"), 2TCCk
    ("conv1d_s"), 2TTCk ("conv1d_f"), or 2TCkk ("conv2d"), where C = T on attention
    maps. Softmax and ReLU do not count. Raises Refused for settings that do not fit the
    encoder.

    ghost: the settings of the modules; with None the count is 0.
    heads: kept heads in a layer; None means all.
    token_count: T."""
    return _count_ghost_costs(shape, ghost, heads, token_count).flops


def parameters(
    shape: Shape,
    heads: KeptHeadsPerLayer = None,
    ghost: Ghost | None = None,
    label_count: int = 2,
    token_count: int = 128,
) -> int:
    """Count the parameters of a classifier, which may be pruned and have ghost modules.

    Counted are embeddings, L layers, an H x H dense layer (BERT's pooler, or the dense
    layer of the classification head in families without a pooler), the H x
    `label_count` output, and GhostBERT's ghost modules (convolutions that generate
    pruned features). MPNet's relative position bias is one table for all layers, and
    stays whole in a pruned model. Raises Refused for settings that do not fit the
    encoder.

    heads: kept heads in a layer; None means all. Neurons are pruned by the same share.
    ghost: the settings of the ghost modules; None means none.
    token_count: tokens of an input, which matter for ghost modules of kind "conv1d_f"
    alone."""
    h, e = shape.hidden, shape.embedding
    qk, v, o, f = compute_layer_widths(shape, heads, ghost)
    embeddings = (shape.vocab + shape.positions + shape.types + 2) * e
    projection = e * h + h if e != h else 0
    bias = BUCKETS * shape.heads if shape.family == "mpnet" else 0
    layer = 2 * (h * qk + qk) + h * v + v + o * h + h + h * f + f + f * h + h + 4 * h
    head = h * h + h + h * label_count + label_count
    ghosts = count_ghost_parameters(shape, ghost, heads, token_count)
    return embeddings + projection + bias + shape.layers * layer + head + ghosts


def flops(
    shape: Shape,
    token_count: int = 128,
    heads: KeptHeadsPerLayer = None,
    ghost: Ghost | None = None,
    convention: Literal["true", "token head"] = "true",
    label_count: int = 2,
) -> int:
    """Count the FLOPs of a classifier's forward pass over one input.

    The convention "true" counts matrix products and ghost convolutions, as PyTorch's
    FlopCounterMode does with eager attention. One multiply-accumulate is two FLOPs. The
    H x H dense layer and the output see one token. Lookups cost nothing. ELECTRA's
    dense layer from embedding to hidden width counts.

    The convention "token head" reproduces most FLOPs that GhostBERT prints, whose
    convention the paper does not state. Appendix A.3 gives batch 1, 128 tokens and no
    embedding operations. To the products of the layers it adds the classification head
    of ELECTRA's public FLOPs script on every token: T * (2HH + H + 8H + 2H) for dense
    layer, bias, activation and one logit. Without this term all 16 BERT values of
    Tables 1, 3 and 5 differ from the print; with it two do.

    Raises Refused for another convention, and for settings that do not fit the encoder.

    heads: kept heads in a layer; None means all. Neurons are pruned by the same share.
    ghost: the settings of GhostBERT's ghost modules (convolutions that generate pruned
    features); None means none."""
    check_value_is_allowed("flops", "convention", convention, ("true", "token head"))
    h, e = shape.hidden, shape.embedding
    qk, v, o, f = compute_layer_widths(shape, heads, ghost)
    layer = 2 * token_count * (
        2 * h * qk + h * v + o * h + 2 * h * f
    ) + 2 * token_count**2 * (qk + v)
    products = shape.layers * layer + count_ghost_flops(
        shape, ghost, heads, token_count
    )
    if convention == "token head":
        return products + token_count * (2 * h * h + 11 * h)
    projection = 2 * token_count * e * h if e != h else 0
    return products + projection + 2 * h * h + 2 * h * label_count


def count_flops_of_transformer_layer(
    layer_output_width: int,
    layer_input_width: NumberOrTensor,
    query_key_width_of_all_heads: NumberOrTensor,
    value_width_of_all_heads: NumberOrTensor,
    ffn_neuron_count: NumberOrTensor,
    token_count: int = 128,
) -> NumberOrTensor:
    """Count the FLOPs of one encoder layer, whose parts may have any widths.

    The count is linear in each width. A width may be a tensor, so that an architecture
    search can differentiate the cost. One multiply-accumulate is two FLOPs.

    layer_output_width: H, the width of the layer's output.
    layer_input_width: how many of the H inputs the queries, keys and values read.
    query_key_width_of_all_heads: columns of the queries, and as many of the keys.
    value_width_of_all_heads: columns of the values.
    ffn_neuron_count: feed-forward neurons.
    token_count: tokens of the one input."""
    projections = (
        2
        * token_count
        * (
            layer_input_width
            * (2 * query_key_width_of_all_heads + value_width_of_all_heads)
            + value_width_of_all_heads * layer_output_width
        )
    )
    products = (
        2 * token_count**2 * (query_key_width_of_all_heads + value_width_of_all_heads)
    )
    return (
        projections + products + 4 * token_count * layer_output_width * ffn_neuron_count
    )


def count_flops_of_layers(
    hidden_size: int,
    head_size: int,
    widths_by_layer: Iterable[WidthByHeadsFfnEmbeddingQkAndV],
    token_count: int = 128,
    has_pooler: bool = True,
) -> NumberOrTensor:
    """Count the FLOPs of an encoder whose layers have different widths, for one input.

    It serves networks of an architecture search. Embeddings do not count. A width may
    be a tensor, so that the count can be differentiated.

    head_size: D, the columns of a head.
    widths_by_layer: a dict for each layer, with "heads" and "ffn" (number of neurons).
    A search over more widths adds "embedding" (inputs that queries, keys and values
    read, by default H), "qk" and "v" (columns, by default D * heads).
    has_pooler: whether a dense layer [H, H] on one token is added."""
    total = 2 * hidden_size**2 if has_pooler else 0
    for width in widths_by_layer:
        columns = head_size * width["heads"]
        inputs, qk = width.get("embedding", hidden_size), width.get("qk", columns)
        total += count_flops_of_transformer_layer(
            hidden_size, inputs, qk, width.get("v", columns), width["ffn"], token_count
        )
    return total


def count_parameters_of_layers(
    hidden_size: int,
    head_size: int,
    widths_by_layer: Iterable[WidthByHeadsFfnEmbeddingQkAndV],
) -> int:
    """Count the parameters of encoder layers that may have different widths.

    Counted are the weights and biases of the queries, keys, values, attention output
    and feed-forward network, and two layer normalisations. Embeddings do not count.

    head_size: D, the columns of a head.
    widths_by_layer: the widths of each layer, of which "heads" and "ffn" count."""
    total = 0
    for width in widths_by_layer:
        columns, neurons = head_size * width["heads"], width["ffn"]
        attention = 4 * hidden_size * columns + 3 * columns + hidden_size
        feed_forward = 2 * hidden_size * neurons + neurons + hidden_size
        total += attention + feed_forward + 4 * hidden_size
    return total


def compute_layer_widths_of_pruned_network(
    kept_indices: IndicesPerLayerByKind,
) -> list[WidthByHeadsFfnEmbeddingQkAndV]:
    """Return the widths of each layer of a pruned network, for `count_flops_of_layers`.

    The list has a dict for each layer: {"heads": number, "ffn": number of neurons}. If
    `kept_indices` has them, there are also "embedding" (inputs of the query, key and
    value projections), "qk" and "v" (dimensions of queries and of values).

    kept_indices: {"heads": for each layer the indices of the kept heads, "neurons": the
    same for neurons}; a search over more widths adds "embedding", "qk" and "v" so."""
    indices = {
        "ffn" if kind == "neurons" else kind: lists
        for kind, lists in kept_indices.items()
    }
    return [
        {kind: len(part) for kind, part in zip(indices, parts, strict=True)}
        for parts in zip(*indices.values(), strict=True)
    ]


def format_count_in_billions_or_millions(
    count: float, gflops_or_other_unit: str
) -> str:
    """Return a number of FLOPs or parameters as text, in the precision of papers.

    `gflops_or_other_unit` "GFLOPs" gives billions with one decimal ("22.5"), any other
    unit millions without decimals ("89")."""
    return (
        f"{count / 1e9:.1f}"
        if gflops_or_other_unit == "GFLOPs"
        else f"{count / 1e6:.0f}"
    )
