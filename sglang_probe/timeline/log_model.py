"""What a log says against the events of the same run. Bytes are integers in bytes."""

from __future__ import annotations

from typing import Literal

import msgspec

Unit = Literal["bytes", "tokens", "requests", "fraction", "text"]


class Disagreement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A figure that the events and the log of one run have, and not alike."""

    what: str
    """`weights.load: free after it`."""
    label: str | None = None
    """The rank; None where it is the run's."""
    unit: Unit
    event: int | float | str | None
    log: int | float | str | None
    difference: int | float | None = None
    """log - event."""
    precision: int | float | None = None
    """How far off the log's own figure may be, in its unit."""
    place: str
    """file:line of the log."""
    reason: str | None = None
    """Why the two may differ though both are right; None: nothing known explains it."""


class LogCheck(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A log of a run checked against its events: compared = agree + explained + disagreements."""

    files: tuple[str, ...] = ()
    """Of the log."""
    reasons: tuple[str, ...] = ()
    """Why they are one run."""
    offset_s: float | None = None
    """The server's own clock less UTC; None where it was not needed, or not found."""
    compared: int = 0
    agree: int = 0
    """Within the log's precision."""
    arguments_compared: int = 0
    """Arguments of the server that both name; those that differ are among the disagreements."""
    explained: tuple[Disagreement, ...] = ()
    """Differences with a known reason that leaves both right."""
    disagreements: tuple[Disagreement, ...] = ()
