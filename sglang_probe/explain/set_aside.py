"""What a start takes after the KV pools, as this run measured it, and what SGLang itself sets aside for serving.

Measured: what was free when the budget was computed, less the KV pools, less what is free at the end of the start.
Rule of thumb, in MiB: 512 + max(chunked_prefill_size, 2048) x 1.5 + cuda_graph_max_bs x 2 + tp x pp / 8 x 1024.
Source: `ServerArgs._handle_gpu_memory_settings`, SGLang 0.5.9 to 0.5.23, for a fraction that is not given.
Worked example (the recorded H200): 512 + 8192 x 1.5 + 8 x 2 + 2 / 8 x 1024 = 13072 MiB = 12.766 GiB.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.timeline.model import Process
from sglang_probe.timeline.values import as_number

MIB: Final = 1 << 20
_DECODE_MAX_BS: Final = re.compile(r"decode=PhaseConfig\([^)]*?max_bs=(\d+)")
"""From 0.5.13 the sizes of the graphs are in one structure, which events carry as its text."""


class RuleOfThumb(NamedTuple):
    """SGLang's own reserve for a server of this size, and the arguments that it hangs on."""

    bytes: int
    chunked_prefill_size: int
    cuda_graph_max_bs: int
    ranks: int

    @property
    def formula(self) -> str:
        """Return the rule with its values, in MiB."""
        return (
            f"512 + max({self.chunked_prefill_size}, 2048) x 1.5 + {self.cuda_graph_max_bs} x 2"
            f" + {self.ranks} / 8 x 1024 = {self.bytes / MIB:,.0f} MiB"
        )


def rule_of_thumb(subject: Subject) -> RuleOfThumb | None:
    """Return SGLang's own reserve for activations and graphs; None where an argument of it is not known."""
    chunk = as_number(subject.effective("chunked_prefill_size"))
    if chunk is None:
        return None
    if chunk <= 0:
        chunk = as_number(subject.effective("max_prefill_tokens")) or 0
    batch = decode_max_bs(subject) or 0
    sizes = [as_number(subject.effective(name)) or 1 for name in ("tp_size", "pp_size")]
    ranks = int(sizes[0] * sizes[1])
    mib = 512 + max(chunk, 2048) * 1.5 + batch * 2 + ranks / 8 * 1024
    return RuleOfThumb(int(mib * MIB), int(chunk), batch, ranks)


def decode_max_bs(subject: Subject) -> int | None:
    """Return the largest batch of the decode graphs; 0 where graphs are off, None where nothing says."""
    if subject.effective("disable_cuda_graph") is True:
        return 0
    given = as_number(subject.effective("cuda_graph_max_bs", "cuda_graph_max_bs_decode"))
    if given is not None:
        return int(given)
    sizes = subject.effective("cuda_graph_bs", "cuda_graph_bs_decode")
    if isinstance(sizes, list) and sizes:
        return max(size if isinstance(size, int) else 0 for size in sizes)
    told = _DECODE_MAX_BS.search(str(subject.effective("cuda_graph_config") or ""))
    return None if told is None else int(told[1])


def taken_after(seat: Seat) -> int | None:
    """Return what this rank's start took after the budget beside the KV pools, in bytes; None where it is not known.

    It holds request pool, attention, graphs and what lies between the steps. A start that did not come to its end has
    not taken all of it.
    """
    profile = next((step for step in reversed(seat.process.steps) if step.phase == "kv.profile"), None)
    end = end_of_start(seat.process)
    if profile is None or profile.free_bytes is None or end is None or seat.worker.kv is None:
        return None
    pools = None if seat.worker.kv.bytes is None else seat.worker.kv.bytes
    return None if pools is None else profile.free_bytes - pools - end


def end_of_start(process: Process) -> int | None:
    """Return what was free when `scheduler.init` had ended well; None where it has not."""
    roots = [step for step in process.steps if step.phase == "scheduler.init" and step.state == "ok"]
    return roots[-1].free_bytes if roots else None
