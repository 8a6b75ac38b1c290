"""This module has checks of values, the error that users see (Refused), seeds, and the
options of ghost modules."""

import difflib
import hashlib
import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)


class Refused(ValueError):
    """Refused is raised where something that the user chose cannot be used.

    This may be a value, a file or a machine. The message names it, what is allowed and
    a fix. The command line prints it in one line, without a traceback."""


HEADLESS = "fix: save the model without its head, as AutoModel opens it"
# A tokenizer's folder has one of these files.
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
# Initial logit alpha of every pruning gate, whose mask is sigmoid(alpha)
# (lib.model.gates).
START = 5.0
# Width of the token embedding table in EfficientBERT. A linear layer then maps the
# embeddings to the hidden size, as in MobileBERT.
FACTOR = 128
# SurgeryOperation: a change of a model, such as {"op": "cut", "heads": 3}.
# SurgeryReport: what the change reports, such as numbers of parameters.
SurgeryOperation = dict[str, Any]
SurgeryReport = dict[str, Any]
GhostPosition = Literal["qk", "v", "o", "ffn1", "ffn2"]
MixNorm = Literal["layers", "layers_affine", "channels", "tokens", "none"]
MIX_NORMS = get_args(MixNorm)
AllKept: TypeAlias = None  # None in the place of indices or a mask: nothing is removed.
T = TypeVar("T")
# What a `with` block gets: return type of a generator under `contextmanager`.
ContextYield: TypeAlias = Iterator[T]
# What pruning keeps: {kind, such as "heads": list of indices for each of L layers}.
IndicesPerLayerByKind: TypeAlias = dict[str, list[list[int]]]
LayerAndGateKind = tuple[int, str]  # (layer, kind of gate), such as (0, "heads").


# Types of the numeric fields of options. Each has the Python type, a check of the
# value, and the allowed range in words for the error. A field of plain int or float
# must be at least 0.
Number = Annotated[float, lambda n: 0 <= n < math.inf, "at least 0"]
Count = Annotated[int, lambda n: n >= 1, "at least 1"]
Positive = Annotated[float, lambda n: 0 < n < math.inf, "above 0"]
Share = Annotated[float, lambda n: 0 <= n <= 1, "at least 0 and at most 1"]
ShareAbove0 = Annotated[float, lambda n: 0 < n <= 1, "above 0 and at most 1"]
ShareBelow1 = Annotated[float, lambda n: 0 <= n < 1, "at least 0 and below 1"]


def check_value_is_allowed(
    option_class_name: str,
    field_name: str,
    value: object,
    allowed_values: Collection[Any],
) -> None:
    """Raise Refused unless the value of a settings field is an allowed one.

    option_class_name, field_name: class and field, for the message, which lists the
    allowed values too.
    value: the value of the field."""
    if value not in allowed_values:
        choices = ", ".join(map(repr, allowed_values))
        raise Refused(
            f"{option_class_name}.{field_name} is {value!r}; allowed: {choices}"
        )


def check_known_name(
    name_kind: str, name: object, known_names: Collection[Any]
) -> None:
    """Raise Refused unless a name that a user gave is one of the known names.

    The message suggests the most similar known name, if one is similar, so that a
    typing error is easy to mend.

    name_kind: what kind of name it is, for the message, such as "task".
    name: the name that is checked."""
    if name in known_names:
        return
    folded = {str(choice).lower(): choice for choice in known_names}
    near = difflib.get_close_matches(str(name).lower(), list(folded), 1, 0.5)
    hint = f"; did you mean {folded[near[0]]!r}?" if near else ""
    names = [f'"{known}"' if "," in str(known) else str(known) for known in known_names]
    raise Refused(
        f"unknown {name_kind}: {name!r}{hint} (allowed: {', '.join(names) or 'none'})"
    )


def derive_seed(seed: int, purpose: str) -> int:
    """Derive a 63-bit seed for one of the random generators of a training.

    The result is a hash of the training's seed and the generator's purpose. So
    generators of different purposes, such as "dropout" and "order", are independent of
    each other."""
    return (
        int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:8], "big")
        >> 1
    )


def list_non_default_fields(option: "Option") -> dict[str, Any]:
    """Return {field: value} of those settings that differ from their defaults.

    A field without a default is always among them. Only these fields are stored in the
    description of a training or measurement, and the hash of the description is the
    name under which the result is found again. So a field that is added later does not
    change the hash of earlier results.

    option: an instance of a frozen dataclass of settings."""
    return {
        name: value
        for name, default in _list_fields_and_defaults(type(option))
        if (value := getattr(option, name)) != default
    }


@cache
def _list_fields_and_defaults(option_class: type["Option"]) -> list[tuple[str, Any]]:
    """Return [(name, default)] of the fields of a class of settings.

    The list is cached for each class, since planning many trainings reads it often."""
    return [(field.name, field.default) for field in fields(option_class)]


class Option:
    """Option is a base class for frozen dataclasses of settings that check themselves.

    When an object is made, each field is checked against its annotation: a type, a
    number with its bounds (such as `Count`, an int of at least 1), a Literal of the
    allowed values, or a tuple of values of a Literal. An int may stand for a float, and
    stays an int. A list, which JSON has for a tuple, becomes a tuple; values in a plain
    `tuple` are not checked. Raises Refused, naming the field, its value and what is
    allowed."""

    # For the type checker: `dataclasses.fields` takes only dataclasses. This base class
    # is not one, but all its subclasses are.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    # Options that have passed the check, as (class, values, types of the values). They
    # are not checked again, because planning many runs makes the same few options ten
    # thousand times.
    _accepted: ClassVar[set[tuple[Any, ...]]] = set()

    def __post_init__(self) -> None:
        values = tuple(self.__dict__.values())
        key = (type(self), values, *map(type, values))
        # A value that is a list cannot be hashed (TypeError). Such an option is always
        # checked, and the check turns the list into a tuple.
        with suppress(TypeError):
            if key in self._accepted:
                return
        for field in fields(self):
            name = field.name
            kind: Any = field.type
            value, origin, args = getattr(self, name), get_origin(kind), get_args(kind)
            if tuple in (kind, origin):
                self.check_field_type(name, (list, tuple), "a list")
                object.__setattr__(self, name, tuple(value))
                for choices in args[:1]:
                    for element in value:
                        check_value_is_allowed(
                            type(self).__name__, name, element, get_args(choices)
                        )
            elif origin is Literal:
                check_value_is_allowed(type(self).__name__, name, value, args)
            else:
                kind, *bounds = args or (kind,)
                self.check_field_type(
                    name, (int, float) if kind is float else kind, kind.__name__
                )
                if kind in (int, float):
                    inside, words = bounds or get_args(Number)[1:]
                    if not inside(value):
                        raise self.make_field_error(name, f"it must be {words}")
        with suppress(TypeError):
            self._accepted.add(key)

    def check_field_type(
        self,
        field_name: str,
        field_type: type[Any] | tuple[type[Any], ...],
        type_description: str,
    ) -> None:
        """Raise Refused unless the value of a field is of an allowed type.

        True and False are refused unless `field_type` is bool. Python would take them
        for the integers 1 and 0, and a mistake in a settings file would pass unnoticed.

        field_type: the allowed type or types.
        type_description: the allowed type for the message, such as "a list"."""
        value = getattr(self, field_name)
        if not isinstance(value, field_type) or (
            type(value) is bool and field_type is not bool
        ):
            raise self.make_field_error(field_name, f"it must be {type_description}")

    def make_field_error(self, field_name: str, reason: str) -> Refused:
        """Return an error (Refused) about a wrong field, for the caller to raise.

        Its message has the class, the field, the field's value and the reason.

        reason: why the value is not allowed, or which values are."""
        return Refused(
            f"{type(self).__name__}.{field_name} is {getattr(self, field_name)!r}; {reason}"
        )


@dataclass(frozen=True)
class Ghost(Option):
    """A Ghost has the settings of GhostBERT's ghost modules for all layers of a model.

    Ghost modules are cheap convolutions that generate additional features from those of
    a pruned layer (sections 2.1, 2.2, 4.1, 4.2).

    kind: the convolution: depthwise over tokens ("dwconv"), over tokens with all
    features mixed ("conv1d_s"), over features with all tokens mixed ("conv1d_f"), or
    over tokens and features ("conv2d").
    positions: what gets a ghost module in each layer: attention maps ("qk"), contexts
    ("v"), the output projection ("o"), the activation ("ffn1") or the second
    feed-forward matrix ("ffn2").
    kernel: the size of a kernel in tokens or features, an odd number.
    features: the number of ghost features (appendix B.4) that are added to the output.
    If there are several, each has a kernel of its own for each head of the input.
    softmax: whether a softmax normalises the weights of a kernel. The paper says so
    only for "dwconv".
    relu: whether ghost features pass a ReLU before they are added.
    mask: whether padded tokens are set to zero before the convolution. The paper does
    not say whether they are.
    init: the initialisation of the kernels, where "uniform" means equal weights. The
    paper does not name one.
    softmax_over: which weights a softmax normalises together: the K weights of each
    channel of a kernel ("taps"), or for "conv1d_*" all weights by which an output sums
    over an input map ("inputs"). For "conv2d" it is always the whole kernel. "dwconv"
    has "taps" alone, as each of its outputs reads one channel. The paper does not say
    which.
    tokens: for "conv1d_f" the number of tokens that every row must have, as the tokens
    are the channels of this convolution; 0 for other kinds."""

    kind: Literal["dwconv", "conv1d_s", "conv1d_f", "conv2d"]
    positions: tuple[GhostPosition, ...]
    kernel: Count
    features: Count = 1
    softmax: bool = False
    relu: bool = False
    mask: bool = False
    init: Literal["xavier", "uniform"] = "xavier"
    softmax_over: Literal["taps", "inputs"] = "taps"
    tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise self.make_field_error(
                "kernel", "an even kernel has no centre tap: take an odd one"
            )
        if self.kind == "dwconv" and self.softmax_over == "inputs":
            raise self.make_field_error(
                "softmax_over",
                "each output of 'dwconv' reads one channel: take 'taps'",
            )

    @property
    def unpruned_projections(self) -> tuple[str, ...]:
        """Return which projections must keep all heads when heads are pruned.

        A ghost module is a convolution. At position "qk" it generates the attention
        maps of the pruned heads, which still need "v" (values) and "o" (output
        projection). At "v" it generates their contexts, which still need "o" (GhostBERT
        section 4.2). The tuple is empty for other positions."""
        if "qk" in self.positions:
            return "v", "o"
        return ("o",) if "v" in self.positions else ()

    def check_fits_model(self, has_pruned_heads: bool) -> None:
        """Raise Refused where ghost module settings clash or do not fit a model.

        Ghost modules are convolutions that generate additional features. The position
        "qk" (attention maps) takes the kind "conv2d" alone; "qk" and "v" (contexts)
        exclude each other and need a model with pruned heads; more than one feature is
        allowed at "o" and "ffn2" alone.

        has_pruned_heads: whether heads of the model have been pruned."""
        inside, wrong = {"qk", "v"} & set(self.positions), ""
        if "qk" in inside and self.kind != "conv2d":
            wrong = f"{self.kind!r} has no meaning on attention maps: position 'qk' takes 'conv2d'"
        elif len(inside) == 2:
            wrong = "positions 'qk' and 'v' both stand in for the pruned heads: take one of them"
        elif inside and not has_pruned_heads:
            wrong = f"position {inside.pop()!r} generates the pruned heads, and none is pruned"
        elif self.features > 1 and not set(self.positions) <= {"o", "ffn2"}:
            wrong = f"features is {self.features}; more than one is defined at 'o' and 'ffn2' only"
        if wrong:
            raise Refused(wrong)
