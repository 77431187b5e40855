"""docs/metrics.md has every metric as the code has it, and its alerts are rules that Prometheus takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from sglang_probe.report.metrics.catalogue import METRICS, Metric
from tests.report.metrics.dashboard import names_in
from tests.report.tools import program

DOCS = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
(RULES,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)


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
    assert f"{RULES.count('- alert:')} rules found" in done.stdout
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for expression in re.findall(r"expr: (?:\|\n)?((?:.+\n)(?: {12}.*\n)*)", RULES):
        for name, used in names_in(expression).items():
            assert used <= labels[name]
