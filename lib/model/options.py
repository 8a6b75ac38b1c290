"""This module has the checks, errors and options that models need; it does not import
torch."""

import difflib
import hashlib
import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin


class Refused(ValueError):
    """Refused is raised for a value, a file or a machine of the user that cannot be
    used.

    The message names the value, what is allowed and a fix. A command prints it in one
    line; all other errors have a traceback."""


HEADLESS = "fix: save the model without its head, as AutoModel opens it"
MIX_NORMS = ("layers", "layers_affine", "channels", "tokens", "none")
START = 5.0  # Initial alpha of every gate (lib.model.gates).
FACTOR = 128  # Width of the factorised token embedding, as in MobileBERT.


# Types of numeric options: (type, check, bounds in words). Plain int and float must be
# at least 0.
Number = Annotated[float, lambda n: 0 <= n < math.inf, "at least 0"]
Count = Annotated[int, lambda n: n >= 1, "at least 1"]
Positive = Annotated[float, lambda n: 0 < n < math.inf, "above 0"]
Share = Annotated[float, lambda n: 0 <= n <= 1, "at least 0 and at most 1"]
ShareAbove0 = Annotated[float, lambda n: 0 < n <= 1, "above 0 and at most 1"]
ShareBelow1 = Annotated[float, lambda n: 0 <= n < 1, "at least 0 and below 1"]


def check_allowed(
    option_class: str, name: str, value: object, allowed: Collection[Any]
) -> None:
    """Raise Refused, with the allowed values, unless the option owner.name has one of
    them."""
    if value not in allowed:
        raise Refused(
            f"{option_class}.{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}"
        )


def check_name(kind: str, value: object, allowed: Collection[Any]) -> None:
    """Raise Refused, with the most similar allowed name, unless a name is allowed.

    kind: the kind of thing that is named, for the message."""
    if value in allowed:
        return
    folded = {str(choice).lower(): choice for choice in allowed}
    near = difflib.get_close_matches(str(value).lower(), list(folded), 1, 0.5)
    hint = f"; did you mean {folded[near[0]]!r}?" if near else ""
    raise Refused(
        f"unknown {kind}: {value!r}{hint} (allowed: {', '.join(map(str, allowed)) or 'none'})"
    )


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed for one of a run's random generators.

    Each use of randomness has a `purpose`, such as "dropout", so that uses are
    independent of each other."""
    return (
        int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:8], "big")
        >> 1
    )


def list_changed_fields(option: "Option") -> dict[str, Any]:
    """Return {field: value} of an option's fields that differ from their defaults.

    Only these are part of a Spec, so a new field does not change earlier identities."""
    return {
        field.name: value
        for field in fields(option)
        if (value := getattr(option, field.name)) != field.default
    }


class Option:
    """An Option checks its fields against their annotations when it is made.

    An annotation is a type, a number with its bounds (such as `Count`), a Literal of
    the allowed values, or a tuple of these. An int may stand for a float, and stays an
    int. A list, which JSON has for a tuple, becomes a tuple. Raises Refused naming the
    field, its value and what is allowed."""

    # For the type checker: all subclasses are dataclasses.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    # Checked values: grids make the same few options ten thousand times.
    _accepted: ClassVar[set[tuple[Any, ...]]] = set()

    def __post_init__(self) -> None:
        values = tuple(self.__dict__.values())
        key = (type(self), values, *map(type, values))
        with suppress(TypeError):  # A list has no hash, and becomes a tuple.
            if key in self._accepted:
                return
        self.check_fields()
        with suppress(TypeError):
            self._accepted.add(key)

    def check_fields(self) -> None:
        """Raise Refused for the first field whose value its annotation does not
        allow."""
        for field in fields(self):
            name = field.name
            kind: Any = field.type
            value, origin, args = getattr(self, name), get_origin(kind), get_args(kind)
            if tuple in (kind, origin):
                self.check_type(name, (list, tuple), "a list")
                object.__setattr__(self, name, tuple(value))
                for choices in args[:1]:
                    for element in value:
                        check_allowed(
                            type(self).__name__, name, element, get_args(choices)
                        )
            elif origin is Literal:
                check_allowed(type(self).__name__, name, value, args)
            else:
                kind, *bounds = args or (kind,)
                self.check_type(
                    name, (int, float) if kind is float else kind, kind.__name__
                )
                if kind in (int, float):
                    inside, words = bounds or get_args(Number)[1:]
                    if not inside(value):
                        raise self.make_field_error(name, f"it must be {words}")

    def check_type(
        self,
        field_name: str,
        field_type: type[Any] | tuple[type[Any], ...],
        type_text: str,
    ) -> None:
        """Raise Refused unless a field has a type; a bool does not count as a number.

        type_text: name of the type for the message."""
        value = getattr(self, field_name)
        if not isinstance(value, field_type) or (
            type(value) is bool and field_type is not bool
        ):
            raise self.make_field_error(field_name, f"it must be {type_text}")

    def make_field_error(self, field_name: str, reason: str) -> Refused:
        """Return a Refused whose message has a field, its value and a reason."""
        return Refused(
            f"{type(self).__name__}.{field_name} is {getattr(self, field_name)!r}; {reason}"
        )


@dataclass(frozen=True)
class Ghost(Option):
    """A Ghost is the settings of a ghost module (GhostBERT sections 2.1, 2.2, 4.1,
    4.2)."""

    # Type of convolution (lib.model.ghost).
    kind: Literal["dwconv", "conv1d_s", "conv1d_f", "conv2d"]
    # Places in each layer that get a ghost module (lib.model.ghost).
    positions: tuple[Literal["qk", "v", "o", "ffn1", "ffn2"], ...]
    kernel: Count  # Size of a kernel in tokens or channels, an odd number.
    # Number of ghost features; with more than 1, every head has kernels of its own.
    features: Count = 1
    # Whether a softmax normalises a kernel's weights; the paper says so for dwconv
    # alone.
    softmax: bool = False
    relu: bool = False  # Whether ghost features pass a ReLU before they are added.
    # Whether padded tokens are set to zero before the convolution; the paper does not
    # say.
    mask: bool = False
    # Initialisation of kernels ("uniform": equal weights); the paper does not say.
    init: Literal["xavier", "uniform"] = "xavier"
    # Weights that a softmax normalises together: the "taps" of one kernel, or for
    # "conv1d_*" all "inputs" of an output. The paper leaves this open.
    softmax_over: Literal["taps", "inputs"] = "taps"
    # Tokens that every row must have under "conv1d_f", whose channels they are; 0 for
    # other kinds.
    tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise self.make_field_error(
                "kernel", "an even kernel has no centre tap: take an odd one"
            )

    @property
    def uncut_parts(self) -> tuple[str, ...]:
        """Return which of "v" (values) and "o" (output projection) the cut before this
        ghost must not prune (section 4.2)."""
        if "qk" in self.positions:
            return "v", "o"
        return ("o",) if "v" in self.positions else ()

    def check_fit(self, is_pruned: bool) -> None:
        """Raise Refused where kind, positions, features and the model's pruning do not
        fit together.

        is_pruned: whether the model has lost heads."""
        inside, wrong = {"qk", "v"} & set(self.positions), ""
        if "qk" in inside and self.kind != "conv2d":
            wrong = f"{self.kind!r} has no meaning on attention maps: position 'qk' takes 'conv2d'"
        elif len(inside) == 2:
            wrong = "positions 'qk' and 'v' both stand in for the pruned heads: take one of them"
        elif inside and not is_pruned:
            wrong = f"position {inside.pop()!r} generates the pruned heads, and none is pruned"
        elif self.features > 1 and not set(self.positions) <= {"o", "ffn2"}:
            wrong = f"features is {self.features}; more than one is defined at 'o' and 'ffn2' only"
        if wrong:
            raise Refused(wrong)
