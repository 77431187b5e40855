"""Facts of a log for tests, as the reader would have made them out of SGLang's lines."""

from __future__ import annotations

import itertools
import re
from typing import Any

from sglang_probe.collect.logs.model import RANK_TOKENS, Amount, Entry, Fact, LogRun

GIB = 1 << 30
HUNDREDTH = -(-GIB // 200)
"""Half a unit of the second decimal, rounded up."""


def amount(printed: str) -> Amount:
    """Return a figure as SGLang prints it, with two decimals."""
    assert re.fullmatch(r"-?\d+\.\d\d", printed)
    return Amount(round(float(printed) * GIB), HUNDREDTH, printed)


def fact(rank: str, kind: str, *, text: str = "", **values: Any) -> Fact:
    """Return one fact; strings like 21.73 are amounts. `rank` is a label, or empty where the line names none."""
    tokens = dict(re.findall(r"([A-Z_]+?)(\d+)", rank))
    ranks = tuple((name, int(tokens[name])) for name in RANK_TOKENS if name in tokens)
    made = {
        name: amount(value) if isinstance(value, str) and re.fullmatch(r"-?\d+\.\d\d", value) else value
        for name, value in values.items()
    }
    return Fact(kind=kind, entry=Entry(file="server.log", line=0, text=text or kind, ranks=ranks), values=made)


def log(*facts: Fact, name: str = "server.log") -> LogRun:
    """Return a start whose facts stand on lines 1, 2, 3 and on."""
    numbered = []
    for line, one in zip(itertools.count(1), facts, strict=False):
        old = one.entry
        stamp = f"2030-01-01 00:00:{line % 60:02}"
        entry = Entry(file=old.file, line=line, text=old.text, ranks=old.ranks, stamp=stamp)
        numbered.append(Fact(kind=one.kind, entry=entry, values=one.values))
    return LogRun(name=name, files=(name,), facts=tuple(numbered), last_line=len(numbered), lines=len(numbered))


def healthy(rank: str, tokens: int = 1000) -> list[Fact]:
    """Return a rank's lines from its init to serving: 80.00 GiB, 20.00 of weights, 50.00 of pools, 1.00 of graphs."""
    return [
        fact(rank, "dist_init_begin"),
        fact(rank, "dist_init_end", mem_usage="1.00", elapsed_s=1.5),
        fact(rank, "weights_begin", avail="80.00"),
        fact(rank, "weights_end", model_class="LlamaForCausalLM", avail="60.00", mem_usage="20.00"),
        fact(rank, "kv_alloc", cache="KV Cache", tokens=tokens, k="25.00", v="25.00", bound=False),
        fact(rank, "pool_end", avail="9.50"),
        fact(rank, "graph_begin", graph="decode", what="cuda graph", avail="9.50"),
        fact(rank, "graph_end", graph="decode", what="cuda graph", avail="8.50", mem_usage="1.00", elapsed_s=3.25),
        fact(rank, "capacity", max_total_num_tokens=tokens, context_len=4096, avail="8.50", device="gpu"),
    ]
