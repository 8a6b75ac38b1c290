"""What the models ask of their options, free of torch: names, checks, the options of a ghost."""

import difflib
import hashlib
from dataclasses import dataclass

GHOST_KINDS = ("dwconv", "conv1d_s", "conv1d_f", "conv2d")
GHOST_POSITIONS = ("qk", "v", "o", "ffn1", "ffn2")
MIX_NORMS = ("layers", "layers_affine", "channels", "tokens", "none")
MIX_INITS = ("xavier_uniform", "xavier_normal", "zeros")
GATE_REGIONS = ("heads", "ffn", "embedding", "qkv")
START = 5.0  # alpha of every gate before a search
FACTOR = 128  # channels of the factorised token table (MobileBERT)


def one_of(owner, name, value, allowed):
    """Raises ValueError naming the option, its value and what is allowed."""
    if value not in allowed:
        raise ValueError(f"{owner}.{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def at_least(owner, name, value, low):
    """Raises ValueError naming the option, its value and the least one."""
    if not value >= low:
        raise ValueError(f"{owner}.{name} is {value!r}; it must be at least {low}")


def known(what, name, allowed):
    """Raises ValueError naming the nearest allowed name."""
    if name in allowed:
        return
    folded = {str(each).lower(): each for each in allowed}
    near = difflib.get_close_matches(str(name).lower(), list(folded), 1, 0.5)
    hint = f"; did you mean {folded[near[0]]!r}?" if near else ""
    raise ValueError(
        f"unknown {what}: {name!r}{hint} (allowed: {', '.join(map(str, allowed)) or 'none'})"
    )


def stream(seed, name):
    """A named stream of random numbers out of one integer seed: a 63-bit seed for a generator."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Ghost:
    """A ghost module (GhostBERT sections 2.1, 2.2, 4.1, 4.2)."""

    kind: str  # convolution: see GHOST_KINDS
    positions: tuple  # where in each layer: see GHOST_POSITIONS
    kernel: int  # taps, odd
    features: int = 1  # F ghost features; above 1 every head has kernels of its own
    softmax: bool = False  # normalise the taps; the paper says so for dwconv alone
    relu: bool = False  # on each ghost feature, before it is added
    mask: bool = False  # zero the padded positions first; the paper does not say
    init: str = "xavier"  # of the raw kernel; the paper does not say ("uniform": equal taps)
    # or "inputs", all weights that an output of "conv1d_*" sums; the paper leaves both open
    softmax_over: str = "taps"
    # the one length that "conv1d_f" takes, its tokens being channels; 0 for other kinds
    tokens: int = 0

    def __post_init__(self):
        object.__setattr__(self, "positions", tuple(self.positions))
        one_of("Ghost", "kind", self.kind, GHOST_KINDS)
        for position in self.positions:
            one_of("Ghost", "positions", position, GHOST_POSITIONS)
        one_of("Ghost", "init", self.init, ("xavier", "uniform"))
        one_of("Ghost", "softmax_over", self.softmax_over, ("taps", "inputs"))
        for name, low in (("features", 1), ("kernel", 1), ("tokens", 0)):
            at_least("Ghost", name, getattr(self, name), low)
        wrong = ""
        if self.kernel % 2 == 0:
            wrong = f"kernel is {self.kernel}; an even kernel has no centre tap: take an odd one"
        elif self.softmax_over == "inputs" and not (
            self.softmax and self.kind in ("conv1d_s", "conv1d_f")
        ):
            wrong = (
                "softmax_over is 'inputs'; that takes softmax, and a kind that mixes channels: "
                "'conv1d_s' or 'conv1d_f'"
            )
        elif self.tokens and self.kind != "conv1d_f":
            wrong = f"tokens is {self.tokens}; {self.kind!r} takes any length: leave it at 0"
        if wrong:
            raise ValueError(f"Ghost.{wrong}")

    @property
    def whole(self):
        """What the cut before this ghost leaves whole: values "v", output projection "o" (4.2)."""
        return ("v", "o") if "qk" in self.positions else ("o",) if "v" in self.positions else ()

    def fits(self, pruned):
        """Raises ValueError where kind, positions, features and cut do not go together. pruned:
        whether the model has lost heads."""
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
            raise ValueError(wrong)
