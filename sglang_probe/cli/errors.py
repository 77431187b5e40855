"""What a command raises when the user can mend it."""

from __future__ import annotations


class BadUse(Exception):
    """Bad use or input: `main` prints the text as one line on stderr and exits 2.

    The text says what happened with the value, and what to do next.
    """
