"""Print the directory to put on PYTHONPATH so that SGLang's processes load the probe.

    PYTHONPATH=$(sglang-probe pythonpath) python -m sglang.launch_server ...

The SGLang environment must have wrapt and structlog. `sglang-probe run -- CMD...` does the same in one step.
"""

from __future__ import annotations

import argparse

from sglang_probe.cli.doorbell import doorbell_directory
from sglang_probe.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def run(args: argparse.Namespace) -> int:
    """Print the directory."""
    emit(doorbell_directory() + "\n")
    return 0
