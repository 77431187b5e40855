"""Names and limits of the event stream, shared by the writer and every reader."""

from __future__ import annotations

from typing import Final, Literal, get_args

SCHEMA_VERSION: Final = "1.0"
"""Version in every event's `schema`. Readers ignore unknown keys and refuse a newer major."""

Role = Literal[
    "scheduler.init",
    "dist.init",
    "dist.communicator",
    "allreduce.buffers",
    "weights.load",
    "kv.profile",
    "kv.pool",
    "attention.init",
    "graph.capture",
]
"""What a hooked function does for memory, whatever the release calls it."""

Kind = Literal["begin", "end", "error", "sample"]
Level = Literal["info", "warning", "error"]
Outcome = Literal["ok", "error"]
Worker = Literal["target", "draft"]
ProcessRole = Literal["launcher", "scheduler", "tokenizer", "detokenizer", "dp_controller", "other"]
DeviceKind = Literal["cuda", "rocm", "cpu", "other"]
Trait = Literal["mig", "integrated", "wsl"]
TargetState = Literal["applied", "absent", "nested", "displaced", "failed", "removed"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

LAUNCHERS: Final = ("sglang.launch_server", "sglang.bench_one_batch", "sglang.benchmark.one_batch", "sglang.cli.main")
"""Modules that a user starts SGLang by."""

MEMORY_EVENT_PREFIX: Final = "sglang.memory."
PROCESS_START: Final = "sglang.probe.process.start"
PROCESS_ROLE: Final = "sglang.probe.process.role"
TARGET: Final = "sglang.probe.target"
SERVER_ARGS: Final = "sglang.probe.server_args"
DEGRADED: Final = "sglang.probe.degraded"

NOT_YET_REASONS: Final = frozenset({"no_context", "uuid_unknown"})
"""Reasons that pass by themselves once SGLang has brought CUDA up in the process: no gap in what the probe can do."""

MAX_LINE_BYTES: Final = 30 * 1024
"""Fluent Bit stops reading a file at a line of 32 KiB; the margin is for what a pipeline adds."""
MAX_VALUE_BYTES: Final = 4 * 1024
"""A longer string is cut and ends in `CUT_MARK`."""
MAX_MESSAGE_BYTES: Final = 2 * 1024
MAX_STACKTRACE_BYTES: Final = 8 * 1024
CUT_MARK: Final = "...[cut by sglang-probe]"

GIB: Final = 1 << 30
"""SGLang's log lines say "GB" and mean this."""


def memory_event(role: str, kind: str) -> str:
    """Return the event name of a role's `kind`, as in `sglang.memory.kv.profile.end`."""
    return f"{MEMORY_EVENT_PREFIX}{role}.{kind}"
