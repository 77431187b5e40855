"""Watch for SGLang's modules: an import finder that costs a string comparison until one of them loads.

Every Python process under the probe's PYTHONPATH imports this file, so it imports nothing that is not already there.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False  # typing's own costs 2 ms to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

WATCHED_PREFIX = "sglang."

# The descriptor itself: a host's exception may be frozen, or have a `__traceback__` of its own making.
_TRACE: Any = BaseException.__dict__["__traceback__"]


class Finder:
    """A meta path finder that finds nothing itself: it lends the specs of target modules a loader that tells us.

    Another tool's finder may stand in front. One that lets the questions through stays there. One that loads target
    modules without us is overtaken, once: we ask the others in their order, so it works as before. One that then
    insists is left in front, and what it loads is hooked a little late.
    """

    def __init__(self) -> None:
        self.targets: frozenset[str] | None = None
        self.told: set[str] = set()
        self.watches = True
        self._asking: set[tuple[int, str]] = set()
        self._unfinished: set[str] = set()
        self._overtaken: list[Any] = []
        self._passed_by: Any = None  # the finder in front that last let a question about SGLang through

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for a target module, or None for every other module."""
        first, watched = sys.meta_path[0], fullname.startswith(WATCHED_PREFIX)
        suspect = first is not self and (watched or self._passed_by is not first) and "sglang" in sys.modules
        if not (watched or suspect or self._unfinished):
            return None
        question = get_ident(), fullname
        if question in self._asking:  # another finder asks all finders, as we do
            return None
        try:
            if watched:
                self._passed_by = first
            finished = any(not _is_being_executed(name) for name in self._unfinished)
            if (suspect or finished) and self.catch_up() and suspect:
                self._overtake(first)
            if not watched or fullname not in self._targets():
                return None
            self._asking.add(question)
            spec = self._spec_of_others(fullname, path, target)
            if spec is None or not hasattr(spec.loader, "exec_module"):
                return None
            spec.loader = Loader(spec.loader, self)  # type: ignore[assignment]  # a loader by what it does
            return spec
        except Exception as error:  # whatever fails here, SGLang's import must not
            disarm(f"the import of {fullname} could not be watched: {type(error).__name__}: {error}")
            return None
        finally:
            self._asking.discard(question)

    def tell(self, module: ModuleType) -> None:
        """Hook a module that has been executed, and those that were loaded without us meanwhile."""
        if self.watches:
            loaded(module)
            self.catch_up()

    def catch_up(self) -> bool:
        """Hook the target modules that have been loaded without us; tell whether there was one, loading or loaded."""
        here = get_ident(), ""
        if here in self._asking:  # what we import meanwhile asks us too
            return False
        self._asking.add(here)
        try:
            unseen = sorted(name for name in self._targets() - self.told if name in sys.modules)
            self._unfinished = {name for name in unseen if _is_being_executed(name)}
            for name in unseen:
                if name not in self._unfinished:
                    self.told.add(name)
                    loaded(sys.modules[name])
            return bool(unseen)
        except Exception as error:  # what stands in sys.modules need not be a module
            disarm(f"modules that were loaded unseen could not be hooked: {type(error).__name__}: {error}")
            return False
        finally:
            self._asking.discard(here)

    def _overtake(self, first: Any) -> None:
        places = [place for place, finder in enumerate(sys.meta_path) if finder is self]
        if places and not any(first is finder for finder in self._overtaken):  # in no place: disarmed
            self._overtaken.append(first)
            sys.meta_path.insert(0, self)  # first in, then out: the list is being walked, and nobody may be skipped
            del sys.meta_path[places[0] + 1]

    def _targets(self) -> frozenset[str]:
        if self.targets is None:
            from sglang_probe.catalogue.targets import MODULES

            self.targets = MODULES
        return self.targets

    def _spec_of_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                try:
                    spec = finder.find_spec(fullname, path, target)
                except Exception:  # one that forbids a module; Python asks it next, and then it raises to the host
                    return None
                if spec is not None:
                    return spec
        return None


def _is_being_executed(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class Loader:
    """A module's own loader, with one thing added: the agent hears of the module when it has been executed."""

    def __init__(self, loader: Any, finder: Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back to its own loader for good, execute it, then tell the agent."""
        self._finder.told.add(module.__name__)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:  # the module's own failure: this frame has no part in it
            trace = _TRACE.__get__(error)
            if trace is not None and sys.version_info >= (3, 11):
                _TRACE.__set__(error, trace.tb_next)
            del trace
            raise
        self._finder.tell(module)


def arm() -> None:
    """Put the finder in front of the others, once. Modules that are loaded already are hooked at once."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    finder = Finder()
    sys.meta_path.insert(0, finder)
    if "sglang" in sys.modules:
        finder.catch_up()


def unhook() -> dict[str, str | None]:
    """Stop watching and put SGLang's own functions back, until somebody arms again.

    Returns for each target None where the original is back, or why its hook stays (and passes every call through).
    """
    _stop()
    core = sys.modules.get("sglang_probe.agent.core")
    agent = getattr(core, "_agent", None)  # not started where no target module has loaded
    return {} if agent is None else dict(agent._hooks.remove())


def _stop() -> bool:
    """Take our finder out, and stop the loaders it has lent; tell whether there was one."""
    ours = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    for finder in ours:
        finder.watches = False
    return bool(ours)


def disarm(reason: str) -> None:
    """Stop watching, and say once why; SGLang goes on as if the probe were not there. Never raises."""
    if not _stop():
        return  # said already
    try:
        from sglang_probe.agent.runs import say_for_run

        say_for_run(f"nothing will be recorded: {reason}")
    except Exception:  # a module of the host's may stand in the way of the one we need; SGLang's import must go on
        pass


def loaded(module: ModuleType | None) -> None:
    """Hook the targets of a module that has just been executed; None stands for one that somebody forbids."""
    if module is None:
        return
    try:
        from sglang_probe.agent.core import agent

        agent().hook(module)
    except ImportError as error:
        name = error.name or str(error)
        disarm(f"{name} is missing or broken ({error}); mend it with: {sys.executable} -m pip install wrapt structlog")
    except Exception as error:  # a broken probe must not break SGLang
        disarm(f"{module.__name__} could not be hooked: {type(error).__name__}: {error}")
