"""A rank of a log that has less than its peers: a cause where with as much as they have the server would have started.
"""

from __future__ import annotations

import pytest

from sglang_probe.explain.model import Finding
from sglang_probe.figures import GIB
from tests.explain.logs.test_rules import RAISED, of, said

PRE_LOAD, LEFT = 78.2, 36.0
RANKS = tuple(f"TP{rank}" for rank in range(8))
REFUSED = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def start(fraction: float, poor: float, ranks: tuple[str, ...] = RANKS,
          pp: int = 1) -> list[Finding]:
    """Return the findings about a start whose last rank but one has `poor` GiB left after its weights."""
    arguments = f"server_args=ServerArgs(model_path='/m', tp_size=8, pp_size={pp}, mem_fraction_static={fraction})"
    left = {rank: poor if rank == ranks[-2] else LEFT for rank in ranks}
    ended = "Load weight end. type=DeepseekV3ForCausalLM, dtype=bf16, avail mem={:.2f} GB, mem usage={:.2f} GB."
    return said(
        arguments,
        *(f"{rank}: Load weight begin. avail mem={PRE_LOAD:.2f} GB" for rank in ranks),
        *(f"{rank}: {ended.format(size, PRE_LOAD - size)}" for rank, size in left.items()),
        *(RAISED.replace("TP0", rank) + REFUSED for rank in ranks[:1]),
    )


@pytest.mark.parametrize(("fraction", "poor", "leads"), [
    (0.6, 24.0, "rank_spread"),
    (0.5, 24.0, "weights_exceed_budget"),  # the others would not have done either
    (0.5, 36.0, "weights_exceed_budget"),
])  # fmt: skip
def test_a_poor_rank_leads_where_the_others_would_have_started(fraction: float, poor: float, leads: str) -> None:
    found = start(fraction, poor)

    assert found[0].rule == leads
    if leads == "rank_spread":
        would_be = LEFT - PRE_LOAD * (1 - fraction)
        assert f"= {would_be:.2f} GiB" in (found[0].formula or "")
        assert found[0].lever is not None and found[0].lever.gain_bytes == pytest.approx((LEFT - poor) * GIB, abs=2)
        assert "TP6 has 12.00 GiB less than its peers" in of("weights_exceed_budget", found).says
        assert "diagnostically wrong" in of("advice", found).says


def test_pipeline_stages_are_named_only_where_there_are_some() -> None:
    stages = ("TP0 PP0", "TP1 PP0", "TP0 PP1", "TP1 PP1")

    assert "pipeline" not in of("rank_spread", start(0.6, 24.0)).says
    assert of("rank_spread", start(0.6, 24.0, stages, 2)).severity == "error"  # TP0 against TP1, both of PP1
    assert "pipeline" in of("rank_spread", start(0.6, 24.0, ("TP0 PP0", "TP0 PP1", "TP0 PP2"), 3)).says
