"""Architectures that GhostBERT's Table 2 quotes, counted on their public configurations.

Free of torch.
"""

import tomllib

from lib.paths import PUBLISHED
from lib.spec import Spec

TOKENS, LABELS = 128, 2

_QUOTED = tomllib.loads((PUBLISHED / "ghostbert" / "quoted.toml").read_text())
CONFIGS = {
    name: _QUOTED["kinds"][own["kind"]] | {k: v for k, v in own.items() if k != "kind"}
    for name, own in _QUOTED["models"].items()
}
NOTES = _QUOTED["notes"]  # why a quoted figure is not the counted one


def counted(name):
    """Spec of what an architecture costs at 128 tokens with a head of two classes."""
    return Spec("count", {"config": CONFIGS[name], "tokens": TOKENS, "labels": LABELS}, seed=0)
