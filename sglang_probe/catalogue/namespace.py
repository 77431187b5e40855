"""Following a name to the function behind it, across the files of one SGLang, without running any of them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sglang_probe.catalogue.bindings import Binding, Imported, What, bindings, standing
from sglang_probe.catalogue.modules import Module, Modules
from sglang_probe.events.fingerprint import fingerprint_node

_PROPERTIES: Final = frozenset({"property", "cached_property", "setter", "getter", "deleter"})
_NOT_CALLABLE: Final = frozenset({"property", "cached_property", "partialmethod"})
_HIDING: Final = frozenset({"partial", "attrgetter", "itemgetter", "methodcaller"})
"""Calls whose result hides the function that they were given: nothing leads to its body in a live process either."""


_PARTIAL_BINDS: Final = hasattr(functools.partial, "__get__")
"""From Python 3.13 on."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a name leads to."""

    kind: Literal["function", "other", "nothing"]
    """`other` is what cannot be hooked; a function has a fingerprint, or a reason why it has none."""
    fingerprint: str | None = None
    reason: str | None = None


NOTHING: Final = Found("nothing")
Seen: TypeAlias = frozenset[tuple[str, str]]
"""Names that are being followed already: two modules may import them from each other."""


class Files(Modules):
    """The modules of one source, and where the names in them lead."""

    def find(self, module: Module, path: str) -> Found:
        """Return what `Class.name` or `name` of a module leads to: what it binds itself, nothing inherited.

        Raises Unreadable where a module on the way does not parse, or the way branches without end.
        """
        owner, _, name = path.rpartition(".")
        if not owner:
            return self._best(module, standing(self.bound(module, name)), frozenset({(module.name, name)}))
        classes = self._classes(module, owner, frozenset())
        if not classes:
            return NOTHING
        where, holder = classes[0]
        own = [binding for binding in bindings(holder.body, where.package) if binding.name == name]
        return self._best(where, standing(own), frozenset({(_scope(where, holder), name)}), holder)

    def _classes(self, module: Module, name: str, seen: Seen) -> list[tuple[Module, ast.ClassDef]]:
        """Return the class of that name and the module that defines it; where there are several, in order."""
        if (module.name, name) in seen:
            return []
        seen |= {(module.name, name)}
        found = []
        for binding in standing(self.bound(module, name)):
            if isinstance(binding.what, ast.ClassDef):
                found.append((module, binding.what))
            elif isinstance(binding.what, Imported):
                origin = self.module(binding.what.module) if binding.what.module.startswith("sglang") else None
                found += self._classes(origin, binding.what.name, seen) if origin else []
            elif isinstance(binding.what, ast.Name):
                found += self._classes(module, binding.what.id, seen)
        return found

    def _best(
        self, module: Module, candidates: Sequence[Binding], seen: Seen, holder: ast.ClassDef | None = None
    ) -> Found:
        """Return the first candidate that can be hooked, else the last one."""
        found = [self._follow(module, binding.what, seen, holder) for binding in candidates]
        functions = [one for one in found if one.kind == "function"]
        return functions[0] if functions else found[-1] if found else NOTHING

    def _follow(self, module: Module, what: What, seen: Seen, holder: ast.ClassDef | None) -> Found:
        if isinstance(what, ast.FunctionDef | ast.AsyncFunctionDef):
            return _function(module, what)
        if isinstance(what, ast.ClassDef):
            return _other("class")
        if isinstance(what, Imported):
            return self._imported(what, seen)
        return NOTHING if what is None else self._value(module, what, seen, holder)

    def _imported(self, what: Imported, seen: Seen) -> Found:
        if what.module.partition(".")[0] != "sglang":
            return Found("function", reason=f"imported from {what.module}, which is not SGLang's")
        if (what.module, what.name) in seen:
            return NOTHING
        module = self.module(what.module) if what.name else None
        candidates = standing(self.bound(module, what.name)) if module else []
        if candidates and module:
            return self._best(module, candidates, seen | {(what.module, what.name)})
        if not what.name or self.module(f"{what.module}.{what.name}") is not None:
            return _other("module")
        return NOTHING

    def _value(self, module: Module, value: ast.expr, seen: Seen, holder: ast.ClassDef | None) -> Found:
        if isinstance(value, ast.Constant):
            return NOTHING if value.value is None else _other(type(value.value).__name__)
        if isinstance(value, ast.List | ast.Dict | ast.Set | ast.Tuple | ast.JoinedStr):
            return _other(type(value).__name__.lower())
        if isinstance(value, ast.Lambda):
            return Found("function", reason="a lambda")
        if isinstance(value, ast.IfExp):
            return self._best(module, [Binding("", one, False) for one in (value.body, value.orelse)], seen, holder)
        if isinstance(value, ast.Name):
            return self._name(module, value.id, seen, holder)
        if isinstance(value, ast.Attribute):
            return self._attribute(module, value)
        if isinstance(value, ast.Call):
            return self._call(module, value, seen, holder)
        return Found("function", reason="assigned from an expression")

    def _name(self, module: Module, name: str, seen: Seen, holder: ast.ClassDef | None) -> Found:
        """A name in its own assignment, as in `load = wrapped(load)`, means what was bound to it before."""
        scopes = [(module.name, self.bound(module, name))]
        if holder:
            own = [binding for binding in bindings(holder.body, module.package) if binding.name == name]
            scopes.insert(0, (_scope(module, holder), own))
        for scope, found in scopes:
            again = (scope, name) in seen
            bound = [one for one in found if not isinstance(one.what, ast.expr)] if again else found
            if standing(bound):
                return self._best(module, standing(bound), seen | {(scope, name)}, holder)
        return Found("function", reason=f"assigned from {name}")

    def _attribute(self, module: Module, value: ast.Attribute) -> Found:
        path = ast.unparse(value)
        found = self.find(module, path) if path.count(".") == 1 else NOTHING
        return found if found.kind != "nothing" else Found("function", reason=f"assigned from {path}")

    def _call(self, module: Module, call: ast.Call, seen: Seen, holder: ast.ClassDef | None) -> Found:
        """A decorator called by hand gives back its function, wrapped."""
        called = _last_name(call.func)
        if called in _NOT_CALLABLE:
            return _other(called)
        if called in _HIDING and holder and not (called == "partial" and _PARTIAL_BINDS):
            return Found("other", reason=f"a {called}, which does not bind to instances as a function does")
        for argument in [] if called in _HIDING else call.args[:1]:
            if isinstance(argument, ast.Name | ast.Attribute | ast.Call):
                inner = self._value(module, argument, seen, holder)
                if inner.kind == "function":
                    return inner
        return Found("function", reason=f"assigned from a call of {called}")


def _scope(module: Module, holder: ast.ClassDef) -> str:
    return f"{module.name}:{holder.name}"


def _other(kind: str) -> Found:
    return Found("other", reason=f"a {kind}, not a function")


def _function(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Found:
    properties = [name for name in map(_last_name, node.decorator_list) if name in _PROPERTIES]
    if properties:
        return _other("cached_property" if "cached_property" in properties else "property")
    later = _works_later(node)
    if later:
        return Found("other", reason=f"{later}: it works after it has returned")
    return Found("function", fingerprint_node(module.lines, node))


def _works_later(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Name what a call returns that has not begun to work yet: a span around the call would measure nothing."""
    yields = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in _own_nodes(node.body))
    if isinstance(node, ast.AsyncFunctionDef):
        return "an asynchronous generator" if yields else "a coroutine"
    return "a generator" if yields else None


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a function's own code: not those of a function or class inside it."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            yield from _own_nodes(list(ast.iter_child_nodes(node)))


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "an expression"
