"""What became of the steps that have no end: died, interrupted, or open."""

from __future__ import annotations

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.failures import Raised
from sglang_probe.timeline.liveness import UNKNOWABLE
from sglang_probe.timeline.model import State, Step
from sglang_probe.timeline.outcome import Verdict
from sglang_probe.timeline.peers import ahead_of

_STILL_RUNNING = "its process still runs"
_GONE = "its process is gone"
_END_LOST = "a step around it ended: its own end line is lost"


def settle(actors: list[Actor], verdict: Verdict, clock: Clock) -> None:
    """Give every step without an end its state, now that the whole run is known."""
    for actor in actors:
        unfinished = {draft.step.id for draft in actor.unfinished()}
        state, reason = _unfinished_state(actor, verdict, clock)
        for draft in actor.drafts:
            if draft.step.id in unfinished:
                draft.step = _settled(draft.step, state, reason)
            elif draft.closed_seq is None:
                draft.step = _settled(draft.step, "open", _END_LOST)


def _settled(step: Step, state: State, reason: str) -> Step:
    return msgspec.structs.replace(step, state=state, state_reason=reason)


def _unfinished_state(actor: Actor, verdict: Verdict, clock: Clock) -> tuple[State, str]:
    if actor.alive:
        return "open", _STILL_RUNNING
    gone = _GONE if actor.alive is False else UNKNOWABLE
    if verdict.outcome == "failed" and verdict.error is not None:
        return "interrupted", _after_error(actor, verdict, verdict.error, clock, gone)
    if actor is verdict.died and verdict.error is not None:
        lost = f"{verdict.error.actor.name} was the first to report an error, and it reports a lost peer"
        return "died", f"{ahead_of(actor, verdict.error, clock)}; {lost}; {gone}"
    if actor in verdict.suspects:
        others = ", ".join(other.name for other in verdict.suspects[:8] if other is not actor)
        return "died", f"it or one of {others} went first: not known which; {gone}"
    if verdict.outcome == "died" and verdict.error is not None:
        return "interrupted", f"{verdict.died.name if verdict.died else 'another rank'} died; {gone}"
    if actor.alive is False:
        return "died", _GONE
    if verdict.outcome == "died" and verdict.died is not None:
        return "interrupted", f"{verdict.died.name} died; {gone}"
    return "open", UNKNOWABLE


def _after_error(actor: Actor, verdict: Verdict, error: Raised, clock: Clock, gone: str) -> str:
    """Say what is known of the order: a step that runs writes nothing, so silence alone is no sign of an end."""
    told = f"{error.actor.name} was the first to report an error, in {error.phase}; {gone}"
    phase = actor.unfinished()[-1].step.phase if actor.unfinished() else None
    if verdict.failed_phase == error.phase != phase and actor.last_ns(clock) < error.at:
        told += f"; {ahead_of(actor, error, clock)}, so it may have died first"
    return told
