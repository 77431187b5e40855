"""A report as metrics: text that Prometheus scrapes as OpenMetrics and node_exporter reads as a file."""

from sglang_probe.report.metrics.exposition import write

__all__ = ["write"]
