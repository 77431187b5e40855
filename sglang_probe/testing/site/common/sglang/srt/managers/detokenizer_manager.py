"""The process that turns tokens into text."""

from __future__ import annotations

import os
import signal
import traceback
from typing import Any

from sglang._fake import phases
from sglang._fake.mixins import MultiHttpWorkerDetokenizerMixin
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils.common import configure_logger, kill_itself_when_parent_died, logger


class DetokenizerManager(MultiHttpWorkerDetokenizerMixin):
    """Waits for tokens that never come."""

    def __init__(self, server_args: ServerArgs, port_args: PortArgs) -> None:
        self.server_args, self.port_args = server_args, port_args

    def event_loop(self) -> None:
        phases.wait_while_parent_lives()


def run_detokenizer_process(
    server_args: ServerArgs, port_args: PortArgs, detokenizer_manager_class: Any = DetokenizerManager
) -> None:
    """Be the detokenizer until the launcher is gone."""
    kill_itself_when_parent_died()
    configure_logger(server_args)
    parent = os.getppid()
    try:
        manager = detokenizer_manager_class(server_args, port_args)
        manager.event_loop()
    except Exception:
        logger.error(f"DetokenizerManager hit an exception: {traceback.format_exc()}")
        os.kill(parent, signal.SIGQUIT)
