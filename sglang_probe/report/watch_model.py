"""What a person is shown of a start that goes on: rows of ranks, notes on those that stand out."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sglang_probe.report.watch_places import PlaceState
from sglang_probe.timeline.model import RunOutcome, Source

SCHEMA: Final = "watch/1.0"

NoteKind = Literal["late", "less_free", "more_free", "gone", "missing"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are in the same place. Times are seconds, memory bytes; None is unknown."""

    labels: tuple[str, ...]
    state: PlaceState
    now: str
    """The innermost step that is open, and behind it, after which step."""
    phase: str | None
    since_s: float | None
    """How long the one that is there longest has been there."""
    least_since_s: float | None
    past: int
    """Ranks that were there and went on."""
    of: int
    """All ranks that are seen."""
    took_s: float | None
    """How long they stayed there, the median."""
    late_s: float | None
    """How long ago the median of them went on, where that is worth a word."""
    free_bytes: int | None
    """What the device with the least had free, as last read."""
    most_free_bytes: int | None
    taken_bytes: int | None = None
    """What the device that lost most has less free than a rank of the row last read, where it can be asked now."""
    precision_bytes: int | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should see beside the rows."""

    kind: NoteKind
    labels: tuple[str, ...]
    about: str
    """What makes two notes the same although their figures differ."""
    says: str
    pids: tuple[int | None, ...] = ()
    """Of processes that are gone, in the order of the labels."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    run_id: str
    launch: int
    source: Source
    outcome: RunOutcome
    sglang_version: str | None
    elapsed_s: float | None
    """Since its first event."""
    silent_s: float | None
    """Since its last."""
    ranks: int
    world: int | None
    """How many there will be; None until one says."""
    ready: int
    """Ranks that are up."""
    others: tuple[str, ...]
    """Its processes that are no rank."""
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]
