"""Real modules of one SGLang release, from the files of its wheel, on a machine that lacks most of what it needs.

The module under test is always the release's own file. What it imports is the release's own too, unless it is named in
`REPLACED` (or is a compiled package, `COMPILED`), or cannot be imported here: then a stand-in takes its place whole.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

# fmt: off
COMPILED = {
    "sgl_kernel", "vllm", "flashinfer", "tvm_ffi", "transformers", "mscclpp", "torchao", "cuda", "aiter", "amdsmi",
    "deep_gemm", "huggingface_hub", "tokenizers", "xgrammar", "cutlass", "mooncake", "outlines", "datasets", "decord",
    "modelscope", "torch_memory_saver", "triton", "zstandard", "xxhash", "intel_extension_for_pytorch",
}
REPLACED = (
    "sglang.jit_kernel.utils", "sglang.kernels", "sglang.lang", "sglang.utils",
    *(f"sglang.srt.{name}" for name in (
        "arg_groups", "compilation", "configs", "connector", "constrained", "disaggregation", "elastic_ep",
        "entrypoints", "eplb", "function_call", "layers", "lora", "managers", "mem_cache", "model_executor",
        "model_loader", "models", "multimodal", "observability", "plugins", "runtime_context", "sampling",
        "server_args", "speculative",
    )),
)
# fmt: on


class Thing:
    """Stands for anything: calling it gives another, decorating with it changes nothing, as a base it is `object`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Thing(f"{self._name}()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(f"{self._name}.{name}")

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __getitem__(self, _: Any) -> Any:
        return Any


class StandIn(types.ModuleType):
    """A module in which every name is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(f"{self.__name__}.{name}")


class Loading(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The finder of one release at a time."""

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.wanted: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top in COMPILED or self._is_replaced(name):
            self.replaced[name] = "compiled" if top in COMPILED else "not needed"
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if top != "sglang":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if (
            spec is not None
            and isinstance(spec.loader, importlib.machinery.SourceFileLoader)
            and name not in self.wanted
        ):
            spec.loader = Lenient(spec.loader, self.replaced)
        return spec

    def _is_replaced(self, name: str) -> bool:
        covering = [way for way in REPLACED if name == way or name.startswith(way + ".")]
        return bool(covering) and not any(want == name or want.startswith(name + ".") for want in self.wanted)

    def create_module(self, spec: Any) -> Any:
        return StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__path__ = []


class Lenient(importlib.abc.Loader):
    """Executes a module of SGLang; where that fails here, every name it lacks is a stand-in."""

    def __init__(self, loader: Any, replaced: dict[str, str]) -> None:
        self._loader, self._replaced = loader, replaced

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: Any) -> None:
        try:
            self._loader.exec_module(module)
        except Exception as error:  # noqa: BLE001  # whatever it lacks here; `load` refuses it for the module under test
            self._replaced[module.__name__] = f"{type(error).__name__}: {error}"
            vars(module)["__getattr__"] = StandIn(module.__name__).__getattr__


_loading = Loading()


_kept: dict[Path, tuple[dict[str, types.ModuleType], dict[str, str], set[str]]] = {}
_current: list[Path] = []
_patched: list[tuple[Any, str, Any]] = []
_ABSENT = object()


def begin_release(package: Path) -> None:
    """Let `sglang` be the unpacked package in the directory `package`, as the last case of that release left it."""
    if _current == [package]:
        return
    if _current:
        _kept[_current.pop()] = ({name: sys.modules.pop(name) for name in _own()}, _loading.replaced, _loading.wanted)
    _current.append(package)
    importlib.invalidate_caches()
    if _loading not in sys.meta_path:
        place = next(
            (i for i, one in enumerate(sys.meta_path) if type(one).__module__ != "sglang_probe.agent.finder"), 0
        )
        sys.meta_path.insert(place, _loading)
    modules, _loading.replaced, _loading.wanted = _kept.pop(package, ({}, {}, set()))
    sys.modules.update(modules or _bare(package))


def _own() -> list[str]:
    return [name for name in sys.modules if (top := name.partition(".")[0]) == "sglang" or top in COMPILED - {"triton"}]


def _bare(package: Path) -> dict[str, types.ModuleType]:
    """Return the two outer packages without what their `__init__` would do."""
    modules = {}
    for name in ("sglang", "sglang.srt"):
        module = modules[name] = types.ModuleType(name)
        module.__path__ = [str(package.joinpath(*name.split(".")[1:]))]
    modules["sglang"].srt = modules["sglang.srt"]  # type: ignore[attr-defined]
    return modules


def patch(holder: Any, **values: Any) -> None:
    """Set attributes of a module or class until the case ends."""
    for name, value in values.items():
        _patched.append((holder, name, vars(holder).get(name, _ABSENT)))
        setattr(holder, name, value)


def unpatch() -> None:
    """Put back what the case has patched."""
    while _patched:
        holder, name, value = _patched.pop()
        delattr(holder, name) if value is _ABSENT else setattr(holder, name, value)


def provide(name: str, **contents: Any) -> types.ModuleType:
    """Put a stand-in with these contents in place of a module."""
    module = sys.modules.get(name)
    if not isinstance(module, StandIn):
        module = sys.modules[name] = StandIn(name)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, _loading, is_package=True)
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)
    vars(module).update(contents)
    return module


def load(name: str) -> Any:
    """Import a module of this release: its own file and nothing else, or ImportError."""
    _loading.wanted.add(name)
    parts = name.split(".")
    for above in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
        if isinstance(sys.modules.get(above), StandIn):
            del sys.modules[above]  # another module needed no more of it
    module = importlib.import_module(name)
    if name in _loading.replaced or isinstance(module, StandIn):
        raise ImportError(f"{name} could not be imported here: {_loading.replaced.get(name)}")
    return module


def replaced() -> dict[str, str]:
    """Return what stood in for a module of this release, and why."""
    return {name: why for name, why in _loading.replaced.items() if name.startswith("sglang")}
