"""When a start that is watched is over, and with which exit code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sglang_probe.cli import watch
from sglang_probe.cli.follow import Sight
from sglang_probe.cli.follow_choice import SILENCE_S
from sglang_probe.cli.watch import HERE_S, NOT_KNOWN, REPLICAS_S, SETTLE_S, End, Judge
from sglang_probe.report.watch import survey_of, view_of
from sglang_probe.timeline.model import Missing, Process, Run
from tests.report.starting import at, starting
from tests.timeline.building import PROVENANCE


def with_all(run: Run, *, alive: bool | None, **more: Any) -> Run:
    processes = tuple(msgspec.structs.replace(process, alive=alive) for process in run.processes)
    return msgspec.structs.replace(run, processes=processes, **more)


def up(run: Run, **more: Any) -> Run:
    """A run whose ranks are all ready."""
    processes = tuple(
        msgspec.structs.replace(
            process, steps=tuple(msgspec.structs.replace(one, state="ok", duration_s=1.0) for one in process.steps)
        )
        for process in run.processes
    )
    return msgspec.structs.replace(run, processes=processes, **more)


def judged(run: Run, quiet_s: float = 0.0, judge: Judge | None = None) -> End | None:
    sight = Sight(run, None, at(60.0), quiet_s)
    return (judge or Judge()).end(sight, view_of(survey_of(run), at(60.0)))


def code(end: End | None) -> int | None:
    return None if end is None else end.code


def test_ready_ends_at_once_and_is_no_success_where_the_server_is_gone() -> None:
    run = up(starting(2), outcome="ready")

    assert 0 == code(judged(run))
    assert 0 == code(judged(with_all(run, alive=None)))
    assert 1 == code(judged(with_all(run, alive=False)))


@pytest.mark.parametrize(("gone", "code_of_it"), [("TP1", 1), ("detokenizer", 1), ("launcher", 1), ("other", 0)])
def test_ready_is_no_success_where_a_part_of_the_server_is_gone(gone: str, code_of_it: int) -> None:
    run = up(starting(2), outcome="ready")
    more = [Process(host="node-a", pid=4800 + place, role=role, alive=True)
            for place, role in enumerate(("detokenizer", "other"))]  # fmt: skip
    processes = tuple(
        msgspec.structs.replace(one, alive=(one.label or one.role) != gone) for one in (*run.processes, *more)
    )
    end = judged(msgspec.structs.replace(run, processes=processes))

    assert end is not None
    assert (code_of_it, bool(code_of_it)) == (end.code, f"but {gone} (pid" in end.says)


def test_files_that_were_not_read_are_not_taken_for_ranks_elsewhere() -> None:
    run = up(starting(1, missing=(Missing(world_rank=1, world_size=2, reason=""),)))
    sight = Sight(run, None, at(60.0), HERE_S + 1, unseen="1 file of this run was not read")
    end = Judge().end(sight, view_of(survey_of(run), at(60.0)))

    assert end is not None
    assert end.code == NOT_KNOWN
    assert "the rank that was read is up, but nothing is known of the other: 1 file" in end.says


@pytest.mark.parametrize("outcome", ["failed", "died"])
def test_what_failed_is_told_when_all_is_quiet_and_its_processes_are_gone(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, gone = (with_all(starting(2), alive=alive, outcome=outcome) for alive in (True, False))
    judge = Judge()

    assert None is judged(gone, SETTLE_S / 2)
    assert 1 == code(judged(gone, SETTLE_S * 2))
    assert None is judged(hangs, SETTLE_S * 2, judge)
    monkeypatch.setattr(watch, "AT_MOST_S", -1.0)
    assert 1 == code(judged(hangs, 0.0, judge))


def test_a_log_that_says_ready_is_settled_first() -> None:
    log = up(starting(2, source="log"), outcome="ready")
    log = with_all(log, alive=None)

    assert None is judged(log, SETTLE_S / 2)
    assert 0 == code(judged(log, SETTLE_S * 2))


def test_silence_ends_it_only_where_the_processes_cannot_be_asked() -> None:
    unknown = with_all(starting(2), alive=None, outcome="unknown")
    end = judged(unknown, SILENCE_S + 1)

    assert None is judged(starting(2), SILENCE_S + 1)
    assert None is judged(unknown, SILENCE_S - 1)
    assert end is not None
    assert (NOT_KNOWN, True) == (end.code, "see whether the server still runs" in end.says)


def test_ranks_that_write_elsewhere_are_not_waited_for() -> None:
    missing = tuple(Missing(world_rank=place, world_size=4, reason="") for place in (2, 3))
    here = up(starting(2, missing=missing))
    end = judged(here, HERE_S + 1)

    assert None is judged(here, HERE_S - 1)
    assert None is judged(starting(2, missing=missing), HERE_S + 1)
    assert end is not None
    assert end.code == 0
    assert "READY here: all 2 ranks that were read are up; the 2 others of 4 write elsewhere" == end.says


def test_a_data_parallel_replica_that_has_not_come_is_waited_for_a_while() -> None:
    told = {"dp_size": 2, "tp_size": 2, "pp_size": 1}
    first = up(starting(2), outcome="ready", provenance=msgspec.structs.replace(PROVENANCE, effective=told))
    both = up(starting(4), outcome="ready", provenance=first.provenance)
    within = msgspec.structs.replace(PROVENANCE, effective={**told, "enable_dp_attention": True})

    assert None is judged(first, REPLICAS_S - 1)
    assert [0, 0, 0] == [
        code(judged(run, quiet))
        for run, quiet in (
            (first, REPLICAS_S + 1), (both, 0.0), (msgspec.structs.replace(first, provenance=within), 0.0)
        )
    ]  # fmt: skip
