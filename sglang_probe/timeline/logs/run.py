"""One start read out of a log -> a Run, as far as the text holds it: what it does not say is unknown, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sglang_probe.collect.logs.model import RANK_TOKENS, LogRun
from sglang_probe.collect.records import Rank, RankPart
from sglang_probe.events.names import ROLES
from sglang_probe.timeline.logs.budget import Frame, frame_of
from sglang_probe.timeline.logs.ending import Ending, ending_of
from sglang_probe.timeline.logs.outcome import verdict_of
from sglang_probe.timeline.logs.rank import process_of
from sglang_probe.timeline.logs.remarks import later_of, notes_of, remarks_of
from sglang_probe.timeline.logs.seats import Seat, seats_of
from sglang_probe.timeline.logs.steps import Phase, phases_of
from sglang_probe.timeline.logs.told import Told, provenance_of
from sglang_probe.timeline.logs.trouble import troubles_of
from sglang_probe.timeline.model import Health, Missing, Process, Run

_SIZES: Final = {
    "DP": "dp_size",
    "PP": "pp_size",
    "ATTN_CP": "attn_cp_size",
    "MOE_DP": "moe_dp_size",
    "TP": "tp_size",
    "EP": "ep_size",
}
MAX_MISSING: Final = 10_000


def run_of(log: LogRun, assumed: Mapping[str, Any] | None = None) -> Run:
    """Return the run that a log tells of. `assumed`: arguments that the user names because the log does not."""
    told = Told(log, assumed or {})
    seats, loose = seats_of(log)
    phases = [phases_of(seat) for seat in seats]
    frame = frame_of(seats, told)
    both = zip(seats, phases, strict=True)
    unfinished = [(seat, phase) for seat, own in both for phase in own if phase.state is None]
    troubles = troubles_of(log.facts)
    verdict = verdict_of(log, seats, told, unfinished, troubles)
    endings = [ending_of(seat, verdict, troubles, len(seats)) for seat in seats]
    processes = _processes(log, told, seats, phases, frame, endings)
    missing = _missing(seats, told)
    provenance = provenance_of(told)
    stamps = [fact.entry.stamp for fact in log.facts if fact.entry.stamp is not None]
    zoned = [fact.entry.ts for fact in log.facts if fact.entry.ts is not None]
    return Run(
        run_id=log.name,
        launch=0,
        source="log",
        outcome=verdict.outcome,
        outcome_reason=verdict.reason,
        failed_phase=verdict.failed_phase,
        failed_label=verdict.label,
        failure=verdict.failure,
        lost_peer=verdict.lost_peer,
        started=min(zoned, default=None),
        ended=max(zoned, default=None),
        provenance=provenance,
        processes=processes,
        later=later_of(log, verdict.ready_at, troubles),
        missing=missing,
        health=_health(processes),
        notes=notes_of(log, seats, told, missing, frame),
        remarks=remarks_of(log.facts, loose),
        local_started=stamps[0] if stamps else None,
        local_ended=stamps[-1] if stamps else None,
    )


def _processes(
    log: LogRun, told: Told, seats: Sequence[Seat], phases: Sequence[list[Phase]], frame: Frame,
    endings: Sequence[Ending],
) -> tuple[Process, ...]:
    served = None
    for seat in seats:
        capacity = seat.first("capacity")
        served = served or (None if capacity is None else capacity.count("max_total_num_tokens"))
    ranks = tuple(
        process_of(seat, own, told, frame, ending, _rank(seat, told), served)
        for seat, own, ending in zip(seats, phases, endings, strict=True)
    )
    has_launcher = any(fact.kind in {"server_args", "ready"} and not fact.entry.ranks for fact in log.facts)
    launcher = (Process(role="launcher", events=0),) if has_launcher else ()
    return launcher + ranks


def _rank(seat: Seat, told: Told) -> Rank | None:
    """Return where a rank stands; None where the sizes are not known, and the label is all that there is."""
    if told.arguments is None and not told.assumed:
        return None
    numbers = dict(seat.ranks)
    parts: dict[str, Any] = {}
    for name in RANK_TOKENS:
        size = told.count(_SIZES[name])
        number = numbers.get(name, 0 if size == 1 or name == "TP" else None)
        if size is not None and number is not None and number < size:
            parts[name.lower()] = RankPart(rank=number, size=size)
    return Rank(**parts) if parts else None


def _missing(seats: Sequence[Seat], told: Told) -> tuple[Missing, ...]:
    """Return the tensor ranks of the server's arguments that no line names."""
    size = told.count("tp_size")
    seen = {dict(seat.ranks).get("TP", 0) for seat in seats if seat.label is not None}
    if size is None or size > MAX_MISSING or (told.count("pp_size") or 1) > 1:
        return ()
    reason = "no line of the log is of this rank: its rows are unknown, not zero"
    return tuple(Missing(world_rank=rank, world_size=size, reason=reason) for rank in range(size) if rank not in seen)


def _health(processes: Sequence[Process]) -> Health:
    """Return no complaint: there was no probe, and a log is judged by what it holds."""
    seen = {step.phase for process in processes for step in process.steps}
    return Health(
        ok=True,
        memory_roles=tuple(role for role in ROLES if role in seen),
        absent_roles=tuple(role for role in ROLES if role not in seen),
    )
