"""What looks like memory or like a fatal error and is neither, in the words of Triton, Python, NCCL, uvicorn, SGLang.

No fraction of a GPU's memory moves any of these. The order counts: the first that fits names it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Other(NamedTuple):
    """One kind of trouble that is not the device's memory."""

    name: str
    pattern: re.Pattern[str]
    what: str
    do: str
    harmless: bool = False


def _other(name: str, pattern: str, what: str, do: str, *, harmless: bool = False) -> Other:
    return Other(name, re.compile(pattern, re.IGNORECASE), what, do, harmless)


OTHERS: Final = (
    _other("kernel_shared_memory", r"out of resources?: shared memory|Required: \d+, Hardware limit: \d+"
           r"|uses too much shared (?:memory|data)",
           "the shared memory of a GPU kernel (Triton), some 100 KiB on the chip for each block",
           "a kernel with smaller tiles: another --attention-backend, fewer num_stages, or another Triton"),
    _other("dev_shm", r"/dev/shm|unable to (?:mmap|open) .{0,80}(?:/torch_|shared memory|file <)|Bus error|SIGBUS"
           r"|No space left on device.{0,80}shm|insufficient shared memory \(shm\)",
           "the host's shared memory, /dev/shm",
           "more of it: --shm-size or --ipc=host for a container, an emptyDir of medium Memory for a pod"),
    _other("leaked_semaphore", r"leaked (?:semaphore|shared_memory|folder) objects?",
           "Python tidying up after a process that ended: a consequence, never a cause",
           "look at what stands before it", harmless=True),
    _other("host_memory", r"DefaultCPUAllocator|Cannot allocate memory|std::bad_alloc|\bMemoryError\b|cudaHostAlloc"
           r"|cudaHostRegister|pinned memory|Not enough host memory|host memory",
           "the host's memory", "more host memory, or less of what uses it: hierarchical cache, CPU offload, loaders"),
    _other("segfault", r"Segmentation fault|SIGSEGV|exit ?code[:= ]+-11\b|Fatal Python error",
           "a crash in native code: a library's fault, or versions that do not fit",
           "read the stack of the crash (faulthandler, core dump), and compare the versions with a run that worked"),
    _other("hang", r"watchdog (?:caught|timeout)|collective operation timeout|Timeout\(ms\)=|HeartbeatMonitor"
           r"|timed out after \d+|Health check failed|detokenizer.{0,40}(?:timeout|timed out)|DistStoreError",
           "a rank that waits for another: a hang or a timeout, not memory",
           "find the rank that is silent: its last line, and py-spy dump on it"),
    _other("http", r'HTTP/1\.[01]"? [45]\d\d|\b[45]\d\d (?:Bad Request|Not Found|Unauthorized|Too Many|Internal Server)'
           r"|HTTPException|longer than the model's context|Requested token count exceeds",
           "a request that was answered with an error: the server goes on", "look at the client's request",
           harmless=True),
    _other("model_files", r"(?:FileNotFoundError|RepositoryNotFoundError|GatedRepoError|OSError).{0,200}"
           r"(?:model|repo|safetensors|config\.json|No such file)|is not a valid model identifier",
           "the model's files: a path, a name or a permission", "check --model-path and the token of the hub"),
    _other("port", r"address already in use|EADDRINUSE",
           "a port that is taken: another server, or one of an earlier start", "another --port, or end what holds it"),
    _other("imports", r"ModuleNotFoundError|ImportError|undefined symbol|cannot open shared object file",
           "packages that are missing or do not fit together", "install the versions that this SGLang names"),
)  # fmt: skip


def other_in(text: str) -> Other | None:
    """Return what a text speaks of, where that is not the device's memory; None where it is none of these."""
    return next((one for one in OTHERS if one.pattern.search(text)), None)
