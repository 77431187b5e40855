"""The fake sglang has the modules, classes, bases, decorators and signatures of the real releases."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.catalogue.targets import TARGETS
from sglang_probe.testing import RELEASES, make_site

OWN = "_fake"
"""What a stand-in needs beyond the real one has this prefix, and lies in `sglang/_fake` where it is a module."""

Surface = dict[str, dict[str, Any]]


def surface(source: str) -> Surface:
    """Return what a module defines, by qualified name: kind, bases, decorators, parameters, fields."""
    found: Surface = {}
    _collect(ast.parse(source).body, "", found)
    return found


def _collect(body: list[ast.stmt], prefix: str, found: Surface, fields: bool | None = None) -> None:
    for node in _flat(body):
        if isinstance(node, ast.ClassDef):
            found[prefix + node.name] = {
                "bases": [ast.unparse(base) for base in node.bases],
                "decorators": [ast.unparse(one) for one in node.decorator_list],
            }
            _collect(node.body, f"{prefix}{node.name}.", found, fields=bool(node.decorator_list))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[prefix + node.name] = {
                "async": isinstance(node, ast.AsyncFunctionDef),
                "decorators": [ast.unparse(one) for one in node.decorator_list],
                "parameters": parameters(node.args),
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and fields is not None:
            # Without a value, elsewhere than in a dataclass, it only helps a type checker.
            found.update({prefix + node.target.id: {"default": _text(node.value)}} if node.value or fields else {})


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements, those under a module's `if` and `try` included."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _flat([*node.body, *node.orelse])
        else:
            yield node


def parameters(arguments: ast.arguments) -> list[tuple[str, str, str | None]]:
    """Return (kind, name, default) of every parameter, in order."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(one) for one in arguments.defaults]
    listed: list[tuple[str, str, str | None]] = [
        ("positional", one.arg, default) for one, default in zip(positional, defaults, strict=True)
    ]
    if arguments.vararg:
        listed.append(("*", arguments.vararg.arg, None))
    for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        listed.append(("keyword", one.arg, _text(value)))
    if arguments.kwarg:
        listed.append(("**", arguments.kwarg.arg, None))
    return listed


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fake_modules(release: str, tmp_path: Path) -> dict[str, str]:
    """Path in the package -> source, of every module that stands in for a real one."""
    site = make_site(tmp_path / "site", release)
    return {
        str(path.relative_to(site)): path.read_text(encoding="utf-8")
        for path in (site / "sglang").rglob("*.py")
        if OWN not in path.relative_to(site).parts
    }


@pytest.fixture
def real_modules(release: str, real_wheel: Callable[[str], Path], fake_modules: dict[str, str]) -> dict[str, str]:
    """The same paths in the real wheel."""
    with zipfile.ZipFile(real_wheel(release)) as wheel:
        names = set(wheel.namelist())
        return {path: wheel.read(path).decode("utf-8") for path in fake_modules if path in names}


def test_every_module_of_the_fake_is_a_module_of_the_real_release(
    fake_modules: dict[str, str], real_modules: dict[str, str]
) -> None:
    # The real packages without an __init__.py are namespace packages.
    assert {path for path in set(fake_modules) - set(real_modules) if not path.endswith("__init__.py")} == set()


def test_everything_the_fake_defines_is_defined_alike_in_the_real_release(
    fake_modules: dict[str, str], real_modules: dict[str, str]
) -> None:
    unlike = {}
    compared = 0
    for path, source in real_modules.items():
        real = surface(source)
        for name, fake in surface(fake_modules[path]).items():
            if any(part.lower().startswith(OWN) for part in name.split(".")):
                continue
            compared += 1
            if fake != real.get(name):
                unlike[f"{path}:{name}"] = {"fake": fake, "real": real.get(name)}
    assert compared > 0
    assert unlike == {}


def test_the_measured_function_is_imported_under_its_name_where_the_real_release_does(
    fake_modules: dict[str, str], real_modules: dict[str, str]
) -> None:
    name = "get_available_gpu_memory"
    fake = {path: importers(source, name) for path, source in fake_modules.items()}
    real = {path: importers(source, name) for path, source in real_modules.items()}
    imported = {path: where for path, where in fake.items() if where}
    assert imported
    assert imported == {path: real[path] for path in imported}


def importers(source: str, name: str) -> list[str]:
    """Return the modules that the source takes `name` from at its top level."""
    return [
        node.module or ""
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)
    ]


ABSENT = {
    "speculative": "of the speculative algorithms the fake has EAGLE, in the worker that each release uses by default",
    "deepseek_v4_memory_pool": "the fake has no compressed attention",
    "quick_all_reduce": "ROCm only; tests/bodies runs the real class",
    "flashinfer_comm_fusion": "flashinfer's own memory; tests/bodies runs the real class",
    "prealloc_symmetric_memory_pool": "only with --enable-symm-mem, which the fake has not",
    "lora.mem_pool": "the fake has no adapters",
    "DoubleSparseTokenToKVPool": "the fake has no sparse attention",
    "triton_symm_mem_ag": "multicast only; tests/bodies runs the real function",
    "MiniMaxSparseKVPool": "the fake has no sparse attention",
    "unified_memory_pool": "only with --enable-unified-memory, which the fake has not",
}
"""Homes that the probe hooks and the fakes do not have: a word of the target, and why."""


def test_every_home_that_the_probe_hooks_is_in_the_fake(
    release: str, real_wheel: Callable[[str], Path], fake_modules: dict[str, str]
) -> None:
    hooked = [target for target in TARGETS if not any(word in target.name for word in ABSENT)]
    drafts = ("eagle_worker:EAGLEWorker.init_cuda_graphs", "eagle_worker_v2:EagleDraftWorker.init_cuda_graphs")
    with zipfile.ZipFile(real_wheel(release)) as wheel:
        names = set(wheel.namelist())
        missing = []
        for target in hooked:
            path = target.module.replace(".", "/") + ".py"
            real = defines(wheel.read(path).decode("utf-8"), target.path) if path in names else False
            if real and not defines(fake_modules.get(path, ""), target.path):
                missing.append(target.name)
    assert [] == missing
    assert any(defines(fake_modules.get(draft_path(name), ""), name.partition(":")[2]) for name in drafts)


def draft_path(name: str) -> str:
    return f"sglang/srt/speculative/{name.partition(':')[0]}.py"


def defines(source: str, path: str) -> bool:
    """Return whether the module defines the path, or imports the name at its top level."""
    return path in surface(source) or ("." not in path and bool(importers(source, path)))


def test_a_difference_would_be_seen() -> None:
    before = surface("class A(B):\n    @staticmethod\n    def f(x, y=1): ...\n    z: int = 2\n")
    for changed in (
        "class A(C):\n    @staticmethod\n    def f(x, y=1): ...\n    z: int = 2\n",
        "class A(B):\n    def f(x, y=1): ...\n    z: int = 2\n",
        "class A(B):\n    @staticmethod\n    def f(x, y=2): ...\n    z: int = 2\n",
        "class A(B):\n    @staticmethod\n    def f(x, *, y=1): ...\n    z: int = 2\n",
        "class A(B):\n    @staticmethod\n    def f(x, y=1): ...\n    z: int = 3\n",
    ):
        assert surface(changed) != before
