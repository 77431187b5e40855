"""What stands in a function's place: it behaves as the function does, and can be found behind other wrappers."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import wrapt


class BoundHook(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]  # generic in the stubs of wrapt 2 alone
    """A hooked method as its class or an instance gives it out: it pickles and copies as the method does."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        method = self.__wrapped__
        if inspect.ismethod(method):
            return method.__reduce_ex__(protocol)
        owner, _, name = method.__qualname__.rpartition(".")
        return getattr, (functools.reduce(getattr, owner.split("."), sys.modules[method.__module__]), name)

    def __copy__(self) -> BoundHook:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        import copy

        function, arguments = self.__reduce_ex__(4)
        return function(*copy.deepcopy(arguments, memo))


class Hook(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # as above
    """A wrapped function that pickles and copies as the function does: by its name."""

    __bound_function_wrapper__ = BoundHook

    def __reduce_ex__(self, protocol: Any) -> str:
        name: str = self.__wrapped__.__qualname__
        return name

    def __copy__(self) -> Hook:
        return self

    def __deepcopy__(self, memo: Any) -> Hook:
        return self


def leads_to(function: Any, hook: Any) -> bool:
    """Tell whether a call of `function` seems to reach `hook`: through wrappers, partials, closures, or bound by it."""
    queue, seen = [function], set[int]()
    while queue and len(seen) < 64:  # wrappers on wrappers, but no endless chain
        item = queue.pop()
        if item is hook or (type(item) is BoundHook and item._self_parent is hook):
            return True
        if item is not None and id(item) not in seen:
            seen.add(id(item))
            queue += _held_by(item)
    return False


def _held_by(function: Any) -> Iterator[Any]:
    if isinstance(function, (functools.partial, functools.partialmethod)):
        yield function.func
    for cell in getattr(function, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if callable(content):
            yield content
    yield getattr(function, "__func__", None)
    yield getattr(function, "__wrapped__", None)
