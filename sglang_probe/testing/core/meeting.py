"""Where the ranks of a fake run meet: every collective is a table in the ledger on which each rank lays a value."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .ledger import Ledger

SHORTEST_WAIT_S = 0.0005
LONGEST_WAIT_S = 0.01
LOOK_FOR_THE_DEAD_EVERY_S = 0.1


class Group:
    """The ranks of one process group. Every rank makes its groups in the same order, so that their names agree."""

    def __init__(self, ledger: Ledger, world: str, name: str, ranks: list[int], rank: int) -> None:
        self._ledger, self._world, self._name = ledger, world, name
        self.ranks, self.rank = ranks, rank
        self._round = 0

    def gather(self, value: Any) -> list[Any]:
        """Lay `value` on the table and return every rank's, in the order of the group.

        Raises RuntimeError where a rank has died before it came, or this process is orphaned.
        """
        self._round += 1
        key = f"{self._world} {self._name} {self._round}"
        self._ledger.put(key, self.rank, json.dumps(value))
        table = self._wait(key)
        return [json.loads(table[rank]) for rank in self.ranks]

    def _wait(self, key: str) -> dict[int, str]:
        parent, pause, next_look = os.getppid(), SHORTEST_WAIT_S, time.monotonic() + LOOK_FOR_THE_DEAD_EVERY_S
        while True:
            table = self._ledger.table(key)
            missing = [rank for rank in self.ranks if rank not in table]
            if not missing:
                return table
            if os.getppid() != parent:
                raise RuntimeError("the launcher is gone")
            if time.monotonic() > next_look:
                next_look = time.monotonic() + LOOK_FOR_THE_DEAD_EVERY_S
                if self._ledger.dead_members(self._world, missing):
                    raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]")
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_WAIT_S)
