"""Writing to stdout: what the terminal is like, and what happens when it cannot take more."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import Final

from sglang_probe.cli.errors import BadUse

PIPED_WIDTH: Final = 80
WIDEST: Final = 120
"""A table is harder to read across a wider line."""


def emit(text: str) -> None:
    """Write `text` to stdout, now.

    Raises:
        BrokenPipeError: the reader left; `main` is quiet about it.
        BadUse: stdout cannot be written, as on a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise BadUse(f"cannot write to stdout: {error.strerror}; send it somewhere else") from error


def discard_stdout() -> None:
    """Send what is still in the buffer nowhere, or the interpreter would fail on it again at its exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def page_width() -> int:
    """Return the columns to write for."""
    if not sys.stdout.isatty():
        return PIPED_WIDTH
    return max(PIPED_WIDTH, min(shutil.get_terminal_size().columns, WIDEST))


def wants_colour() -> bool:
    """Tell whether a person looks at stdout on a terminal that has colours and they are wanted."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in {None, "", "dumb"}
