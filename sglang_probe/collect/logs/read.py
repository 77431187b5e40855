"""One text -> its starts: entries, their facts, cut where a server was started anew. Nothing of the text is kept."""

from __future__ import annotations

from typing import BinaryIO, cast

from sglang_probe.collect.logs.choose import told_apart
from sglang_probe.collect.logs.join import Text, log_runs, servers
from sglang_probe.collect.logs.model import Entry, LogRun
from sglang_probe.collect.logs.split import Splitter
from sglang_probe.collect.report import Tally
from sglang_probe.collect.unpack import Reader

Writer = tuple[str | None, str | None]
"""What the carrier says wrote a line: source and host."""


def read_text(
    stream: Reader, name: str, notes: Tally, *, among: str | None = None, wanted: tuple[str, ...] = ()
) -> Text:
    """Return the starts of a text, and count in `notes` its lines, its bytes, and what was mended or left out.

    Raises OSError where the stream does.
    """
    from sglang_probe.collect.logs.entries import entries  # a command that reads events alone need not wait for these
    from sglang_probe.collect.logs.exceptions import follows_ignored
    from sglang_probe.collect.logs.formats import NEEDLES, facts_of, is_whole

    splitters: dict[Writer, Splitter] = {}
    facts = 0
    source = cast(BinaryIO, stream)  # only `read` is asked of it
    before: Entry | None = None
    for entry in entries(source, name, needles=NEEDLES, is_whole=is_whole, notes=notes):
        ignored = before is not None and follows_ignored(entry, before)
        before = entry
        for fact in facts_of(entry, ignored=ignored):
            facts += 1
            writer = entry.source, entry.host
            if writer not in splitters:
                splitters[writer] = Splitter(name, *writer)
            splitters[writer].add(fact)
    starts = [start for splitter in splitters.values() for start in splitter.starts]
    return Text(
        name=name,
        lines=notes.lines,
        bytes=notes.bytes,
        facts=facts,
        starts=starts,
        left_out=sum(splitter.opened - len(splitter.starts) for splitter in splitters.values()),
        reversed=notes.count("reversed_log") > 0,
        wanted=wanted,
        among=among,
    )


def read_log(stream: Reader, name: str, notes: Tally | None = None) -> list[LogRun]:
    """Return the server starts of one log.

    Raises OSError where the stream does, and InputError where two servers wrote it that cannot be told apart.
    """
    notes = Tally() if notes is None else notes
    texts = [read_text(stream, name, notes)]
    return list(log_runs(told_apart(servers(texts), notes, alone=True), texts))
