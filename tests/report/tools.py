"""Programs that a test needs and pip does not bring: without them it is skipped, or fails where they must be there."""

from __future__ import annotations

import os
import shutil
from typing import Final

import pytest

REQUIRED: Final = os.environ.get("SGLANG_PROBE_REQUIRE_TOOLS") == "1"  # as this is imported: the tests run without it


def program(name: str, package: str) -> str:
    """Return the path of a program of a Debian package; where it is missing the test ends, saying how to get it."""
    found = shutil.which(name)
    if found is not None:
        return found
    missing = f"{name} is not installed: apt-get install {package}"
    if REQUIRED:
        pytest.fail(missing)
    pytest.skip(missing)
