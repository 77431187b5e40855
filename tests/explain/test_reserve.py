"""SGLang's default fraction: replayed only where it gives the run's own."""

from __future__ import annotations

import pytest

from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.reserve import (
    VARIANTS,
    Knobs,
    activations_mib,
    default_fraction,
    reserve_mib,
    variant_of,
)
from tests.explain.plan.making import CAR, recorded, value

H200 = Knobs(card_mib=143771, prefill_tokens=8192, max_bs=8, tp=2)
PLAIN = VARIANTS[0]


def test_the_recorded_fraction_in_force_is_the_rules() -> None:
    facts = facts_of(recorded(CAR))

    assert H200 == facts.knobs
    assert 13072 == reserve_mib(H200, PLAIN)
    assert facts.fraction == default_fraction(H200, PLAIN)
    assert facts.variant is not None


def test_a_large_card_reserves_ten_gib_at_least() -> None:
    small = H200._replace(prefill_tokens=2048, tp=1)

    assert 10 * 1024 == reserve_mib(small, PLAIN)
    assert 10 * 1024 > reserve_mib(small._replace(card_mib=60 * 1024), PLAIN)


@pytest.mark.parametrize(("algorithm", "mib"), [("EAGLE", 2048), ("STANDALONE", 6144), ("NGRAM", 0)])
def test_up_to_059_a_draft_reserves_more(algorithm: str, mib: int) -> None:
    with_draft = H200._replace(speculative=algorithm)

    assert mib == reserve_mib(with_draft, VARIANTS[0]) - reserve_mib(H200, VARIANTS[0])
    assert 0 == reserve_mib(with_draft, VARIANTS[1]) - reserve_mib(H200, VARIANTS[1])


def test_dp_attention_reserves_by_its_largest_batch() -> None:
    dp = H200._replace(dp=4, dp_attention=True)

    assert 8 * 4 * 3 == reserve_mib(dp, PLAIN) - reserve_mib(H200, PLAIN)
    large = dp._replace(max_bs=512)
    assert 512 * 4 * 4.5 == reserve_mib(large, PLAIN) - reserve_mib(large._replace(dp_attention=False), PLAIN)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_fraction_that_a_variant_gives_is_found(variant: object) -> None:
    told = H200._replace(prefill_graphs=50, speculative="EAGLE")
    found = [default_fraction(told, one) for one in VARIANTS if one == variant]

    assert variant_of(told, found[0]) is not None
    assert found[0] == default_fraction(told, variant_of(told, found[0]) or PLAIN)


def test_a_fraction_that_no_variant_gives_is_nobodys() -> None:
    assert variant_of(H200, 0.5) is None


def test_the_default_is_replayed_with_what_it_hangs_on() -> None:
    made = plan(recorded(CAR), Inputs(chunked_prefill_size=16384, cuda_graph_max_bs=160))

    assert value(made, "mem_fraction_static") == default_fraction(
        H200._replace(prefill_tokens=16384, max_bs=160), PLAIN
    )
    assert activations_mib(16384) * (1 << 20) == value(made, "activations_bytes")


def test_a_fraction_that_was_given_stays_whatever_is_changed() -> None:
    oom = recorded("h200-x2-sglang-0.5.14-failures/oom-capture")

    assert facts_of(oom).fraction == value(plan(oom, Inputs(cuda_graph_max_bs=8)), "mem_fraction_static")
