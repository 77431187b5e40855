"""Run ids and where files go: one id for all processes of a launch, agreed on through the environment.

The first process in which a target module loads makes the id and exports it with its own identity; a descendant accepts
it only while that maker lives on this host, so that a second launch from a process of the first gets an id of its own.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import MutableMapping
from dataclasses import dataclass

from sglang_probe.agent.process import ProcessKey, is_alive, this_process

RUN_ID = "SGLANG_PROBE_RUN_ID"
RUN_MAKER = "SGLANG_PROBE_RUN_MAKER"
DIRECTORY = "SGLANG_PROBE_DIR"
DEFAULT_DIRECTORY = "sglang-probe-runs"

_GIVEN = "given"
_MADE = "made"


@dataclass(frozen=True, slots=True)
class Run:
    """The run this process belongs to."""

    run_id: str
    made_here: bool
    """This process speaks for the run: it alone may write the one line on stderr."""
    directory: str
    """Absolute directory of all runs."""

    @property
    def path(self) -> str:
        """Directory of this run; characters that could leave the directory of runs are replaced."""
        return os.path.join(self.directory, re.sub(r"[^A-Za-z0-9._+=@:-]|^\.+", "_", self.run_id) or "_")


def join_run(environ: MutableMapping[str, str] = os.environ, me: ProcessKey | None = None) -> Run:
    """Return the run of this process, making its id and exporting it where nobody has; the working directory decides
    where a relative directory lies, once, in the first process."""
    me = me or this_process()
    directory = os.path.abspath(environ.get(DIRECTORY) or DEFAULT_DIRECTORY)
    environ[DIRECTORY] = directory
    run_id, maker = environ.get(RUN_ID), _parse(environ.get(RUN_MAKER))
    if run_id and maker is None:  # the user's own id, not yet claimed by a process
        environ[RUN_MAKER] = _format(me, _GIVEN)
        return Run(run_id, True, directory)
    if run_id and maker is not None and (maker[1] == _GIVEN or is_alive(maker[0])):
        return Run(run_id, maker[0] == me, directory)
    environ[RUN_ID] = run_id = new_run_id()
    environ[RUN_MAKER] = _format(me, _MADE)
    return Run(run_id, True, directory)


def new_run_id() -> str:
    """Return a new id that sorts by time: `20261129T184500Z-3fa9c1`."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + os.urandom(3).hex()


def speaks_for_run() -> bool:
    """Tell whether this process may write the run's one line on stderr. Never raises."""
    try:
        return join_run().made_here
    except Exception:  # without an answer a line too many is better than silence
        return True


def say(text: str) -> None:
    """Write one line to stderr: the only thing the agent ever says there."""
    sys.stderr.write(f"sglang-probe: {text}\n")


def _format(key: ProcessKey, how: str) -> str:
    return f"{key.boot_id or '-'} {key.pid} {key.start_ticks if key.start_ticks is not None else '-'} {how}"


def _parse(text: str | None) -> tuple[ProcessKey, str] | None:
    parts = (text or "").split(" ")
    if len(parts) != 4 or not parts[1].isdigit():
        return None
    boot_id, pid, start, how = parts
    return ProcessKey(None if boot_id == "-" else boot_id, int(pid), int(start) if start.isdigit() else None), how
