"""A bar on stderr while much is read: for a person at a terminal, after half a second, and gone at the end."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S: Final = 0.5
"""What is read sooner needs no bar."""
STEP_BYTES: Final = 4 << 20
"""The clock is looked at, and the bar moved, so often."""


class ReadingBar:
    """Watches reading; shows nothing where stderr is no terminal, and never writes to stdout."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._total: int | None = None
        self._done = self._shown = 0
        self._bar: tuple[Progress, TaskID] | None = None
        self._wanted = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> ReadingBar:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar[0].stop()

    def begin(self, total: int | None) -> None:
        """Take how many bytes there are; None where nobody knows."""
        self._total = total

    def read(self, count: int) -> None:
        """Take how many more were read."""
        self._done += count
        if not self._wanted or self._done - self._shown < STEP_BYTES:
            return
        self._shown = self._done
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=self._done)
        elif time.monotonic() - self._begun > PATIENCE_S:
            self._bar = self._started()

    def _started(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("reading"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        task = progress.add_task("reading", total=self._total, completed=self._done)
        progress.start()
        return progress, task
