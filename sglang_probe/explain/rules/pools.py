"""The rule about a pool that SGLang itself says has no room, where the KV budget's own terms do not settle it."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.rules.fraction import contradicts
from sglang_probe.explain.sayings import no_room, saying_in
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib, number
from sglang_probe.timeline.arithmetic import token_bytes


def no_room_in_a_pool(subject: Subject) -> Iterator[Finding]:
    """SGLang says that a pool has no room: of recurrent states, a sliding window, requests, or the KV cache."""
    saying, seat = no_room(subject), subject.tightest
    if saying is not None and not subject.budget_failed:
        message = "" if subject.run.failure is None else subject.run.failure.message or ""
        said = next(iter(message.splitlines()), "")[:300].rstrip(".")
        yield Finding(
            rule="no_room_in_a_pool",
            severity="error",
            ranks=() if subject.run.failed_label is None else (subject.run.failed_label,),
            says=f"SGLang says that there is no room for its {saying.pool}: {said}. {_budget(subject)}",
            numbers={} if seat is None else {
                "rest_bytes": seat.budget.rest_bytes,
                "available_bytes": seat.budget.available_bytes,
                "bytes_per_token": token_bytes(seat.worker),
                "deductions": dict(seat.budget.deductions),
            },
            lever=Lever(says=f"what moves it: {saying.flags}", basis="unknown"),
            confidence="certain",
        )  # fmt: skip
    for later in subject.run.later:
        full = saying_in(f"{later.what}: {later.message or ''}")
        if full is not None:
            yield Finding(
                rule="no_room_in_a_pool",
                severity="error",
                ranks=(later.label,) if later.label else (),
                says=f"After the server was ready there was no room in its {full.pool}:"
                f" {(later.message or later.what)[:300]}",
                lever=Lever(says=f"what moves it: {full.flags}", basis="unknown"),
                confidence="certain",
            )


def _budget(subject: Subject) -> str:
    """Say what the budget had left, where it is known."""
    seat = subject.tightest
    if seat is None or seat.budget.rest_bytes is None or contradicts(seat):
        return "No budget was recorded that would say how much was left."
    token, rest = token_bytes(seat.worker), seat.budget.rest_bytes
    if token and rest < token:
        return f"The budget left {number(rest)} B, and one token takes {number(token)}."
    return f"The budget had {gib(rest)} GiB left on {seat.label}."
