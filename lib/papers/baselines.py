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


def grid(names=()):
    """One row for each architecture: what it costs at 128 tokens with a head of two classes."""
    told = {"tokens": TOKENS, "labels": LABELS}
    specs = {
        name: Spec("count", {"config": CONFIGS[name]} | told, seed=0) for name in names or CONFIGS
    }
    return [{"model": name, "seed": 0, "spec": spec} for name, spec in specs.items()]
