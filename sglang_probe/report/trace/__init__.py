"""A report as a trace: slices, counters and flows for ui.perfetto.dev and chrome://tracing."""

from sglang_probe.report.trace.document import write

__all__ = ["write"]
