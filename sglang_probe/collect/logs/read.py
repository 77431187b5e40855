"""One text -> its starts: entries, their facts, cut where a server was started anew. Nothing of the text is kept."""

from __future__ import annotations

from typing import BinaryIO, Final, cast

from sglang_probe.collect.logs import server_args
from sglang_probe.collect.logs.choose import told_apart
from sglang_probe.collect.logs.join import Text, log_runs, servers
from sglang_probe.collect.logs.model import Entry, Fact, LogRun
from sglang_probe.collect.logs.owners import is_own, is_prefixed, note_of, program_of, said_by
from sglang_probe.collect.logs.split import Splitter
from sglang_probe.collect.report import Tally
from sglang_probe.collect.unpack import Reader

CUT_IN_ARGUMENTS: Final = "the text ends inside the server's arguments"
Writer = tuple[str | None, str | None]
"""What the carrier says wrote a line: source and host."""


def read_text(
    stream: Reader,
    name: str,
    notes: Tally,
    *,
    among: str | None = None,
    wanted: tuple[str, ...] = (),
    head: bytes | None = None,
) -> Text:
    """Return the starts of a text, and count in `notes` its lines, its bytes, and what was mended or left out. With its
    beginning, `head`, also whether it is SGLang's at all.

    Raises OSError where the stream does.
    """
    from sglang_probe.collect.logs.entries import entries  # a command that reads events alone need not wait for these
    from sglang_probe.collect.logs.exceptions import follows_ignored
    from sglang_probe.collect.logs.formats import NEEDLES, facts_of, is_whole

    splitters: dict[Writer, Splitter] = {}
    facts = 0
    said = ""
    last: Fact | None = None
    owned, ran_out = head is None or is_prefixed(head), False
    source = cast(BinaryIO, stream)  # only `read` is asked of it
    before: Entry | None = None
    for entry in entries(source, name, needles=NEEDLES, is_whole=is_whole, notes=notes):
        ignored = before is not None and follows_ignored(entry, before)
        before = entry
        for fact in facts_of(entry, ignored=ignored):
            facts += 1
            last = fact
            owned = owned or is_own(fact)
            ran_out = ran_out or fact.kind == "out_of_memory"
            if not owned and (fact.kind == "exception" or (fact.kind == "not_memory" and program_of(head or b""))):
                said = said_by(fact)
            writer = entry.source, entry.host
            if writer not in splitters:
                splitters[writer] = Splitter(name, *writer)
            splitters[writer].add(fact)
    if last is not None and last.kind == "server_args" and last.entry.line >= notes.lines:
        cut = server_args.is_cut(last.entry.text)
        splitters[last.entry.source, last.entry.host].starts[-1].notes += [CUT_IN_ARGUMENTS] * cut
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
        owned=owned,
        said=said,
        note=note_of(head) if head is not None and ran_out and not owned else "",
        among=among,
    )


def read_log(stream: Reader, name: str, notes: Tally | None = None) -> list[LogRun]:
    """Return the server starts of one log.

    Raises OSError where the stream does, and InputError where two servers wrote it that cannot be told apart.
    """
    notes = Tally() if notes is None else notes
    texts = [read_text(stream, name, notes)]
    return list(log_runs(told_apart(servers(texts), notes, alone=True), texts))
