"""Writing to stdout and stderr: what the terminal is like, and what happens when one of them is closed or full."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, Final

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.progress import stages

PIPED_WIDTH: Final = 80
NARROWEST: Final = 40
"""Below it a paragraph is no easier to read than what the terminal makes of it."""
WIDEST: Final = 120
"""A table is harder to read across a wider line."""


def emit(text: str) -> None:
    """Write `text` to stdout, now; nothing to nowhere is no error.

    Raises:
        BrokenPipeError: the reader left; `main` is quiet about it.
        BadUse: stdout cannot be written, as on a full disk, or is closed.
    """
    if sys.stdout is None:
        if text:
            raise BadUse("stdout is closed; send it to a file, or to /dev/null")
        return
    with _writing():
        sys.stdout.write(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise BadUse(f"cannot write to stdout: {error.strerror}; send it somewhere else") from error


def emit_json(document: object) -> None:
    """Write a document, of structs or plain objects, to stdout as JSON, indented; raises as `emit`."""
    from sglang_probe.report.document import json_pieces  # msgspec: commands without the extra `cli` do without it

    with ExitStack() as stack:
        if not _is_terminal():  # there it would stand between the lines
            stack.enter_context(stages()).at("writing JSON")
        binary = _binary_stdout()
        if binary is None:
            emit(b"".join(json_pieces(document)).decode())
            return
        with _writing():
            binary.writelines(json_pieces(document))


def _binary_stdout() -> BinaryIO | None:
    """Return what takes UTF-8 as it is; None where stdout has another encoding, or is no file."""
    if sys.stdout is None or (sys.stdout.encoding or "").lower().replace("_", "-") not in {"utf-8", "utf8"}:
        return None
    emit("")  # what was written as text comes first
    binary: BinaryIO | None = getattr(sys.stdout, "buffer", None)
    return binary


def discard_stdout() -> None:
    """Send what is still in the buffer nowhere, or the interpreter would fail on it again at its exit."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def tell(text: str) -> None:
    """Write `text` to stderr. Where that is closed or full there is nobody to tell, and stdout is for results."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def page_width() -> int:
    """Return the columns to write for: the terminal's, within bounds; in a pipe always the same."""
    if not _is_terminal():
        return PIPED_WIDTH
    return max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))


def has_cursor() -> bool:
    """Tell whether a person looks at stdout on a terminal that is not a dumb one."""
    return _is_terminal() and os.environ.get("TERM") not in {None, "", "dumb"}


def wants_colour() -> bool:
    """Tell whether a person looks at stdout on a terminal that has colours and they are wanted."""
    return has_cursor() and not os.environ.get("NO_COLOR")
