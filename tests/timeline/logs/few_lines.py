"""A reader of the few lines that the recorded runs of 0.5.14 have: merging is tested here, reading elsewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from sglang_probe.collect.logs.model import Amount, Entry, Fact, LogRun

HALF = 5368710
"""Half a hundredth of a GiB, rounded up."""
PREFIX = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z_]+\d+)*)\] (.*)", re.S)
LINES = (
    ("dist_init_begin", r"Init torch distributed begin"),
    ("dist_init_end", r"Init torch distributed ends\. elapsed=(?P<elapsed_s>[\d.]+) s, mem usage=(?P<mem_usage>[\d.]+) GB"),
    ("weights_begin", r"Load weight begin\. avail mem=(?P<avail>[\d.]+) GB"),
    ("weights_end", r"Load weight end\..* avail mem=(?P<avail>[\d.]+) GB, mem usage=(?P<mem_usage>[\d.]+) GB"),
    ("kv_alloc", r"KV Cache is allocated\. dtype: (?P<dtype>torch\.\w+), #tokens: (?P<tokens>\d+), K size: (?P<k>[\d.]+) GB, V size: (?P<v>[\d.]+) GB"),
    ("pool_end", r"Memory pool end\. avail mem=(?P<avail>[\d.]+) GB"),
    ("graph_begin", r"Capture target (?P<graph>decode) CUDA graph begin\..* bs=(?P<sizes>\[[\d, ]*\]), avail mem=(?P<avail>[\d.]+) GB"),
    (
        "graph_end",
        r"Capture target (?P<graph>decode) CUDA graph end\..* mem usage=(?P<mem_usage>[\d.]+) GB, avail mem=(?P<avail>[\d.]+) GB",
    ),
    (
        "capacity",
        r"max_total_num_tokens=(?P<max_total_num_tokens>\d+), .*max_running_requests=(?P<max_running_requests>\d+), "
        r"context_len=(?P<context_len>\d+), available_gpu_mem=(?P<avail>[\d.]+) GB",
    ),
    ("ready", r"The server is fired up and ready to roll!"),
    ("ended", r"kill_process_tree called: parent_pid=(?P<pid>\d+)"),
)
COUNTS = {"tokens", "max_total_num_tokens", "max_running_requests", "context_len", "pid"}


def read_log(path: Path) -> LogRun:
    """Return the facts of a recorded log."""
    text = path.read_text()
    return LogRun(name=path.name, files=(path.name,), facts=tuple(facts_of(path.name, text)), lines=text.count("\n"))


def facts_of(name: str, text: str) -> list[Fact]:
    """Return the facts of a text."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = PREFIX.fullmatch(line)
        if match is None:
            continue
        ranks = tuple((token.rstrip("0123456789"), int(re.sub(r"\D", "", token))) for token in match[2].split())
        entry = Entry(file=name, line=number, text=match[3], stamp=match[1], ranks=ranks, prefixed=True)
        if match[3].startswith("server_args=ServerArgs("):
            found.append(Fact(kind="server_args", entry=entry, values={"arguments": arguments_of(match[3])}))
        for kind, pattern in LINES:
            said = re.match(pattern, match[3])
            if said is not None:
                found.append(Fact(kind=kind, entry=entry, values={key: value_of(key, one) for key, one in said.groupdict().items()}))
    return found


def value_of(name: str, text: str) -> Any:
    """Return a figure as facts have it."""
    if name in COUNTS:
        return int(text)
    if name in {"graph", "dtype"}:
        return text
    if name == "sizes":
        return ast.literal_eval(text)
    return float(text) if name == "elapsed_s" else Amount(bytes=round(float(text) * 2**30), precision_bytes=HALF, printed=text)


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments that are literals."""
    call = ast.parse(text.removeprefix("server_args="), mode="eval").body
    assert isinstance(call, ast.Call)
    found = {}
    for keyword in call.keywords:
        try:
            found[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            found[str(keyword.arg)] = ast.unparse(keyword.value)
    return found
