"""How fast the collector reads events into records, beside `json.loads` on the same lines, and in how much memory.

    python bench/collector.py [--ranks 2000] [--repeats 3]

Every rank writes about 50 events as a start of SGLang 0.5.14 does. Each way of reading runs in a process of its own, in
alternation, so that the ratios come from one run and the peaks of memory are each way's own. Ways: `json.loads` line by
line; `stream`, into records and on (bounded memory); `read`, into ordered launches; `timeline`, to the end.
Bars: 1,000,000 events/s on one core into records; the timeline of 10,000 ranks (`--ranks 10000`) in 3 s.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sglang_probe.collect import read, stream
from sglang_probe.events import names
from sglang_probe.events.envelope import DELTA_KEYS, READING_KEYS, WholeEvent
from sglang_probe.timeline import build

MIB: Final = names.GIB // 1024
TOTAL: Final = 141 * names.GIB
RESERVED: Final = 600 * MIB
CONTEXT: Final = 500 * MIB
CALLS: Final = [
    ("dist.communicator", 9, 0, 100),
    ("weights.load", 1, 4440, 8),
    ("kv.pool", 3, 41500, 0),
    ("kv.profile", 1, 0, 0),
    ("attention.init", 1, 96, 0),
    ("graph.capture", 3, 10, 40),
]
"""Role, how often it is called, and what a call takes of torch and beside it, in MiB."""


def main() -> None:
    """Make the events, read them in every way, print what each took."""
    arguments = _arguments()
    if arguments.way is not None:
        print(json.dumps(_measure(WAYS[arguments.way], arguments.directory)))
        return
    with tempfile.TemporaryDirectory() as directory:
        _write(Path(directory, "run"), arguments.ranks)
        size = sum(file.stat().st_size for file in Path(directory, "run").iterdir())
        rounds = [{way: _in_a_process(way, directory) for way in WAYS} for _ in range(arguments.repeats)]
    _print(rounds, size)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2000, help="processes that write events (default 2000)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median is printed (default 3)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    return parser.parse_args()


def _lines(directory: str) -> Iterator[bytes]:
    for file in sorted(Path(directory, "run").iterdir()):
        with file.open("rb") as stream_of_lines:
            yield from stream_of_lines


def _json_loads(directory: str) -> int:
    return sum(1 for line in _lines(directory) if json.loads(line))


def _stream(directory: str) -> int:
    return sum(len(batch.records) for batch in stream([Path(directory, "run")]))


def _read(directory: str) -> int:
    return read([Path(directory, "run")]).report.events


def _timeline(directory: str) -> int:
    return build(read([Path(directory, "run")]), alive=lambda _: None).read.events


WAYS: dict[str, Callable[[str], int]] = {
    "json.loads": _json_loads,
    "stream": _stream,
    "read": _read,
    "timeline": _timeline,
}


def _measure(way: Callable[[str], int], directory: str) -> dict[str, float]:
    started = time.process_time()
    events = way(directory)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"events": events, "seconds": seconds, "peak_bytes": peak}


def _in_a_process(way: str, directory: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--way", way, "--directory", directory]
    measured: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return measured


def _print(rounds: list[dict[str, dict[str, float]]], size: int) -> None:
    events = rounds[0]["json.loads"]["events"]
    print(f"{events:,.0f} events of {size / events:,.0f} bytes; CPU seconds, median of {len(rounds)} rounds")
    print(f"{'way':<12}{'seconds':>9}{'events/s':>12}{'of json.loads':>15}{'peak MiB':>10}")
    base = median(one["json.loads"]["seconds"] for one in rounds)
    for way in WAYS:
        seconds = median(one[way]["seconds"] for one in rounds)
        peak = median(one[way]["peak_bytes"] for one in rounds) / 2**20
        print(f"{way:<12}{seconds:>9.2f}{events / seconds:>12,.0f}{base / seconds:>14.1f}x{peak:>10.0f}")


def _write(directory: Path, ranks: int) -> None:
    directory.mkdir()
    for number in range(ranks):
        rank = _Rank(number, ranks)
        lines = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in rank.events())
        (directory / f"host-{number // 8}.{1000 + number % 8}.{number}.jsonl").write_bytes(lines)


class _Rank:
    """Writes what one rank of a server on hosts of 8 devices writes."""

    def __init__(self, number: int, ranks: int) -> None:
        self.number = number
        self.ranks = ranks
        self.seq = 0
        self.torch = 0
        self.rest = CONTEXT
        one, place = {"rank": 0, "size": 1}, {"rank": number, "size": ranks}
        parts = {"dp": None, "pp": one, "attn_cp": one, "moe_dp": one, "tp": place, "ep": one}
        self.identity = {
            "run_id": "20261129T184500Z-3fa9c1",
            "host": f"host-{number // 8}",
            "boot_id": f"2f3fa9c1-1234-4234-9234-{number // 8:012d}",
            "pid": 1000 + number % 8,
            "proc": {"start_ticks": number, "parent": 1, "role": "scheduler"},
            "rank": parts | {"world": place, "node": number // 8},
            "device": {"index": number % 8, "uuid": f"GPU-{number:036d}", "name": "NVIDIA H200", "kind": "cuda"},
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield a few events of the process, then a begin and an end for every call inside its init."""
        yield self.event(names.PROCESS_START, attributes={"versions": {"sglang": "0.5.14"}, "argv": []})
        for target in names.ROLES:
            said = {"target": f"sglang:{target}", "role": target, "state": "applied"}
            yield self.event(names.TARGET, attributes=said)
        first = self.reading()
        yield self.call("scheduler.init", "begin", "0", None, first)
        calls = [(role, str(number), torch, rest) for role, count, torch, rest in CALLS for number in range(count)]
        for number, (role, detail, torch, rest) in enumerate(calls, 1):
            before = self.reading()
            yield self.call(role, "begin", f"{number:x}", "0", before, pool=detail)
            self.torch += torch * MIB
            self.rest += rest * MIB
            yield self.call(role, "end", f"{number:x}", "0", before, pool=detail)
        yield self.call("scheduler.init", "end", "0", None, first)

    def reading(self, *, is_listed: bool = False) -> dict[str, Any]:
        """Return what the device says now; the list of processes is read at the ends of some roles only."""
        free = TOTAL - RESERVED - self.torch - self.rest
        held = {"bytes": self.torch + self.rest, "start_ticks": self.number, "name": "python3"}
        known = {
            "device_total_bytes": TOTAL - RESERVED,
            "device_free_bytes": free,
            "torch_allocated_bytes": self.torch,
            "torch_reserved_bytes": self.torch,
            "torch_peak_allocated_bytes": self.torch,
            "torch_peak_reserved_bytes": self.torch,
            "nvml_total_bytes": TOTAL,
            "nvml_reserved_bytes": RESERVED,
            "nvml_used_bytes": self.torch + self.rest,
            "nvml_free_bytes": free,
            "nvml_processes": [{"pid": self.identity["pid"]} | held] if is_listed else None,
            "host_rss_bytes": names.GIB + self.seq,
            "host_available_bytes": 248 * names.GIB - self.seq,
        }
        return dict.fromkeys(READING_KEYS) | known

    def call(
        self, role: str, kind: str, span: str, parent: str | None, before: dict[str, Any], **attributes: Any
    ) -> dict[str, Any]:
        """Return one event of a hooked call."""
        ended = kind == "end"
        after = self.reading(is_listed=role != "dist.communicator") if ended else None
        if role == "dist.communicator":
            world = {"world_size": self.ranks, "world_rank": self.number}
            attributes |= {"distributed_init_method": "tcp://10.0.0.1:5000", **world}
        return self.event(
            names.memory_event(role, kind),
            role=role,
            kind=kind,
            worker="target",
            span={"id": span, "parent": parent},
            before=before,
            after=after,
            delta=None if after is None else {key: _less(after[key], before[key]) for key in DELTA_KEYS},
            duration_ns=1_000_000 if ended else None,
            outcome="ok" if ended else None,
            attributes={"target": f"sglang.srt.model_executor.model_runner:ModelRunner.{role}", **attributes},
        )

    def event(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return the next event, with the keys of the envelope in their order."""
        mono = 10**12 + self.seq * 10**6 + self.number
        known: dict[str, Any] = {
            "schema": names.SCHEMA_VERSION,
            "ts": f"2026-11-29T18:45:{self.seq % 60:02d}.{mono % 10**9:09d}Z",
            "mono_ns": mono,
            "level": "info",
            "event": event,
            "message": "KV pool (MHA): 121.659 GiB, 12.371 GiB free",
            "seq": self.seq,
            "attributes": {},
            "degraded": [],
        }
        self.seq += 1
        known |= self.identity | fields
        return {key: known.get(key) for key in WholeEvent.__annotations__}


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


if __name__ == "__main__":
    main()
