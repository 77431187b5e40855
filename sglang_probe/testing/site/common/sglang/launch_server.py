"""Start the server: `python -m sglang.launch_server --model-path ...`."""

from __future__ import annotations

import os
import sys

from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.utils import kill_process_tree


def run_server(server_args: ServerArgs) -> None:
    """Serve over HTTP, the only way there is here."""
    from sglang.srt.entrypoints.http_server import launch_server

    launch_server(server_args)


if __name__ == "__main__":
    server_args = prepare_server_args(sys.argv[1:])

    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
