"""A real Prometheus takes the file in both formats, holds the timeline's values, and answers the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from sglang_probe.timeline import to_json
from sglang_probe.timeline.model import Kv, Worker
from tests.report.metrics.dashboard import filled, queries, variables
from tests.report.metrics.documented import alerts
from tests.report.metrics.exposed import Exposed, exposed
from tests.report.metrics.server import KINDS, Prometheus, scraping
from tests.report.reported import CAR, HEALTHY_LOG, HOSTILE, LEFT_OVER, LOWFRAC, Reported, made, reported
from tests.report.tools import program
from tests.timeline.building import build_budget, build_rank, build_run, build_step


@pytest.fixture(scope="module")
def report() -> Reported:
    """Recorded runs, one with what they have not (a deduction), and some with names that formats have to escape."""
    budget = build_budget(30.0, 90.0, 0.8, deductions={"mamba": 1 << 30}, mem_fraction_static_given=0.8)
    worker = Worker(worker="target", budget=budget, kv=Kv(tokens=1000, bytes=1 << 30, bytes_per_token=1 << 20))
    rank = build_rank(0, 1, (build_step("scheduler.init", 0, 90.0, 10.0, 5.0),), workers=(worker,))
    odd = build_run((rank,), "ready")
    hostile = [build_run((replace(rank, label=name),), "unknown", run_id=name) for name in HOSTILE]
    return made(*reported(CAR, LOWFRAC, LEFT_OVER, HEALTHY_LOG).timeline.runs, odd, *hostile)


@pytest.fixture(scope="module")
def metrics(report: Reported) -> Exposed:
    return exposed(report)


@pytest.fixture(scope="module")
def server(metrics: Exposed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    binary = program("prometheus", "prometheus")
    with scraping(binary, tmp_path_factory.mktemp("prometheus"), metrics.text.encode()) as found:
        yield found


@pytest.mark.parametrize("job", KINDS)
def test_it_holds_every_value_of_the_file_whichever_format_it_took_it_for(
    job: str, server: Prometheus, metrics: Exposed
) -> None:
    held: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for series in server.query(f'{{job="{job}", __name__=~"(hw|sglang_probe)_.*"}}'):
        labels = {k: v for k, v in series["metric"].items() if k not in {"job", "instance", "__name__"}}
        held.setdefault(series["metric"]["__name__"], {})[frozenset(labels.items())] = float(series["value"][1])

    assert metrics.values == held


def test_its_values_are_those_of_the_timelines_json(server: Prometheus, report: Reported) -> None:
    def value(metric: str, **labels: str) -> float:
        words = ", ".join(f'{name}="{content}"' for name, content in {"job": "openmetrics", **labels}.items())
        (series,) = server.query(f"{metric}{{{words}}}")
        return float(series["value"][1])

    runs: dict[str, Any] = {run["run_id"]: run for run in to_json(report.timeline)["runs"]}
    assert runs["car"]["ready_s"] == value("sglang_probe_run_ready_seconds", run="car")
    for name in ("car", "lowfrac", "leftover"):
        for process in runs[name]["processes"]:
            if process["label"] is None:
                continue
            which = {"run": name, "rank": process["label"]}
            budget = process["workers"][0]["budget"]
            assert budget["rest_bytes"] == value("sglang_probe_budget_rest_bytes", **which)
            assert budget["mem_fraction_static"] == value("sglang_probe_mem_fraction_static_ratio", **which)
            root = process["steps"][0]
            assert root["duration_s"] == value("sglang_probe_rank_start_seconds", **which)
            assert root["ledger"]["free"] == value("sglang_probe_memory_bytes", category="free", **which)
            loads = [step["self_delta_bytes"] for step in process["steps"] if step["phase"] == "weights.load"]
            assert -sum(loads) == value("sglang_probe_phase_cost_bytes", phase="weights.load", **which)
    (target,) = runs["healthy_tp8.log"]["processes"][0]["workers"]
    assert target["kv"]["tokens"] == value("sglang_probe_kv_tokens", run="healthy_tp8.log", rank="TP0")


def test_every_query_of_the_dashboard_has_a_result(server: Prometheus) -> None:
    empty = [query.where for query in queries() if not server.query(filled(query.expression))]

    assert [] == empty


@pytest.mark.parametrize("variable", list(variables()), ids=lambda variable: variable.name)
def test_every_variable_of_the_dashboard_is_filled(variable: Any, server: Prometheus, metrics: Exposed) -> None:
    (name, *_) = variable.selector.split("{")
    expected = {dict(key)[variable.label] for key in metrics.values[name]}

    assert sorted(expected) == sorted(server.values_of(variable.label, filled(variable.selector)))


def test_a_run_and_a_rank_can_be_picked(server: Prometheus) -> None:
    for query in queries():
        for series in server.query(filled(query.expression, run="lowfrac", rank="TP0")):
            assert series["metric"].get("run", "lowfrac") == "lowfrac"
            assert "TP1" not in series["metric"].get("where", "")


def test_the_documented_alerts_fire_on_the_runs_that_they_are_about(server: Prometheus) -> None:
    fired = {
        name: {series["metric"]["run"] for series in server.query(expression)} for name, expression in alerts().items()
    }

    assert {
        "SGLangDidNotStart": {"lowfrac"},
        "SGLangFractionNearTheLeast": {"lowfrac"},
        "SGLangCardSharedWithALeftOver": {"leftover"},
        "SGLangProbeIsBlind": set(),
    } == fired


def test_what_is_unknown_is_not_there(server: Prometheus) -> None:
    assert [] == server.query('sglang_probe_run_ready_seconds{run="lowfrac"}')
    assert [] == server.query('sglang_probe_healthy{run="healthy_tp8.log"}')
    assert [] != server.query('sglang_probe_healthy{run="lowfrac"}')
