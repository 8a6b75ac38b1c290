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
    """Let marked functions compute each result only once within a `with` block.

    `reuse_result` marks such functions. Planning thousands of experiments asks them for
    the same few results again and again. A block within another one shares the results
    of the outer block. When the outermost block ends, all results are forgotten, so
    that changed files are noticed.

    is_new: whether this block starts without the results of the block around it,
    because they may differ here."""
    global _results
    before = _results
    if is_new or _results is None:
        _results = {}
    try:
        yield
    finally:
        _results = before


def reuse_result(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function, so that it computes each result once within `reuse_results`.

    This decorator returns the earlier result for arguments that are equal and of the
    same types. Outside of a `reuse_results` block every call computes. The result must
    be an object that nobody changes, or a dict, of which each caller gets a copy. A
    call is always computed where an argument has no hash, or is an object of a subclass
    of str: such objects may be equal as strings and still differ in their
    attributes."""

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
