"""The facts of one text by one writer -> its starts.

A new start shows by another `server_args=`, by a rank that sets itself up again (a draft model does that too, within a
start), or by a time that jumps back. Where two servers write at once and nothing before a line says whose it is, both
starts are `mixed`: their lines cannot be told apart, and are not guessed at.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

from sglang_probe.collect.logs.model import Fact
from sglang_probe.collect.logs.moments import DAY_S, Moment, moment_of
from sglang_probe.collect.logs.start import Rank, Start, group_of, repeats

MOST_STARTS: Final = 200
"""Kept of one text, the last ones: a server that crashes and is started again may go on for months."""
JUMP_S: Final = 60.0
"""Ranks write through buffers of their own, so that their times are a little out of order."""
SUMMER_TIME_S: Final = (3540.0, 3720.0)
"""The local clock goes back an hour in autumn, and no server was started."""
IMPORTS_S: Final = 15.0
"""A rank that follows on so soon was not started anew, which takes the imports of torch and SGLang: it is a draft."""
MANY_ALTERNATIONS: Final = 4
"""A file put together of several in a wrong order jumps back too, but not so often to where it was before."""
SLACK_S: Final = 2.0
"""Ranks of one server overtake each other so far."""
BEGINNINGS: Final = frozenset({"server_args", "dist_init_begin", "weights_begin"})
SERVING: Final = frozenset({"batch", "retract", "retract_abort"})


class Splitter:
    """Takes the facts of one writer in one text, in order."""

    def __init__(self, file: str, source: str | None, host: str | None) -> None:
        self.file, self.source, self.host = file, source, host
        self.starts: deque[Start] = deque(maxlen=MOST_STARTS)
        self.opened = 0
        """How many starts there were, those that are no longer kept included."""
        self._rival: Start | None = None
        """The start before, which may still be writing."""
        self._last: dict[str, float] = {}
        self._landed = -math.inf
        """Where the time last jumped back to."""
        self._alternations = 0
        """Jumps back in a row that go on where the one before landed, as of two servers by turns."""
        self._from = 0
        """How many starts came before the first of them."""

    def add(self, fact: Fact) -> None:
        """Take the next fact."""
        moment = moment_of(fact.entry)
        if not self.starts:
            self._open("")
        current = self.starts[-1]
        back = self._jump(moment)
        if self._rival is not None and _clash(fact, current, self._rival):
            current.mixed = self._rival.mixed = True
        else:
            why = self._why_anew(fact, current, moment, back)
            if why:
                current = self._after(current, why)
            if back > 0 and moment is not None:
                self._alternate(moment, anew="server_args" in why)
        rival = self._rival
        if rival is not None and rival.ready and fact.kind in SERVING and group_of(fact) not in current.settled:
            rival.add(fact)
        else:
            current.add(fact)

    def _open(self, why: str) -> Start:
        start = Start(self.file, self.source, self.host, why)
        self.starts.append(start)
        self.opened += 1
        return start

    def _after(self, current: Start, why: str) -> Start:
        """Begin the next start."""
        launched = "server_args" in why
        prelude = current.prelude() if launched else []
        self._rival = current if launched and not (current.over or current.failed) else None
        start = self._open(why)
        start.mixed = self._alternations >= MANY_ALTERNATIONS or (current.mixed and not launched)
        for fact in prelude:
            start.add(fact)
        return start

    def _alternate(self, moment: Moment, *, anew: bool) -> None:
        """Count the jumps between two servers that write by turns; all starts that they made up are mixed."""
        if anew or moment.seconds < self._landed - SLACK_S:
            self._alternations, self._from = 0, self.opened - 2
        else:
            self._alternations += 1
        self._landed = moment.seconds
        if self._alternations == MANY_ALTERNATIONS:
            for start in list(self.starts)[self._from - self.opened :]:
                start.mixed = True

    def _jump(self, moment: Moment | None) -> float:
        """Return how far the time jumps back; 0 where it goes on, or the clock was put back by an hour."""
        if moment is None:
            return 0.0
        last = self._last.get(moment.clock, moment.seconds)
        back = last - moment.seconds
        if moment.clock == "day" and back > DAY_S / 2:
            back = 0.0  # midnight
        elif 0 < back <= JUMP_S:
            return 0.0
        self._last[moment.clock] = moment.seconds
        return max(back, 0.0)

    def _why_anew(self, fact: Fact, current: Start, moment: Moment | None, back: float) -> str:
        """Say why this fact begins a new start; empty where it does not."""
        line = fact.entry.line
        if fact.kind == "server_args":
            anew = _is_other(fact.values.get("arguments") or {}, current)
            return f"line {line} prints server_args again" if anew else ""
        if back > 0 and fact.kind in BEGINNINGS | {"ready", "capacity"}:
            return f"at line {line} the time jumps back"
        if back > 0 and not SUMMER_TIME_S[0] <= back <= SUMMER_TIME_S[1]:
            return f"at line {line} the time jumps back"
        rank = current.ranks.get(fact.entry.ranks)
        if rank is not None and repeats(fact.kind, rank) and _is_restart(fact, current, rank, moment):
            return f"at line {line} {fact.label or 'the server'} sets itself up again"
        return ""


def _is_other(arguments: dict[str, Any], current: Start) -> bool:
    """Say whether arguments are of another start than the one at hand."""
    if current.arguments is None:
        return bool(current.ranks) or current.ready or current.over or current.failed
    if arguments == current.arguments:
        return bool(current.ranks) or current.over or current.failed
    return not are_nodes(arguments, current.arguments) or arguments.get("node_rank") in current.nodes


def are_nodes(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether two nodes of one server were given these arguments."""
    address = one.get("dist_init_addr")
    return (
        address is not None
        and address == other.get("dist_init_addr")
        and one.get("nnodes") == other.get("nnodes")
        and one.get("node_rank") != other.get("node_rank")
    )


def _is_restart(fact: Fact, current: Start, rank: Rank, moment: Moment | None) -> bool:
    """Say whether a rank that sets itself up again was started again, or goes on with a draft model."""
    if current.ready or current.over or current.failed or not rank.loaded or group_of(fact) in current.settled:
        return True
    if current.arguments is not None and "speculative_algorithm" in current.arguments:
        return not current.arguments["speculative_algorithm"]  # each start prints them, so it is the same one
    if moment is not None and rank.last is not None and rank.last.clock == moment.clock:
        return abs(moment.seconds - rank.last.seconds) > IMPORTS_S
    return rank.groups > 1


def _clash(fact: Fact, current: Start, rival: Start) -> bool:
    """Say whether a fact cannot be of the present start, since its rank is not so far, or is already further."""
    rank = current.ranks.get(fact.entry.ranks, Rank())
    if fact.kind == "dist_init_begin":
        return (rank.joined and not rank.connected) or (rank.loading and not rank.loaded)
    if fact.kind == "weights_begin" and rank.loading and not rank.loaded:
        return True
    before = rival.ranks.get(fact.entry.ranks, Rank())
    late = fact.kind in {"dist_init_end", "weights_begin", "weights_end"}
    return late and current.arguments is not None and before.joined and not rank.joined and not rival.ready
