"""A setting that a Spec leaves out has its default from here (lib.claims.checks)."""

from collections.abc import Callable
from typing import Any

from lib.papers.bermo.options import Prune

OPTIONS: dict[str, type] = {"prune": Prune}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
