"""Lines of a log that are no steps, and what to know about the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.figures import counted, listed, number
from sglang_probe.timeline.logs.budget import Frame
from sglang_probe.timeline.logs.seats import TROUBLE, Seat
from sglang_probe.timeline.logs.told import Told
from sglang_probe.timeline.logs.trouble import Trouble, is_bind, survived
from sglang_probe.timeline.model import Later, LaterKind, Missing, Remark

KINDS: Final = frozenset(
    {
        "adjusted", "allreduce_config", "allreduce_disabled", "allreduce_registered", "batch", "ended", "exception",
        "harmless", "host_pool", "imbalance", "lora", "no_memory", "not_memory", "out_of_memory", "retract",
        "retract_abort", "symmetric_pool", "update_weights_begin",
    }
)  # fmt: skip
"""Kinds of facts that are carried as remarks: an error only where SGLang, or the rank, went on from it."""
_PRINTED_BY_ALL: Final = (("weights_end", "weights"), ("pool_end", "pools"))
_REPEATED: Final = frozenset({"batch", "retract", "retract_abort", "lora", "update_weights_begin", "imbalance"})
"""Kinds that a server prints again and again with other figures."""
MOST_CHARACTERS: Final = 400
UNHEALTHY: Final = "unhealthy"
"""What a health check without an answer is from a server that was ready."""


def remarks_of(facts: Sequence[Fact], loose: Sequence[Fact]) -> tuple[Remark, ...]:
    """Return the lines that say something without being a step, those alike once, with how many there were."""
    nobody, after = {id(fact) for fact in loose}, consequences(facts)
    found: dict[tuple[str, ...], Remark] = {}
    gone_on, is_ready = survived(facts), False
    for fact in facts:
        is_ready |= fact.kind == "ready"
        if fact.kind not in KINDS or (fact.kind in TROUBLE and id(fact) not in gone_on):
            continue
        if id(fact) in after:
            continue
        if fact.kind == "allreduce_disabled" and id(fact) not in nobody:
            continue  # a step of its rank
        remark = _as_serving(_remark(fact)) if is_ready else _remark(fact)
        own = () if fact.kind in _REPEATED else (remark.text,)
        key = (fact.kind, remark.what, fact.label or "", *own)
        found[key] = _again(found[key], remark) if key in found else remark
    return tuple(found.values())


def _remark(fact: Fact) -> Remark:
    what = fact.text("what") or fact.text("how") or fact.text("name") or fact.text("type") or fact.kind
    return Remark(
        kind=fact.kind,
        what=what,
        label=fact.label,
        text=fact.entry.text[:MOST_CHARACTERS],
        place=f"{fact.entry.file}:{fact.entry.line}",
        values={name: value for name, value in fact.values.items() if isinstance(value, int | float | str)},
    )


def _as_serving(remark: Remark) -> Remark:
    """Return a remark as of a server that was ready: an unanswered health check is no early one then."""
    early = remark.kind == "harmless" and remark.what == "not_ready_yet"
    return msgspec.structs.replace(remark, kind="not_memory", what=UNHEALTHY, values={}) if early else remark


def _again(before: Remark, now: Remark) -> Remark:
    """Return two remarks as one: the place of the first, the values of the last, requests retracted in all."""
    values = dict(now.values)
    if "retracted" in values:
        values["retracted"] += before.values.get("retracted", 0)
    return msgspec.structs.replace(before, values=values, count=before.count + 1)


def consequences(facts: Sequence[Fact]) -> set[int]:
    """Return the ids of lines by which a process is ended with signal 9 after an error, or after SGLang ended its own.

    SGLang kills its whole tree then, and the shell says `Killed`: that speaks of no OOM killer.
    """
    found: set[int] = set()
    before: str | None = None
    for fact in facts:
        place = f"{fact.entry.file}:{fact.entry.line}"
        if before not in {None, place} and _is_kill(fact):
            found.add(id(fact))
        elif before is None and (fact.kind in TROUBLE or fact.kind == "ended" or _is_kill(fact) or is_bind(fact)):
            before = place
    return found


def _is_kill(fact: Fact) -> bool:
    how = fact.text("how") if fact.kind == "ended" else None
    return how == "killed" or (fact.kind == "not_memory" and fact.text("what") == "host_killed")


def later_of(log: LogRun, ready_at: int | None, troubles: Sequence[Trouble]) -> tuple[Later, ...]:
    """Return the errors that came after the server was ready, and how it was ended, if not by a request to stop."""
    if ready_at is None:
        return ()
    return (*_errors_after(troubles, ready_at), *_ended_after(log, ready_at))


def _ended_after(log: LogRun, ready_at: int) -> tuple[Later, ...]:
    """Return the line by which a server that was ready ended, where no error explains it; empty where it was stopped.
    """
    after, quiet = log.facts[ready_at + 1 :], consequences(log.facts)
    for fact in after:
        stopped = fact.text("how") in {"signal", "shutdown"} if fact.kind == "ended" else False
        if fact.kind in TROUBLE or stopped:
            return ()
        ended = fact.kind == "ended" and fact.text("how") in {"killed", "crash", "child"}
        if (ended or is_bind(fact)) and id(fact) not in quiet:
            what = "address already in use" if is_bind(fact) else fact.entry.text.splitlines()[0][:MOST_CHARACTERS]
            return (_later(fact, f"{what} ({_at(fact)})", fact.entry.text, "gone"),)
    return ()


def _at(fact: Fact) -> str:
    return f"{fact.entry.file.rpartition('/')[2]}:{fact.entry.line}"


def _later(fact: Fact, what: str, message: str | None, kind: LaterKind) -> Later:
    entry = fact.entry
    return Later(
        ts=entry.ts, label=fact.label, host=entry.host, pid=entry.pid, phase=None, what=what, message=message, kind=kind
    )


def _errors_after(troubles: Sequence[Trouble], ready_at: int) -> tuple[Later, ...]:
    return tuple(
        _later(one.fact, f"{one.failure.type or 'an error'} ({_at(one.fact)})", one.failure.message, "error")
        for one in troubles
        if one.position > ready_at
    )


def notes_of(
    log: LogRun, seats: Sequence[Seat], told: Told, missing: Sequence[Missing], frame: Frame
) -> tuple[str, ...]:
    """Return what to know about the text: how it was cut, and what it does not hold."""
    notes = list(log.notes)
    labelled = [seat for seat in seats if seat.label is not None]
    for kind, what in _PRINTED_BY_ALL:
        those = [seat.label or "" for seat in labelled if seat.first(kind) is not None]
        if 0 < len(those) < len(labelled):
            others = len(labelled) - len(those)
            whose = "the other rank" if others == 1 else f"the other {number(others)} ranks"
            notes.append(
                f"only {listed(those, 4)} {'reports' if len(those) == 1 else 'report'} {what}:"
                f" the rows of {whose} are unknown, not zero"
            )
    if missing:
        of = f"{counted(len(missing), 'rank')} of {missing[0].world_size}"
        notes.append(f"{of} never printed a line: unknown, not zero")
    if told.arguments is None and (told.assumed or not any("server_args" in note for note in notes)):
        said = f"; told: {', '.join(f'{name}={value}' for name, value in told.assumed.items())}" if told.assumed else ""
        notes.append(f"the log does not hold server_args{said}")
    if frame.pre_load is not None and len(labelled) > 1:
        notes.append(
            "what was free before the weights is an estimate of the pre-load memory: SGLang reads its own before a"
            " rank's communicator exists, and takes the least over the ranks"
        )
    return tuple(notes)
