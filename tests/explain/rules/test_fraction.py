"""The fraction in force is not the one given: told where it is so, and from a result where nobody says."""

from __future__ import annotations

import pytest

from sglang_probe.timeline.model import Provenance
from tests.explain.explaining import ARGUMENTS, failed, findings, of, rank, ready, rules
from tests.timeline.building import gib

TOKEN = 70272


def test_a_negative_result_contradicts_a_fraction_whose_terms_leave_something() -> None:
    """Rebuilt from a report: 21.73 GiB left of 188.32, a fraction of 0.95 given, and -561981 tokens."""
    said = {"result": -561_981, "result_unit": "tokens", "verified": False, "mem_fraction_static_given": 0.95}
    run = failed(rank(0, 1, pre_load=188.32, available=21.73, fraction=0.95, weights=166.59, budget=said))

    found = of("fraction_in_force", run)

    implied = 1 - (21.73 + 561_981 * TOKEN / (1 << 30)) / 188.32
    assert implied == pytest.approx(found.numbers["implied_fraction"], abs=1e-6)
    assert "0.6893" in found.says
    assert "With 0.950 the budget would be 12.314 GiB" in found.says
    assert "minimum viable fraction = 1 - 21.730 / 188.320 = 0.8846" in (found.formula or "")
    assert found.severity == "error"
    assert rules(run)[0] == "fraction_in_force"
    assert not any("0.950 is in force" in one.says or "0.95 in force" in one.says for one in findings(run))


@pytest.mark.parametrize(("ratio", "reason"), [(0.95, "multimodal"), (0.9, "multimodal"), (0.85, "AITER")])
def test_a_known_reduction_is_named(ratio: float, reason: str) -> None:
    run = failed(rank(0, 1, fraction=0.8 * ratio, budget={"mem_fraction_static_given": 0.8}))

    found = of("fraction_in_force", run)

    assert reason in found.says
    assert 0.8 * ratio == pytest.approx(found.numbers["mem_fraction_static"])
    assert 0.8 == found.numbers["mem_fraction_static_given"]


def test_what_the_given_fraction_would_have_left_is_said() -> None:
    run = failed(rank(0, 1, fraction=0.7, budget={"mem_fraction_static_given": 0.8}))

    rest = 21.7 - 94.0 * (1 - 0.8)
    assert f"With 0.800 the rest would have been {rest:.3f} GiB" in of("fraction_in_force", run).says


def test_a_fraction_that_sglang_resolved_to_another_is_found_without_a_flag() -> None:
    effective = {**ARGUMENTS, "mem_fraction_static": 0.8, "speculative_algorithm": "EAGLE"}
    run = failed(rank(0, 1, fraction=0.72), provenance=Provenance(given={}, effective=effective))

    found = of("fraction_in_force", run)

    assert "in SGLang's resolved arguments" in found.says
    assert "Speculative decoding is on" in found.says


def test_a_fraction_that_nobody_gave_is_said_to_be_chosen_by_the_starter() -> None:
    run = ready(rank(0, 1, available=80.0, weights=14.0, fraction=0.909))

    assert "--mem-fraction-static was not given: 0.909" in of("fraction_in_force", run).says


def test_a_fraction_as_given_is_no_finding() -> None:
    run = failed(rank(0, 1, budget={"mem_fraction_static_given": 0.55}))

    assert "fraction_in_force" not in rules(run)


def test_a_verified_budget_implies_nothing() -> None:
    rest = round(gib(21.7) - gib(94.0) * (1 - 0.55))
    run = failed(rank(0, 1, budget={"mem_fraction_static_given": 0.55, "result": rest + (1 << 30), "verified": True}))

    assert "fraction_in_force" not in rules(run)
