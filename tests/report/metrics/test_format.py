"""The file is OpenMetrics and classic text at once, whatever the report is made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sglang_probe.report.material import Material
from sglang_probe.report.metrics import write
from sglang_probe.report.metrics.catalogue import METRICS
from sglang_probe.timeline.model import (
    Degradation,
    Device,
    Failure,
    Health,
    Ledger,
    Neighbour,
    Provenance,
    Worker,
)
from tests.report.metrics.exposed import exposed, recorded
from tests.report.reported import CAR, HEALTHY_LOG, HOSTILE, LEFT_OVER, LOWFRAC, RECORDINGS, made, reported, spoiled
from tests.report.tools import program
from tests.timeline.building import build_budget, build_rank, build_run, build_step


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_metrics_of_a_recorded_run_are_openmetrics(recording: Path) -> None:
    found = recorded(recording)

    (run,) = reported(recording).timeline.runs
    assert 1 == found.value("sglang_probe_run_outcome", run=run.run_id, outcome=run.outcome)


def test_what_is_written_is_what_was_checked(tmp_path: Path) -> None:
    report = reported(CAR)
    path = tmp_path / "run.prom"

    write(Material(report.timeline, report.explanation, None), path)  # type: ignore[arg-type] # it needs no records

    assert recorded(CAR).text == path.read_bytes().decode()
    assert recorded(CAR).text.endswith("# EOF\n")


def test_promtool_finds_nothing_to_complain_of_in_the_classic_format() -> None:
    """promtool reads as node_exporter does, and lints names, types and help."""
    promtool = program("promtool", "prometheus")

    text = recorded(CAR, LOWFRAC, LEFT_OVER, HEALTHY_LOG).text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_nothing_is_in_the_file_that_the_classic_format_does_not_know() -> None:
    lines = recorded(CAR, LOWFRAC, LEFT_OVER, HEALTHY_LOG).text.splitlines()

    assert {"gauge"} == {line.split()[3] for line in lines if line.startswith("# TYPE")}
    assert {"HELP", "TYPE", "UNIT", "EOF"} == {line.split()[1] for line in lines if line.startswith("#")}


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_in_any_field_of_an_event_breaks_the_format(data: st.DataObject) -> None:
    exposed(spoiled(data))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_from_outside_breaks_nothing_and_stays_short(name: str) -> None:
    step = build_step("kv.pool all", 0, 9.0, 8.0, 1.0, worker=name, ledger=Ledger(free=1, foreign=1))
    step = replace(step, phase=name, detail=name, ledger_reasons={"kv_pool": name})
    device = Device(index=0, uuid=name, name=name, kind=name)
    other = Neighbour(pid=1, name=name, kind="foreign", bytes=1, user=name)
    worker = Worker(worker=name, budget=build_budget(9.0, 10.0, 0.5, deductions={name: 1}))
    rank = build_rank(0, 1, (step,), label=name, device=device, workers=(worker,), neighbours=(other,))
    health = Health(ok=False, absent_roles=(name,), degraded=(Degradation(source=name, reason=name, detail=name),))
    told = Failure(type=name, message=name)
    versions = dict.fromkeys(["torch", "driver"], name)
    provenance = Provenance(
        sglang_version=name, sglang_commit=name, versions=versions, effective={"model_path": name}
    )
    run = build_run(
        (replace(rank, host=name), replace(rank, pid=1)), "failed", run_id=name, failed_label=name, failure=told,
        health=health, provenance=provenance,
    )  # fmt: skip

    found = exposed(made(run, run))

    assert all(line.isprintable() and len(line) < 3_000 for line in found.text.split("\n"))
    assert 2 == len(found.values["sglang_probe_run_info"])
    assert 4 == len(found.values["sglang_probe_rank_info"])


def test_every_metric_says_what_it_is_and_has_the_unit_that_its_name_ends_in() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.endswith(metric.unit)
        assert metric.help and not set('"\\\n') & set(metric.help)  # the two formats escape them differently
        assert metric.unit in {"", "bytes", "seconds", "ratio"}
        assert len(set(metric.labels)) == len(metric.labels)


def test_a_name_of_opentelemetry_is_translated_as_its_rules_say() -> None:
    """Dots become underscores and the unit is spelt out behind: By is bytes, 1 of a gauge is ratio."""
    told = [metric for metric in METRICS if metric.opentelemetry is not None]
    assert len(told) == 3
    for metric in told:
        assert metric.name == f"{(metric.opentelemetry or '').replace('.', '_')}_{metric.unit}"
