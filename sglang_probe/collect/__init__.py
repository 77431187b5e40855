"""Bytes in, ordered records out: `read` is the way in."""

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import Collected, CollectedRun, read, stream
from sglang_probe.collect.report import Loss, Place, ReadReport
from sglang_probe.collect.sources import RunEntry, list_runs

__all__ = [
    "Collected",
    "CollectedRun",
    "InputError",
    "Loss",
    "Place",
    "ReadReport",
    "RunEntry",
    "list_runs",
    "read",
    "stream",
]
