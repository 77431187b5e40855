"""The probe's own environment variables, and where they put a run's files: one word for the agent and for its readers.

The doorbell (`sitecustomize`) alone spells them again: it runs in Pythons that cannot import this package.
"""

from __future__ import annotations

import os
import re
from typing import Final

SWITCH: Final = "SGLANG_PROBE"
"""0 turns the probe off."""
DIRECTORY: Final = "SGLANG_PROBE_DIR"
"""The directory of all runs."""
DEFAULT_DIRECTORY: Final = "sglang-probe-runs"
RUN_ID: Final = "SGLANG_PROBE_RUN_ID"
RUN_MAKER: Final = "SGLANG_PROBE_RUN_MAKER"
"""The process that made or claimed the run id."""
REFERENCE: Final = "SGLANG_PROBE_PYTHON"
"""Set by the first armed process; its descendants in another Python are left alone."""

_LEAVES: Final = re.compile(r"[^A-Za-z0-9._+=@:-]|^\.+")


def run_directory(directory: str, run_id: str) -> str:
    """Return the directory of one run; characters that could leave the directory of runs are replaced."""
    return os.path.join(directory, _LEAVES.sub("_", run_id) or "_")  # noqa: PTH118 - as the user spelled the directory
