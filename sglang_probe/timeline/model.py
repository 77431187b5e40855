"""What a run looks like once its events are read: runs, processes, steps, budgets.

All bytes are integers in bytes, all durations seconds, all `ts` RFC 3339 UTC as written by the probe.
What is unknown is None, never 0. The structures are frozen and hold no cycles (so the garbage collector skips them:
`gc=False`); their JSON shape is `timeline.to_json`'s.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from sglang_probe.collect.records import Int64, Rank, RankPart, Reading
from sglang_probe.collect.report import ReadReport
from sglang_probe.timeline.kv_model import Budget, FractionBasis, Kv, Pool, PreLoadBasis, State, Worker
from sglang_probe.timeline.ledger_model import AsOf, Ledger, Neighbour, PreLoad, TotalSource
from sglang_probe.timeline.log_model import Disagreement, LogCheck

__all__ = [
    "Budget",
    "Disagreement",
    "FractionBasis",
    "Kv",
    "Ledger",
    "LogCheck",
    "Neighbour",
    "Pool",
    "PreLoad",
    "PreLoadBasis",
    "Rank",
    "RankPart",
    "Reading",
    "State",
    "Worker",
]  # the same structures, decoded once

SCHEMA: Final = "timeline/1.0"

RunOutcome = Literal["ready", "failed", "died", "unknown", "starting"]
LaterKind = Literal["error", "unfinished", "gone"]
Source = Literal["events", "log", "both"]


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The device of a process. On `kind` "cpu" its memory is the host's."""

    index: Int64 | None = None
    uuid: str | None = None
    name: str | None = None
    kind: str | None = None
    total_bytes: int | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An exception of SGLang's, as the innermost span that it passed saw it."""

    id: str | None = None
    type: str | None = None
    message: str | None = None
    stacktrace: str | None = None
    raised_in: str | None = None


class Degradation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something the probe could not read or do, counted over the events that said so."""

    source: str
    reason: str
    detail: str | None = None
    count: Int64 = 1


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a hooked function.

    Worked example: a `dist.init` that took 1 GiB and holds one child that took 0.25 GiB has delta_bytes -1 GiB
    (the device's free memory after minus before), cost_bytes 1 GiB and self_delta_bytes -0.75 GiB.
    Only self_delta_bytes may be summed over steps: a parent's delta holds its children's.
    """

    id: str
    parent: str | None
    phase: str
    """The role."""
    detail: str | None = None
    """What tells it from its siblings: the pool, graph, communicator or buffer."""
    depth: int = 0
    worker: str | None = None
    draft_index: int | None = None
    ts: str | None = None
    duration_s: float | None = None
    free_before_bytes: int | None = None
    free_bytes: int | None = None
    """Free on the device when the step ended."""
    delta_bytes: int | None = None
    self_delta_bytes: int | None = None
    cost_bytes: int | None = None
    """-delta_bytes."""
    null_reason: str | None = None
    """Why free or delta is None."""
    self_includes: tuple[str, ...] = ()
    """Ids of steps inside this one whose own delta is unknown: their cost is in this self_delta_bytes."""
    state: State = "open"
    state_reason: str | None = None
    precision_bytes: int | None = None
    """None: exact. A figure read from a log of two decimals says here what it is good for."""
    failure: Failure | None = None
    attributes: dict[str, Any] = {}
    before: Reading | None = None
    after: Reading | None = None
    degraded: tuple[Degradation, ...] = ()
    ledger: Ledger | None = None
    """What the device's memory was spent on when it ended; None where no total was ever read."""
    ledger_total_bytes: int | None = None
    ledger_total_source: TotalSource | None = None
    ledger_as_of: AsOf | None = None
    ledger_reasons: dict[str, str] = {}
    """Row that is None -> why."""
    ledger_precision_bytes: dict[str, int] = {}
    """Row -> how far off it may be, of a ledger that was read from a log; a row that is not here is exact."""
    local_time: str | None = None
    """When it began by the server's own clock, as a log has it: without a zone, which no log names."""
    mono_ns: int | None = None
    """When it began, on the clock of this host's boot."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reading of one moment: it has no duration and no cost."""

    id: str | None
    parent: str | None
    phase: str
    detail: str | None = None
    worker: str | None = None
    draft_index: int | None = None
    ts: str | None = None
    free_bytes: int | None = None
    attributes: dict[str, Any] = {}
    after: Reading | None = None
    seq: int | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one row of the agent's target table in a process."""

    target: str | None
    role: str | None = None
    state: str | None = None
    reason: str | None = None
    fingerprint: str | None = None


class Process(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process that wrote events, or one rank that a log speaks of, with its steps in the order they began."""

    host: str | None = None
    """None in a log, whose carrier does not name it."""
    pid: int | None = None
    """None in a log: SGLang prints none."""
    start_ticks: int | None = None
    boot_id: str | None = None
    parent: int | None = None
    """pid of its parent."""
    role: str = "other"
    rank: Rank | None = None
    label: str | None = None
    """None for a process that is no rank (launcher, detokenizer, ...)."""
    device: Device | None = None
    alive: bool | None = None
    """None: not knowable here."""
    alive_reason: str | None = None
    first_ts: str | None = None
    last_ts: str | None = None
    events: int = 0
    lost_events: int = 0
    """Numbers of `seq` that no file has, and what the probe says it dropped."""
    dropped_events: int = 0
    """What the probe says it could not write; part of `lost_events`."""
    no_memory_role: bool = False
    """The probe says that it hooked no memory role in this process, a rank."""
    torn_tail: bool = False
    steps: tuple[Step, ...] = ()
    samples: tuple[Sample, ...] = ()
    workers: tuple[Worker, ...] = ()
    pre_load: PreLoad | None = None
    """None where its distributed init did not end, or read nothing."""
    neighbours: tuple[Neighbour, ...] = ()
    """Other processes on its device, as far as pids can be told apart."""
    targets: tuple[Target, ...] = ()
    degraded: tuple[Degradation, ...] = ()


class Later(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that went wrong after the run was ready (or a process that is gone since)."""

    ts: str | None
    label: str | None
    host: str | None
    pid: int | None
    phase: str | None
    what: str
    kind: LaterKind = "error"
    message: str | None = None
    """The error's own words, where a log has them."""


class Missing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A rank that the others speak of and that wrote nothing."""

    world_rank: int
    world_size: int
    reason: str


class Skew(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Wall clock of a host against the reference host, from the ends of the same `dist.init`."""

    host: str
    against: str
    seconds: float
    """How far this host's clock is ahead."""
    uncertainty_s: float | None = None
    at_least_s: float | None = None
    at_most_s: float | None = None
    """Hard bounds: no rank ends `dist.init` before every rank has begun it."""


class Difference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact of provenance in which processes of one run differ: value (as text) -> the processes that say so."""

    key: str
    values: dict[str, tuple[str, ...]]


class Provenance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the run was made of."""

    command: tuple[str, ...] | None = None
    """argv of the launcher, redacted by the agent."""
    sglang_version: str | None = None
    sglang_path: str | None = None
    sglang_commit: str | None = None
    sglang_dirty: bool | None = None
    versions: dict[str, Any] = {}
    distributions: dict[str, str] = {}
    environment: dict[str, str] = {}
    allocator_config: str | None = None
    given: dict[str, Any] | None = None
    """Flags of the command line."""
    effective: dict[str, Any] | None = None
    """SGLang's resolved ServerArgs, of the first rank that says."""
    fingerprints: dict[str, str] = {}
    """Hooked function -> fingerprint of SGLang's own source."""
    differs: tuple[Difference, ...] = ()


class Remark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of a log that is no step: what is not memory, what looks fatal and is not, what SGLang changed or did."""

    kind: str
    """A key of `collect.logs.KINDS`."""
    what: str
    label: str | None = None
    """The rank that printed it; None where the line names none."""
    text: str
    place: str
    """file:line, of the first where there are several."""
    values: dict[str, Any] = {}
    """Of the last where there are several; `retracted` is their sum."""
    count: int = 1
    """How many lines said so."""


class Health(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How well the probe itself did in this run."""

    ok: bool
    says: tuple[str, ...] = ()
    """Loud lines: a run without a memory role, lost events, missing ranks, failed hooks."""
    memory_roles: tuple[str, ...] = ()
    """Roles that a hook was applied for in at least one process."""
    absent_roles: tuple[str, ...] = ()
    """Roles of which no row was applied anywhere."""
    failed_targets: tuple[Target, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    lost_events: int = 0
    dropped_events: int = 0
    """What the probe says it could not write; part of `lost_events`."""


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One launch of a server, over all its hosts."""

    run_id: str
    launch: int
    source: Source
    outcome: RunOutcome
    outcome_reason: str | None = None
    failed_phase: str | None = None
    failed_label: str | None = None
    """Label of the rank that died, or that was the first to report an error."""
    failure: Failure | None = None
    """The first error by time: of a run that died it is that of a peer, who reports the loss."""
    lost_peer: bool = False
    """That error only reports that another process is gone."""
    joined_run_ids: tuple[str, ...] = ()
    """Every run id found to be this launch, when more than one."""
    started: str | None = None
    ended: str | None = None
    """ts of the last event."""
    ready_s: float | None = None
    """Seconds from the first event to the last `scheduler.init` that ended, on a run of one boot."""
    provenance: Provenance
    processes: tuple[Process, ...] = ()
    """Launcher, then ranks in their order, then the others."""
    later: tuple[Later, ...] = ()
    missing: tuple[Missing, ...] = ()
    unread_files: int = 0
    """Files of the run that lie beside those that were given and were not read."""
    skew: tuple[Skew, ...] = ()
    health: Health
    notes: tuple[str, ...] = ()
    """How a log was cut into starts, and what it does not hold."""
    remarks: tuple[Remark, ...] = ()
    """Lines of a log that are no steps."""
    local_started: str | None = None
    """First and last stamp by the server's own clock, of a log, which names no zone."""
    local_ended: str | None = None
    log_check: LogCheck | None = None
    """The log that was merged into the events of this run, checked against them; None: there was none."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that was read."""

    schema: str = SCHEMA
    runs: tuple[Run, ...] = ()
    read: ReadReport
