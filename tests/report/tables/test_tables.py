"""The tables: what they hold is what the timeline and the files hold, keyed so that they join, in one schema always."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sglang_probe.figures import GIB
from sglang_probe.report.material import Material
from sglang_probe.report.tables import spec
from sglang_probe.report.tables.kinds import BYTES, SECONDS
from sglang_probe.report.tables.made import TABLES, tables_of
from sglang_probe.report.tables.spec import OWNER, RUN, Table
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Process, Timeline
from sglang_probe.timeline.processes import last_ledger
from tests.report.tables.conftest import H200, INPUTS, MaterialOf, by_hand


def whole(material: Material) -> dict[str, Any]:
    """Every table of a material by its name, in one piece."""
    return {table.name: pa.concat_tables(pieces).unify_dictionaries() for table, pieces in tables_of(material)}


def column(table: Any, name: str) -> list[Any]:
    found: list[Any] = table.column(name).to_pylist()
    return found


def processes_of(material: Material) -> list[Process]:
    return [process for run in material.timeline.runs for process in run.processes]


def test_the_schema_never_depends_on_what_is_in_a_table(material: Material) -> None:
    empty = whole(by_hand())

    for name, table in whole(material).items():
        assert table.schema.equals(empty[name].schema, check_metadata=True), name


def test_of_nothing_every_table_is_there_and_empty() -> None:
    rows = {name: table.num_rows for name, table in whole(by_hand()).items()}

    assert rows == {table.name: int(table.name == "about") for table in TABLES}


def test_a_column_that_is_never_null_is_not(material: Material) -> None:
    for table, pieces in tables_of(material):
        for piece in pieces:
            piece.validate(full=True)
            nulls = [one.name for one in table.columns if one.required and piece.column(one.name).null_count]
            assert nulls == [], table.name


@pytest.mark.parametrize("name", ["story", "killed", "ready"])
def test_a_start_that_failed_was_killed_or_runs_on_a_cpu_fills_the_tables(
    name: str, request: pytest.FixtureRequest
) -> None:
    timeline: Timeline = request.getfixturevalue(name)
    tables = whole(by_hand(*timeline.runs))

    for table in TABLES:
        tables[table.name].validate(full=True)
    steps = [step for run in timeline.runs for process in run.processes for step in process.steps]
    assert [step.state for step in steps] == column(tables["steps"], "state")
    assert [step.failure and step.failure.type for step in steps] == column(tables["steps"], "failure_type")
    assert [run.outcome for run in timeline.runs] == column(tables["runs"], "outcome")
    assert column(tables["budget"], "worker") == [
        worker.worker for run in timeline.runs for process in run.processes for worker in process.workers
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_names_say_the_unit_and_every_column_its_meaning(table: Table) -> None:
    names = [one.name for one in table.columns]

    assert len(names) == len(set(names))
    for one in table.columns:
        assert one.name.endswith("_bytes") == (one.kind is BYTES), one.name
        assert one.name.endswith("_s") == (one.kind is SECONDS), one.name
        assert one.meaning and "|" not in one.meaning and "\n" not in one.meaning


def test_rows_carry_the_keys_of_the_process_that_they_join_to(material: Material) -> None:
    tables = whole(material)
    keys = [one.name for one in OWNER]
    known = {row["process"]: row for row in tables["processes"].select(keys).to_pylist()}

    assert len(known) == tables["processes"].num_rows == len(processes_of(material))
    for table in TABLES:
        if tuple(table.columns[: len(OWNER)]) == OWNER:
            for row in tables[table.name].select(keys).to_pylist():
                assert row == known[row["process"]], table.name


def test_what_belongs_to_a_run_joins_to_it(material: Material) -> None:
    tables = whole(material)
    keys = [one.name for one in RUN]
    known = {tuple(row.values()) for row in tables["runs"].select(keys).to_pylist()}

    assert len(known) == tables["runs"].num_rows == len(material.timeline.runs)
    for table in TABLES:
        if tuple(table.columns[: len(RUN)]) == RUN:
            assert {tuple(row.values()) for row in tables[table.name].select(keys).to_pylist()} <= known


def test_steps_are_those_of_the_timeline(material: Material) -> None:
    table = whole(material)["steps"]
    steps = [step for process in processes_of(material) for step in process.steps]

    for name in ("phase", "free_bytes", "cost_bytes", "self_delta_bytes", "duration_s", "state", "precision_bytes"):
        assert [getattr(step, name) for step in steps] == column(table, name), name
    assert [step.id for step in steps] == column(table, "step_id")
    assert [step.attributes for step in steps] == [json.loads(text) for text in column(table, "attributes")]
    numbers = [(row["process"], row["step_index"]) for row in table.select(["process", "step_index"]).to_pylist()]
    assert len(numbers) == len(set(numbers))


def test_ledgers_are_those_of_the_timeline_and_close(material: Material) -> None:
    table = whole(material)["ledger"]
    steps = [step for process in processes_of(material) for step in process.steps if step.ledger is not None]

    assert [getattr(step.ledger, key) for step in steps for key in KEYS] == column(table, "held_bytes")
    assert [key for _ in steps for key in KEYS] == column(table, "category")
    assert [step.ledger_reasons.get(key) for step in steps for key in KEYS] == column(table, "reason")
    precise = [step.ledger_precision_bytes.get(key) for step in steps for key in KEYS]
    assert precise == column(table, "precision_bytes")
    sums = table.group_by(["process", "step_index", "total_bytes"]).aggregate([("held_bytes", "sum")]).to_pylist()
    assert all(row["total_bytes"] in {None, row["held_bytes_sum"]} for row in sums)


def test_the_last_ledger_of_a_process_is_marked(material: Material) -> None:
    table = whole(material)["ledger"]
    marked = {
        (row["process"], row["step_id"])
        for row in table.select(["process", "step_id", "is_last"]).to_pylist()
        if row["is_last"]
    }

    last = {(number, step.id) for number, one in enumerate(processes_of(material)) if (step := last_ledger(one))}
    assert marked == last


def test_budgets_and_pools_are_those_of_the_timeline(material: Material) -> None:
    tables = whole(material)
    workers = [worker for process in processes_of(material) for worker in process.workers]
    pools = [pool for worker in workers if worker.kv is not None for pool in worker.kv.pools]

    rests = [None if worker.budget is None else worker.budget.rest_bytes for worker in workers]
    assert rests == column(tables["budget"], "rest_bytes")
    tokens = [None if worker.kv is None else worker.kv.tokens for worker in workers]
    assert tokens == column(tables["budget"], "kv_tokens")
    assert [(pool.kind, pool.bytes) for pool in pools] == list(
        zip(column(tables["pools"], "kind"), column(tables["pools"], "held_bytes"), strict=True)
    )


def test_findings_come_in_their_order_and_every_lever_with_its_finding(material: Material) -> None:
    tables = whole(material)
    findings = [one for run in material.explanation.runs for one in run.findings]
    levers = [one for found in findings for one in (found.lever, *found.levers) if one is not None]

    assert [one.says for one in findings] == column(tables["findings"], "says")
    assert [one.numbers for one in findings] == [json.loads(text) for text in column(tables["findings"], "numbers")]
    assert [one.says for one in levers] == column(tables["levers"], "says")
    keys = ["run_id", "launch", "finding"]
    assert set(map(str, tables["levers"].select(keys).to_pylist())) <= set(
        map(str, tables["findings"].select(keys).to_pylist())
    )


def test_events_are_the_lines_of_the_files(material_of: MaterialOf) -> None:
    table = whole(material_of([H200 / "car"]))["events"]
    lines = [json.loads(line) for file in (H200 / "car").iterdir() for line in file.read_text().splitlines()]

    known = {(line["pid"], line["seq"]): line for line in lines}
    assert len(known) == table.num_rows
    for row in table.to_pylist():
        line = known[row["pid"], row["seq"]]
        assert (line["event"], line["mono_ns"], line["run_id"]) == (row["event"], row["mono_ns"], row["written_run_id"])
        assert line["ts"][:26] == row["ts"].isoformat()[:26]
        assert line["attributes"] == json.loads(row["attributes"] or "{}")
        assert line["degraded"] == json.loads(row["degraded"] or "[]")
        assert ((line["span"] or {}).get("id"), line["role"]) == (row["span_id"], row["role"])
        reading = (line["before"] if line["kind"] == "begin" else line["after"]) or {}
        for name in reading:
            if name.endswith("_bytes"):
                assert reading[name] == row[name], name


def test_a_log_fills_the_same_tables_with_how_far_off_its_figures_are(material_of: MaterialOf) -> None:
    tables = whole(material_of(INPUTS["log"]))

    assert tables["events"].num_rows == 0
    assert set(column(tables["processes"], "host")) == set(column(tables["steps"], "pid")) == {None}
    weights = [row for row in tables["steps"].to_pylist() if row["phase"] == "weights.load"]
    assert weights and all(0 < row["precision_bytes"] < GIB // 10 and row["local_time"] for row in weights)
    unknown = [row for row in tables["ledger"].to_pylist() if row["held_bytes"] is None]
    assert unknown and all(row["reason"] for row in unknown)


def test_the_size_of_the_pieces_changes_nothing(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = whole(material)
    monkeypatch.setattr(spec, "PIECE", 1)

    for name, table in whole(material).items():
        assert table.to_pylist() == at_once[name].to_pylist(), name
