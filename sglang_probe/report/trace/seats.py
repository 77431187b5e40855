"""Which number each process has in a trace: its own pid where that is the only one, otherwise one of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sglang_probe.timeline.model import Process, Run

OURS: Final = 10_000_000
"""Above the largest pid that Linux gives (2^22): from here on numbers are made up."""


class Numbers:
    """Hands out numbers for processes and tracks, none of them twice: Perfetto wants those of threads unique too."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._pids = Counter(process.pid for run in runs for process in run.processes)
        self._next = OURS

    def of(self, process: Process) -> int:
        """Return the number of a process."""
        pid = process.pid
        if pid is not None and 0 < pid < OURS and self._pids[pid] == 1:
            return pid
        return self.fresh()

    def fresh(self) -> int:
        """Return a number that is nobody's pid."""
        self._next += 1
        return self._next
