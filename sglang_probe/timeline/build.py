"""Records -> Timeline. Pure but for one question, whether a process still runs, which the caller may answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_probe.collect.processes import ProcessEvents
from sglang_probe.collect.quiet import no_garbage_collection
from sglang_probe.collect.read import Collected, CollectedRun
from sglang_probe.collect.records import Record, attributes_of
from sglang_probe.collect.skew import HostSkew
from sglang_probe.events import names
from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.failures import raised
from sglang_probe.timeline.health import health_of
from sglang_probe.timeline.identity import identity_of
from sglang_probe.timeline.labels import labels_of
from sglang_probe.timeline.later import later_of
from sglang_probe.timeline.liveness import ProcessId, is_alive
from sglang_probe.timeline.model import Provenance, Run, Skew, Timeline
from sglang_probe.timeline.outcome import Verdict, verdict
from sglang_probe.timeline.process import process_of, reading_order
from sglang_probe.timeline.provenance import account_of, provenance_of
from sglang_probe.timeline.spans import drafts_of
from sglang_probe.timeline.states import settle
from sglang_probe.timeline.values import as_number, given_flag, text
from sglang_probe.timeline.worlds import missing_of, worlds_of

Alive = Callable[[ProcessId], bool | None]


def build(collected: Collected, *, alive: Alive = is_alive) -> Timeline:
    """Return the timeline of everything that was read.

    `alive` says whether a process still runs: True, False, or None where it cannot be known.
    """
    with no_garbage_collection():
        return Timeline(runs=tuple(_run(run, alive) for run in collected.runs), read=collected.report)


def _run(run: CollectedRun, alive: Alive) -> Run:
    actors = _actors(run, alive)
    accounts = [account_of(actor.process.records, actor.name, is_rank=actor.identity.is_rank) for actor in actors]
    provenance = provenance_of(accounts)
    own = [actor for actor in actors if not actor.identity.is_fork]
    worlds, unplaced = worlds_of(own)
    errors = raised(own, run.clock)
    decided = verdict(own, worlds, unplaced, errors, run.clock)
    settle(actors, decided, run.clock)
    missing = missing_of(worlds, own, _expected_world(provenance))
    pairs = zip(actors, accounts, strict=True)
    processes = tuple(process_of(actor, account, provenance.given) for actor, account in pairs)
    started, ended, ready_s = _times(run, decided)
    return Run(
        run_id=run.run_id,
        launch=run.launch,
        source="events",
        outcome=decided.outcome,
        outcome_reason=decided.reason,
        failed_phase=decided.failed_phase,
        failed_label=_failed_label(decided),
        failure=None if decided.error is None else decided.error.failure,
        lost_peer=decided.lost_peer,
        joined_run_ids=run.run_ids if len(run.run_ids) > 1 else (),
        started=started,
        ended=ended,
        ready_s=ready_s,
        provenance=provenance,
        processes=processes,
        later=() if decided.ready_at is None else later_of(own, errors, decided.ready_at, run.clock),
        missing=missing,
        skew=tuple(_skew(tie) for tie in run.skews),
        health=health_of(processes, () if decided.outcome == "starting" else missing),  # not there yet is not missing
    )


def _actors(run: CollectedRun, alive: Alive) -> list[Actor]:
    labels = labels_of([(member.process.key.host, member.rank) for member in run.members])
    actors = [
        Actor(
            process=member.process,
            identity=identity_of(member),
            label=label,
            drafts=drafts_of(member.process.records),
            alive=alive(_id_of(member.process)),
        )
        for member, label in zip(run.members, labels, strict=True)
    ]
    return sorted(actors, key=reading_order)


def _id_of(process: ProcessEvents) -> ProcessId:
    start = next((record for record in process.records if record.event == names.PROCESS_START), None)
    return ProcessId(
        host=process.key.host,
        boot_id=process.boot_id,
        pid=process.key.pid,
        start_ticks=process.key.start_ticks,
        pid_namespace=None if start is None else text(attributes_of(start), "pid_namespace"),
    )


def _failed_label(decided: Verdict) -> str | None:
    if decided.suspects:
        return None
    blamed = decided.died or (None if decided.error is None else decided.error.actor)
    return None if blamed is None else blamed.label


def _times(run: CollectedRun, decided: Verdict) -> tuple[str, str, float | None]:
    """Return the first and the last `ts`, and the seconds from the first event to ready (on one boot: durations come
    from the monotonic clock alone)."""
    stamped = [
        (run.clock.at(member.boot, record.mono_ns), record.ts)
        for member in run.members
        for record in _ends(member.process.records)
    ]
    (first, started), (_, ended) = min(stamped), max(stamped)
    one_boot = len({member.boot for member in run.members}) == 1
    ready_s = (decided.ready_at - first) / 1e9 if decided.ready_at is not None and one_boot else None
    return started, ended, ready_s


def _ends(records: list[Record]) -> tuple[Record, Record]:
    return min(records, key=_mono), max(records, key=_mono)


def _mono(record: Record) -> int:
    return record.mono_ns


def _expected_world(provenance: Provenance) -> int | None:
    """Return the world size by the server's arguments; None where they are not known."""
    if provenance.effective is not None:
        tensor, stages = (as_number(provenance.effective.get(name)) for name in ("tp_size", "pp_size"))
    elif provenance.given is not None:
        tensor = _given_size(provenance.given, "tp", "tp_size", "tensor_parallel_size")
        stages = _given_size(provenance.given, "pp", "pp_size", "pipeline_parallel_size")
    else:
        return None
    size = (tensor or 1) * (stages or 1)
    return int(size) if 0 < size < 1 << 31 else None


def _given_size(given: dict[str, Any], *names_of_flag: str) -> float | None:
    return as_number(given_flag(given, *names_of_flag))


def _skew(tie: HostSkew) -> Skew:
    return Skew(
        host=tie.host,
        against=tie.against,
        seconds=tie.ahead / 1e9,
        uncertainty_s=tie.spread / 1e9,
        at_least_s=None if tie.at_least is None else tie.at_least / 1e9,
        at_most_s=None if tie.at_most is None else tie.at_most / 1e9,
    )
