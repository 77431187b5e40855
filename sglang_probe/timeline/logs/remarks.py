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
from sglang_probe.timeline.logs.trouble import survived, troubles_of
from sglang_probe.timeline.model import Later, Missing, Remark

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
    nobody = {id(fact) for fact in loose}
    found: dict[tuple[str, ...], Remark] = {}
    gone_on, is_ready = survived(facts), False
    for fact in facts:
        is_ready |= fact.kind == "ready"
        if fact.kind not in KINDS or (fact.kind in TROUBLE and id(fact) not in gone_on):
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


def later_of(log: LogRun, ready_at: int | None) -> tuple[Later, ...]:
    """Return the errors that came after the server was ready."""
    if ready_at is None:
        return ()
    return tuple(
        Later(
            ts=one.fact.entry.ts,
            label=one.label,
            host=one.fact.entry.host,
            pid=one.fact.entry.pid,
            phase=None,
            what=f"{one.failure.type or 'an error'} ({one.fact.entry.file} line {one.fact.entry.line})",
            message=one.failure.message,
        )
        for one in troubles_of(log.facts)
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
