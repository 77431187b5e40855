"""The shape of the checkout, which stands on other people's PYTHONPATH as it is."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_MODULE = 400
LONGEST_FUNCTION = 80
OLDER_PYTHONS = ("2.7", "3.6", "3.7", "3.8", "3.9")


def test_only_the_doorbell_and_the_package_can_be_imported_from_the_checkout_before_anybody_elses(root: Path) -> None:
    regular = {path.parent.name for path in root.glob("*/__init__.py")} | {path.stem for path in root.glob("*.py")}
    assert {"sglang_probe", "sitecustomize"} == regular


def test_no_folder_of_tests_or_benchmarks_is_a_regular_package(root: Path) -> None:
    assert [] == [str(path) for room in ("tests", "bench") for path in (root / room).rglob("__init__.py")]


def sources(root: Path) -> Iterator[Path]:
    for room in ("sglang_probe", "sitecustomize", "lanes", "compat", "bench", "tests"):
        yield from (root / room).rglob("*.py")


def test_no_module_holds_more_than_one_idea_by_its_length(root: Path) -> None:
    assert [] == [str(p) for p in sources(root) if len(p.read_text().splitlines()) > LONGEST_MODULE]


def test_no_function_is_longer_than_a_screen_or_two(root: Path) -> None:
    functions = (
        (path, node)
        for path in sources(root)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = ((f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1) for path, node in functions)
    assert [] == [name for name, length in lengths if length > LONGEST_FUNCTION]


def other_python(version: str) -> str | None:
    """An interpreter of that version that really starts (a version manager's shim may not)."""
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for candidate in [*map(str, homes), shutil.which(f"python{version}")]:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize("version", OLDER_PYTHONS)
def test_an_older_python_starts_unharmed_under_the_doorbell(version: str, root: Path) -> None:
    python = other_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    program = "import sys; sys.stdout.write(str('sglang_probe' in sys.modules))"
    env = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}  # Python 2 would write beside the source
    done = subprocess.run([python, "-c", program], env=env, capture_output=True, text=True)
    assert ("False", "", 0) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.skipif(sys.platform != "linux", reason="SGLang's servers run on Linux")
def test_the_script_that_gates_a_change_can_be_run(root: Path) -> None:
    import os

    assert os.access(root / ".ci" / "run", os.X_OK)
