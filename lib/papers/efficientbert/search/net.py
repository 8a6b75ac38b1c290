"""This module has a searched network and its cost, as pure arithmetic.

See EfficientBERT sections 3.1 and 4.2. Letters: d hidden channels, D the width that
ratios refer to, e = int(D / q) inner channels of a layer with ratio 1/q, k stacked
feed-forward networks of a layer, T tokens, V rows of the token table."""

from dataclasses import asdict, dataclass
from functools import lru_cache

from lib.core.names import Refused, check_allowed
from lib.core.options import FACTOR
from lib.core.types import Json
from lib.model.formula import Node
from lib.papers.efficientbert.search.language import check_formula

BERT = "W2 gelu(W1 x)"
STACKS = QS = (1, 2, 3, 4)  # The paper's space has 16 ids (k, q) for each layer.
TEACHER = 768  # Width of the teacher, to which the projection maps during training.
CONVENTIONS = ("deployable", "with pooler", "with projection")

_checked = lru_cache(maxsize=4096)(check_formula)


@dataclass(frozen=True)
class Layer:
    """A Layer has k networks of one formula, each `LayerNorm(x + f(x))`, after the
    attention.

    Raises Refused for a formula that no network can have.
    """

    formula: str  # Text or tree; kept as text in the spelling of the tree's printer.
    stack: int = 1  # k
    q: int = 1  # Inverse of the ratio 1/q.

    def __post_init__(self) -> None:
        object.__setattr__(self, "formula", str(_checked(str(self.formula))))

    @property
    def tree(self) -> Node:
        return _checked(self.formula)

    @property
    def ratio_text(self) -> str:
        """Return the ratio as text: "1", "1/2"."""
        return "1" if self.q == 1 else f"1/{self.q}"


@dataclass(frozen=True)
class Net:
    """A Net is a Transformer encoder of such Layers.

    Raises Refused for formulas that do not fit the widths, and where no inner channel
    is left."""

    hidden: int  # d
    width: int  # D
    heads: int
    # "trigram" projects the rows of three neighbouring tokens, 128 channels each, to d;
    # "plain" is BERT's embedding.
    embedding: str
    mismatch: str  # How operands of different widths are fitted: "truncate" or "pad".
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        for layer in self.layers:
            if (inner := self.count_inner_channels(layer)) < 1:
                raise Refused(
                    f"Net.inner width for q = {layer.q} is {inner}; allowed: from 1"
                )
            _checked(
                layer.formula,
                self.hidden,
                self.count_inner_channels(layer),
                self.mismatch,
            )

    def count_inner_channels(self, layer: Layer) -> int:
        """Return e, the inner channels of a layer."""
        return self.width // layer.q

    def to_json(self) -> Json:
        return asdict(self) | {
            "layers": [[l.formula, l.stack, l.q] for l in self.layers]
        }


def from_json(net_json: Json | Net) -> Net:
    """Return the Net that `to_json` wrote; a Net is returned as it is."""
    if isinstance(net_json, Net):
        return net_json
    return Net(
        **net_json | {"layers": tuple(Layer(*layer) for layer in net_json["layers"])}
    )


def make_bert(layers: int, hidden_size: int, inner_size: int, heads: int = 12) -> Net:
    """Return a plain BERT encoder as a Net."""
    return Net(
        hidden_size, inner_size, heads, "plain", "truncate", (Layer(BERT),) * layers
    )


def ffn_parameters(hidden_size: int, inner_size: int) -> int:
    """Return the parameters of one feed-forward network with its LayerNorm: 2de + e +
    3d."""
    return 2 * hidden_size * inner_size + inner_size + 3 * hidden_size


def attention_parameters(hidden_size: int) -> int:
    """Return the parameters of attention and its LayerNorm: 4dd + 6d.

    They are queries, keys, values and output with biases, and the LayerNorm.
    """
    return 4 * hidden_size**2 + 6 * hidden_size


def count_embedding_parameters(
    net: Net,
    vocab: int = 30522,
    positions: int = 512,
    types: int = 2,
    factor: int = FACTOR,
) -> int:
    """Return the parameters of the embedding: three tables and the LayerNorm.

    The tables are of tokens, positions and segments. With "trigram" the token table is
    `factor` wide, and a dense layer goes from 3 * factor to d."""
    d = net.hidden
    tokens = (
        vocab * factor + 3 * factor * d + d if net.embedding == "trigram" else vocab * d
    )
    return tokens + (positions + types + 2) * d


def count_net_parameters(
    net: Net,
    convention: str = "deployable",
    teacher: int = TEACHER,
    **embedding_sizes: int,
) -> int:
    """Return all parameters but a task's head; of a supernet's part the active slices
    alone.

    "deployable" counts embeddings and layers. "with pooler" adds the d x d pooler, as
    BERT is usually counted. "with projection" adds instead the d x `teacher` layer that
    serves distillation alone, as EfficientBERT counts. embedding_sizes: arguments of
    `count_embedding_parameters`. Raises Refused for another convention."""
    check_allowed("parameters", "convention", convention, CONVENTIONS)
    d = net.hidden
    encoder = sum(
        attention_parameters(d)
        + l.stack * ffn_parameters(d, net.count_inner_channels(l))
        for l in net.layers
    )
    extra = {
        "deployable": 0,
        "with pooler": d * d + d,
        "with projection": d * teacher + teacher,
    }
    return (
        count_embedding_parameters(net, **embedding_sizes) + encoder + extra[convention]
    )


def count_macs(net: Net, token_count: int = 128, factor: int = FACTOR) -> int:
    """Return the multiply-accumulates for each of T tokens in all matrix products.

    Counted are the embedding, attention at length T, and the networks. Not counted are
    the pooler, the head and what a formula adds element by element."""
    d = net.hidden
    layers = sum(
        4 * d * d + 2 * token_count * d + 2 * l.stack * d * net.count_inner_channels(l)
        for l in net.layers
    )
    return layers + (3 * factor * d if net.embedding == "trigram" else 0)
