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
    """A meta path finder that finds nothing itself: it lends the specs of target modules a loader that tells us."""

    def __init__(self) -> None:
        self.targets: frozenset[str] | None = None
        self._asking: set[tuple[int, str]] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for a target module, or None for every other module."""
        if not fullname.startswith(WATCHED_PREFIX):
            return None
        question = get_ident(), fullname
        if question in self._asking:  # another finder asks all finders, as we do
            return None
        try:
            if fullname not in self._targets():
                return None
            self._asking.add(question)
            spec = self._spec_of_others(fullname, path, target)
            if spec is None or not hasattr(spec.loader, "exec_module"):
                return None
            spec.loader = Loader(spec.loader)  # type: ignore[assignment]  # a loader by what it does
            return spec
        except Exception as error:  # whatever fails here, SGLang's import must not
            disarm(f"the import of {fullname} could not be watched: {type(error).__name__}: {error}")
            return None
        finally:
            self._asking.discard(question)

    def _targets(self) -> frozenset[str]:
        if self.targets is None:
            from sglang_probe.agent.targets import MODULES

            self.targets = MODULES
        return self.targets

    def _spec_of_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


class Loader:
    """A module's own loader, with one thing added: the agent hears of the module when it has been executed."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back to its own loader for good, execute it, then tell the agent."""
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
        loaded(module)


def arm() -> None:
    """Put the finder in front of the others, once. Modules that are loaded already are hooked at once."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    finder = Finder()
    sys.meta_path.insert(0, finder)
    if "sglang" in sys.modules:
        for name in sorted(finder._targets() & sys.modules.keys()):
            loaded(sys.modules[name])


def disarm(reason: str) -> None:
    """Stop watching, and say once why; SGLang goes on as if the probe were not there. Never raises."""
    others = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    if len(others) == len(sys.meta_path):
        return  # said already: a module that was being imported meanwhile comes here too
    sys.meta_path[:] = others
    try:
        from sglang_probe.agent.runs import say_for_run

        say_for_run(f"nothing will be recorded: {reason}")
    except Exception:  # a module of the host's may stand in the way of the one we need; SGLang's import must go on
        pass


def loaded(module: ModuleType) -> None:
    """Hook the targets of a module that has just been executed."""
    try:
        from sglang_probe.agent.core import agent

        agent().hook(module)
    except ImportError as error:
        name = error.name or str(error)
        disarm(f"{name} is missing or broken ({error}); mend it with: {sys.executable} -m pip install wrapt structlog")
    except Exception as error:  # a broken probe must not break SGLang
        disarm(f"{module.__name__} could not be hooked: {type(error).__name__}: {error}")
