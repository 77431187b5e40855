"""What looks like memory and is not the GPU's, and what looks fatal and is not."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple


class Look(NamedTuple):
    """One thing that a line may say."""

    what: str
    pattern: re.Pattern[str]
    needles: tuple[str, ...]
    """One of them stands in every such line, and in none that a server writes all day: the scanner looks for them."""


def _look(what: str, pattern: str, *needles: str) -> Look:
    return Look(what, re.compile(pattern), needles)


NOT_MEMORY: Final[tuple[Look, ...]] = (
    _look("triton_shared_memory",
          r"[Oo]ut of resources?: shared memory|exceeds [^\n]{0,60}shared.memory capacity|not enough shared memory",
          "shared memory", "shared-memory"),
    _look("dev_shm", r"/dev/shm|[Bb]us error|SIGBUS|Failed to allocate shared memory|shm_open|exit code -7\b",
          "/dev/shm", "us error", "SIGBUS", "allocate shared memory", "shm_open", "exit code"),
    _look("segfault", r"[Ss]egmentation fault|SIGSEGV|exit code -11\b", "egmentation fault", "SIGSEGV", "exit code"),
    _look("hang", r"[Ww]atchdog timeout|Watchdog caught collective operation timeout|[Tt]imeout at NCCL work"
          r"|Some NCCL operations have failed or timed out"
          r"|Health check failed\. Server couldn't"
          r"|WorkNCCL\([^\n]*\) ran for \d+ milliseconds before timing out",
          "atchdog timeout", "Watchdog caught", "NCCL", "Health check failed"),
    _look("nccl", r"NCCL error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
          r"|unhandled (?:system|cuda) error", "NCCL", "nccl", "unhandled "),
    _look("port_in_use", r"[Aa]ddress already in use|EADDRINUSE"
          r"|port \d+ is (?:already )?(?:in use|not available|occupied)",
          "in use", "EADDRINUSE", " not available", " occupied"),
    _look("connection", r"Connection refused|Connection reset by peer|ConnectionRefusedError|Max retries exceeded",
          "Connection re", "ConnectionRefused", "Max retries"),
    _look("model_missing", r"Repository Not Found|RepositoryNotFoundError|GatedRepoError|LocalEntryNotFoundError"
          r"|\b40[134] Client Error|is not a local folder and is not a valid model identifier"
          r"|Incorrect path_or_model_id"
          r"|Cannot find any model weights|does not appear to have a file named config\.json",
          "Repository", "GatedRepo", "LocalEntryNotFound", "Client Error", "not a local folder", "path_or_model_id",
          "model weights", "file named config"),
    _look("http", r"\"[A-Z]+ [^\"\n]* HTTP/\d(?:\.\d)?\" (?:4\d\d|5\d\d)\b", '" 4', '" 5'),
    _look("version", r"(?:ModuleNotFoundError|ImportError)\b|undefined symbol|CUDA driver version is insufficient"
          r"|no kernel image is available|is not compatible with the current PyTorch",
          "NotFoundError", "ImportError", "undefined symbol", "driver version", "kernel image", "not compatible"),
    _look("host_memory", r"std::bad_alloc|Cannot allocate memory|DefaultCPUAllocator|\bMemoryError\b"
          r"|[Nn]ot enough host memory|memfabric host memory exhausted|[Hh]ost memory allocation of|oom-kill"
          r"|Out of memory: Killed process|hipHostMalloc of|No host memory is left",
          "bad_alloc", "allocate memory", "CPUAllocator", "MemoryError", "host memory", "oom-kill", "Killed process",
          "hipHostMalloc"),
    _look("host_killed", r"exit code:? -9\b|exit code:? 137\b|(?:^|\s)Killed(?:\s|$)|OOMKilled|signal SIGKILL",
          "exit code", "Exit code", "Killed", "SIGKILL"),
    _look("disk", r"No space left on device|Disk quota exceeded", "No space left on", "Disk quota"),
)  # fmt: skip
"""A killed process may have been one of the host's memory; nothing says so but the number of the signal."""

HARMLESS: Final[tuple[Look, ...]] = (
    _look("leaked_semaphores", r"resource_tracker: There appear to be \d+ leaked", "resource_tracker"),
    _look("import_of_a_model", r"Ignore import error when loading ", "Ignore import error"),
    _look("generation_config", r"Failed to load generation config"
          r"|does not appear to have a file named generation_config",
          "generation config", "generation_config"),
    _look("not_ready_yet", r"\"GET /(?:health|health_generate|v1/models|model_info|get_model_info)[^\"\n]*\" 503\b",
          '" 503'),
    _look("expandable_segments", r"expandable_segments not supported on this platform", "expandable_segments"),
    _look("nofile_limit", r"Fail to set RLIMIT", "RLIMIT"),
    _look("pool_leak_check", r"destroy_process_group\(\) was not called", "destroy_process_group"),
    _look("symmetric_memory_unsupported", r"init_cpu_threads_env and shared memory based AllReduce is disabled",
          "shared memory based"),
)  # fmt: skip


def looks(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (kind, values) of what a text says that is not the GPU's memory; what is harmless is said alone."""
    harmless = _first(HARMLESS, text)
    if harmless is not None:
        return [("harmless", {"what": harmless})]
    found = _first(NOT_MEMORY, text)
    return [] if found is None else [("not_memory", {"what": found, "message": _line_of(found, text)})]


def _first(table: tuple[Look, ...], text: str) -> str | None:
    for one in table:
        if any(needle in text for needle in one.needles) and one.pattern.search(text):
            return one.what
    return None


def _line_of(what: str, text: str) -> str:
    """Return the line that says it, at most 500 characters of it."""
    pattern = next(one.pattern for one in NOT_MEMORY if one.what == what)
    return next((part for part in text.split("\n") if pattern.search(part)), text)[:500].strip()
