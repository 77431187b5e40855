"""What the comparison says of the recorded runs of two H200s."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sglang_probe.explain.diff.compare import NOTHING_COUNTS, compare
from sglang_probe.explain.diff.model import Diff, Row
from sglang_probe.figures import GIB, gib, number
from sglang_probe.timeline.model import Device, Run
from tests.explain.diff.pairs import FIRST, SECOND, recorded


def diff(first: Path, second: Path) -> Diff:
    return compare((recorded(first), recorded(second)))


def real(found: Diff) -> list[Row]:
    return [row for row in found.provenance if row.differs and row.counts]


def test_the_controlled_experiment_is_stated_in_one_line() -> None:
    there, back = diff(FIRST / "nocar", FIRST / "car"), diff(FIRST / "car", FIRST / "nocar")

    assert there.says[0].startswith("custom all-reduce on: +0.033 GiB, -989 tokens")
    assert back.says[0].startswith("custom all-reduce off: -0.033 GiB, +989 tokens")
    assert "custom all-reduce on: +0.033 GiB, -989 tokens" in back.says[0]


def test_the_experiments_numbers_are_those_of_the_two_runs() -> None:
    found = diff(FIRST / "nocar", FIRST / "car")
    assert found.experiment is not None

    before, after = found.sides
    assert before.tokens is not None and after.tokens is not None
    assert after.tokens - before.tokens == found.experiment.delta_tokens
    way = recorded(FIRST / "car").processes[1].pre_load
    assert way is not None
    assert way.custom_allreduce_bytes == found.experiment.category_delta_bytes
    assert ("arguments given", "--disable-custom-all-reduce") == (found.experiment.group, found.experiment.key)


def test_a_lower_fraction_explains_a_failed_budget_with_its_arithmetic() -> None:
    found = diff(FIRST / "car", FIRST / "lowfrac")
    before, after = found.sides
    (cause,) = found.causes
    assert after.available_bytes is not None and after.pre_load_bytes is not None
    assert before.mem_fraction_static is not None

    alone = after.available_bytes - after.pre_load_bytes * (1 - before.mem_fraction_static)
    assert ("fraction", True) == (cause.part, cause.explains)
    assert f"x (1 - {before.mem_fraction_static}) = {gib(round(alone))} GiB" in cause.says
    assert ("arguments given: --mem-fraction-static",) == cause.differences


def test_left_over_schedulers_explain_the_tokens_that_are_gone() -> None:
    found = diff(SECOND / "car", SECOND / "leftover")
    (cause,) = found.causes
    before, after = found.sides

    assert "the left-over pid 6832/6833, 127.574 GiB, explains" in cause.says
    assert f"{number(before.tokens)} -> {number(after.tokens)} tokens" in cause.says
    assert ("others", True) == (cause.part, cause.explains)
    assert found.experiment is None


def test_two_starts_of_one_server_differ_in_nothing_that_counts() -> None:
    found = diff(FIRST / "car", SECOND / "car")

    assert (NOTHING_COUNTS,) == found.says
    assert [] == real(found)
    assert () == found.ranks


@pytest.mark.parametrize("run", ["tenant", "oom-weights"])
def test_a_tenant_explains_a_failure_that_is_not_of_the_budget(run: str) -> None:
    found = diff(SECOND / "car", SECOND / run)
    leading = found.causes[0]

    assert ("phase", True) == (leading.part, leading.explains)
    assert {"tenants"} == {row.group for row in real(found)}
    assert leading.says.endswith("explains it")


def test_a_killed_rank_has_no_recorded_cause() -> None:
    found = diff(SECOND / "car", SECOND / "sigkill")
    (cause,) = found.causes

    assert cause.explains is False
    assert "dies there on TP1" in cause.says
    assert "was not recorded" in cause.says


def test_the_only_recorded_difference_is_named_and_not_sold_as_proof() -> None:
    found = diff(SECOND / "car", SECOND / "poisoned")
    (cause,) = found.causes

    assert cause.explains is None
    assert "the only recorded difference that counts: SGLANG_SABOTAGE unset -> poison" in cause.says


def test_what_the_kv_cache_took_is_said_of_an_out_of_memory_in_the_graphs() -> None:
    found = diff(SECOND / "car", SECOND / "oom-capture")

    assert "its KV pool is" in found.causes[0].says
    assert {"arguments given: --cuda-graph-max-bs", "arguments given: --mem-fraction-static"} <= set(
        found.causes[0].differences
    )


def on_cpu(run: Run) -> Run:
    """Return a run as if its memory were the host's."""
    host = Device(index=0, kind="cpu", total_bytes=64 * GIB)
    return msgspec.structs.replace(
        run, processes=tuple(msgspec.structs.replace(one, device=host, pre_load=None) for one in run.processes)
    )


def test_on_a_cpu_no_memory_is_compared_and_one_note_says_so() -> None:
    found = compare((on_cpu(recorded(FIRST / "nocar")), on_cpu(recorded(FIRST / "car"))))

    assert not any(rank.ledger for rank in found.ranks)
    assert not any(row.delta_bytes for rank in found.ranks for row in rank.steps)
    assert found.arithmetic is None
    assert found.experiment is not None and found.experiment.delta_tokens is None
    assert 1 == sum("on a CPU" in note for note in found.notes)


def test_ranks_that_are_missing_on_a_side_are_said_and_not_compared() -> None:
    whole = recorded(FIRST / "car")
    cut = msgspec.structs.replace(whole, processes=tuple(one for one in whole.processes if one.label != "TP1"))
    found = compare((whole, cut))

    assert any("TP1 of baseline" in note for note in found.notes)


def test_memory_is_told_apart_to_the_gib() -> None:
    found = diff(SECOND / "car", SECOND / "leftover")
    (tp0, _) = found.ranks

    foreign = next(row for row in tp0.ledger if row.category == "foreign")
    assert foreign.delta_bytes is not None
    assert 127 < foreign.delta_bytes / GIB < 128
