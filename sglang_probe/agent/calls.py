"""One call of a hooked function, and what a reader may say about it."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_probe.agent.core import Agent
    from sglang_probe.catalogue.targets import Target

Attributes = dict[str, Any]


@dataclass
class Call:
    """A call in progress. `notes` collects what observers inside it saw; children may look at their parent's call."""

    agent: Agent
    target: Target
    wrapped: Callable[..., Any]
    instance: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    parent: Call | None = None
    span_id: str = ""
    worker: str | None = None
    draft_index: int | None = None
    before: dict[str, Any] | None = None
    began_ns: int = 0
    notes: Attributes = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, defaults included: releases change their order, so positions mean nothing."""
        # SGLang's own function is asked, not what wrapt hands over: up to 2.0 that one's signature still has `self`
        # where the call came through the class (`Runner.method(runner, ...)`, as other tools and plugins call it).
        function = getattr(self.wrapped, "__func__", self.wrapped)
        subject = () if self.instance is None else (self.instance,)
        bound = inspect.signature(function).bind(*subject, *self.args, **self.kwargs)
        bound.apply_defaults()
        names = list(bound.arguments)[len(subject) :]
        return {name: bound.arguments[name] for name in names}

    @property
    def subject(self) -> Any:
        """What the call is about: the instance of a method, or the `model_runner` that a function is given."""
        return self.kwargs.get("model_runner") if self.instance is None else self.instance

    def enclosing(self, role: str) -> Call | None:
        """Return the innermost call around this one that has the role."""
        call = self.parent
        while call is not None and call.target.role != role:
            call = call.parent
        return call


def nothing(_: Call) -> Attributes:
    """Say nothing: most roles know nothing before they have run."""
    return {}


@dataclass(frozen=True, slots=True)
class Reader:
    """How a home is read: what to say when it begins and when it has ended (or raised: then `call.error` is set)."""

    end: Callable[[Call], Attributes] = nothing
    begin: Callable[[Call], Attributes] = nothing


def number(value: Any) -> float | int | None:
    """Return a plain number (numpy's included), or None for anything else: a tensor, a stand-in, a bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def integer(value: Any) -> int | None:
    """Return a plain int (numpy's included), or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def text(value: Any) -> str | None:
    """Return the text of a value, None for None; `torch.bfloat16` is written `bfloat16`."""
    return None if value is None else str(value).removeprefix("torch.")


def gib_to_bytes(gib: float | int | None) -> int | None:
    """Return a figure of SGLang's (a float in GiB) in whole bytes."""
    return None if gib is None or gib - gib != 0 else round(gib * (1 << 30))


def tensor_bytes(tensor: Any) -> int | None:
    """Return the bytes of a tensor, or None where it is none."""
    try:
        return int(tensor.numel()) * int(tensor.element_size())
    except (AttributeError, TypeError):
        return None
