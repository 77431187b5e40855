"""Fake GPUs and a fake SGLang for unit tests: no GPU, no torch, no SGLang needed. See docs/testing.md."""

from sglang_probe.testing.core.ledger import OutOfDeviceMemory, Record
from sglang_probe.testing.core.scenario import GIB, MIB, Card, Costs, Fault, Model, Scenario, Tenant
from sglang_probe.testing.fakesite import RELEASES, make_site
from sglang_probe.testing.gpu import FakeGpu, FakeGpus, Taken
from sglang_probe.testing.inprocess import installed
from sglang_probe.testing.server import FakeServer, NotReady, Run
from sglang_probe.testing.story import story

__all__ = [
    "GIB",
    "MIB",
    "RELEASES",
    "Card",
    "Costs",
    "FakeGpu",
    "FakeGpus",
    "FakeServer",
    "Fault",
    "Model",
    "NotReady",
    "OutOfDeviceMemory",
    "Record",
    "Run",
    "Scenario",
    "Taken",
    "Tenant",
    "installed",
    "make_site",
    "story",
]
