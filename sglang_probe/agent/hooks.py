"""Put the hooks in: wrap each home of a module that has loaded, and say for each what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

from sglang_probe.agent.targets import Target, targets_of
from sglang_probe.events.fingerprint import fingerprint
from sglang_probe.events.names import TargetState

if TYPE_CHECKING:
    from sglang_probe.agent.core import Agent

TRIMS_ITS_FRAME = sys.version_info >= (3, 11)
# The descriptor itself: a host's exception may be frozen, or have a `__traceback__` of its own making.
TRACE: Any = BaseException.__dict__["__traceback__"]


class Hook(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic in the stubs of wrapt 2 alone
    """A wrapped function that pickles and copies as the function does: by its name."""

    def __reduce_ex__(self, protocol: Any) -> str:
        name: str = self.__wrapped__.__qualname__
        return name

    def __copy__(self) -> Hook:
        return self

    def __deepcopy__(self, memo: Any) -> Hook:
        return self


class Hooks:
    """The hooks of this process."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._applied: list[tuple[Target, ModuleType, Any]] = []
        self.called: set[str] = set()

    def install(self, module: ModuleType) -> None:
        """Wrap every target of `module` that it defines, and report each row."""
        for target in targets_of(module.__name__):
            try:
                state, reason, function = self._install(target, module)
            except Exception as error:  # one bad row must not take the others along
                state, reason, function = "failed", f"{type(error).__name__}: {error}", None
            print_of_body = None
            with self._agent.health.guard("fingerprint"):
                print_of_body = fingerprint(function) if function is not None else None
            self._agent.report_target(target, state, reason, print_of_body)

    def displaced(self) -> list[Target]:
        """Return the targets over which somebody has put something that has not led to our hook so far."""
        return [
            target
            for target, module, hook in self._applied
            if target.name not in self.called and not _leads_to(_lookup(module, target.path), hook)
        ]

    def _install(self, target: Target, module: ModuleType) -> tuple[TargetState, str | None, Any]:
        function = _lookup(module, target.path)
        if function is None:
            return "absent", None, None
        if target.unless and _lookup(module, target.unless) is not None:
            return "nested", f"called by {target.unless}", function
        if _is_ours(function):
            return "applied", "hooked before", function
        if isinstance(function, type) or not (callable(function) or isinstance(function, (staticmethod, classmethod))):
            return "failed", f"a {type(function).__name__}, not a function", None
        hook = wrapt.wrap_object(module, target.path, Hook, (self._wrapper(target),))
        self._applied.append((target, module, hook))
        return "applied", None, function

    def _wrapper(self, target: Target) -> Callable[..., Any]:
        agent, called = self._agent, self.called

        def sglang_probe_passthrough(
            wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
        ) -> Any:
            called.add(target.name)
            call = agent.begin(target, wrapped, instance, args, kwargs)
            try:
                result = wrapped(*args, **kwargs)
            except BaseException as error:
                agent.failed(call, error)
                call = None  # this frame may outlive the call: it must not tie the exception into a circle
                # Before 3.11 `raise` puts our frame back into SGLang's traceback: its name says what it is.
                trace = TRACE.__get__(error)
                if TRIMS_ITS_FRAME and trace is not None:
                    TRACE.__set__(error, trace.tb_next)
                del trace
                raise
            agent.ended(call, result)
            return result

        sglang_probe_passthrough.sglang_probe_target = target  # type: ignore[attr-defined]
        return sglang_probe_passthrough


def _lookup(module: ModuleType, path: str) -> Any:
    """Return what the module or class itself defines under `path`, unbound, or None: an inherited one is not it."""
    owner, _, name = path.rpartition(".")
    holder = getattr(module, owner, None) if owner else module
    return None if holder is None else vars(holder).get(name)


def _is_ours(function: Any) -> bool:
    return hasattr(getattr(function, "_self_wrapper", None), "sglang_probe_target")


def _leads_to(function: Any, hook: Any) -> bool:
    for _ in range(32):  # wrappers on wrappers, but no endless chain
        if function is hook:
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return False
    return False
