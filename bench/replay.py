"""Replays a recorded run as a start that goes on now: what `watch` is measured and tested with.

    python bench/replay.py RECORDING DIRECTORY [--factor 0.1] [--until weights.load] [--kill TP1:graph.capture]

Its lines are written into DIRECTORY at the times at which they were first written, scaled by the factor and moved to
now. The recording's first host becomes this one, and each of its processes one that lives here until the replay ends
(or, with --kill, until its rank has begun a phase); processes of other hosts stay where they were, and nobody can
ask for them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

NS: Final = 1_000_000_000
Event = dict[str, Any]
Stand = subprocess.Popen[bytes]
"""A process that stands in for a recorded one."""


class Line(NamedTuple):
    """An event and where it goes."""

    at_ns: int
    """Since the run began, scaled."""
    file: str
    event: Event


def main() -> None:
    """Replay a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, help="a run directory")
    parser.add_argument("directory", type=Path, help="the run directory to write, which must not exist")
    parser.add_argument("--factor", type=float, default=1.0, help="how much longer it takes (0.1: a tenth)")
    parser.add_argument("--until", metavar="PHASE", help="stop writing when a rank begins it, and wait for stdin's end")
    parser.add_argument("--kill", metavar="LABEL:PHASE", help="end that rank when it begins the phase")
    parser.add_argument("--linger", type=float, default=10.0, metavar="SECONDS", help="live on at the end (10)")
    told = parser.parse_args()
    replay(
        told.recording, told.directory, told.factor, until=told.until, kill=told.kill, linger_s=told.linger
    )


def replay(
    recording: Path, directory: Path, factor: float = 1.0, *, until: str | None = None, kill: str | None = None,
    linger_s: float = 0.0,
) -> None:  # fmt: skip
    """Write a run as it goes on; returns when it is written, its processes gone after `linger_s` seconds more."""
    lines = sorted(_lines(recording, factor), key=lambda line: line.at_ns)
    here = lines[0].event["host"]
    stand_ins: dict[tuple[str, int], Stand] = {}
    begun = time.time_ns(), time.monotonic_ns()
    directory.mkdir(parents=True, mode=0o700)
    try:
        for line in lines:
            time.sleep(max((begun[1] + line.at_ns - time.monotonic_ns()) / NS, 0))
            host, pid = line.event["host"], line.event["pid"]
            if host == here and (host, pid) not in stand_ins:
                stand_ins[host, pid] = subprocess.Popen(WAITS, stdin=subprocess.PIPE)
            process = stand_ins.get((host, pid))
            if process is not None and process.poll() is not None:
                continue  # the dead write nothing
            parent = stand_ins.get((host, line.event["proc"]["parent"]))
            _write(directory, line, begun, process, parent)
            if until is not None and line.event["event"] == f"sglang.memory.{until}.begin":
                sys.stdin.read()
                return
            if kill is not None and process is not None and _is(line.event, kill):
                process.kill()
                process.wait()
        time.sleep(linger_s)
    finally:
        for process in stand_ins.values():
            with suppress(OSError):
                process.communicate(timeout=10)


def _lines(recording: Path, factor: float) -> Iterator[Line]:
    events = [(file.name, json.loads(line)) for file in sorted(recording.iterdir()) for line in file.open("rb")]
    first = min(_wall(event) for _, event in events)
    for name, event in events:
        if event["duration_ns"] is not None:
            event["duration_ns"] = round(event["duration_ns"] * factor)
        yield Line(round((_wall(event) - first) * factor), name, event)


def _wall(event: Event) -> int:
    whole, _, part = event["ts"].rstrip("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * NS + int(part.ljust(9, "0") or 0)


def _write(
    directory: Path, line: Line, begun: tuple[int, int], process: Stand | None, parent: Stand | None
) -> None:
    event, name = line.event, line.file
    wall = begun[0] + line.at_ns
    event["ts"] = f"{datetime.fromtimestamp(wall // NS, timezone.utc):%Y-%m-%dT%H:%M:%S}.{wall % NS:09}Z"
    event["mono_ns"] = begun[1] + line.at_ns
    event["run_id"] = directory.name
    if process is not None:
        start = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        event |= {"host": socket.gethostname(), "boot_id": BOOT, "pid": process.pid}
        event["proc"] |= {"start_ticks": start, "parent": os.getpid() if parent is None else parent.pid}
        if event["attributes"].get("pid_namespace") is not None:
            event["attributes"]["pid_namespace"] = str(Path("/proc/self/ns/pid").readlink())
        name = f"{event['host']}.{process.pid}.{start}.jsonl"
    text = json.dumps(event, separators=(",", ":")).encode() + b"\n"
    file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def _is(event: Event, kill: str) -> bool:
    label, _, phase = kill.partition(":")
    part = (event["rank"] or {}).get("tp") or {}
    return event["event"] == f"sglang.memory.{phase}.begin" and f"TP{part.get('rank')}" == label


WAITS: Final = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
BOOT: Final = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

if __name__ == "__main__":
    main()
