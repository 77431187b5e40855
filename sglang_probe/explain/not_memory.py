"""What looks like the device's memory and is not: what each is, and what moves it. No fraction of a GPU does.

The words by which each is known are `collect.logs.not_memory`'s; the names are the same there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.collect.logs.not_memory import looks


class Other(NamedTuple):
    """One kind of trouble that is not the device's memory."""

    name: str
    what: str
    do: str | None = None
    harmless: bool = False


OTHERS: Final = (
    Other("triton_shared_memory", "the shared memory of a GPU kernel (Triton), some 100 KiB on the chip for each block",
          "a kernel with smaller tiles: another --attention-backend, fewer num_stages, or another Triton"),
    Other("dev_shm", "the host's shared memory, /dev/shm",
          "more of it: --shm-size or --ipc=host for a container, an emptyDir of medium Memory for a pod"),
    Other("segfault", "a crash in native code: a library's fault, or versions that do not fit",
          "read the stack of the crash (faulthandler, core dump), and compare versions with a run that worked"),
    Other("hang", "a rank that waits for another: a hang or a timeout",
          "find the rank that is silent: its last line, and py-spy dump on it"),
    Other("unhealthy", "a health check that a server, ready before, left unanswered: it hangs, has more to do than it"
          " can, or is ending", "look at what it printed last before the check, and whether batches go on behind it"),
    Other("nccl", "NCCL: a network, a peer or a driver", "NCCL_DEBUG=INFO names the call that failed first"),
    Other("port_in_use", "a port that is taken: another server, or one of an earlier start",
          "another --port, or end what holds it"),
    Other("connection", "a connection that nobody answered: often a consequence of a process that ended",
          "look for the process at its other end"),
    Other("model_missing", "the model's files: a path, a name or a permission",
          "check --model-path, and the token of the hub"),
    Other("http", "a request that was answered with an error", "look at the client's request"),
    Other("version", "packages that are missing or do not fit together", "install what this SGLang names"),
    Other("host_memory", "the host's memory",
          "more host memory, or less of what uses it: hierarchical cache, CPU offload, loaders, /dev/shm"),
    Other("host_killed", "a process that was ended by signal 9: from outside, or by the kernel's OOM killer",
          "look at the host's log: dmesg -T | grep -i 'out of memory', journalctl -k, the pod's last state"),
    Other("disk", "the disk: no space is left on it", "free it, or move the model's cache"),
    Other("leaked_semaphores", "Python tidying up after a process that ended: a consequence, never a cause",
          harmless=True),
    Other("import_of_a_model", "a model class that cannot be imported here and is not asked for", harmless=True),
    Other("generation_config", "a model without a generation config", harmless=True),
    Other("not_ready_yet", "a health check before the server was ready", harmless=True),
    Other("expandable_segments", "an allocator setting that this platform does not know", harmless=True),
    Other("nofile_limit", "the limit of open files", harmless=True),
    Other("pool_leak_check", "a process group that was not closed when the process ended", harmless=True),
    Other("symmetric_memory_unsupported", "an all-reduce of the CPU that is off", harmless=True),
)  # fmt: skip
"""By name: every name of `collect.logs.not_memory` has its row, and that of `timeline.logs.remarks`."""
_BY_NAME: Final = {one.name: one for one in OTHERS}


def other_of(name: str) -> Other | None:
    """Return what a name stands for; None for one that is not known here."""
    return _BY_NAME.get(name)


def other_in(text: str) -> Other | None:
    """Return what a text speaks of, where that is not the device's memory; None where it is none of these."""
    names = (values.get("what") for _, values in looks(text))
    return next((_BY_NAME[name] for name in names if name in _BY_NAME), None)
