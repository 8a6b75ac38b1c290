"""This module reuses results while runs are planned: reading all grids asks for the
same few Specs and descriptors of data thousands of times.

    with enable_result_cache():
        rows = grid("mini")

Within the block a function marked by `cache_results_while_enabled` computes each result
once. Outside of it, each call looks at the files anew, so that changed data are
noticed."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_results: dict[Any, Any] | None = None


@contextmanager
def enable_result_cache(start_with_empty_cache: bool = False) -> Iterator[None]:
    """Let marked functions compute each result only once within a `with` block.

    `cache_results_while_enabled` marks such functions. Planning thousands of
    experiments asks them for the same few results again and again. A block within
    another one shares the results of the outer block. When the outermost block ends,
    all results are forgotten, so that changed files are noticed.

    start_with_empty_cache: whether this block starts without the results of the block
    around it, because they may differ here."""
    global _results
    before = _results
    if start_with_empty_cache or _results is None:
        _results = {}
    try:
        yield
    finally:
        _results = before


def cache_results_while_enabled(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function, so that it computes each result once within
    `enable_result_cache`.

    This decorator returns the earlier result for arguments that are equal and of the
    same types. Outside of such a `with` block every call computes. The result
    must be an object that nobody changes, or a dict, of which each caller gets a copy.
    A call is always computed where an argument has no hash, or is an object of a
    subclass of str: such objects may be equal as strings and still differ in their
    attributes."""

    @functools.wraps(function)
    def compute_or_reuse_result(*args: P.args, **keywords: P.kwargs) -> T:
        values = (*args, *keywords.values())
        if _results is None or any(
            isinstance(value, str) and type(value) is not str for value in values
        ):
            return function(*args, **keywords)
        key = (function, args, *keywords.items(), *map(type, values))
        try:
            hash(key)
        except TypeError:
            return function(*args, **keywords)
        if key not in _results:
            _results[key] = function(*args, **keywords)
        return _copy_if_dict(_results[key])

    return compute_or_reuse_result


def _copy_if_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
