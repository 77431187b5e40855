"""Out of memory in graph capture of a log: at which size, and where the memory was asked for, as the events say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.logs.test_recorded import LOGS, explained, name_of
from tests.explain.logs.test_rules import ARGUMENTS, OOM, of, said

CAPTURE = "TP0: Capture cuda graph begin. This can take up to several minutes. avail mem=4.98 GB"
BAR = "Capturing batches (bs={} avail_mem=1.20 GB):   5%|▍         | 1/22 [00:03<01:10,  3.35s/it]"
CHAIN = (
    "TP0: Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/layers/moe/fused_moe.py", line 600, in fused_experts_impl\n    torch.empty(1)\n'
    f"{OOM.format('1.00 GiB')}\n"
    "\nDuring handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 383, in __init__\n    raise Exception(\n'
    f"Exception: Capture cuda graph failed: {OOM.partition(': ')[2].format('1.00 GiB')}"
)
OF_BOTH = [log for log in LOGS if any(one.rule == "graphs" for one in explained(log).findings)]


@pytest.mark.parametrize("log", OF_BOTH, ids=name_of)
def test_the_size_being_captured_is_that_of_the_events(log: Path) -> None:
    of_log, of_events = (of("graphs", list(explained(path).findings)) for path in (log, log.with_suffix("")))

    assert of_log.numbers["failed_size"] == of_events.numbers["failed_size"]


def test_the_size_is_read_from_bars_that_were_glued_onto_one_line() -> None:
    found = of("graphs", said(ARGUMENTS, CAPTURE, BAR.format(512) + BAR.format(256), CHAIN))

    assert "at size 256" in found.says


def test_memory_was_asked_for_where_the_first_exception_of_a_chain_was_raised() -> None:
    found = of("graphs", said(ARGUMENTS, CAPTURE, CHAIN))

    assert any("fused_moe.py:600 in fused_experts_impl" in note for note in found.notes)
    assert not any("cuda_graph_runner" in note for note in found.notes)


def test_slots_of_recurrent_states_are_no_tokens() -> None:
    found = of("kv_cache", said(
        ARGUMENTS.replace("page_size=1", "max_total_tokens=None"),
        "TP0: Mamba Cache is allocated. max_mamba_cache_size: 151, conv_state size: 0.16GB, ssm_state size: 3.94GB",
        "TP0: KV Cache is allocated. #tokens: 3571712, K size: 10.22 GB, V size: 10.22 GB",
        "The server is fired up and ready to roll!",
    ))  # fmt: skip

    assert "151" not in found.says
    assert "K 10.22 GiB and V 10.22 GiB: " in found.says
