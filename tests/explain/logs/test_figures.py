"""Figures of one finding agree, and a node's devices and a release's rule are called what they are."""

from __future__ import annotations

import re

import pytest

from sglang_probe.explain.model import Finding
from tests.explain.logs.test_rules import RAISED, of, said

PRE_LOAD = 138.0
MESSAGE = (
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.02. Raise"
    " --mem-fraction-static above {} (minimum viable = 1 - available/pre = {})."
)


def start(left: float, printed: float | None = None, more: str = "", poor: int | None = None) -> list[Finding]:
    """Return the findings about a start of two ranks whose weights left so much, at a fraction too small."""
    message = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    if printed is not None:
        message = MESSAGE.format(f"{printed:.3f}", f"{printed:.4f}")
    end = "Load weight end. type=X, dtype=bf16, avail mem={:.2f} GB, mem usage={:.2f} GB."
    ranks = range(2 if poor is None else poor + 1)
    sizes = {rank: left * (0.5 if rank == poor else 1) for rank in ranks}
    return said(
        f"server_args=ServerArgs(model_path='/m', tp_size={max(ranks) + 1}, mem_fraction_static=0.02{more})",
        *(f"TP{rank}: Load weight begin. avail mem={PRE_LOAD:.2f} GB" for rank in ranks),
        *(f"TP{rank}: {end.format(size, PRE_LOAD - size)}" for rank, size in sizes.items()),
        RAISED + message,
    )


@pytest.mark.parametrize("left", [133.75, 133.76, 100.01, 55.55])
def test_the_minimum_is_one_figure_in_a_finding(left: float) -> None:
    found = of("weights_exceed_budget", start(left))
    text = " ".join([found.says, found.formula or "", *found.notes])

    figures = set(re.findall(r"(?:at least|fraction = 1 - [\d.]+ / [\d.]+ =|- at|^at) (\d\.\d{4})", text))
    assert len(figures) == 1


def test_the_higher_of_two_minima_is_the_bound() -> None:
    left, printed = 100.0, round(1 - 100.0 / PRE_LOAD, 4) + 0.0004
    found = of("weights_exceed_budget", start(left, printed))

    assert f"at least {printed:.4f}" in found.says
    assert found.lever is not None and found.lever.value >= printed


@pytest.mark.parametrize(("more", "device"), [
    (", nnodes=2", "GPU 3 of node 1 unless"),
    (", nnodes=1", "GPU 7 unless"),
    (", nnodes=2, pp_size=2", "the device of TP7 (nvidia-smi)"),
])  # fmt: skip
def test_a_device_is_counted_on_its_node(more: str, device: str) -> None:
    found = of("rank_spread", start(100.0, more=more, poor=7))

    assert found.lever is not None and device in found.lever.says


@pytest.mark.parametrize(("more", "whose"), [
    (", additional_ports=[1], chunked_prefill_size=8192, cuda_graph_max_bs=8", "SGLang 0.5.9's rule of thumb"),
    (", attn_cp_size=1, enable_return_hidden_states=False, chunked_prefill_size=8192, cuda_graph_max_bs=8",
     "SGLang's own rule of thumb"),
])  # fmt: skip
def test_the_rule_of_thumb_is_that_of_the_releases_that_have_it(more: str, whose: str) -> None:
    found = of("weights_exceed_budget", start(100.0, more=more))

    assert whose in found.says
