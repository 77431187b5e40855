"""How a process ended whose file is cut off in a line."""

from __future__ import annotations

import msgspec
import pytest

from sglang_probe.report.fold import alone
from sglang_probe.report.layout import page
from sglang_probe.report.rank import rank_block
from sglang_probe.timeline.model import State
from tests.timeline.building import build_rank, build_step

REASON = "TP1 was the first to report an error; not knowable here: it ran on another host"
CUT_OFF = "the last line of this process's file is cut off there"


def ending(state: State, *, torn: bool, alive: bool | None = None) -> str:
    step = build_step("weights.load", 0, 94.0, None, None, state=state)
    step = msgspec.structs.replace(step, state_reason=REASON)
    process = msgspec.structs.replace(build_rank(0, 1, (step,)), torn_tail=torn, alive=alive)
    return " ".join(page([rank_block(alone(process), 80)], colour=False).split())


@pytest.mark.parametrize("state", ["interrupted", "open"])
def test_a_cut_off_file_is_the_reason_why_nothing_follows(state: State) -> None:
    told = ending(state, torn=True)

    assert f"{state} in weights.load: {CUT_OFF}" in told
    assert REASON not in told


def test_a_process_that_is_known_to_have_died_has_its_reason_and_the_cut_off_file() -> None:
    told = ending("died", torn=True)

    assert f"died in weights.load: {REASON}; the last line of its file is cut off" in told


@pytest.mark.parametrize(("torn", "alive"), [(False, None), (True, True)])
def test_a_whole_file_and_one_that_is_being_written_have_their_own_reason(torn: bool, alive: bool | None) -> None:
    told = ending("interrupted", torn=torn, alive=alive)

    assert REASON in told
    assert "cut off" not in told
