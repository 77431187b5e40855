"""The real graph runners of a release, built without a GPU: the rest is a stand-in that runs out at a size."""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import functools
import sys
import zipfile
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

from sglang_probe.agent.readers.graph_failure import ONE_SIZE
from sglang_probe.catalogue.wheels import wheel_of

SIZES = [1, 2, 4, 8]
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 252.00 MiB"


class Short:
    """When memory runs out: in the function `function` of the size `size`, or in any other of that name."""

    function: str | None = None
    size: int | None = None


def _runs_short() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == Short.function and str(frame.f_globals.get("__name__")).startswith("sglang."):
            return code.co_name not in ONE_SIZE or frame.f_locals.get(code.co_varnames[1]) == Short.size
        frame = frame.f_back
    return False


class Anything:
    """Stands for what a runner uses: false, empty, and any sum of it is itself. Each call may run short."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        if _runs_short():
            raise RuntimeError(OUT_OF_MEMORY)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getitem__(self, _: Any) -> Any:
        return self

    def __setitem__(self, _: Any, __: Any) -> None:
        pass

    def __contains__(self, _: Any) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 1

    def __lt__(self, _: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def _itself(self, *_: Any) -> Any:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _itself
    __neg__ = __or__ = __ror__ = __and__ = __truediv__ = __mod__ = __rtruediv__ = _itself


class Base(Anything):
    """The base of a runner under test: its own bases are of other files."""

    def __init__(self, model_runner: Any = None, *_: Any, **__: Any) -> None:
        self.model_runner = model_runner


@functools.cache
def _source(release: str, module: str) -> str:
    with zipfile.ZipFile(wheel_of(release)) as archive:
        return archive.read(f"{module.replace('.', '/')}.py").decode()


@functools.cache
def sized(release: str, module: str) -> dict[str, dict[str, list[str]]]:
    """Return what captures one size, by class of the module, with its arguments; {} where there is no module."""
    try:
        tree = ast.parse(_source(release, module))
    except KeyError:
        return {}
    classes = (one for one in tree.body if isinstance(one, ast.ClassDef))
    found = {cls.name: [one for one in cls.body if isinstance(one, ast.FunctionDef)] for cls in classes}
    return {
        cls: {one.name: [each.arg for each in one.args.args] for one in functions if one.name in ONE_SIZE}
        for cls, functions in found.items()
        if cls.endswith("Runner")
    }


def runner_of(release: str, module: str, cls: str) -> Any:
    """Return the release's own class, compiled from its own file, on a base that has whatever it asks for."""
    tree = ast.parse(_source(release, module))
    (node,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == cls)
    node.bases, node.decorator_list = [ast.Name("Base", ast.Load())], []
    ast.fix_missing_locations(node)
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - vars(builtins).keys()
    known: dict[str, Any] = {
        "Base": Base,
        "contextmanager": contextlib.contextmanager,
        "get_batch_sizes_to_capture": lambda *_, **__: (list(SIZES), []),
        "DllmConfig": SimpleNamespace(from_server_args=lambda *_: None),
        "create_attention_graph_variants": lambda *_: None,
        "create_dsv41_candidate_graph_variants": lambda *_: None,
    }
    space: dict[str, Any] = {"__name__": module, **{name: Anything() for name in names}, **known}
    code = compile(ast.Module([node], []), f"{cls}.py", "exec", flags=__future__.annotations.compiler_flag)
    exec(code, space)
    return space[cls]
