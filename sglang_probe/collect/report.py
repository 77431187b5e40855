"""What reading found that was not a whole event, so that no loss is silent."""

from __future__ import annotations

from typing import Final

import msgspec

from sglang_probe.events.redact import redact_text

MAX_EXAMPLES: Final = 3
"""Places named per kind of loss; the count goes on."""
MAX_EXAMPLE_TEXT: Final = 80

KINDS: Final[dict[str, tuple[bool, str]]] = {
    "unreadable_file": (True, "a file could not be read"),
    "unreadable_run": (True, "a directory could not be read: it may hold a run, newer than what is shown"),
    "torn_tail": (True, "the last line of a file is cut off: its process was ended while it wrote, or is writing now"),
    "torn_line": (True, "a line is cut off in the middle of a file: a short write"),
    "headless_line": (True, "a line is the end of an event whose beginning is missing"),
    "broken_line": (True, "a line is of the probe but is no JSON"),
    "wrong_shape": (True, "a line is of the probe but a field of it has the wrong type or is missing"),
    "missing_part": (True, "a part of an event that was split over several lines is missing"),
    "cut_archive": (True, "a compressed file could not be read to its end"),
    "mixed_servers": (True, "two servers wrote one text, and nothing says which line is whose: it was left out"),
    "seq_gap": (True, "sequence numbers are missing: their events were lost (those of cut-off lines included)"),
    "long_line": (False, "a line is too long to be an event"),
    "foreign_line": (False, "a line is not a probe event"),
    "foreign_file": (False, "a file holds no probe event"),
    "own_report": (False, "a file is a report of sglang-probe's, and no record of a run"),
    "silent_log": (False, "a file is a log of SGLang's in which nothing is said of a start or of memory"),
    "log_beside_runs": (False, "a log of SGLang's beside run directories was not read; name it to have it read"),
    "empty_file": (False, "a file is empty"),
    "special_file": (False, "a pipe, socket or device in a directory was not read"),
    "rankless_run": (False, "a newer run, in which no rank began, was passed over; give its own directory to see it"),
    "nested_directory": (False, "a directory inside a run directory was not read"),
    "not_utf8": (False, "bytes that are not UTF-8 were replaced"),
    "half_pair": (False, "half a surrogate pair (a byte that was not UTF-8 where it was read) was replaced"),
    "nul_bytes": (False, "NUL bytes were skipped"),
    "blank_line": (False, "a line is blank"),
    "duplicate_line": (False, "an event came twice and was counted once"),
    "duplicate_file": (False, "a file was named twice and read once"),
    "same_seq": (False, "two different events of one process have the same sequence number; both were kept"),
    "reordered": (False, "an event stood out of its order and was put back"),
    "newer_minor": (False, "an event has a newer minor schema version; keys that are not known here were ignored"),
    "other_schema": (False, "an event names a schema version that no probe wrote; it was read all the same"),
    "cut_log": (False, "a log's last line has no end: its last figure may be cut off"),
    "long_log_line": (False, "a line of a log is too long to be a record and was not read"),
    "reversed_log": (False, "a log has its newest line first and was read from its end"),
    "repeated_log_line": (False, "Ray printed a line once for several actors: figures of the others are missing"),
    "tangled_traceback": (False, "tracebacks were written through each other: their exceptions are given to no rank"),
    "utf_16": (False, "a log is in UTF-16 and was read as such"),
    "wrapped_log_line": (False, "a record of a log was wrapped over several lines and was put together"),
    "unknown_event": (False, "an event has a name that is not known here; it was kept"),
}
"""Kind of loss -> is data gone, and what it is. Listed in this order."""


class Place(msgspec.Struct, frozen=True):
    """Where something was found."""

    file: str
    line: int | None = None
    """From 1; None when it is about the whole file."""
    text: str | None = None
    """The beginning of what was there."""


class Loss(msgspec.Struct, frozen=True):
    """One kind of loss: how often, and the first places."""

    kind: str
    """A key of KINDS."""
    count: int
    says: str
    """One plain sentence."""
    lost: bool
    """True when data is gone; False when it was only noted (a duplicate, a reordered line, a newer minor)."""
    examples: tuple[Place, ...] = ()


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, and what of it was not an event."""

    files: int = 0
    """Files that held events."""
    lines: int = 0
    bytes: int = 0
    events: int = 0
    losses: tuple[Loss, ...] = ()
    other_runs: int = 0
    """Runs beside the newest one in a directory of runs; they were not returned."""
    beside: tuple[str, ...] = ()
    """The first few names of these, the newest first, where they are logs."""
    log_files: int = 0
    """Plain SGLang logs; what follows is counted of them, and `files`, `lines`, `bytes` of what held events."""
    log_lines: int = 0
    log_bytes: int = 0
    """Without compression."""
    facts: int = 0
    """What the logs' lines say of a start or of memory."""

    @property
    def clean(self) -> bool:
        """True when every line was a whole event of ours, once, in order."""
        return not self.losses


class Tally:
    """Counts losses while reading."""

    def __init__(self) -> None:
        self.files = self.lines = self.bytes = self.events = self.other_runs = 0
        self.log_files = self.log_lines = self.log_bytes = self.facts = 0
        self.beside: list[str] = []
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[Place]] = {}

    def add(
        self, kind: str, file: str, line: int | None = None, text: bytes | str | None = None, count: int = 1
    ) -> None:
        """Count `count` losses of one kind of KINDS, and keep the place if it is among the first."""
        self._counts[kind] = self._counts.get(kind, 0) + count
        examples = self._examples.setdefault(kind, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(Place(unicode_only(file), line, _shown(text)))

    def absorb(self, notes: Tally) -> None:
        """Count the losses of another tally here."""
        for kind, count in notes._counts.items():
            self._counts[kind] = self._counts.get(kind, 0) + count
            examples = self._examples.setdefault(kind, [])
            examples += notes._examples[kind][: MAX_EXAMPLES - len(examples)]

    def count(self, kind: str) -> int:
        """Return how many losses of this kind were counted so far."""
        return self._counts.get(kind, 0)

    def report(self) -> ReadReport:
        """Return what was counted, in the order of KINDS."""
        losses = tuple(
            Loss(kind, self._counts[kind], says, lost, tuple(self._examples[kind]))
            for kind, (lost, says) in KINDS.items()
            if kind in self._counts
        )
        return ReadReport(
            files=self.files,
            lines=self.lines,
            bytes=self.bytes,
            events=self.events,
            losses=losses,
            other_runs=self.other_runs,
            beside=tuple(self.beside[:MAX_EXAMPLES]),
            log_files=self.log_files,
            log_lines=self.log_lines,
            log_bytes=self.log_bytes,
            facts=self.facts,
        )


def unicode_only(name: str) -> str:
    """Return a name with `\\udcff` spelt out for each byte that is not UTF-8: no writer takes half a surrogate pair."""
    return name.encode("utf-8", "backslashreplace").decode()


def _shown(text: bytes | str | None) -> str | None:
    if isinstance(text, bytes):
        text = text[: MAX_EXAMPLE_TEXT * 4].decode("utf-8", "replace")
    if text is None:
        return None
    text = redact_text(unicode_only(text))  # before the cut, for a half of a secret is not seen as one
    if len(text) <= MAX_EXAMPLE_TEXT:
        return text
    return text[: MAX_EXAMPLE_TEXT - 3] + "..."
