"""Errors: one exception passes many spans, and some of them SGLang catches and goes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.timeline.actor import Actor, ancestors
from sglang_probe.timeline.model import Failure
from sglang_probe.timeline.spans import Draft

ROOT_PHASE = "scheduler.init"


class Raised(msgspec.Struct, frozen=True, eq=False):
    """One exception in one process, seen where it was innermost."""

    actor: Actor
    draft: Draft
    at: int
    """When its error event was written, in nanoseconds on the run's clock."""
    failure: Failure | None

    @property
    def phase(self) -> str:
        """Role of the innermost span that it passed."""
        return self.draft.step.phase

    @property
    def ts(self) -> str | None:
        """When its error event was written, as it says."""
        return self.draft.closed_ts


def raised(actors: Iterable[Actor], clock: Clock) -> list[Raised]:
    """Return the exceptions that SGLang did not catch itself, in the order of time."""
    found = [error for actor in actors for error in _of_actor(actor, clock)]
    return sorted(found, key=lambda error: (error.at, error.actor.order, error.draft.closed_seq or 0))


def _of_actor(actor: Actor, clock: Clock) -> list[Raised]:
    passed: defaultdict[str, list[Draft]] = defaultdict(list)
    for draft in actor.drafts:
        if draft.step.state == "error":
            failure = draft.step.failure
            known = None if failure is None else failure.id
            passed[known or f"step {draft.step.id}"].append(draft)
    if not passed:
        return []
    found = []
    tree = _Tree(actor.drafts)
    for drafts in passed.values():
        drafts.sort(key=lambda draft: draft.closed_seq or 0)
        if not tree.went_on_after(drafts[-1]):
            innermost = drafts[0]
            at = clock.at(actor.boot, innermost.closed_ns or 0)
            found.append(Raised(actor, innermost, at, _told(drafts)))
    return found


def _told(drafts: list[Draft]) -> Failure | None:
    """Return the failure that carries the text: the innermost's, unless its line was cut."""
    failures = [draft.step.failure for draft in drafts if draft.step.failure is not None]
    return next((failure for failure in failures if failure.message is not None), failures[0] if failures else None)


class _Tree:
    """The steps of a process by id, and when the last of them began."""

    def __init__(self, drafts: list[Draft]) -> None:
        self._states = {draft.step.id: draft.step.state for draft in drafts}
        self._parents = {draft.step.id: draft.step.parent for draft in drafts}
        self._last_began = max((draft.began_seq for draft in drafts if draft.began_seq is not None), default=-1)

    def went_on_after(self, outermost: Draft) -> bool:
        """Say whether SGLang went on after the outermost span that an exception passed.

        It did when a span around that one ended well, or when another span began later in the same process: SGLang
        builds its custom all-reduce so, in a `try` of its own.
        """
        if outermost.step.phase == ROOT_PHASE:
            return False
        around = (self._states[name] for name in ancestors(outermost.step, self._parents))
        if next((state for state in around if state != "open"), None) == "ok":
            return True  # else it raised too: this exception as another, or another one later
        return self._last_began > (outermost.closed_seq or 0)
