"""A process of the run on a device where it does not belong, as a comparison tells it."""

from __future__ import annotations

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Diff
from sglang_probe.explain.diff.strays import strays_of
from sglang_probe.figures import gib
from tests.explain.diff.pairs import EXPERIMENTS, recorded

WITHOUT, WITH = recorded(EXPERIMENTS / "car"), recorded(EXPERIMENTS / "straycontext")
(STRAY,) = strays_of(WITH)


def test_a_run_without_a_stray_process_has_none() -> None:
    assert [] == strays_of(WITHOUT)


def test_the_experiment_and_the_cause_say_whose_process_is_where_it_does_not_belong() -> None:
    found = compare((WITHOUT, WITH))
    said = (
        f"a process of the run ({STRAY.who}, pid {STRAY.pid}) holds {gib(STRAY.bytes)} GiB on {STRAY.device},"
        " where it does not belong"
    )

    assert f"SGLANG_SABOTAGE unset -> stray: {said}; " in found.says[0]
    assert any(cause.says.startswith(f"{said}, which explains") for cause in found.causes)


def test_the_other_way_round_it_is_gone() -> None:
    found = compare((WITH, WITHOUT))

    assert "no process of the run is any more where it does not belong" in found.says[0]
    assert f"({STRAY.who}, pid {STRAY.pid}: {gib(STRAY.bytes)} GiB on {STRAY.device} in the baseline)" in found.says[0]


def test_what_is_free_at_the_end_is_told_of_the_tightest_rank_at_the_top_and_below() -> None:
    found = compare((WITHOUT, WITH))

    assert 2 == len([said for said in found.says if f"free at the end on {found.sides[1].tightest}" in said])
    assert 2 == len([said for said in found.says if _changed(found) in said])


def _changed(found: Diff) -> str:
    (free,) = (
        row
        for rank in found.ranks
        for row in rank.ledger
        if rank.label == found.sides[1].tightest and row.category == "free"
    )
    return f"{gib(free.delta_bytes)} GiB"
