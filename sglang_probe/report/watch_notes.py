"""What a person should see beside the rows of a start: who stands out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_probe.figures import counted, gib, listed
from sglang_probe.report.watch_model import Note, Row
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import ranks_of


def notes_of(run: Run, rows: Sequence[Row], world: int | None) -> Iterator[Note]:
    """Yield what stands out: who is late, who has more or less free, who is gone, who has not come yet."""
    for row in rows:
        if row.late_s is not None:
            yield _late(row)
    yield from _odd(rows)
    gone = [process for process in run.processes if process.alive is False]
    if gone:
        labels = tuple(process.label or process.role for process in gone)
        pids = listed([process.pid for process in gone], 8)
        says = f"its process is gone (pid {pids})" if len(gone) == 1 else f"their processes are gone (pids {pids})"
        yield Note(kind="gone", labels=labels, about="", says=says)
    seen = len(ranks_of(run))
    if world is not None and seen < world and seen:
        who = named([missing.world_rank for missing in run.missing])
        says = f"{world - seen} of {counted(world, 'rank')} wrote nothing yet: {who}, by their number in the world"
        yield Note(kind="missing", labels=(), about=str(seen), says=says)


def _late(row: Row) -> Note:
    since = f" for {row.since_s:.1f} s" if row.since_s is not None else ""
    took = f" after {row.took_s:.1f} s (median)" if row.took_s is not None else ""
    says = f"late by {row.late_s:.1f} s: {row.now}{since}; {row.past} of {counted(row.of, 'rank')} went on{took}"
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
