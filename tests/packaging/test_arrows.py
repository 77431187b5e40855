"""agent -> events <- collect -> timeline -> explain -> report <- cli: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REQUIRED = {"structlog", "wrapt"}
WHERE_SGLANG_BROUGHT_THEM = {"amdsmi", "orjson", "pynvml", "torch"}
FOR_READERS = "jsonschema"
"""The module of `events` that makes the JSON Schema: never imported inside SGLang, so free to use a library."""


def imported(path: Path) -> Iterator[str]:
    """The top-level modules that a file imports, wherever in the file, `import_module("...")` included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(word.value).partition(".")[0] for word in node.args[:1] if isinstance(word, ast.Constant))


def test_every_arrow_between_the_rooms_points_one_way(root: Path) -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed here")
    program = (
        "import sys; sys.modules.pop('sitecustomize', None)\n"  # the one that Debian gives its Python
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_what_runs_inside_sglang_imports_little_but_the_standard_library(root: Path) -> None:
    rooms = {
        "agent": sys.stdlib_module_names | {"sglang_probe"} | REQUIRED | WHERE_SGLANG_BROUGHT_THEM,
        "catalogue": sys.stdlib_module_names | {"sglang_probe"},
        "events": sys.stdlib_module_names | {"sglang_probe"},
    }
    found = {
        path: set(imported(path)) - allowed
        for room, allowed in rooms.items()
        for path in (root / "sglang_probe" / room).rglob("*.py")
        if path.stem != FOR_READERS
    }
    assert found
    assert {} == {str(path): names for path, names in found.items() if names}


def test_the_agent_leaves_the_json_schema_to_the_readers(root: Path) -> None:
    module = f"sglang_probe.events.{FOR_READERS}"
    agent = (root / "sglang_probe" / "agent").rglob("*.py")
    assert [] == [str(path) for path in agent if module in path.read_text()]


def test_the_doorbell_imports_only_what_the_interpreter_has_frozen(root: Path) -> None:
    allowed = {"_frozen_importlib", "_frozen_importlib_external", "os", "sglang_probe", "sys"}
    assert set(imported(root / "sitecustomize" / "__init__.py")) <= allowed
