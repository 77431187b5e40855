"""How a text looks on this stdout: its width, colours, bars, or `--plain`, for every command that prints one."""

from __future__ import annotations

import argparse
import os
from typing import Final, NamedTuple

from sglang_probe.cli.output import has_cursor, page_width, wants_colour

PLAIN: Final = "SGLANG_PROBE_PLAIN"
"""Set to anything but 0 it does what --plain does."""
NOT_SET: Final = {"", "0"}


class Looks(NamedTuple):
    """What a renderer is told."""

    width: int | None
    """Columns of the page; None: plain, a line is a sentence, however long, and nothing stands in columns."""
    colour: bool
    bars: bool

    @property
    def plain(self) -> bool:
        """Whether it is for a screen reader or a dumb terminal."""
        return self.width is None


def add_plain(parser: argparse.ArgumentParser) -> None:
    """Take whether the text shall do without columns, bars and colour."""
    parser.add_argument(
        "--plain",
        action="store_true",
        help=f"sentences instead of columns, no bars, no colour, as for a screen reader (so does {PLAIN}=1)",
    )


def looks_of(args: argparse.Namespace) -> Looks:
    """Return how to print: plain where it is asked for, else by what stdout is."""
    if args.plain or os.environ.get(PLAIN, "") not in NOT_SET:
        return Looks(None, colour=False, bars=False)
    return Looks(page_width(), wants_colour(), has_cursor())
