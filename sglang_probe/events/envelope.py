"""The envelope: what every line of a probe file carries, in the order in which it is written.

Bytes are integers and their names end in `_bytes`. What is unknown is null, and `degraded` says why; it is never 0.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from sglang_probe.events.names import DeviceKind, Kind, Level, Outcome, ProcessRole, Role, Trait, Worker


class ProcessInfo(TypedDict):
    """The process that wrote the event. (host, pid, start_ticks) names it for ever; a pid alone is reused."""

    start_ticks: Annotated[int | None, "Start of the process in clock ticks since boot (field 22 of /proc/PID/stat)."]
    parent: Annotated[int, "pid of the parent process."]
    role: Annotated[ProcessRole, "What SGLang uses this process for; `other` until known."]


class RankPart(TypedDict):
    """Position of this process in one dimension of parallelism."""

    rank: int
    size: int


class Rank(TypedDict):
    """Where this process stands among the ranks; a part is null until known or where the dimension does not exist."""

    dp: RankPart | None
    pp: RankPart | None
    attn_cp: RankPart | None
    moe_dp: RankPart | None
    tp: RankPart | None
    ep: RankPart | None
    world: RankPart | None
    node: Annotated[int | None, "--node-rank of this host."]


class KnownDevice(TypedDict):
    """The device of this rank."""

    index: Annotated[int | None, "SGLang's gpu_id: an index after CUDA_VISIBLE_DEVICES, not NVML's index."]
    uuid: Annotated[str | None, "NVML's spelling, `GPU-...` or `MIG-...`."]
    name: str | None
    kind: Annotated[DeviceKind | None, "On `cpu` the device's memory is the host's."]


class Device(KnownDevice, total=False):
    """The device of this rank."""

    traits: Annotated[
        list[Trait] | None,
        "mig: a slice of a card; integrated: its memory is the host's; wsl: the driver is Windows's. Null until known.",
    ]


class Span(TypedDict):
    """One call of a hooked function; begin and end share the id. Ids are unique within a process."""

    id: str
    parent: str | None


class ListedProcess(TypedDict):
    """One entry of NVML's list of compute processes on this device, as read."""

    pid: int
    bytes: Annotated[int | None, "Device memory of that process; null where the driver does not tell."]
    start_ticks: Annotated[int | None, "Start time from /proc, null where the pid is not visible here."]
    name: Annotated[str | None, "Title that it gave itself, else command name; null where not readable."]


class NvmlProcess(ListedProcess, total=False):
    """One entry of NVML's list of compute processes on this device, as read; from amdsmi's list on ROCm."""

    user: Annotated[str | None, "Owner of /proc/PID: name, or the number where /etc/passwd has none."]
    parent: Annotated[int | None, "pid of its parent: 1, or a reaper's, once the parent is gone."]


class LeftOut(TypedDict):
    """What a process list that was too long for a line leaves out."""

    count: int
    bytes: Annotated[int, "Their memory, as far as the driver tells."]


class FirstReading(TypedDict):
    """What a reading has had from the first version of the schema on."""

    device_total_bytes: Annotated[int | None, "CUDA's total for the device (mem_get_info)."]
    device_free_bytes: Annotated[int | None, "Free on the device for everybody (mem_get_info)."]
    torch_allocated_bytes: Annotated[int | None, "In live tensors of this process."]
    torch_reserved_bytes: Annotated[int | None, "Held by torch's caching allocator, allocated or cached."]
    torch_peak_allocated_bytes: int | None
    torch_peak_reserved_bytes: int | None
    nvml_total_bytes: Annotated[int | None, "The card's memory by NVML's v2 struct."]
    nvml_reserved_bytes: Annotated[int | None, "Reserved by driver and firmware (v2 struct)."]
    nvml_used_bytes: Annotated[int | None, "Used by processes (v2 struct: without the reserved part)."]
    nvml_free_bytes: int | None
    nvml_processes: Annotated[list[NvmlProcess] | None, "Read only at the ends of roles outside a collective."]
    host_rss_bytes: Annotated[int | None, "Resident memory of this process."]
    host_available_bytes: Annotated[int | None, "MemAvailable of /proc/meminfo."]


class CommonReading(FirstReading, total=False):
    """What a reading has on every device."""

    torch_inactive_split_bytes: Annotated[int | None, "Free parts of blocks in use: reserved, and of no use to others."]
    torch_pinned_bytes: Annotated[int | None, "Page-locked host memory of torch's, in use or cached."]
    host_shm_used_bytes: Annotated[int | None, "Used in /dev/shm by everybody who shares it."]
    nvml_processes_left_out: Annotated[LeftOut | None, "Null where the list is whole; its largest are kept."]


class Reading(CommonReading, total=False):
    """Memory at one moment. A null has its reason in `degraded`, unless the device's kind has no such thing."""

    amdsmi_total_bytes: Annotated[int, "ROCm only, as the next: the card's memory by AMD's own library."]
    amdsmi_used_bytes: int
    amdsmi_processes: list[NvmlProcess]
    amdsmi_processes_left_out: LeftOut | None


class FirstDelta(TypedDict):
    """What a delta has had from the first version of the schema on."""

    device_total_bytes: int | None
    device_free_bytes: int | None
    torch_allocated_bytes: int | None
    torch_reserved_bytes: int | None
    torch_peak_allocated_bytes: int | None
    torch_peak_reserved_bytes: int | None
    nvml_total_bytes: int | None
    nvml_reserved_bytes: int | None
    nvml_used_bytes: int | None
    nvml_free_bytes: int | None
    host_rss_bytes: int | None
    host_available_bytes: int | None


class Delta(FirstDelta, total=False):
    """after - before, key by key; null where either side is. The cost of a phase is -device_free_bytes."""

    torch_inactive_split_bytes: int | None
    torch_pinned_bytes: int | None
    host_shm_used_bytes: int | None


class ExceptionInfo(TypedDict):
    """An exception of SGLang's on its way through a hooked function."""

    id: Annotated[str, "Shared by the error events of all nested spans it passes."]
    type: Annotated[str, "module.QualName"]
    message: Annotated[str | None, "At most 2 KB; only the innermost span carries it."]
    stacktrace: Annotated[str | None, "At most 8 KB, innermost frames kept; only the innermost span carries it."]
    raised_in: Annotated[str | None, "module:qualname:line of the raising frame."]


class Degradation(TypedDict):
    """A source that could not be read or a thing that could not be done, so that a value is null."""

    source: Annotated[str, "torch, nvml, host, hook, writer, identity, ..."]
    reason: Annotated[str, "A short code: no_context, library_not_found, slow_source, graph_capture, ..."]
    detail: Annotated[str | None, "The value that explains it."]


class WholeEvent(TypedDict):
    """One event, on one line."""

    schema: Annotated[str, "Version of this schema, MAJOR.MINOR."]
    ts: Annotated[str, "UTC, RFC 3339 with nanoseconds and Z."]
    mono_ns: Annotated[int, "CLOCK_MONOTONIC of this boot: orders processes of one boot; durations use it alone."]
    level: Annotated[Level, "error: an error event, or a run without a memory role; warning: any degradation."]
    event: str
    role: Annotated[Role | None, "Null on sglang.probe.* events."]
    kind: Kind | None
    message: Annotated[str, "One short sentence; figures in GiB."]
    run_id: str
    seq: Annotated[int, "Order within the process, from 0."]
    host: str
    boot_id: str | None
    pid: int
    proc: ProcessInfo
    rank: Rank | None
    worker: Annotated[Worker | None, "Which model the call was for; null where the call is for neither."]
    draft_index: int | None
    device: Device | None
    span: Span | None
    before: Annotated[Reading | None, "On begin, end and error."]
    after: Annotated[Reading | None, "On end and error; on sample, the reading of the moment."]
    delta: Delta | None
    duration_ns: int | None
    outcome: Outcome | None
    exception: ExceptionInfo | None
    attributes: Annotated[dict[str, Any], "By role or event: see sglang_probe.events.attributes."]
    degraded: list[Degradation]


class Event(WholeEvent, total=False):
    """One line of a probe file; an object too long for one line is split by whole keys of `attributes`."""

    part: Annotated[int, "This line's number, from 1; absent on a whole event."]
    parts: Annotated[int, "How many lines the object was split into; they share `seq`."]


READING_KEYS: tuple[str, ...] = tuple(CommonReading.__annotations__)
DELTA_KEYS: tuple[str, ...] = tuple(Delta.__annotations__)
RANK_KEYS: tuple[str, ...] = ("dp", "pp", "attn_cp", "moe_dp", "tp", "ep")
