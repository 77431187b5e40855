"""What became of the steps that have no end: died, interrupted, or open."""

from __future__ import annotations

import msgspec

from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.liveness import UNKNOWABLE
from sglang_probe.timeline.model import State, Step
from sglang_probe.timeline.outcome import Verdict

_STILL_RUNNING = "its process still runs"
_GONE = "its process is gone"
_END_LOST = "a step around it ended: its own end line is lost"


def settle(actors: list[Actor], verdict: Verdict) -> None:
    """Give every step without an end its state, now that the whole run is known."""
    for actor in actors:
        unfinished = {draft.step.id for draft in actor.unfinished()}
        state, reason = _unfinished_state(actor, verdict)
        for draft in actor.drafts:
            if draft.step.id in unfinished:
                draft.step = _settled(draft.step, state, reason)
            elif draft.closed_seq is None:
                draft.step = _settled(draft.step, "open", _END_LOST)


def _settled(step: Step, state: State, reason: str) -> Step:
    return msgspec.structs.replace(step, state=state, state_reason=reason)


def _unfinished_state(actor: Actor, verdict: Verdict) -> tuple[State, str]:
    if actor.alive:
        return "open", _STILL_RUNNING
    gone = _GONE if actor.alive is False else UNKNOWABLE
    if verdict.outcome == "failed" and verdict.error is not None:
        return "interrupted", f"{verdict.error.actor.name} failed first, in {verdict.failed_phase}; {gone}"
    if actor.alive is False:
        return "died", _GONE
    if verdict.outcome == "died" and verdict.died is not None:
        return "interrupted", f"{verdict.died.name} died; {gone}"
    return "open", UNKNOWABLE
