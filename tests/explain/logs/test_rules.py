"""Rules that only logs have: a tenant that an error names, retractions, a rank that is silent, how a text ends."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sglang_probe.collect.logs.read import read_log
from sglang_probe.explain.model import Finding
from sglang_probe.figures import GIB
from sglang_probe.timeline.logs import run_of
from tests.explain.explaining import findings

FULL = "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_token_ratio: 0.5000 -> 0.8000"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 1 has a total capacity of 139.80 GiB"
    " of which 106.69 MiB is free. Process 5952 has {} memory in use. Including non-PyTorch memory, this process has"
    " 3.89 GiB memory in use. Of the allocated memory 2.36 GiB is allocated by PyTorch, and 17.86 MiB is reserved by"
    " PyTorch but unallocated."
)
ARGUMENTS = "server_args=ServerArgs(model_path='/m', tp_size=4, dp_size=1, mem_fraction_static=0.85, page_size=1)"
READY = "The server is fired up and ready to roll!"
RAISED = 'TP0: Scheduler hit an exception: Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'


def said(*lines: str, **assumed: Any) -> list[Finding]:
    """Return the findings about a text; a line's `TP0: ` becomes its prefix."""
    whole = []
    for second, line in enumerate(lines):
        rank, colon, text = line.partition(": ")
        named = colon and rank.startswith(("TP", "DP"))
        stamp = f"2030-01-01 00:00:{second:02d}"
        whole.append(f"[{stamp} {rank}] {text}" if named else line if "Error: " in line else f"[{stamp}] {line}")
    (log,) = read_log(io.BytesIO("\n".join(whole).encode()), "serve.log")
    return findings(run_of(log, assumed))


def of(rule: str, found: list[Finding]) -> Finding:
    (one,) = [one for one in found if one.rule == rule]
    return one


@pytest.mark.parametrize(("held", "severity"), [("135.79 GiB", "error"), ("1.00 MiB", "warning")])
def test_a_process_that_an_error_names_is_a_tenant_and_a_cause_where_it_holds_what_was_short(
    held: str, severity: str
) -> None:
    found = said("TP1: Load weight begin. avail mem=2.48 GB", OOM.format(held))

    assert severity == of("foreign_tenant", found).severity
    assert f"pid 5952 holds {held}" in of("foreign_tenant", found).says
    assert "GPU 1" in of("foreign_tenant", found).says
    assert not any(lever is not None and lever.flag == "--tp" for one in found for lever in (one.lever, *one.levers))


def test_retractions_are_counted_once_for_the_ranks_of_a_replica() -> None:
    lines = [f"{rank}: {FULL.format(count)}" for count in (3, 4) for rank in ("DP0 TP0", "DP0 TP1", "DP1 TP2")]
    found = of("retractions", said(ARGUMENTS, READY, *lines))

    assert (4, 14) == (found.numbers["times"], found.numbers["retracted"])
    assert "info" == found.severity


def test_an_error_of_a_lost_peer_names_the_rank_that_printed_none() -> None:
    found = said(
        "TP0: Capture cuda graph begin. This can take up to several minutes. avail mem=11.40 GB",
        "TP1: Capture cuda graph begin. This can take up to several minutes. avail mem=11.40 GB",
        f"{RAISED}RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:14742",
    )

    assert "only reports a lost peer" in found[0].says
    assert "TP1 printed no error: look there first" in found[0].says


@pytest.mark.parametrize(("lines", "words"), [
    (["TP0: Load weight begin. avail mem=76.63 GB"], "the last phase begun is weights.load, on TP0 with 76.63"),
    (["TP0: Memory pool end. avail mem=13.43 GB"], "the last phase that it shows is kv.pool with 13.43 GiB free"),
])  # fmt: skip
def test_a_text_that_just_ends_says_where(lines: list[str], words: str) -> None:
    found = of("unfinished", said(*lines))

    assert words in found.says
    assert "unknown from this text" in found.says


def test_the_same_error_is_not_said_twice() -> None:
    found = said(
        f"{RAISED}triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware"
        " limit: 101376"
    )

    assert ["error"] == [one.severity for one in found if one.rule == "not_memory"]


@pytest.mark.parametrize(("arguments", "expected"), [
    ([], None),
    ([ARGUMENTS.replace("tp_size=4", "tp_size=8")], 61 * (512 + 64) * 2),
    ([ARGUMENTS.replace("tp_size=4", "tp_size=8, kv_cache_dtype='fp8_e4m3'")], 61 * (512 + 64)),
])  # fmt: skip
def test_a_model_is_told_by_its_weights_only_where_the_number_of_ranks_is_known(
    arguments: list[str], expected: int | None
) -> None:
    found = said(
        *arguments,
        "TP0: Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=9.00 GB, mem usage=80.2 GB.",
        "TP0: max_total_tokens=131072 is larger than the profiled value -100. Use the profiled value instead.",
    )

    assert expected == found[0].numbers.get("bytes_per_token")


HALF = 131072 * 28 * 8 * 128 * 2 / GIB
"""What the keys take of 131072 tokens of Llama-3.2-3B."""
POOL = f"KV Cache is allocated. #tokens: 131072, K size: {HALF:.2f} GB, V size: {HALF:.2f} GB"
OF_310 = "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=70.00 GB, mem usage=1.72 GB."
OF_510 = "Load weight end. elapsed=0.10 s, type=LlamaForCausalLM, {}avail mem=70.00 GB, mem usage=1.72 GB."
ASKED = ARGUMENTS.replace("tp_size=4", "tp_size=1")


@pytest.mark.parametrize(("lines", "named"), [
    ([ASKED, OF_310], False),
    ([ASKED, OF_510.format("")], False),
    ([ASKED, OF_510.format(""), POOL], False),
    ([ASKED.replace("page_size=1", "quantization='unquant'"), OF_310, POOL], False),
    ([ASKED, OF_310, POOL], True),
    ([OF_510.format(""), POOL], True),
    ([ASKED, OF_510.format("quant=awq, bits=4, "), POOL], True),
    ([ASKED, OF_510.format("quant=awq, bits=4, ")], True),
    ([ASKED.replace("page_size=1", "quantization='awq'"), OF_310], True),
    ([ASKED.replace("page_size=1", "quantization='awq'"), OF_510.format("")], True),
])  # fmt: skip
def test_weights_of_4_bits_tell_a_model_where_the_run_is_quantized_or_does_not_say_and_its_pool_fits(
    lines: list[str], named: bool
) -> None:
    cap = "max_total_tokens=131072 is larger than the profiled value -100. Use the profiled value instead."
    rows = [line if line.startswith("server_args") else f"TP0: {line}" for line in (*lines, cap)]

    assert named == any("Llama-3.2-3B" in f"{one.says} {one.notes}" for one in said(*rows))


DRAFT_LINES = (
    "TP0: Load weight begin. avail mem=10.00 GB",
    "TP0: Load weight end. type=LlamaForCausalLMEagle, dtype=bf16, avail mem=8.00 GB, mem usage=2.00 GB.",
)
TARGET_LINES = (
    "TP0: Load weight begin. avail mem=80.00 GB",
    "TP0: Load weight end. type=LlamaForCausalLM, dtype=bf16, avail mem=60.00 GB, mem usage=20.00 GB.",
)
POOL_LINES = ("TP0: KV Cache is allocated. #tokens: 1000, K size: 24.00 GB, V size: 24.00 GB",
        "TP0: Memory pool end. avail mem=12.00 GB")  # fmt: skip


def test_a_draft_that_is_loaded_after_the_target_s_pool_takes_nothing_before_it() -> None:
    late = said(*TARGET_LINES, *POOL_LINES, *DRAFT_LINES, mem_fraction_static=0.9)
    first = said(*TARGET_LINES, *DRAFT_LINES, *POOL_LINES, mem_fraction_static=0.9)
    assert "draft_and_recurrent" not in {one.rule for one in late}
    assert "draft_and_recurrent" in {one.rule for one in first}


def test_a_rank_is_named_once_where_a_text_ends_however_many_pools_it_has() -> None:
    assert of("unfinished", said(*TARGET_LINES, *POOL_LINES)).ranks == ("TP0",)
