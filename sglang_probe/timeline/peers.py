"""Errors that tell of a lost peer: who reports one did not fail first, and a process that fell silent did."""

from __future__ import annotations

from typing import Final

from sglang_probe.collect.clock import SECOND, Clock
from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.failures import Raised

UNKNOWN_SKEW_NS: Final = 30 * SECOND
"""How far the clocks of two boots may be apart that no common step ties together."""

LOST_PEER: Final[dict[str, float | None]] = {
    "Connection closed by peer": None,  # gloo, transport/tcp/pair.cc
    "Connection reset by peer": None,  # errno ECONNRESET, by gloo and by torch's TCPStore
    "Connection was likely closed. Did the remote server": None,  # torch, c10d/TCPStore
    "remote process exit": None,  # NCCL's ncclRemoteError, as torch's NCCLUtils words it ("exited", "exiting")
    "other ranks that didn't finish loading": 480.0,  # SGLang, ModelRunner.load_model, after its monitored barrier
    "failed to pass monitoredBarrier": 480.0,  # torch, ProcessGroupGloo; SGLang calls it in load_model alone
}
"""Words of a message -> the seconds after which it may be about a slow peer as well; None: never."""


def reports_lost_peer(error: Raised) -> bool:
    """Say whether an error only tells that another process is gone."""
    message = "" if error.failure is None else error.failure.message or ""
    lasted = error.draft.step.duration_s
    return any(
        words in message and (limit is None or (lasted is not None and lasted < limit))
        for words, limit in LOST_PEER.items()
    )


def silent_before(actors: list[Actor], errors: list[Raised], clock: Clock) -> list[Actor]:
    """Return the ranks that do not run, wrote no error, left a step open, and wrote last before the first error."""
    first = errors[0]
    raised = {id(error.actor) for error in errors}
    return [
        actor
        for actor in actors
        if not actor.alive and id(actor) not in raised and actor.identity.is_rank and actor.unfinished()
        and actor.last_ns(clock) < first.at + doubt_ns(actor, first.actor, clock)
    ]  # fmt: skip


def doubt_ns(one: Actor, other: Actor, clock: Clock) -> int:
    """Return how far the order of two processes' events is in doubt: not at all within one boot."""
    if one.boot == other.boot:
        return 0
    return 0 if {one.boot, other.boot} & clock.skews.keys() else UNKNOWN_SKEW_NS


def furthest_behind(silent: list[Actor]) -> list[Actor]:
    """Return those of the silent that had come least far: the others waited for them. More than one: not known which.

    Ranks of one world go through the same steps, so the count of their begins and ends says how far each came.
    """
    least = min(map(_progress, silent))
    return [actor for actor in silent if _progress(actor) == least]


def came_as_far(first: Actor, actors: list[Actor]) -> list[Actor]:
    """Return `first` and those that had come exactly as far."""
    return [actor for actor in actors if _progress(actor) == _progress(first)]


def _progress(actor: Actor) -> int:
    return sum(1 + (draft.closed_seq is not None) for draft in actor.drafts)


def ahead_of(actor: Actor, error: Raised, clock: Clock) -> str:
    """Return how long before an error a process wrote last, as a sentence's part."""
    gap = (error.at - actor.last_ns(clock)) / SECOND
    if doubt_ns(actor, error.actor, clock):
        return f"its last event came about when {error.actor.name}'s error did"
    about = "" if actor.boot == error.actor.boot else "about "
    return f"its last event came {about}{max(gap, 0):.3f} s before {error.actor.name}'s error"
