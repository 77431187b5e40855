"""What every test may lean on: the checkout on the path, and an environment without the caller's own probe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long a test takes says something of the machine alone
settings.load_profile("untimed")

ROOT = Path(__file__).parents[1]  # not resolved: in the tree of `make test` both packages are links into the wheel

sys.path[:] = [str(ROOT), *(entry for entry in sys.path if entry != str(ROOT))]


@pytest.fixture(scope="session")
def root() -> Path:
    """The directory that stands on PYTHONPATH to inject the probe."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _no_probe_of_the_caller() -> Iterator[None]:
    """Take the caller's PYTHONPATH and SGLANG_PROBE_* away; where lanes are kept stays."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name == "PYTHONPATH" or (name.startswith("SGLANG_PROBE") and name not in KEPT):
                patch.delenv(name)
        yield


KEPT = {"SGLANG_PROBE_LANES", "SGLANG_PROBE_WHEEL", "SGLANG_PROBE_WHEELS"}
