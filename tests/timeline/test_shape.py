"""The JSON of a timeline has the keys that the design names, at the places that it names."""

from __future__ import annotations

import json
from typing import Any

from sglang_probe.timeline import shown, to_json
from tests.collect.starting import Shape, launch
from tests.timeline.making import timeline_of

RUN = "run_id launch source outcome failed_phase provenance processes"
PROCESS = "host pid role rank label device steps workers"
STEP = (
    "id parent phase worker draft_index ts duration_s free_bytes delta_bytes self_delta_bytes state ledger"
    " ledger_total_source"
)
LEDGER = (
    "driver_reserved cuda_context communicator custom_allreduce weights_target weights_draft kv_pool request_pool"
    " attention_workspace lora graphs torch_cached other_process run_processes foreign free unexplained"
)
WORKER = "worker draft_index weights_bytes budget kv"
BUDGET = (
    "pre_load_bytes available_bytes pre_load_local_bytes available_local_bytes mem_fraction_static"
    " mem_fraction_static_given static_budget_bytes slack_bytes deductions rest_bytes minimum_viable_fraction"
    " minimum_viable_fraction_printed verified verified_reason"
)
KV = "tokens bytes bytes_per_token pools limited_by"


def _json(shape: Shape) -> dict[str, Any]:
    shaped: dict[str, Any] = json.loads(json.dumps(to_json(timeline_of(launch([shape, shape])))))
    return shaped


def test_every_key_of_the_design_is_there() -> None:
    shaped = _json(Shape())

    assert "timeline/1.0" == shaped["schema"]
    for run in shaped["runs"]:
        assert set(RUN.split()) <= run.keys()
        for process in run["processes"]:
            assert set(PROCESS.split()) <= process.keys()
            for step in process["steps"]:
                assert set(STEP.split()) <= step.keys()
            for worker in process["workers"]:
                assert set(WORKER.split()) <= worker.keys()
                assert set(BUDGET.split()) <= worker["budget"].keys()
                assert set(KV.split()) <= worker["kv"].keys()
                assert {"kind", "tokens", "bytes"} <= worker["kv"]["pools"][0].keys()


def test_the_ledger_has_the_designs_rows_in_their_order_and_sums_to_its_total() -> None:
    steps = [step for process in _json(Shape())["runs"][0]["processes"] for step in process["steps"]]

    assert steps
    for step in steps:
        assert LEDGER.split() == list(step["ledger"])
        assert step["ledger_total_bytes"] == sum(value for value in step["ledger"].values() if value is not None)
        assert "device_total_bytes" == step["ledger_total_source"]


def test_what_only_the_making_of_a_timeline_needs_stays_out() -> None:
    (process,) = _json(Shape())["runs"][0]["processes"][2:]

    assert not {"before", "after", "mono_ns"} & process["steps"][0].keys()
    assert process["samples"]
    assert not {"after", "seq"} & process["samples"][0].keys()


def test_a_timeline_keeps_its_readings_when_it_is_shown() -> None:
    timeline = timeline_of(launch([Shape(), Shape()]))
    list(shown(timeline).runs[0].processes)

    assert any(step.before for run in timeline.runs for process in run.processes for step in process.steps)


def test_what_is_unknown_is_null() -> None:
    (worker,) = _json(Shape(fail_in="weights.load"))["runs"][0]["processes"][1]["workers"]

    assert worker["weights_bytes"] is worker["kv"] is worker["budget"]["available_bytes"] is None


def test_a_rank_is_shown_part_by_part() -> None:
    rank = _json(Shape())["runs"][0]["processes"][2]["rank"]

    assert ({"rank": 1, "size": 2}, None) == (rank["tp"], rank["dp"])


def test_the_report_of_the_reading_comes_with_it() -> None:
    shaped = _json(Shape())

    assert sum(process["events"] for process in shaped["runs"][0]["processes"]) == shaped["read"]["events"]
