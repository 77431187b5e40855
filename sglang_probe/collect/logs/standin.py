"""Stand-in until the text and the formats parts are merged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from sglang_probe.collect.logs.model import RANK_TOKENS, Amount, Entry, Fact
from sglang_probe.collect.report import Tally

NEEDLES: tuple[bytes, ...] = ()
_PREFIX = re.compile(r"^(?:(\S+?)\s*\| )?(?:\[((?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d)((?: [A-Z_]+\d+)*)\] )?(.*)$")
_KINDS = {
    "dist_init_begin": r"Init torch distributed begin",
    "dist_init_end": r"Init torch distributed ends.*mem usage=(?P<mem_usage>[\d.]+)",
    "weights_begin": r"Load weight begin. avail mem=(?P<avail>[\d.]+)",
    "weights_end": r"Load weight end.*type=(?P<model_class>\w+).*avail mem=(?P<avail>[\d.]+)",
    "kv_alloc": r"KV Cache is allocated.*#tokens: (?P<tokens>\d+)",
    "pool_end": r"Memory pool end. avail mem=(?P<avail>[\d.]+)",
    "graph_begin": r"Capture .*begin.*avail mem=(?P<avail>[\d.]+)",
    "graph_end": r"Capture .*end.*avail mem=(?P<avail>[\d.]+)",
    "capacity": r"max_total_num_tokens=(?P<max_total_num_tokens>\d+)",
    "ready": r"The server is fired up",
    "batch": r"(?:Prefill|Decode) batch",
    "retract": r"KV cache pool is full. Retract requests",
    "no_memory": r"Not enough memory. Please try to increase",
    "out_of_memory": r"out of memory",
    "ended": r"Killed",
    "adjusted": r"Automatically adjust --(?P<name>\S+)",
}
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}


def is_whole(text: str) -> bool:
    return False


def entries(
    stream: BinaryIO, name: str, *, needles: Sequence[bytes], is_whole: Any, notes: Tally, progress: Any = None
) -> Iterator[Entry]:
    rest = b""
    number = 0
    while True:
        block = stream.read(1 << 20)
        notes.bytes += len(block)
        lines = (rest + block).split(b"\n")
        rest = lines.pop() if block else b""
        for line in lines:
            number += 1
            notes.lines += bool(line) or bool(block)
            match = _PREFIX.match(line.decode("utf-8", "replace").rstrip("\r"))
            if match is None or not match[4]:
                continue
            found = re.findall(r"([A-Z_]+)(\d+)", match[3] or "")
            ranks = sorted(((a, int(b)) for a, b in found), key=lambda one: RANK_TOKENS.index(one[0]))
            yield Entry(
                file=name, line=number, text=match[4], stamp=match[2], ranks=tuple(ranks), source=match[1],
                prefixed=match[2] is not None,
            )
        if not block:
            return


def _value(name: str, text: str) -> Any:
    if name in {"avail", "mem_usage"}:
        return Amount(round(float(text) * (1 << 30)), 5368710, text)
    return int(text) if text.isdigit() else text


def facts_of(entry: Entry) -> tuple[Fact, ...]:
    if entry.text.startswith("server_args="):
        pairs = re.findall(r"(\w+)=('[^']*'|[\w.:-]+)", entry.text[12:])
        arguments: dict[str, Any] = {}
        for key, value in pairs:
            plain = value.strip("'")
            arguments[key] = None if value == "None" else int(value) if value.isdigit() else plain
        return (Fact(kind="server_args", entry=entry, values={"arguments": arguments}),)
    for kind, pattern in _COMPILED.items():
        match = pattern.search(entry.text)
        if match:
            values = {name: _value(name, text) for name, text in match.groupdict().items()}
            return (Fact(kind=kind, entry=entry, values=values),)
    return ()
