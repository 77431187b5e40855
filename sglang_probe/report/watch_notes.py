"""What a person should see beside the rows of a start: who stands out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.figures import counted, gib, listed
from sglang_probe.report.watch_model import Note, Row
from sglang_probe.report.watch_places import process_names
from sglang_probe.report.watch_text import clock
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import ranks_of

MOST_PIDS: Final = 8


def notes_of(run: Run, rows: Sequence[Row], world: int | None) -> Iterator[Note]:
    """Yield what stands out: who is late, who has more or less free, who is gone, who has not come yet."""
    for row in rows:
        if row.late_s is not None:
            yield _late(row)
    yield from _odd(rows)
    gone = [(name, process.pid) for process, name in process_names(run) if process.alive is False]
    if gone:
        yield gone_note(gone)
    seen = len(ranks_of(run))
    if world is not None and seen < world and seen:
        who = named([missing.world_rank for missing in run.missing])
        noun = "world rank" if world - seen == 1 else "world ranks"
        says = f"{world - seen} of {counted(world, 'rank')} wrote nothing yet{f': {noun} {who}' if who else ''}"
        yield Note(kind="missing", labels=(), about=str(seen), says=says)


def gone_note(gone: Sequence[tuple[str, int | None]]) -> Note:
    """Return the note on processes that are gone: name and pid of each."""
    pids = listed([pid for _, pid in gone], MOST_PIDS)
    says = f"its process is gone (pid {pids})" if len(gone) == 1 else f"their processes are gone (pids {pids})"
    return Note(
        kind="gone", labels=tuple(name for name, _ in gone), about="", says=says, pids=tuple(pid for _, pid in gone)
    )


def _late(row: Row) -> Note:
    since = f" for {clock(row.since_s)}" if row.since_s is not None else ""
    took = f" after {clock(row.took_s)} (median)" if row.took_s is not None else ""
    says = f"late by {clock(row.late_s)}: {row.now}{since}; {row.past} of {counted(row.of, 'rank')} went on{took}"
    return Note(kind="late", labels=row.labels, about=row.now, says=says)


def _odd(rows: Sequence[Row]) -> Iterator[Note]:
    """Yield a note for the ranks that have more or less free than most in the same place."""
    for row in rows:
        mates = [other for other in rows if (other.now, other.state) == (row.now, row.state)]
        usual = max(mates, key=lambda other: len(other.labels))
        if row is usual or row.free_bytes is None or usual.free_bytes is None:
            continue
        less = row.free_bytes < usual.free_bytes
        apart = usual.free_bytes - row.free_bytes if less else row.free_bytes - usual.free_bytes
        says = f"{gib(apart, row.precision_bytes)} GiB {'less' if less else 'more'} free than {named(usual.labels)}"
        yield Note(kind="less_free" if less else "more_free", labels=row.labels, about="", says=says)
