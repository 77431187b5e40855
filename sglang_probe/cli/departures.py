"""In which order the processes of a run were seen to go: their events do not say it, one who watches may."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.figures import listed
from sglang_probe.report.watch_places import process_names
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.liveness import ProcessId, is_alive
from sglang_probe.timeline.model import Process, Run

LEAST_REST_S: Final = 0.05
"""Between two questions whether processes live: of those that go one after another, the order is seen this fine."""
SHARE: Final = 20
"""At most one in so many seconds of a core is spent asking."""
MOST_PIDS: Final = 8


class Departure(NamedTuple):
    """Processes that were found gone at one look, all of which ran at the look before."""

    at_s: float
    """Monotonic."""
    names: tuple[str, ...]
    pids: tuple[int, ...]


class Departures:
    """Asks whether the processes of a run that ran when it was read still do."""

    def __init__(self) -> None:
        self._living: dict[ProcessId, str] = {}
        self._known: set[ProcessId] = set()
        self.seen: list[Departure] = []
        self.is_whole = True
        """No process was gone before it could be seen to go."""

    def take(self, run: Run) -> None:
        """Take the processes of a run that run from what was read."""
        for process, name in process_names(run):
            identity = _identity(process)
            if identity is None or identity in self._known:
                continue
            self._known.add(identity)
            if process.alive:
                self._living[identity] = name
            else:
                self.is_whole = self.is_whole and process.alive is None

    def look(self) -> bool:
        """Ask for each; return whether one is gone since the last look."""
        gone = [identity for identity in self._living if is_alive(identity) is False]
        if gone:
            names = tuple(self._living.pop(identity) for identity in gone)
            self.seen.append(Departure(time.monotonic(), names, tuple(identity.pid for identity in gone)))
        return bool(gone)

    def rest(self, seconds: float) -> bool:
        """Sleep so long, and look meanwhile; return whether a process went."""
        deadline, went = time.monotonic() + seconds, False
        while (left := deadline - time.monotonic()) > 0:
            begun = time.process_time()
            went |= self.look()
            pause = max(LEAST_REST_S, SHARE * (time.process_time() - begun))
            time.sleep(min(left, pause if self._living else left))
        return went

    def says(self) -> str:
        """Return the order, where there is one to tell."""
        if len(self.seen) < 2 or not self.is_whole:
            return ""
        first, *others = self.seen
        then = "; ".join(f"{_who(one)} {one.at_s - first.at_s:.2f} s later" for one in others[:3])
        return f"watch saw who went first: {_who(first)}; then {then}"


def _who(departure: Departure) -> str:
    return with_pids(departure.names, departure.pids)


def with_pids(names: Sequence[str], pids: Sequence[int | None]) -> str:
    """Return processes by name and pid: `TP0, TP1 (pids 6402, 6403)`."""
    return f"{named(names)} ({'pid' if len(pids) == 1 else 'pids'} {listed(pids, MOST_PIDS)})"


def _identity(process: Process) -> ProcessId | None:
    if process.host is None or process.pid is None:
        return None
    return ProcessId(process.host, process.boot_id, process.pid, process.start_ticks)
