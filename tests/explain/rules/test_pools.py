"""SGLang's own words for a pool without room are memory, and not the device's allocator."""

from __future__ import annotations

import pytest

from sglang_probe.explain.oom_message import parse
from sglang_probe.timeline.model import Later
from tests.explain.explaining import of, raising, rank, ready, rules

WORDINGS = {
    "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Try": "recurrent states",
    "Hybrid (mamba/linear-attention) state cache is too small to serve any requests.": "recurrent states",
    "Not enough space for mamba cache, try to increase --mamba-full-memory-ratio": "recurrent states",
    "SWA pool cap (8 requests, 3.00 GiB) leaves no room for the full pool": "sliding window",
    "SWA pool (100 tokens) cannot hold even one request: window 128": "sliding window",
    "total_bytes=1 leaves no room for real data. Increase total_bytes.": "unified KV pool",
    "Memory pool size is too small": "pool of requests",
    "Not enough memory. Please try to increase --mem-fraction-static.": "KV cache",
    "Prefill out of memory. Try to lower your batch size.": "KV cache",
    "Out of memory even after retracting all other requests in the batch.": "KV cache",
}


@pytest.mark.parametrize("message", WORDINGS)
def test_each_wording_is_the_cause_and_named_by_its_pool(message: str) -> None:
    run = raising("kv.pool", message, "builtins.RuntimeError", free=12.0)

    assert "no_room_in_a_pool" == rules(run)[0]
    assert WORDINGS[message] in of("no_room_in_a_pool", run).says
    assert "not_memory" not in rules(run)


@pytest.mark.parametrize("message", WORDINGS)
def test_none_of_them_is_an_out_of_memory_of_the_device(message: str) -> None:
    assert parse(message) is None


def test_a_pool_that_fills_up_later_is_told_with_who_it_was() -> None:
    said = "RuntimeError: Decode out of memory. Try to lower your batch size."
    later = Later(ts=None, label="TP0", host="a", pid=1, phase=None, what=said)
    found = of("no_room_in_a_pool", ready(rank(0, 1, available=80.0, weights=14.0), later=(later,)))

    assert ("TP0",) == found.ranks
    assert "--max-running-requests" in (found.lever.says if found.lever else "")
