"""docs/metrics.md has every metric as the code has it, and its alerts are rules that Prometheus takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sglang_probe.report.metrics.catalogue import METRICS, Metric
from tests.report.metrics.dashboard import names_in
from tests.report.metrics.documented import DOCS, RULES, alerts
from tests.report.tools import program


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
    otel = "-" if metric.opentelemetry is None else f"`{metric.opentelemetry}`"
    return f"| `{metric.name}` | {metric.unit or '-'} | {labels} | {metric.help} | {otel} |"


def test_the_documentation_has_a_row_for_each_metric_and_no_other() -> None:
    documented = [line for line in DOCS.splitlines() if line.startswith("| `")]

    assert sorted(map(row, METRICS)) == sorted(documented)


def test_the_alerts_are_rules_of_metrics_that_exist(tmp_path: Path) -> None:
    promtool = program("promtool", "prometheus")
    path = tmp_path / "rules.yml"
    path.write_text(RULES, encoding="utf-8")

    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)
    assert f"{len(alerts())} rules found" in done.stdout
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for expression in alerts().values():
        named = names_in(expression)
        assert named
        for name, used in named.items():
            assert used <= labels[name]
