"""SGLang's own words for a pool that has no room: not the device's allocator speaks, but a sum that came out too small.

Source: `pool_configurator`, `kv_cache_configurator`, `memory_pool`, `allocation` (earlier `schedule_batch`) and
`tp_worker` of SGLang 0.4.3 to 0.5.23.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sglang_probe.explain.subject import Subject


class Saying(NamedTuple):
    """One wording: which pool, and what moves it."""

    pattern: re.Pattern[str]
    pool: str
    flags: str


def _saying(pattern: str, pool: str, flags: str) -> Saying:
    return Saying(re.compile(pattern, re.IGNORECASE), pool, flags)


_MORE: Final = "a higher --mem-fraction-static"
_STATES: Final = f"{_MORE}, fewer --max-running-requests, --max-mamba-cache-size or --mamba-full-memory-ratio"
_LATER: Final = "fewer requests at once (--max-running-requests), shorter ones, or a larger cache"
SAYINGS: Final = (
    _saying(r"Not enough GPU memory for hybrid|state cache is too small to serve", "recurrent states", _STATES),
    _saying(r"Not enough space for mamba", "recurrent states", _STATES),
    _saying(r"leaves no room for the full|SWA pool .*cannot hold", "pool of a sliding window",
            f"{_MORE}, fewer --max-running-requests, --swa-full-tokens-ratio"),
    _saying(r"leaves no room for real data", "unified KV pool", _MORE),
    _saying(r"Memory pool size is too small", "pool of requests", f"{_MORE}, fewer --max-running-requests"),
    _saying(r"Not enough memory\. Please try to increase --mem-fraction-static|Loaded weights leave no GPU memory",
            "KV cache", _MORE),
    _saying(r"(?:Prefill|Decode)? ?out of memory\.? (?:Try to lower your batch size|happened)"
            r"|Out of memory even after retracting|alloc_req_slots runs out of memory",
            "KV cache", _LATER),
)  # fmt: skip
"""In the order in which they are asked."""


def saying_in(message: str) -> Saying | None:
    """Return which of SGLang's own wordings a message has; None where it has none."""
    return next((one for one in SAYINGS if one.pattern.search(message)), None)


def no_room(subject: Subject) -> Saying | None:
    """Return what SGLang itself says had no room, of a run that failed with that."""
    failure = subject.run.failure
    return None if not subject.failed or failure is None else saying_in(failure.message or "")
