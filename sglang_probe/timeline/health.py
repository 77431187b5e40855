"""How well the probe did: what it hooked, what it could not read, what got lost on the way to here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sglang_probe.collect.records import Record, attributes_of, counted_attributes
from sglang_probe.events import names
from sglang_probe.timeline.model import Degradation, Health, Missing, Process, Step, Target
from sglang_probe.timeline.spans import ATTRIBUTES, READER, degradations_of, unreadable
from sglang_probe.timeline.values import flag, integer, table

BLIND = "no memory role was hooked in any process"
MISSING = "ranks are missing"
"""How lines of `Health.says` begin that do not hold of a start that goes on, or of some of a run's files."""


class Refusals(msgspec.Struct, frozen=True, gc=False):
    """What could not be done in a process."""

    degraded: tuple[Degradation, ...]
    dropped: int
    """Events that the probe could not write."""
    hooked_nothing: bool
    """It is a rank, and no memory role was hooked."""


def refusals_of(records: Iterable[Record], steps: Iterable[Step]) -> Refusals:
    """Return what a process says it could not do; what the reader could not read of its `steps` is among it."""
    words = [record for record in records if record.event == names.DEGRADED]
    return Refusals(_degradations(records, words, steps), _dropped(words), _hooked_nothing(words))


def _degradations(
    records: Iterable[Record], words: Iterable[Record], steps: Iterable[Step]
) -> tuple[Degradation, ...]:
    """Return what could not be read, counted: each event says it once, and the probe's own count may be higher."""
    counts: dict[tuple[str, str], int] = {}
    details: dict[tuple[str, str], str | None] = {}
    told: dict[tuple[str, str], int] = {}
    for record in records:
        for one in (degradations_of(record.degraded) or ()) + _refused(record):
            key = one.source, one.reason
            counts[key] = counts.get(key, 0) + 1
            details[key] = details.get(key) or one.detail
    for record in words:
        for name, count in table(attributes_of(record), "counts").items():
            source, _, reason = name.partition(":")
            if isinstance(count, int) and not isinstance(count, bool):
                told[source, reason] = max(count, told.get((source, reason), 0))
    for one in [one for step in steps if step.degraded for one in step.degraded if one.source == READER]:
        counts[one.source, one.reason] = counts.get((one.source, one.reason), 0) + 1
        details.setdefault((one.source, one.reason), one.detail)
    return tuple(
        Degradation(
            source=source,
            reason=reason,
            detail=details.get((source, reason)),
            count=max(counts.get((source, reason), 0), told.get((source, reason), 0)),
        )
        for source, reason in sorted(counts.keys() | told.keys())
    )


def _refused(record: Record) -> tuple[Degradation, ...]:
    """Return what the reader refused of an event that belongs to no step; a step says it itself."""
    if record.kind in {"begin", "end", "error"}:
        return ()
    refused = counted_attributes(record)[1]
    return (unreadable(ATTRIBUTES),) * refused if refused else ()


def _hooked_nothing(words: Iterable[Record]) -> bool:
    """Say whether the probe itself says that it hooked no memory role in a rank."""
    return any(flag(attributes_of(record), "no_memory_role") for record in words)


def _dropped(words: Iterable[Record]) -> int:
    """Return how many events the probe itself says it could not write."""
    said = (integer(attributes_of(record), "dropped_events") for record in words)
    return max((count for count in said if count is not None), default=0)


def health_of(processes: Sequence[Process], missing: Sequence[Missing]) -> Health:
    """Sum up a run. A run in which no memory role was hooked is a failure of the probe, and is said loudly."""
    targets = [target for process in processes for target in process.targets]
    applied = {target.role for target in targets if target.role is not None and target.state == "applied"}
    applied |= {step.phase for process in processes for step in process.steps}
    failed = _once(target for target in targets if target.state in {"failed", "displaced"})
    unwritten = sum(process.dropped_events for process in processes)
    lost = sum(process.lost_events for process in processes) - unwritten
    blind = [process for process in processes if process.no_memory_role]
    torn = sum(process.torn_tail for process in processes)
    says = []
    if not applied:
        says.append(f"{BLIND}: the probe saw nothing of this run's memory")
    elif blind:
        who = ", ".join(process.label or f"{process.role} (pid {process.pid})" for process in blind[:3])
        says.append(f"no memory role was hooked in {len(blind)} of the ranks, whose memory was not seen: {who}")
    if failed:
        names_of_three = ", ".join(str(one.target) for one in failed[:3])
        says.append(f"hooks failed or were displaced ({len(failed)}): {names_of_three}")
    if unwritten:
        says.append(f"events could not be written ({unwritten}), as on a full disk: they are lost")
    if lost:
        says.append(f"events are lost ({lost})")
    if torn:
        says.append(f"files end in a cut-off line ({torn})")
    if missing:
        says.append(f"{MISSING} ({len(missing)}): {_ranks(missing)}")
    return Health(
        ok=not says,
        says=tuple(says),
        memory_roles=tuple(role for role in names.ROLES if role in applied),
        absent_roles=tuple(role for role in names.ROLES if role not in applied),
        failed_targets=failed,
        degraded=_summed(process.degraded for process in processes),
        lost_events=lost + unwritten,
        dropped_events=unwritten,
    )


def _once(targets: Iterable[Target]) -> tuple[Target, ...]:
    return tuple({(one.target, one.role, one.state): one for one in targets}.values())


def _ranks(missing: Sequence[Missing]) -> str:
    named = ", ".join(f"rank {one.world_rank} of {one.world_size}" for one in missing[:3])
    return named if len(missing) <= 3 else f"{named}, ..."


def _summed(groups: Iterable[tuple[Degradation, ...]]) -> tuple[Degradation, ...]:
    found: dict[tuple[str, str], Degradation] = {}
    for one in (degradation for group in groups for degradation in group):
        before = found.get((one.source, one.reason))
        found[one.source, one.reason] = Degradation(
            source=one.source,
            reason=one.reason,
            detail=one.detail if before is None else before.detail or one.detail,
            count=one.count + (0 if before is None else before.count),
        )
    return tuple(found[key] for key in sorted(found))
