"""What is read out of plain SGLang logs: entries (records of SGLang's, cleaned of what carried them), and facts (what
an entry says of memory), gathered into one server start each."""

from __future__ import annotations

from typing import Any, Final

import msgspec

RANK_TOKENS: Final = ("DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP")
"""In the order of a rank's label, whatever order a release printed them in."""


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A figure as printed. `21.73 GB` is 23332409836 bytes, good to 5368710: SGLang says GB and means GiB."""

    bytes: int
    precision_bytes: int
    """How far the true value may be off: half a unit of the last decimal printed, rounded up."""
    printed: str
    """The figure's own characters: `21.73`."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of the server's log."""

    file: str
    line: int
    """Of the file, from 1: where the record begins."""
    text: str
    """The message without prefixes and colours. A traceback's is all its lines, joined by newlines."""
    stamp: str | None = None
    """SGLang's own time, local, without a zone: `2025-06-01 12:00:00[.123]`, or `12:00:00` in the oldest releases."""
    ts: str | None = None
    """The carrier's time, where it names a zone (docker, kubernetes, GCP): RFC 3339 in UTC, ending in Z."""
    ranks: tuple[tuple[str, int], ...] = ()
    """Rank tokens of SGLang's prefix, (`TP`, 1), in the order of RANK_TOKENS; `[gpu=1]` of 0.2 is TP 1."""
    source: str | None = None
    """What the carrier says wrote it: a container, a pod, a unit, a Ray actor; None where nothing does."""
    host: str | None = None
    pid: int | None = None
    """As the carrier says (Ray, journald); SGLang prints none."""
    prefixed: bool = False
    """SGLang's own prefix stood before it."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one entry says: `kind` and the names in `values` are those of KINDS; what a line does not say is absent."""

    kind: str
    entry: Entry
    values: dict[str, Any] = {}

    @property
    def label(self) -> str | None:
        """Return the rank's label, `DP0 TP1`; None where the entry names no rank."""
        return " ".join(f"{name}{number}" for name, number in self.entry.ranks) or None

    def amount(self, name: str) -> Amount | None:
        """Return a figure of memory; None where the line does not have it."""
        value = self.values.get(name)
        return value if isinstance(value, Amount) else None

    def count(self, name: str) -> int | None:
        """Return a whole number; None where the line does not have it."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """Return a word or a text; None where the line does not have it."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None


class LogRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One start of one server, out of one file or several."""

    name: str
    """Its run id: the file's name; `#2` for the second start in it; the carrier's source where several are mixed."""
    files: tuple[str, ...]
    facts: tuple[Fact, ...] = ()
    """In the order in which they stand in the text."""
    first_line: int = 1
    last_line: int = 1
    lines: int = 0
    starts: int = 1
    """How many server starts were found in the file."""
    sources: tuple[str, ...] = ()
    """What carriers say wrote it."""
    notes: tuple[str, ...] = ()
    """How the text was cut: `the file holds 2 starts: lines 1-80 and 81-160`, reversed, truncated at its beginning."""
