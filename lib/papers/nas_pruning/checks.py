"""A setting that a Spec leaves out has its default from here (lib.claims.checks)."""

from collections.abc import Callable
from typing import Any

from lib.papers.nas_pruning.options import Gates

OPTIONS: dict[str, type] = {"gates": Gates}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
