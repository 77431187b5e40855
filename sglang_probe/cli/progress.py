"""What stderr shows while a command works: a bar as much is read, then the stage it is at. For a person at a terminal,
after half a second, and gone at the end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S: Final = 0.5
"""What is done sooner needs no bar."""
STEP_BYTES: Final = 4 << 20
"""The clock is looked at, and the bar moved, so often."""
TURNS_PER_S: Final = 4
"""The stage's sign turns so often: each turn takes the interpreter from the work."""


class ReadingBar:
    """Watches reading; shows nothing where stderr is no terminal, and never writes to stdout."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._total: int | None = None
        self._done = self._shown = 0
        self._bar: tuple[Progress, TaskID] | None = None
        self._wanted = _is_watched()
        self._sigterm = _Sigterm(wanted=self._wanted)

    def __enter__(self) -> ReadingBar:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        with self._sigterm.drawing():
            if self._bar is not None:
                self._bar[0].stop()
            self._sigterm.leave()

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
            with self._sigterm.drawing():
                progress.update(task, completed=self._done)
        elif time.monotonic() - self._begun > PATIENCE_S:
            with self._sigterm.drawing():
                self._start()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("reading"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._bar = progress, progress.add_task("reading", total=self._total, completed=self._done)
        progress.start()


class Stages:
    """Says what is being done. The work itself knows nothing of it: a thread of its own shows it."""

    def __init__(self) -> None:
        self._name = ""
        self._bar: tuple[Progress, TaskID] | None = None
        self._over = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        is_watched = _is_watched()
        self._sigterm = _Sigterm(wanted=is_watched)
        if is_watched:
            self._timer = threading.Timer(PATIENCE_S, self._show)
            self._timer.daemon = True
            self._timer.start()

    def at(self, name: str) -> None:
        """Take what is done from now on."""
        with self._sigterm.drawing(), self._lock:
            self._name = name
            if self._bar is not None:
                progress, task = self._bar
                progress.update(task, description=name)

    def end(self) -> None:
        """Take the line away."""
        if self._timer is not None:
            self._timer.cancel()
        with self._sigterm.drawing(), self._lock:
            self._over = True
            if self._bar is not None:
                self._bar[0].stop()
            self._sigterm.leave()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        console = Console(stderr=True)
        with self._lock:
            if self._over:
                return
            progress = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, refresh_per_second=TURNS_PER_S
            )
            self._bar = progress, progress.add_task(self._name, total=None)
            progress.start()


@contextmanager
def stages() -> Iterator[Stages]:
    """Yield something that is told each stage of a command after its reading; print results behind it, not inside.

        with stages() as doing:
            doing.at("building the timeline")
            timeline = build(collected)
            doing.at("writing run.html")
            ...
    """
    shown = Stages()
    try:
        yield shown
    finally:
        shown.end()


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class _Sigterm:
    """Lets SIGTERM end the command through its `finally`s, so that the line goes and the cursor comes back."""

    def __init__(self, *, wanted: bool) -> None:
        self._is_set = wanted and threading.current_thread() is threading.main_thread()
        self._is_drawing = self._is_asked = False
        self._before: Any = signal.getsignal(signal.SIGTERM)
        if self._is_set:
            signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._is_asked = True
        if not self._is_drawing:
            self._stop()

    def _stop(self) -> None:
        """Do what SIGTERM did before, which for a command is to exit and to know why."""
        if callable(self._before):
            self._before(signal.SIGTERM, None)
        sys.exit(128 + signal.SIGTERM)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Keep the main thread from being ended in here, where the bar is half made; it is afterwards."""
        self._is_drawing = True
        try:
            yield
        finally:
            self._is_drawing = False
        if self._is_asked:
            self._stop()

    def leave(self) -> None:
        """Put back what SIGTERM did before."""
        if self._is_set:
            self._is_set = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
