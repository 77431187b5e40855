"""Records -> Timeline. Pure but for one question, whether a process still runs, which the caller may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.collect.quiet import no_garbage_collection
from sglang_probe.collect.read import Collected, CollectedRun
from sglang_probe.collect.skew import HostSkew
from sglang_probe.timeline.actor import Actor, Alive, actor_of
from sglang_probe.timeline.failures import raised
from sglang_probe.timeline.given import unread_beside
from sglang_probe.timeline.health import BLIND, health_of
from sglang_probe.timeline.labels import labels_of
from sglang_probe.timeline.later import later_of
from sglang_probe.timeline.liveness import is_alive
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.logs.merged import Told
from sglang_probe.timeline.logs.together import together
from sglang_probe.timeline.model import Health, Missing, Process, Provenance, Run, Skew, Timeline
from sglang_probe.timeline.outcome import Verdict, verdict
from sglang_probe.timeline.process import mates_of, owner_of, process_of, reading_order
from sglang_probe.timeline.provenance import provenance_of
from sglang_probe.timeline.states import settle
from sglang_probe.timeline.values import as_number, given_flag
from sglang_probe.timeline.worlds import missing_of, worlds_of

Beside = Callable[[Iterable[str]], int]
_WHOLE_FILES = {"unreadable_file", "foreign_file", "own_report", "empty_file"}
"""Losses of whole files: what the reader left out was given all the same."""


def build(
    collected: Collected,
    *,
    alive: Alive = is_alive,
    beside: Beside = unread_beside,
    assumed: Mapping[str, Any] | None = None,
) -> Timeline:
    """Return the timeline of everything that was read.

    `alive` says whether a process still runs: True, False, or None where it cannot be known. `beside` says how many
    files of a run lie beside those that were read. `assumed` are arguments of the server that a log does not hold.
    """
    with no_garbage_collection():
        unread = _unread(collected, beside)
        runs = [_run(run, alive, unread) for run in collected.runs]
        logs = [Told(log, run_of(log, assumed)) for log in collected.logs]
        return Timeline(runs=together(runs, logs), read=collected.report)


def _unread(collected: Collected, beside: Beside) -> int:
    """Return how many files of the one run that was read were not given; 0 where the reader left files out itself."""
    report = collected.report
    if len(collected.runs) != 1 or report.other_runs or any(loss.kind in _WHOLE_FILES for loss in report.losses):
        return 0
    return beside(sorted({file for member in collected.runs[0].members for file in member.process.files}))


def _not_given(given: int, unread: int) -> str:
    return f"only {given} of the run's {given + unread} files {'was' if given == 1 else 'were'} given"


def _run(run: CollectedRun, alive: Alive, unread: int) -> Run:
    actors = _actors(run, alive)
    provenance = provenance_of([actor.account for actor in actors])
    own = [actor for actor in actors if not actor.identity.is_fork]
    worlds, unplaced = worlds_of(own)
    errors = raised(own, run.clock)
    decided = verdict(own, worlds, unplaced, errors, run.clock)
    settle(actors, decided, run.clock)
    missing = missing_of(worlds, own, _expected_world(provenance))
    mates = mates_of(actors)
    processes = tuple([process_of(actor, provenance.given, owner_of(actor, mates)) for actor in actors])
    started, ended, ready_s = _times(actors, run.clock, decided)
    unknown = decided.outcome == "unknown"
    partial = decided.outcome == "starting" or unread > 0
    return Run(
        run_id=run.run_id,
        launch=run.launch,
        source="events",
        outcome=decided.outcome,
        outcome_reason=_not_given(len(processes), unread) if unknown and unread else decided.reason,
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
        unread_files=0 if decided.outcome == "starting" else unread,  # a file may have come since
        health=_health(processes, missing, partial),
    )


def _health(processes: tuple[Process, ...], missing: tuple[Missing, ...], partial: bool) -> Health:
    """Return the probe's health; of a `partial` run, what is not there may yet come, or lie in a file not given."""
    health = health_of(processes, () if partial else missing)
    if not partial or any(process.label is not None for process in processes):
        return health
    says = tuple(said for said in health.says if not said.startswith(BLIND))
    return msgspec.structs.replace(health, says=says, ok=not says)


def _actors(run: CollectedRun, alive: Alive) -> list[Actor]:
    labels = labels_of([(member.process.key.host, member.rank) for member in run.members])
    actors = [actor_of(member, label, alive) for member, label in zip(run.members, labels, strict=True)]
    return sorted(actors, key=reading_order)


def _failed_label(decided: Verdict) -> str | None:
    if decided.suspects:
        return None
    blamed = decided.died or (None if decided.error is None else decided.error.actor)
    return None if blamed is None else blamed.label


def _times(actors: list[Actor], clock: Clock, decided: Verdict) -> tuple[str, str, float | None]:
    """Return the first and the last `ts`, and the seconds from the first event to ready (on one boot: durations come
    from the monotonic clock alone)."""
    stamped = [(clock.at(actor.boot, record.mono_ns), record.ts) for actor in actors for record in actor.ends]
    (first, started), (_, ended) = min(stamped), max(stamped)
    one_boot = len({actor.boot for actor in actors}) == 1
    ready_s = (decided.ready_at - first) / 1e9 if decided.ready_at is not None and one_boot else None
    return started, ended, ready_s


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
