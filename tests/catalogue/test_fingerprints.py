"""The fingerprint that the agent takes of a live function is the one that is taken of its source, on real releases."""

from __future__ import annotations

import ast
import io
import linecache
import types
import warnings
from collections.abc import Iterator

import pytest

from sglang_probe.catalogue.resolve import resolve
from sglang_probe.catalogue.sources import ModuleText, Source, from_wheel
from sglang_probe.catalogue.targets import MODULES, TARGETS
from sglang_probe.catalogue.wheels import wheel_of
from sglang_probe.events.fingerprint import fingerprint, fingerprint_node

RELEASES = ("0.4.3", "0.4.6.post5", "0.5.2", "0.5.9", "0.5.14", "0.5.16", "0.5.23")
"""One of each era; `compat/compat.py` and its own test look at all of them."""


def live_functions(code: types.CodeType, name: str = "") -> Iterator[tuple[str, types.FunctionType]]:
    """Every function of a compiled file by its path, made live without running the file."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            path = f"{name}.{constant.co_name}".lstrip(".")
            cells = tuple(types.CellType() for _ in constant.co_freevars)
            yield path, types.FunctionType(constant, {}, closure=cells)
            yield from live_functions(constant, path)


def nodes(body: list[ast.stmt], name: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a parsed file by its path, in the order of its code objects."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = f"{name}.{node.name}".lstrip(".")
            if not isinstance(node, ast.ClassDef):
                yield path, node
            yield from nodes(node.body, path)


def compiled(module: ModuleText) -> types.CodeType:
    """Compile a module under a name whose lines Python can look up."""
    file = f"<{module.name}>"
    linecache.cache[file] = (len(module.text), None, list(io.StringIO(module.text)), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(module.text, file, "exec", dont_inherit=True)


def wheel(version: str) -> Source:
    return from_wheel(wheel_of(version))


@pytest.mark.parametrize("version", RELEASES)
def test_of_every_function_of_the_modules_that_hold_targets(version: str) -> None:
    source = wheel(version)
    compared = 0
    for name in MODULES:
        module = source.module(name)
        if module is None:
            continue
        lines = module.text.split("\n")
        parsed = {node.lineno: (path, node) for path, node in nodes(ast.parse(module.text).body)}
        first_lines = {
            min([node.lineno, *(one.lineno for one in node.decorator_list)]): node for _, node in parsed.values()
        }
        for path, function in live_functions(compiled(module)):
            node = first_lines.get(function.__code__.co_firstlineno)
            if node is not None and node.name == function.__name__:
                compared += 1
                assert fingerprint_node(lines, node) == fingerprint(function), f"{name}:{path}"
    assert compared > len(TARGETS)


@pytest.mark.parametrize("version", RELEASES)
def test_of_every_home(version: str) -> None:
    source = wheel(version)
    live = {
        name: dict(live_functions(compiled(module))) for name in MODULES if (module := source.module(name)) is not None
    }
    homes = [row for row in resolve(source) if row.fingerprint and row.target.path in live[row.target.module]]
    assert len(homes) > len(TARGETS) // 5
    assert [] == [row for row in homes if row.fingerprint != fingerprint(live[row.target.module][row.target.path])]
