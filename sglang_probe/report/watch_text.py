"""A view of a start as text: a screen that is drawn again and again, and lines for a pipe or a screen reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from sglang_probe.figures import UNKNOWN, counted, gib
from sglang_probe.report.layout import field, folded, paragraph
from sglang_probe.report.plain import printable
from sglang_probe.report.watch_model import Note, Row, View
from sglang_probe.timeline.label_ranges import named

HEADINGS: Final = ("ranks", "now", "for", "past", "free")
STYLES: Final = {"ready": "green", "error": "bold red", "ended": "bold red"}
NOTE_STYLES: Final = {"late": "bold yellow", "gone": "bold red", "less_free": "yellow", "more_free": "yellow"}
WORDS: Final = {"late": "LATE", "gone": "GONE", "less_free": "ODD", "more_free": "ODD", "missing": "WAIT"}
LEAST_NAME: Final = 16
MOST_NOTES: Final = 4
LEAST_TABLE: Final = 2
"""Lines: the headings and a row."""
WORTH_SAYING: Final = 64 << 20
"""Bytes that a step took so far, from which on they are shown."""
MOST_NAMED: Final = 3
"""Ranges of labels in one cell."""


def screen(view: View, width: int, height: int | None = None) -> list[Text]:
    """Return the lines of a view, at most `height` of them: those of the rows that are furthest on give way first."""
    head = [*field("watch", _title(view), width, "bold"), *field("now", _now(view), width)]
    notes = [line for note in view.notes[:MOST_NOTES] for line in _note(note, width)]
    notes += field("", f"and {len(view.notes) - MOST_NOTES} more", width) if len(view.notes) > MOST_NOTES else []
    foot = ([Text("")] if notes else []) + notes
    table = _table(view.rows, width)
    room = None if height is None else height - len(head) - len(foot) - 2
    if room is not None and len(table) > room:
        if height is not None and room <= LEAST_TABLE:
            return _low(head, view, notes, width, height)
        table = _cut(table, room)
    lines = [*head, Text(""), *table, *foot]
    return lines if height is None else lines[: max(height, 1)]


def _cut(table: list[Text], room: int) -> list[Text]:
    hidden = len(table) - room
    return [*table[:room], Text(f"({counted(hidden, 'line')} more: the window is too low)")]


def _low(head: list[Text], view: View, notes: list[Text], width: int, height: int) -> list[Text]:
    """Return the lines of a window of few rows: the row of ranks that matters most, then the notes and the others."""
    rows = [line for row in view.rows for line in paragraph(sentence(row), width, "", "  ", _style(row))]
    told = next(len(paragraph(sentence(row), width, "", "  ")) for row in view.rows)
    spare = max(height - told, 0)
    kept = [*head[:spare], *rows[:told]]
    left = max(height - len(kept), 0)
    return [*kept, *[*notes, *rows[told:]][:left]][: max(height, 1)]


def _title(view: View) -> str:
    launch = f", launch {view.launch + 1}" if view.launch else ""
    version = f", SGLang {view.sglang_version}" if view.sglang_version else ""
    return f"{view.run_id}{launch}{version}"


def _now(view: View) -> str:
    began = f"began {clock(view.elapsed_s)} ago" if view.elapsed_s is not None else "began at an unknown time"
    if not view.ranks:
        others = [_others(role, count) for role, count in Counter(view.others).items()]
        of = f" of {view.world}" if view.world is not None else ""
        return f"{began}; no rank{of} yet{': ' if others else ''}{', '.join(others)}"
    of = f" of {view.world}" if view.world is not None and view.world != view.ranks else ""
    up = f", {view.ready} ready" if view.ready else ""
    silent = f"; last event {clock(view.silent_s)} ago" if view.silent_s is not None else ""
    return f"{began}; {view.ranks}{of} {'rank' if view.ranks == 1 and not of else 'ranks'}{up}{silent}"


def _others(role: str, count: int) -> str:
    """Name processes that are no ranks: what one will be is not known before it says so."""
    if role == "other":
        return counted(count, "process without a role", "processes without a role")
    return counted(count, printable(role))


def _table(rows: Sequence[Row], width: int) -> list[Text]:
    if not rows:
        return []
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    figures = [max(len(line[place]) for line in cells) for place in (2, 3, 4)]
    room = width - sum(figures) - 2 * (len(HEADINGS) - 1)
    if room < 2 * LEAST_NAME:
        return [line for row in rows for line in paragraph(sentence(row), width, "", "  ", _style(row))]
    names = max(min(max(len(line[0]) for line in cells), max(room // 2 - 2, LEAST_NAME)), len(HEADINGS[0]) + 1)
    whats = max(min(max(len(line[1]) for line in cells), room - names), LEAST_NAME)
    styles = ["bold", *(_style(row) for row in rows)]
    lines = []
    for (who, what, *numbers), style in zip(cells, styles, strict=True):
        left = folded(who, names, "", " ", break_words=True) or [""]
        right = folded(what, whats, "", "  ", break_words=True) or [""]
        for place in range(max(len(left), len(right))):
            first = left[place] if place < len(left) else ""
            second = right[place] if place < len(right) else ""
            shown = [number.rjust(size) for number, size in zip(numbers, figures, strict=True)] if place == 0 else []
            lines.append(Text("  ".join([first.ljust(names), second.ljust(whats), *shown]).rstrip(), style=style))
    return lines


def _style(row: Row) -> str:
    return "yellow" if row.late_s is not None else STYLES.get(row.state, "")


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    past = f"{row.past}/{row.of}" if row.past else UNKNOWN
    return who(row.labels), _doing(row), _span(row.least_since_s, row.since_s), past, free_of(row)


def _doing(row: Row) -> str:
    """Return the step, and what the device lost since it was last read there, where that is much."""
    grew = row.taken_bytes is not None and row.taken_bytes >= WORTH_SAYING
    return f"{row.now}, {gib(row.taken_bytes)} GiB taken since" if grew else row.now


def who(labels: Sequence[str]) -> str:
    """Return ranks as ranges, and how many they are."""
    names = printable(named(labels, MOST_NAMED))
    return names if len(labels) == 1 else f"{names} ({len(labels)})"


def free_of(row: Row) -> str:
    """Return what is free, from the least to the most, in GiB."""
    least, most = gib(row.free_bytes, row.precision_bytes), gib(row.most_free_bytes, row.precision_bytes)
    return least if least == most else f"{least} to {most}"


def _span(least: float | None, most: float | None) -> str:
    if most is None or least is None:
        return UNKNOWN
    return clock(most) if most - least < 1 else f"{clock(least)} to {clock(most)}"


def _note(note: Note, width: int) -> list[Text]:
    names = f"{named(note.labels)}: " if note.labels else ""
    return field(WORDS[note.kind], f"{names}{note.says}", width, NOTE_STYLES.get(note.kind, ""))


def clock(seconds: float | None) -> str:
    """Return a time that has passed: `12.3 s`, from two minutes on `2 min 05 s`, from two hours on `2 h 05 min`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def waiting(text: str, width: int) -> list[Text]:
    """Return the screen while there is no run."""
    return paragraph(text, width)


def beat(view: View) -> Iterator[str]:
    """Yield a line per row, so that a person who reads along knows what goes on."""
    if not view.rows:
        yield _now(view)
    yield from map(sentence, view.rows)


def sentence(row: Row) -> str:
    """Return a row as a sentence."""
    past = f"; {row.past} of {counted(row.of, 'rank')} past it" if row.past else ""
    free = f"; {free_of(row)} GiB free" if row.free_bytes is not None else ""
    return f"{who(row.labels)}: {_doing(row)}, for {_span(row.least_since_s, row.since_s)}{past}{free}"
