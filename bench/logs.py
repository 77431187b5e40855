"""How fast plain logs are read, beside `grep` and a Python loop on the same file, and in how much memory.

    python bench/logs.py [--mib 512] [--repeats 3]

A recorded start is followed by what a server writes while it serves: batches, access lines, and a warning now and then.
The same log is read plain and as docker's json-file keeps it. Each way of reading runs in a process of its own, in
alternation. Ways: `grep` counts the lines with a needle (`LC_ALL=C grep -c -F`); `loop` does so line by line in Python;
`entries` gives what the timeline is built from. Bar: 200 MB/s on one core, memory that does not grow with the file
(`--mib 4096`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sglang_probe.collect.logs.entries import entries
from sglang_probe.collect.logs.formats import NEEDLES, is_whole
from sglang_probe.collect.report import Tally

START = Path(__file__).resolve().parents[1] / "tests" / "data" / "h200-x2-sglang-0.5.14" / "car.log"
WANTED = [needle for needle in NEEDLES if needle != b" batch"]
"""Of batches `entries` takes the last before another line; the others would drown in them."""
MIB = 1 << 20


def main() -> None:
    """Make the logs, read them in every way, print what each took."""
    arguments = _arguments()
    if arguments.way is not None:
        print(json.dumps(_measure(arguments.way, arguments.file)))
        return
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("plain", "docker"):
            file = Path(directory, f"{kind}.log")
            _write(file, arguments.mib * MIB, docker=kind == "docker")
            rounds = [{way: _in_a_process(way, file) for way in WAYS} for _ in range(arguments.repeats)]
            _print(kind, rounds, file.stat().st_size)
            file.unlink()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="size of the log (default 512)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median is printed (default 3)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    return parser.parse_args()


def _grep(file: str) -> int:
    command = ["grep", "-c", "-F", *(f"-e{needle.decode()}" for needle in WANTED), file]
    return int(subprocess.run(command, check=True, capture_output=True, env=os.environ | {"LC_ALL": "C"}).stdout)


def _loop(file: str) -> int:
    with Path(file).open("rb") as lines:
        return sum(1 for line in lines if any(needle in line for needle in WANTED))


def _entries(file: str) -> int:
    with Path(file).open("rb") as stream:
        return sum(1 for _ in entries(stream, file, needles=NEEDLES, is_whole=is_whole, notes=Tally()))


WAYS: dict[str, Callable[[str], int]] = {"grep": _grep, "loop": _loop, "entries": _entries}


def _measure(way: str, file: str) -> dict[str, float]:
    found = WAYS[way](file)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used) - IMPORTED
    return {"found": found, "seconds": seconds, "peak_bytes": used[way == "grep"].ru_maxrss * 1024}


def _in_a_process(way: str, file: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--way", way, "--file", str(file)]
    measured: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return measured


def _print(kind: str, rounds: list[dict[str, dict[str, float]]], size: int) -> None:
    print(f"{kind}: {size / MIB:,.0f} MiB; CPU seconds, median of {len(rounds)} rounds")
    print(f"{'way':<10}{'seconds':>9}{'MB/s':>9}{'of grep':>9}{'peak MiB':>10}{'found':>9}")
    base = median(one["grep"]["seconds"] for one in rounds)
    for way in WAYS:
        seconds = median(one[way]["seconds"] for one in rounds)
        peak = median(one[way]["peak_bytes"] for one in rounds) / MIB
        speed = f"{size / seconds / 1e6:>9,.0f}{base / seconds:>8.1f}x"
        print(f"{way:<10}{seconds:>9.2f}{speed}{peak:>10.0f}{rounds[0][way]['found']:>9,.0f}")


def _write(file: Path, size: int, *, docker: bool) -> None:
    """Write a start and then serving, a minute of it over and over with other figures."""
    written = number = 0
    with file.open("w") as out:
        lines = START.read_text().removesuffix("\n").split("\n")
        while written < size:
            text = "".join(_docker(line) if docker else line + "\n" for line in lines)
            written += out.write(text)
            lines = _minute(number)
            number += 1


def _minute(number: int) -> list[str]:
    lines = []
    for step in range(600):
        stamp = f"2026-11-29 {number // 60 % 24:02}:{number % 60:02}:{step // 10:02}"
        many = number * 600 + step
        usage = f"token usage: 0.{many % 100:02}, #running-req: {many % 90}, #queue-req: 0"
        speed = f"throughput (token/s): {many % 9999}.25"
        lines += [
            f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {many % 8192}, #cached-token: 0, {usage}, {speed}",
            f"[{stamp} TP0] Decode batch, #token: {many}, {usage}, cuda graph: True, gen {speed}",
            f'[{stamp}] INFO:     127.0.0.1:{many % 60000} - "POST /generate HTTP/1.1" 200 OK',
        ]
    return [*lines, f"[{stamp}] RuntimeError: a request was aborted"]


def _docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T19:50:31.123456789Z"}) + "\n"


IMPORTED = time.process_time()
"""CPU seconds of the interpreter and these imports, which are not the file's."""

if __name__ == "__main__":
    main()
