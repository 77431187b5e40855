"""Logs as a server writes them, line by line, and what is read out of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sglang_probe.collect.logs.model import LogRun
from sglang_probe.collect.logs.read import read_log

BEGUN = datetime(2030, 1, 1)  # noqa: DTZ001 - SGLang's times name no zone
GROUP = (
    "Init torch distributed begin.",
    "Init torch distributed ends. mem usage=0.50 GB",
    "Load weight begin. avail mem=79.00 GB",
    "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=64.00 GB, mem usage=15.00 GB.",
    "KV Cache is allocated. #tokens: 400000, K size: 24.00 GB, V size: 24.00 GB",
    "Memory pool end. avail mem=15.00 GB",
)
DRAFT = (
    "Init torch distributed begin.",
    "Init torch distributed ends. mem usage=0.00 GB",
    "Load weight begin. avail mem=14.00 GB",
    "Load weight end. type=LlamaForCausalLMEagle, dtype=torch.bfloat16, avail mem=13.00 GB, mem usage=1.00 GB.",
    "Memory pool end. avail mem=12.00 GB",
)
TOTALS = (
    "max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048,"
    " context_len=8192, available_gpu_mem=12.00 GB"
)
READY = "The server is fired up and ready to roll!"
BATCH = "Decode batch. #running-req: 1, #token: 100, token usage: 0.01, gen throughput (token/s): 50.00, #queue-req: 0"


class Teller:
    """A server's clock, and the lines it writes."""

    def __init__(self, hours: float = 0, ranks: Sequence[str] = ("TP0", "TP1"), carrier: str = "") -> None:
        self.now = BEGUN + timedelta(hours=hours)
        self.ranks = ranks
        self.carrier = carrier

    def line(self, message: str, rank: str = "", seconds: float = 1) -> str:
        """Return one line, `seconds` after the one before."""
        self.now += timedelta(seconds=seconds)
        return f"{self.carrier}[{self.now:%Y-%m-%d %H:%M:%S}{' ' + rank if rank else ''}] {message}\n"

    def arguments(self, **values: Any) -> list[str]:
        """Return the line of the launcher's."""
        named = {"model_path": "/m", "port": 30000, "tp_size": len(self.ranks), "mem_fraction_static": 0.83}
        named |= {"speculative_algorithm": None, "dist_init_addr": None, "nnodes": 1, "node_rank": 0, **values}
        return [self.line(f"server_args=ServerArgs({', '.join(f'{name}={value!r}' for name, value in named.items())})")]

    def group(self, messages: Iterable[str] = GROUP, seconds: float = 1) -> list[str]:
        """Return a group of lines by every rank; `seconds` pass before it."""
        self.now += timedelta(seconds=seconds)
        return [self.line(message, rank, seconds=0) for message in messages for rank in self.ranks]

    def totals(self) -> list[str]:
        """Return the totals that the first rank prints, and the server's ready."""
        return [self.line(TOTALS, self.ranks[0]), self.line(READY)]

    def start(self, **values: Any) -> list[str]:
        """Return a whole start."""
        return [*self.arguments(**values), *self.group(seconds=12), *self.totals()]


def runs_of(lines: Iterable[str], name: str = "server.log") -> list[LogRun]:
    """Return the starts in a log of these lines."""
    return read_log(io.BytesIO("".join(lines).encode()), name)


def kinds(run: LogRun) -> list[str]:
    """Return the kinds of a run's facts."""
    return [fact.kind for fact in run.facts]
