"""What a run was made of: versions, variables, arguments, the checkout. Read once a process, without starting CUDA."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import sglang_probe
from sglang_probe.agent.runs import Run
from sglang_probe.catalogue.checkout import checkout
from sglang_probe.events.names import LAUNCHERS
from sglang_probe.events.redact import MARK, is_secret_name, redact, redact_argv, redact_text

DISTRIBUTIONS = (
    "sglang", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python", "triton", "transformers", "xgrammar",
    "torch-memory-saver", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-ml-py", "orjson", "wrapt", "structlog",
)  # fmt: skip

GIT_TIMEOUT_S = 2

_VARIABLE = re.compile(r"^(SGLANG_|SGL_|NCCL_|CUDA_|PYTORCH_)")
_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)")


def process_start(run: Run) -> dict[str, Any]:
    """Return the attributes of `sglang.probe.process.start`."""
    # Asking for all of them takes 4 ms, and a run's processes share one environment: its maker asks, and asks git.
    asked = DISTRIBUTIONS if run.made_here else ()
    installed = {name: version for name in asked if (version := _version(name)) is not None}
    torch, sglang = sys.modules.get("torch"), sys.modules.get("sglang")
    path = os.path.dirname(getattr(sglang, "__file__", None) or "") or None
    commit, dirty = checkout(path, GIT_TIMEOUT_S) if path is not None and run.made_here else (None, None)
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "argv": redact_argv(command_line()),
        "versions": {
            "python": platform.python_version(),
            "sglang": _module_version("sglang") or installed.get("sglang"),
            "torch": _module_version("torch") or installed.get("torch"),
            "cuda": _text(getattr(getattr(torch, "version", None), "cuda", None)),
            "driver": driver_version(),
            "nccl": _nccl(torch),
            "wrapt": _module_version("wrapt"),
            "structlog": _module_version("structlog") or installed.get("structlog"),
            "probe": sglang_probe.__version__,
        },
        "distributions": installed or None,
        "sglang_path": path,
        "sglang_commit": commit,
        "sglang_dirty": dirty,
        "environment": environment(os.environ),
        "allocator_config": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF"),
        "pid_namespace": _link("/proc/self/ns/pid"),
        "run_maker": run.made_here,
    }


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide memory, secrets redacted."""
    chosen = {name: value for name, value in environ.items() if _VARIABLE.match(name)}
    return {name: MARK if is_secret_name(name) else redact_text(chosen[name]) for name in sorted(chosen)}


def command_line() -> list[str]:
    """Return the command line of this process as it was started, interpreter flags included."""
    return list(getattr(sys, "orig_argv", None) or sys.argv)


def is_launcher(argv: Sequence[str] | None = None) -> bool:
    """Tell whether a user started this process: multiprocessing's children carry its own flags."""
    argv = command_line() if argv is None else argv
    spawned = any("--multiprocessing-fork" in part or "multiprocessing.spawn" in part for part in argv)
    return not spawned and "multiprocessing.resource_tracker" not in " ".join(argv)


def given_arguments(argv: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Return the server's flags as typed, flag -> value, or None where this is no SGLang command line.

    A flag without a value is True; one with several values is a list.
    """
    argv = command_line() if argv is None else argv
    start = next((i for i, part in enumerate(argv) if _is_entry(part)), None)
    if start is None:
        return None
    given: dict[str, Any] = {}
    flag: str | None = None
    for part in argv[start + 1 :]:
        if part.startswith("--"):
            flag, equals, value = part.partition("=")
            given[flag] = value if equals else True  # given twice, the last one counts
        elif flag is not None:
            given[flag] = part if given[flag] is True else [*_as_list(given[flag]), part]
    return {flag: MARK if is_secret_name(flag.lstrip("-")) else redact(value) for flag, value in given.items()}


def effective_arguments(server_args: Any) -> dict[str, Any]:
    """Return SGLang's ServerArgs as a plain mapping, secrets redacted.

    From 0.5.19 on the object holds what was given, and a method of it returns what it resolved to.
    """
    resolved = getattr(server_args, "resolved_dict", None)
    fields = resolved() if callable(resolved) else getattr(server_args, "__dict__", None)
    if fields is None:
        fields = {name: getattr(server_args, name, None) for name in getattr(server_args, "__struct_fields__", ())}
    clean: dict[str, Any] = redact({name: value for name, value in fields.items() if not name.startswith("_")})
    return clean


def driver_version() -> str | None:
    """Return the NVIDIA driver's version as the kernel module tells it, without NVML."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            match = _DRIVER.search(file.read())
    except OSError:
        return None
    return match[1] if match else None


def _is_entry(part: str) -> bool:
    module = part.removesuffix(".py").replace(os.sep, ".")
    return part in LAUNCHERS or module.endswith(LAUNCHERS) or os.path.basename(part) == "sglang"  # /x/.venv/bin/sglang


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    except Exception:  # a broken dist-info is not ours to mend
        return None


def _module_version(module: str) -> str | None:
    return _text(vars(sys.modules[module]).get("__version__")) if module in sys.modules else None


def _nccl(torch: Any) -> str | None:
    if torch is None or not getattr(getattr(torch, "version", None), "cuda", None):
        return None
    try:
        version = torch.cuda.nccl.version()
    except Exception:  # a torch built without NCCL
        return None
    return ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
