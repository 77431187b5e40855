"""The outcome of a run, and in which phase it failed."""

from __future__ import annotations

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.failures import ROOT_PHASE, Raised
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import RunOutcome
from sglang_probe.timeline.peers import ahead_of, came_as_far, furthest_behind, reports_lost_peer, silent_before
from sglang_probe.timeline.spans import Draft
from sglang_probe.timeline.worlds import World


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """What became of a run."""

    outcome: RunOutcome
    reason: str
    failed_phase: str | None = None
    error: Raised | None = None
    """The first error, of a failed run, or of one that died and whose peers told of it."""
    died: Actor | None = None
    """The process that went first, of a run that died."""
    suspects: tuple[Actor, ...] = ()
    """The processes of which one went first, where it is not known which."""
    lost_peer: bool = False
    """The first error only reports that another process is gone."""
    ready_at: int | None = None
    """When the last rank was ready, in nanoseconds on the run's clock."""


def verdict(
    actors: list[Actor], worlds: list[World], unplaced: list[Actor], errors: list[Raised], clock: Clock
) -> Verdict:
    """Return what became of a run. What is known for sure comes first: ready, failed, died; then starting, unknown."""
    ready_at = _ready_at(worlds, unplaced, clock)
    if ready_at is not None:
        return Verdict("ready", "scheduler.init ended without error on every rank", ready_at=ready_at)
    if errors:
        return _lost_peer(actors, errors, clock) or _failed(actors, errors[0])
    gone = [actor for actor in actors if actor.alive is False and actor.unfinished()]
    if gone:
        return _died(gone, [one for one in actors if one.alive is False and _launches(one)], clock)
    running = [actor for actor in actors if actor.alive]
    if running:
        return Verdict("starting", f"{', '.join(actor.name for actor in running[:3])} still running")
    return Verdict("unknown", _why_unknown(actors, worlds))


def _ready_at(worlds: list[World], unplaced: list[Actor], clock: Clock) -> int | None:
    """Return when the last rank was ready; None while a rank of a world that was seen is not."""
    if not worlds or unplaced:
        return None
    times: list[int] = []
    for world in worlds:
        if len(world.members) < world.size:
            return None
        for actor in world.members.values():
            ended = _root_ended(actor)
            if ended is None:
                return None
            times.append(clock.at(actor.boot, ended))
    return max(times)


def _root_ended(actor: Actor) -> int | None:
    """Return when a rank's `scheduler.init` ended without error (mono_ns); None when it did not."""
    roots = [draft for draft in actor.drafts if draft.step.phase == ROOT_PHASE]
    if not roots or any(draft.step.state == "open" for draft in roots) or roots[-1].step.state != "ok":
        return None
    return roots[-1].closed_ns


def _failed(actors: list[Actor], first: Raised) -> Verdict:
    phase = "kv.profile" if left_no_memory(actors) else first.phase
    what = "an error" if first.failure is None or first.failure.type is None else first.failure.type
    reason, lost_peer = f"{first.actor.name}: {what} in {first.phase}", reports_lost_peer(first)
    if lost_peer:
        reason += ", which reports a lost peer; no process here fell silent before it"
    return Verdict("failed", reason, failed_phase=phase, error=first, lost_peer=lost_peer)


def _lost_peer(actors: list[Actor], errors: list[Raised], clock: Clock) -> Verdict | None:
    """Blame the silent, not the messenger: the first to report an error told that a peer is gone. None: it did not,
    or no process here fell silent before it."""
    first = errors[0]
    silent = silent_before(actors, errors, clock) if reports_lost_peer(first) else []
    if not silent:
        return None
    suspects = furthest_behind(silent)
    died = min(suspects, key=lambda actor: (actor.last_ns(clock), actor.order))
    phase = died.unfinished()[-1].step.phase
    told = f"{first.actor.name} was the first to report an error, and it reports a lost peer"
    if len(suspects) == 1:
        reason = f"{died.name} is gone: {ahead_of(died, first, clock)}; {told}"
        return Verdict("died", reason, failed_phase=phase, error=first, died=died, lost_peer=True)
    reason = f"one of {_listed(suspects)} went first and it is not known which; {phase} never ended on them; {told}"
    return Verdict("died", reason, failed_phase=phase, error=first, suspects=tuple(suspects), lost_peer=True)


def _listed(actors: list[Actor]) -> str:
    return named([actor.name for actor in actors])


def left_no_memory(actors: list[Actor]) -> bool:
    """Say whether the budget of a target left nothing on any rank."""
    return any(_left_no_memory(draft) for actor in actors for draft in actor.drafts)


def _left_no_memory(draft: Draft) -> bool:
    """Say whether a target's budget left nothing: the raise that follows has had three homes over the releases."""
    step = draft.step
    if step.phase != "kv.profile" or step.worker == "draft":
        return False
    result = step.attributes.get("result")
    if result is None:
        result = step.attributes.get("rest_bytes")
    return isinstance(result, int | float) and result <= 0


def _launches(actor: Actor) -> bool:
    return actor.identity.role == "launcher" and not actor.identity.is_rank


def _died(gone: list[Actor], launchers: list[Actor], clock: Clock) -> Verdict:
    """Blame the process that fell silent first: the others may have been ended because of it. None is blamed where
    others had come as far: then silence tells nothing of the order. Nor does it where a launcher is gone, too: it ends
    its ranks, and they end it."""
    first = min(gone, key=lambda actor: (actor.last_ns(clock), actor.order))
    phase = first.unfinished()[-1].step.phase
    alike = came_as_far(first, gone)
    if launchers:
        phase_of = "on them" if len(gone) > 1 else f"on {first.name}"
        who = _listed([*launchers, *gone])
        reason = f"{who} are gone and {phase} never ended {phase_of}; which went first is not known"
        return Verdict("died", reason, failed_phase=phase, suspects=(*launchers, *gone))
    if len(alike) > 1:
        reason = f"{_listed(alike)} are gone and {phase} never ended on them; which went first is not known"
        return Verdict("died", reason, failed_phase=phase, suspects=tuple(alike))
    return Verdict("died", f"{first.name} is gone and {phase} never ended", failed_phase=phase, died=first)


def _why_unknown(actors: list[Actor], worlds: list[World]) -> str:
    lacking = sum(world.size - len(world.members) for world in worlds)
    if any(actor.unfinished() for actor in actors):
        return "steps never ended, and whether their processes still run is not knowable here"
    if lacking:
        return f"{lacking} of {sum(world.size for world in worlds)} ranks wrote nothing"
    if not any(draft.step.phase == ROOT_PHASE for actor in actors for draft in actor.drafts):
        return "no rank began scheduler.init"
    return "not every rank ended scheduler.init, and no process says why"
