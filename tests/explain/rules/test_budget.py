"""A budget that left nothing: the shortage, the fractions that work, and what makes room where none does."""

from __future__ import annotations

import pytest

from sglang_probe.explain.reserve import SINCE
from sglang_probe.explain.scaling import MIB
from sglang_probe.timeline.model import Provenance, Worker
from tests.explain.explaining import ARGUMENTS, failed, findings, of, rank, ready, rules
from tests.timeline.building import gib

CHUNK, BATCH, RANKS = (int(str(ARGUMENTS[name])) for name in ("chunked_prefill_size", "cuda_graph_max_bs", "tp_size"))
THUMB = int((512 + CHUNK * 1.5 + BATCH * 2 + RANKS / 8 * 1024) * MIB)
"""SGLang's own reserve with `ARGUMENTS`."""


def test_the_story_says_short_by_how_much_and_between_which_fractions() -> None:
    run = failed(rank(0, pre_load=94.04, available=21.738), rank(1, pre_load=93.999, available=21.697))
    found = of("weights_exceed_budget", run)

    assert rules(run)[0] == "weights_exceed_budget"
    assert "short by 20.603 GiB on both ranks (the least is on TP1)" in found.says
    assert found.formula == (
        "rest = 21.697 - 93.999 x (1 - 0.550) = -20.603 GiB; minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692"
    )
    assert 1 - 21.697 / 93.999 == pytest.approx(found.numbers["lowest_fraction"], abs=1e-9)
    assert 1 - THUMB / gib(93.999) == pytest.approx(found.numbers["highest_fraction"], abs=1e-9)
    assert "raise --mem-fraction-static" in found.says


@pytest.mark.parametrize(("release", "whose"), [
    ("0.4.6.post5", f"SGLang {SINCE}'s rule"), (SINCE, "SGLang's own rule"), (None, "SGLang's own rule"),
])  # fmt: skip
def test_the_rule_of_thumb_is_not_called_the_own_one_of_a_release_that_is_older(
    release: str | None, whose: str
) -> None:
    found = of("weights_exceed_budget", failed(
        rank(0, 1), provenance=Provenance(effective=ARGUMENTS, sglang_version=release)))  # fmt: skip

    assert any(note.startswith(f"upper bound: {whose} of thumb sets") for note in found.notes)


def test_the_fraction_it_names_starts_the_server_and_nothing_else_is_offered() -> None:
    found = of("weights_exceed_budget", failed(rank(0, 1)))

    assert found.lever is not None
    assert found.lever.flag == "--mem-fraction-static"
    assert found.numbers["lowest_fraction"] < found.lever.value < found.numbers["highest_fraction"]
    assert found.lever.enough is True
    assert found.levers == ()


def test_where_no_fraction_works_it_says_empty_by_how_much_and_lists_levers_with_gains() -> None:
    run = failed(rank(0, 1, pre_load=94.0, available=5.0, weights=89.0))
    found = of("weights_exceed_budget", run)

    empty = THUMB - gib(5.0)
    assert empty == pytest.approx(found.numbers["empty_by_bytes"], abs=8)
    assert f"empty by {empty / (1 << 30):.3f} GiB" in found.says
    levers = [found.lever, *found.levers]
    by_flag = {lever.flag: lever for lever in levers if lever is not None}
    assert gib(89.0) // 2 == by_flag["--tp"].gain_bytes == by_flag["--quantization"].gain_bytes
    assert by_flag["--tp"].enough is True
    assert 4096 * 3 // 2 * MIB == by_flag["--chunked-prefill-size"].gain_bytes
    assert by_flag["--chunked-prefill-size"].enough is (4096 * 3 // 2 * MIB > empty)
    assert by_flag["--kv-cache-dtype"].gain_bytes == 0
    assert found.levers[-1] is by_flag["--mem-fraction-static"]  # it starts, with less than SGLang would set aside
    assert found.numbers["lowest_fraction"] < found.levers[-1].value
    assert found.levers[-1].enough is None
    assert found.confidence == "likely"
    assert all(lever.basis in {"measured", "scaled", "assumed"} for lever in levers if lever is not None)


def test_weights_beyond_the_device_leave_no_fraction_at_all() -> None:
    found = of("weights_exceed_budget", failed(rank(0, 1, pre_load=94.0, available=0.0, weights=94.0)))

    assert found.numbers["lowest_fraction"] >= 1
    assert "No fraction helps" in found.says


def test_wanted_tokens_raise_the_lowest_fraction_by_their_bytes() -> None:
    run = failed(rank(0, 1))
    without, wanted = (of("weights_exceed_budget", run, tokens=tokens).numbers for tokens in (0, 50_000))

    assert 50_000 * 70272 / gib(94.0) == pytest.approx(wanted["lowest_fraction"] - without["lowest_fraction"], abs=1e-9)


def test_sglang_s_own_minimum_is_named_beside_ours() -> None:
    run = failed(rank(0, 1, pre_load=137.9, available=12.25, weights=125.65, fraction=0.88,
                      budget={"minimum_viable_fraction_printed": 0.9113}))  # fmt: skip
    found = of("weights_exceed_budget", run)

    assert "short by 4.298 GiB" in found.says  # 125.65 - 137.9 x 0.88
    assert 1 - 12.25 / 137.9 == pytest.approx(found.numbers["minimum_viable_fraction"], abs=1e-9)
    assert any("names 0.9113" in note and "it is 0.9112" in note for note in found.notes)


def test_a_draft_without_which_it_would_have_started_is_a_cause_too() -> None:
    short = rank(0, 1, available=40.0, fraction=0.55, weights=54.0)
    drafted = rank(0, 1, available=40.0, fraction=0.55, weights=54.0,
                   workers=(*short.workers, Worker(worker="draft", draft_index=0, weights_bytes=gib(4.0))))  # fmt: skip
    found = of("draft_and_recurrent", failed(drafted))

    assert found.severity == "error"
    assert "Without them this server would have started" in found.says
    assert found.lever is not None
    assert gib(4.0) == pytest.approx(found.lever.gain_bytes, abs=2)


def test_deductions_too_small_to_matter_are_said_not_to_be_the_cause() -> None:
    found = of("draft_and_recurrent", failed(rank(0, 1, budget={"deductions": {"mamba": gib(1.0)}})))

    assert found.severity == "info"
    assert "They are not the cause" in found.says


def test_without_sglang_s_arguments_the_upper_bound_is_unknown_and_said_so() -> None:
    run = failed(rank(0, 1), provenance=Provenance())
    found = of("weights_exceed_budget", run)

    assert found.numbers["highest_fraction"] is None
    assert any("the upper bound is not known" in note for note in found.notes)


def test_a_ready_run_has_no_budget_finding() -> None:
    assert [one for one in findings(ready(rank(0, 1, available=80.0, weights=14.0))) if one.severity == "error"] == []
