"""This module has names, checks and options that the models need, free of torch."""

import difflib
import hashlib
import math
from collections.abc import Collection
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin


class Refused(ValueError):
    """Refused is raised where a reader's value, file or machine does not do; the
    message says why.

    It names the value, what is allowed and a fix. A command prints it in one line, and
    keeps the traceback of all other errors."""


HEADLESS = "fix: save the model without its head, as AutoModel opens it"
MIX_NORMS = ("layers", "layers_affine", "channels", "tokens", "none")
START = 5.0  # Before a search every gate has this alpha.
FACTOR = 128  # The factorised token table has so many channels (MobileBERT).


# These numbers have bounds, as a check and in words. A number without bounds is at
# least 0.
Number = Annotated[float, lambda n: 0 <= n < math.inf, "at least 0"]
Count = Annotated[int, lambda n: n >= 1, "at least 1"]
Positive = Annotated[float, lambda n: 0 < n < math.inf, "above 0"]
Share = Annotated[float, lambda n: 0 <= n <= 1, "at least 0 and at most 1"]
ShareAbove0 = Annotated[float, lambda n: 0 < n <= 1, "above 0 and at most 1"]
ShareBelow1 = Annotated[float, lambda n: 0 <= n < 1, "at least 0 and below 1"]


def check_allowed(
    owner: str, name: str, value: object, allowed: Collection[Any]
) -> None:
    """Raise Refused unless the value is allowed; it names the option and what is
    allowed."""
    if value not in allowed:
        raise Refused(
            f"{owner}.{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}"
        )


def check_name(what: str, name: object, allowed: Collection[Any]) -> None:
    """Raise Refused unless a name is allowed; it tells the nearest allowed one."""
    if name in allowed:
        return
    folded = {str(choice).lower(): choice for choice in allowed}
    near = difflib.get_close_matches(str(name).lower(), list(folded), 1, 0.5)
    hint = f"; did you mean {folded[near[0]]!r}?" if near else ""
    raise Refused(
        f"unknown {what}: {name!r}{hint} (allowed: {', '.join(map(str, allowed)) or 'none'})"
    )


def stream(seed: int, name: str) -> int:
    """Return a 63-bit seed for a generator, out of a seed and the name of its
    stream."""
    return (
        int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "big")
        >> 1
    )


def changed_fields(option: "Option") -> dict[str, Any]:
    """Return the fields of an option that differ from their defaults: what a Spec
    hashes."""
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

    # Every class of options is a dataclass.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
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
                        raise self.refuse_field(name, f"it must be {words}")

    def check_type(
        self, name: str, kind: type[Any] | tuple[type[Any], ...], words: str
    ) -> None:
        """Raise Refused where a field is of another type; a bool is no number."""
        value = getattr(self, name)
        if not isinstance(value, kind) or (type(value) is bool and kind is not bool):
            raise self.refuse_field(name, f"it must be {words}")

    def refuse_field(self, name: str, why: str) -> Refused:
        """Return the Refused that names a field, its value and what is allowed."""
        return Refused(
            f"{type(self).__name__}.{name} is {getattr(self, name)!r}; {why}"
        )


@dataclass(frozen=True)
class Ghost(Option):
    """A Ghost is the settings of a ghost module (GhostBERT sections 2.1, 2.2, 4.1,
    4.2)."""

    # This is the convolution.
    kind: Literal["dwconv", "conv1d_s", "conv1d_f", "conv2d"]
    # Each layer has ghosts at these places (lib.model.ghost).
    positions: tuple[Literal["qk", "v", "o", "ffn1", "ffn2"], ...]
    kernel: Count  # A kernel has so many taps, an odd number.
    # There are F ghost features; above 1 every head has its own kernels.
    features: Count = 1
    # A softmax normalises the taps; the paper says so for dwconv alone.
    softmax: bool = False
    relu: bool = False  # Each ghost feature passes a ReLU before it is added.
    # Padded positions are set to zero first; the paper does not say.
    mask: bool = False
    # The raw kernel starts so ("uniform" has equal taps); the paper does not say.
    init: Literal["xavier", "uniform"] = "xavier"
    # "inputs" are all weights that an output of "conv1d_*" sums; the paper leaves this
    # open.
    softmax_over: Literal["taps", "inputs"] = "taps"
    # "conv1d_f" takes rows of so many tokens alone, as tokens are its channels; others
    # have 0.
    tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise self.refuse_field(
                "kernel", "an even kernel has no centre tap: take an odd one"
            )

    @property
    def uncut(self) -> tuple[str, ...]:
        """Return what the cut before this ghost leaves whole (section 4.2).

        "v" are the values, and "o" is the output projection.
        """
        if "qk" in self.positions:
            return "v", "o"
        return ("o",) if "v" in self.positions else ()

    def fits(self, pruned: bool) -> None:
        """Raise Refused where kind, positions, features and cut do not go together.

        pruned: whether the model has lost heads.
        """
        inside, wrong = {"qk", "v"} & set(self.positions), ""
        if "qk" in inside and self.kind != "conv2d":
            wrong = f"{self.kind!r} has no meaning on attention maps: position 'qk' takes 'conv2d'"
        elif len(inside) == 2:
            wrong = "positions 'qk' and 'v' both stand in for the pruned heads: take one of them"
        elif inside and not pruned:
            wrong = f"position {inside.pop()!r} generates the pruned heads, and none is pruned"
        elif self.features > 1 and not set(self.positions) <= {"o", "ffn2"}:
            wrong = f"features is {self.features}; more than one is defined at 'o' and 'ffn2' only"
        if wrong:
            raise Refused(wrong)
