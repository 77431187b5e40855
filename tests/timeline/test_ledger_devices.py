"""The ledger on every kind of device: what cannot be known is said, and nothing is pretended."""

from __future__ import annotations

import pytest

from tests.timeline.cards import CARD, MIB, card, last, mib, rows, without


def test_on_a_cpu_only_what_is_free_is_known() -> None:
    device = {"index": None, "uuid": None, "name": None, "kind": "cpu"}
    rank = card(device=device, context=1, change=without("nvml_", "torch_"))
    with rank.step("weights.load"):
        rank.take(raw=20)

    step = last(rank)
    assert {"free", "unexplained"} == {key for key, value in rows(step).items() if value is not None}
    assert ("device_total_bytes", {"host_memory"}) == (step.ledger_total_source, set(step.ledger_reasons.values()))


def test_a_device_of_which_nothing_can_be_read_has_no_ledger() -> None:
    rank = card(device={**CARD, "kind": "other"}, change=without("nvml_", "torch_", "device_"))
    with rank.step("weights.load"):
        pass

    assert (None, None, {}) == (last(rank).ledger, last(rank).ledger_total_source, last(rank).ledger_reasons)


def test_a_device_with_a_total_but_no_torch_numbers_has_its_free_memory_alone() -> None:
    rank = card(device={**CARD, "kind": "other"}, context=1, change=without("nvml_", "torch_"))
    with rank.step("weights.load"):
        rank.take(raw=20)

    assert {"free": 990 - 3 - 21} == {key: value for key, value in mib(last(rank)).items() if key == "free"}
    assert {"weights_target", "torch_cached"} <= set(last(rank).ledger_reasons)


def test_unified_memory_that_nvml_does_not_tell_sums_to_cudas_total() -> None:
    rank = card(change=without("nvml_"))
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20)

    step = last(rank)
    assert ("device_total_bytes", 990 * MIB) == (step.ledger_total_source, step.ledger_total_bytes)
    assert (None, "nvml_total_unread") == (rows(step)["driver_reserved"], step.ledger_reasons["driver_reserved"])
    assert (20 * MIB, 53 * MIB) == (rows(step)["weights_target"], rows(step)["unexplained"])


def test_on_shared_host_memory_what_other_processes_take_is_not_this_processs() -> None:
    rank = card(context=50)
    with rank.step("kv.profile"):
        pass
    rank.worker = "target"
    with rank.step("weights.load"):
        rank.take(torch=20)
        rank.unlisted += 400  # the host reads its page cache in

    assert "others_moved" == last(rank).ledger_reasons["other_process"]
    assert 20 * MIB == rows(last(rank))["weights_target"]


def test_a_mig_slice_sums_to_the_slice() -> None:
    rank = card(size=250, driver=5, unlisted=0, device={**CARD, "uuid": "MIG-0"})
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20)

    assert {"driver_reserved": 5, "cuda_context": 50, "weights_target": 20, "free": 175} == mib(last(rank))
    assert 250 * MIB == last(rank).ledger_total_bytes


def test_totals_that_contradict_each_other_make_no_negative_reserve() -> None:
    rank = card(change=lambda reading: reading | {"nvml_total_bytes": 500 * MIB})
    rank.set_up()
    with rank.step("weights.load"):
        pass

    assert (None, "totals_disagree") == (
        rows(last(rank))["driver_reserved"],
        last(rank).ledger_reasons["driver_reserved"],
    )


@pytest.mark.parametrize("never", ["torch_", "device_free", "nvml_used"])
def test_a_source_that_is_never_read_costs_no_sum(never: str) -> None:
    rank = card(change=without(never))
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20, raw=4)

    rows(last(rank))


def test_where_cuda_was_never_asked_the_drivers_reserve_is_nvmls_own_figure() -> None:
    rank = card()
    with rank.step("scheduler.init"):
        pass

    assert 10 * MIB == rows(last(rank))["driver_reserved"]
