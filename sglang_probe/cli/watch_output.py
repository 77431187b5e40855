"""Where `watch` writes: a screen that is drawn in place, lines for a pipe, or JSON lines for a program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sglang_probe.cli.output import emit
from sglang_probe.report.plain import printable, printable_json
from sglang_probe.report.watch_changes import Change, change_text, stamped
from sglang_probe.report.watch_model import SCHEMA, Note, View
from sglang_probe.report.watch_notes import gone_note
from sglang_probe.report.watch_text import WORDS, beat, clock, screen, waiting
from sglang_probe.timeline.label_ranges import named

BEAT_S: Final = 30.0
"""A line at least so often, so that one who reads along knows that it lives."""
WORTH_SAYING_S: Final = 0.5
"""What is told so much after its time says when it was."""
NARROWEST: Final = 40
WIDEST: Final = 120


class Output(Protocol):
    """What the loop tells."""

    def begin(self) -> None:
        """Another run is told from now on: what was said of the last one is no reason to be silent."""

    def wait(self, text: str) -> None:
        """Say what is waited for."""

    def show(self, view: View, changes: Sequence[Change]) -> None:
        """Show where the run stands, and what is new."""

    def close(self) -> None:
        """Leave what was shown last as it is."""

    def end(self, text: str, document: dict[str, Any]) -> None:
        """Say how it ended: `text` for a person, `document` for a program."""


class Screen:
    """Redraws in place, in the normal screen: what was shown last stays there."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, legacy_windows=False)
        self._live: Live | None = None
        self._width = 0

    def begin(self) -> None:
        """A picture is drawn anew in any case."""

    def wait(self, text: str) -> None:
        """Say what is waited for."""
        self._draw(waiting(text, self._columns()))

    def show(self, view: View, changes: Sequence[Change]) -> None:  # noqa: ARG002 - the screen shows states
        """Draw where the run stands."""
        self._draw(screen(view, self._columns(), self._console.height - 1))

    def close(self) -> None:
        """Leave what was shown last, with the cursor below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def end(self, text: str, document: dict[str, Any]) -> None:  # noqa: ARG002 - for programs
        """Say how it ended, below what was shown last."""
        self.close()
        emit(f"\n{text}")

    def _columns(self) -> int:
        return max(NARROWEST, min(self._console.width, WIDEST))

    def _draw(self, lines: Sequence[Text]) -> None:
        if self._live is not None and self._console.width < self._width:
            self.close()  # the terminal broke the old lines in two, and nothing knows where they are
        self._width = self._console.width
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
                vertical_overflow="crop",
            )  # fmt: skip
            self._live.start()
        self._live.update(Group(*lines), refresh=True)


class Lines:
    """A line per change, and one now and then; no escapes. Its times never go back."""

    def __init__(self) -> None:
        self._said = ""
        self._waiting_since = self._spoke = float("-inf")
        self._runs = 0
        self._is_first = True
        self.begin()

    def begin(self) -> None:
        """Forget what was said of another run."""
        self._notes: set[tuple[object, ...]] = set()
        self._gone: set[tuple[str, int | None]] = set()
        self._named = False
        self._at_s = float("-inf")

    def wait(self, text: str) -> None:
        """Say what is waited for, once, and now and then that it still is."""
        now = time.monotonic()
        if text != self._said:
            self._said, self._waiting_since = text, now
            self._say(text)
        elif self._is_due():
            self._say(f"still waiting, for {clock(now - self._waiting_since)} so far")

    def show(self, view: View, changes: Sequence[Change]) -> None:
        """Write what is new, or now and then where every rank is."""
        if not self._named:
            self._name(view)
        for change in changes:
            came = change.at_s
            is_late = came is not None and self._at_s - came > WORTH_SAYING_S
            when = f" (at +{clock(came)})" if is_late else ""  # it was read only after later things were told
            self._stamp(view.elapsed_s if came is None else came, change_text(change) + when)
        if self._is_first and not view.ranks:
            self._beat(view)
        self._is_first = False
        for note in view.notes:
            if note.kind == "gone":
                self._missed(view, note)
            elif _same(note) not in self._notes:
                self._note(view, note)
        self._notes |= set(map(_same, view.notes))
        if self._is_due():
            self._beat(view)
            for note in view.notes:
                self._note(view, note)

    def close(self) -> None:
        """There is nothing to undo."""

    def end(self, text: str, document: dict[str, Any]) -> None:  # noqa: ARG002 - for programs
        """Say how it ended."""
        emit(f"\n{text}")

    def _name(self, view: View) -> None:
        """Say which run is told: what it did before has the times that it did it at."""
        self._named = self._is_first = True
        self._said = ""
        self._runs += 1
        what = "watching" if self._runs == 1 else "another run is told from here on: watching"
        launch = f", launch {view.launch + 1}" if view.launch else ""
        version = f", SGLang {view.sglang_version}" if view.sglang_version else ""
        self._say(f"{'':>9}  {what} {view.run_id}{launch}{version}")

    def _missed(self, view: View, note: Note) -> None:
        """Write who is gone and was not said to be."""
        gone = dict.fromkeys(zip(note.labels, note.pids, strict=True))
        fresh = [one for one in gone if one not in self._gone]
        self._gone |= set(gone)
        if fresh:
            self._note(view, gone_note(fresh))

    def _beat(self, view: View) -> None:
        for line in beat(view):
            self._stamp(view.elapsed_s, line)

    def _note(self, view: View, note: Note) -> None:
        who = f" {printable(named(note.labels))}:" if note.labels else ""
        self._stamp(view.elapsed_s, f"{WORDS[note.kind]}{who} {note.says}")

    def _stamp(self, at_s: float | None, line: str) -> None:
        """Write a line at its time, or at that of the line before where that was later."""
        if at_s is None:
            self._say(stamped(None, line))
            return
        self._at_s = max(self._at_s, at_s)
        self._say(stamped(self._at_s, line))

    def _is_due(self) -> bool:
        return time.monotonic() - self._spoke >= BEAT_S

    def _say(self, line: str) -> None:
        emit(f"{printable(line)}\n")
        self._spoke = time.monotonic()


class Json:
    """One object a line, for each change."""

    def __init__(self) -> None:
        self._last: object = None

    def begin(self) -> None:
        """Write the first state of another run."""
        self._last = None

    def wait(self, text: str) -> None:
        """Say what is waited for."""
        self._write(text, {"kind": "waiting", "says": printable(text)})  # a path need not be UTF-8

    def show(self, view: View, changes: Sequence[Change]) -> None:
        """Write the whole view where something is new in it."""
        rows = tuple((row.labels, row.now, row.late_s is not None) for row in view.rows)
        state = rows, view.outcome, tuple(map(_same, view.notes))
        if changes or state != self._last:
            told = {"kind": "state", **msgspec.to_builtins(view), "changes": msgspec.to_builtins(changes)}
            self._write(state, told)

    def close(self) -> None:
        """There is nothing to undo."""

    def end(self, text: str, document: dict[str, Any]) -> None:  # noqa: ARG002 - for a person
        """Write the last object."""
        self._write(None, {"kind": "end", **document})

    def _write(self, state: object, told: dict[str, Any]) -> None:
        if state is not None and state == self._last:
            return
        self._last = state
        stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
        emit(printable_json(msgspec.json.encode({"schema": SCHEMA, "at": stamp, **told}).decode()) + "\n")


def _same(note: Note) -> tuple[object, ...]:
    return note.kind, note.labels, note.about
