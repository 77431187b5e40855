"""The rows of the ledger, and which of them takes what a role's memory comes from.

Bytes that torch counts as allocated go to one row, bytes that the device lost beyond what torch reserved to another:
inside `weights.load` the former are weights, the latter kernels and library handles that happened to load there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sglang_probe.timeline.ledger_model import Ledger

KEYS: Final = Ledger.__struct_fields__
(
    DRIVER, CONTEXT, COMMUNICATOR, ALLREDUCE, WEIGHTS_TARGET, WEIGHTS_DRAFT, KV_POOL, REQUEST_POOL, ATTENTION, LORA,
    GRAPHS, CACHED, OTHER, RUN, FOREIGN, FREE, UNEXPLAINED,
) = range(len(KEYS))  # fmt: skip
NAMES: Final = {
    "driver_reserved": "driver's reserve",
    "cuda_context": "CUDA context",
    "communicator": "communicators",
    "custom_allreduce": "custom all-reduce",
    "weights_target": "weights",
    "weights_draft": "weights, draft",
    "kv_pool": "KV pool",
    "request_pool": "request pool",
    "attention_workspace": "attention",
    "lora": "LoRA",
    "graphs": "graphs",
    "torch_cached": "torch's cache",
    "other_process": "rest of process",
    "run_processes": "run's others",
    "foreign": "foreign",
    "free": "free",
    "unexplained": "unexplained",
}
"""What the rows are called in print, by every report and sentence."""



class Takes(NamedTuple):
    """The rows that take what changes while a span is the innermost one."""

    torch: int
    """Of what torch counts as allocated."""
    rest: int
    """Of what the device lost beyond what torch reserved."""


NOBODY: Final = Takes(OTHER, OTHER)
"""Between the roles."""
_WEIGHTS_DRAFT: Final = Takes(WEIGHTS_DRAFT, OTHER)
_LORA: Final = Takes(LORA, OTHER)
_REQUEST_POOL: Final = Takes(REQUEST_POOL, OTHER)
_BY_ROLE: Final = {
    "dist.init": Takes(COMMUNICATOR, COMMUNICATOR),
    "dist.communicator": Takes(COMMUNICATOR, COMMUNICATOR),
    "allreduce.buffers": Takes(ALLREDUCE, ALLREDUCE),
    "weights.load": Takes(WEIGHTS_TARGET, OTHER),
    "kv.pool": Takes(KV_POOL, OTHER),
    "attention.init": Takes(ATTENTION, OTHER),
    "graph.capture": Takes(GRAPHS, GRAPHS),
}


def takes_of(role: str, worker: str | None, attributes: Mapping[str, Any]) -> Takes:
    """Return the rows of a span. `scheduler.init` and `kv.profile` hold nothing themselves."""
    if role == "weights.load":
        if attributes.get("part") == "lora":
            return _LORA
        if worker == "draft":
            return _WEIGHTS_DRAFT
    elif role == "kv.pool" and attributes.get("pool") == "request":
        return _REQUEST_POOL
    return _BY_ROLE.get(role, NOBODY)
