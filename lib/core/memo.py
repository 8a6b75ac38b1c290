"""This module reuses results while runs are planned: reading all grids asks for the
same few Specs and descriptors of data thousands of times.

    with reuse_results():
        rows = grid("mini")

Within the block a function marked by `reuse_result` computes each result once. Outside
of it, each call looks at the files anew, so that changed data are noticed."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_results: dict[Any, Any] | None = None


@contextmanager
def reuse_results(is_new: bool = False) -> Iterator[None]:
    """Compute each result of functions that `reuse_result` marks once within a `with`
    block.

    is_new: whether results of an outer block are not reused, as they may differ."""
    global _results
    before = _results
    if is_new or _results is None:
        _results = {}
    try:
        yield
    finally:
        _results = before


def reuse_result(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose result is reused within `reuse_results`, for arguments that
    are equal and of the same types.

    It has to return something that nobody changes, or a dict, which is copied. A call
    with an argument that has no hash is computed. So is one with an object of a
    subclass of str: two readers' profiles are equal as strings, and have other data."""

    @functools.wraps(function)
    def look_up(*args: P.args, **keywords: P.kwargs) -> T:
        values = (*args, *keywords.values())
        if _results is None or any(map(_is_equal_to_others, values)):
            return function(*args, **keywords)
        key = (function, args, *keywords.items(), *map(type, values))
        try:
            hash(key)
        except TypeError:
            return function(*args, **keywords)
        if key not in _results:
            _results[key] = function(*args, **keywords)
        return _copy_dict(_results[key])

    return look_up


def _copy_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _is_equal_to_others(value: Any) -> bool:
    return isinstance(value, str) and type(value) is not str
