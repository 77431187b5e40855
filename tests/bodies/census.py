"""Which bodies a class or function has had, read from the wheels: every one of them must run in this room."""

from __future__ import annotations

import ast
import hashlib
import zipfile
from collections.abc import Iterable
from functools import cache

from sglang_probe.catalogue.wheels import wheel_of


def bodies(module: str, path: str, versions: Iterable[str]) -> dict[str, list[str]]:
    """Return the releases of each body of `path` (a class, a function, or `Class.function`), by the body's hash."""
    found: dict[str, list[str]] = {}
    for version in versions:
        body = _body(_text(version, module), path)
        if body is not None:
            found.setdefault(body, []).append(version)
    return found


@cache
def _archive(version: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel_of(version))


@cache
def _text(version: str, module: str) -> str | None:
    name = module.replace(".", "/") + ".py"
    try:
        return _archive(version).read(name).decode()
    except KeyError:
        return None


@cache
def _body(text: str | None, path: str) -> str | None:
    if text is None:
        return None
    nodes: list[ast.stmt] = _tree(text).body
    node: ast.stmt | None = None
    for name in path.split("."):
        node = next((one for one in nodes if getattr(one, "name", None) == name), None)
        nodes = list(getattr(node, "body", []))
    if node is None:
        return None
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return hashlib.sha256("\n".join(line.rstrip() for line in lines).encode()).hexdigest()[:12]


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)
