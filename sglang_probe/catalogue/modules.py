"""The modules of one SGLang, and what each binds to a name, `import *` seen through."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sglang_probe.catalogue.bindings import STAR, Binding, Imported, bindings
from sglang_probe.catalogue.errors import Unreadable
from sglang_probe.catalogue.sources import Source

MOST_LOOKUPS: Final = 1000
"""Of one name of one module, over the whole table: a release takes under fifty."""


@dataclass(frozen=True)
class Module:
    """A parsed module."""

    name: str
    package: str
    lines: Sequence[str]
    bound: Sequence[Binding]


@dataclass(frozen=True)
class Modules:
    """The modules of one source, each parsed once."""

    source: Source
    _parsed: dict[str, Module | None] = field(default_factory=dict)
    _bound: dict[tuple[str, str], list[Binding]] = field(default_factory=dict)
    _steps: Counter[tuple[str, str]] = field(default_factory=Counter)

    def module(self, name: str) -> Module | None:
        """Return the module, or None where the source has none. Raises Unreadable where it does not parse."""
        if name not in self._parsed:
            self._parsed[name] = _parse(self.source, name)
        return self._parsed[name]

    def bound(self, module: Module, name: str) -> list[Binding]:
        """Return the bindings of a name; one that `import *` brings becomes an import of that name.

        Raises Unreadable where a module on the way does not parse, or the name is asked for without end.
        """
        self._step(module, name)
        if (module.name, name) not in self._bound:
            self._bound[module.name, name] = list(self._binding(module, name))
        return self._bound[module.name, name]

    def _binding(self, module: Module, name: str) -> Iterator[Binding]:
        for binding in module.bound:
            if binding.name == name:
                yield binding
            elif (star := _star(binding)) is not None and self._exports(star, name, {module.name}):
                yield Binding(name, Imported(star, name), binding.sure)

    def _exports(self, name: str, wanted: str, asked: set[str]) -> bool:
        """Tell whether `from {name} import *` binds `wanted`; modules that were `asked` already need not be again."""
        if name in asked or not name.startswith("sglang"):
            return False
        asked.add(name)
        module = self.module(name)
        if module is None:
            return False
        listed = [binding.what for binding in module.bound if binding.name == "__all__"]
        if listed and isinstance(listed[-1], ast.List | ast.Tuple):
            return any(isinstance(one, ast.Constant) and one.value == wanted for one in listed[-1].elts)
        return not wanted.startswith("_") and any(
            binding.name == wanted or ((star := _star(binding)) is not None and self._exports(star, wanted, asked))
            for binding in module.bound
        )

    def _step(self, module: Module, name: str) -> None:
        """Count how often a name is looked up: conditions that lead from each other to each other have no end."""
        self._steps[module.name, name] += 1
        if self._steps[module.name, name] > MOST_LOOKUPS:
            raise Unreadable(f"{name} of {module.name} is bound to too many names that lead to one another")


def _star(binding: Binding) -> str | None:
    """Return the module of which a binding imports everything."""
    return binding.what.module if binding.name == STAR and isinstance(binding.what, Imported) else None


def _parse(source: Source, name: str) -> Module | None:
    found = source.module(name)
    if found is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a string is SGLang's affair
            tree = ast.parse(found.text)
            package = name if found.is_package else name.rpartition(".")[0]
            return Module(name, package, found.text.split("\n"), list(bindings(tree.body, package)))
    except SyntaxError as error:
        raise Unreadable(f"{name} does not parse: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{name} does not parse: {error or type(error).__name__}") from error
