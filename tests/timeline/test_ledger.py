"""The ledger: which row takes what, and that the rows sum to the total whatever was read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from sglang_probe.timeline.ledger_others import INITIAL_NAMESPACE
from tests.collect.building import Raised
from tests.timeline.cards import MIB, Card, Change, as_read, card, last, mib, process_of, rows, without
from tests.timeline.making import gone, step

SET_UP = {"driver_reserved": 10, "cuda_context": 50, "unexplained": 3}

ROLES: list[tuple[str, dict[str, Any], str, str]] = [
    ("dist.communicator", {"group": "tp:0"}, "communicator", "communicator"),
    ("allreduce.buffers", {"class": "CustomAllreduce"}, "custom_allreduce", "custom_allreduce"),
    ("weights.load", {}, "weights_target", "other_process"),
    ("weights.load", {"part": "lora"}, "lora", "other_process"),
    ("kv.pool", {"pool": "all"}, "kv_pool", "other_process"),
    ("kv.pool", {"pool": "mamba"}, "kv_pool", "other_process"),
    ("kv.pool", {"pool": "request"}, "request_pool", "other_process"),
    ("kv.profile", {}, "other_process", "other_process"),
    ("attention.init", {}, "attention_workspace", "other_process"),
    ("graph.capture", {"graph": "decode"}, "graphs", "graphs"),
]


def ready(**known: Any) -> Card:
    """Return a rank that has a context, whose process list has been read."""
    rank = card(**known)
    rank.set_up()
    with rank.step("kv.profile"):
        pass
    return rank


@pytest.mark.parametrize(("role", "said", "torch_row", "rest_row"), ROLES)
def test_torch_memory_and_the_rest_go_to_the_rows_of_the_innermost_role(
    role: str, said: dict[str, Any], torch_row: str, rest_row: str
) -> None:
    rank = ready()
    with rank.step(role, **said):
        rank.take(torch=32, raw=8)

    expected: dict[str, float] = {torch_row: 32}
    expected[rest_row] = expected.get(rest_row, 0) + 8
    assert SET_UP | expected | {"free": 1000 - 10 - 3 - 50 - 40} == mib(last(rank))


def test_the_weights_of_a_draft_have_a_row_of_their_own() -> None:
    rank = ready()
    rank.worker, rank.draft_index = "draft", 0
    with rank.step("weights.load"):
        rank.take(torch=16)

    assert (16 * MIB, 0) == (rows(last(rank))["weights_draft"], rows(last(rank))["weights_target"])


def test_what_torch_keeps_is_its_cache_and_no_roles() -> None:
    rank = ready()
    with rank.step("weights.load"):
        rank.take(torch=30, reserved=40)

    assert SET_UP | {"weights_target": 30, "torch_cached": 10, "free": 1000 - 10 - 3 - 50 - 40} == mib(last(rank))


def test_what_happens_between_the_roles_is_the_rest_of_the_process() -> None:
    rank = card()
    with rank.step("scheduler.init"):
        rank.set_up()
        rank.take(torch=5, raw=2)
        with rank.step("weights.load"):
            rank.take(torch=20)
        rank.take(torch=1)

    assert 8 * MIB == rows(step(process_of(rank), "scheduler.init"))["other_process"]
    assert 7 * MIB == rows(step(process_of(rank), "weights.load"))["other_process"]


def test_a_pool_that_only_says_its_size_takes_what_was_taken_until_then() -> None:
    rank = ready()
    with rank.step("kv.pool", pool="all"):
        rank.take(torch=20)
        rank.sample("kv.pool", pool="request", bytes=20 * MIB)
        rank.take(torch=30)
        rank.sample("kv.pool", pool="MHA", bytes=30 * MIB)

    assert (20 * MIB, 30 * MIB) == (rows(last(rank))["request_pool"], rows(last(rank))["kv_pool"])


@pytest.mark.parametrize("said", [{"disabled": True, "asked_bytes": 20 * MIB}, {"asked_bytes": None}])
def test_a_sample_of_what_was_not_built_takes_nothing(said: dict[str, Any]) -> None:
    rank = ready()
    with rank.step("dist.communicator", group="tp:0"):
        rank.take(raw=20)
        rank.sample("allreduce.buffers", **said)

    assert (20 * MIB, 0) == (rows(last(rank))["communicator"], rows(last(rank))["custom_allreduce"])


def test_memory_that_is_given_back_comes_off_the_row_of_who_gave_it() -> None:
    rank = ready()
    with rank.step("kv.pool", pool="all"):
        rank.take(torch=20)
    with rank.step("graph.capture"):
        rank.take(torch=-20)

    assert (20 * MIB, -20 * MIB) == (rows(last(rank))["kv_pool"], rows(last(rank))["graphs"])


def test_before_there_is_a_context_nothing_is_this_processs() -> None:
    rank = card(others=[{"pid": 9, "bytes": 100}])
    rank.start(pid_namespace=INITIAL_NAMESPACE)
    with rank.step("dist.init"):
        pass

    assert {"driver_reserved": 10, "foreign": 100, "free": 887, "unexplained": 3} == mib(last(rank))
    assert ("nvml_total_bytes", "after") == (last(rank).ledger_total_source, last(rank).ledger_as_of)


def test_a_context_that_comes_with_work_of_a_role_cannot_be_told_from_it() -> None:
    rank = card()
    rank.worker = "target"
    with rank.step("dist.init"):
        rank.context = 50
        rank.take(raw=100)

    step = last(rank)
    assert (None, None) == (rows(step)["cuda_context"], rows(step)["communicator"])
    assert (153 * MIB, "not_apart") == (rows(step)["unexplained"], step.ledger_reasons["cuda_context"])


def test_without_a_reading_before_it_a_context_is_what_nvml_says_of_a_process_alone_on_the_card() -> None:
    rank = card(context=50, raw=0, listed_less=6)
    rank.worker = "target"
    with rank.step("weights.load"):
        rank.take(torch=20)

    assert {"driver_reserved": 10, "cuda_context": 44, "weights_target": 20, "free": 917, "unexplained": 9} == mib(
        last(rank)
    )


def test_what_torch_had_reserved_by_then_is_no_part_of_such_a_context() -> None:
    rank = card(context=50, allocated=8, reserved=16)
    with rank.step("weights.load"):
        pass

    found = rows(last(rank))
    assert (50 * MIB, 8 * MIB, 8 * MIB) == (found["cuda_context"], found["other_process"], found["torch_cached"])


def test_without_a_reading_before_it_a_context_beside_others_is_unknown() -> None:
    rank = card(context=50, others=[{"pid": 9, "bytes": 100}])
    rank.worker = "target"
    with rank.step("weights.load"):
        rank.take(torch=20)

    assert (None, 100 * MIB, 53 * MIB) == tuple(
        rows(last(rank))[key] for key in ("cuda_context", "foreign", "unexplained")
    )
    assert "no_reading_before_context" == last(rank).ledger_reasons["cuda_context"]


def test_a_step_that_never_ended_has_the_ledger_of_the_last_reading_and_says_so() -> None:
    rank = ready()
    rank.begin("weights.load")

    died = step(process_of(rank, alive=gone), "weights.load")
    assert ("died", "last_known", SET_UP | {"free": 937}) == (died.state, died.ledger_as_of, mib(died))


def fail(rank: Card, role: str, change: Change) -> None:
    """Let a role take 30 MiB of torch's and raise; its readings are changed from then on."""
    with suppress(Raised), rank.step(role, pool="all"):
        rank.take(torch=30)
        rank.change = change
        raise Raised("torch.AcceleratorError", "illegal memory access")


def test_an_error_without_a_reading_has_the_ledger_of_the_last_one() -> None:
    rank = ready()
    fail(rank, "kv.pool", dict.fromkeys)

    assert ("error", "last_known") == (last(rank).state, last(rank).ledger_as_of)
    assert 0 == rows(last(rank))["kv_pool"]


def test_after_a_poisoned_context_nvml_still_says_what_is_free_and_the_rows_before_it_stand() -> None:
    rank = ready()
    with rank.step("weights.load"):
        rank.take(torch=20)
    fail(rank, "graph.capture", without("torch_", "device_"))

    step = last(rank)
    known = [rows(step)[key] for key in ("weights_target", "free", "unexplained")]
    assert [20 * MIB, (1000 - 10 - 3 - 50 - 50) * MIB, 33 * MIB] == known
    assert {"graphs": "not_read", "torch_cached": "not_read"} == step.ledger_reasons
    assert "after" == step.ledger_as_of


def test_a_missing_reading_makes_unknown_what_it_would_have_told_apart_and_nothing_else() -> None:
    rank = ready()
    rank.change = without("torch_")
    with rank.step("weights.load"):
        rank.change = as_read
        rank.take(torch=20)
    with rank.step("kv.pool", pool="all"):
        rank.take(torch=30)

    reasons = last(rank).ledger_reasons
    assert {"weights_target": "not_apart", "other_process": "not_apart"} == reasons
    assert (30 * MIB, 23 * MIB) == (rows(last(rank))["kv_pool"], rows(last(rank))["unexplained"])


@pytest.mark.parametrize("missing", ["begin", "end"])
def test_a_lost_line_costs_no_byte(missing: str) -> None:
    rank = ready()
    with rank.step("graph.capture", graph="all"), rank.step("graph.capture", graph="decode"):
        rank.take(torch=20)
    lost = [event for event in rank.events if (event["role"], event["kind"]) == ("graph.capture", missing)]
    rank.events.remove(lost[-1] if missing == "begin" else lost[0])

    steps = [one for one in process_of(rank).steps if one.phase == "graph.capture"]
    assert [20 * MIB] == list({rows(one)["graphs"] for one in steps if one.state == "ok"})
    assert [(one.phase, rows(one)["unexplained"]) for one in steps] == [("graph.capture", 3 * MIB)] * 2


def test_a_step_whose_begin_is_lost_began_before_what_lies_inside_it() -> None:
    rank = ready()
    with rank.step("kv.pool", pool="all"):
        with rank.step("kv.pool", pool="request"):
            rank.take(torch=20)
        rank.take(torch=30)
    rank.events.remove(next(event for event in rank.events if event["role"] == "kv.pool"))

    whole = next(one for one in process_of(rank).steps if one.attributes.get("pool") == "all")
    assert (20 * MIB, 30 * MIB) == (rows(whole)["request_pool"], rows(whole)["kv_pool"])


def test_a_step_whose_begin_is_lost_began_before_a_sample_inside_it() -> None:
    rank = ready()
    with rank.step("kv.pool", pool="all"):
        rank.take(torch=30)
        rank.sample("kv.pool", pool="request", bytes=30 * MIB)
        rank.take(torch=1)
    rank.events.remove(next(event for event in rank.events if event["role"] == "kv.pool"))

    found = rows(last(rank))
    assert (30 * MIB, 1 * MIB, 0) == (found["request_pool"], found["kv_pool"], found["other_process"])


def test_what_is_left_over_may_be_negative_and_is_shown_so() -> None:
    rank = ready(others=[{"pid": 9, "bytes": 5}], unlisted=0)
    rank.change = lambda reading: (
        reading | {"nvml_processes": None if reading["nvml_processes"] is None else doubled(reading)}
    )
    with rank.step("kv.profile"):
        pass

    assert rows(last(rank))["unexplained"] == 5 * MIB - 10 * MIB


def doubled(reading: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a list in which NVML counts the others' memory twice."""
    return [one | {"bytes": one["bytes"] * (2 if one["pid"] == 9 else 1)} for one in reading["nvml_processes"]]
