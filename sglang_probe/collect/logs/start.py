"""One start of a server as it is gathered: which ranks came how far, and its facts, of which no kind grows for ever."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.exceptions import ERRORS
from sglang_probe.collect.logs.model import Fact
from sglang_probe.collect.logs.moments import Moment, moment_of
from sglang_probe.figures import counted

KEPT: Final = 500
"""Facts of one kind and rank that are kept at the beginning, and at the end: a server may retract for months."""
FEW: Final[dict[str, int]] = {"server_args": 4}
"""Of these kinds fewer are kept: each holds some 12 KB of text."""
MOST: Final = 20_000
"""Facts of one start that are kept whatever their ranks; behind them, of each kind the last of all ranks."""
FLEETING: Final = frozenset({"batch", "graph_progress"})
"""Of these only the last before another fact counts."""
PRELUDE: Final = frozenset({"adjusted", "version", "harmless"})
"""What the launcher says before it prints its arguments."""
ASIDE: Final = PRELUDE | {"exception", "not_memory", "ended"}
"""What a program that is no SGLang server may say too."""

Ranks = tuple[tuple[str, int], ...]


class Rank(msgspec.Struct):
    """How far one rank came in its present group of lines; a draft model repeats the group."""

    groups: int = 1
    joined: bool = False
    """Its distributed setup began."""
    connected: bool = False
    loading: bool = False
    loaded: bool = False
    last: Moment | None = None


class Start:
    """The facts of one start, in the order of one text."""

    def __init__(self, file: str, source: str | None, host: str | None, why: str = "") -> None:
        self.file, self.source, self.host = file, source, host
        self.why = why
        """Why the text was cut before it; empty for the first."""
        self.arguments: dict[str, Any] | None = None
        self.nodes: set[Any] = set()
        """The node ranks in the arguments that were printed."""
        self.ranks: dict[Ranks, Rank] = {}
        self.settled: set[int | None] = set()
        """The data-parallel ranks that have printed their totals; None without such."""
        self.ready = self.over = self.failed = False
        self.mixed = False
        """Another server's lines stand between these, and nothing tells them apart."""
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        """clock -> its first and its last time here."""
        self.first_line = self.last_line = 0
        self.notes: list[str] = []
        self._facts: list[tuple[int, Fact]] = []
        self._tails: dict[tuple[str, Ranks], deque[tuple[int, Fact]]] = {}
        self._counts: dict[tuple[str, Ranks], int] = {}
        self._ends: dict[str, deque[tuple[int, Fact]]] = {}
        self._beyond: dict[str, int] = {}
        """kind -> how many came behind the first MOST."""
        self._fleeting: dict[tuple[str, Ranks], Fact] = {}
        self._number = 0

    @property
    def begins(self) -> bool:
        """The text holds the beginning of this start."""
        return self.arguments is not None or any(rank.joined or rank.loading for rank in self.ranks.values())

    @property
    def is_server(self) -> bool:
        """Something here was said by a server, and by nothing else."""
        kinds = {kind for kind, _ in self._counts} | set(self._beyond)
        return bool(kinds - ASIDE) or bool(self._fleeting)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what is kept, in the order of the text."""
        self._settle_fleeting()
        tails = (*self._tails.values(), *self._ends.values())
        kept = [*self._facts, *(one for tail in tails for one in tail)]
        return tuple(fact for _, fact in sorted(kept, key=lambda one: one[0]))

    def add(self, fact: Fact) -> None:
        """Take the next fact."""
        entry = fact.entry
        self.first_line = min(self.first_line or entry.line, entry.line)  # of a reversed file they fall
        self.last_line = max(self.last_line, entry.line)
        moment = moment_of(entry)
        if moment is not None:
            self.first.setdefault(moment.clock, moment.seconds)
            self.last[moment.clock] = moment.seconds
        self._notice(fact, moment)
        if fact.kind in FLEETING:
            self._fleeting[fact.kind, entry.ranks] = fact
        else:
            self._settle_fleeting()
            self._keep(fact)

    def prelude(self) -> list[Fact]:
        """Take out what stands at the end and belongs to the launcher of the next start."""
        taken: list[Fact] = []
        while self._facts and not self._fleeting and self._facts[-1][1].kind in PRELUDE:
            if self._facts[-1][1].entry.ranks:
                break
            _, fact = self._facts.pop()
            self._counts[fact.kind, ()] -= 1
            taken.insert(0, fact)
        self._counts = {key: count for key, count in self._counts.items() if count}
        return taken

    def cut_away(self) -> list[str]:
        """Say which facts were not kept."""
        return [
            f"of {counted(self._counts[kind, ranks], 'line')} of the kind {kind}"
            f"{' of ' + ' '.join(f'{name}{number}' for name, number in ranks) if ranks else ''}"
            f" the first {most_of(kind)} and the last {most_of(kind)} are kept"
            for (kind, ranks), count in self._counts.items()
            if count > 2 * most_of(kind)
        ] + [
            f"behind the first {MOST:,} lines that say something, of {counted(count, 'line')} of the kind {kind} the"
            f" last {most_of(kind)} are kept, whichever rank wrote them"
            for kind, count in self._beyond.items()
            if count > most_of(kind)
        ]

    def _keep(self, fact: Fact) -> None:
        kind, most = fact.kind, most_of(fact.kind)
        self._number += 1
        if len(self._facts) >= MOST:
            self._beyond[kind] = self._beyond.get(kind, 0) + 1
            self._ends.setdefault(kind, deque(maxlen=most)).append((self._number, fact))
            return
        key = kind, fact.entry.ranks
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= most:
            self._facts.append((self._number, fact))
        else:
            self._tails.setdefault(key, deque(maxlen=most)).append((self._number, fact))

    def _settle_fleeting(self) -> None:
        if self._fleeting:
            for fact in sorted(self._fleeting.values(), key=lambda one: one.entry.line):
                self._keep(fact)
            self._fleeting.clear()

    def _notice(self, fact: Fact, moment: Moment | None) -> None:
        """Note how far the server and the rank came."""
        kind = fact.kind
        if kind == "server_args":
            arguments = fact.values.get("arguments") or {}
            self.arguments = self.arguments or arguments
            self.nodes.add(arguments.get("node_rank"))
        elif kind == "ready":
            self.ready = True
        elif kind == "capacity":
            self.settled.add(group_of(fact))
        elif kind == "ended":
            self.over = True
        elif kind in ERRORS and not fact.values.get("caught"):
            self.failed = True
        if kind in ASIDE or kind in {"server_args", "ready"}:
            return
        rank = self.ranks.setdefault(fact.entry.ranks, Rank())
        rank.last = moment or rank.last
        if repeats(kind, rank):
            rank.groups += 1
            rank.joined = rank.connected = rank.loading = rank.loaded = False
        rank.joined |= kind == "dist_init_begin"
        rank.connected |= kind == "dist_init_end"
        rank.loading |= kind == "weights_begin"
        rank.loaded |= kind == "weights_end"


def most_of(kind: str) -> int:
    """Return how many facts of a kind are kept at the beginning, and as many at the end."""
    return FEW.get(kind, KEPT)


def group_of(fact: Fact) -> int | None:
    """Return the data-parallel rank of a fact."""
    return dict(fact.entry.ranks).get("DP")


def repeats(kind: str, rank: Rank) -> bool:
    """Say whether a fact of this kind begins another group of lines of a rank."""
    if kind == "dist_init_begin":
        return rank.joined or rank.loading
    return kind == "weights_begin" and rank.loading
