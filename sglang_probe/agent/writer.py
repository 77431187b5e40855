"""The file of this process: append-only, one unbuffered write a line, so that lines survive `os._exit` and SIGKILL."""

from __future__ import annotations

import os
import socket

from sglang_probe.agent.process import ProcessKey, this_process
from sglang_probe.agent.runs import Run, say


class Writer:
    """Writes the lines of one process. No lock: each line is one `write` to a file opened with O_APPEND.

    A forked child opens a file of its own (`forget`). A write that fails is counted, said once, and tried again with
    the next line, since a full disk may be emptied.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.dropped = 0
        self._fd: int | None = None
        self._file: tuple[int, int] | None = None
        self._torn = False
        self._said = False

    def path(self, key: ProcessKey | None = None) -> str:
        """Return where this process writes: `RUN/<host>.<pid>.<start>.jsonl`."""
        key = key or this_process()
        start = "x" if key.start_ticks is None else str(key.start_ticks)
        return os.path.join(self.run.path, f"{socket.gethostname()}.{key.pid}.{start}.jsonl")

    def write(self, line: bytes) -> bool:
        """Write one line (without its newline); tell whether all of it reached the file."""
        try:
            fd = self._fd
            if fd is None or not self._still_ours(fd):
                fd = self._fd = self._open()
            # After a short write the next line begins on a line of its own.
            data = (b"\n" if self._torn else b"") + line + b"\n"
            written = os.write(fd, data)
            self._torn = written < len(data) if written else self._torn
            if written == len(data):
                return True
            self._lost(f"only {written} of {len(data)} bytes fitted")
        except OSError as error:
            self._lost(error.strerror or str(error))
        return False

    def forget(self) -> None:
        """In a forked child: leave the parent's file alone."""
        fd, self._fd, self._torn, self.dropped = self._fd, None, False, 0
        if fd is not None and self._still_ours(fd):
            os.close(fd)

    def _still_ours(self, fd: int) -> bool:
        """Tell whether our descriptor is still our file: a host may close all descriptors and open its own."""
        try:
            stat = os.fstat(fd)
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) == self._file and stat.st_nlink > 0

    def _open(self) -> int:
        os.makedirs(self.run.path, mode=0o700, exist_ok=True)
        fd = os.open(self.path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stat = os.fstat(fd)
        self._file = stat.st_dev, stat.st_ino
        return fd

    def _lost(self, why: str) -> None:
        self.dropped += 1
        # Before anything could be written, the process that made the run speaks for all of them.
        if not self._said and (self.run.speaks or self._fd is not None):
            self._said = True
            say(
                f"events are being lost: cannot write to {self.run.path}: {why}; "
                "free some space there or set SGLANG_PROBE_DIR to a directory that can be written"
            )
