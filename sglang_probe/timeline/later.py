"""What happened after a run was ready. It stays ready, and this says what followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.failures import Raised
from sglang_probe.timeline.model import Later, LaterKind


def later_of(actors: Sequence[Actor], errors: Sequence[Raised], ready_at: int, clock: Clock) -> tuple[Later, ...]:
    """Return errors after `ready_at`, steps that never ended, and processes that are gone, in the order of time."""
    found = [(error.at, error.actor.order, _error(error)) for error in errors if error.at > ready_at]
    found += [(actor.last_ns(clock), actor.order, one) for actor in actors for one in _unfinished(actor)]
    lost = [actor for actor in actors if actor.alive is False]
    if len(lost) == len(actors):
        last = max(actors, key=lambda actor: (actor.last_ns(clock), actor.order))
        gone = "its one process is gone" if len(actors) == 1 else f"all {len(actors)} processes are gone"
        said = _later(last, None, f"{gone}; this was the last event", kind="gone")
        found.append((last.last_ns(clock), last.order, msgspec.structs.replace(said, label=None)))  # it only wrote last
    else:
        found += [
            (
                actor.last_ns(clock),
                actor.order,
                _later(actor, None, "the process is gone; this was its last event", kind="gone"),
            )
            for actor in lost
        ]
    return tuple(one for _, _, one in sorted(found, key=lambda item: item[:2]))


def _error(error: Raised) -> Later:
    kind = "an error" if error.failure is None or error.failure.type is None else error.failure.type
    return _later(error.actor, error.phase, f"{kind} in {error.phase}", error.ts)


def _unfinished(actor: Actor) -> Iterable[Later]:
    unfinished = actor.unfinished()
    if unfinished and not actor.alive:
        phase = unfinished[-1].step.phase
        yield _later(actor, phase, f"{phase} never ended", kind="unfinished")


def _later(actor: Actor, phase: str | None, what: str, ts: str | None = None, kind: LaterKind = "error") -> Later:
    key = actor.process.key
    ts = ts or actor.process.records[-1].ts
    return Later(ts=ts, label=actor.label, host=key.host, pid=key.pid, phase=phase, what=what, kind=kind)
