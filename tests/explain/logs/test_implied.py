"""The pre-load memory and the fraction that tokens mean: what a start made of them is found again, to its precision."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sglang_probe.catalogue.default_fraction import defaults
from sglang_probe.catalogue.models import SHAPES
from sglang_probe.collect.logs.read import read_log
from sglang_probe.explain.implied import looks_given
from sglang_probe.explain.model import Finding
from sglang_probe.figures import GIB
from sglang_probe.timeline.logs import run_of
from tests.explain.explaining import findings

RANKS = 8
(SHAPE,) = [one for one in SHAPES["Qwen2ForCausalLM"] if one.model == "Qwen2-72B"]
TOKEN = SHAPE.bytes_per_token(RANKS, 2)
WEIGHTS = SHAPE.billions * 2e9 / RANKS / GIB
POOLS = 1.01
"""What all pools take, of what the keys and values do."""


def start(pre_load: float, communicator: float, fraction: float, **assumed: Any) -> tuple[list[Finding], int]:
    """Return the findings about a start of 0.3.0 with so many GiB free before its communicator; and its tokens."""
    before = pre_load - communicator
    after = before - WEIGHTS
    tokens = int((after - pre_load * (1 - fraction)) * GIB // TOKEN)
    left = after - tokens * TOKEN * POOLS / GIB
    said = [
        (f"Load weight begin. avail mem={before:.2f} GB"),
        (f"Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem={after:.2f} GB"),
        (f"Memory pool end. avail mem={left:.2f} GB"),
        (f"max_total_num_tokens={tokens}, max_prefill_tokens=16384, max_running_requests=9, context_len=32768"),
    ]
    lines = [f"[2030-01-01 00:00:{at:02d} TP{rank}] {line}" for at, line in enumerate(said) for rank in range(RANKS)]
    (log,) = read_log(io.BytesIO("\n".join(lines).encode()), "serve.log")
    return findings(run_of(log, assumed)), tokens


def of(rule: str, found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.rule == rule]


STARTS = {
    "pre_load": st.floats(70.0, 78.5),
    "communicator": st.floats(0.0, 2.0),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**STARTS, fraction=st.floats(0.5, 0.95))
def test_the_pre_load_memory_that_made_the_tokens_is_found_within_its_precision(
    pre_load: float, communicator: float, fraction: float
) -> None:
    found, tokens = start(pre_load, communicator, fraction, mem_fraction_static=fraction)
    assume(tokens > 0 and not looks_given(tokens))
    said = of("implied_pre_load", found)

    for one in said:
        assert abs(one.numbers["pre_load_bytes"] - pre_load * GIB) <= one.numbers["precision_bytes"]
        assert TOKEN == one.numbers["bytes_per_token"]
    # Nothing is said where the printed one gives the tokens: each figure is good to 0.005, by 1 / (1 - fraction).
    assert said or communicator <= 0.02 + (0.02 + TOKEN / GIB) / (1 - fraction)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**STARTS, fraction=st.floats(0.5, 0.95), other=st.floats(0.5, 0.98))
def test_an_implied_pre_load_memory_that_cannot_be_is_neither_stated_nor_used(
    pre_load: float, communicator: float, fraction: float, other: float
) -> None:
    found, tokens = start(pre_load, communicator, fraction, mem_fraction_static=other)
    assume(tokens > 0 and not looks_given(tokens))
    printed = pre_load - communicator

    for one in of("implied_pre_load", found):
        means = one.numbers.get("pre_load_bytes")
        if means is None:
            assert one.confidence == "possible" and "another fraction was in force" in one.says
            assert abs(one.numbers["implied_fraction"] - fraction) <= communicator / printed + 0.001
        else:
            off = one.numbers["precision_bytes"] + 0.02 * GIB
            assert (printed - 0.5) * GIB - off <= means <= (printed + 2.5) * GIB + off


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**STARTS, fraction=st.sampled_from(defaults(RANKS)))
def test_a_default_that_is_assumed_is_the_one_that_was_in_force(
    pre_load: float, communicator: float, fraction: float
) -> None:
    found, tokens = start(pre_load, communicator, fraction)
    assume(tokens > 0 and not looks_given(tokens))
    said = of("implied_pre_load", found)
    assume(said)
    (one,) = said

    named = one.numbers.get("mem_fraction_static")
    assert named in {None, fraction}
    assert "possible" == one.confidence
    if named == fraction:
        assert abs(one.numbers["pre_load_bytes"] - pre_load * GIB) <= one.numbers["precision_bytes"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pre_load=STARTS["pre_load"], fraction=st.floats(0.05, 0.2))
def test_tokens_that_are_negative_mean_no_pre_load_memory(pre_load: float, fraction: float) -> None:
    found, tokens = start(pre_load, 0.0, fraction)

    assert tokens < 0
    assert of("implied_pre_load", found) == []


@pytest.mark.parametrize(
    ("tokens", "expected"), [(16384, True), (131072, True), (1218251, False), (0, False), (-1024, False)]
)
def test_a_person_s_number_is_a_multiple_of_1024(tokens: int, expected: bool) -> None:
    assert expected == looks_given(tokens)
