"""From a report to its metrics, as Prometheus' own rules read them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sglang_probe.report.metrics.exposition import openmetrics, samples
from tests.report.reported import Reported, reported

Labels = frozenset[tuple[str, str]]


class Exposed(NamedTuple):
    """A file of metrics, read back by prometheus-client's strict parser of OpenMetrics."""

    text: str
    values: dict[str, dict[Labels, float]]
    """Metric -> labels that are not empty -> value."""
    labels: dict[str, frozenset[str]]
    """Metric -> the names of its labels."""

    def value(self, metric: str, **labels: str) -> float | None:
        """Return the one value with these labels among others; None where there is none."""
        wanted = set(labels.items())
        found = [value for key, value in self.values.get(metric, {}).items() if wanted <= key]
        assert len(found) <= 1, f"{metric} {labels} is not one series"
        return found[0] if found else None


def exposed(report: Reported) -> Exposed:
    """Return the metrics of a report; AssertionError or ValueError where a rule of the format is broken."""
    text = openmetrics(samples(report.timeline, report.explanation)).decode("utf-8")
    values: dict[str, dict[Labels, float]] = {}
    labels: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        assert "gauge" == family.type and family.documentation
        counts: Counter[Labels] = Counter()
        for sample in family.samples:
            assert family.name == sample.name and sample.timestamp is None and sample.exemplar is None
            key = frozenset((name, value) for name, value in sample.labels.items() if value)
            counts[key] += 1
            values.setdefault(sample.name, {})[key] = sample.value
            labels[sample.name] = frozenset(sample.labels)
        assert {1} == set(counts.values()), "a series comes twice"
    return Exposed(text, values, labels)


@cache
def recorded(*paths: Path) -> Exposed:
    """Return the metrics of recorded runs."""
    return exposed(reported(*paths))
