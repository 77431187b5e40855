"""What differs by nature, and what only looks like it."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_probe.explain.diff.compare import PARTS_ON_A_CPU, compare
from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.nature import BY_NATURE
from sglang_probe.timeline.model import Device, Run
from tests.collect.starting import Shape
from tests.explain.diff.pairs import made


def with_made(run: Run, **more: Any) -> Run:
    return msgspec.structs.replace(run, provenance=msgspec.structs.replace(run.provenance, **more))


def rows(first: dict[str, Any], second: dict[str, Any], *, everything: bool = False) -> dict[tuple[str, str], Row]:
    run = made(Shape())
    found = compare((with_made(run, **first), with_made(run, **second)), everything=everything)
    return {(row.group, row.key): row for row in found.provenance}


def given(first: dict[str, Any], second: dict[str, Any], effective: Any = ({}, {})) -> dict[tuple[str, str], Row]:
    return rows({"given": first, "effective": effective[0]}, {"given": second, "effective": effective[1]})


def test_every_row_of_the_table_has_a_reason() -> None:
    assert all(row.reason and not row.reason.endswith(".") for row in BY_NATURE)


def test_ports_are_no_difference() -> None:
    assert {} == given({"--port": "1", "--nccl-port": "5"}, {"--port": "2", "--nccl-port": "6"})


def test_an_address_on_loopback_is_no_difference_and_another_is() -> None:
    key = "--dist-init-addr"

    assert {} == given({key: "127.0.0.1:5"}, {key: "localhost:6"})
    assert [("arguments given", key)] == list(given({key: "10.0.0.1:5"}, {key: "10.0.0.2:5"}))


def test_a_seed_counts_only_where_it_was_given() -> None:
    seeds = {"random_seed": 1}, {"random_seed": 2}

    assert {} == given({}, {}, seeds)
    assert [("arguments given", "--random-seed")] == list(given({}, {"--random-seed": "2"}, seeds))


def test_where_an_object_lies_in_memory_is_no_difference() -> None:
    objects = {"model_config": "<C object at 0x7f01>"}, {"model_config": "<C object at 0x8f01>"}

    assert {} == given({}, {}, objects)


def test_a_flag_whose_effect_is_the_same_does_not_count() -> None:
    found = given({}, {"--mem-fraction-static": "0.9"}, ({"mem_fraction_static": 0.9}, {"mem_fraction_static": 0.9}))

    assert [False] == [row.counts for row in found.values()]


def test_the_effective_value_stands_under_the_flag_of_its_name_whatever_its_spelling() -> None:
    found = given({"--tp": "1"}, {"--tensor-parallel-size": "2"}, ({"tp_size": 1}, {"tp_size": 2}))

    assert {("arguments given", "--tp"), ("arguments given", "--tensor-parallel-size")} == set(found)
    assert {(1, 2)} == {row.effective for row in found.values()}


def test_the_probes_own_variables_are_no_difference_and_others_are() -> None:
    first = {"environment": {"SGLANG_PROBE_DIR": "/a", "NCCL_ALGO": "Ring"}}
    second = {"environment": {"SGLANG_PROBE_DIR": "/b"}}

    assert [("variables", "NCCL_ALGO")] == list(rows(first, second))


def test_visible_devices_have_a_group_of_their_own() -> None:
    first, second = ({"environment": {"CUDA_VISIBLE_DEVICES": one, "NCCL_X": "1"}} for one in ("0", "1"))

    assert [("visible devices", "CUDA_VISIBLE_DEVICES")] == list(rows(first, second))


def test_a_changed_body_counts_and_one_that_moved_does_not() -> None:
    first = {"fingerprints": {"m:changed": "a", "m:moved": "b"}}
    second = {"fingerprints": {"m:changed": "c"}}
    found = rows(first, second)

    assert {("functions", "m:changed"): True, ("functions", "m:moved"): False} == {
        key: row.counts for key, row in found.items()
    }


def test_what_one_side_did_not_record_does_not_count() -> None:
    found = rows({"sglang_commit": "abc"}, {"sglang_commit": None})

    assert [False] == [row.counts for row in found.values()]


def test_all_shows_what_differs_by_nature_with_its_reason() -> None:
    run = made(Shape())
    other = made(Shape(), run_id="two")
    found = {row.key: row for row in compare((run, other), everything=True).provenance}

    assert (False, "every run has its own") == (found["run id"].differs, found["run id"].why)


def test_the_name_of_a_machine_is_said_and_is_no_cause() -> None:
    run = made(Shape())
    moved = msgspec.structs.replace(
        run, processes=tuple(msgspec.structs.replace(one, host="elsewhere") for one in run.processes)
    )
    (row,) = compare((run, moved)).provenance

    assert ("machine", False) == (row.group, row.counts)


def test_a_flag_that_one_side_did_not_record_counts_where_its_effect_differs() -> None:
    tp = {"tp_size": 2}, {"tp_size": 1}
    differing = rows({"given": {"--tp": "2"}, "effective": tp[0]}, {"given": None, "effective": tp[1]})
    alike = rows({"given": {"--tp": "2"}, "effective": tp[0]}, {"given": None, "effective": tp[0]})
    unknown = rows({"given": {"--tp": "2"}, "effective": tp[0]}, {"given": None, "effective": None})

    key = ("arguments given", "--tp")
    assert (True, (2, 1)) == (differing[key].counts, differing[key].effective)
    assert not alike[key].counts
    assert not unknown[key].counts


def test_ranks_on_one_cpu_have_no_cards_to_differ_in() -> None:
    one, two = (on_cpu(made(*[Shape()] * size)) for size in (1, 2))
    found = compare((one, two)).provenance

    assert [] == [row.key for row in found if row.group in {"cards", "visible devices"}]


def on_cpu(run: Run) -> Run:
    processes = [
        msgspec.structs.replace(rank, device=Device(index=place, name="cpu", kind="cpu"))
        for place, rank in enumerate(run.processes)
    ]
    return msgspec.structs.replace(run, processes=tuple(processes))


def test_on_a_cpu_the_parts_of_a_budget_are_not_sold_as_costs() -> None:
    runs = [on_cpu(made(Shape(fraction=fraction))) for fraction in (0.8, 0.01)]

    assert PARTS_ON_A_CPU in compare((runs[0], runs[1])).notes
    assert PARTS_ON_A_CPU not in compare((runs[0], runs[0])).notes
