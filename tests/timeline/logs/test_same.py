"""Whether a log and events are of one run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.moments import QUARTER_S
from sglang_probe.timeline.logs.same import Match, match
from tests.timeline.logs.pairs import (
    CAR,
    FIRST,
    LOGS,
    Change,
    changed,
    events_of,
    later,
    log_of,
    name_of,
    replaced,
    undated,
    without_arguments,
)

DAY = 86400
OTHER_SEED = replaced("random_seed=", "random_seed=1")


def of_car(folder: Path, *changes: Change) -> Match:
    return match(log_of(changed(folder, CAR, *changes)), events_of(CAR))


def says(found: Match, kind: str) -> str:
    return next(one.says for one in found.evidence if one.kind == kind)


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_of_all_recorded_events_a_log_is_of_its_own_alone(path: Path) -> None:
    fitting = [name_of(other) for other in LOGS if match(log_of(path), events_of(other)).verdict == "same"]

    assert [name_of(path)] == fitting


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_time_alone_tells_recorded_runs_apart_where_it_has_several_moments(path: Path) -> None:
    for other in LOGS:
        found = match(log_of(path), events_of(other))
        several = says(found, "time") != "nothing" and not found.evidence[1].why.startswith("1 moment")
        if path == other or several:
            assert ("for" if path == other else "against") == says(found, "time")


@pytest.mark.parametrize("quarters", [-56, -22, -1, 1, 4, 23, 56])
def test_a_clock_of_another_zone_is_the_same_run_and_its_offset_is_told(quarters: int, tmp_path: Path) -> None:
    found = of_car(tmp_path, later(quarters * QUARTER_S))

    assert ("same", quarters * QUARTER_S) == (found.verdict, found.offset_s)


@pytest.mark.parametrize("seconds", [5, -60, 7 * 60, DAY, -DAY, 57 * QUARTER_S])
def test_a_clock_of_no_zone_is_another_run_and_the_reason_is_how_far_off_it_is(seconds: int, tmp_path: Path) -> None:
    found = of_car(tmp_path, later(seconds))

    assert "not the same" == found.verdict
    assert any("no zone puts the log's times beside the events'" in why for why in found.reasons)


def test_yesterdays_directory_is_not_todays_log_though_the_figures_are_the_same(tmp_path: Path) -> None:
    found = of_car(tmp_path, later(DAY), OTHER_SEED)

    assert "for" == says(found, "figures")
    assert "not the same" == found.verdict
    assert "24.0 h after its event" in " ".join(found.reasons)


def test_a_seed_drawn_anew_is_another_start_at_the_same_time_of_day(tmp_path: Path) -> None:
    found = of_car(tmp_path, undated, OTHER_SEED)

    assert ("not the same", "for") == (found.verdict, says(found, "time"))
    assert any("random_seed" in why for why in found.reasons)


def test_times_without_a_date_and_figures_are_enough(tmp_path: Path) -> None:
    assert "same" == of_car(tmp_path, undated, without_arguments).verdict


@pytest.mark.parametrize(("with_arguments", "verdict"), [(True, "same"), (False, "cannot be told")])
def test_without_any_time_the_drawn_seed_and_the_figures_tell_and_figures_alone_do_not(
    with_arguments: bool, verdict: str
) -> None:
    whole = log_of(CAR)
    facts = [
        Fact(kind=one.kind, entry=msgspec.structs.replace(one.entry, stamp=None, ts=None), values=one.values)
        for one in whole.facts
        if with_arguments or one.kind != "server_args"
    ]
    found = match(msgspec.structs.replace(whole, facts=tuple(facts)), events_of(CAR))

    assert ("nothing", "for") == (says(found, "time"), says(found, "figures"))
    assert verdict == found.verdict


def test_another_size_of_the_world_is_another_run() -> None:
    found = match(log_of(CAR), events_of(FIRST.parent / "h200-x2-sglang-0.5.14-experiments" / "tp1.log"))

    assert "against" == says(found, "ranks")
    assert any("TP1 cannot be a rank of this run" in why for why in found.reasons)


@pytest.mark.parametrize(
    ("figures", "verdict"), [(["138.28"], "same"), (["138.28", "134.03", "12.37", "12.28", "60.72"], "not the same")]
)
def test_a_few_figures_of_others_are_no_reason_to_part_and_most_of_them_are(
    figures: list[str], verdict: str, tmp_path: Path
) -> None:
    changes = [replaced(f"{old} GB", f"{float(old) + 1:.2f} GB") for old in figures]
    counts = [replaced("3979547", "3979548"), replaced("=12.22", "=13.22")] if len(figures) > 1 else []

    assert verdict == of_car(tmp_path, *changes, *counts).verdict
