"""Makes a run of many ranks out of a recorded one of two: what reports are measured and looked at with.

    python bench/many_ranks.py DIRECTORY --ranks 512 [--recording tests/data/h200-x2-sglang-0.5.14/car] [--odd 37 200]

Every rank writes what TP1 of the recording wrote, with its own host (8 ranks each), pid, card and place in the world.
An odd rank (`--odd`) has 300 MiB less free from the first communicator on, and takes three times as
long for its weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDING: Final = ROOT / "tests" / "data" / "h200-x2-sglang-0.5.14" / "car"
PER_HOST: Final = 8
ODD_BYTES: Final = 300 << 20
FREE: Final = ("device_free_bytes", "nvml_free_bytes")


def main() -> None:
    """Write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, default=512, help="how many (default 512)")
    parser.add_argument("--recording", type=Path, default=RECORDING, help="a run directory with a rank TP1")
    parser.add_argument("--odd", type=int, nargs="*", default=[], metavar="RANK", help="ranks that differ")
    told = parser.parse_args()
    write_ranks(told.directory, told.ranks, told.recording, told.odd)


def write_ranks(directory: Path, ranks: int, recording: Path = RECORDING, odd: Iterable[int] = ()) -> None:
    """Write a run of so many ranks into `directory`, which it makes; and the launcher's file of the recording."""
    directory.mkdir(parents=True)
    templates = {kind: list(_template(_events_of_tp1(recording), is_odd=kind)) for kind in (False, True)}
    launcher = next(file for file in sorted(recording.iterdir()) if b'"role":"launcher"' in file.read_bytes())
    told = launcher.read_bytes().replace(b'"host":"gpu-host"', b'"host":"node-000"')
    (directory / f"node-000.{launcher.name.partition('.')[2]}").write_bytes(told)
    strange = set(odd)
    for rank in range(ranks):
        host, pid = f"node-{rank // PER_HOST:03d}", 1000 + rank % PER_HOST
        values = {
            "@host@": host,
            "@boot@": f"3f0d2c1e-5b6a-4c7d-8e9f-{rank // PER_HOST:012d}" if rank >= PER_HOST else FIRST_BOOT,
            '"@pid@"': str(pid),
            '"@rank@"': str(rank),
            '"@ranks@"': str(ranks),
            '"@node@"': str(rank // PER_HOST),
            '"@index@"': str(rank % PER_HOST),
            "@uuid@": f"GPU-{rank:08d}-0000-4000-8000-000000000000",
        }
        lines = "".join(_filled(line, values) for line in templates[rank in strange])
        (directory / f"{host}.{pid}.{5618}.jsonl").write_text(lines)


FIRST_BOOT: Final = "3f0d2c1e-5b6a-4c7d-8e9f-0a1b2c3d4e5f"


def _events_of_tp1(recording: Path) -> list[dict[str, Any]]:
    for file in sorted(recording.iterdir()):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        if any(((event["rank"] or {}).get("tp") or {}).get("rank") == 1 for event in events):
            return events
    raise SystemExit(f"{recording} has no rank TP1; name another with --recording")


def _template(events: list[dict[str, Any]], *, is_odd: bool) -> Iterator[str]:
    """Yield the lines with marks where ranks differ."""
    pid = events[0]["pid"]
    met = False
    for event in events:
        met = met or (event["role"] == "dist.communicator" and event["kind"] == "end")
        event |= {"host": "@host@", "boot_id": "@boot@", "pid": "@pid@"}
        for part in ("tp", "world"):
            if event["rank"] is not None and event["rank"][part] is not None:
                event["rank"][part] = {"rank": "@rank@", "size": "@ranks@"}
        if event["rank"] is not None:
            event["rank"]["node"] = "@node@"
        if event["device"] is not None:
            event["device"] |= {"index": "@index@", "uuid": "@uuid@"}
        attributes = event["attributes"]
        for name, mark in (("world_rank", "@rank@"), ("world_size", "@ranks@"), ("rank", "@rank@")):
            if isinstance(attributes.get(name), int):
                attributes[name] = mark
        for reading in (event["before"], event["after"]):
            for process in (reading or {}).get("nvml_processes") or ():
                process["pid"] = "@pid@" if process["pid"] == pid else process["pid"]
        if is_odd:
            _make_odd(event, met)
        # A loopback address would make a launch of every host.
        yield json.dumps(event, separators=(",", ":")).replace("tcp://127.0.0.1:", "tcp://10.0.0.1:") + "\n"


def _make_odd(event: dict[str, Any], met: bool) -> None:
    for reading in (event["before"], event["after"]) if met else ():
        for key in FREE:
            if (reading or {}).get(key) is not None:
                reading[key] -= ODD_BYTES
    if event["role"] == "weights.load" and event["duration_ns"] is not None:
        event["duration_ns"] *= 3


def _filled(line: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        line = line.replace(mark, value)
    return line


if __name__ == "__main__":
    main()
