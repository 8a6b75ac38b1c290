"""This module describes a network of the search space, and counts its parameters and
operations.

See EfficientBERT, sections 3.1 and 4.2. Letters: d is the number of hidden channels, D
the full inner width. A layer has k stacked feed-forward networks with e = int(D / q)
inner channels, the share 1/q of D. T is the number of tokens."""

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from lib.core.names import Refused, check_value_is_allowed
from lib.core.options import FACTOR
from lib.core.types import Json
from lib.model.formula import Node
from lib.papers.efficientbert.search.language import parse_and_check_formula

# Keyword arguments of count_net_parameters: {"teacher": the teacher's hidden size;
# "vocab", "positions", "types": numbers of rows of the embedding tables}.
EmbeddingSizes = dict[str, int]
LeastAndMostParameters = tuple[int, ...]  # (least, most) parameters of a network.
BERT = "W2 gelu(W1 x)"
# Numbers k of stacked feed-forward networks, and divisors q of their inner width, that
# a layer may have in the paper: 16 pairs (k, q).
STACKS = QS = (1, 2, 3, 4)
# Hidden size of BERT-base. In distillation a linear map projects the student's states
# to this width.
TEACHER = 768
CountingConvention: TypeAlias = Literal["deployable", "with pooler", "with projection"]
HiddenSize: TypeAlias = int
RowCount: TypeAlias = int  # Rows of an embedding table.
CONVENTIONS = ("deployable", "with pooler", "with projection")


@dataclass(frozen=True)
class Layer:
    """A Layer describes a Transformer layer with searched feed-forward networks.

    It is attention, then k feed-forward networks after each other. Each of these is
    `LayerNorm(x + f(x))` with the same formula f. Raises FormulaError for a formula
    that the search space does not allow.

    formula: f as text, such as "W2 gelu(W1 x)". A syntax tree (Node) is accepted too,
    and is stored as text.
    stack: the number k.
    q: divisor of the Net's full inner width D: the networks have int(D / q) inner
    channels."""

    formula: str
    stack: int = 1
    q: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "formula", str(parse_and_check_formula(self.formula)))

    @property
    def formula_tree(self) -> Node:
        return parse_and_check_formula(self.formula)

    @property
    def inner_width_share_text(self) -> str:
        """Return the layer's inner width as a share of the full one, as text.

        The text is "1", "1/2" and so on; drawings of networks show it."""
        return "1" if self.q == 1 else f"1/{self.q}"


@dataclass(frozen=True)
class Net:
    """A Net describes a BERT whose layers have searched feed-forward networks.

    It has no weights. Parameters and operations are counted from it, and models are
    built from it. Raises FormulaError where the formula of these networks, such as "W2
    gelu(W1 x)", cannot be computed with the given widths, and Refused where a layer has
    no inner channel.

    hidden: hidden size d.
    width: full inner width D of the feed-forward networks. Those of a layer with the
    divisor q have int(D / q) inner channels.
    heads: number of attention heads.
    embedding: "plain" as in BERT, or "trigram": 128 channels for a token, and a linear
    map from those of three neighbouring tokens together to d.
    mismatch: what happens to operands of different widths in a formula: "truncate" cuts
    the wider one, "pad" fills up the narrower one with a value that changes nothing,
    such as 0 in a sum.
    layers: formula, number and width of the feed-forward networks of each layer."""

    hidden: int
    width: int
    heads: int
    embedding: Literal["plain", "trigram"]
    mismatch: Literal["truncate", "pad"]
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        for layer in self.layers:
            inner = self.count_inner_channels(layer)
            if inner < 1:
                raise Refused(
                    f"Net.inner width for q = {layer.q} is {inner}; allowed: from 1"
                )
            parse_and_check_formula(layer.formula, self.hidden, inner, self.mismatch)

    def count_inner_channels(self, layer: Layer) -> int:
        """Return the inner channels of a layer's feed-forward networks, int(D / q).

        D is the full inner width of the network, and 1/q is the share of it that the
        layer has."""
        return self.width // layer.q

    def to_json(self) -> Json:
        return asdict(self) | {
            "layers": [[l.formula, l.stack, l.q] for l in self.layers]
        }


def from_json(net_json: Json) -> Net:
    """Return the Net, the description of a network, that `Net.to_json` wrote as JSON.

    Raises FormulaError for an invalid formula of a feed-forward network, and Refused
    where a layer has no inner channel."""
    return Net(
        **net_json | {"layers": tuple(Layer(*layer) for layer in net_json["layers"])}
    )


def make_plain_bert_net(
    layer_count: int, hidden_size: int, inner_size: int, head_count: int = 12
) -> Net:
    """Return the description (Net) of a plain BERT encoder.

    It has BERT's formula "W2 gelu(W1 x)" and one feed-forward network in each layer. So
    plain BERTs are counted and drawn like searched networks.

    layer_count: number of layers."""
    return Net(
        hidden_size,
        inner_size,
        head_count,
        "plain",
        "truncate",
        (Layer(BERT),) * layer_count,
    )


def count_ffn_parameters(hidden_size: int, inner_size: int) -> int:
    """Return the number of parameters of one feed-forward network with its LayerNorm.

    It is 2de + e + 3d for d hidden and e inner channels, whatever its formula, since
    each formula has two linear maps."""
    return 2 * hidden_size * inner_size + inner_size + 3 * hidden_size


def count_attention_parameters(hidden_size: int) -> int:
    """Return the number of parameters of a layer's attention, 4dd + 6d.

    Here d is the hidden size. Counted are the query, key, value and output maps with
    biases, and the LayerNorm."""
    return 4 * hidden_size**2 + 6 * hidden_size


def count_embedding_parameters(
    net: Net,
    vocab: RowCount = 30522,
    positions: RowCount = 512,
    types: RowCount = 2,
    token_embedding_width: int = FACTOR,
) -> int:
    """Return the number of parameters of a network's embedding.

    Counted are the tables of tokens, positions and segments, and a LayerNorm. A
    "trigram" embedding has a token table of `token_embedding_width` channels, and a
    linear map from three neighbouring tokens to the hidden size.

    net: description of the network.
    vocab, positions, types: the numbers of rows of the three tables."""
    d = net.hidden
    tokens = (
        vocab * token_embedding_width + 3 * token_embedding_width * d + d
        if net.embedding == "trigram"
        else vocab * d
    )
    return tokens + (positions + types + 2) * d


def count_net_parameters(
    net: Net,
    counting_convention: CountingConvention = "deployable",
    teacher: HiddenSize = TEACHER,
    **embedding_sizes: int,
) -> int:
    """Return the number of parameters of a network, without a task's head.

    Raises Refused for an unknown convention.

    net: description of the network, with hidden size d.
    counting_convention: "deployable" counts embedding and layers. "with pooler" adds
    the d x d pooler, as BERT is usually counted. "with projection" adds instead the
    linear map from d to the teacher's hidden size, which is used in distillation alone,
    as EfficientBERT counts.
    teacher: the teacher's hidden size.
    embedding_sizes: rows of the embedding tables (`vocab`, `positions`, `types`) and
    other arguments of `count_embedding_parameters`."""
    check_value_is_allowed("parameters", "convention", counting_convention, CONVENTIONS)
    d = net.hidden
    encoder = sum(
        count_attention_parameters(d)
        + l.stack * count_ffn_parameters(d, net.count_inner_channels(l))
        for l in net.layers
    )
    extra = {
        "deployable": 0,
        "with pooler": d * d + d,
        "with projection": d * teacher + teacher,
    }
    return (
        count_embedding_parameters(net, **embedding_sizes)
        + encoder
        + extra[counting_convention]
    )


def count_macs_per_token(net: Net, token_count: int = 128) -> int:
    """Return the multiply-accumulates per token of all matrix products of a network.

    It is a measure of cost that does not depend on the machine. Counted are the
    attention, the feed-forward networks and the linear map of a "trigram" embedding.
    Not counted are the pooler, the head and element-wise operations.

    net: description of the network.
    token_count: tokens of the sequence, on which the cost of attention depends."""
    d = net.hidden
    layers = sum(
        4 * d * d + 2 * token_count * d + 2 * l.stack * d * net.count_inner_channels(l)
        for l in net.layers
    )
    return layers + (3 * FACTOR * d if net.embedding == "trigram" else 0)
