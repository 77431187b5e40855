"""Ranks that are not alike."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sglang_probe.timeline.model import Device, Failure, Process
from tests.explain.explaining import failed, of, rank, ready, rules, tenant
from tests.timeline.building import build_rank, build_step, gib

UNBALANCED = Failure(
    id="e1", type="builtins.RuntimeError", message="The memory capacity is unbalanced. Some GPUs may be occupied"
)


def after(phase: str, *free: float, **more: Any) -> tuple[Process, ...]:
    """Ranks with so many GiB free after a step that cost each of them 1 GiB."""
    return tuple(
        build_rank(position, len(free), (build_step(f"{phase} all", 1, size + 1, size, 1.0),), **more)
        for position, size in enumerate(free)
    )


def test_a_rank_that_has_a_third_of_its_peer_is_found_with_the_gap() -> None:
    """Rebuilt from a report: 13.43 and 39.54 GiB free after the pools."""
    found = of("rank_spread", ready(*after("kv.pool", 39.54, 13.43)))

    assert found.ranks == ("TP1",)
    assert "TP1 has 13.430 GiB free and TP0 39.540: 26.110 GiB less, ratio 0.34" in found.says
    assert "another card, or memory that no list names" in found.says


def test_ranks_within_a_percent_are_no_outliers() -> None:
    assert "rank_spread" not in rules(ready(*after("dist.init", 77.10, 76.63, 76.63)))


def test_a_refused_start_names_the_rule_of_sglang_and_the_tenant_leads() -> None:
    ranks = after("dist.init", 138.28, 107.768)
    ranks = (ranks[0], replace(ranks[1], neighbours=(tenant(30.506),)))
    run = failed(*ranks, phase="dist.init", failure=UNBALANCED)

    assert ["foreign_tenant", "rank_spread"] == rules(run)[:2]
    found = of("rank_spread", run)
    assert found.severity == "warning"  # one cause is enough
    assert "SGLang refuses" in found.says
    assert 107.768 / 138.28 == pytest.approx(found.numbers["ratio"])
    assert "that is the gap" in found.says


def test_a_refused_start_without_a_tenant_still_has_a_cause() -> None:
    run = failed(*after("dist.init", 138.28, 107.768), phase="dist.init", failure=UNBALANCED)

    assert rules(run)[0] == "rank_spread"
    assert of("rank_spread", run).severity == "error"


def test_ranks_on_a_cpu_share_the_host_and_are_not_compared() -> None:
    run = ready(*after("kv.pool", 39.0, 13.0, device=Device(kind="cpu", total_bytes=gib(50))))

    assert "rank_spread" not in rules(run)


def test_mixed_cards_are_named_with_who_is_on_which() -> None:
    cards = [Device(index=n, name=name, kind="cuda", total_bytes=gib(size))
             for n, (name, size) in enumerate((("NVIDIA H100", 79.1), ("NVIDIA H200", 139.8)))]  # fmt: skip
    found = of("mixed_cards", ready(*(rank(n, 2, device=card) for n, card in enumerate(cards))))

    assert "NVIDIA H100 of 79.100 GiB: TP0; NVIDIA H200 of 139.800 GiB: TP1" in found.says
    assert "60.700 GiB of the larger cards serve nothing" in found.says


def test_cards_of_one_kind_are_not_mixed() -> None:
    assert "mixed_cards" not in rules(ready(rank(0), rank(1)))
