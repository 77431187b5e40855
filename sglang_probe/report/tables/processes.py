"""The tables about processes: themselves, their way to the pre-load memory, neighbours, what was hooked in them."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from sglang_probe.collect.records import Rank
from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, REAL, SECONDS, TEXT, TIME, WORD
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Part, Table, each, few, of


def _processes(facts: Facts) -> Frame:
    rows = [seat.process for seat in facts.seats]
    parts = {
        "owner": Part(facts.seats),
        "rank": few(row.rank for row in rows),
        "device": few(row.device for row in rows),
    }
    return Frame(rows, parts)


def _dimension(name: str, meaning: str) -> tuple[Column, Column]:
    dimension = attrgetter(name)

    def place(rank: Rank) -> int | None:
        part = dimension(rank)
        return None if part is None else part.rank

    def size(rank: Rank) -> int | None:
        part = dimension(rank)
        return None if part is None else part.size

    return (
        Column(f"{name}_rank", COUNT, f"place in {meaning}; NULL: unknown, or there is none", each(place)),
        Column(f"{name}_size", COUNT, f"size of {meaning}", each(size)),
    )


PROCESSES: Final = Table(
    "processes",
    "every process that wrote events, and every rank that a log speaks of",
    "a process; the launcher first, then the ranks in their order",
    (
        *OWNER,
        Column("role", WORD, "launcher, scheduler, tokenizer, detokenizer, dp_controller, other", required=True),
        Column("parent_pid", COUNT, "pid of its parent", "parent"),
        Column("start_ticks", COUNT, "when it started, in clock ticks since boot"),
        Column("boot_id", WORD, "the boot of its host, whose clock `mono_ns` is"),
        *of(
            "rank",
            *_dimension("world", "the world"),
            *_dimension("dp", "data parallelism"),
            *_dimension("pp", "the pipeline"),
            *_dimension("tp", "tensor parallelism"),
            *_dimension("ep", "expert parallelism"),
            *_dimension("attn_cp", "context parallelism of attention"),
            *_dimension("moe_dp", "data parallelism of experts"),
            Column("node", COUNT, "--node-rank of its host"),
        ),
        *of(
            "device",
            Column("device_index", COUNT, "SGLang's gpu_id", "index"),
            Column("device_uuid", TEXT, "the card, as NVML spells it", "uuid"),
            Column("device_name", WORD, "the card's name", "name"),
            Column("device_kind", WORD, "cuda, cpu, ...; on cpu the device's memory is the host's", "kind"),
            Column("device_total_bytes", BYTES, "the device's memory; NULL in a log", "total_bytes"),
        ),
        Column("alive", FLAG, "it runs; NULL: not knowable here"),
        Column("alive_reason", TEXT, "why that is not known"),
        Column("first_ts", TIME, "its first event"),
        Column("last_ts", TIME, "its last event"),
        Column("events", COUNT, "events that were read", required=True),
        Column("lost_events", COUNT, "events that are known to be missing"),
        Column("torn_tail", FLAG, "its last line is cut off", required=True),
        Column("no_memory_role", FLAG, "a rank in which the probe hooked nothing", required=True),
        Column("degraded", JSON, "what the probe could not read, counted", required=True),
    ),
    _processes,
)


def _pre_load(facts: Facts) -> Frame:
    known = [seat.process.pre_load for seat in facts.seats]
    return Frame([one for one in known if one is not None], {"owner": facts.owners(one is not None for one in known)})


PRE_LOAD: Final = Table(
    "pre_load",
    "from what is free on the idle card to the pre-load memory, step by step: idle - context - world group "
    "- communicators - custom all-reduce - other = pre-load",
    "a rank whose distributed init ended",
    (
        *OWNER,
        Column("nvml_total_bytes", BYTES, "the card's memory by NVML"),
        Column("driver_reserved_bytes", BYTES, "the driver's part of it"),
        Column("unlisted_bytes", BYTES, "neither the driver's nor idle free: others', or nobody's"),
        Column("idle_free_bytes", BYTES, "free just before this process had a context"),
        Column("idle_free_reason", TEXT, "why that is NULL"),
        Column("context_bytes", BYTES, "what the CUDA context took"),
        Column("world_group_bytes", BYTES, "what the world's process group took"),
        Column("communicators_bytes", BYTES, "what the other communicators took"),
        Column("custom_allreduce_bytes", BYTES, "what the custom all-reduce's buffers took"),
        Column("other_bytes", BYTES, "the rest of the way; negative: given back"),
        Column("pre_load_bytes", BYTES, "what was left: this rank's own, of which the budget takes the least"),
        Column("not_separable", WORD, "why memory of others may be in these figures; NULL: it cannot"),
        Column("custom_allreduce_tokens", REAL, "KV tokens that the custom all-reduce's memory would hold"),
        Column("custom_allreduce_tokens_reason", TEXT, "why that is NULL"),
    ),
    _pre_load,
)


def _neighbours(facts: Facts) -> Frame:
    found = [seat.process.neighbours for seat in facts.seats]
    return Frame([one for some in found for one in some], {"owner": facts.owners(map(len, found))})


NEIGHBOURS: Final = Table(
    "neighbours",
    "other processes on a rank's device, as NVML lists them",
    "a process that a rank saw on its device",
    (
        *OWNER,
        Column("neighbour_pid", COUNT, "its pid", "pid"),
        Column("neighbour_start_ticks", COUNT, "when it started, in clock ticks since boot", "start_ticks"),
        Column("name", WORD, "its name; NULL where it is not readable"),
        Column("user", WORD, "its owner"),
        Column("kind", WORD, "run: of the same run; foreign: not", required=True),
        Column("held_bytes", BYTES, "what it held when it was last listed", "bytes"),
        Column("peak_bytes", BYTES, "the most that it was seen to hold"),
        Column("gone", FLAG, "it is not in the last list any more", required=True),
        Column("began_before_s", SECONDS, "by how much it is older than the rank; negative: younger"),
        Column("left_over", FLAG, "a process of SGLang's whose parent has ended", required=True),
    ),
    _neighbours,
)


def _targets(facts: Facts) -> Frame:
    found = [seat.process.targets for seat in facts.seats]
    return Frame([one for some in found for one in some], {"owner": facts.owners(map(len, found))})


TARGETS: Final = Table(
    "targets",
    "which functions of SGLang's were hooked, and which source they had",
    "a function that the probe looked for in a process",
    (
        *OWNER,
        Column("target", WORD, "module:function"),
        Column("role", WORD, "what it is hooked for"),
        Column("state", WORD, "applied, displaced, failed, ..."),
        Column("reason", TEXT, "why it was not applied"),
        Column("fingerprint", WORD, "hash of its source: another one is another function"),
    ),
    _targets,
)
