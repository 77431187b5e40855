"""What an event of this room must agree with: the ledger, to the byte."""

from __future__ import annotations

from typing import Any

from tests.bodies.ranks import Outcome

BUFFERS = "allreduce.buffers"


def the_end(outcome: Outcome, path: str, role: str = BUFFERS) -> dict[str, Any]:
    """Return the one event that ended `path` well, of a case that went well with the release's own file."""
    assert outcome.problem is None, outcome.problem
    own = path.rpartition(".")[0] or path
    assert not any(name.endswith(own) for name in outcome.replaced)
    (event,) = outcome.ends(role, path)
    assert event["outcome"] in ("ok", None) and event["kind"] != "error", event["exception"]
    assert not [item for item in event["degraded"] if item.get("source", "").startswith("reader")], event["degraded"]
    return event


def sizes(event: dict[str, Any]) -> dict[str, int | None]:
    """Return the bytes of an event's buffers by kind; no kind comes twice."""
    buffers = event["attributes"]["buffers"]
    by_kind = {buffer["kind"]: buffer["bytes"] for buffer in buffers}
    assert len(by_kind) == len(buffers)
    return by_kind


def agrees(outcome: Outcome, event: dict[str, Any], *, in_one: bool = False) -> None:
    """Check that the buffers are what the ledger saw asked and still held, and that the card lost what the delta says.

    `in_one`: all buffers lie in one allocation, of which the ledger knows the whole.
    """
    stated = sorted(size for size in sizes(event).values() if size is not None)
    held = sorted(outcome.outside() + outcome.inside())
    assert held == ([sum(stated)] if in_one else stated)
    assert event["attributes"]["asked_bytes"] == sum(held)
    lost(outcome, event)


def lost(outcome: Outcome, event: dict[str, Any]) -> None:
    """Check that the event's delta is what the card lost in the whole case; a sample has none."""
    if event["kind"] == "sample":
        return
    assert event["delta"]["device_free_bytes"] == -outcome.device_bytes, event["degraded"]


def alive(outcome: Outcome, event: dict[str, Any], cls: str, sharing: str | None, group: str | None = None) -> None:
    """Check who the event is about."""
    said = event["attributes"]
    assert said["class"] == cls
    assert said["group"] == group
    assert (said["world_size"], said["group_rank"]) == (2, outcome.rank)
    assert (said["disabled"], said["disabled_reason"]) == (False, None)
    assert said["sharing"] == sharing
