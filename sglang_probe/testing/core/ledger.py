"""The ledger: who holds how much of which card, shared by every process through one SQLite file.

It is append-only, so it is also the truth that a test compares with what the probe said. A process that died holds
nothing any more, as with the real driver, though its lines stay.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .procfs import is_alive, start_ticks
from .scenario import Card, Scenario, load_scenario

ENVIRONMENT = "SGLANG_PROBE_FAKE_GPUS"
"""Names the directory that a process of a fake server finds its GPUs in."""

FILE_NAME = "ledger.sqlite"

_SCHEMA = """
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, mono_ns INTEGER, gpu INTEGER, pid INTEGER, started INTEGER, foreigner INTEGER,
    backing TEXT, label TEXT, device_bytes INTEGER, torch_bytes INTEGER
);
CREATE INDEX record_by_gpu ON record (gpu, pid, started, foreigner, device_bytes);
CREATE TABLE meeting (key TEXT, rank INTEGER, value TEXT, PRIMARY KEY (key, rank)) WITHOUT ROWID;
CREATE TABLE member (key TEXT, rank INTEGER, pid INTEGER, started INTEGER, PRIMARY KEY (key, rank)) WITHOUT ROWID;
"""

_INSERT = """
INSERT INTO record (mono_ns, gpu, pid, started, foreigner, backing, label, device_bytes, torch_bytes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class OutOfDeviceMemory(Exception):
    """A card could not give what was asked of it."""

    def __init__(self, gpu: int, asked: int, free: int) -> None:
        super().__init__(f"GPU {gpu}: asked {asked} bytes, {free} are free")
        self.gpu, self.asked, self.free = gpu, asked, free


class Record(NamedTuple):
    """One movement. `device_bytes` is what the card lost (or got back, negative), `torch_bytes` what tensors took.

    `backing`: context, raw (cudaMalloc and libraries), segment (torch's allocator grew or shrank), tensor, foreign.
    """

    seq: int
    mono_ns: int
    gpu: int
    pid: int
    started: int
    foreigner: bool
    backing: str
    label: str
    device_bytes: int
    torch_bytes: int


class Ledger:
    """An open ledger. Each process opens its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scenario: Scenario = load_scenario(directory)
        self.pid = os.getpid()
        self.started = start_ticks(self.pid) or 0
        self._connection = sqlite3.connect(
            directory / FILE_NAME, isolation_level=None, timeout=60, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous = OFF")
        self._lock = threading.RLock()
        self._later: list[Callable[[], None]] | None = None

    @classmethod
    def create(cls, directory: Path, scenario: Scenario) -> Ledger:
        """Make a new ledger in `directory` (made where missing) with the tenants that are there from the start.

        Raises FileExistsError where there is one already.
        """
        if (directory / FILE_NAME).exists():
            raise FileExistsError(f"{directory} holds fake GPUs already; open them, or make others elsewhere")
        directory.mkdir(parents=True, exist_ok=True)
        scenario.save(directory)
        connection = sqlite3.connect(directory / FILE_NAME)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        connection.close()
        ledger = cls(directory)
        for tenant in scenario.tenants:
            if tenant.arrives_at is None:
                ledger.take(tenant.gpu, tenant.bytes, "foreign", tenant.name, foreign_pid=tenant.pid)
        return ledger

    @property
    def card(self) -> Card:
        return self.scenario.card

    def held(self, gpu: int) -> dict[int, int]:
        """Return the bytes of `gpu` by pid, of the processes that live."""
        rows = self._connection.execute(
            "SELECT pid, started, foreigner, SUM(device_bytes) FROM record"
            " WHERE gpu = ? GROUP BY pid, started, foreigner",
            (gpu,),
        ).fetchall()
        held: dict[int, int] = {}
        for pid, started, foreigner, size in rows:
            mine = pid == self.pid and started == self.started
            if size and (foreigner or mine or is_alive(pid, started)):
                held[pid] = held.get(pid, 0) + size
        return held

    def used(self, gpu: int) -> int:
        """Return the bytes of `gpu` that processes hold."""
        return sum(self.held(gpu).values())

    def free(self, gpu: int) -> int:
        """Return the bytes of `gpu` that CUDA would call free."""
        return self.card.cuda_total_bytes - self.used(gpu)

    def take(
        self, gpu: int, size: int, backing: str, label: str, *, torch_bytes: int = 0, foreign_pid: int | None = None
    ) -> None:
        """Record that a process took `size` bytes of `gpu` (negative: gave them back).

        Raises OutOfDeviceMemory, and records nothing, where the card has less than that.
        """
        pid, started, foreigner = (self.pid, self.started, 0) if foreign_pid is None else (foreign_pid, 0, 1)
        row = (time.monotonic_ns(), gpu, pid, started, foreigner, backing, label, size, torch_bytes)
        movement = partial(self._write, gpu, size, row)
        with self._lock:
            if self._later is not None:  # a tensor's end, run by the garbage collector amid another movement
                self._later.append(movement)
                return
            self._later = []
            try:
                movement()
                while self._later:
                    self._later.pop()()
            finally:
                self._later = None

    def _write(self, gpu: int, size: int, row: tuple[object, ...]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if size > 0 and size > (free := self.free(gpu)):
                raise OutOfDeviceMemory(gpu, size, free)
            self._connection.execute(_INSERT, row)
        finally:
            self._connection.execute("COMMIT")

    def move_tenants(self, phase: str) -> None:
        """Let the tenants that wait for `phase` arrive or leave; the first process that gets here does it."""
        for tenant in self.scenario.tenants:
            if tenant.arrives_at == phase and self._first(f"arrives:{tenant}"):
                self.take(tenant.gpu, tenant.bytes, "foreign", tenant.name, foreign_pid=tenant.pid)
            if tenant.leaves_at == phase and self._first(f"leaves:{tenant}"):
                self.take(tenant.gpu, -tenant.bytes, "foreign", tenant.name, foreign_pid=tenant.pid)

    def _first(self, key: str) -> bool:
        cursor = self._connection.execute("INSERT OR IGNORE INTO meeting VALUES (?, 0, '')", (key,))
        return cursor.rowcount == 1

    def records(self) -> list[Record]:
        """Return every movement so far, in order."""
        rows = self._connection.execute("SELECT * FROM record ORDER BY seq").fetchall()
        return [Record._make((*row[:5], bool(row[5]), *row[6:])) for row in rows]

    def join(self, key: str, rank: int) -> None:
        """Become member `rank` of the meetings under `key`."""
        self._connection.execute(
            "INSERT OR REPLACE INTO member VALUES (?, ?, ?, ?)", (key, rank, self.pid, self.started)
        )

    def put(self, key: str, rank: int, value: str) -> None:
        """Lay a value on the table of one meeting."""
        self._connection.execute("INSERT OR REPLACE INTO meeting VALUES (?, ?, ?)", (key, rank, value))

    def table(self, key: str) -> dict[int, str]:
        """Return the values laid on the table of one meeting so far, by rank."""
        return dict(self._connection.execute("SELECT rank, value FROM meeting WHERE key = ?", (key,)).fetchall())

    def dead_members(self, key: str, ranks: list[int]) -> list[int]:
        """Return which of `ranks` joined `key` and are gone."""
        rows = self._connection.execute("SELECT rank, pid, started FROM member WHERE key = ?", (key,)).fetchall()
        return [rank for rank, pid, started in rows if rank in ranks and not is_alive(pid, started)]

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)  # absent where __init__ failed
        if connection is not None:
            connection.close()
