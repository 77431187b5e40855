"""Where one scenario of failures.py plays: its folder, its servers and tenants, and what it leaves to be read."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.cards import Cards
from bench.served import ROOT, BenchError, Served, Subject, doorbell, environment, served

SABOTAGE: Final = ROOT / "bench" / "sabotage"
TENANT_WITHIN_S: Final = 60.0
COMMAND_WITHIN_S: Final = 60.0


@dataclass
class Stage:
    """A scenario's folder below `out`; every second it may take ends at `deadline` (of time.monotonic)."""

    name: str
    subject: Subject
    cards: Cards
    out: Path
    deadline: float
    notes: dict[str, Any] = field(default_factory=dict)
    """What goes into the scenario's JSON beside the outcome."""

    @property
    def folder(self) -> Path:
        """Where everything of this scenario lies."""
        return self.out / self.name

    def left_s(self, at_most: float = 300) -> float:
        """Return the seconds that may be waited now; raise BenchError where none are left."""
        left = min(at_most, self.deadline - time.monotonic())
        if left <= 0:
            raise BenchError("its time is over")
        return left

    def afresh(self, kept_as: str | None = None) -> None:
        """Begin with an empty folder; what is there is thrown away, or kept under another name."""
        if kept_as is not None and self.folder.exists():
            self.folder.rename(self.out / kept_as)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    @contextlib.contextmanager
    def server(
        self,
        *flags: str,
        run: str | None = None,
        sabotage: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[Served]:
        """Start a server with the probe; its run is named for the scenario. It is gone afterwards, memory and all."""
        run = run or self.name
        own = {"SGLANG_PROBE_RUN_ID": run, "SGLANG_PROBE_DIR": str(self.folder / "events"), **(variables or {})}
        spoilt = [] if sabotage is None else [SABOTAGE]
        own |= {} if sabotage is None else {"SGLANG_SABOTAGE": sabotage}
        log = self.folder / f"{run}.log"
        server = served(self.subject, environment(doorbell(), *spoilt, **own), (log, log), *flags)
        told: dict[str, Any] = {"run": run, "command": server.command, "environment": own}
        self.notes.setdefault("starts", []).append(told)
        before = self.cards.pids()
        try:
            with server:
                yield server
        finally:
            told |= {"returncode": server.returncode, "ready_s": server.ready_s}
            self.cards.wait_only(before)

    @contextlib.contextmanager
    def tenant(self, gpu: int, amount: str, gib: float) -> Iterator[int]:
        """Let another process hold memory of a GPU meanwhile (`amount` is take or leave); yields its pid."""
        words = [sys.executable, str(ROOT / "bench" / "tenant.py"), "--gpu", str(gpu), f"--{amount}-gib", str(gib)]
        before = self.cards.pids()
        with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            try:
                said = self._first_line(process)
                if not said.startswith("ready "):
                    raise BenchError(f"the tenant of GPU {gpu} did not get its memory: {said!r}")
                _, pid, held = said.split()
                self.notes.setdefault("tenants", []).append({"gpu": gpu, "pid": int(pid), "bytes": int(held)})
                yield process.pid
            finally:
                process.kill()
        self.cards.wait_only(before)

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], self.left_s(TENANT_WITHIN_S))
        return process.stdout.readline().strip() if ready else "nothing said in time"

    def until_over(self, server: Served) -> bool:
        """Wait until the server is ready (return True) or has ended (False)."""
        if server.wait(server.is_ready, self.left_s()):
            return True
        if server.returncode is None:
            raise BenchError(f"neither ready nor ended in time\n{server.tail()}")
        return False

    def until_ready(self, server: Served) -> None:
        """Wait until the server is ready; BenchError where it ends first."""
        if not self.until_over(server):
            raise BenchError(f"the server ended\n{server.tail()}")

    def until_event(self, server: Served, event: str, count: int, run: str | None = None) -> list[dict[str, Any]]:
        """Wait until this many events of a name are written; return them. BenchError where the server ends first."""
        found: list[dict[str, Any]] = []

        def written() -> bool:
            found[:] = self.events(event, run or self.name)
            return len(found) >= count

        if not server.wait(written, self.left_s(), every_s=0.005):
            raise BenchError(f"{len(found)} of {count} {event} were written\n{server.tail()}")
        return found

    def events(self, event: str, run: str) -> list[dict[str, Any]]:
        """Return the whole lines of a run that are this event."""
        mark = f'"event":"{event}"'.encode()
        files = (self.folder / "events" / run).glob("*.jsonl")
        lines = (line for file in files for line in file.read_bytes().splitlines())
        return [json.loads(line) for line in lines if mark in line and line.endswith(b"}")]

    def sglang_probe(self, name: str, *words: str) -> str:
        """Run one of our commands, keep what it prints in a file of this name, return that."""
        command = [sys.executable, "-m", "sglang_probe", *words]
        env = environment() | {"PYTHONPATH": str(ROOT) + ":" + environment().get("PYTHONPATH", "")}
        done = subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=COMMAND_WITHIN_S
        )
        (self.folder / name).write_text(done.stdout + done.stderr, encoding="utf-8")
        return done.stdout

    def doctor(self) -> None:
        """Keep what doctor says at this moment."""
        for ending, form in (("txt", "text"), ("json", "json")):
            self.sglang_probe(f"doctor.{ending}", "doctor", "--format", form, "--", self.subject.python)

    def timeline(self, run: str) -> dict[str, Any]:
        """Keep our own account of the events, as text and as JSON; return that of one run."""
        events = str(self.folder / "events" / run)
        self.sglang_probe(f"{run}.timeline.txt", "timeline", events)
        told = self.sglang_probe(f"{run}.timeline.json", "timeline", events, "--format", "json")
        runs: list[dict[str, Any]] = json.loads(told)["runs"] if told else []
        return runs[0] if runs else {}
