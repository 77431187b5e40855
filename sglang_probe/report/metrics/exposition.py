"""Samples as OpenMetrics text, by prometheus-client: the file that `report -o run.prom` writes.

No sample has a time, which node_exporter would refuse: the values are those of the moment that the report is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from sglang_probe import __version__
from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.model import Explanation
from sglang_probe.report.material import Material
from sglang_probe.report.metrics import catalogue
from sglang_probe.report.metrics.cards import card_samples
from sglang_probe.report.metrics.catalogue import METRICS, Metric, Sample
from sglang_probe.report.metrics.ranks import rank_samples
from sglang_probe.report.metrics.runs import run_samples
from sglang_probe.report.names import run_names
from sglang_probe.timeline.model import Timeline


def write(material: Material, path: Path) -> None:
    """Write the metrics of every run to `path`; OSError where the disk refuses."""
    path.write_bytes(openmetrics(samples(material.timeline, material.explanation)))


def samples(timeline: Timeline, explanation: Explanation) -> Iterator[Sample]:
    """Yield every value of a report, unknown ones too."""
    yield Sample(catalogue.BUILD_INFO, (__version__,), 1)
    yield from _read(timeline.read)
    names = run_names(timeline.runs)
    for run, name, findings in zip(timeline.runs, names, explanation.runs, strict=True):
        yield from run_samples(run, name, findings)
        yield from card_samples(run, name)
        yield from rank_samples(run, name)


def openmetrics(values: Iterable[Sample]) -> bytes:
    """Return samples as OpenMetrics 1.0 text, the metrics in the order of the table; what is unknown is left out."""
    registry = CollectorRegistry()
    registry.register(_Report(values))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call] # prometheus-client types not all of itself
    return text


class _Report(Collector):
    """Yields the metric families of a report once."""

    def __init__(self, values: Iterable[Sample]) -> None:
        self._by_metric: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
        for sample in values:
            self._by_metric[sample.metric].append(sample)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: no name is looked at before the values are."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield a family for each metric of which a value is known."""
        for metric, found in self._by_metric.items():
            known: dict[tuple[str, ...], float] = {}
            for sample in found:
                if sample.value is not None:
                    known.setdefault(sample.labels, sample.value)  # Prometheus refuses a file with a series twice
            if known:
                family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels, unit=metric.unit)
                for labels, value in known.items():
                    family.add_metric(labels, value)
                yield family


def _read(read: ReadReport) -> Iterator[Sample]:
    for kind, count in (("events", read.files), ("log", read.log_files)):
        yield Sample(catalogue.READ_FILES, (kind,), count)
    yield Sample(catalogue.READ_EVENTS, (), read.events)
    for loss in read.losses:
        yield Sample(catalogue.READ_LOSSES, (loss.kind, str(loss.lost).lower()), loss.count)
