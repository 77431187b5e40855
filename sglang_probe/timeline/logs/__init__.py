"""Plain SGLang logs as runs: `run_of`."""

from sglang_probe.timeline.logs.run import run_of

__all__ = ["run_of"]
