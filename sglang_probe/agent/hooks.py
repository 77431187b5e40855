"""Put the hooks in and take them out: wrap each home of a module that has loaded, and say what became of each."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from sglang_probe.agent.proxies import BoundHook, Hook, leads_to
from sglang_probe.catalogue.targets import Target, targets_of
from sglang_probe.events.fingerprint import fingerprint
from sglang_probe.events.names import TargetState

if TYPE_CHECKING:
    from sglang_probe.agent.core import Agent

TRIMS_ITS_FRAME = sys.version_info >= (3, 11)
# The descriptor itself: a host's exception may be frozen, or have a `__traceback__` of its own making.
TRACE: Any = BaseException.__dict__["__traceback__"]
# A span around the call would end before the work begins.
WORKS_LATER = {
    inspect.CO_GENERATOR: "a generator",
    inspect.CO_COROUTINE: "a coroutine",
    inspect.CO_ITERABLE_COROUTINE: "a coroutine",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator",
}


@dataclass(eq=False, slots=True)
class Place:
    """Where a hook went, and what stood there before."""

    target: Target
    module: ModuleType
    owner: Any
    original: Any
    hook: Any = None
    through: Any = None
    """What stood in this place when the hook was last called: it leads here, though it may not show how."""

    @property
    def name(self) -> str:
        """The attribute of `owner`."""
        return self.target.path.rpartition(".")[2]

    def put(self, function: Any) -> None:
        """Make `function` what stands here. The attribute exists already, so the order of the owner's stays."""
        setattr(self.owner, self.name, function)

    def standing(self) -> Any:
        """Return what a caller finds under the target's path now."""
        owner = _owner(self.module, self.target.path)
        return next((vars(base)[self.name] for base in _bases(owner) if self.name in vars(base)), None)

    def in_force(self) -> bool:
        """Tell whether a call of the target still leads to the hook, as far as can be seen."""
        return self.is_reached_by(self.standing())

    def is_reached_by(self, function: Any) -> bool:
        """Tell whether a call of `function` leads to the hook, as far as can be seen."""
        return function is self.through or leads_to(function, self.hook)


class Hooks:
    """The hooks of this process."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._places: dict[str, Place] = {}
        self._on = True

    def install(self, module: ModuleType) -> None:
        """Wrap every target of `module` that it defines, and report each row."""
        self._on = True
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
        """Return the targets whose hook a call no longer reaches: replaced, or the original was put back."""
        return [place.target for place in list(self._places.values()) if self._on and not place.in_force()]

    def remove(self) -> dict[str, str | None]:
        """Put every original back; return for each target why its hook had to stay, None where it is out.

        A hook that others still hold (a wrapper over it, an early import) passes every call through from here on.
        """
        self._on = False
        return {name: self._remove(place) for name, place in reversed(list(self._places.items()))}

    def _remove(self, place: Place) -> str | None:
        reason = None
        try:
            if vars(place.owner).get(place.name) is place.hook:
                place.put(place.original)
            elif place.in_force():
                reason = "another tool has wrapped the hook: it stays and passes every call through"
        except Exception as error:
            reason = f"it stays and passes every call through: {type(error).__name__}: {error}"
        if reason is None:
            del self._places[place.target.name]
        self._agent.report_target(place.target, "removed", reason, None)
        return reason

    def _install(self, target: Target, module: ModuleType) -> tuple[TargetState, str | None, Any]:
        owner, function = _owner(module, target.path), _lookup(module, target.path)
        if function is None:
            return "absent", None, None
        if target.unless and _exists(target.unless, module):
            return "nested", f"{target.unless} is hooked instead", function
        before = self._places.get(target.name)
        if type(function) in (Hook, BoundHook) or (before is not None and before.is_reached_by(function)):
            return "applied", "hooked before", function
        unfit = _unfit(function, owner)
        if unfit is not None:
            return "failed", unfit, None
        place = Place(target, module, owner, function)
        place.hook = place.through = Hook(function, self._wrapper(place))
        place.put(place.hook)
        self._places[target.name] = place
        return "applied", self._taken_early(place), function

    def _taken_early(self, place: Place) -> str | None:
        """Say who took the function before it was hooked. Their names are theirs: they are not bound over."""
        defined_in = getattr(place.original, "__module__", None)
        if place.owner is not place.module or defined_in != place.module.__name__:
            return None  # a method is looked up in its class; a name imported from elsewhere is hooked here alone
        with self._agent.health.guard("hook"):
            modules = _possible_takers(place.module)
            takers = sorted({name for name, contents in modules if contents.get(place.name) is place.original})
            if takers:
                reason = f"not hooked where it was imported before: {', '.join(takers)}"
                self._agent.health.degrade("hook", "taken_early", f"{place.target.name} is {reason}")
                return reason
        return None

    def _wrapper(self, place: Place) -> Callable[..., Any]:
        agent = self._agent

        def sglang_probe_passthrough(
            wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
        ) -> Any:
            if self._on:
                with agent.health.guard("hook"):
                    place.through = place.standing()
            call = agent.begin(place.target, place.original, instance, args, kwargs) if self._on else None
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

        return sglang_probe_passthrough


def _owner(module: ModuleType, path: str) -> Any:
    """Return the class of the module that `path` names, the module itself for a function, None where it is gone."""
    owner = path.rpartition(".")[0]
    return vars(module).get(owner) if owner else module


def _lookup(module: ModuleType, path: str) -> Any:
    """Return what the module or class itself defines under `path`, unbound, or None: an inherited one is not it."""
    owner = _owner(module, path)
    return None if owner is None else vars(owner).get(path.rpartition(".")[2])


def _exists(home: str, module: ModuleType) -> bool:
    """Return whether `path`, or `module:path` of a module that has loaded, is there."""
    name, _, path = home.rpartition(":")
    holder = sys.modules.get(name) if name else module
    return isinstance(holder, ModuleType) and _lookup(holder, path) is not None


def _bases(owner: Any) -> tuple[Any, ...]:
    return () if owner is None else getattr(owner, "__mro__", (owner,))


def _possible_takers(module: ModuleType) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and contents of those modules of SGLang that may have imported from `module` by now."""
    names = list(sys.modules)
    if getattr(module.__spec__, "_initializing", False):  # only those that it imports itself, in a circle
        names = [name for name in names[names.index(module.__name__) :] if name != module.__name__]
    for name in ["__main__", *names]:
        taker = sys.modules.get(name)
        if name.startswith(("sglang.", "__main__", "__mp_main__")) and isinstance(taker, ModuleType):
            yield name, object.__getattribute__(taker, "__dict__")  # not `vars`: one that loads lazily would load


def _unfit(function: Any, owner: Any) -> str | None:
    """Say why a hook on this would tell an untruth or do harm, or None."""
    kind = f"a {type(function).__name__}"
    if isinstance(function, type) or not (callable(function) or isinstance(function, (staticmethod, classmethod))):
        return f"{kind}, not a function"
    if isinstance(owner, type) and not hasattr(function, "__get__"):
        return f"{kind}, which does not bind to instances as a function does"  # wrapt 1.16 raises at each access
    inner = inspect.unwrap(function)
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    for flag, later in WORKS_LATER.items():
        if isinstance(code, CodeType) and code.co_flags & flag:
            return f"{later}: it works after it has returned"
    return None
