"""The readers: what the events of a role carry, one module a role."""

from __future__ import annotations

from importlib import import_module

from sglang_probe.agent.calls import Reader
from sglang_probe.catalogue.targets import Target

_KNOWN: dict[str, Reader] = {}


def reader_of(target: Target) -> Reader:
    """Return the reader that a row names; its module is imported when the first such row is hooked."""
    found = _KNOWN.get(target.reader)
    if found is None:
        module, _, name = target.reader.rpartition(".")
        found = _KNOWN[target.reader] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
