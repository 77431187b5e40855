"""The starts of one text or several -> servers: nodes of one server, its ranks' writers, files that were rotated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.collect.logs.split import are_nodes
from sglang_probe.collect.logs.start import Start
from sglang_probe.figures import counted, listed

_NUMBERED: Final = re.compile(r"(?:[.-]\d{1,4})?(?:[.-]\d{4}-?\d\d-?\d\d(?:[-_T]?\d\d-?\d\d-?\d\d)?)?$")
"""What rotation adds to a file's name: a number, or a date."""
_PACKED: Final = re.compile(r"\.(?:gz|zst|zstd|xz|bz2)$")
_EXTENSION: Final = re.compile(r"\.(?:log|txt|out|err)$")
SHOWN: Final = 4


class Text(msgspec.Struct, kw_only=True):
    """One input, as far as it is a log."""

    name: str
    lines: int
    bytes: int
    facts: int
    starts: list[Start]
    left_out: int = 0
    """Starts that came before those kept."""
    reversed: bool = False
    wanted: tuple[str, ...] = ()
    """The starts that are wanted, `2` or a writer's name; none for all."""
    owned: bool = True
    """A line of it is SGLang's own."""
    note: str = ""
    """What is to be known of the whole text."""
    said: str = ""
    """Of a text that is no server's, what a line of it says that is no matter of the GPU's memory."""
    among: str | None = None
    """The directory of logs that it was found through, of which only the newest start is wanted."""


    @property
    def counts(self) -> bool:
        """Say whether it tells of a server: by SGLang's own lines, or by torch's that memory ran out."""
        return self.facts > 0 and (self.owned or bool(self.note))


class Server(msgspec.Struct):
    """The starts, each in its own text or by its own writer, that are one server's."""

    starts: list[Start]
    how: list[str] = []

    @property
    def first(self) -> Start:
        """The start that names it."""
        return self.starts[0]


def servers(texts: Sequence[Text]) -> list[Server]:
    """Return the servers in the order of the texts; what nobody but another program said is left out beside one."""
    found: list[Server] = []
    said = [start for text in texts for start in text.starts if start.is_server]
    for start in [start for start in said if start.begins]:
        _join(start, found)
    for start in sorted((start for start in said if not start.begins), key=_when):
        if not _follows_any(start, found):
            _join(start, found)
    places = {id(start): place for place, start in enumerate(said)}
    found.sort(key=lambda server: min(places[id(start)] for start in server.starts))
    return found or [Server([start]) for text in texts for start in text.starts if start.facts]


def _when(start: Start) -> float:
    return min(start.first.values(), default=0.0)


def _join(start: Start, found: list[Server]) -> None:
    for server in found:
        how = _one_server(start, server)
        if how:
            server.starts.append(start)
            server.how.append(how)
            server.starts.sort(key=_node)
            return
    found.append(Server([start]))


def _node(start: Start) -> int:
    """Return a key that puts the nodes of a server in their order, and what names none behind them."""
    rank = (start.arguments or {}).get("node_rank")
    return rank if isinstance(rank, int) else 0 if start.arguments is not None else 1 << 30


def _one_server(start: Start, server: Server) -> str:
    """Say how a start belongs to a server that is known already; empty where it does not."""
    given = [one.arguments for one in server.starts if one.arguments is not None]
    if any(start.file == one.file and (start.source, start.host) == (one.source, one.host) for one in server.starts):
        return ""
    taken = {rank for one in server.starts for rank in one.ranks}
    if taken & set(start.ranks) or not all(_meet(start, one) for one in server.starts):
        return ""
    if start.arguments is not None and given:
        nodes = all(are_nodes(start.arguments, one) for one in given)
        return f"node {start.arguments.get('node_rank')} is in {_place(start)}" if nodes else ""
    apart = all(_labelled(one) or not one.ranks for one in (start, *server.starts))
    same_file = any(start.file == one.file for one in server.starts)
    launched = same_file and (start.arguments is not None or bool(given))  # by one writer, whose ranks are others
    if apart and ((start.ranks and taken) or (launched and (start.ranks or taken))):
        who = listed([_label(rank) for rank in start.ranks] or ["the launcher"], SHOWN)
        return f"lines of {who} are by {_place(start)}"
    return ""


def _labelled(start: Start) -> bool:
    return bool(start.ranks) and all(start.ranks)


def _label(rank: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{name}{number}" for name, number in rank) or "a server without rank labels"


def _place(start: Start) -> str:
    return start.source or start.host or Path(start.file).name


def _meet(one: Start, other: Start) -> bool:
    """Say whether two starts were there at the same time, as far as their clocks tell."""
    shared = set(one.first) & set(other.first)
    slack = 600.0  # a node may have to wait for the other, and says nothing meanwhile
    return all(
        one.first[clock] <= other.last[clock] + slack and other.first[clock] <= one.last[clock] + slack
        for clock in shared
    )


def _follows_any(start: Start, found: Sequence[Server]) -> bool:
    """Append a start whose beginning is in another file of the same name to it; say whether there is one."""
    best: tuple[float, Server] | None = None
    for server in found:
        last = server.starts[-1]
        if last.file == start.file or _stem(last.file) != _stem(start.file) or last.over:
            continue
        for clock in set(last.last) & set(start.first):
            gap = start.first[clock] - last.last[clock]
            if gap >= 0 and (best is None or gap < best[0]):
                best = gap, server
    if best is None:
        return False
    best[1].starts.append(start)
    best[1].how.append(f"it goes on in {Path(start.file).name}")
    return True


def _stem(file: str) -> str:
    """Return a file's name without what rotation and compression add."""
    path = Path(file)
    name = _NUMBERED.sub("", _PACKED.sub("", path.name))
    return str(path.parent / _NUMBERED.sub("", _EXTENSION.sub("", name)))


def log_runs(found: Sequence[Server], texts: Sequence[Text]) -> tuple[LogRun, ...]:
    """Name the servers, and say how their texts were cut."""
    known = {text.name: text for text in texts}
    names = _names(found)
    return tuple(_log_run(server, name, found, known) for server, name in zip(found, names, strict=True))


def _names(found: Sequence[Server]) -> list[str]:
    """Return run ids: the file's name, the writer's where several wrote one file, `#2` for the second start."""
    writers: dict[str, set[tuple[str | None, str | None]]] = {}
    paths: dict[str, set[str]] = {}
    for server in found:
        writers.setdefault(server.first.file, set()).add((server.first.source, server.first.host))
        paths.setdefault(Path(server.first.file).name, set()).add(server.first.file)
    names: list[str] = []
    numbers: dict[str, int] = {}
    for server in found:
        first = server.first
        name = Path(first.file).name
        if len(paths[name]) > 1:
            name = str(Path(Path(first.file).parent.name) / name)
        if len(writers[first.file]) > 1:
            name = first.source or first.host or name
        number = numbers[name] = numbers.get(name, 0) + 1
        names.append(name if number == 1 else f"{name}#{number}")
    return names


def _log_run(server: Server, name: str, found: Sequence[Server], known: dict[str, Text]) -> LogRun:
    first = server.first
    mates = [other.first for other in found if other.first.file == first.file]
    text = known[first.file]
    begins, ends = _extent(first, mates, text)
    return LogRun(
        name=name,
        files=tuple(dict.fromkeys(start.file for start in server.starts)),
        facts=_facts(server.starts, -1 if text.reversed else 1),
        first_line=begins,
        last_line=ends,
        lines=ends - begins + 1,
        starts=len(mates) + text.left_out,
        sources=tuple(dict.fromkeys(start.source for start in server.starts if start.source)),
        notes=(*([text.note] if text.note else []), *_cuts(mates, text), *server.how, *_gaps(server)),
    )


def _facts(starts: Sequence[Start], direction: int) -> tuple[Fact, ...]:
    """Return the facts in the order of the text, several writers' in one text by line."""
    if len({start.file for start in starts}) == 1 and len(starts) > 1:
        facts = (fact for start in starts for fact in start.facts)
        return tuple(sorted(facts, key=lambda fact: fact.entry.line * direction))
    return tuple(fact for start in starts for fact in start.facts)


def _extent(start: Start, mates: Sequence[Start], text: Text) -> tuple[int, int]:
    """Return the first and the last line of a start: what stands before the next is still of this one."""
    if len({(mate.source, mate.host) for mate in mates}) > 1 or text.reversed:
        return start.first_line, start.last_line
    place = mates.index(start)
    begins = 1 if place == 0 and not text.left_out else start.first_line
    return begins, mates[place + 1].first_line - 1 if place + 1 < len(mates) else max(text.lines, start.last_line)


def _cuts(mates: Sequence[Start], text: Text) -> list[str]:
    """Say how one text was cut."""
    name = Path(text.name).name
    notes = [f"{name} is in reverse order, the newest first, and was turned round"] if text.reversed else []
    if text.left_out:
        notes.append(f"of {name} the last {counted(len(mates), 'start')} are kept, {text.left_out:,} before are not")
    others = {start.source for start in text.starts if start.source and not start.is_server and start.facts}
    others -= {mate.source for mate in mates}
    if others:
        notes.append(f"what {listed(sorted(map(str, others)), SHOWN)} wrote in {name} is no server's and is left out")
    if len(mates) < 2:
        return notes
    extents = [_extent(mate, mates, text) for mate in mates]
    several = len({(mate.source, mate.host) for mate in mates}) > 1
    pieces = [
        f"lines {begins:,}-{ends:,}{f' ({mate.why})' if mate.why else ''}{f' by {_place(mate)}' if several else ''}"
        for mate, (begins, ends) in zip(mates, extents, strict=True)
    ]
    return [*notes, f"{name} holds {counted(len(mates), 'start')}: {listed(pieces, SHOWN)}"]


def _gaps(server: Server) -> list[str]:
    """Say what is missing at the beginning, and between."""
    whole = any(start.arguments is not None for start in server.starts)
    gone = [] if whole else [f"{_place(server.first)} does not hold the server's beginning: no server_args"]
    return gone + [note for start in server.starts for note in (*start.notes, *start.cut_away())]
