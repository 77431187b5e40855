"""Run ids and where files go: one id for all processes of a launch, agreed on through the environment.

The first process in which a target module loads makes the id and exports it with its own identity; a descendant accepts
it only while that maker lives on this host, so that a second launch from a process of the first gets an id of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass

from sglang_probe.agent.process import ProcessKey, is_alive, this_process
from sglang_probe.events.variables import DEFAULT_DIRECTORY, DIRECTORY, RUN_ID, RUN_MAKER, run_directory

_GIVEN = "given"
_MADE = "made"


@dataclass(frozen=True, slots=True)
class Run:
    """The run this process belongs to."""

    run_id: str
    made_here: bool
    """This process made the run id, or was the first to claim the user's."""
    directory: str
    """Absolute directory of all runs."""

    @property
    def speaks(self) -> bool:
        """This process alone may write the run's line on stderr; of ranks that a launcher like torchrun started, the
        first of each host."""
        return self.made_here and os.environ.get("LOCAL_RANK", "0") == "0"

    @property
    def path(self) -> str:
        """Directory of this run."""
        return run_directory(self.directory, self.run_id)


def join_run(environ: MutableMapping[str, str] = os.environ, me: ProcessKey | None = None) -> Run:
    """Return the run of this process, making its id and exporting it where nobody has; the working directory decides
    where a relative directory lies, once, in the first process."""
    me = me or this_process()
    directory = os.path.abspath(environ.get(DIRECTORY) or DEFAULT_DIRECTORY)
    environ[DIRECTORY] = directory
    # A variable may hold bytes that are no UTF-8; JSON cannot.
    run_id = environ.get(RUN_ID, "").encode("utf-8", "replace").decode()
    maker = _parse(environ.get(RUN_MAKER))
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


def say_for_run(text: str) -> None:
    """Say something that concerns the whole run, where this process speaks for it. Never raises."""
    try:
        speaks = join_run().speaks
    except Exception:  # without an answer a line too many is better than silence
        speaks = True
    if speaks:
        say(text)


def say(text: str) -> None:
    """Write one line to stderr, the only thing the agent ever says there; if it is closed, nobody is there to tell."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"sglang-probe: {text}\n")


def _format(key: ProcessKey, how: str) -> str:
    return f"{key.boot_id or '-'} {key.pid} {key.start_ticks if key.start_ticks is not None else '-'} {how}"


def _parse(text: str | None) -> tuple[ProcessKey, str] | None:
    parts = (text or "").split(" ")
    if len(parts) != 4 or not _is_number(parts[1]):
        return None
    boot_id, pid, start, how = parts
    return ProcessKey(None if boot_id == "-" else boot_id, int(pid), int(start) if _is_number(start) else None), how


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
