"""What became of a start, by its log alone. A text that just ends says nothing of what came after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.figures import counted
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.steps import Phase
from sglang_probe.timeline.logs.told import Told
from sglang_probe.timeline.logs.trouble import BUDGET, Trouble, came_to, is_bind, phase_in_frames
from sglang_probe.timeline.model import Failure, RunOutcome
from sglang_probe.timeline.peers import LOST_PEER

_CHAIN: Final = ("weights_begin", "weights_end", "pool_end", "capacity")
_BY_A_SIGNAL: Final = frozenset({"killed", "crash"})
"""A child's sigquit follows from any error."""
_KILLED: Final = frozenset({"killed", "crash", "child"})


class Verdict(NamedTuple):
    """What became of a start."""

    outcome: RunOutcome
    reason: str
    failed_phase: str | None = None
    label: str | None = None
    failure: Failure | None = None
    lost_peer: bool = False
    ready_at: int | None = None
    """Position among the facts."""


def verdict_of(
    log: LogRun,
    seats: Sequence[Seat],
    told: Told,
    open_phases: Sequence[tuple[Seat, Phase]],
    troubles: Sequence[Trouble],
) -> Verdict:
    """Return what the text says for sure, in this order: ready, failed, died; else unknown."""
    said = next((position for position, fact in enumerate(log.facts) if fact.kind == "ready"), None)
    if said is not None:  # whatever an error before it was, SGLang went on
        return Verdict("ready", "the log says that the server is ready", ready_at=said)
    ended = next((fact for fact in log.facts if fact.kind == "ended" and fact.text("how") in _KILLED), None)
    taken = next(filter(is_bind, log.facts), None)
    ready_at, why_ready = _serving(log, seats, told)
    if ready_at is not None and not troubles and ended is None and taken is None:
        return Verdict("ready", why_ready, ready_at=ready_at)
    first = next((one for one in troubles if not _only_reports(one)), None)
    killed = next((fact for fact in log.facts if fact.kind == "ended" and fact.text("how") in _BY_A_SIGNAL), None)
    if first is None and troubles and killed is not None:
        return _died(killed, open_phases)
    if troubles:
        return _failed(log, seats, first or troubles[0])
    if taken is not None:
        return _taken(taken)
    negative = [seat for seat in seats if _left_nothing(seat)]
    if negative:
        return _negative(negative)
    if ended is not None:
        return _died(ended, open_phases)
    return Verdict("unknown", _why_unknown(seats, open_phases))


def _serving(log: LogRun, seats: Sequence[Seat], told: Told) -> tuple[int | None, str]:
    """Return where every rank has printed its last line of the start, of a text that has no word of being ready.

    That line comes shortly before the end of `scheduler.init`: with an error or an end after it, it proves nothing.
    """
    labelled = [seat for seat in seats if seat.label is not None]
    if not labelled or not all(seat.first("capacity") for seat in labelled):
        return None, ""
    whole = len(labelled) >= told.size if told.size is not None else all(map(_is_whole, labelled))
    if not whole:
        return None, ""
    last = max(position for position, fact in enumerate(log.facts) if fact.kind == "capacity")
    return last, f"every rank ({counted(len(labelled), 'rank')} seen) printed what it serves with"


def _taken(fact: Fact) -> Verdict:
    """Return that a port was in use: a start that ends so says nothing else of why."""
    message = (fact.text("message") or fact.entry.text).removeprefix("ERROR:").strip()
    failure = Failure(id=_at(fact), type="OSError", message=message)  # which alone prints an errno so
    return Verdict("failed", f"address already in use ({_at(fact).rpartition('/')[2]})", None, fact.label, failure)


def _is_whole(seat: Seat) -> bool:
    """Say whether a rank's lines are all there: of an excerpt it is not known whether all ranks are in it."""
    return all(seat.first(kind) is not None for kind in _CHAIN)


def _failed(log: LogRun, seats: Sequence[Seat], first: Trouble) -> Verdict:
    what = first.failure.type or "an error"
    phase = BUDGET if first.is_budget or any(map(_left_nothing, seats)) else _phase(log, seats, first)
    where = f"{first.label}: " if first.label else ""
    reason = f"{where}{what}{f' in {phase}' if phase else ''}"
    return Verdict("failed", reason, phase, first.label, first.failure, _reports_lost_peer(first))


def _only_reports(trouble: Trouble) -> bool:
    """Say whether an error only tells that another process is gone: of a lost peer, or of a child that said nothing."""
    if trouble.label is None and (trouble.failure.type or "").rpartition(".")[2] == "EOFError":
        return True
    return _reports_lost_peer(trouble)


def _reports_lost_peer(trouble: Trouble) -> bool:
    return any(words in (trouble.failure.message or "") for words in LOST_PEER)


def _phase(log: LogRun, seats: Sequence[Seat], first: Trouble) -> str | None:
    """Return the phase of an error: that its rank was in; else of its frames; else the one that all ranks were in."""
    positions = {id(fact): position for position, fact in enumerate(log.facts)}
    own = [seat for seat in seats if seat.label == first.label]
    in_frames = phase_in_frames(first.failure)
    phases = {came_to(seat, positions, first.position) for seat in own or seats}
    begun = phases.pop() if len(phases) == 1 else None
    return begun or in_frames


def _left_nothing(seat: Seat) -> bool:
    profiled = [fact.count("profiled") for fact in seat.of(0, "kv_cap")]
    return any(count is not None and count <= 0 for count in profiled)


def _negative(seats: Sequence[Seat]) -> Verdict:
    who = named([seat.label for seat in seats])
    reason = f"the budget left nothing on {who}: SGLang does not start so, in any release"
    return Verdict("failed", reason, BUDGET, seats[0].label if len(seats) == 1 else None)


def _at(fact: Fact) -> str:
    return f"{fact.entry.file}:{fact.entry.line}"


def _died(ended: Fact, open_phases: Sequence[tuple[Seat, Phase]]) -> Verdict:
    last = {seat.label: phase.phase for seat, phase in open_phases}  # of each rank the one begun last
    phases = set(last.values())
    phase = phases.pop() if len(phases) == 1 else None
    said = ended.entry.text.splitlines()[0] if ended.entry.text else "a process was ended"
    at = _at(ended).rpartition("/")[2]
    return Verdict("died", f"{said} ({at})", phase, ended.label)


def _why_unknown(seats: Sequence[Seat], open_phases: Sequence[tuple[Seat, Phase]]) -> str:
    if open_phases:
        seat, phase = max(open_phases, key=lambda one: (one[1].begin is not None, one[1].place.entry.line))
        free = "" if phase.free_before is None else f", with {phase.free_before.bytes / (1 << 30):.2f} GiB free"
        return f"the text ends while {phase.phase} had begun on {seat.label}{free}; what came of it is not in it"
    if not seats:
        return "the text has no line of a rank"
    return "the text ends before it says that the server is ready or why it is not"
