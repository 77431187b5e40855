"""What the shared parts must know of this release."""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from typing import Any

from sglang.srt.entrypoints.engine import _launch_subprocesses
from sglang.srt.server_args import ServerArgs

watches_children = False


def start_engine(server_args: ServerArgs, **functions: Any) -> list[BaseProcess]:
    """Start the processes; return them."""
    *_, processes = _launch_subprocesses(server_args=server_args, **functions)
    return list(processes)
